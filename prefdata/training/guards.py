"""Guards: what is looked at while a run goes on, and what stops it, each by its own word."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from transformers import TrainerCallback

from prefdata.training.monitors import Recorder
from prefdata.training.settings import Settings
from prefdata.training.words import WORDS

Action = Literal["warn", "stop", "rollback"]
CERTAIN = ("nonfinite_parameter", "nonfinite_loss")  # stop whatever `guards` says: nothing can be learnt any more


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


class Guards(TrainerCallback):
    """Looks at every step; ``alarms`` are all that tripped (each word once a run, except those that stop it)."""

    def __init__(self, settings: Settings, recorder: Recorder, say: Callable[[str], None]) -> None:
        self.settings, self.recorder, self.say = settings, recorder, say
        self.alarms: list[Alarm] = []
        self.stopped: Alarm | None = None

    def raise_alarm(
        self,
        control: Any,
        word: str,
        step: int,
        evidence: str,
        rows: tuple[str, ...] = (),
        action: Action | None = None,
    ) -> None:
        """Tell it, and stop the run where it must."""
        if word in CERTAIN:
            action = "stop"
        elif self.settings.guards == "off":
            return
        elif action is None:
            action = "stop" if self.settings.guards == "stop" else "warn"
        if action == "warn" and any(a.word == word for a in self.alarms):
            return
        alarm = Alarm(word, step, evidence, action, rows[:20])
        self.alarms.append(alarm)
        self.say(f"{'stopped' if action == 'stop' else action} at step {step}: {word}: {evidence}")
        if action != "warn":
            self.stopped = self.stopped or alarm
            control.should_training_stop = True

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Numbers that are not finite, first of all."""
        if self.recorder.steps and self.recorder.steps[-1].step == state.global_step:
            last = self.recorder.steps[-1]
            if last.odd or not math.isfinite(last.loss):
                what = f"loss {last.loss:.4g}" + (
                    f", log-probabilities of {len(last.odd)} pairs are not finite" if last.odd else ""
                )
                self.raise_alarm(control, "nonfinite_loss", state.global_step, what, last.odd)
        if state.global_step == 1 or state.global_step % self.settings.check_every == 0:
            odd = nonfinite(model)
            if odd:
                name, kind = odd[0]
                what = f"{len(odd)} trained tensors are not finite, first {name} ({kind})"
                self.raise_alarm(control, "nonfinite_parameter", state.global_step, what)


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
