"""Several answers and a list that compares each with each: first with second, first with third, ... , last but one with last."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from prefdata.pairs import Fault, Pair
from prefdata.shapes import judged, labels
from prefdata.shapes.columns import Asked, Columns, Parts, Row, Shown, value

SHOWN = (
    Shown("comparisons", "several answers, each compared with each", ({
        "question": "What do bees make?", "prediction 1": "Honey.", "prediction 2": "Milk.", "prediction 3": "Honey!",
        "preference": [1, 0, 2],
    },)),
)  # fmt: skip
PARTS = ("prompt", "context", "system", "label")
_ANSWER = re.compile(r"(prediction|output|response|answer|completion|candidate|generation|summary)_(\d+)")
_LABELS = ("preference", "preferences", "comparisons", "comparison", "label", "labels")


def find(names: Sequence[str], asked: Asked, head: Sequence[Row]) -> Columns | None:
    """Three or more numbered answers, and a list of as many labels as they make pairs."""
    stems: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        if m := _ANSWER.fullmatch(judged.spelled(name)):
            stems.setdefault(m[1], []).append((int(m[2]), name))
    there = [asked.columns["label"]] if "label" in asked.columns else [n for n in names if judged.spelled(n) in _LABELS]
    for found in stems.values():
        answers = tuple(name for _, name in sorted(found))
        for label in there:
            lists = [v for r in head if (v := value(r, label)) is not None]
            size = len(answers) * (len(answers) - 1) // 2
            if len(answers) > 2 and lists and all(isinstance(v, list) and len(v) == size for v in lists):
                # 1 and 2 are the first and the second of the two compared, whatever the answers are called
                code, scale = labels.code(label, [x for v in lists for x in v], "first 1", "second 2", asked)
                parts = judged.asked_of(names, asked, head, (*answers, label))
                more: Parts = {"answers": answers, "label": label, **scale}
                return Columns.of("comparisons", names, {**parts, **more}, answers, code=code)
    return None


def read(row: Row, columns: Columns, asked: Asked) -> tuple[str, list[Pair | Fault]]:
    """The name of the row's form, and a pair or fault a comparison, in their order."""
    pairs = list(combinations(columns.all("answers"), 2))
    label = str(columns["label"])
    given: Any = value(row, label)
    if given is not None and (not isinstance(given, list) or len(given) != len(pairs)):
        return "comparisons", [Fault("bad_type", f"{label} is not a list of {len(pairs)} comparisons")]
    made: list[Pair | Fault] = []
    for i, (first, second) in enumerate(pairs):
        one = given[i] if given is not None else None
        said = labels.told(f"{label}[{i}]" if given is not None else label, one)
        two = replace(columns, parts={**columns.parts, "first": first, "second": second})
        made.append(judged.judged(row, two, asked, judged.Verdict(labels.meaning(one, columns, asked), said)))
    return "comparisons", made
