"""From what a user names (files, globs, folders, stdin, Python objects) to chunks of fixed size, and their identity."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pyarrow as pa

from prefdata import data_files, folders, hub
from prefdata.cutting import File, Format, Plan, Source, sha256
from prefdata.errors import InputError, did_you_mean
from prefdata.files import whole
from prefdata.schema import check_names
from prefdata.split import MOST, in_order

CHUNK_BYTES = 16 << 20
_T = TypeVar("_T")


def open_source(
    source: Any, work: Path, *, fmt: Format = "auto", config: str | None = None, split: str | None = None,
    limit: int | None = None, chunk_bytes: int = CHUNK_BYTES, encoding: str | None = None,
) -> Source:  # fmt: skip
    """Plan the reading of ``source``: a path, a glob, a list of them, ``-``, ``hf:NAME``, a Dataset or DatasetDict, a
    DataFrame or a list of dicts.

    ``work`` takes copies of what cannot be cut in place (stdin, compressed files, CSV, Python objects). Several splits
    stay apart, ``train`` first; where there is one, or ``split`` names one, it is called ``train``.
    Raises InputError where there is nothing to read.
    """
    plan = Plan(work, chunk_bytes, limit, fmt, encoding)
    out = plan.source
    if isinstance(source, str | os.PathLike):
        source = [source]
    if isinstance(source, list) and source and all(isinstance(s, str | os.PathLike) for s in source):
        for of, (path, name) in _apart(_named([os.fspath(s) for s in source], work, config, split, out)):
            if not name.isprintable():  # bytes that are no text, line ends: no report could show it
                raise InputError("has a name that cannot be written", where=repr(name), hint="Rename the file.")
            plan.add_file(path, name, of)
    else:
        if encoding is not None:
            raise InputError("--encoding is for text files", where="input from Python", hint="Leave it out.")
        _from_python(source, plan, config, split)
    if not out.chunks:
        names = ", ".join(f.name for f in out.files) or "the input"
        raise InputError("no rows", where=names, hint="The file is empty or holds blank lines only.")
    more = f" and {len(out.files) - 3} more" if len(out.files) > 3 else ""
    out.title = ", ".join(f.name for f in out.files[:3]) + more
    return out


def _apart(given: Iterable[tuple[str, _T]]) -> Iterator[tuple[str, _T]]:
    """Split by split, ``train`` first; a single split is called ``train``, which is what trainers ask for."""
    held: dict[str, list[_T]] = {}
    for name, one in given:
        held.setdefault(name, []).append(one)
    if len(held) > MOST:
        raise InputError(f"{len(held)} splits are more than can be kept apart", hint="Choose one: --input-split NAME")
    for name in in_order(held):
        yield from ((name if len(held) > 1 else "train", one) for one in held[name])


def _named(
    names: Sequence[str], work: Path, config: str | None, split: str | None, out: Source
) -> Iterator[tuple[str, tuple[Path, str]]]:
    """Of each file that these names stand for its split, where it lies, and the name shown."""
    for name in names:
        if name == "-" or Path(name).is_file():
            _no_choice(config, split, name)
        if name == "-":
            yield "train", (_stdin(work), "stdin")
        elif name.startswith(hub.PREFIX) and not Path(name).exists():
            folder = hub.fetched(name)
            out.revisions[name] = folder.name
            yield from _folder(folder, name, config, split, out)
        elif Path(name).is_dir():
            yield from _folder(Path(name), name, config, split, out)
        elif Path(name).is_file() or Path(name).is_fifo():
            yield "train", (Path(name), Path(name).name)
        elif any(c in name for c in "*?["):
            found = sorted(p for p in glob.glob(name, recursive=True) if Path(p).is_file())  # noqa: PTH207
            if not found:
                raise InputError("matches no file", where=name)
            _no_choice(config, split, name)
            yield from (("train", (Path(p), Path(p).name)) for p in found)
        else:
            near = Path(name).parent
            known = [p.name for p in near.iterdir()] if near.is_dir() else []
            raise InputError("does not exist", where=name, hint=did_you_mean(Path(name).name, known))


def _stdin(work: Path) -> Path:
    """A copy of what comes in; a resumed run reads the copy of the first one, not what comes in now."""
    held = work / "stdin"
    if not held.exists():
        with whole(held) as part, part.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
    return held


def _folder(
    folder: Path, where: str, config: str | None, split: str | None, out: Source
) -> Iterator[tuple[str, tuple[Path, str]]]:
    found = folders.listing(folder, where, config, split)
    out.left_out |= found.left_out
    for name, paths in found.chosen(split, where).items():
        for path in paths:
            shown = path.relative_to(folder).as_posix()
            if not path.is_file():
                raise InputError("is a link that leads to no file", where=f"{where}/{shown}", hint="Fetch the file.")
            yield name, (path, shown)


def _no_choice(config: str | None, split: str | None, where: str) -> None:
    for option, what, given in (("split", "splits", split), ("config", "configurations", config)):
        if given is not None:
            raise InputError(f"has no {what} to choose from", where=where, hint=f"Leave --input-{option} out.")


def _from_python(source: Any, plan: Plan, config: str | None, split: str | None) -> None:
    """Rows from memory: a list of dicts goes through JSON, a DataFrame and a Dataset through Arrow."""
    kind = f"{type(source).__module__.split('.')[0]}.{type(source).__name__}"
    if kind == "datasets.DatasetDict":
        _no_choice(config, None, "DatasetDict")
        if split is not None:
            data_files.pick(source, split, "DatasetDict", "split")
        given = source.items() if split is None else [(split, source[split])]
        for name, (shown, one) in _apart((data_files.checked(n, "DatasetDict"), (n, d)) for n, d in given if len(d)):
            if plan.left != 0:
                _add_dataset(plan, one, shown, name)
        return
    _no_choice(config, split, "input from Python")
    if kind == "datasets.Dataset":
        _add_dataset(plan, source, "Dataset", "train")
        return
    if kind == "pandas.DataFrame":
        if not source.columns.is_unique:
            twice = source.columns[source.columns.duplicated()][0]
            raise InputError(f"has two columns named {twice!r}", where="DataFrame", hint="Rename one of them.")
        try:
            table = pa.Table.from_pandas(source, preserve_index=False).replace_schema_metadata(None)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # columns of mixed types
            source = source.to_dict("records")
        else:
            _add_table(plan, "DataFrame", table)
            return
    if isinstance(source, str) or not isinstance(source, Iterable):
        hint = "Give a path, a list of dicts, a DataFrame or a Dataset."
        raise InputError(f"cannot read rows from {kind}", hint=hint)
    held = plan.work / "rows.jsonl"
    with held.open("wb") as file:
        for i, row in enumerate(source):
            file.write(_line(row, i) + b"\n")
    plan.fmt = "jsonl"
    plan.add_file(held, "rows.jsonl")


def _line(row: Any, number: int) -> bytes:
    try:
        return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            if "64-bit" in str(error):
                return json.dumps(row, ensure_ascii=False).encode()
        raise InputError(f"row {number} cannot be written as JSON: {error}", where="list") from error


def _add_dataset(plan: Plan, source: Any, name: str, split: str) -> None:
    arrow = source.flatten_indices().data.table if source._indices is not None else source.data.table
    arrow = arrow.replace_schema_metadata(source.features.arrow_schema.metadata)  # names of classes
    _add_table(plan, name, arrow, split)


def _add_table(plan: Plan, name: str, table: pa.Table, split: str = "train") -> None:
    """Plan a table in batches of about a chunk, cut by its size alone (its own chunks do not count)."""
    check_names(table.column_names, name)
    plan.source.files.append(File(name, 0, ""))
    rows = max(1, min(len(table), int(len(table) * plan.chunk_bytes / max(1, table.nbytes))))
    parts = (table.slice(start, rows).combine_chunks() for start in range(0, len(table), rows))
    held = plan.add_batches(table.schema, (batch for part in parts for batch in part.to_batches()))
    digest, size = sha256(held)
    plan.source.files[-1] = File(name, size, digest, split)
