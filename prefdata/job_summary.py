"""``summary.md`` of a job, and its steps in a few words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def numbers(held: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in nested results, by their dotted names."""
    if isinstance(held, Mapping):
        for key, value in held.items():
            yield from numbers(value, f"{name}.{key}" if name else str(key))
    elif isinstance(held, int | float) and not isinstance(held, bool):
        yield name, float(held)


def _number(found: Mapping[str, Any], name: str) -> str:
    """A figure of an evaluation; a dash where there is none."""
    got = found.get(name)
    return f"{got:.3f}" if isinstance(got, int | float) else "-"


def trained(record: Mapping[str, Any]) -> str:
    """A training run in a few words."""
    plan = record.get("plan", {})
    bad = [f"{c.get('word')}: {c.get('evidence')}" for c in record.get("checks", []) if c.get("status") == "fail"]
    stops = [f"{a.get('word')} at step {a.get('step')}: {a.get('evidence')}" for a in record.get("alarms", []) if a.get("action") != "warn"]  # fmt: skip
    why = "; ".join([*bad, *stops])
    return f"{record.get('status')}: {why}" if why else f"{record.get('status')}, {plan.get('steps', 0):,} steps"


def evaluated(found: Mapping[str, Any]) -> str:
    """The evaluation in a few words."""
    before, after = found.get("before") or {}, found.get("after") or {}
    if not after.get("pairs"):
        return "nothing was held out"
    told = f"{after['pairs']:,} held-out pairs: margin {_number(before, 'margin')} before, {_number(after, 'margin')} after"
    told += (
        f" ({_number(after, 'margin_low')} to {_number(after, 'margin_high')}), accuracy {_number(after, 'accuracy')}"
    )
    worth = found.get("worth") or {}
    return told + (f"; cleaned against raw: {worth.get('verdict')}" if worth else "")


def page(job: str, manifest: Mapping[str, Any], record: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """The whole summary, from the manifest of the cleaned set, the record of the run and the evaluation."""
    counts, splits = manifest.get("counts", {}), manifest.get("splits", {})
    lines = [
        f"# {job}", "", "## Data", "",
        f"{counts.get('kept', 0):,} of {counts.get('pairs', 0):,} pairs kept ({', '.join(f'{k} {n:,}' for k, n in splits.items())})."
        " [Report](clean/report.html)", "",
    ]  # fmt: skip
    if reasons := counts.get("reasons"):
        lines += ["| dropped as | pairs |", "| --- | ---: |", *(f"| {k} | {n:,} |" for k, n in reasons.items()), ""]
    if gates := manifest.get("gates"):
        lines += ["| gate | found | |", "| --- | ---: | --- |", *(f"| {g['gate']} | {g['text']} | {'ok' if g['ok'] else 'failed'} |" for g in gates), ""]  # fmt: skip
    if record:
        settings, plan = record.get("settings", {}), record.get("plan", {})
        told = f"{plan.get('method')}, {plan.get('steps')} steps of {plan.get('batch_size')} pairs, learning rate {plan.get('learning_rate')}, beta {settings.get('beta')}"
        lines += ["## Training", "", f"{trained(record)}. {settings.get('model')}: {told}. [Page](run/train.html)", ""]
        checks = [c for c in record.get("checks", []) if c.get("status") not in ("ok", "skipped")]
        lines += [f"- check `{c['word']}`, {c['status']}: {c['evidence']}" for c in checks]
        lines += [f"- step {a['step']}, `{a['word']}`: {a['evidence']}" for a in record.get("alarms", [])]
        lines += [""] if lines[-1] else []
    if found:
        before, after = (dict(numbers(found.get(k) or {})) for k in ("before", "after"))
        rows = [f"| {k} | {before[k]:.4g} | {after[k]:.4g} |" for k in before if k in after and not k.endswith(("runtime", "per_second"))]  # fmt: skip
        lines += ["## Held-out pairs", "", "| | before | after |", "| --- | ---: | ---: |", *rows, ""] if rows else []
        if worth := dict(numbers(found.get("worth") or {})):
            lines += ["## Cleaned and raw pairs", "", "| | |", "| --- | ---: |", *(f"| {k} | {v:.4g} |" for k, v in worth.items()), ""]  # fmt: skip
    return "\n".join(lines)
