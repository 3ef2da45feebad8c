"""CSV as record batches of text, with the line of each row and what is wrong with its cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa

from prefdata.errors import InputError
from prefdata.reading import BAD, LINE
from prefdata.schema import check_names
from prefdata.sniffing import looks_like


def read(path: Path, name: str, size: int, take: Callable[[pa.Schema, Iterable[pa.RecordBatch]], object]) -> None:
    """Give ``take`` the batches, of about ``size`` characters each. The whole file is read once by a real CSV reader:
    a quoted line break cannot be told from a row's end in the middle. Raises InputError where quotes are wrong.
    """
    csv.field_size_limit(1 << 30)
    with path.open(encoding="utf-8-sig", newline="", errors="surrogateescape") as file:
        reader = csv.reader(file, delimiter=_delimiter(file), strict=True)
        _, names = next(_rows(reader, name), (1, None))
        if names is None:
            return
        if _damage(names):
            what = f"has a header that is not UTF-8; looks like {looks_like(_bytes(names))}"
            raise InputError(what, where=f"{name}:1", hint="Name its encoding: --encoding ...")
        check_names(names, f"{name}:1")
        schema = pa.schema([(n, pa.string()) for n in names] + [(LINE, pa.int64()), (BAD, pa.string())])
        take(schema, _batches(_rows(reader, name), schema, size))


def _delimiter(file: IO[str]) -> str:
    """The delimiter that gives the header the most cells."""
    cells = {}
    for delimiter in ",;\t|":
        file.seek(0)
        cells[delimiter] = len(next(csv.reader(file, delimiter=delimiter), ()))
    file.seek(0)
    return max(cells, key=lambda d: cells[d])


def _rows(reader: Any, name: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with its first line."""
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            hint = 'A cell with a delimiter, quote or line break stands in quotes, and a quote in it is doubled: "".'
            raise InputError(f"is not valid CSV: {error}", where=f"{name}:{line}", hint=hint) from error
        if cells:
            yield line, cells


def _batches(rows: Iterable[tuple[int, list[str]]], schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    width = len(schema) - 2
    held: list[Sequence[str | int | None]] = []
    size = 0
    for line, cells in rows:
        size += sum(map(len, cells))
        short = ["parse_error", f"{len(cells)} cells, the header has {width}"] if len(cells) != width else []
        if bad := short or _damage(cells):
            held.append([*[None] * width, line, orjson.dumps([*bad, _written(cells)]).decode()])
        else:
            held.append([*cells, line, None])
        if size >= most:
            yield _batch(held, schema)
            held, size = [], 0
    if held:
        yield _batch(held, schema)


def _batch(rows: Sequence[Sequence[str | int | None]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _damage(cells: Sequence[str]) -> list[str]:
    """Reason and detail of cells with bytes that are not UTF-8."""
    text = "".join(cells)
    if text.isascii():
        return []
    try:
        text.encode()
    except UnicodeEncodeError as error:
        bad = ord(text[error.start]) - 0xDC00
        return ["encoding_error", f"not UTF-8 (byte 0x{bad:02x}); looks like {looks_like(_bytes(cells))}"]
    return []


def _bytes(cells: Sequence[str]) -> bytes:
    return "\n".join(cells).encode("utf-8", "surrogateescape")


def _written(cells: Sequence[str]) -> str:
    """A row as CSV text, bytes that are not UTF-8 as ``\\xe9``."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue().removesuffix("\r\n").encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
