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

    ``name`` is None for all values that are not listed, together; ``change`` is the share after minus
    the share before; ``target`` the share that ``domain_balance`` was asked for.
    """

    name: str | None
    before: int
    after: int
    before_share: float
    after_share: float | None
    change: float | None
    target: float | None
    longer_before: Share
    longer_after: Share


class Dimension(Part):
    """How the pairs are spread over the values of a column, or over languages: ``key`` is unique, the largest value comes first.

    ``n_before`` and ``n_after`` are the pairs that have a value (shares are of these), ``without_*`` those that have none; ``unlisted`` of the ``distinct`` values
    stand together in the last line.
    """

    key: str
    title: str
    n_before: int
    n_after: int
    without_before: int
    without_after: int
    distinct: int
    unlisted: int
    values: list[Value]


class Histogram(Part):
    """Counts in bins of equal width; where ``clipped_*`` is true the outer bin also holds what lies beyond.

    ``before`` counts all pairs asked, ``after`` those kept at the end; ``below``/``above`` the pairs on each
    side of the limit; a score equal to it counts on the side of ``drops`` if such scores are acted upon.
    """

    edges: list[float]
    before: list[int]
    after: list[int]
    n_before: int
    n_after: int
    lowest: float
    highest: float
    clipped_low: bool = False
    clipped_high: bool = False
    limit: float | None = None
    drops: Literal["above", "below"] | None = None
    below: int = 0
    above: int = 0


class Window(Part):
    """What a trainer with another window would lose (nothing left to learn) and cut, as shares of the pairs."""

    max_length: int
    lost: float
    cut: float
    current: bool


class Tokens(Part):
    """How long the pairs are: prompt and longer answer, in tokens as the trainer counts them, or in words where no tokenizer was given.

    ``quantiles`` are lengths that 50, 90, 99 and 100 % of the ``n`` pairs do not exceed. The rest is of tokens alone: ``filled`` pairs
    have no room for an answer, ``identical`` ones are the same within the window, ``cut`` ones stay with less of an answer.
    """

    unit: Literal["tokens", "words"]
    n: int
    quantiles: list[int]
    max_length: int | None
    filled: int
    identical: int
    cut: int
    cut_share: float | None
    windows: list[Window]
    histogram: Histogram | None


class Stratum(Part):
    """Pairs of the spot-check that are alike: kept without a doubt (``issue`` None), or with this issue and this outcome."""

    issue: str | None
    state: Literal["kept", "flagged", "swapped", "dropped"]
    population: int
    base: int
    extra: int


class SheetRow(Part):
    """A pair of the spot-check. ``key`` is a hash of its texts (16 hex digits), ``stratum`` a place in ``strata``; ``base`` rows
    are a sample of all kept pairs, the others are more of one stratum. ``left`` is the side of the pair as it leaves (a swapped one
    turned round) that the blind mode shows left.
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
