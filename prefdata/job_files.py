"""What lies in the folder of a job: JSON that may be missing or half written, and a manifest's content."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prefdata.output import MANIFEST


def held_in(path: Path) -> dict[str, Any]:
    """The JSON object of a file; an empty one where there is none that can be read."""
    try:
        held = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def content(folder: Path) -> dict[str, Any]:
    """The manifest of a cleaned folder without what may differ between two runs of the same data."""
    return {k: v for k, v in held_in(folder / MANIFEST).items() if k != "run"}


def without_run(manifest: bytes) -> dict[str, Any]:
    """A manifest as ``content`` gives it, of its bytes."""
    return {k: v for k, v in json.loads(manifest).items() if k != "run"}


def texts(value: Any) -> Iterator[str]:
    """Every text in a configuration, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, held in value.items():
            yield str(key)
            yield from texts(held)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from texts(held)
