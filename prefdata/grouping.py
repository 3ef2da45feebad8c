"""Rows that belong together though they stand apart (votes on one pair, answers to one prompt): brought together by key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from prefdata.cutting import Source
from prefdata.errors import InputError
from prefdata.pairs import dump
from prefdata.reading import BadRow, Chunk, read
from prefdata.shapes import Reading

ROWS = 2_000_000  # all rows of such a set are held in memory once, as JSON


def group(planned: Source, reading: Reading, work: Path, chunk_bytes: int) -> Source:
    """The same input with the rows of each group in one line of a file in ``work``, in the order of the first of them.

    Rows that stand alone, and lines that are no rows, are groups of one. Raises InputError beyond ``ROWS`` rows.
    """
    groups: dict[object, list[bytes]] = {}
    files: dict[object, int] = {}
    number = 0
    for chunk in planned.chunks:
        block = read(chunk)
        if number + len(block.rows) > ROWS:
            raise InputError(
                f"has more than {ROWS:,} rows that must be read in groups", where=planned.title,
                hint="Cut the input where groups end, or sort it into pairs yourself.",
            )  # fmt: skip
        for row, line in zip(block.rows, block.lines, strict=True):
            key: object = number  # a group of its own
            held: list[Any] = [number, line, row]
            if isinstance(row, BadRow):
                held[2:] = [None, row.fault.reason, row.fault.detail, row.raw]
            elif isinstance(row, dict):
                key = number if (found := reading.key(row)) is None else (planned.files[chunk.file].split, found)
            groups.setdefault(key, []).append(_line(held))
            files.setdefault(key, chunk.file)
            number += 1
    out = replace(planned, chunks=[])
    path = work / "groups.jsonl"
    with path.with_suffix(".part").open("wb") as file:
        start, size, of = 0, 0, 0
        for key, rows in groups.items():
            if size and (size >= chunk_bytes or files[key] != of):
                out.chunks.append(_chunk(planned, len(out.chunks), of, path, start, size))
                start, size = start + size, 0
            of = files[key]
            size += file.write(b"[" + b",".join(rows) + b"]\n")
        out.chunks.append(_chunk(planned, len(out.chunks), of, path, start, size))
    path.with_suffix(".part").rename(path)
    return out


def _chunk(planned: Source, index: int, file: int, path: Path, start: int, size: int) -> Chunk:
    return replace(
        planned.chunks[0],
        index=index,
        file=file,
        path=str(path),
        kind="groups",
        start=start,
        stop=start + size,
        group=0,
    )


def _line(held: list[Any]) -> bytes:
    try:
        return orjson.dumps(held, default=str)
    except TypeError:  # an integer beyond 64 bits
        return dump(held, ordered=False).encode()
