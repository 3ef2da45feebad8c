"""What is said of a run while it goes on and at its end: events for programs, lines for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from transformers import TrainerCallback

from prefdata.training.checks import Check, failed
from prefdata.training.settings import Settings

Tell = Callable[[Mapping[str, Any]], None]
"""Hears of an event: ``event`` (step or eval), ``step``, ``steps``, what was measured, and ``eta`` in seconds."""

_OF_STEP = {"loss": "loss", "rewards/margins": "margin", "rewards/accuracies": "accuracy", "learning_rate": "lr"}
_OF_EVAL = {f"eval_{k}": v for k, v in _OF_STEP.items()}


class Progress(TrainerCallback):
    """Tells each log of the trainer as an event, on the first process only."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self._began, self._first = time.monotonic(), 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Time runs from here, also where a run goes on."""
        self._began, self._first = time.monotonic(), state.global_step

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """A step or an evaluation; other logs are no progress."""
        logs = logs or {}
        kind, names = ("eval", _OF_EVAL) if "eval_loss" in logs else ("step", _OF_STEP)
        if not state.is_world_process_zero or not state.max_steps or not names.keys() & logs.keys():
            return
        done = state.global_step - self._first
        left = state.max_steps - state.global_step
        eta = {"eta": round((time.monotonic() - self._began) / done * left)} if done > 0 else {}
        measured = {short: float(logs[k]) for k, short in names.items() if k in logs}
        self.tell({"event": kind, "step": state.global_step, "steps": state.max_steps, **measured, **eta})


def event_line(event: Mapping[str, Any]) -> str:
    """``step 20/200  loss 0.541  margin 0.87  accuracy 0.71  lr 5e-07  eta 0:12:03``."""
    numbers = "  ".join(f"{k} {event[k]:.4g}" for k in ("loss", "margin", "accuracy", "lr") if k in event)
    eta = event.get("eta")
    left = f"  eta {eta // 3600}:{eta // 60 % 60:02}:{eta % 60:02}" if eta is not None else ""
    return f"{event['event']} {event['step']:,}/{event['steps']:,}  {numbers}{left}"


def plan_lines(plan: Mapping[str, Any], settings: Settings) -> Iterator[str]:
    """The effective values that a run has."""
    p = plan
    adapters = f", rank {p['lora_rank']}, alpha {p['lora_alpha']:g}" if p["lora_rank"] else ""
    accumulated = f"{p['micro_batch_size']} x {p['accumulation']} accumulated x {p['devices']} on {p['device']}"
    yield f"model     {settings.model}: {'adapters' if adapters else 'all weights'}{adapters}, {p['dtype']} weights, {p['precision']} arithmetic"
    yield f"loss      {'+'.join(settings.loss_type)}, beta {settings.beta_schedule or format(settings.beta, 'g')}, labels smoothed by {p['label_smoothing']:g}"
    yield f"steps     {p['steps']:,} ({p['epochs']:g} of a pass through the pairs) of {p['batch_size']} pairs = {accumulated}"
    yield f"rate      {p['learning_rate']:g}, {settings.lr_scheduler_type}, warm-up {p['warmup_steps']} steps, {settings.optim}, seed {settings.seed}"
    yield f"window    {p['max_length']:,} tokens; memory about {size(p['memory'])}"


def check_lines(found: Iterable[Check], every: bool) -> Iterator[str]:
    """What pre-flight found: failures and warnings with remedy and rows; the rest counted, or each where ``every``."""
    found = list(found)
    told = {"fail": "✗", "warn": "!", "ok": "✓", "skipped": "-"}
    counts = ", ".join(
        f"{n} {s}" for s in ("ok", "warn", "fail", "skipped") if (n := sum(c.status == s for c in found))
    )
    yield f"checks    {counts}"
    width = max((len(c.word) for c in found), default=0)
    for c in found:
        if not every and c.status in ("ok", "skipped"):
            continue
        yield f" {told[c.status]} {c.status:<7} {c.word:<{width}}  {c.evidence}"
        if c.remedy:
            yield f"   {'':<7} {'':<{width}}  → {c.remedy}"
        if c.rows:
            yield f"   {'':<7} {'':<{width}}  pairs: {', '.join(c.rows[:8])}{' ...' if len(c.rows) > 8 else ''}"


def end_lines(done: Any) -> Iterator[str]:
    """How a run ended: alarms, held-out pairs before and after, and what lies where. ``done`` is a ``dpo.Trained``."""
    for alarm in done.alarms:
        yield f"alarm     {alarm['word']} at step {alarm['step']:,} ({alarm['action']}): {alarm['evidence']}"
        yield f"          → {alarm['remedy']}"
    tied = held(done.before, "ties") == 1  # before the first step every margin is 0: nothing was right or wrong
    told = [
        f"{name} {after:.4g}" if name == "accuracy" and tied else f"{name} {before:.4g} → {after:.4g}"
        for name in ("accuracy", "margin", "loss")
        if (before := held(done.before, name)) is not None and (after := held(done.after, name)) is not None
    ]
    if told:
        yield f"held out  {', '.join(told)}"
    if bad := failed(done.checks):
        yield f"refused   {', '.join(c.word for c in bad)}: nothing was trained"
    elif done.status == "complete":
        yield f"trained   {done.out}/model"
    elif done.status == "stopped":
        yield f"stopped   no model was saved; checkpoints are in {done.out}/checkpoints"
    if (done.out / "train.html").is_file():
        yield f"report    {done.out}/train.html"


def held(numbers: Mapping[str, Any], name: str) -> float | None:
    """A number of an evaluation; None where it has none."""
    found = numbers.get(name)
    return float(found) if isinstance(found, int | float) else None


def size(n: float) -> str:
    """Bytes for people."""
    return f"{n / 1e9:.2g} GB" if n >= 1e8 else f"{n / 1e6:.2g} MB"


def document(done: Any) -> dict[str, Any]:
    """A run for programs."""
    return {
        "status": done.status, "ok": done.ok, "out": str(done.out), "plan": done.plan, "checks": [c.document() for c in done.checks],
        "alarms": done.alarms, "before": done.before, "after": done.after, "averaged": done.averaged,
    }  # fmt: skip
