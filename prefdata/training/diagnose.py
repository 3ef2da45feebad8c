"""``prefdata doctor RUN``: data, learning rate and batch, gradients, overfitting, hardware, in this order, each with evidence and a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prefdata.training import past, symptoms
from prefdata.training.past import Past
from prefdata.training.words import WORDS

_PARTS: dict[str, tuple[str, ...]] = {
    "data": (),  # and whatever stands in no other part
    "learning rate and batch": (
        "implausible_learning_rate", "implausible_beta", "implausible_setting", "loss_settings", "ignored_smoothing", "margin_explodes",
        "loss_diverges", "likelihood_lost", "likelihood_falls", "loss_stuck", "loss_spike", "loss_oscillates", "zero_loss", "nothing_trained",
        "trainer_refused",
    ),
    "gradients": (
        "fp16_weights", "bf16_weights", "fp16_autocast", "nonfinite_weights", "nonfinite_first_loss", "nonfinite_parameter", "nonfinite_loss",
        "nonfinite_gradient", "nan_hidden", "evaluation_nonfinite", "gradient_vanishes", "gradient_grows", "first_loss_off",
        "reference_differs", "padding_leaks", "batch_masks",
    ),
    "overfitting": ("overfitted", "no_gain", "no_evaluation", "evaluation_empty", "entropy_collapse", "early_stop", "eval_overlap"),
    "hardware": ("memory_estimate", "memory_near_limit", "out_of_memory", "trainer_error", "killed", "slows_down"),
}  # fmt: skip
_WORST = ("cause", "suspect", "unknown", "ok")
_NAN = ("nan_hidden", "nonfinite_loss", "nonfinite_gradient", "nonfinite_parameter", "evaluation_nonfinite")


@dataclass(frozen=True)
class Finding:
    """A word with its verdict (cause, suspect, or unknown) and what it is told by."""

    word: str
    verdict: str
    evidence: str

    def document(self) -> dict[str, Any]:
        """For programs."""
        told = WORDS.get(self.word)
        return {**asdict(self), "means": told.means if told else "", "remedy": told.remedy if told else ""}


def part_of(word: str) -> str:
    """The part of the flow that a word belongs to."""
    return next((part for part, words in _PARTS.items() if word in words), "data")


def doctor(home: Path) -> dict[str, Any]:
    """The diagnosis for programs: status, ``verdict`` (cause, suspect, ok or unknown), ``headline`` (the first cause) and the five parts.

    Raises InputError where the folder holds no run.
    """
    run = past.read(home)
    found = _findings(run)
    parts: list[dict[str, Any]] = []
    for part in _PARTS:
        mine = sorted((f for f in found if part_of(f.word) == part), key=lambda f: _WORST.index(f.verdict))
        facts = _facts(run, part)
        verdict = min((f.verdict for f in mine), key=_WORST.index, default="ok" if facts else "unknown")
        evidence = facts or [_nothing(run, part)]
        parts.append({"part": part, "verdict": verdict, "evidence": evidence, "findings": [f.document() for f in mine]})
    causes = [f for part in parts for f in part["findings"] if f["verdict"] == "cause"]
    verdicts = [part["verdict"] for part in parts if part["verdict"] != "unknown"]
    verdict = min(verdicts, key=_WORST.index, default="unknown")
    return {
        "run": str(home), "kind": run.kind, "status": run.status, "step": run.end, "steps": run.steps, "read": run.sources,
        "verdict": verdict, "headline": causes[0] if causes else None, "parts": parts,
    }  # fmt: skip


def _findings(run: Past) -> list[Finding]:
    """What checks and guards found, and what the log shows; a word once, by its worst verdict."""
    found = [*_recorded(run)]
    symptom = [Finding(s.word, s.verdict, s.evidence) for s in symptoms.found(run)]
    words = {f.word for f in (*found, *symptom)}
    if words & set(_NAN) and run.dtype == "float16" and not run.lora:
        found.append(
            Finding(
                "fp16_weights",
                "cause",
                "the weights that were trained are float16, and numbers became NaN: AdamW divides 0 by 0",
            )
        )
    if run.status in ("killed", "running"):
        of = f" of {run.steps:,}" if run.steps else ""
        found.append(
            Finding("killed", "suspect", f"the last line is of step {run.end:,}{of}, and nothing tells of an end")
        )
    if not run.train and run.end:
        found.append(Finding("no_log", "unknown", f"{run.end:,} steps and not one line of them"))
    kept: dict[str, Finding] = {}
    for f in (*found, *symptom):
        if f.word not in kept or _WORST.index(f.verdict) < _WORST.index(kept[f.word].verdict):
            kept[f.word] = f
    if kept.keys() & {"evaluation_empty"}:
        kept.pop("no_evaluation", None)
    return list(kept.values())


def _recorded(run: Past) -> Iterator[Finding]:
    """Failed and doubtful checks, alarms, and what the evaluation could not do, out of ``train.json``."""
    for check in run.record.get("checks") or ():
        if check["status"] in ("fail", "warn"):
            yield Finding(check["word"], "cause" if check["status"] == "fail" else "suspect", check["evidence"])
    for alarm in run.record.get("alarms") or ():
        if alarm["action"] != "end":
            what = f"step {alarm['step']:,}: {alarm['evidence']} ({alarm['action']})"
            yield Finding(alarm["word"], "cause" if alarm["action"] == "stop" else "suspect", what)
    for when in ("before", "after"):
        if word := (run.record.get(when) or {}).get("error"):
            yield Finding(word, "cause", f"{when} training")


def _facts(run: Past, part: str) -> list[str]:
    """What is known of a part, in numbers; nothing where nothing is."""
    told = {
        "data": _data,
        "learning rate and batch": _settings,
        "gradients": _gradients,
        "overfitting": _held,
        "hardware": _hardware,
    }
    return [*told[part](run)]


def _nothing(run: Past, part: str) -> str:
    """Why nothing is known."""
    if part == "data":
        why = (
            "a log does not tell of its data"
            if run.kind == "trainer"
            else "the checks are written down at the end of a run"
        )
        return f"{why}: prefdata train DATA NEW --model MODEL --check looks at it"
    if part == "overfitting":
        return "no evaluation with a number in it"
    return "nothing is recorded"


def _data(run: Past) -> Iterator[str]:
    checks = [c for c in run.record.get("checks") or () if part_of(c["word"]) == "data"]
    if checks:
        counts = ((s, sum(c["status"] == s for c in checks)) for s in ("ok", "warn", "fail", "skipped"))
        yield f"{len(checks)} checks: {', '.join(f'{n} {s}' for s, n in counts if n)}"
        yield from (c["evidence"] for c in checks if c["word"] == "no_rows" and c["status"] == "ok")


def _settings(run: Past) -> Iterator[str]:
    told = [f"learning rate {run.rate:g}"] if run.rate is not None else []
    told += [f"{run.batch:,} pairs a step"] if run.batch else []
    told += [f"{run.end:,}{f' of {run.steps:,}' if run.steps else ''} steps"] if run.end else []
    if told:
        yield ", ".join(told)
    if losses := [line["loss"] for line in run.train]:
        yield f"loss {losses[0]:.4g} to {losses[-1]:.4g}{_span(run.train, 'rewards/margins', 'margin')}"


def _gradients(run: Past) -> Iterator[str]:
    weights = {True: "adapters over ", False: "all weights, ", None: ""}[run.lora]
    if run.dtype:
        yield f"{weights}{run.dtype}"
    if norm := _span(run.train, "grad_norm", "gradient norm"):
        clipped = [line["clipped"] for line in run.train if isinstance(line.get("clipped"), int | float)]
        yield norm.removeprefix(", ") + (
            f", {100 * sum(clipped) / len(clipped):.0f} % of steps clipped" if clipped else ""
        )


def _held(run: Past) -> Iterator[str]:
    lines = [e for e in run.evals if isinstance(e.get("eval_loss"), float) and math.isfinite(e["eval_loss"])]
    if lines:
        spans = (
            _span(lines, f"eval_{k}", n) for k, n in (("rewards/accuracies", "accuracy"), ("rewards/margins", "margin"))
        )
        yield f"{len(lines)} evaluations{_span(lines, 'eval_loss', 'held-out loss')}{''.join(spans)}"


def _hardware(run: Past) -> Iterator[str]:
    plan = run.record.get("plan") or {}
    if plan:
        yield f"{plan['precision']} arithmetic on {plan['device']}, {plan['devices']} device{'s' * (plan['devices'] > 1)}"
    told = []
    if peaks := [line["memory"] for line in run.train if line.get("memory")]:
        told.append(f"{max(peaks) / 2**30:.2g} GiB of memory at most")
    if speed := _span(run.train[1:], "tokens_per_second", "tokens a second"):
        told.append(speed.removeprefix(", "))
    if told:
        yield ", ".join(told)
    if not plan and not told and run.status == "ended":
        yield f"the run came to its end at step {run.end:,}"


def _span(lines: Sequence[dict[str, Any]], key: str, name: str) -> str:
    """``, margin 0.1 to 2.3``, or nothing where it was not logged."""
    values = [line[key] for line in lines if isinstance(line.get(key), int | float)]
    first, last = (
        (f"{v:,.0f}" if abs(v) >= 1000 else f"{v:.4g}" for v in (values[0], values[-1])) if values else ("", "")
    )
    return f", {name} {first} to {last}" if values else ""


_MARK = {"cause": "✗", "suspect": "!", "unknown": "?", "ok": "✓"}


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The same for people: the headline, then the parts."""
    named = "prefdata train" if found["kind"] == "prefdata" else "Trainer"
    of = f" of {found['steps']:,}" if found["steps"] else ""
    yield f"{found['run']}  ({named}, {found['status']}, step {found['step']:,}{of}; read {', '.join(found['read'])})"
    head = found["headline"]
    if head:
        yield f"cause: {head['word']}: {head['evidence']}"
        yield f"  {head['means']}"
        yield f"  → {head['remedy']}"
    else:
        yield {"suspect": "no cause found; what is marked ! is worth a look", "ok": "healthy: nothing is wrong with what can be seen"}.get(found["verdict"], "nothing to go by")  # fmt: skip
    for n, part in enumerate(found["parts"], 1):
        yield f"\n{_MARK[part['verdict']]} {n}. {part['part']}: {part['verdict']}"
        yield from (f"     {text}" for text in part["evidence"])
        for f in part["findings"]:
            yield f"   {_MARK[f['verdict']]} {f['word']}: {f['evidence']}"
            if (
                f["verdict"] != "cause"
            ):  # of the causes, the first one's remedy stands on top; the others often come of it
                yield f"     → {f['remedy']}"
    if any(part["findings"] for part in found["parts"]):
        yield "\nprefdata explain WORD tells more of a word."
