"""What is written down of a run while it goes on: numbers of every step, in memory for the guards and in ``metrics.jsonl`` for people."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import torch
from transformers import TrainerCallback

from prefdata.training.checks import Case


@dataclass
class Step:
    """One optimiser step. Log-probabilities are sums over an answer's tokens, means over the step's pairs; rewards are beta times
    policy minus reference; ``ties`` is the share of pairs whose margin is exactly 0. ``odd`` are ids of pairs with a number that is
    not finite.
    """

    step: int
    loss: float
    margin: float
    accuracy: float
    ties: float
    chosen_reward: float
    rejected_reward: float
    chosen: float
    rejected: float
    beta: float
    odd: tuple[str, ...] = ()
    grad_norm: float | None = None


@dataclass
class Held:
    """Sums over the pairs of the evaluation that is going on; ``odd`` are ids of pairs with a number that is not finite."""

    margins: list[float] = field(default_factory=list)
    chosen: list[float] = field(default_factory=list)
    rejected: list[float] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)


class Recorder(TrainerCallback):
    """Hears of every batch (``watch``) and step; ``steps`` are all of them, ``logs`` the lines of ``metrics.jsonl``.

    ``ids`` are those of the training pairs by row, ``held_ids`` those of the held-out ones.
    """

    def __init__(self, path: Path, ids: list[str], held_ids: list[str], beta: Callable[[], float]) -> None:
        self.path, self.ids, self.held_ids, self.beta = path, ids, held_ids, beta
        self.steps: list[Step] = []
        self.held = Held()
        self.logs: list[dict[str, Any]] = []
        self.evals: list[
            dict[str, float]
        ] = []  # a line an evaluation: step, accuracy, margin, ties, chosen, rejected, loss
        self.generated: list[
            dict[str, float]
        ] = []  # a line a round of probes: step, length_ratio (to the first round), distinct
        self._batches: list[tuple[Any, Mapping[str, Any]]] = []
        self._began = time.monotonic()

    def watch(self, rows: Any, numbers: Mapping[str, Any], training: bool) -> None:
        """Keep a batch's tensors; they are read once a step, so that a GPU is not waited for."""
        if training:
            self._batches.append((rows.detach(), numbers))
            return
        margin = (numbers["chosen"] - numbers["ref_chosen"]) - (numbers["rejected"] - numbers["ref_rejected"])
        self.held.margins += (self.beta() * margin).float().tolist()
        self.held.chosen += numbers["chosen"].float().tolist()
        self.held.rejected += numbers["rejected"].float().tolist()
        bad = ~torch.isfinite(margin)
        self.held.odd += [self.held_ids[i] for i in rows[bad].tolist()]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Sum the step's batches up."""
        if not self._batches:
            return
        rows = torch.cat([r for r, _ in self._batches])
        names = ("chosen", "rejected", "ref_chosen", "ref_rejected")
        table = torch.stack([torch.cat([n[k].float() for _, n in self._batches]) for k in names])
        losses = torch.stack([n["loss"].float() for _, n in self._batches])
        beta = self.beta()
        values, loss = table.cpu(), float(losses.mean())
        self._batches = []
        good, bad = beta * (values[0] - values[2]), beta * (values[1] - values[3])
        margins = good - bad
        odd = tuple(self.ids[i] for i in rows[(~torch.isfinite(values).all(0)).to(rows.device)].tolist())
        self.steps.append(
            Step(
                state.global_step, loss, float(margins.mean()), float((margins > 0).float().mean()), float((margins == 0).float().mean()),
                float(good.mean()), float(bad.mean()), float(values[0].mean()), float(values[1].mean()), beta, odd,
            )
        )  # fmt: skip

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """A line of ``metrics.jsonl``; numbers that are not finite become null, and are counted."""
        if not state.is_world_process_zero or not logs:
            return
        line = {"step": state.global_step, "seconds": round(time.monotonic() - self._began, 2), **logs}
        if "eval_loss" in logs:
            n = len(self.held.margins)
            if n:
                line["eval_ties"] = sum(m == 0 for m in self.held.margins) / n
            line["eval_pairs"] = n
            self.held = Held()
        elif self.steps:
            last = self.steps[-1]
            line |= {"ties": last.ties, "beta": last.beta}
        line["memory"] = memory()
        odd = sorted(k for k, v in line.items() if isinstance(v, float) and not math.isfinite(v))
        line = {k: None if k in odd else v for k, v in line.items()} | ({"nonfinite": odd} if odd else {})
        self.logs.append(line)
        with self.path.open("ab") as file:
            file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY, default=str))


def watchers(case: Case, recorder: Recorder, home: Path) -> list[TrainerCallback]:
    """What else looks on while a run goes on: probes, and how far each layer moves."""
    return []


def memory() -> int:
    """Bytes in use at most so far: of the GPU where there is one, else of this process."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
