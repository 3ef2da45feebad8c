"""Rows that belong together though they stand apart (votes on one pair, answers to one prompt): brought together by key."""

from __future__ import annotations

import marshal
import mmap
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from prefdata.cutting import Source
from prefdata.decisions import Finding
from prefdata.errors import InputError
from prefdata.files import whole
from prefdata.pairs import dump
from prefdata.reading import BadRow, Chunk, read
from prefdata.shapes import Reading

ROWS = 2_000_000  # of which keys and places are held in memory: about 200 bytes a row


def group(planned: Source, reading: Reading, work: Path, chunk_bytes: int) -> Source:
    """The same input with the rows of each group side by side in a file in ``work``, in the order of the first of them.

    Rows that stand alone, and lines that are no rows, are groups of one; rows of different splits share none. A group
    belongs to the file of its first row. Raises InputError beyond ``ROWS`` rows.
    """
    changes: Counter[str] = Counter()
    first: dict[bytes, int] = {}  # of each key its first row
    leaders, files, ends = array("q"), array("q"), array("q", [0])
    loose = work / "rows.marshal"
    with loose.open("wb") as file:
        for chunk in planned.chunks:
            block = read(chunk)
            changes.update(block.changes)
            if len(leaders) + len(block.rows) > ROWS:
                raise InputError(
                    f"has more than {ROWS:,} rows that must be read in groups", where=planned.title,
                    hint="Cut the input where groups end, or sort it into pairs yourself.",
                )  # fmt: skip
            split = planned.files[chunk.file].split
            for row, line in zip(block.rows, block.lines, strict=True):
                number = len(leaders)
                key = reading.key(row) if isinstance(row, dict) else None
                digest = None if key is None else xxhash.xxh3_128_digest(f"{split}\0{key}".encode())
                leaders.append(number if digest is None else first.setdefault(digest, number))
                files.append(chunk.file)
                ends.append(ends[-1] + file.write(_packed([number, line, chunk.file], row, changes)))
    if not leaders:
        return planned
    order = np.argsort(np.frombuffer(leaders, np.int64), kind="stable").tolist()
    out = replace(planned, chunks=[], changes=dict(changes))
    path = work / "groups.marshal"
    with loose.open("rb") as rows, whole(path) as part, part.open("wb") as file:
        data = mmap.mmap(rows.fileno(), 0, access=mmap.ACCESS_READ)
        start, size, of = 0, 0, 0
        for leader, members in groupby(order, leaders.__getitem__):
            if size and (size >= chunk_bytes or files[leader] != of):
                out.chunks.append(_chunk(len(out.chunks), of, path, start, size))
                start, size = start + size, 0
            of = files[leader]
            size += file.write(marshal.dumps([data[ends[i] : ends[i + 1]] for i in members]))
        out.chunks.append(_chunk(len(out.chunks), of, path, start, size))
        data.close()
    loose.unlink()
    return out


def kto_findings(tallies: Iterable[Mapping[str, int]]) -> list[Finding]:
    """What rows in KTO form hold and how many pairs they give, out of what was counted in each chunk."""
    got: Counter[str] = Counter()
    for tally in tallies:
        got.update(tally)
    words = ("desirable", "undesirable", "unlabelled")
    rows = sum(got[w] for w in words)
    if not rows:
        return []
    held = ", ".join(f"{got[w]:,} {w}" for w in words if got[w] or w != "unlabelled")
    both = f"prompts with both labels: {got['paired_prompts']:,} of {got['prompts']:,}, pairs made: {got['pairs']:,}"
    text = f"{rows:,} rows in KTO form ({held}); {both}"
    return [
        Finding("kto_rows", rows, rows, text),
        *(Finding(f"{w}_rows", got[w], rows, f"KTO rows that are {w}") for w in words),
        Finding("repeated_rows", got["repeated"], rows, "KTO rows that repeat another one in all columns"),
        Finding("prompts_with_both_labels", got["paired_prompts"], got["prompts"], "prompts whose KTO rows make pairs"),
    ]


def _chunk(index: int, file: int, path: Path, start: int, size: int) -> Chunk:
    return Chunk(index, file, str(path), "groups", start, start + size)


def _packed(place: list[Any], row: Any, changes: Counter[str]) -> bytes:
    """A row and its place as bytes that give back the same values; JSON would lose NaN."""
    if isinstance(row, BadRow):
        return marshal.dumps([*place, None, row.fault.reason, row.fault.detail, row.raw])
    try:
        return marshal.dumps([*place, row])
    except ValueError:  # a date, a decimal number: values that a column store has, and JSON has not
        return marshal.dumps([*place, {name: _plain(name, value, changes) for name, value in row.items()}])


def _plain(name: str, value: Any, changes: Counter[str]) -> Any:
    try:
        marshal.dumps(value)
    except ValueError:
        changes[f"column {name!r} holds values of the type {type(value).__name__}, which are written as text"] += 1
        return dump(value).strip('"')
    return value
