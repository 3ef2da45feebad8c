"""The mean of several checkpoints, evaluated beside the model that training ended with."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from prefdata.training import evaluate
from prefdata.training.checks import Case


def better(case: Case, after: dict[str, Any]) -> dict[str, Any]:
    """Evaluate the mean of the checkpoints that ``average`` asks for, and leave it in ``case.trainer.model`` if its margin is better than
    that of ``after``: ``{"of": names, "kept": bool, "metrics": {...}}``, with ``why`` where there was nothing to compare.
    """
    if case.settings.average is None:
        return {}
    which, k = asked(case.settings.average)
    trainer = case.trainer
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        return {"of": [], "kept": False, "metrics": {}, "why": "weights spread over devices are not averaged"}
    if margin(after) is None:
        return {"of": [], "kept": False, "metrics": {}, "why": "no pairs are held out to compare the mean by"}
    there = checkpoints(Path(trainer.args.output_dir))
    found = chosen(there, {**_margins(trainer, there), max(there, default=0): margin(after)}, which, k)
    if len(found) < 2:
        return {"of": [p.name for p in found], "kept": False, "metrics": {}, "why": "fewer than two checkpoints"}
    trained = {n: p for n, p in trainer.model.named_parameters() if p.requires_grad}
    last = {n: p.detach().clone() for n, p in trained.items()}
    mean = {n: torch.zeros_like(p, dtype=torch.float32) for n, p in last.items()}
    for path in found:
        trainer._load_from_checkpoint(str(path), trainer.model)
        for name, p in trained.items():
            mean[name] += p.detach().float() / len(found)
    _put(trained, mean)
    metrics = evaluate.evaluate(case)
    got, before = margin(metrics), margin(after)
    kept = got is not None and before is not None and got > before
    if not kept:
        _put(trained, last)
    return {"of": [p.name for p in found], "kept": kept, "metrics": metrics}


def asked(text: str) -> tuple[str, int]:
    """``last:3`` as its word and its number."""
    which, _, number = text.partition(":")
    return which, int(number)


def _put(trained: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    with torch.no_grad():
        for name, p in trained.items():
            p.copy_(values[name])


def margin(metrics: Mapping[str, Any]) -> float | None:
    """The held-out margin among an evaluation's numbers."""
    for name in ("margin", "eval_rewards/margins"):
        if isinstance(value := metrics.get(name), int | float):
            return float(value)
    return None


def checkpoints(folder: Path) -> dict[int, Path]:
    """Checkpoints by their step, first to last."""
    found = {int(m[1]): p for p in folder.glob("checkpoint-*") if (m := re.fullmatch(r"checkpoint-(\d+)", p.name))}
    return dict(sorted(found.items()))


def _margins(trainer: Any, found: Mapping[int, Path]) -> dict[int, float]:
    """Held-out margins by step; of the last checkpoint where a run that was over went on."""
    log = trainer.state.log_history
    if not log and found:
        log = json.loads((found[max(found)] / "trainer_state.json").read_text("utf-8"))["log_history"]
    return {e["step"]: m for e in log if (m := margin(e)) is not None}


def chosen(found: Mapping[int, Path], margins: Mapping[int, float | None], which: str, k: int) -> list[Path]:
    """The last k, or the k with the largest margin (later ones first where margins are equal), in the order of their steps."""
    steps = list(found)
    if which == "best":
        steps = sorted((s for s in steps if margins.get(s) is not None), key=lambda s: (margins[s], s))
    return [found[s] for s in sorted(steps[-k:])]
