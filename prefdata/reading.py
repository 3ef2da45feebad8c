"""Reading one chunk of the input into rows, in a worker: JSON with exact lines, Arrow batches, Parquet row groups.

JSON is parsed by orjson line by line, never by a column reader, which would change answers in silence.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from prefdata.errors import InputError
from prefdata.pairs import Fault, kind_of, without_nulls

Kind = Literal["lines", "documents", "arrow", "parquet"]
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
class BadRow:
    """A line that is not a row."""

    fault: Fault
    raw: str


@dataclass
class Block:
    """The rows of one chunk; ``lines`` are line numbers in the file (None where it has none); ``table`` the same rows of
    a columnar source, whose Arrow types are kept; ``texts`` the JSON of each row.
    """

    rows: list[dict[str, Any] | BadRow]
    lines: list[int | None]
    table: pa.Table | None = None
    texts: list[bytes] | None = None


def read(chunk: Chunk) -> Block:
    """The rows of a chunk."""
    if chunk.kind == "parquet":
        return _from_table(_parquet_rows(chunk))
    if chunk.kind == "arrow":
        with pa.memory_map(chunk.path) as source:
            table = pa.Table.from_batches([pa.ipc.open_file(source).get_batch(chunk.group)])
        return _from_table(table.slice(chunk.start, chunk.stop - chunk.start))
    with Path(chunk.path).open("rb") as file:
        file.seek(chunk.start)
        data = file.read(chunk.stop - chunk.start)
    if chunk.start == 0:
        data = data.removeprefix(b"\xef\xbb\xbf")
    rows: list[dict[str, Any] | BadRow] = []
    lines: list[int | None] = []
    texts: list[bytes] = []
    if chunk.kind == "documents":
        line, last = chunk.first_line, 0
        for start, stop in spans(data):  # whole objects: the planner cut between them
            line += data.count(b"\n", last, start)
            last = start
            texts.append(data[start:stop])
            rows.append(parse(texts[-1]))
            lines.append(line)
        return Block(rows, lines, texts=texts)
    loads = orjson.loads
    for number, text in enumerate(data.split(b"\n"), chunk.first_line):
        try:
            row = loads(text)
        except orjson.JSONDecodeError:
            if not text.strip():
                continue
            row = parse(text)
        if type(row) is not dict:
            row = row if isinstance(row, BadRow) else _not_a_row(row, text)
        rows.append(row)
        lines.append(number)
        texts.append(text)
    return Block(rows, lines, texts=texts)


def parse(text: bytes) -> dict[str, Any] | BadRow:
    """One JSON object, or what is wrong with it. Falls back to the stdlib for NaN and lone surrogates."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as first:
        try:
            decoded = text.decode()
        except UnicodeDecodeError as error:
            bad = text[error.start : error.start + 1].hex()
            shown = text.decode("utf-8", "backslashreplace")
            return BadRow(
                Fault(
                    "encoding_error", f"not UTF-8 (byte 0x{bad} at {error.start}); looks like {guess_encoding(text)}"
                ),
                shown,
            )
        try:
            value = json.loads(decoded)
        except json.JSONDecodeError as error:
            what = "more than one value on the line" if error.msg == "Extra data" else error.msg or str(first)
            return BadRow(
                Fault("parse_error", f"not valid JSON at column {error.colno}: {what}; begins {decoded[:40]!r}"),
                decoded,
            )
        except RecursionError:
            return BadRow(Fault("parse_error", "nested too deeply"), decoded)
        if isinstance(value, dict) and _has_surrogate(value):
            return BadRow(Fault("encoding_error", "holds half of a surrogate pair"), decoded)
    return value if isinstance(value, dict) else _not_a_row(value, text)


def _not_a_row(value: Any, text: bytes) -> BadRow:
    return BadRow(Fault("parse_error", f"is {kind_of(value)}, not an object"), text.decode("utf-8", "backslashreplace"))


def _has_surrogate(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def guess_encoding(data: bytes) -> str:
    """A name for people: the first encoding, of those seen in such files, that decodes the bytes."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "UTF-16"
    for name in ("gb18030", "shift_jis"):
        try:
            decoded = data.decode(name)
        except UnicodeDecodeError:
            continue
        if sum("\u4e00" <= c <= "\u9fff" for c in decoded) * 4 > sum(b > 127 for b in data):
            return {"gb18030": "GBK/GB18030", "shift_jis": "Shift-JIS"}[name]
    return "Latin-1/Windows-1252"


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


def spans(data: bytes | mmap.mmap, start: int = 0, depth: int = 0) -> Iterator[tuple[int, int]]:
    """Byte ranges of the objects ``depth`` brackets inside of ``data`` (0: objects one after the other).

    Raises EOFError where the data end inside of one.
    """
    level, opened = 0, 0
    for match in _TOKEN.finditer(data, start):
        mark = match.group()
        if mark in (b"{", b"["):
            if level == depth:
                opened = match.start()
            level += 1
        elif mark in (b"}", b"]"):
            level -= 1
            if level == depth:
                yield opened, match.end()
            if level < depth:
                return
    if level:
        raise EOFError


def _parquet_rows(chunk: Chunk) -> pa.Table:
    try:
        table = pq.ParquetFile(chunk.path).read_row_group(chunk.group)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"cannot be read as Parquet: {error}", where=chunk.path) from error
    return table.slice(chunk.start, chunk.stop - chunk.start)


def _from_table(table: pa.Table) -> Block:
    lines: list[int | None] = table.column(LINE).to_pylist() if LINE in table.column_names else [None] * len(table)
    bad = table.column(BAD).to_pylist() if BAD in table.column_names else [None] * len(table)
    table = table.drop_columns([c for c in (LINE, BAD) if c in table.column_names])
    columns = {name: values(table.column(name)) for name in table.column_names}
    rows: list[dict[str, Any] | BadRow] = []
    for i, wrong in enumerate(bad):
        row = {name: column[i] for name, column in columns.items()}
        rows.append(row if wrong is None else BadRow(Fault("parse_error", wrong), json.dumps(row, ensure_ascii=False)))
    return Block(rows, lines, table)


def values(column: pa.ChunkedArray) -> list[Any]:
    """Python values of an Arrow column: JSON columns decoded, null padding of structs taken off."""
    kind = column.type
    if isinstance(kind, pa.JsonType):
        return [None if v is None else orjson.loads(v) for v in column.cast(pa.string()).to_pylist()]
    out: list[Any] = column.to_pylist()
    return [without_nulls(v) for v in out] if pa.types.is_nested(kind) else out
