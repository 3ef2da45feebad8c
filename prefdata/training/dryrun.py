"""``--dry-run``: what a run would be, without weights and without a trace: tokens by the trainer's own ids, memory, the first batch."""

from __future__ import annotations

import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from prefdata.training import checks, dpo, models, telling
from prefdata.training.settings import Settings

_SHOWN = 4  # pairs of the first batch that are shown
_QUANTILES = {"least": 0.0, "median": 0.5, "90 %": 0.9, "99 %": 0.99, "most": 1.0}


def look(source: Any, settings: Settings) -> tuple[list[str], dict[str, Any]]:
    """Lines for people and the document for programs; ``ok`` in it is False where a check would refuse the run."""
    models.need()
    with dpo.silent(), tempfile.TemporaryDirectory(prefix="prefdata-") as work:
        case, found = dpo.prepared(source, Path(work), settings)
        seen: dict[str, Any] = {"ok": not checks.failed(found), "checks": [c.document() for c in found]}
        lines = [*telling.check_lines(found, every=False)]
        if case is None:
            return [*lines, _NOTHING], seen
        seen |= {"plan": case.plan.document(), "memory": case.plan.parts(case.facts), "free": case.machine.memory}
        lines[:0] = telling.plan_lines(seen["plan"], settings)
        lines += _memory_lines(seen["memory"], case.machine.memory)
        if case.train is not None and len(case.train.dataset):
            seen |= {"tokens": _tokens(case), "batch": _batch(case)}
            lines += _token_lines(seen["tokens"], case.plan.max_length)
            lines += _batch_lines(seen["batch"])
        return [*lines, _NOTHING], seen


_NOTHING = "nothing was written (--dry-run)"


def _tokens(case: checks.Case) -> dict[str, Any]:
    """Quantiles of tokens before cutting, and how many pairs are cut or lost, by split."""
    out: dict[str, Any] = {}
    for name, made in (("train", case.train), ("eval", case.held)):
        if made is None:
            continue
        sizes = made.lengths()
        whole = sizes["prompt"] + np.maximum(sizes["chosen"], sizes["rejected"])
        columns = {**sizes, "prompt": made.prompt_tokens, "longest of the pair": whole}
        out[name] = {
            "pairs": len(made.pairs),
            "lost": len(made.left),
            "cut": int((whole > case.plan.max_length).sum()),
            "quantiles": {
                side: {k: int(np.quantile(n, q)) for k, q in _QUANTILES.items()} if len(n) else {}
                for side, n in columns.items()
            },
        }
    return out


def _batch(case: checks.Case) -> list[dict[str, Any]]:
    """Sequences of a first batch as runs of tokens of one kind: ``prompt`` (no label), ``answer`` (with one), ``padding``."""
    from prefdata.training.trainer import Collator

    made, tokenizer = case.train, case.tokenizer
    assert made is not None
    n = min(_SHOWN, case.plan.micro_batch_size, len(made.dataset))
    batch = Collator(pad_token_id=tokenizer.pad_token_id, max_length=case.plan.max_length)(
        [made.dataset[i] for i in range(n)]
    )
    names = made.named(np.arange(n))
    out = []
    for k, (ids, attended, labelled) in enumerate(
        zip(*(batch[c].tolist() for c in ("input_ids", "attention_mask", "completion_mask")), strict=True)
    ):
        kinds = ["answer" if y else "prompt" if a else "padding" for a, y in zip(attended, labelled, strict=True)]
        runs = [
            (kind, [i for _, i in group]) for kind, group in groupby(zip(kinds, ids, strict=True), key=lambda p: p[0])
        ]
        out.append({
            "pair": names[k % n], "side": "chosen" if k < n else "rejected",
            "runs": [{"kind": kind, "tokens": len(some), "text": tokenizer.decode(some)} for kind, some in runs],
        })  # fmt: skip
    return out


def _token_lines(tokens: Mapping[str, Any], window: int) -> Iterator[str]:
    for name, found in tokens.items():
        lost = f", {found['lost']:,} lost (the prompt fills the window)" if found["lost"] else ""
        yield f"tokens    {name}: {found['pairs']:,} pairs, {found['cut']:,} cut at {window:,}{lost}"
        yield f"{'':<30}" + "".join(f"{name:>9}" for name in _QUANTILES)
        for side, quantiles in found["quantiles"].items():
            yield f"          {side:<20}" + "".join(f"{n:>9,}" for n in quantiles.values())


def _memory_lines(parts: Mapping[str, int], free: int) -> Iterator[str]:
    told = ", ".join(f"{name} {telling.size(n)}" for name, n in parts.items() if n)
    yield f"memory    about {telling.size(sum(parts.values()))} of {telling.size(free)} free: {told}"


def _batch_lines(batch: list[dict[str, Any]]) -> Iterator[str]:
    yield "batch     first pairs as the model is given them; ⟦what is trained⟧, padding as ▒"
    for line in batch:
        text = "".join(
            f"▒x{run['tokens']}" if run["kind"] == "padding"
            else f"⟦{visible(run['text'])}⟧" if run["kind"] == "answer" else visible(run["text"])
            for run in line["runs"]
        )  # fmt: skip
        yield f"  {line['pair']} {line['side']}: {text}"


def visible(text: str) -> str:
    """Control and format characters as escapes, so that a terminal shows them and does not obey them."""
    return "".join(c.encode("unicode_escape").decode() if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in text)  # fmt: skip
