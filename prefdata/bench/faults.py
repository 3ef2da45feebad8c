"""Faults of rows, planted in a set and looked for by the pipeline itself: precision and recall of the stage that should see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import prefdata
from prefdata.bench import planting
from prefdata.bench.planting import PLANTS, Planted, Row
from prefdata.bench.sentences import words
from prefdata.errors import InputError
from prefdata.pipeline import Pipeline
from prefdata.stage import stage_class

STAGES: Mapping[str, str] = {
    "exact": "exact_duplicate", "near": "near_duplicate", "contradiction": "contradiction",
    "identical": "similar_responses", "cut": "token_length",
}  # fmt: skip
"""Kind of fault -> the stage that should find it."""
_WINDOW = 1024
_PIPELINE = "certain"


def measure(
    rows: Sequence[Row], kinds: Sequence[str], share: float, seed: int, tokenizer: str | None
) -> list[dict[str, Any]]:
    """Plant ``share`` of the rows anew with each kind and audit them; a record a kind.

    What the pipeline finds before anything is planted is taken out first, so that whatever a stage names afterwards is a planted
    row, or a false alarm. Row copied as a contradiction count as rightly named: which of the two is wrong nobody can say. ``cut``
    needs the folder of a tokenizer.
    """
    audit = partial(
        _named, sets=[f"token_length.max_length={_WINDOW}", f"token_length.tokenizer={tokenizer or 'null'}"]
    )
    found = audit(rows).values()
    clean = [row for i, row in enumerate(rows) if not any(i in named for named in found)]
    count = round(share * len(clean))
    if not count:
        raise InputError(f"{share:.0%} of {len(clean)} rows is not one row: nothing can be planted")
    out = []
    for kind in kinds:
        if kind == "cut" and tokenizer is None:
            continue
        rng = Random(f"{seed} {kind}")
        made = planting.cut(clean, count, rng, _WINDOW) if kind == "cut" else PLANTS[kind](clean, count, rng)
        named = audit(made.rows).get(STAGES[kind], set())
        out.append({"fault": kind, "stage": STAGES[kind], "seed": seed, **_scores(made, named)})
    return out


def shortcut(rows: Sequence[Row], strength: float, seed: int) -> dict[str, Any]:
    """Plant a stock opening that wins in a share ``strength`` of the pairs, and read what ``label_shortcut`` says of it.

    ``told`` is the share that it says the opening wins (None where it does not name it), ``phrases`` the accuracy of all stock
    phrases together, the set's own among them.
    """
    result = prefdata.audit(
        planting.shortcut(rows, strength, Random(f"{seed} shortcut")), pipeline=pipeline("label_shortcut"), workers=1
    )
    found = [f for f in result.findings if f.when == "all"]
    opening = " ".join(words(planting.LEAD)[:3])
    told = next((float(f.value) for f in found if f.name.startswith("phrase_") and opening in f.text), None)
    every = next((float(f.value) for f in found if f.name == "stock_phrases"), None)
    return {
        "strength": strength,
        "seed": seed,
        "told": told,
        "error": None if told is None else told - strength,
        "phrases": every,
    }


def pipeline(*stages: str) -> Pipeline:
    """These stages at their defaults, behind ``malformed``."""
    names = ["malformed", *stages]
    return Pipeline("bench", [stage_class(name)() for name in names], names)


def _named(rows: Sequence[Row], sets: Sequence[str]) -> dict[str, set[int]]:
    """The rows that each stage drops or flags."""
    result = prefdata.audit(list(rows), pipeline=_PIPELINE, set=sets, workers=1)
    out: dict[str, set[int]] = {}
    for stage, made in zip(result.stages, result.made, strict=True):
        out[stage] = set(made.rows[made.of("drop") | made.of("flag")].tolist())
    return out


def _scores(made: Planted, named: set[int]) -> dict[str, Any]:
    right = len(named & (made.bad | made.partners))
    return {
        "planted": len(made.bad), "named": len(named),
        "precision": right / len(named) if named else None,
        "recall": len(named & made.bad) / len(made.bad) if made.bad else None,
    }  # fmt: skip
