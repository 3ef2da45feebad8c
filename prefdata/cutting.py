"""Cutting one file into chunks, at places that depend on its bytes alone: never on workers, engine or limits."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import mmap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from prefdata import csv_files, sniffing
from prefdata.errors import InputError
from prefdata.files import whole
from prefdata.json_rows import is_lines, list_of_key, next_visible, refuse_double_keys, spans
from prefdata.reading import Chunk, Kind, read, texts_of
from prefdata.schema import check_names

Format = Literal["auto", "jsonl", "json", "csv", "parquet", "hf"]
SUFFIXES = {".jsonl": "json", ".json": "json", ".ndjson": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
_BLOCK = 1 << 24
_HEAD = 1 << 24  # bytes that are looked at for detection, at least those of one chunk
_ANSWERS = ("chosen", "rejected", "response", "output")  # parts of names by which one object alone is known as a row
_ASKED = ("prompt", "question", "instruction", "query")


@dataclass(frozen=True)
class File:
    """An input file: the name shown, its size and sha256 (of the bytes as given, so compressed if it is), its split."""

    name: str
    bytes: int
    sha256: str
    split: str = "train"


@dataclass
class Source:
    """The input, planned: its files and chunks, in the order of the rows."""

    files: list[File] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    title: str = ""
    left_out: dict[str, str] = field(default_factory=dict)  # files of a folder that are not read, and why
    revisions: dict[str, str] = field(default_factory=dict)  # names of the Hub, and the commit that was read
    changes: dict[str, int] = field(default_factory=dict)  # what was read in another form, before chunks were read

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits of the files, in the order of the rows."""
        return tuple(dict.fromkeys(f.split for f in self.files))

    def fetched(self) -> dict[str, dict[str, str]]:
        """``revisions``, if anything was fetched."""
        return {"revisions": self.revisions} if self.revisions else {}

    def head(self, rows: int = 200) -> list[dict[str, Any]]:
        """The first readable rows, for detection."""
        out: list[dict[str, Any]] = []
        size = 0
        for chunk in self.chunks:
            small = replace(chunk, stop=min(chunk.stop, chunk.start + (1 << 20))) if chunk.kind == "lines" else chunk
            if chunk.kind in ("lines", "documents"):
                numbers, texts = texts_of(small)
                refuse_double_keys(numbers[: rows - len(out)], texts, self.files[chunk.file].name)
            block = read(small)
            # A cut chunk may end inside a line; its last row is not to be trusted.
            got = block.rows[:-1] if small.stop < chunk.stop and len(block.rows) > 1 else block.rows
            out += itertools.islice((r for r in got if isinstance(r, dict)), rows - len(out))
            size += small.stop - small.start if chunk.kind in ("lines", "documents") else _HEAD // 8
            if len(out) >= rows or size >= _HEAD:
                break
        return out


def suffix(path: Path) -> str:
    """The last suffix of a name, a packing suffix aside: ``.jsonl`` for ``a.jsonl.gz``."""
    parts = [s.lower() for s in path.suffixes if s.lower() not in (".gz", ".zst")]
    return parts[-1] if parts else ""


class Plan:
    """Collects files and chunks; each ``add_`` cuts one file at places that depend on its bytes alone."""

    def __init__(
        self, work: Path, chunk_bytes: int, limit: int | None, fmt: Format, encoding: str | None = None
    ) -> None:
        self.work, self.chunk_bytes, self.left, self.fmt = work, chunk_bytes, limit, fmt
        self.encoding = None if encoding is None else sniffing.codec(encoding)
        self.source = Source()

    def add_file(self, path: Path, name: str, split: str = "train") -> None:
        """Plan one file; what it is is read off its first bytes, its name decides only between text forms."""
        if self.left == 0:
            return
        sniffing.refuse_other_files(path, name)
        digest, size = sha256(path)
        self.source.files.append(File(name, size, digest, split))
        while sniffing.packed(start := sniffing.start_of(path)):
            path = self._copied("unpacked", path, partial(sniffing.unpack, path, name))
            sniffing.refuse_other_files(path, name)
        kind = {"auto": None, "jsonl": "json", "hf": "arrow"}.get(self.fmt, self.fmt)
        columnar = "parquet" if start[:4] == b"PAR1" else "arrow" if start[:6] == b"ARROW1" else None
        kind = kind or columnar or ("arrow" if path.suffix == ".arrow" else SUFFIXES.get(suffix(path)))
        if kind not in ("parquet", "arrow"):
            if self.encoding is None:
                sniffing.refuse_other_encodings(path, name)
            else:
                path = self._copied("recoded", path, partial(sniffing.recode, path, name, self.encoding))
            visible = sniffing.start_of(path).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
            kind = kind or ("json" if visible in (b"{", b"[", b"") else "csv")
        elif self.encoding is not None:
            what = f"is {kind.capitalize()}, which says its own encoding"
            raise InputError(what, where=name, hint="Leave --encoding out.")
        if kind == "csv":
            csv_files.read(path, name, self.chunk_bytes, self.add_batches)
        else:
            {"json": self._json, "parquet": self._parquet, "arrow": self._arrow}[kind](path, name)

    def _copied(self, what: str, path: Path, write: Callable[[Path], None]) -> Path:
        """A copy of a file in the work folder, as ``write`` makes it."""
        held = self.work / f"{what}-{len(self.source.files):04d}{suffix(path)}"
        with whole(held) as part:
            write(part)
        return held

    def _add(self, path: Path, kind: Kind, start: int, stop: int, **place: int) -> None:
        chunks = self.source.chunks
        chunks.append(Chunk(len(chunks), len(self.source.files) - 1, str(path), kind, start, stop, **place))

    def _json(self, path: Path, name: str) -> None:
        """JSON lines are cut at line ends; an array, a wrapped array or objects over several lines between objects."""
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                return
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        first = next_visible(data, 3 if data[:3] == b"\xef\xbb\xbf" else 0)
        if first is None:
            return
        end = data.find(b"\n", first)
        several = end >= 0 and next_visible(data, end) is not None
        if data[first : first + 1] == b"[":
            stop, limited = self._documents(path, name, data, first, 1), self.left is not None
            rest = next_visible(data, stop, b" \t\r\n,")
            if not limited and rest is not None and (rest := next_visible(data, rest + 1)) is not None:
                where = f"{name}:{1 + _count_lines(data, 0, rest)}"
                raise InputError("text stands behind the end of the array", where=where, hint="Expected one array.")
        elif (several or self.fmt == "jsonl") and is_lines(data, first):
            self._lines(path, data)
        else:
            self._objects(path, name, data, first)

    def _objects(self, path: Path, name: str, data: mmap.mmap, first: int) -> None:
        """One object alone (a row, or a list of rows under a key), or objects over several lines each."""
        try:
            found = list(itertools.islice(spans(data, first), 2))
        except EOFError:
            found = []
        value: Any = None
        if len(found) == 1:
            with contextlib.suppress(orjson.JSONDecodeError):
                value = orjson.loads(data[found[0][0] : found[0][1]])
        if len(found) > 1:
            self._documents(path, name, data, first, 0)
        elif not isinstance(value, dict):
            self._lines(path, data)  # which reports each line that is no JSON
        else:
            lists = [k for k, v in value.items() if isinstance(v, list) and any(map(_is_row, v))]
            pair_like = [k for k in value if any(word in k for word in _ANSWERS)]
            pair_like += [k for k in value if k not in lists and any(word in k for word in _ASKED)]
            if pair_like or (len(value) > 2 and not lists):
                self._documents(path, name, data, first, 0)
            elif len(lists) == 1:
                self._documents(path, name, data, list_of_key(data, first, lists[0]), 1)
            else:
                several = f"Several lists ({', '.join(lists)}): save one alone."
                hint = several if lists else "Expected one object a line, or an array of objects."
                raise InputError(f"no list of rows was found (keys: {', '.join(value)})", where=name, hint=hint)

    def _lines(self, path: Path, data: mmap.mmap) -> None:
        start, line, size = 0, 1, len(data)
        if self.left is not None:
            stop = 0
            while stop < size and self.left:
                end = data.find(b"\n", stop)
                end = size if end < 0 else end + 1
                self.left -= bool(data[stop:end].strip())
                stop = end
            size = stop
        while start < size:
            end = min(start + self.chunk_bytes, size)
            if end < size:
                cut = data.find(b"\n", end - 1, size)
                end = size if cut < 0 else cut + 1
            self._add(path, "lines", start, end, first_line=line)
            line += _count_lines(data, start, end)
            start = end

    def _documents(self, path: Path, name: str, data: mmap.mmap, first: int, depth: int) -> int:
        """Objects inside an array (depth 1) or one after the other (depth 0), cut between objects; returns their end."""
        cuts: list[tuple[int, int]] = []
        rows = 0
        try:
            for start, stop, _ in itertools.islice(spans(data, first, depth), self.left):
                rows += 1
                if cuts and cuts[-1][1] - cuts[-1][0] < self.chunk_bytes:
                    start = cuts.pop()[0]
                cuts.append((start, stop))
        except EOFError:
            what = "ends in the middle of an array or object"
            raise InputError(what, where=name, hint="Get the file again.") from None
        self._took(rows)
        line, counted = 1, 0
        for start, stop in cuts:
            line += _count_lines(data, counted, start)
            counted = start
            self._add(path, "documents", start, stop, first_line=line)
        return cuts[-1][1] if cuts else first + depth

    def _parquet(self, path: Path, name: str) -> None:
        try:
            file = pq.ParquetFile(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"cannot be read as Parquet: {error}", where=name, hint="Get the file again.") from error
        check_names(file.schema_arrow.names, name)
        for group in range(file.num_row_groups):
            info = file.metadata.row_group(group)
            self._blocks(path, "parquet", group, info.num_rows, info.total_byte_size)

    def _arrow(self, path: Path, name: str) -> None:
        """Arrow streams (``save_to_disk``) are written again as files, which can be read from any batch on."""
        try:
            with pa.memory_map(str(path)) as source:
                if source.read(6) == b"ARROW1":
                    file = pa.ipc.open_file(source)
                    schema, batches = file.schema, map(file.get_batch, range(file.num_record_batches))
                else:
                    source.seek(0)
                    stream = pa.ipc.open_stream(source)
                    schema, batches = stream.schema, stream
                check_names(schema.names, name)
                self.add_batches(schema, batches)
        except pa.ArrowInvalid as error:
            raise InputError(f"cannot be read as Arrow: {error}", where=name, hint="Get the file again.") from error

    def add_batches(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Path:
        """Write record batches as an Arrow file of the work folder, a chunk a batch (or a part of one); returns its path."""
        held = self.work / f"rows-{len(self.source.files):04d}.arrow"
        sizes = []
        with pa.OSFile(str(held), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                sizes.append((batch.num_rows, batch.nbytes))
        for group, (rows, size) in enumerate(sizes):
            self._blocks(held, "arrow", group, rows, size)
        return held

    def _took(self, rows: int) -> None:
        if self.left is not None:
            self.left -= rows

    def _blocks(self, path: Path, kind: Kind, group: int, rows: int, size: int) -> None:
        # A row group that is little larger than a chunk stays whole, so that our own parts are read back as they are.
        step = rows if size < 2 * self.chunk_bytes else max(1, rows // -(-size // self.chunk_bytes))
        for start in range(0, rows, max(1, step)):
            stop = min(start + step, rows)
            if self.left is not None:
                stop = min(stop, start + self.left)
            if stop > start:
                self._add(path, kind, start, stop, group=group)
                self._took(stop - start)


def sha256(path: Path) -> tuple[str, int]:
    """Digest and size of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


def _count_lines(data: mmap.mmap, start: int, stop: int) -> int:
    return sum(data[a : min(a + _BLOCK, stop)].count(b"\n") for a in range(start, stop, _BLOCK))


def _is_row(value: object) -> bool:
    """An object that is no message."""
    return isinstance(value, dict) and not ({"role", "content"} <= value.keys() or {"from", "value"} <= value.keys())
