"""The comparison of two sets as typed data: what ``prefdata diff`` makes, ``compare.json`` holds and the templates print.

A is the earlier set ("then"), B the later one ("now"); a change is B minus A.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from prefdata.report.model import Histogram
from prefdata.report.parts import Part, Share

COMPARE_VERSION = 1
CUT_AT = 4000
Kind = Literal["only_in_a", "only_in_b", "swapped", "changed", "kept_to_dropped", "dropped_to_kept"]
TextSide = Literal["prompt", "chosen", "rejected"]
KINDS: tuple[Kind, ...] = ("only_in_a", "only_in_b", "swapped", "changed", "kept_to_dropped", "dropped_to_kept")


class Compared(Part):
    """One side: what it is and how it was made; ``broken`` pairs have no texts to compare."""

    name: str
    audited_here: bool
    action: Literal["audit", "clean"]
    pipeline: str
    seed: int
    prefdata: str
    files: list[str]
    partial: bool
    pairs: int
    kept: int
    broken: int
    no_texts: str


class Count(Part):
    """A count of both sides."""

    name: str
    a: int
    b: int
    change: int


class RowKind(Part):
    """Pairs of one kind: ``all`` of them, ``kept`` those that are kept where they stand (on both sides, for a match).

    ``share`` is of the pairs of B (of A for ``only_in_a``); ``reasons`` say why pairs that moved were dropped; ``changed`` names texts.
    """

    kind: Kind
    title: str
    all: int
    kept: int | None
    share: float | None
    reasons: dict[str, int]
    shown: int


class Rate(Part):
    """A share of both sides; None where the side has no such stage. ``low`` and ``high`` bound the change at
    95 %; None where both sides read the same files, so that nothing is chance.

    ``beyond`` is True where two samples of one source would seldom differ so much.
    """

    name: str
    stage: str
    title: str
    of: str
    a: Share | None
    b: Share | None
    change: float | None
    low: float | None
    high: float | None
    beyond: bool


class SpreadValue(Part):
    """The share of one value of a column on both sides; None where the side does not list it."""

    name: str | None
    a: float | None
    b: float | None
    change: float | None


class Spread(Part):
    """How kept pairs are spread over the values of a column."""

    key: str
    title: str
    n_a: int
    n_b: int
    values: list[SpreadValue]


class Quantile(Part):
    """The value below which ``p`` of the pairs lie."""

    p: float
    a: float
    b: float
    change: float


class Distribution(Part):
    """A number of both sides in common bins; the outer bins hold what lies beyond. ``ks`` is the largest gap between the two
    cumulative shares: 0 if they are alike, 1 if they do not touch.
    """

    key: str
    title: str
    of: Literal["kept", "scored"]
    n_a: int
    n_b: int
    ks: float
    quantiles: list[Quantile]
    edges: list[float]
    a: list[int]
    b: list[int]
    lowest: float
    highest: float
    clipped: bool


class Texts(Part):
    """A pair of one side; ``lengths`` gives the characters of each text that was cut. Texts are empty where ``known`` is False."""

    row: int
    pd_id: str
    state: Literal["kept", "dropped"]
    reason: str
    known: bool
    prompt: str
    chosen: str
    rejected: str
    lengths: dict[str, int]


class RowExample(Part):
    """One pair of one kind, as it stands on the sides that have it."""

    kind: Kind
    differs: list[TextSide]
    a: Texts | None
    b: Texts | None


class Compare(Part):
    """The whole comparison. ``same`` pairs are equal in all three texts, ``same_kept`` are kept on both sides."""

    compare_version: int = COMPARE_VERSION
    prefdata: str
    a: Compared
    b: Compared
    sentence: str
    notes: list[str]
    counts: list[Count]
    same: int
    same_kept: int
    kinds: list[RowKind]
    rates: list[Rate]
    spreads: list[Spread]
    distributions: list[Distribution]
    rows: list[RowExample]
    cut_at: int = CUT_AT


def as_now(held: Mapping[str, Any] | None) -> Compare | None:
    """What ``audit/compare.json`` holds; None where there is none, or another version of prefdata wrote it otherwise."""
    if held is None or held.get("compare_version") != COMPARE_VERSION:
        return None
    return Compare.model_validate(held)


def per_million(data: Distribution) -> Histogram:
    """A distribution as a histogram of shares (in millionths), so that sides of other sizes can be drawn in one picture."""

    def shares(counts: list[int], n: int) -> list[int]:
        return [round(1e6 * c / n) or min(c, 1) for c in counts]

    return Histogram(
        edges=data.edges, before=shares(data.a, data.n_a), after=shares(data.b, data.n_b), n_before=data.n_a,
        n_after=data.n_b, lowest=data.lowest, highest=data.highest, clipped_low=data.clipped,
    )  # fmt: skip


def signed(value: float | None) -> str:
    """A change with its sign, short: ``+12``, ``−0.25``, ``0``."""
    if value is None:
        return "–"
    text = f"{abs(value):,.0f}" if value == int(value) else f"{abs(value):,.3g}"
    return text if text == "0" else f"{'+' if value > 0 else '−'}{text}"


def moved(value: float | None) -> str:
    """A change of a share in points: ``+1.2``, ``−0.04``, ``0``."""
    if value is None:
        return "–"
    text = f"{100 * abs(value):.1f}" if abs(value) >= 0.001 else f"{100 * abs(value):.1g}"
    return "0" if not value else f"{'+' if value > 0 else '−'}{text}"


def barred(rates: list[Rate]) -> list[dict[str, Any]]:
    """Each rate with the lengths of its two bars: shares of the set as they are, issues beside the largest of them."""
    values = [s.value or 0.0 for r in rates if r.stage for s in (r.a, r.b) if s is not None]
    most = max([*values, 1e-9])
    return [
        {"rate": r, "a": _bar(r.a, most if r.stage else 1.0), "b": _bar(r.b, most if r.stage else 1.0)} for r in rates
    ]


def _bar(share: Share | None, most: float) -> float:
    return 0.0 if share is None else round((share.value or 0.0) / most, 4)


FILTERS = {"per_million": per_million, "signed": signed, "moved": moved, "barred": barred}
