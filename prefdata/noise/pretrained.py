"""Hugging Face models and tokenizers by folder or hub name, only from files that are here unless a download is allowed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefdata.errors import ConfigError, MissingExtra, first_line


def check(name: str) -> None:
    """Raise MissingExtra where torch is not installed, ConfigError for a folder that is not there; cheap, imports nothing."""
    path = Path(name).expanduser()
    if not path.exists() and (name.startswith(("/", ".", "~")) or name.count("/") > 1):
        raise ConfigError("no such model folder", where=name)
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra.of("models", f"the model {name}")


def loaded(kind: str, name: str, **options: Any) -> Any:
    """``transformers.<kind>.from_pretrained(name, **options)``; weights are float32 unless ``dtype`` says otherwise, code of a model's own is never run.

    Raises MissingExtra, and ConfigError for what is not here or cannot be read.
    """
    check(name)
    import transformers

    online = os.environ.get("PREFDATA_ONLINE") == "1"
    path = Path(name).expanduser()
    if kind.startswith("AutoModel"):
        import torch

        options.setdefault("dtype", torch.float32)
    try:
        with _quiet(transformers):
            return getattr(transformers, kind).from_pretrained(
                str(path) if path.exists() else name, local_files_only=not online, trust_remote_code=False, **options
            )
    except Exception as error:  # the library raises OSError, ValueError, KeyError and more for one mistake
        if online or path.exists():
            raise ConfigError(f"model cannot be loaded: {first_line(error)}", where=name) from error
        raise ConfigError(
            "no such model here: neither a folder nor in the local Hugging Face cache",
            where=name,
            hint="Give a folder, or allow the download with --online.",
        ) from error


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
