"""Files that are complete or not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name to write to, in a folder that is made; what was written there is called ``path`` once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    yield part
    part.rename(path)


def put(path: Path, data: bytes | str) -> None:
    """Write a file as a whole."""
    with whole(path) as part:
        part.write_bytes(data.encode() if isinstance(data, str) else data)
