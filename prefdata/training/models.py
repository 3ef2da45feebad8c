"""The model and its tokenizer: what is known of them before any weight is read, loading them, adapters, saving."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefdata import model_files
from prefdata.errors import ConfigError, MissingExtra
from prefdata.files import put
from prefdata.noise import pretrained
from prefdata.training.settings import Settings

NOTE = "prefdata.json"  # beside the saved weights: which data they saw


def need() -> None:
    """Raise MissingExtra where a part of [train] is not installed; imports nothing."""
    from importlib.util import find_spec

    missing = [m for m in ("torch", "trl", "accelerate") if find_spec(m) is None]
    if missing:
        raise MissingExtra.of("train", f"training ({', '.join(missing)} not found)")


@dataclass(frozen=True)
class Facts:
    """What the configuration says of a model. ``parameters`` counts weights, ``vocabulary`` rows of the embedding;
    ``positions`` is None where positions are not bounded (rotary models state what they were trained on: ``learned`` is false).
    """

    name: str
    kind: str
    parameters: int
    vocabulary: int
    positions: int | None
    learned: bool
    layers: int
    hidden: int
    stored: str


def facts(name: str) -> Facts:
    """Read from the configuration alone; raises ConfigError where there is none or it is of no causal language model."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    place = model_files.place("model", name)
    with model_files.loading("model", name) as allowed:
        config = AutoConfig.from_pretrained(place, **allowed)
        with torch.device("meta"):
            empty = AutoModelForCausalLM.from_config(config)
        text = config.get_text_config()
        embedding = empty.get_input_embeddings()
        positions = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
        learned = any(
            "wpe" in n or "embed_positions" in n or "position_embeddings" in n for n, _ in empty.named_parameters()
        )
        stored = getattr(config, "dtype", None) or "float32"
        return Facts(
            name, str(config.model_type), sum(p.numel() for p in empty.parameters()), int(embedding.weight.shape[0]), positions,
            learned, int(getattr(text, "num_hidden_layers", 1)), int(getattr(text, "hidden_size", 1)), str(stored).removeprefix("torch."),
        )  # fmt: skip


def tokenizer(settings: Settings) -> Any:
    """The model's tokenizer as the trainer will use it, its padding token set.

    Raises ConfigError where it cannot be read.
    """
    made = pretrained.loaded("AutoTokenizer", settings.model)
    if settings.chat_template is not None:
        path = Path(settings.chat_template).expanduser()
        try:
            made.chat_template = path.read_text("utf-8")
        except OSError as error:
            raise ConfigError(f"the chat template cannot be read: {error.strerror}", where=str(path)) from error
    if settings.pad_token is not None:
        if (
            settings.pad_token in made.get_vocab()
        ):  # else pre-flight says so: a new token would have no row in the embedding
            made.pad_token = settings.pad_token
    elif made.pad_token is None and made.eos_token is not None:
        made.pad_token = made.eos_token
    return made


def load(settings: Settings, dtype: str) -> Any:
    """The model with weights of this type; ``stored`` for that of the files."""
    import torch

    wanted = "auto" if dtype == "stored" else getattr(torch, dtype)
    return pretrained.loaded("AutoModelForCausalLM", settings.model, dtype=wanted)


def adapter(settings: Settings, rank: int, alpha: float) -> Any:
    """peft's configuration of the adapters."""
    from peft import LoraConfig

    return LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=settings.lora_dropout, target_modules=settings.lora_targets, bias="none",
        task_type="CAUSAL_LM",
    )  # fmt: skip


def save(model: Any, tokenizer: Any, out: Path, about: dict[str, Any]) -> list[str]:
    """``model/`` (whole weights, adapters merged) and, for adapters, ``adapter/``; each with its tokenizer and the note on its data."""
    made = []
    inner = getattr(model, "module", model)
    if hasattr(inner, "peft_config"):
        inner.save_pretrained(out / "adapter")
        made.append("adapter")
        inner = inner.merge_and_unload()
    inner.save_pretrained(out / "model")
    for name in [*made, "model"]:
        tokenizer.save_pretrained(out / name)
        put(out / name / NOTE, json.dumps(about, indent=2, ensure_ascii=False) + "\n")
    return [*made, "model"]
