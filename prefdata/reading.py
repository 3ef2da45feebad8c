"""Reading one chunk of the input into rows, in a worker: JSON with exact lines, Arrow batches, Parquet row groups.

JSON is parsed by orjson line by line, never by a column reader, which would change answers in silence.
"""

from __future__ import annotations

import io
import json
import marshal
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prefdata.errors import InputError
from prefdata.json_rows import LONG_NUMBER, BadRow, documents, not_too_deep, parse
from prefdata.pairs import Fault, without_nulls

__all__ = ["BAD", "LINE", "BadRow", "Block", "Chunk", "Group", "read", "values"]

Kind = Literal["lines", "documents", "arrow", "parquet", "groups"]
_LONG = re.compile(LONG_NUMBER.encode())
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
LINE, BAD = "pd$line", "pd$bad"  # columns that a converted table (CSV) carries beside the data


@dataclass(frozen=True)
class Chunk:
    """A piece of the input: bytes ``start:stop`` (JSON), or rows ``start:stop`` of the record batch or row group ``group``."""

    index: int
    file: int
    path: str
    kind: Kind
    start: int
    stop: int
    group: int = 0
    first_line: int = 1


@dataclass(frozen=True)
class Group:
    """Rows that are read together, with their numbers in the whole input, their lines, and which file each stands in."""

    rows: list[dict[str, Any]] | list[BadRow]
    numbers: list[int]
    lines: list[int | None]
    files: list[int]


@dataclass
class Block:
    """The rows of one chunk; ``lines`` are line numbers in the file (None where it has none); ``table`` the same rows of
    a columnar source, whose Arrow types are kept; ``changes`` what was read in another form, and how often.
    """

    rows: list[dict[str, Any] | BadRow | Group]
    lines: list[int | None]
    table: pa.Table | None = None
    changes: dict[str, int] = field(default_factory=dict)

    @cached_property
    def sets(self) -> list[list[str]]:
        """The columns of these rows, each combination once."""
        if self.table is not None:
            return [list(self.table.column_names)]
        return [list(s) for s in dict.fromkeys(map(tuple, self.dicts))]

    @cached_property
    def names(self) -> list[str]:
        """The columns of these rows, in the order of their appearance."""
        return list(dict.fromkeys(name for some in self.sets for name in some))

    @property
    def dicts(self) -> list[dict[str, Any]]:
        """The readable rows, those inside of groups too."""
        inside = (r.rows for r in self.rows if type(r) is Group)
        return [r for r in chain(self.rows, *inside) if type(r) is dict]


def read(chunk: Chunk) -> Block:
    """The rows of a chunk."""
    if chunk.kind == "parquet":
        return _from_table(_parquet_rows(chunk))
    if chunk.kind == "arrow":
        with pa.memory_map(chunk.path) as source:
            table = pa.Table.from_batches([pa.ipc.open_file(source).get_batch(chunk.group)])
        return _from_table(table.slice(chunk.start, chunk.stop - chunk.start))
    if chunk.kind == "groups":
        return _groups(_bytes(chunk))
    numbers, texts = texts_of(chunk)
    rows: list[dict[str, Any] | BadRow | Group] = []
    lines: list[int | None] = []
    held: list[bytes] = []
    for number, text in zip(numbers, texts, strict=True):
        try:
            row = orjson.loads(text)
        except orjson.JSONDecodeError:
            row = None
        if type(row) is not dict and (row := parse(text.rstrip(b"\n"))) is None:
            continue
        rows.append(row)
        lines.append(number)
        held.append(text)
    _look_closer(rows, held)
    return Block(rows, lines)


def _look_closer(rows: list[Any], texts: list[bytes]) -> None:
    """Mend what the fast parser lets through: integers beyond 64 bits, of which it makes floats, and too many levels."""
    kinds = set(map(type, chain.from_iterable(r.values() for r in rows if type(r) is dict)))
    if kinds & {list, dict}:
        for i, row in enumerate(rows):
            if type(row) is dict:
                rows[i] = not_too_deep(texts[i], row)
    if kinds & {list, dict, float}:
        for i in _long_numbers(texts):
            if type(rows[i]) is dict:
                rows[i] = json.loads(texts[i])


def texts_of(chunk: Chunk) -> tuple[Sequence[int], list[bytes]]:
    """The JSON texts of a chunk of lines or documents, and their lines; blank ones among them."""
    if chunk.kind == "lines":
        size = chunk.stop - chunk.start
        with Path(chunk.path).open("rb", buffering=1 << 20) as file:
            file.seek(chunk.start)
            # It ends behind the first line that passes the hint: a chunk ends where a line does.
            texts = file.readlines(size - 1) if size > 1 else [file.read(size)]
        if chunk.start == 0 and texts:
            texts[0] = texts[0].removeprefix(b"\xef\xbb\xbf")
        return range(chunk.first_line, chunk.first_line + len(texts)), texts
    found = list(documents(_bytes(chunk), chunk.first_line))
    return [n for n, _ in found], [text for _, text in found]


def _bytes(chunk: Chunk) -> bytes:
    with Path(chunk.path).open("rb") as file:
        file.seek(chunk.start)
        return file.read(chunk.stop - chunk.start)


def _groups(data: bytes) -> Block:
    """Lists of ``[number, line, file, row]`` or ``[number, line, file, None, reason, detail, raw]``, as ``grouping`` wrote them."""
    held: list[dict[str, Any] | BadRow | Group] = []
    source = io.BytesIO(data)
    while source.tell() < len(data):
        members = [marshal.loads(m) for m in marshal.load(source)]
        rows = [m[3] if len(m) == 4 else BadRow(Fault(m[4], m[5]), m[6]) for m in members]
        held.append(Group(rows, *([m[k] for m in members] for k in range(3))))
    return Block(held, [g.lines[0] for g in held if isinstance(g, Group)])


def _long_numbers(texts: Sequence[bytes]) -> list[int]:
    """The texts in which 19 digits stand in a row; they hold two of every ninth byte, and all between these two, so that most
    of the bytes need not be looked at.
    """
    data = b"".join(texts)
    code = np.frombuffer(data, np.uint8)
    digit = code[::9] - np.uint8(48) < 10
    at = np.flatnonzero(digit[:-1] & digit[1:]) * 9
    for step in (4, 2, 6, 1, 3, 5, 7, 8):
        at = at[code[at + step] - np.uint8(48) < 10]
    found = [i for i in at.tolist() if _LONG.search(data, max(0, i - 9), i + 28)]
    ends = np.cumsum([len(t) for t in texts])
    return sorted(set(np.searchsorted(ends, found, "right").tolist()))


def _with_all_digits(values: list[Any], texts: pa.Array) -> list[Any]:
    """The values of JSON texts, read again where the fast parser may have made a float of an integer beyond 64 bits."""
    for i in np.flatnonzero(pc.match_substring_regex(texts, LONG_NUMBER).fill_null(False)).tolist():
        try:
            values[i] = json.loads(texts[i].as_py())
        except RecursionError:
            raise InputError("a JSON column holds a value nested too deeply") from None
    return values


def _parquet_rows(chunk: Chunk) -> pa.Table:
    try:
        table = pq.ParquetFile(chunk.path).read_row_group(chunk.group)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"cannot be read as Parquet: {error}", where=chunk.path) from error
    return table.slice(chunk.start, chunk.stop - chunk.start)


def _from_table(table: pa.Table) -> Block:
    lines: list[int | None] = table.column(LINE).to_pylist() if LINE in table.column_names else [None] * len(table)
    bad = table.column(BAD).to_pylist() if BAD in table.column_names else [None] * len(table)
    table, changes = _by_name(table.drop_columns([c for c in (LINE, BAD) if c in table.column_names]))
    table = _decoded(table)
    names, columns = table.column_names, [values(column) for column in table.columns]
    rows: list[Any] = [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]
    for i, wrong in enumerate(bad):
        if wrong is not None:
            reason, detail, raw = orjson.loads(wrong)
            rows[i] = BadRow(Fault(reason, detail), raw)
    return Block(rows, lines, table, changes)


def _by_name(table: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """Classes of a Hugging Face set by their names: the numbers mean nothing without its metadata."""
    changes = {}
    features = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    for name, feature in features.items():
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and name in table.column_names:
            at, names = table.column_names.index(name), feature["names"]
            numbers = table.column(at).combine_chunks()
            known = pc.if_else(pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, len(names))), numbers, None)
            table = table.set_column(at, name, pa.array(names, pa.string()).take(known))
            changes[f"column {name!r}: class numbers to class names"] = len(table)
    return table.replace_schema_metadata(None), changes


def _decoded(table: pa.Table) -> pa.Table:
    """The columns as the values they stand for: dictionaries and views are ways to store them."""
    for i, (name, kind) in enumerate(zip(table.column_names, table.schema.types, strict=True)):
        plain = kind.value_type if pa.types.is_dictionary(kind) else _VIEWS.get(kind)
        if plain is not None:
            table = table.set_column(i, name, table.column(i).cast(plain))
        elif pa.types.is_run_end_encoded(kind):
            table = table.set_column(i, name, pc.run_end_decode(table.column(i)))
    return table


def values(column: pa.ChunkedArray) -> list[Any]:
    """Python values of an Arrow column: JSON columns decoded, null padding of structs taken off."""
    kind = column.type
    if isinstance(kind, pa.JsonType):
        texts = column.cast(pa.string())
        return _with_all_digits([None if v is None else orjson.loads(v) for v in texts.to_pylist()], texts)
    out: list[Any] = column.to_pylist()
    return [without_nulls(v) for v in out] if pa.types.is_nested(kind) else out
