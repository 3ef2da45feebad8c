"""Models and tokenizers by folder or hub name: only from files that are here, unless a download is allowed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefdata.errors import ConfigError, first_line


def place(what: str, name: str) -> str:
    """The folder, or else the hub name; ConfigError for a folder that is not there."""
    path = Path(name).expanduser()
    if path.exists():
        return str(path)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise ConfigError(f"no such {what} folder", where=name)
    return name


@contextmanager
def loading(what: str, name: str) -> Iterator[dict[str, Any]]:
    """Options of ``from_pretrained``; whatever a library raises inside becomes a ConfigError."""
    online = os.environ.get("PREFDATA_ONLINE") == "1"
    try:
        yield {"local_files_only": not online, "trust_remote_code": False}
    except ConfigError:
        raise
    except Exception as error:  # OSError, ValueError, KeyError and more for one mistake
        if online or Path(name).expanduser().exists():
            raise ConfigError(f"{what} cannot be loaded: {first_line(error)}", where=name) from error
        gone = f"no such {what} here: neither a folder nor in the local Hugging Face cache"
        raise ConfigError(gone, where=name, hint="Give a folder, or allow the download with --online.") from error
