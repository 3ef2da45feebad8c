"""``train.html``: the run on one page, from what lies in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from prefdata.files import put
from prefdata.report.render import HOME, digest, environment, percent
from prefdata.training import curves
from prefdata.training.folder import GENERATIONS, METRICS, PAGE, RECORD

_RESULT = {
    "complete": "Complete", "stopped": "Stopped by a guard", "refused": "Not trained", "checked": "Checked, not trained",
    "interrupted": "Interrupted",
}  # fmt: skip
_ORDER = {"fail": 0, "warn": 1, "ok": 2, "skipped": 3}
_NUMBERS = (
    "pairs",
    "accuracy",
    "margin",
    "ties",
    "loss",
    "reference_accuracy",
    "length_accuracy",
    "chosen",
    "rejected",
)
_TOLD = {
    "reference_accuracy": "accuracy of its own log-probabilities", "length_accuracy": "accuracy of \u201cthe longer one\u201d",
    "chosen": "log-probability of chosen", "rejected": "log-probability of rejected",
}  # fmt: skip
_SHARES = ("accuracy", "ties", "reference_accuracy", "length_accuracy")


def write(home: Path) -> None:
    """Make the page again from ``train.json``, ``metrics.jsonl`` and ``generations.jsonl``; the latter two may be missing."""
    record = orjson.loads((home / RECORD).read_bytes())
    put(home / PAGE, render(record, _lines(home / METRICS), _lines(home / GENERATIONS)))


def render(record: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], generated: Sequence[Mapping[str, Any]]) -> str:  # fmt: skip
    """The page as text."""
    style = "".join((HOME / name).read_text("utf-8").replace("\r\n", "\n") for name in ("style.css", "train.css"))
    settings, plan = record.get("settings") or {}, record.get("plan") or {}
    checks = sorted(record.get("checks") or [], key=lambda c: _ORDER.get(c["status"], 4))
    made = environment()
    made.filters["label"] = curves.label
    return made.get_template("train.html.j2").render(
        record={"alarms": [], "data": {}, "run": {}, **record}, status=record.get("status", ""),
        result=_RESULT.get(str(record.get("status")), "Unfinished"), sentence=sentence(record, metrics), tiles=tiles(record, metrics),
        open_checks=[c for c in checks if c["status"] in ("fail", "warn")], quiet_checks=[c for c in checks if c["status"] not in ("fail", "warn")],
        evaluated=evaluated(record), charts=curves.charts(metrics, settings), layers=curves.layers(metrics),
        probes=curves.rounds(generated), settings=effective(settings, plan), logged=bool(metrics), style=style, style_hash=digest(style),
    )  # fmt: skip


def _lines(path: Path) -> list[dict[str, Any]]:
    """Lines of a file that a killed run may have left half written."""
    out = []
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(found, dict):
            out.append(found)
    return out


def sentence(record: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> str:
    """What happened, in one sentence or two."""
    status, alarms, plan = record.get("status"), record.get("alarms") or [], record.get("plan") or {}
    checks = record.get("checks") or []
    failed, warned = ([c["word"] for c in checks if c["status"] == s] for s in ("fail", "warn"))
    if status == "refused":
        return f"{_count(len(failed), 'check')} failed before training: {', '.join(failed)}."
    if status == "checked":
        return "No check failed" + (f", {_count(len(warned), 'warning')}: {', '.join(warned)}." if warned else ".")
    steps = max((int(m["step"]) for m in metrics if "step" in m), default=0)
    if status == "stopped":
        last = next((a for a in reversed(alarms) if a["action"] != "warn"), None)
        why = f"{last['word']}: {last['evidence']}. {last['remedy']}" if last else ""
        return (
            f"Training stopped at step {last['step'] if last else steps:,} of {plan.get('steps', 0):,}. {why}".strip()
        )
    if status != "complete":
        return f"Training reached step {steps:,} of {plan.get('steps', 0):,} and did not end."
    told = (
        f"{_count(len(alarms), 'alarm')}: {', '.join(dict.fromkeys(a['word'] for a in alarms))}"
        if alarms
        else "no alarm"
    )
    return f"Trained {plan.get('steps', steps):,} steps; {_change(record)}; {told}."


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' if n != 1 else ''}"


def _change(record: Mapping[str, Any]) -> str:
    before, after = record.get("before") or {}, record.get("after") or {}
    if after.get("accuracy") is None:
        return "the evaluation gave no numbers" if after.get("error") else "no pairs were held out to evaluate it"
    out = f"on {after['pairs']:,} held-out pairs" if after.get("pairs") else "held out"
    for name in ("accuracy", "margin"):
        if after.get(name) is not None:
            tied = before.get("ties") == 1  # every margin is 0 before the first step: nothing was right or wrong
            known = before.get(name) is not None and not (tied and name == "accuracy")
            verb = f"went from {_value(name, before[name])} to" if known else "is"
            out += (
                f"{' and' if name == 'margin' else ''} {name} {verb} {_value(name, after[name])}{_between(name, after)}"
            )
    low, high = after.get("margin_low"), after.get("margin_high")
    if low is not None and high is not None and low <= 0 <= high:
        out += ": a margin that cannot be told from nothing"
    return out


def _between(name: str, found: Mapping[str, Any]) -> str:
    low, high = found.get(f"{name}_low"), found.get(f"{name}_high")
    return "" if low is None or high is None else f" ({_value(name, low)} to {_value(name, high)})"


def _value(name: str, value: Any) -> str:
    if not isinstance(value, int | float):
        return "–"
    return (
        percent(value)
        if name in _SHARES
        else f"{value:,}"
        if name == "pairs"
        else f"{value:.4g}".replace("-", "\u2212")
    )


def evaluated(record: Mapping[str, Any]) -> list[dict[str, str]]:
    """Held-out numbers before and after, and those of averaged checkpoints; intervals are of 95 %."""
    averaged = record.get("averaged") or {}
    found = [record.get("before") or {}, record.get("after") or {}, averaged.get("metrics") or {}]
    columns = ("before", "after", "averaged")
    out = [
        {"name": _TOLD.get(name, name), **{k: _value(name, f.get(name)) + _between(name, f) for k, f in zip(columns, found, strict=True)}}
        for name in _NUMBERS if any(f.get(name) is not None for f in found)
    ]  # fmt: skip
    texts = [f.get("forgetting") or {} for f in found]
    if any(t.get("perplexity") is not None for t in texts):
        shown = {k: _value("perplexity", t.get("perplexity")) for k, t in zip(columns, texts, strict=True)}
        out.append({"name": "perplexity on neutral text", **shown})
    return out


def tiles(record: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Name, number and small print of the figures on top."""
    plan, after, before = (record.get(k) or {} for k in ("plan", "after", "before"))
    odd = sum(int(m.get("nonfinite_pairs") or 0) + int(m.get("eval_nonfinite_pairs") or 0) for m in metrics)
    done = max((int(m["step"]) for m in metrics if "step" in m), default=0)
    out = [("steps", f"{done:,}", f"of {plan.get('steps', 0):,}, {plan.get('batch_size', 0):,} pairs each")]
    for name in ("accuracy", "margin"):
        start = f"before {_value(name, before.get(name))}"
        interval = f"; 95 % interval{_between(name, after)}" if _between(name, after) else ""
        out.append((f"held-out {name}", _value(name, after.get(name)), start + interval))
    out.append(("not finite", f"{odd:,}", "numbers of pairs that were NaN or infinite"))
    out.append(("alarms", f"{len(record.get('alarms') or []):,}", f"{(record.get('run') or {}).get('seconds', 0):,} seconds in all"))  # fmt: skip
    return out


def effective(settings: Mapping[str, Any], plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every setting that is not left out, with what it came to."""
    both = {**settings, **{k: v for k, v in plan.items() if v is not None}}
    return [(k, v if isinstance(v, str) else orjson.dumps(v).decode()) for k, v in both.items() if v not in (None, [], {})]  # fmt: skip
