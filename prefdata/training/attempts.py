"""Training under guards: one attempt, or several where memory runs out or a spike is rolled back."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from prefdata.errors import ConfigError, PrefdataError, first_line
from prefdata.training import building, early, resume
from prefdata.training.checks import Case
from prefdata.training.folder import METRICS
from prefdata.training.guards import Action, Alarm, Guards
from prefdata.training.monitors import Recorder, Step, watchers
from prefdata.training.plan import Plan

SLOWER = 0.1  # the learning rate after a spike was rolled back, as a share of that before


@dataclass
class Ended:
    """How training went; ``stopped`` is the alarm that ended it."""

    recorder: Recorder
    alarms: list[Alarm] = field(default_factory=list)
    stopped: Alarm | None = None


def run(case: Case, home: Path, resumed: bool, say: Callable[[str], None]) -> Ended:
    """Train to the end, or until a guard stops it; ``case.trainer`` is the one that was trained, ``case.plan`` as it was in the end.

    Raises ConfigError for an early stop that nothing is measured for, and for a run that goes on with something else.
    """
    _measured(case)
    with case.trainer.args.main_process_first(local=False):
        if case.trainer.is_world_process_zero():
            start = resume.begin(case, home, resumed, say)
        else:
            start = resume.last(home) if resumed else None
    alarms: list[Alarm] = []
    steps: list[Step] = []
    slower = 1.0
    while True:
        recorder, guards = _watched(case, home, say, alarms, slower, steps, start)
        error = _train(case, start)
        if error is not None:
            step = int(case.trainer.state.global_step) + 1  # the one that failed
            word, what, action = _named(error, case)
            guards.ended = guards.sound(word, step, what, action)
        ended = guards.ended
        if ended is None or ended.action in ("stop", "end"):
            return Ended(recorder, alarms, None if ended is None or ended.action == "end" else ended)
        before = ended.step - 1 if ended.action == "rollback" else None  # the step before the spike may have made it
        start = resume.last(home, before)
        if case.trainer.is_world_process_zero():
            resume.rewind(home, start, case.plan.steps)
        say(f"goes on from {'the start' if start is None else f'step {resume.step_of(start)}'}")
        if ended.action == "rollback":
            slower *= SLOWER
        else:
            case.plan = _smaller(case.plan)
        steps = recorder.steps
        del recorder, guards, error  # they hold on to the old trainer, which is to leave memory first
        _rebuild(case, home)


def _measured(case: Case) -> None:
    """Refuse an early stop by what is never measured."""
    names = {early.condition(text).metric for text in case.settings.early_stop}
    if names & set(early.HELD) and (case.held is None or not len(case.held.dataset)):
        raise ConfigError("early_stop: no pairs are held out", hint="Give eval_split or eval_share.")
    if names & set(early.PROBED) and not case.settings.probes:
        raise ConfigError(
            f"early_stop: {', '.join(sorted(names & set(early.PROBED)))} needs probes", hint="Set probes."
        )


def _watched(
    case: Case, home: Path, say: Callable[[str], None], alarms: list[Alarm], slower: float, steps: list[Step], start: Path | None
) -> tuple[Recorder, Guards]:  # fmt: skip
    """Give the trainer its recorder and its guards; what an earlier attempt recorded up to ``start`` stays."""
    trainer = case.trainer
    held = case.data.held.ids if case.data.held else []
    recorder = Recorder(home / METRICS, case.data.train.ids, held, lambda: float(trainer.beta))
    step = 0 if start is None else resume.step_of(start)
    if start is not None:
        recorder.logs += resume.logs(home)
        recorder.evals += [e for e in map(_evaluation, recorder.logs) if e]
        recorder.generated += [_named_probes(line) for line in recorder.logs if "probes/distinct" in line]
    recorder.steps += [s for s in steps if s.step <= step]
    recorder._logged = len(recorder.steps)
    trainer.watch = recorder.watch
    guards = Guards(case, recorder, say, alarms)
    for callback in (recorder, *watchers(case, recorder, home), *([Slower(slower)] if slower < 1 else []), guards):
        trainer.add_callback(callback)
    return recorder, guards


def _evaluation(line: dict[str, Any]) -> dict[str, float] | None:
    """An evaluation as the recorder holds it, of its line in ``metrics.jsonl``."""
    if "eval_loss" not in line:
        return None
    names = {"accuracy": "rewards/accuracies", "margin": "rewards/margins", "ties": "ties", "chosen": "logps/chosen", "rejected": "logps/rejected", "loss": "loss"}  # fmt: skip
    found = {k: line.get(f"eval_{v}") for k, v in names.items()}
    return {"step": line["step"], **{k: v for k, v in found.items() if v is not None}}


def _named_probes(line: dict[str, Any]) -> dict[str, float]:
    return {k.removeprefix("probes/"): v for k, v in line.items() if k == "step" or k.startswith("probes/")}


class Slower(TrainerCallback):
    """Sets all learning rates to this share of their plan, once optimiser and schedule are loaded (from a checkpoint, maybe so already)."""

    def __init__(self, share: float) -> None:
        self.share = share

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Once an attempt."""
        schedule = kwargs["lr_scheduler"]
        for i, group in enumerate(kwargs["optimizer"].param_groups):
            wanted = group["initial_lr"] * self.share
            group["lr"] *= wanted / (schedule.base_lrs[i] or 1.0)
            schedule.base_lrs[i] = wanted
        schedule._last_lr = [g["lr"] for g in kwargs["optimizer"].param_groups]  # what the log says of the next step


def _train(case: Case, start: Path | None) -> Exception | None:
    """Train, and give back what a library raised; errors of prefdata itself go through."""
    trainer = case.trainer
    try:
        if start is not None and resume.step_of(start) >= case.plan.steps:  # Trainer would go on beyond the last step
            trainer._load_from_checkpoint(str(start))
            return None
        trainer.train(resume_from_checkpoint=None if start is None else str(start))
    except PrefdataError:
        raise
    except Exception as error:  # torch, transformers, TRL, datasets and the disk, each in its own way
        if case.plan.devices > 1:  # the other processes wait for this one until it ends with an error
            hint = "Halve micro_batch_size." if _memory(error) else "Read the log of this process."
            raise PrefdataError(f"training failed: {type(error).__name__}: {first_line(error)}", hint=hint) from error
        return error.with_traceback(None)  # its frames hold tensors
    return None


def _memory(error: Exception) -> bool:
    said = str(error).lower()
    asked = isinstance(error, RuntimeError) and ("can't allocate memory" in said or "out of memory" in said)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or asked


def _named(error: Exception, case: Case) -> tuple[str, str, Action]:
    """Word, evidence and what is done."""
    what = f"{type(error).__name__}: {first_line(error)}"
    if not _memory(error):
        return "trainer_error", what, "stop"
    if case.plan.micro_batch_size == 1:
        return "out_of_memory", f"with one pair at once: {what}", "stop"
    less = _smaller(case.plan)
    what = f"with {case.plan.micro_batch_size} pairs at once, now {less.micro_batch_size} x {less.accumulation}: {what}"
    return "out_of_memory", what, "retry"


def _smaller(plan: Plan) -> Plan:
    """Half the pairs at once, or the next smaller part, so that a step has the same pairs."""
    micro = plan.micro_batch_size
    part = next(m for m in range(micro // 2, 0, -1) if micro % m == 0)
    return replace(plan, micro_batch_size=part, accumulation=plan.accumulation * micro // part)


def _rebuild(case: Case, home: Path) -> None:
    """A new trainer by the plan; the old one's memory is given back first."""
    case.trainer = None
    gc.collect()
    with suppress(RuntimeError):
        torch.cuda.empty_cache()
    case.trainer = building.trainer(case, home)
