"""The report as typed data: what ``summarise`` makes, ``report.json`` holds and the templates print."""

from __future__ import annotations

from typing import Any, Literal

from prefdata.report.parts import Accuracy, Dimension, Part, Share, Spotcheck, Tokens
from prefdata.report.parts import Histogram as Histogram

SCHEMA_VERSION = 2
Severity = Literal["error", "warning", "note"]
Status = Literal["ok", "gate_failed", "empty"]


class WhatIf(Part):
    """How many pairs the stage would act on at another limit, all else equal."""

    limit: float
    acted: int
    acted_share: float
    kept: int
    kept_share: float
    change: int
    current: bool = False


class FindingReport(Part):
    """A statement of a stage about the whole set."""

    name: str
    value: float | int | str | None
    low: float | None
    high: float | None
    n: int
    when: Literal["all", "kept"]
    text: str
    rows: list[int]
    key: str
    covers: float | None = None


class Verdict(Part):
    """The answer in one sentence, and what a reader must know beside it."""

    status: Status
    partial: bool
    sentence: str
    notes: list[str]


class Totals(Part):
    """The accounts: pairs in = kept + dropped; ``added`` rows stand beside them."""

    source_rows: int
    pairs: int
    kept: int
    dropped: int
    flagged: int
    swapped: int
    added: int = 0
    kept_share: float | None
    dropped_share: float | None


class Funnel(Part):
    """One stage's line of the funnel; ``key`` is the name made unique, ``share`` is kept of all pairs."""

    key: str
    name: str
    asked: int
    dropped: int
    flagged: int
    swapped: int
    added: int = 0
    kept: int
    share: float
    before_share: float


class Overlap(Part):
    """Another issue that the same rows have."""

    key: str
    reason: str
    rows: int
    share: float


class Issue(Part):
    """One reason word of one stage. Severity: ``error`` where pairs are dropped or turned round for it, ``warning`` where they are
    flagged, ``note`` where rows are added.
    """

    key: str
    reason: str
    stage: str
    severity: Severity
    title: str
    text: str
    action: str
    actions: dict[str, int]
    rows: int
    share: float
    embedded: int
    overlaps: list[Overlap]


class StageReport(Part):
    """All that the page says of one stage; ``quiet`` where it acted on no pair and has nothing to tell."""

    key: str
    name: str
    asks: str
    why: str
    how: str
    misses: str
    references: str
    parameters: dict[str, Any]
    reasons: dict[str, str]
    scale: str
    verb: str
    findings: list[FindingReport]
    histogram: Histogram | None
    what_if: list[WhatIf]
    beyond_kept: int
    quiet: bool
    worst: list[int]
    near_acted: list[int]
    near_kept: list[int]


class Length(Part):
    """Does the longer answer win? In words; before: all sound pairs, after: the kept ones as they leave.

    ``rule_*`` is the accuracy of guessing that the longer answer is chosen.
    """

    before: Share
    after: Share
    rule_before: Accuracy
    rule_after: Accuracy
    histogram: Histogram | None


class Mark(Part):
    """What one stage said of an example row; ``issue`` is an issue's key, None for a keep with a score."""

    stage: str
    action: str
    issue: str | None
    score: float | None
    limit: float | None
    peer: int | None


class Example(Part):
    """A row that the page shows; ``lengths`` gives the characters of each text that was cut, ``groups`` its value in
    each dimension of ``Report.balance``.
    """

    row: int
    pd_id: str
    file: str
    line: int | None
    prompt: str
    chosen: str
    rejected: str
    lengths: dict[str, int]
    columns: dict[str, str]
    raw: str | None
    detail: str | None
    groups: dict[str, str]
    state: Literal["kept", "flagged", "swapped", "dropped"]
    marks: list[Mark]
    findings: list[str]
    listed: bool


class Report(Part):
    """The whole report. Made from the same facts it has the same bytes: no time, no host, no output path.

    ``advice`` says in one sentence what a figure means and what to do, by the figure: ``funnel``, ``stage.NAME.score``, ...
    """

    schema_version: int = SCHEMA_VERSION
    prefdata: str
    action: Literal["audit", "clean"]
    pipeline: str
    config: dict[str, Any]
    seed: int
    source: dict[str, Any]
    splits: dict[str, int]
    gates: list[dict[str, Any]]
    verdict: Verdict
    totals: Totals
    funnel: list[Funnel]
    issues: list[Issue]
    stages: list[StageReport]
    length: Length
    balance: list[Dimension]
    tokens: Tokens
    advice: dict[str, str]
    spotcheck: Spotcheck
    rows: list[Example]
    rows_not_shown: int
    cut_at: int
