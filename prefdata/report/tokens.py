"""How long the pairs are, and what the trainer's window does to them: from what ``token_length`` measured, else in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prefdata.decisions import Decisions, Index, Signals
from prefdata.pairs import SIDES
from prefdata.report import numbers
from prefdata.report.numbers import Mask
from prefdata.report.parts import Tokens, Window
from prefdata.stage import Stage

TOKENS = "token_length"
_QUANTILES = (50, 90, 99, 100)


def tokens(
    signals: Signals, stages: Sequence[Stage], decisions: Sequence[Decisions], sound: Index, kept: Mask
) -> Tokens:
    """Of the pairs that the stage was asked of; where it had no tokenizer, or did not run, words of the sound pairs."""
    asked = {s.name(): (s, made) for s, made in zip(stages, decisions, strict=True)}
    stage, made = asked.get(TOKENS, (None, None))
    window = getattr(stage, "max_length", None) if getattr(stage, "tokenizer", None) else None
    rows = sound if made is None or window is None else made.rows
    names = [f"pair.{s}_words" if window is None else f"{TOKENS}.{s}_tokens" for s in SIDES]
    prompt, chosen, rejected = (signals.living(rows).column(name).astype(np.float64) for name in names)
    size = prompt + np.fmax(chosen, rejected)
    has = size[np.isfinite(size)]
    found = {f.name: f for f in made.findings} if made is not None else {}
    lost = {word: sum(by.values()) for word, by in made.by_reason().items()} if made is not None else {}
    cut = found.get("truncated") if window is not None else None
    windows = [
        Window(max_length=at, lost=float(f.value), cut=float(found[f"cut_at_{at}"].value), current=at == window)
        for name, f in found.items() if name.startswith("loss_at_") and (at := int(name.removeprefix("loss_at_")))
    ]  # fmt: skip
    return Tokens(
        unit="words" if window is None else "tokens", n=len(has), max_length=window,
        quantiles=[int(np.percentile(has, q, method="higher")) for q in _QUANTILES] if len(has) else [],
        filled=lost.get("too_long", 0), identical=lost.get("identical_after_truncation", 0), windows=windows,
        cut=int(cut.value) if cut else 0, cut_share=int(cut.value) / cut.n if cut and cut.n else None,
        histogram=numbers.histogram(size, size[kept[rows]], window, "above" if window else None, inclusive=False),
    )  # fmt: skip
