"""Rates, shares and distributions of two sides, with their change."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from prefdata import intervals
from prefdata.diff_side import Numbers, Side
from prefdata.pairs import SIDES
from prefdata.report import numbers
from prefdata.report.compare import Count, Distribution, Quantile, Rate, Spread, SpreadValue
from prefdata.report.numbers import short
from prefdata.report.parts import Dimension, Share

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def counts(a: Side, b: Side) -> list[Count]:
    """Pairs and what became of them."""
    one, two = a.report.totals, b.report.totals
    names = ("pairs", "kept", "dropped", "flagged", "swapped", "added")
    rows = [(name, int(getattr(one, name)), int(getattr(two, name))) for name in names]
    rows.append(("broken", int((~a.keys.sound).sum()), int((~b.keys.sound).sum())))
    return [Count(name=n, a=x, b=y, change=y - x) for n, x, y in rows if x or y or n in ("pairs", "kept", "dropped")]


def same_files(a: Side, b: Side) -> bool:
    """True if both sides read the same files, byte for byte."""
    read = [[f.get("sha256") for f in s.report.source.get("files", [])] for s in (a, b)]
    return read[0] == read[1] and all(read[0]) and a.report.totals.pairs == b.report.totals.pairs


def rates(a: Side, b: Side) -> list[Rate]:
    """Shares of the whole sets; then every issue that either side found, the largest change first.

    Two sides that read the same files are no two samples: no change is chance, and none has an interval.
    """
    found = _rates(a, b)
    if same_files(a, b):
        return [r.model_copy(update={"low": None, "high": None, "beyond": False}) for r in found]
    return found


def _rates(a: Side, b: Side) -> list[Rate]:
    out = []
    for name in ("kept", "dropped", "flagged"):
        one, two = (numbers.wilson(getattr(s.report.totals, name), s.report.totals.pairs) for s in (a, b))
        out.append(_rate(name, "", f"pairs {name}", "pairs", one, two))
    longer = "longer answer chosen, of kept pairs"
    out.append(_rate("longer_chosen", "", longer, "kept pairs", a.report.length.after, b.report.length.after))
    issues = {i.key: i for s in (a, b) for i in s.report.issues}
    found = [
        _rate(key, i.stage, i.title, "pairs", *(_issue(s, key, i.stage) for s in (a, b))) for key, i in issues.items()
    ]
    return [*out, *sorted(found, key=lambda r: (r.change is None, -abs(r.change or 0), r.name))]


def _issue(side: Side, key: str, stage: str) -> Share | None:
    """How many pairs have this issue; None where its stage did not run."""
    if all(f.key != stage for f in side.report.funnel):
        return None
    return numbers.wilson(next((i.rows for i in side.report.issues if i.key == key), 0), side.report.totals.pairs)


def _rate(name: str, stage: str, title: str, of: str, a: Share | None, b: Share | None) -> Rate:
    change = low = high = None
    if a is not None and b is not None and a.value is not None and b.value is not None:
        change = b.value - a.value
        low, high = intervals.difference(b.hits, b.n, a.hits, a.n)
    beyond = low is not None and high is not None and (low > 0 or high < 0)
    return Rate(name=name, stage=stage, title=title, of=of, a=a, b=b, change=change, low=low, high=high, beyond=beyond)


def spreads(a: Side, b: Side) -> list[Spread]:
    """Columns, and languages, that both sides are spread over: shares of kept pairs."""
    there = {d.key: d for d in a.report.balance}
    return [_spread(there[d.key], d) for d in b.report.balance if d.key in there and there[d.key].n_after and d.n_after]


def _spread(a: Dimension, b: Dimension) -> Spread:
    one, two = ({v.name: v.after_share for v in d.values if v.name is not None} for d in (a, b))
    values = []
    for name in dict.fromkeys([*two, *one]):
        x, y = _listed(a, one, name), _listed(b, two, name)
        values.append(SpreadValue(name=name, a=x, b=y, change=None if x is None or y is None else y - x))
    return Spread(key=b.key, title=b.title, n_a=a.n_after, n_b=b.n_after, values=values)


def _listed(side: Dimension, known: dict[str, float | None], name: str) -> float | None:
    """The share of a value: none is 0 where the report lists all values, and not known where it does not."""
    whole = all(v.name is not None for v in side.values)
    return known.get(name, 0.0 if whole else None)


def distributions(a: Side, b: Side) -> Iterator[Distribution]:
    """Lengths of the kept pairs as they leave, and every score that both sides have."""
    one, two = ({side: s.lengths[side][s.kept & s.keys.sound] for side in SIDES} for s in (a, b))
    for name in SIDES:
        yield from _distribution(f"words_{name}", f"words in {name}", "kept", one[name], two[name])
    gaps = (x["chosen"] - x["rejected"] for x in (one, two))
    yield from _distribution("length_gap", "words in chosen minus words in rejected", "kept", *gaps)
    scales = {s.name: s.scale for s in b.report.stages}
    for stage in (s for s in b.scores if s in a.scores):
        title = f"score of {stage}" + (f": {scales[stage]}" if scales.get(stage) else "")
        yield from _distribution(f"score_{stage}", title, "scored", a.scores[stage], b.scores[stage])


def _distribution(key: str, title: str, of: str, a: Numbers, b: Numbers) -> Iterator[Distribution]:
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    if not len(a) or not len(b):
        return
    both = numbers.histogram(np.concatenate([a, b]), b)
    assert both is not None
    a, b = np.sort(a), np.sort(b)
    quantiles = []
    for p in QUANTILES:
        x, y = (short(float(np.quantile(v, p))) for v in (a, b))
        quantiles.append(Quantile(p=p, a=x, b=y, change=short(y - x)))
    yield Distribution(
        key=key, title=title, of="kept" if of == "kept" else "scored", n_a=len(a), n_b=len(b), quantiles=quantiles, ks=short(largest_gap(a, b)),
        edges=both.edges, a=[x - y for x, y in zip(both.before, both.after, strict=True)], b=both.after,
        lowest=both.lowest, highest=both.highest, clipped=both.clipped_low or both.clipped_high,
    )  # fmt: skip


def largest_gap(a: Numbers, b: Numbers) -> float:
    """The Kolmogorov-Smirnov statistic of two sorted samples (scipy's ``ks_2samp`` finds its p-value as well, which takes long)."""
    at = np.concatenate([a, b])
    return float(np.abs(np.searchsorted(a, at, "right") / len(a) - np.searchsorted(b, at, "right") / len(b)).max())
