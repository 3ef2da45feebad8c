"""From decisions and signals to a Report: counts, shares, histograms, rows to show. No HTML, no clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from prefdata.decisions import ACTIONS, Decisions, Finding, Index, Outcome, Signals
from prefdata.identity import content_keys
from prefdata.pairs import Row
from prefdata.report import advice, examples, numbers, sheet
from prefdata.report.balance import balance, groups, looked_for
from prefdata.report.issues import issues_of, keys_of
from prefdata.report.model import Example, FindingReport, Funnel, Length, Mark, Report, StageReport, Totals
from prefdata.report.numbers import Mask, short
from prefdata.report.parts import Dimension
from prefdata.report.tokens import TOKENS, tokens
from prefdata.report.verdict import verdict_of
from prefdata.stage import Stage

__all__ = ["Facts", "Row", "summarise"]
UNEXPLAINED = "The stage gives no explanation of this word."
_TOLD_ELSEWHERE = (TOKENS, "domain_balance")  # their findings stand in sections of their own
FINDING_ROWS, ALL_FINDING_ROWS = 5, 60
State = Literal["kept", "flagged", "swapped", "dropped"]
STATES: tuple[State, ...] = ("kept", "flagged", "swapped", "dropped")


@dataclass(frozen=True)
class Facts:
    """What a summary is made from: the decisions, numbers of all rows, and a way to read a few of them."""

    signals: Signals
    stages: Sequence[Stage]
    decisions: Sequence[Decisions]
    outcome: Outcome
    read: Callable[[Sequence[int]], list[Row]]
    source: Mapping[str, Any]
    pipeline: str
    config: Mapping[str, Any]
    gates: Sequence[Mapping[str, Any]]
    action: Literal["audit", "clean"]
    seed: int
    version: str
    splits: Mapping[str, int]
    sample: float
    marked: Mask
    """Rows that came in as mirrors of others, which nobody is asked to judge."""


def summarise(facts: Facts) -> Report:
    """The report of a run; the same facts give the same bytes."""
    names = _unique([stage.name() for stage in facts.stages])
    keys = keys_of(names, facts.decisions)
    issues = issues_of(len(facts.outcome.stage), names, keys, facts.stages, facts.decisions)
    stages, own = [], list[int]()
    for key, stage, made in zip(names, facts.stages, facts.decisions, strict=True):
        report = _stage(key, stage, made, facts.outcome.kept)
        stages.append(report)
        own += [*report.worst, *report.near_acted, *report.near_kept]
    own += [row for s in stages for f in s.findings for row in f.rows][:ALL_FINDING_ROWS]
    strata = sheet.strata(keys, facts.stages, facts.decisions, facts.outcome)
    kept = np.flatnonzero(facts.outcome.kept & ~facts.marked)
    picked = sheet.pick(strata, kept, facts.sample, facts.seed)
    sound, length, spread = _length(facts)
    shown = _examples(facts, names, keys, stages, own, picked.rows, [d.key for d in spread])
    totals, funnel = _totals(facts), _funnel(names, facts)
    sizes = tokens(facts.signals, facts.stages, facts.decisions, sound, facts.outcome.kept)
    tally = {i.key: sum(r.listed and any(m.issue == i.key for m in r.marks) for r in shown.rows) for i in issues}
    return Report(
        prefdata=facts.version, action=facts.action, pipeline=facts.pipeline, config=dict(facts.config), seed=facts.seed,
        source=dict(facts.source), splits=dict(facts.splits), gates=[dict(g) for g in facts.gates], totals=totals,
        verdict=verdict_of(facts.action, facts.gates, bool(facts.source.get("partial")), totals, issues, stages),
        funnel=funnel, issues=[i.model_copy(update={"embedded": tally[i.key]}) for i in issues],
        stages=stages, length=length, balance=spread, tokens=sizes,
        advice=advice.advice(facts.action, facts.gates, totals, funnel, issues, stages, length, spread, sizes, looked_for(facts.signals)),
        spotcheck=sheet.sheet(strata, picked, shown.rows, _keys(facts.signals, picked.rows), kept, facts.sample, facts.seed), rows=shown.rows, rows_not_shown=shown.left_out, cut_at=shown.cut_at,
    )  # fmt: skip


def _unique(names: Sequence[str]) -> list[str]:
    """The names, made safe for an anchor, a repeated one with its number."""
    out: list[str] = []
    for name in (re.sub(r"[^\w-]+", "-", n) for n in names):
        out.append(name if name not in out else f"{name}-{sum(o.split('-')[0] == name for o in out) + 1}")
    return out


def _totals(facts: Facts) -> Totals:
    n, kept = len(facts.outcome.stage), facts.outcome.kept
    stay = int(kept.sum())
    return Totals(
        source_rows=int(facts.source.get("rows", n)), pairs=n, kept=stay, dropped=n - stay,
        kept_share=stay / n if n else None, dropped_share=(n - stay) / n if n else None,
        flagged=int((kept & facts.outcome.flagged).sum()), swapped=int((kept & facts.outcome.swapped).sum()),
        added=int((kept & facts.outcome.added).sum()),
    )  # fmt: skip


def _funnel(names: Sequence[str], facts: Facts) -> list[Funnel]:
    n = len(facts.outcome.stage)
    out = []
    for key, stage, made in zip(names, facts.stages, facts.decisions, strict=True):
        dropped = made.count("drop")
        out.append(Funnel(
            key=key, name=stage.name(), asked=len(made), dropped=dropped, flagged=made.count("flag"), swapped=made.count("swap"),
            added=made.count("add"), kept=len(made) - dropped, share=(len(made) - dropped) / n if n else 0.0, before_share=len(made) / n if n else 0.0,
        ))  # fmt: skip
    return out


def _stage(key: str, stage: Stage, made: Decisions, kept: Mask) -> StageReport:
    """All numbers and example rows of one stage."""
    drops, acted = stage.drops, made.action != 0
    limit = numbers.usual_limit(made.limit)
    over, inclusive, verb = None, True, "drop"
    if limit is not None and drops is not None:
        on_it = made.score == np.float32(limit)
        inclusive = bool((on_it & acted).any()) or not on_it.any()
        over = numbers.beyond(made.score, limit, drops, inclusive)
        if (over & acted).any() and not (over & made.of("drop")).any():
            verb = ACTIONS[int(np.bincount(made.action[over & acted]).argmax())]
    counted = made.action == ACTIONS.index(verb)
    what_if = []
    if limit is not None and drops is not None:
        what_if = numbers.what_if(made.score, counted, limit, drops, inclusive, made.count("drop"), verb)
    chosen = examples.pick(made, drops, limit, over)
    words: dict[str, Any] = stage.documentation()
    return StageReport(
        key=key, name=stage.name(), **words, parameters=stage.model_dump(mode="json"), scale=stage.scale, verb=verb,
        reasons={r: " ".join(stage.reasons.get(r, UNEXPLAINED).split()) for r in [*stage.reasons, *made.reasons]},
        findings=[_finding(key, f) for f in made.findings], what_if=what_if,
        histogram=numbers.histogram(made.score, made.score[kept[made.rows]], limit, drops, inclusive),
        quiet=not acted.any() and not (made.findings and key not in _TOLD_ELSEWHERE),
        beyond_kept=int((over & ~counted).sum()) if over is not None else 0,
        worst=chosen.worst, near_acted=chosen.near_acted, near_kept=chosen.near_kept,
    )  # fmt: skip


def _finding(stage: str, found: Finding) -> FindingReport:
    value = found.value
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        value = int(value) if isinstance(value, int | np.integer) else short(float(value))
    low, high = (None if v is None or not np.isfinite(v) else short(float(v)) for v in (found.low, found.high))
    return FindingReport(
        name=found.name, value=None if isinstance(value, float) and not np.isfinite(value) else value, low=low, high=high,
        n=int(found.n), when=found.when, text=found.text, rows=[int(r) for r in found.rows[:FINDING_ROWS]],
        key=f"{stage}.{found.name}", covers=None if found.covers is None else short(found.covers),
    )  # fmt: skip


def _keys(signals: Signals, rows: Sequence[int]) -> dict[int, int]:
    """A hash of the texts of these (sound) pairs."""
    living = signals.living(np.sort(np.asarray(rows, np.int64)))
    if not len(living):
        return {}
    return dict(zip(living.index.tolist(), content_keys(living).tolist(), strict=True))


def _length(facts: Facts) -> tuple[Index, Length, list[Dimension]]:
    """Word counts of the two answers; a missing count (a broken row) takes no part. And the rows that do, and their spread."""
    signals = facts.signals
    sound = np.zeros(len(signals), bool)
    for where, got in signals.batches(["pair.fault"]):
        sound[where] = np.asarray(pa.array(got["pair.fault"], from_pandas=True).is_null())
    chosen, rejected = (signals.column(f"pair.{s}_words").astype(np.float32) for s in ("chosen", "rejected"))
    gap = chosen - rejected
    sound &= np.isfinite(gap)
    kept = sound & facts.outcome.kept
    after = np.where(facts.outcome.swapped[kept], -gap[kept], gap[kept])
    before = gap[sound]
    first, then = (
        numbers.wilson(int((g > 0).sum()), int((g != 0).sum()), int((g == 0).sum())) for g in (before, after)
    )
    length = Length(
        before=first, after=then, rule_before=numbers.rule(first), rule_after=numbers.rule(then),
        histogram=numbers.histogram(before, after),
    )  # fmt: skip
    rows, wanted = np.flatnonzero(sound), [f.wanted for made in facts.decisions for f in made.findings if f.wanted]
    spread = balance(signals, rows, facts.outcome.kept, before, facts.outcome.swapped, _named(facts), wanted)
    return rows, length, spread


def _named(facts: Facts) -> str:
    """The column that ``domain_balance`` was given, if any."""
    given = (str(getattr(s, "column", "auto")) for s in facts.stages if s.name() == "domain_balance")
    return next((name for name in given if name != "auto"), "")


def _examples(
    facts: Facts, names: Sequence[str], keys: Sequence[Sequence[str]], stages: Sequence[StageReport], own: Sequence[int],
    judged: Sequence[int], dimensions: Sequence[str],
) -> examples.Shown:  # fmt: skip
    """Choose the rows, read them once and say what every stage said of them."""
    strata = []
    for made, words in zip(facts.decisions, keys, strict=True):
        for i, key in enumerate(words):
            rows = made.rows[(made.reason == i) & (made.action != 0)]
            strata.append(examples.sample(rows, facts.seed, key))
    clean = np.flatnonzero(facts.outcome.kept & ~facts.outcome.flagged & ~facts.outcome.swapped)
    strata.append(examples.sample(clean, facts.seed, ""))
    wanted = examples.fair(strata, own)
    found = {
        row: [m for made, name, words in zip(facts.decisions, names, keys, strict=True)
              if (m := examples.mark_of(made, row, name, words))]
        for row in dict.fromkeys([*wanted, *judged])
    }  # fmt: skip
    peers = {row: [m.peer for m in marks if m.peer is not None] for row, marks in found.items()}
    of_findings: dict[int, list[str]] = {}
    for finding in (f for s in stages for f in s.findings):
        for row in finding.rows:
            of_findings.setdefault(row, []).append(finding.key)
    outcome = facts.outcome
    beside = [p for some in peers.values() for p in some]
    of = groups(facts.signals, [*wanted, *judged, *beside], _named(facts), dimensions) if dimensions else {}

    def make(row: Row, cut: int, listed: bool) -> Example:
        at = row.row
        state = STATES[3 if outcome.stage[at] >= 0 else 2 if outcome.swapped[at] else 1 if outcome.flagged[at] else 0]
        marks: list[Mark] = found.get(at, [])
        return examples.example(row, cut, listed, state, marks, of_findings.get(at, []), of.get(at, {}))

    return examples.examples(wanted, len(dict.fromkeys(own)), judged, peers, facts.read, make)
