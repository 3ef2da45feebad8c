"""Finding and loading the tokenizer that a user names: a folder, a file, or a name of the hub."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from prefdata.errors import ConfigError
from prefdata.tokens import Plain, Tokenizer


def load(name: str, chat_template: str | None = None) -> Tokenizer:
    """The tokenizer of a folder, a GGUF or ``tokenizer.json`` file, or a hub name (from the local cache,
    unless ``PREFDATA_ONLINE`` allows more); the same one for every call."""
    return _load(name, chat_template)


def digest(name: str, chat_template: str | None) -> str:
    """What the files of a tokenizer are: a change of them changes the counts."""
    path = Path(name).expanduser()
    files = (
        sorted(p for p in path.iterdir() if p.suffix in (".json", ".jinja", ".model", ".txt"))
        if path.is_dir()
        else [path]
    )
    files += [Path(chat_template).expanduser()] if chat_template else []
    content = hashlib.sha256()
    for file in files:
        if file.is_file():
            content.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return content.hexdigest()


@lru_cache(maxsize=4)
def _load(name: str, chat_template: str | None) -> Tokenizer:
    online = os.environ.get("PREFDATA_ONLINE") == "1"
    path = Path(name).expanduser()
    local = path.exists()
    written_as_path = name.startswith(("/", ".", "~")) or name.count("/") > 1 or path.suffix in (".json", ".gguf")
    if not local and written_as_path:
        raise ConfigError("no such tokenizer folder", where=name, hint="Give the folder that holds tokenizer.json.")
    extra: dict[str, Any] = {"local_files_only": not online, "trust_remote_code": False}
    where = str(path) if local else name
    if local and path.is_file():
        where = str(path.parent)
        if path.suffix == ".gguf":
            extra["gguf_file"] = path.name
    template = None if chat_template is None else _template(chat_template)

    def from_hub() -> Any:
        from transformers import AutoTokenizer

        hf = AutoTokenizer.from_pretrained(where, **extra)
        if template is not None:
            hf.chat_template = template
        return hf

    try:
        return Tokenizer(name, from_hub, _plain(path) if path.is_dir() else None)
    except ConfigError:
        raise
    except Exception as error:  # OSError, ValueError, KeyError and more for what is one mistake
        if local:
            raise ConfigError(f"holds no readable tokenizer: {_first_line(error)}", where=name) from error
        if online:
            raise ConfigError(f"tokenizer cannot be loaded: {_first_line(error)}", where=name) from error
        raise ConfigError(
            "no such tokenizer here: neither a folder nor in the local Hugging Face cache",
            where=name,
            hint="Give a folder, or allow the download with --online.",
        ) from error


def _template(path: str) -> str:
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError("no such chat template file", where=path)
    return file.read_text(encoding="utf-8")


_PLAIN_KEYS = frozenset({
    "backend", "bos_token", "chat_template", "clean_up_tokenization_spaces", "eos_token", "is_local", "local_files_only",
    "mask_token", "model_input_names", "model_max_length", "pad_token", "padding_side", "sep_token", "cls_token",
    "tokenizer_class", "truncation_side", "unk_token", "extra_special_tokens", "added_tokens_decoder",
})  # fmt: skip


def _plain(folder: Path) -> Plain | None:
    """The backend straight from ``tokenizer.json``, where transformers would do no more than load it; else None.

    Importing transformers takes longer than tokenising 20,000 rows. It is spared only if the folder names the plain fast
    class, sets nothing that changes the backend, and all its special tokens are in ``tokenizer.json`` as they are.
    """
    files = folder / "tokenizer_config.json", folder / "tokenizer.json"
    if not all(f.is_file() for f in files) or (folder / "config.json").is_file():
        return None
    settings, config = (orjson.loads(f.read_bytes()) for f in files)
    if (
        settings.get("tokenizer_class") not in ("PreTrainedTokenizerFast", "TokenizersBackend")
        or not settings.keys() <= _PLAIN_KEYS
    ):
        return None
    added = {t["content"]: t for t in config.get("added_tokens", [])}
    named = {k: v["content"] if isinstance(v, dict) else v for k, v in settings.items() if k.endswith("_token") and v}
    decoder = settings.get("added_tokens_decoder", {})
    extra = settings.get("extra_special_tokens") or []
    as_they_are = (
        all(isinstance(v, str) and added.get(v, {}).get("special") for v in [*named.values(), *extra])
        and all(added.get(t["content"]) == {"id": int(i), **t} for i, t in decoder.items())
        and config.get("truncation") is None and config.get("padding") is None
        and len(config["model"].get("vocab", ())) <= 100_000
    )  # fmt: skip
    if not as_they_are:
        return None
    from tokenizers import Tokenizer as Backend

    return Plain(Backend.from_file(str(files[1])), config, named.get("bos_token"), named.get("eos_token"))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
