"""Guards: what is looked at while a run goes on, and what stops it, each by its own word."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from transformers import TrainerCallback

from prefdata.training import early, monitors, trends
from prefdata.training.checks import SHOWN, Case
from prefdata.training.monitors import Recorder, Step
from prefdata.training.words import WORDS

Action = Literal["warn", "stop", "rollback", "retry", "end"]
"""What was done: told only, stopped, back to a checkpoint with a lower rate, again with less memory, ended early as asked."""
CERTAIN = (
    "nonfinite_parameter",
    "nonfinite_loss",
    "nonfinite_gradient",
)  # stop whatever `guards` says: nothing can be learnt any more
_FULL = 0.95  # share of the memory
_COLLAPSED = 0.1  # entropy, as a share of that at the start


@dataclass(frozen=True)
class Alarm:
    """What tripped a guard: at which step, what was seen, what was done, and which pairs it is about."""

    word: str
    step: int
    evidence: str
    action: Action
    rows: tuple[str, ...] = ()

    @property
    def remedy(self) -> str:
        """What to do."""
        return WORDS[self.word].remedy

    def document(self) -> dict[str, Any]:
        """For programs and the page."""
        return {**asdict(self), "rows": list(self.rows), "remedy": self.remedy}


_TOLD = {"warn": "warning", "stop": "stopped", "rollback": "rolled back", "retry": "tried again", "end": "ended early"}


class Guards(TrainerCallback):
    """Looks at every step; ``alarms`` are all that tripped (a word that only warns, once a run), ``ended`` the one that ended this
    attempt. It comes after the recorder among the callbacks. Of several processes each sees the same numbers and decides alike.
    """

    def __init__(self, case: Case, recorder: Recorder, say: Callable[[str], None], alarms: list[Alarm]) -> None:
        self.settings, self.recorder, self.say, self.alarms = case.settings, recorder, say, alarms
        self.scale, self.scaled = scale(case), case.plan.precision == "fp16" and case.plan.device == "cuda"
        self.ended: Alarm | None = None
        self.entropy: float | None = None
        self.room = room()

    def sound(self, word: str, step: int, evidence: str, action: Action, rows: tuple[str, ...] = ()) -> Alarm | None:
        """Tell of it and keep it; None where it was told before."""
        if action == "warn" and any(a.word == word for a in self.alarms):
            return None
        alarm = Alarm(word, step, evidence, action, rows[:SHOWN])
        self.alarms.append(alarm)
        self.say(f"{_TOLD[action]} at step {step}: {word}: {evidence}")
        return alarm

    def trip(
        self, control: Any, word: str, step: int, evidence: str, action: Action = "stop", rows: tuple[str, ...] = ()
    ) -> None:
        """What a guard does, by ``guards``; what ends a run leaves no checkpoint of the step that it ended with."""
        if word not in CERTAIN and action not in ("rollback", "end"):
            if self.settings.guards == "off":
                return
            action = "warn" if self.settings.guards == "warn" else action
        alarm = self.sound(word, step, evidence, action, rows)
        if alarm is not None and action != "warn":
            self.ended = self.ended or alarm
            control.should_training_stop = True
            if action != "end":
                control.should_save = control.should_evaluate = False

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Numbers that are not finite first, then what the steps say together."""
        steps, at = self.recorder.steps, state.global_step
        if not steps or steps[-1].step != at:
            return
        self._finite(control, steps[-1])
        due = at == 1 or at % self.settings.check_every == 0 or control.should_save
        if due and self.ended is None and (odd := nonfinite(model)):
            what = f"{len(odd)} trained tensors are not finite, first {odd[0][0]} ({odd[0][1]})"
            self.trip(control, "nonfinite_parameter", at, what)
        if self.ended is None and self.settings.guards != "off":
            self._trends(control, at)

    def _finite(self, control: Any, last: Step) -> None:
        if last.odd or not math.isfinite(last.loss) or not math.isfinite(last.margin):
            what = f"loss {last.loss:.4g}" + (f", {len(last.odd)} pairs named" if last.odd else "")
            self.trip(control, "nonfinite_loss", last.step, what, rows=last.odd)
            return  # its gradient follows from it
        if self.ended is not None:
            return
        norms = [s.grad_norm for s in self.recorder.steps[-(10 if self.scaled else 1) :]]
        if all(n is not None and not math.isfinite(n) for n in norms) and len(norms) == (10 if self.scaled else 1):
            self.trip(
                control, "nonfinite_gradient", last.step, f"gradient norm {norms[-1]}"
            )  # a scaler skips single ones

    def _trends(self, control: Any, at: int) -> None:
        steps, told = self.recorder.steps, {a.word for a in self.alarms}
        for word, look in trends.STOPS.items():
            if self.ended is None and (what := look(self.scale, steps)):
                self.trip(control, word, at, what)
        if self.ended is not None:
            return
        for word, look in trends.WARNS.items():
            if word not in told and (what := look(self.scale, steps)):
                self.trip(control, word, at, what, "warn")
        if self.ended is None and (what := trends.spiking(self.scale, steps)):
            back = any(a.action == "rollback" for a in self.alarms)
            self.trip(control, trends.SPIKE, at, what, "warn" if back else self.settings.on_spike)
        if at == self.scale.gate and steps[0].step == 1 and at < self.scale.steps:
            first, last = steps[0], steps[-1]
            self.say(f"first {at} steps: loss {first.loss:.4f} to {last.loss:.4f}, margin {last.margin:.4f}, accuracy {last.accuracy:.2f}")  # fmt: skip

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Entropy and memory, which are measured for the log anyway. They warn, no more: processes may differ in them."""
        if not logs or "loss" not in logs or self.settings.guards == "off" or self.ended is not None:
            return
        found = logs.get("entropy")
        if isinstance(found, float) and math.isfinite(found):
            self.entropy = found if self.entropy is None else self.entropy
            if found < _COLLAPSED * self.entropy:
                what = f"{found:.3g} nats a token, {self.entropy:.3g} at the start"
                self.trip(control, "entropy_collapse", state.global_step, what, "warn")
        peak = monitors.memory()
        if self.room and peak > _FULL * self.room:
            what = f"peak of {peak / 2**30:.1f} of {self.room / 2**30:.1f} GiB"
            self.trip(control, "memory_near_limit", state.global_step, what, "warn")

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Conditions of ``early_stop``."""
        s = self.settings
        what = early.met(s.early_stop, s.early_stop_rule, s.patience, self.recorder.evals, self.recorder.generated)
        if what and self.ended is None and state.global_step < state.max_steps:
            self.trip(control, "early_stop", state.global_step, what, "end")


def scale(case: Case) -> trends.Scale:
    """What the numbers of this run are measured by."""
    p, s = case.plan, case.settings
    assert case.train is not None
    lengths = case.train.lengths()
    tokens = float(lengths["chosen"].mean() + lengths["rejected"].mean()) / 2
    same = s.reference in ("same", "precompute") and s.lora_dropout == 0
    return trends.Scale(
        tuple(s.loss_type), p.batch_size, p.steps, p.warmup_steps, tokens, bool((case.data.train.weight == 1).all()), same, p.learning_rate
    )  # fmt: skip


def nonfinite(model: Any) -> list[tuple[str, str]]:
    """Names and types of trained tensors that hold a number which is not finite."""
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    with torch.no_grad():
        sums = torch.stack([p.detach().float().abs().sum() for _, p in trained]).cpu().tolist() if trained else []
    return [
        (n, str(p.dtype).removeprefix("torch."))
        for (n, p), s in zip(trained, sums, strict=True)
        if not math.isfinite(s)
    ]


def room() -> int:
    """Bytes of memory that the device has in all; 0 where that is not known."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 0
