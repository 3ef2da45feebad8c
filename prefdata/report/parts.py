"""Pieces of the report that stand by themselves: shares, the spread over domains, the spot-check."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A piece of the report; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Share(Part):
    """A proportion with its Wilson 95 % interval; ``value`` is None where nothing was counted."""

    value: float | None
    low: float | None
    high: float | None
    hits: int
    n: int
    ties: int = 0


class Accuracy(Part):
    """How often a rule is right, a pair on which it is silent counting one half, with its Wilson 95 % interval."""

    value: float | None
    low: float | None
    high: float | None
    n: int


class Value(Part):
    """One value of a dimension: pairs and shares before (sound pairs) and after (kept), and does the longer answer win there?

    ``name`` is None for all values that are not listed, together; ``target`` is the share that ``domain_balance`` was asked for.
    """

    name: str | None
    before: int
    after: int
    before_share: float
    after_share: float | None
    target: float | None
    longer_before: Share
    longer_after: Share


class Dimension(Part):
    """How the pairs are spread over the values of a column, or over languages: ``key`` is unique, the largest value comes first.

    ``n_before`` and ``n_after`` are the pairs that have a value (shares are of these), ``without_*`` those that have none.
    """

    key: str
    title: str
    n_before: int
    n_after: int
    without_before: int
    without_after: int
    distinct: int
    values: list[Value]


class Stratum(Part):
    """Pairs of the spot-check that are alike: kept without a doubt (``issue`` None), or with this issue and this outcome."""

    issue: str | None
    state: Literal["kept", "flagged", "swapped", "dropped"]
    population: int
    base: int
    extra: int


class SheetRow(Part):
    """A pair of the spot-check. ``key`` is a hash of its texts (16 hex digits), ``stratum`` a place in ``strata``; ``base`` rows
    are a sample of all kept pairs, the others are more of one stratum. ``left`` is the side that the blind mode shows left.
    """

    row: int
    pd_id: str
    key: str
    stratum: int
    base: bool
    left: Literal["chosen", "rejected"]


class Spotcheck(Part):
    """The sample for people to judge: ``base`` of ``kept`` pairs, in proportion to the strata, and more of each issue.

    ``id`` names the sheet: verdicts on the same pairs have the same. ``rows`` are those in the page, in the order to judge them in.
    """

    id: str
    seed: int
    share: float
    kept: int
    base: int
    strata: list[Stratum]
    rows: list[SheetRow]
