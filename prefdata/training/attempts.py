"""Training under guards: one attempt, or several where memory runs out or a spike is rolled back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from prefdata.training.checks import Case
from prefdata.training.folder import METRICS
from prefdata.training.guards import Alarm, Guards
from prefdata.training.monitors import Recorder, watchers


@dataclass
class Ended:
    """How training went; ``stopped`` is the alarm that ended it."""

    recorder: Recorder
    alarms: list[Alarm] = field(default_factory=list)
    stopped: Alarm | None = None


def run(case: Case, home: Path, resume: bool, say: Callable[[str], None]) -> Ended:
    """Train to the end, or until a guard stops it; ``case.trainer`` is the one that was trained."""
    trainer = case.trainer
    recorder = Recorder(
        home / METRICS, case.data.train.ids, case.data.held.ids if case.data.held else [], lambda: float(trainer.beta)
    )
    trainer.watch = recorder.watch
    guards = Guards(case.settings, recorder, say)
    for callback in (recorder, *watchers(case, recorder, home), guards):
        trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint=resume or None)
    return Ended(recorder, guards.alarms, guards.stopped)
