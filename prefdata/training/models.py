"""The model and its tokenizer: what is known of them before any weight is read, loading them, adapters, saving."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefdata import model_files
from prefdata.errors import ConfigError, MissingExtra
from prefdata.files import put, whole
from prefdata.noise import pretrained
from prefdata.training.settings import Settings

NOTE = "prefdata.json"  # beside the saved weights: which data they saw
_WORDS = ("tokenizer*", "vocab*", "*.model", "*.tiktoken", "tekken.json")  # files, one of which any tokenizer has
_ONLY = "Give a model that continues text."


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
        if hasattr(config, "vision_config"):
            raise ConfigError(f"is a model of pictures and text ({config.model_type})", where=name, hint=_ONLY)
        if type(config) not in AutoModelForCausalLM._model_mapping:
            raise ConfigError(f"is no causal language model ({config.model_type})", where=name, hint=_ONLY)
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
    made = _tokenizer(settings.model)
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


def _tokenizer(name: str) -> Any:
    """Of a model; transformers makes an empty one where a folder has none."""
    folder = Path(model_files.place("model", name))
    if folder.is_dir() and not any(p for kind in _WORDS for p in folder.glob(kind)):
        raise ConfigError("the folder has no tokenizer", where=name, hint="Save the tokenizer beside the model.")
    return pretrained.loaded("AutoTokenizer", name)


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


def same_words(tokenizer: Any, rows: int, reference: str) -> None:
    """Raise ConfigError where a reference model reads other tokens than the trained one, whose embedding has so many rows."""
    known, used = facts(reference).vocabulary, min(len(tokenizer), rows)
    if known < used:
        what = f"the reference has {known:,} tokens, the model {used:,}"
        raise ConfigError(what, where=reference, hint="A reference reads the same tokens as the model.")
    try:
        other = _tokenizer(reference).get_vocab()
    except ConfigError:
        return  # saved without one, as a checkpoint may be
    if other != tokenizer.get_vocab():
        raise ConfigError(
            "the reference's tokenizer has another vocabulary than the model's",
            where=reference,
            hint="A reference reads the same tokens as the model.",
        )


def save(model: Any, tokenizer: Any, out: Path, about: dict[str, Any]) -> list[str]:
    """``model/`` (whole weights, adapters merged into the model, which is changed by it) and, for adapters, ``adapter/``; each with its
    tokenizer and the note on its data. A folder is complete or not there.
    """
    made = []

    def put_in(name: str, keep: Callable[[Path], object]) -> None:
        shutil.rmtree(out / f"{name}.part", ignore_errors=True)  # of a run that was killed
        with whole(out / name) as part:
            keep(part)
            tokenizer.save_pretrained(part)
            put(part / NOTE, json.dumps(about, indent=2, ensure_ascii=False) + "\n")
            shutil.rmtree(out / name, ignore_errors=True)
        made.append(name)

    inner = getattr(model, "module", model)
    if hasattr(inner, "peft_config"):
        put_in("adapter", inner.save_pretrained)
        inner = inner.merge_and_unload()
    put_in("model", inner.save_pretrained)
    return made
