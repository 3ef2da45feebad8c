"""Where ``convert`` writes: refusing bad places, and putting the whole output there at last, or nothing."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa

from prefdata import output
from prefdata.cutting import suffix
from prefdata.errors import ConfigError, OutputError
from prefdata.line_forms import LINES

NEW, INFO, SKIPPED = "new", "dataset_info.json", "skipped.jsonl"


@contextmanager
def place(out: Path, to: str, overwrite: bool, inputs: Sequence[Path]) -> Iterator[Path]:
    """A work folder, after a check of where the output shall be: what is laid in it as ``new`` goes there at last."""
    if str(out) == "-":
        if to not in LINES:
            raise ConfigError(f"--to {to} writes a folder, not to stdout", hint="Name one: prefdata convert IN OUT")
        with tempfile.TemporaryDirectory(prefix="prefdata-") as held:
            yield Path(held)
        return
    with output.writing(out, "Nothing was written."):
        if to in LINES:
            if suffix(out) not in (".jsonl", ".ndjson"):
                hint = f"--to {to} writes one: out.jsonl"
                raise OutputError("is no name of a file of JSON lines", where=str(out), hint=hint)
            _check_file(out, overwrite, inputs)
            _check_file(skipped(out), overwrite, inputs)
            out.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as held:
                yield Path(held)
            return
        work = output.prepare(out, overwrite=overwrite, resume=False, inputs=inputs)
        try:
            _check_file(skipped(out), overwrite, inputs)
            if to == "llamafactory" and (out / INFO).exists() and not _is_ours(out / INFO):
                raise OutputError("tells of other sets too", where=str(out / INFO), hint="Choose another folder.")
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
            if not any(out.iterdir()):
                out.rmdir()


def _check_file(out: Path, overwrite: bool, inputs: Sequence[Path]) -> None:
    """Raise OutputError for a file that must not be written."""
    if out.is_symlink() or out.is_dir():
        raise OutputError(f"is a {'link' if out.is_symlink() else 'folder'}", where=str(out), hint="Choose a new file.")
    target = out.resolve()
    for given in inputs:
        if given.exists() and (given.resolve() == target or (out.exists() and given.samefile(out))):
            raise OutputError("is the input, which is never overwritten", where=str(out), hint="Choose a new file.")
        if given.is_dir() and given.resolve() in target.parents:  # a later run would read it as input
            raise OutputError(f"lies inside the input {given}", where=str(out), hint="Choose a file outside.")
    if out.exists() and not overwrite:
        raise OutputError("exists already", where=str(out), hint="--overwrite replaces it.")


def _is_ours(info: Path) -> bool:
    try:
        found = json.loads(info.read_bytes())
    except ValueError:
        return False
    return isinstance(found, dict) and all(name.startswith("prefs") for name in found)


def skipped(out: Path) -> Path:
    """The file that lists what was left out of ``out``."""
    out = out if out.name else out.resolve()
    return out.with_name(f"{out.name}.{SKIPPED}")


@contextmanager
def sink(out: Path, new: Path) -> Iterator[IO[bytes]]:
    """Where lines go: stdout, or a file that is packed as its name says."""
    if str(out) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        packing = {".gz": "gzip", ".zst": "zstd"}.get(out.suffix.lower())
        with pa.output_stream(str(new), compression=packing) as file:
            yield file


def publish(out: Path, work: Path, to: str) -> None:
    """Put what was written in its place: files by one rename, a folder's data before what tells of them."""
    if str(out) == "-":
        return
    if to in LINES:
        (work / NEW).replace(out)
    else:
        output.clear(out)
        if (out / INFO).exists() and _is_ours(out / INFO):
            (out / INFO).unlink()
        for path in sorted((work / NEW).iterdir(), key=Path.is_file):
            path.rename(out / path.name)
    if (work / SKIPPED).exists():
        (work / SKIPPED).replace(skipped(out))
    else:
        skipped(out).unlink(missing_ok=True)
