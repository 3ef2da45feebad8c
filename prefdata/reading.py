"""Reading one chunk of the input into rows, in a worker: JSON with exact lines, Arrow batches, Parquet row groups.

JSON is parsed by orjson line by line, never by a column reader, which would change answers in silence.
"""

from __future__ import annotations

import bisect
import json
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prefdata.errors import InputError
from prefdata.pairs import Fault, kind_of, without_nulls

Kind = Literal["lines", "documents", "arrow", "parquet"]
LONG_NUMBER = "[0-9]{19}"  # may be an integer beyond 64 bits
_LONG = re.compile(LONG_NUMBER.encode())
DEPTH = 250  # levels of lists and objects: about as many as can be written again
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
    a columnar source, whose Arrow types are kept; ``changes`` what was read in another form, and how often.
    """

    rows: list[dict[str, Any] | BadRow]
    lines: list[int | None]
    table: pa.Table | None = None
    changes: dict[str, int] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The columns of these rows, in the order of their appearance."""
        if self.table is not None:
            return list(self.table.column_names)
        keys = dict.fromkeys(tuple(r) for r in self.rows if type(r) is dict)
        return list(dict.fromkeys(name for some in keys for name in some))


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
    pieces = _documents(data, chunk.first_line) if chunk.kind == "documents" else _lines(data, chunk.first_line)
    rows: list[dict[str, Any] | BadRow] = []
    lines: list[int | None] = []
    ends: list[int] = []
    texts: list[bytes] = []
    for number, end, text in pieces:
        row = parse(text)
        if row is not None:
            rows.append(row)
            lines.append(number)
            ends.append(end)
            texts.append(text)
    for at in _long_numbers(data):  # of which the fast parser may have made floats
        i = bisect.bisect_right(ends, at)
        if i < len(rows) and isinstance(rows[i], dict):
            rows[i] = json.loads(texts[i])
    return Block(rows, lines)


def _long_numbers(data: bytes) -> list[int]:
    """Where 19 digits stand in a row; they hold two of every ninth byte, so that most of the data need not be looked at."""
    digit = np.frombuffer(data, np.uint8)[::9] - np.uint8(48) < 10
    samples = (np.flatnonzero(digit[:-1] & digit[1:]) * 9).tolist()
    return [at for at in samples if _LONG.search(data, max(0, at - 9), at + 28)]


def _lines(data: bytes, first: int) -> Iterator[tuple[int, int, bytes]]:
    end = -1
    for number, text in enumerate(data.split(b"\n"), first):
        end += len(text) + 1
        yield number, end, text


def _documents(data: bytes, line: int) -> Iterator[tuple[int, int, bytes]]:
    """Whole objects, since the planner cut between them; and each line of what stands between them."""
    last = 0
    for start, stop, row in spans(data):
        line += data.count(b"\n", last, start)
        last = start
        if row:
            yield line, stop, data[start:stop]
        else:
            yield from ((n, stop, text.strip(_BETWEEN)) for n, text in enumerate(data[start:stop].split(b"\n"), line))


def _with_all_digits(values: list[Any], texts: pa.Array) -> list[Any]:
    """The values of JSON texts, read again where the fast parser may have made a float of an integer beyond 64 bits."""
    for i in np.flatnonzero(pc.match_substring_regex(texts, LONG_NUMBER).fill_null(False)).tolist():
        try:
            values[i] = json.loads(texts[i].as_py())
        except RecursionError:
            raise InputError("a JSON column holds a value nested too deeply") from None
    return values


def parse(text: bytes) -> dict[str, Any] | BadRow | None:
    """One JSON object, or what is wrong with it; None for nothing. Falls back to the stdlib for NaN and lone surrogates."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as first:
        if not text.strip():
            return None
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
        except (RecursionError, ValueError) as error:  # or a number of more than 4,300 digits
            why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            return BadRow(Fault("parse_error", why), decoded)
        if isinstance(value, dict) and not _too_deep(value) and _has_surrogate(value):
            return BadRow(Fault("encoding_error", "holds half of a surrogate pair"), decoded)
    if isinstance(value, dict):
        if text.count(b"[") + text.count(b"{") > DEPTH and _too_deep(value):
            return BadRow(Fault("parse_error", f"nested too deeply (over {DEPTH} levels)"), text.decode())
        return value
    return BadRow(Fault("parse_error", f"is {kind_of(value)}, not an object"), text.decode("utf-8", "backslashreplace"))


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH):
        inner = (v for x in level for v in (x.values() if isinstance(x, dict) else x))
        level = [v for v in inner if isinstance(v, dict | list)]
    return bool(level)


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
_BETWEEN = b" \t\r\n,"


def spans(data: bytes | mmap.mmap, start: int = 0, depth: int = 0) -> Iterator[tuple[int, int, bool]]:
    """Byte ranges of the objects ``depth`` brackets inside of ``data`` (0: objects one after the other), marked True, and
    of what else than commas and white space stands between them, marked False.

    Raises EOFError where the data end inside of one.
    """
    level, opened, last = 0, 0, start
    for match in _TOKEN.finditer(data, start):
        mark = match.group()
        if mark in (b"{", b"["):
            if level == depth:
                opened = match.start()
                yield from _between(data, last, opened)
            level += 1
            if level == depth:
                last = match.end()
        elif mark in (b"}", b"]"):
            level -= 1
            if level == depth:
                last = match.end()
                yield opened, last, True
            elif level < depth and depth:
                yield from _between(data, last, match.start())
                return
            level = max(level, 0)
    if level:
        raise EOFError
    yield from _between(data, last, len(data))


def _between(data: bytes | mmap.mmap, start: int, stop: int) -> Iterator[tuple[int, int, bool]]:
    seen = data[start:stop].strip(_BETWEEN)
    if seen:
        at = data.find(seen, start)
        yield at, at + len(seen), False


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
    columns = {name: values(table.column(name)) for name in table.column_names}
    rows: list[dict[str, Any] | BadRow] = []
    for i, wrong in enumerate(bad):
        row = {name: column[i] for name, column in columns.items()}
        rows.append(row if wrong is None else BadRow(Fault("parse_error", wrong), json.dumps(row, ensure_ascii=False)))
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


def values(column: pa.ChunkedArray) -> list[Any]:
    """Python values of an Arrow column: JSON columns decoded, null padding of structs taken off."""
    kind = column.type
    if isinstance(kind, pa.JsonType):
        texts = column.cast(pa.string())
        return _with_all_digits([None if v is None else orjson.loads(v) for v in texts.to_pylist()], texts)
    out: list[Any] = column.to_pylist()
    return [without_nulls(v) for v in out] if pa.types.is_nested(kind) else out
