"""Going on with a run: what it was started with, its last whole checkpoint, and its records up to there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from prefdata.errors import ConfigError
from prefdata.files import put
from prefdata.training.checks import Case
from prefdata.training.folder import CHECKPOINTS, GENERATIONS, METRICS, STARTED

# what may be otherwise when a run goes on: it changes what is told, saved or held at once, not what is learnt
_FREE = {
    "device", "micro_batch_size", "gradient_checkpointing", "logging_steps", "eval_steps", "probes", "probe_tokens", "guards", "on_spike",
    "check_every", "early_stop", "early_stop_rule", "patience", "average", "forgetting", "save_total_limit", "report_to",
}  # fmt: skip
_PLANNED = ("method", "dtype", "precision", "lora_rank", "learning_rate", "max_length", "batch_size", "steps", "warmup_steps", "label_smoothing")  # fmt: skip
_STATE = "trainer_state.json"  # is written last, so that a checkpoint with it is whole


def begin(case: Case, home: Path, resume: bool, say: Callable[[str], None]) -> Path | None:
    """The checkpoint to go on from, or None for the start; writes down what the run is started with.

    Raises ConfigError where the run was started with another set, model or setting.
    """
    now = _document(case)
    path = home / STARTED
    if not resume:
        put(path, json.dumps(now, indent=2) + "\n")
        return None
    before = _read(path)
    changed = [f"{k} was {before[k]!r}, is {v!r}" for k, v in now.items() if k in before and before[k] != v]
    if changed:
        raise ConfigError(
            f"the run was started otherwise: {'; '.join(changed)}", where=str(home),
            hint="Give what it was started with, or --overwrite to start anew.",
        )  # fmt: skip
    found = last(home)
    if found is None:
        say("no checkpoint is there: training starts anew")
    else:
        say(f"goes on from step {step_of(found)}")
    if not before:
        put(path, json.dumps(now, indent=2) + "\n")
    rewind(home, found, case.plan.steps)
    return found


def _document(case: Case) -> dict[str, Any]:
    """What decides what is learnt: the model, the set, settings that are given, and values that are decided by the machine."""
    given = {k: v for k, v in case.settings.model_dump(mode="json").items() if k not in _FREE}
    planned = {k: getattr(case.plan, k) for k in _PLANNED}
    data = case.data.manifest_hash[:16]
    return {**given, **planned, "data": data, "pairs": len(case.data.train)}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):  # of a run that was killed before it began
        return {}
    return found if isinstance(found, dict) else {}


def step_of(checkpoint: Path) -> int:
    """The step after which it was saved."""
    return int(checkpoint.name.rpartition("-")[2])


def last(home: Path, before: int | None = None) -> Path | None:
    """The last whole checkpoint, of those saved at a step below ``before``."""
    there = [p for p in (home / CHECKPOINTS).glob("checkpoint-*") if p.name.rpartition("-")[2].isdecimal()]
    whole = [p for p in there if "global_step" in _read(p / _STATE) and (before is None or step_of(p) < before)]
    return max(whole, key=step_of, default=None)


def rewind(home: Path, checkpoint: Path | None, steps: int) -> None:
    """Take away what was written after a checkpoint: later checkpoints, whole or not, and lines of later steps. Probes are asked
    again where training goes on, unless it has all its ``steps``.
    """
    step = 0 if checkpoint is None else step_of(checkpoint)
    for path in (home / CHECKPOINTS).glob("checkpoint-*"):
        if not path.name.rpartition("-")[2].isdecimal() or step_of(path) > step:
            shutil.rmtree(path)
    for name in (METRICS, GENERATIONS):
        if (home / name).is_file():
            lines = (home / name).read_bytes().splitlines(keepends=True)
            kept = [
                line for line in lines if _stays(line, step, name == GENERATIONS or b'"probes/' in line, step >= steps)
            ]
            put(home / name, b"".join(kept))


def _stays(line: bytes, step: int, probe: bool, over: bool) -> bool:
    try:
        at = orjson.loads(line)["step"]
    except (ValueError, KeyError, TypeError):  # the last line of a run that was killed
        return False
    return bool(step) and bool(at < step or (at == step and (over or not probe)))


def logs(home: Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``."""
    path = home / METRICS
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.is_file() else []
