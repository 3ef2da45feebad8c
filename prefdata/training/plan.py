"""What the settings come to for one model, set and machine: every effective value, and the memory it will take."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from prefdata.errors import ConfigError
from prefdata.training.models import Facts
from prefdata.training.settings import Settings

BILLION = 1_000_000_000
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_LARGEST_MICRO = 8
_ROOM = 0.8  # of the memory that is free


@dataclass(frozen=True)
class Machine:
    """Where training will run: ``memory`` in bytes that one device has free."""

    device: str
    devices: int
    bf16: bool
    memory: int

    @classmethod
    def here(cls, wanted: str) -> Machine:
        """The GPUs that torch sees, unless the CPU is asked for; ConfigError where a GPU is asked for and none is there."""
        import torch

        if wanted != "cpu" and torch.cuda.is_available():
            devices = int(os.environ.get("WORLD_SIZE", 1))
            return cls("cuda", devices, torch.cuda.is_bf16_supported(), torch.cuda.mem_get_info()[0])
        if wanted == "cuda":
            raise ConfigError(
                "--device cuda: torch sees no GPU", hint="Use --device cpu, or install a build of torch for your GPU."
            )
        return cls("cpu", int(os.environ.get("WORLD_SIZE", 1)), False, _free())


def _free() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 8 * BILLION


@dataclass(frozen=True)
class Plan:
    """Effective values; steps are optimiser steps, ``memory`` bytes by estimate for one device."""

    method: str
    dtype: str
    precision: str
    device: str
    devices: int
    lora_rank: int | None
    lora_alpha: float | None
    learning_rate: float
    label_smoothing: float
    max_length: int
    micro_batch_size: int
    accumulation: int
    batch_size: int
    steps: int
    epochs: float
    warmup_steps: int
    logging_steps: int
    eval_steps: int
    gradient_checkpointing: bool
    memory: int

    def document(self) -> dict[str, Any]:
        """For programs and for the run folder."""
        return asdict(self)

    def parts(self, facts: Facts) -> dict[str, int]:
        """What ``memory`` is made of, in bytes."""
        lora, size = self.method == "lora", (self.micro_batch_size, self.max_length, self.gradient_checkpointing)
        return parts(facts, self.dtype, lora, self.lora_rank or 0, *size)


def plan(
    settings: Settings, facts: Facts, machine: Machine, pairs: int, smoothing: float = 0.0, window: int | None = None
) -> Plan:
    """Effective values for so many pairs; ``smoothing`` and ``window`` are what the cleaned set asks for."""
    lora = settings.method == "lora" or (settings.method == "auto" and find_spec("peft") is not None)
    if settings.method == "lora" and find_spec("peft") is None:
        raise ConfigError("adapters need peft", hint="pip install 'prefdata[train]', or train all weights with --full.")
    rank = (settings.lora_rank or rank_for(facts.parameters)) if lora else None
    alpha = None if rank is None else settings.lora_alpha or 2.0 * rank
    dtype: str = settings.dtype or ("bfloat16" if lora and machine.bf16 and machine.device == "cuda" else "float32")
    dtype = facts.stored if dtype == "stored" else dtype
    precision = settings.precision or ("bf16" if machine.bf16 and machine.device == "cuda" else "fp32")
    longest = settings.max_length or window or 1024
    if settings.max_length is None and facts.positions is not None:
        longest = min(longest, facts.positions)
    checkpointing = settings.gradient_checkpointing
    checkpointing = facts.parameters >= BILLION if checkpointing is None else checkpointing
    each = max(1, settings.batch_size // machine.devices)

    def memory(micro: int) -> int:
        return sum(parts(facts, dtype, lora, rank or 0, micro, longest, checkpointing).values())

    micro = settings.micro_batch_size
    if micro is None:
        fits = [
            m for m in (8, 4, 2, 1) if each % m == 0 and m <= _LARGEST_MICRO and memory(m) <= _ROOM * machine.memory
        ]
        micro = fits[0] if fits else 1
    micro = min(micro, each)
    accumulation = max(1, round(each / micro))
    batch = micro * accumulation * machine.devices
    a_pass = max(1, -(-pairs // batch))
    steps = settings.max_steps or max(1, round(settings.num_train_epochs * a_pass))
    return Plan(
        method="lora" if lora else "full", dtype=dtype, precision=precision, device=machine.device, devices=machine.devices,
        lora_rank=rank, lora_alpha=alpha, learning_rate=settings.learning_rate or (1e-5 if lora else 5e-7),
        label_smoothing=smoothing if settings.label_smoothing is None else settings.label_smoothing, max_length=longest,
        micro_batch_size=micro, accumulation=accumulation, batch_size=batch, steps=steps, epochs=round(steps / a_pass, 3),
        warmup_steps=round(settings.warmup_ratio * steps), logging_steps=settings.logging_steps or max(1, min(10, steps // 50)),
        eval_steps=settings.eval_steps or max(1, steps // 10), gradient_checkpointing=checkpointing, memory=memory(micro),
    )  # fmt: skip


def rank_for(parameters: int) -> int:
    """Rank of adapters by size: 8 up to 3 billion parameters, 16 up to 10, above 32."""
    return 8 if parameters <= 3 * BILLION else 16 if parameters <= 10 * BILLION else 32


def parts(
    facts: Facts, dtype: str, lora: bool, rank: int, micro: int, length: int, checkpointing: bool
) -> dict[str, int]:
    """Bytes on one device by what takes them, rough; activations are those of 2 x micro sequences, AdamW's two moments float32."""
    weights = facts.parameters * _BYTES.get(dtype, 4)
    trained = rank * 14 * facts.hidden * facts.layers if lora else facts.parameters
    a_layer = 2 * micro * length * facts.hidden * 4
    return {
        "weights": weights,
        "reference": 0 if lora else weights,
        "gradients": trained * 4,
        "optimiser": trained * 8,
        "activations": a_layer * facts.layers * (1 if checkpointing else 16) + a_layer * 16,
        "logits": 2 * min(micro * length, 1024) * facts.vocabulary * 4,  # TRL's head goes through the tokens in chunks
    }
