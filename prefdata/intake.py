"""The way in, the same for every command: open what the user named, and find how its rows are read."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from prefdata.cutting import Source
from prefdata.errors import InputError
from prefdata.making import Form, read_heads
from prefdata.pairs import dump
from prefdata.reading import BadRow, Chunk, read
from prefdata.result import Options
from prefdata.shapes import Asked, Reading, find_reading
from prefdata.sources import open_source
from prefdata.stage import Amount

_HEAD, _LONG = 1000, 1 << 23  # rows that are looked at; in bytes, what says that there may be more


def inputs_of(source: Any) -> list[Path]:
    """The paths among what the user named, and the files that are meant by globs."""
    given = source if isinstance(source, list) else [source]
    named = [os.fspath(s) for s in given if isinstance(s, str | os.PathLike) and s != "-"]
    return [Path(p) for name in named for p in (glob.glob(name, recursive=True) or [name])]  # noqa: PTH207


def opened(source: Any, work: Path, options: Options) -> Source:
    """The input, planned as the options say; see ``sources.open_source``."""
    return open_source(
        source, work, fmt=options.input_format, config=options.input_config, split=options.input_split,
        limit=options.limit, chunk_bytes=options.chunk_bytes, encoding=options.encoding,
    )  # fmt: skip


def detect(planned: Source, options: Options) -> tuple[list[dict[str, Any]], Reading, Form]:
    """The first rows, and what they say: in which columns the pairs are, and whether the set is text or chat."""
    head = planned.head(_HEAD)
    if not head:
        first = next((r for r in read(planned.chunks[0]).rows if isinstance(r, BadRow)), None)
        raise InputError(f"no readable row ({first.fault.detail})" if first else "no rows", where=planned.title)
    names = list(dict.fromkeys(str(n) for row in head for n in row))
    asked = Asked(options.columns, options.shape, options.labels, options.pairs, options.ties)
    reading = find_reading(names, asked, head, planned.title)
    chat = options.format in ("chat", "implicit") or read_heads(head, reading).needs_chat
    return head, reading, "chat" if chat else "text"


def expected(planned: Source, head: Sequence[dict[str, Any]], reading: Reading, limit: int | None = None) -> Amount:
    """About how much there is to measure, told by the first rows."""
    sizes = [len(dump(row).encode()) for row in head]
    written = [c for c in planned.chunks if c.kind in ("lines", "documents")]
    rows = sum(c.stop - c.start for c in planned.chunks if c.kind in ("arrow", "parquet"))
    if written and len(head) < _HEAD and sum(sizes) < _LONG:  # there are no more
        rows = len(head)
    elif written:
        lines = _lines(written[0]) if written[0].kind == "lines" else sizes
        rows += round(sum(c.stop - c.start for c in written) * len(lines) / sum(lines))
    rows = rows if limit is None else min(rows, limit)
    made = read_heads(head, reading)
    pairs = 1.0 if made.needs_chat else sum(fault is None for fault in made.faults) / len(head)
    texts = sum(sizes) if made.needs_chat else sum(len(t) for side in made.texts for t in side if t)
    return Amount(round(rows * pairs), round(rows * texts / len(head)))


def _lines(chunk: Chunk) -> list[int]:
    """The lengths of the first lines of a chunk, in bytes."""
    with Path(chunk.path).open("rb") as file:
        file.seek(chunk.start)
        return [len(line) for line in islice(file, _HEAD)]
