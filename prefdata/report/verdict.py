"""The verdict: the run in one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from prefdata.decisions import Finding
from prefdata.report.model import FindingReport, Issue, StageReport, Totals, Verdict

WORDED = {"<=": "at most", ">=": "at least", "<": "below", ">": "above"}
_ALWAYS = ("length_not_checked", "contamination_not_checked", "baseline_differs")
_IF_ANY = (
    "shared_prompts", "files_not_read", "kto_rows", "evaluation_prompts", "margin_unknown", "label_smoothing",
    "noise_rate", "noise_rate_above", "noise_rate_unknown", "noise_rate_verified", "vote_says_nothing",
    "verdicts_applied", "verdicts_without_pair",
)  # fmt: skip
_IF_ANY_KEPT = ("strong_shortcuts",)


def is_note(found: Finding | FindingReport) -> bool:
    """Whether a finding is told beside the table and the verdict too, and not with its stage alone. Of one that is made before
    and after cleaning it is the latter: what the trainer will see.
    """
    if found.name in _IF_ANY_KEPT:
        return bool(found.value) and found.when == "kept"
    if found.name == "label_signal":
        return found.value == "no_signal"
    return found.name in _ALWAYS or (found.name in _IF_ANY and bool(found.value))


def verdict_of(
    action: str, gates: Sequence[Mapping[str, Any]], partial: bool, totals: Totals, issues: Sequence[Issue],
    stages: Sequence[StageReport],
) -> Verdict:  # fmt: skip
    """The sentence, the status, and the notes: partial run, length not checked, audit only."""
    failed = [g for g in gates if not g.get("ok")]
    most = max((i for i in issues if i.actions.get("drop")), key=lambda i: i.actions["drop"], default=None)
    share = f"{totals.kept:,} of {totals.pairs:,} pairs"
    notes, audit = list[str](), action == "audit"
    if not totals.pairs:
        sentence = "The input holds no pairs"
    elif not totals.kept:
        were = "would be" if audit else "were"
        sentence = f"Nothing is left: all {totals.pairs:,} pairs {were} dropped"
    else:
        sentence = f"{'Would keep' if audit else 'Kept'} {share} ({100 * totals.kept / totals.pairs:.1f} %)"
    if most:
        sentence += f"; the main cause of drops is {most.reason} ({most.actions['drop']:,})"
    if failed:
        notes.append(sentence + ".")
        told = "; ".join(gate_told(g) for g in failed)
        sentence = f"Gate failed: {told}" if len(failed) == 1 else f"{len(failed)} gates failed: {told}"
    if partial:
        notes.insert(0, f"Partial: only the first {totals.source_rows:,} rows were read (--limit).")
    unsaid = "Length was not checked: no tokenizer was given."
    notes += [f.text or unsaid for stage in stages for f in stage.findings if is_note(f)]
    if audit:
        notes.append("This is an audit: nothing was changed or removed.")
    status: Any = "gate_failed" if failed else "ok" if totals.kept else "empty"
    return Verdict(status=status, partial=partial, sentence=sentence + ".", notes=notes)


def gate_told(gate: Mapping[str, Any]) -> str:
    """What a gate found, as a sentence: ``too_similar is 18.1 %, wanted at most 5 %``."""
    parts = re.fullmatch(r"\s*(.+?)\s*(<=|>=|<|>)\s*(.+?)\s*", str(gate["gate"]))
    got = gate.get("text", gate.get("value"))
    if not parts:
        return f"{gate['gate']}: {got}"
    return f"{parts[1]} is {got}, wanted {WORDED[parts[2]]} {re.sub(r' *%', ' %', parts[3])}"
