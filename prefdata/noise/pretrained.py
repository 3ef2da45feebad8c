"""Hugging Face models and tokenizers by folder or hub name, only from files that are here unless a download is allowed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefdata import model_files
from prefdata.encoders import digest
from prefdata.errors import MissingExtra


def check(name: str) -> None:
    """Raise MissingExtra where torch is not installed, ConfigError for a folder that is not there; cheap, imports nothing."""
    model_files.place("model", name)
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra.of("models", f"the model {name}")


class Named:
    """What reads models by their names."""

    names: tuple[str, ...]

    def warm(self) -> None:
        """Find out early what is missing. Weights are not loaded: torch does not survive a fork."""
        for name in self.names:
            check(name)

    def depends_on(self) -> str:
        """The files of the models."""
        return " ".join(map(digest, self.names))


def loaded(kind: str, name: str, **options: Any) -> Any:
    """``transformers.<kind>.from_pretrained(name, **options)``; weights are float32 unless ``dtype`` says otherwise, code of a model's own is never run.

    Raises MissingExtra, and ConfigError for what is not here or cannot be read.
    """
    check(name)
    import transformers

    if kind.startswith("AutoModel"):
        import torch

        options.setdefault("dtype", torch.float32)
    with model_files.loading("model", name) as allowed, _quiet(transformers):
        return getattr(transformers, kind).from_pretrained(model_files.place("model", name), **allowed, **options)


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and no notes on new heads: they would stand in the middle of the program's own lines."""
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def device() -> str:
    """``cuda`` where there is one, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Torch on that many CPU threads: their number is in the last bits of what it computes."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
