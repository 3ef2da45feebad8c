"""The arithmetic of the report: intervals, histograms and what another limit would do."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prefdata import intervals
from prefdata.report.model import WhatIf
from prefdata.report.parts import Accuracy, Histogram, Share

Floats = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.bool_]
Side = Literal["above", "below"]
BINS = 36


def short(value: float) -> float:
    """The number with six significant digits: what a float32 was meant to be."""
    return float(f"{value:.6g}")


def wilson(hits: int, n: int, ties: int = 0) -> Share:
    """A proportion with the Wilson score interval at 95 %."""
    if n == 0:
        return Share(value=None, low=None, high=None, hits=0, n=0, ties=ties)
    p = hits / n
    low, high = intervals.wilson(p, n)
    return Share(value=p, low=low, high=high, hits=hits, n=n, ties=ties)


def rule(longer: Share) -> Accuracy:
    """How often it is right to guess that the longer answer is chosen; of answers of equal length, one half is."""
    n = longer.n + longer.ties
    if n == 0:
        return Accuracy(value=None, low=None, high=None, n=0)
    p = (longer.hits + longer.ties / 2) / n
    low, high = intervals.wilson(p, n)
    return Accuracy(value=p, low=low, high=high, n=n)


def nice(step: float) -> float:
    """The next round step: 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return float(next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= step * 0.9999))


def beyond(score: Floats, limit: float, drops: Side, inclusive: bool) -> Mask:
    """Which scores are on the side of the limit that is acted upon; a missing score is on neither."""
    if drops == "above":
        return score >= limit if inclusive else score > limit
    return score <= limit if inclusive else score < limit


def usual_limit(limits: Floats) -> float | None:
    """The limit that most rows were held to, or None."""
    values, counts = np.unique(limits[np.isfinite(limits)], return_counts=True)
    return float(values[counts.argmax()]) if len(values) else None


def _span(values: Floats, limit: float | None) -> tuple[float, float]:
    """The range worth drawing: all of it, or the inner 99 % where a tail would squeeze the rest."""
    low, high = float(values.min()), float(values.max())
    inner_low, inner_high = (float(q) for q in np.quantile(values, [0.005, 0.995]))
    if inner_high > inner_low and high - low > 3 * (inner_high - inner_low):
        low, high = inner_low, inner_high
    if limit is not None:
        low, high = min(low, limit), max(high, limit)
    return low, high


def _whole(values: Floats) -> bool:
    head = values[:10_000]
    return bool((head == np.floor(head)).all())


def histogram(
    before: Floats, after: Floats, limit: float | None = None, drops: Side | None = None, inclusive: bool = True
) -> Histogram | None:
    """Both distributions in the same bins; an edge lies on the limit (on 0 where there is none)."""
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    if not len(before):
        return None
    low, high = _span(before, limit)
    step = nice((high - low) / BINS) if high > low else nice(max(abs(low), 1.0) / 10)
    if _whole(before) and (limit is None or limit == math.floor(limit)):
        step = max(1.0, step)
    origin = 0.0 if limit is None else short(limit)
    first = origin + math.floor((low - origin) / step + 1e-4) * step
    bins = math.floor((high - first) / step + 1e-4) + 1

    def count(values: Floats) -> list[int]:
        at = np.floor((values - first) / step + 1e-4).astype(np.int64)
        return [int(c) for c in np.bincount(np.clip(at, 0, bins - 1), minlength=bins)]

    edges = [short(first + i * step) for i in range(bins + 1)]
    lowest, highest = float(before.min()), float(before.max())
    over = int(beyond(before, limit, drops, inclusive).sum()) if limit is not None and drops else 0
    return Histogram(
        edges=edges, before=count(before), after=count(after), n_before=len(before), n_after=len(after),
        lowest=short(lowest), highest=short(highest), clipped_low=lowest < first - step / 2,
        clipped_high=highest > first + bins * step + step / 2, limit=None if limit is None else short(limit), drops=drops,
        below=(over if drops == "below" else len(before) - over) if drops and limit is not None else 0,
        above=(over if drops == "above" else len(before) - over) if drops and limit is not None else 0,
    )  # fmt: skip


def other_limits(score: Floats, limit: float, want: int = 5) -> list[float]:
    """Up to five round limits around the present one, within the scores that occur."""
    low, high = float(score.min()), float(score.max())
    inner = _span(score, limit)
    if inner[1] <= inner[0]:
        return []
    step = nice((inner[1] - inner[0]) / 20)
    if _whole(score) and limit == math.floor(limit):
        step = max(1.0, step)
    found: list[float] = []
    for k in (1, 2, 4, 8, 16):
        for sign in (-1, 1):
            value = short(limit + sign * k * step)
            if low <= value <= high and len(found) < want:
                found.append(value)
    if len(found) < want:
        spread = np.quantile(score, [0.99, 0.95, 0.9, 0.75, 0.5, 0.25, 0.1])
        more = [float(f"{q:.2g}") for q in spread]
        found += [v for v in dict.fromkeys(more) if v not in found and v != short(limit) and low <= v <= high]
    return sorted(found[:want])


def what_if(
    score: Floats, acted: Mask, limit: float, drops: Side, inclusive: bool, dropped: int, verb: str
) -> list[WhatIf]:
    """What the stage would act on at other limits.

    Rows that it acted on for another cause than the score stay acted on, and rows beyond the present limit
    that it let pass (a second condition saved them) stay passed; so a looser limit is exact, a stricter one
    an upper bound.
    """
    has = np.isfinite(score)
    if not has.any():
        return []
    now = beyond(score, limit, drops, inclusive)
    other_cause, may = acted & ~now, acted | ~now
    asked, base = len(score), int(acted.sum())
    out = []
    for value in sorted([*other_limits(score[has], limit), short(limit)]):
        current = value == short(limit)
        there = now if current else beyond(score, value, drops, inclusive)
        count = int((other_cause | (there & may)).sum())
        kept = asked - dropped - (count - base if verb == "drop" else 0)
        out.append(WhatIf(
            limit=value, acted=count, acted_share=count / asked, kept=kept, kept_share=kept / asked, change=count - base,
            current=current,
        ))  # fmt: skip
    return out
