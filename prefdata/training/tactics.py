"""Tactics of the write-ups, each off unless asked for: beta schedule, learning rates by group and layer, percentile clipping, order, replay."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from transformers import TrainerCallback

from prefdata.errors import ConfigError, near_or_all
from prefdata.training import order
from prefdata.training.checks import Case
from prefdata.training.kept import Kept
from prefdata.training.replay import Replay
from prefdata.training.settings import Settings, beta_range

_LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)\.")
_EMBEDDING = re.compile(r"emb|wte|wpe")


def equip(case: Case, trainer: Any) -> None:
    """Give a new trainer the tactics that the settings ask for.

    Raises ConfigError for a file of texts that holds none and for a group without a parameter, and whatever transformers raises
    for an optimizer that cannot be made here.
    """
    s = case.settings
    if s.beta_schedule is not None:
        trainer.add_callback(Schedule(trainer, *beta_range(s.beta_schedule)))
    if s.lr_groups or s.layer_decay is not None:
        trainer.rate = Rates(s, trainer.model, case.plan.learning_rate)
    if s.replay is not None:
        trainer.extra_loss = Replay(case, trainer)
        trainer.add_callback(trainer.extra_loss)
    if s.clip_percentile is not None:
        if trainer.is_deepspeed_enabled:
            raise ConfigError(
                "clip_percentile: DeepSpeed clips by itself", hint="Set gradient_clipping in its own configuration."
            )
        trainer.clip = Percentile(s.clip_percentile, s.max_grad_norm)
        trainer.add_callback(trainer.clip)
    if s.order != "shuffle":
        places = order.places(case, trainer)
        trainer.sampler = lambda dataset: places
    if not (trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled):  # there it is made after the weights are spread
        trainer.create_optimizer()  # a package that it lacks is missed here, not at the first step
        trainer.optimizer = None


class Schedule(TrainerCallback):
    """Beta in a line over the steps, ``first`` at the first and ``last`` at the last; known from the step alone, also after a resume."""

    def __init__(self, trainer: Any, first: float, last: float) -> None:
        self.trainer, self.first, self.last = trainer, first, last

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set it."""
        done = min(1.0, state.global_step / max(1, state.max_steps - 1))
        self.trainer.beta = self.first + (self.last - self.first) * done

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Every evaluation is made with the beta of the settings."""
        self.trainer.beta = args.beta


class Percentile(Kept):
    """AutoClip: gradients are clipped at this percentile of all norms before, never above ``most``. The first step has ``most`` alone."""

    kept = ("norms",)

    def __init__(self, percentile: float, most: float) -> None:
        self.percentile, self.most = percentile, most
        self.bound = most  # of the last step
        self.norms: list[float] = []

    def __call__(self, accelerator: Any, model: Any) -> Any:
        """Clip; the norm before."""
        if self.norms:
            self.bound = min(self.most, float(np.percentile(self.norms, self.percentile)))
        norm = accelerator.clip_grad_norm_(model.parameters(), self.bound)
        if math.isfinite(value := float(norm)):
            self.norms.append(value)
        return norm


class Rates:
    """Learning rate of a parameter: that of the first of ``lr_groups`` that matches its name, else what ``layer_decay`` leaves of ``rate``.

    The head and the last norm learn at the full rate, layer k of n at ``rate * layer_decay ** (n - 1 - k)``, embeddings below layer 0.
    """

    def __init__(self, settings: Settings, model: Any, rate: float) -> None:
        self.decay, self.rate = settings.layer_decay, rate
        names = [n for n, p in model.named_parameters() if p.requires_grad]
        self.layers = 1 + max((int(m[1]) for n in names if (m := _LAYER.search(n))), default=-1)
        if self.decay is not None and not self.layers:
            hint = f"Its parameters: {', '.join(names[:5])}, ... Use lr_groups."
            raise ConfigError("layer_decay: this model's layers have no numbers", hint=hint)
        self.groups = [(re.compile(text), lr) for text, lr in settings.lr_groups.items()]
        for pattern, _ in self.groups:
            if not any(pattern.search(n) for n in names):
                hint = near_or_all(pattern.pattern, _kinds(names), "Parts of names")
                raise ConfigError(f"lr_groups {pattern.pattern}: matches no trained parameter", hint=hint)

    def __call__(self, name: str, parameter: Any) -> float:
        """Rate of this parameter."""
        for pattern, lr in self.groups:
            if pattern.search(name):
                return lr
        if self.decay is None:
            return self.rate
        if found := _LAYER.search(name):
            return self.rate * self.decay ** (self.layers - 1 - int(found[1]))
        return self.rate * (self.decay**self.layers if _EMBEDDING.search(name) else 1.0)


def _kinds(names: Iterable[str]) -> list[str]:
    """The words that parameter names are made of, without numbers and those that all have."""
    return sorted(
        {w for n in names for w in n.split(".") if not w.isdigit() and w not in ("model", "weight", "default")}
    )
