"""CSV as record batches of text, with the line of each row and what is wrong with its cells."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from prefdata.errors import InputError
from prefdata.reading import BAD, LINE, guess_encoding
from prefdata.schema import check_names


def read(path: Path, name: str, size: int, take: Callable[[pa.Schema, Iterable[pa.RecordBatch]], None]) -> None:
    """Give ``take`` the batches, of about ``size`` characters each. The whole file is read once by a real CSV reader:
    a quoted line break cannot be told from a row's end in the middle.
    """
    csv.field_size_limit(1 << 30)
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            sample = file.read(1 << 16).split("\n", 1)[0]
            file.seek(0)
            delimiter = max(",;\t|", key=sample.count)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            names = next(reader, None)
            if names is None:
                return
            check_names(names, f"{name}:1")
            schema = pa.schema([(n, pa.string()) for n in names] + [(LINE, pa.int64()), (BAD, pa.string())])
            take(schema, _batches(reader, names, schema, size))
        except UnicodeDecodeError as error:
            looks = guess_encoding(path.read_bytes()[: 1 << 16])
            what = f"is not UTF-8; looks like {looks}"
            raise InputError(what, where=name, hint="Convert it: iconv -f ... -t UTF-8") from error
        except csv.Error as error:
            raise InputError(f"is not valid CSV: {error}", where=f"{name}:{reader.line_num}") from error


def _batches(reader: Any, names: list[str], schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    size, line = 0, reader.line_num + 1
    for cells in reader:
        if cells:
            row: dict[str, Any] = dict(zip(names, cells, strict=False))
            if len(cells) != len(names):
                row[BAD] = f"{len(cells)} cells, the header has {len(names)}"
            rows.append({**row, LINE: line})
            size += sum(map(len, cells))
        line = reader.line_num + 1
        if size >= most:
            yield pa.RecordBatch.from_pylist(rows, schema)
            rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema)
