"""A run as it lies in its folder: prefdata's own, whole or broken off, or one of plain Trainer. No torch here, and nothing is unpickled."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefdata.errors import InputError
from prefdata.training.folder import CHECKPOINTS, METRICS, RECORD, STARTED

_STATE = "trainer_state.json"
_QUIET = 600  # seconds without a line after which a run is taken to be dead


@dataclass
class Past:
    """``kind``: prefdata or trainer. ``status``: that of ``train.json``, else ended, killed, or running (a line less than 10 minutes ago).

    ``train`` and ``evals`` are the lines of the log with what is not a finite number as NaN; ``record`` is ``train.json``. ``dtype``
    and ``lora`` tell of the weights that were trained, as far as files say so; rate, batch (pairs a step) and steps likewise.
    """

    home: Path
    kind: str
    status: str
    step: int = 0
    steps: int | None = None
    train: list[dict[str, Any]] = field(default_factory=list)
    evals: list[dict[str, Any]] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)
    dtype: str | None = None
    lora: bool | None = None
    rate: float | None = None
    batch: int | None = None
    beta: float = 0.1
    losses: tuple[str, ...] = ("sigmoid",)
    sources: list[str] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The step that the log ends with."""
        return max([self.step, *(int(line.get("step", 0)) for line in (*self.train, *self.evals))])


def read(home: Path) -> Past:
    """The run in this folder. Raises InputError where there is none."""
    if not home.is_dir():
        what = "is a file, not the folder of a run" if home.exists() else "does not exist"
        raise InputError(
            what, where=str(home), hint="Give the RUN folder of prefdata train, or the output_dir of a Trainer."
        )
    if "checks" in _json(home / RECORD) or any((home / name).is_file() for name in (METRICS, STARTED)):
        return _own(home)
    states = [home / _STATE, *reversed(_checkpoints(home)), *reversed(_checkpoints(home / CHECKPOINTS))]
    state = next((s for s in states if s.is_file()), None)
    if state is None:
        raise InputError("is no training run", where=str(home), hint=_instead(home))
    return _trainer(home, state)


def _instead(home: Path) -> str:
    """What to give instead of this folder."""
    inside = [p.parent for name in (RECORD, METRICS, _STATE) for p in sorted(home.glob(f"*/{name}"))]
    if inside:
        return f"A run lies inside it: prefdata doctor {inside[0]}"
    if (home / "manifest.json").is_file():
        return "It is a cleaned set; its report is report.html."
    return f"Looked for {RECORD}, {METRICS} (prefdata train), {_STATE} and checkpoint-*/{_STATE} (Trainer)."


def _checkpoints(home: Path) -> list[Path]:
    """States of whole checkpoints, the newest last."""
    found = [p for p in home.glob(f"checkpoint-*/{_STATE}") if p.parent.name.rpartition("-")[2].isdecimal()]
    return sorted(found, key=lambda p: int(p.parent.name.rpartition("-")[2]))


def _own(home: Path) -> Past:
    record, started = _json(home / RECORD), _json(home / STARTED)
    lines = list(_lines(home / METRICS))
    plan, asked = record.get("plan") or started, record.get("settings") or started
    past = Past(home, "prefdata", str(record.get("status") or _alive(home / METRICS)), record=record)
    past.train, past.evals = _split(lines)
    past.steps, past.dtype, past.rate, past.batch = (
        plan.get(k) for k in ("steps", "dtype", "learning_rate", "batch_size")
    )
    past.lora = plan["method"] == "lora" if "method" in plan else None
    past.beta = float(asked.get("beta") or 0.1)
    past.losses = tuple(asked.get("loss_type") or past.losses)
    past.sources = [n for n in (RECORD, METRICS, STARTED) if (home / n).is_file()]
    return past


def _trainer(home: Path, path: Path) -> Past:
    state = _json(path)
    if "log_history" not in state:
        raise InputError(
            "cannot be read, or has no log_history",
            where=str(path),
            hint="Is it whole? Give an older checkpoint's folder.",
        )
    history = [line for line in state.get("log_history") or [] if isinstance(line, dict)]
    past = Past(home, "trainer", "ended", int(state.get("global_step") or 0), state.get("max_steps"))
    past.train, past.evals = _split(history)
    over = any("train_runtime" in line for line in history)
    if past.steps and past.step < past.steps and not over:
        past.status = _alive(path)
    past.rate = max(
        (float(line["learning_rate"]) for line in past.train if _number(line.get("learning_rate"))), default=None
    )
    past.batch = _batch(history, past.step) or state.get("train_batch_size")
    past.sources = [str(path.relative_to(home))]
    for folder in dict.fromkeys((home, path.parent, *(c.parent for c in _checkpoints(home)[-1:]))):
        adapters, config = _json(folder / "adapter_config.json"), _json(folder / "config.json")
        if adapters and past.lora is None:
            past.lora = True
            past.sources.append(str((folder / "adapter_config.json").relative_to(home)))
        if (dtype := config.get("dtype") or config.get("torch_dtype")) and past.dtype is None:
            past.dtype, past.lora = str(dtype).removeprefix("torch."), bool(past.lora)
            past.sources.append(str((folder / "config.json").relative_to(home)))
    return past


def _batch(history: list[dict[str, Any]], step: int) -> int | None:
    """Pairs a step: pairs in all, by the line at the end, over steps."""
    for line in reversed(history):
        seconds, speed = line.get("train_runtime"), line.get("train_samples_per_second")
        if isinstance(seconds, int | float) and isinstance(speed, int | float) and step:
            return round(seconds * speed / step)
    return None


def _split(lines: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Lines of steps, and of evaluations: also of one that gave nothing, which Trainer logs as a line of nothing."""
    nothing = {"step", "epoch", "seconds"}
    found = [x for x in lines if "loss" not in x and (any(k.startswith("eval_") for k in x) or x.keys() <= nothing)]
    return [x for x in lines if isinstance(x.get("loss"), int | float)], found


def _alive(path: Path) -> str:
    try:
        return "running" if time.time() - path.stat().st_mtime < _QUIET else "killed"
    except OSError:
        return "killed"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of ``metrics.jsonl``, what they name as not finite as NaN."""
    if not path.is_file():
        return
    for text in path.read_bytes().splitlines():
        try:
            line = json.loads(text)
        except ValueError:  # the last line of a run that was killed
            continue
        if isinstance(line, dict):
            yield {**line, **dict.fromkeys(line.get("nonfinite") or (), math.nan)}


def _json(path: Path) -> dict[str, Any]:
    """A file of the run, or nothing where it is missing or half written. Trainer writes NaN as such, which ``json`` reads."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
