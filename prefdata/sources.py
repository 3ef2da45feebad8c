"""From what a user names (files, globs, folders, stdin, Python objects) to chunks of fixed size, and their identity."""

from __future__ import annotations

import csv
import glob
import hashlib
import itertools
import mmap
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from prefdata.errors import InputError, did_you_mean
from prefdata.reading import BAD, LINE, Chunk, guess_encoding, read, spans

CHUNK_BYTES = 24 << 20
Format = Literal["auto", "jsonl", "json", "csv", "parquet", "hf"]
SUFFIXES = {".jsonl": "json", ".json": "json", ".ndjson": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
_BLOCK = 1 << 24


@dataclass(frozen=True)
class File:
    """An input file: the name shown, its size and sha256 (of the bytes as given, so compressed if it is)."""

    name: str
    bytes: int
    sha256: str


@dataclass
class Source:
    """The input, planned: its files and chunks, in the order of the rows."""

    files: list[File] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    title: str = ""

    def head(self, rows: int = 200) -> list[dict[str, Any]]:
        """The first readable rows, for detection."""
        out: list[dict[str, Any]] = []
        for chunk in self.chunks:
            small = replace(chunk, stop=min(chunk.stop, chunk.start + (1 << 20))) if chunk.kind == "lines" else chunk
            block = read(small)
            # A cut chunk may end inside a line; its last row is not to be trusted.
            got = block.rows[:-1] if small.stop < chunk.stop and len(block.rows) > 1 else block.rows
            out += itertools.islice((r for r in got if isinstance(r, dict)), rows - len(out))
            if len(out) >= rows or chunk.index > 8:
                break
        return out


def open_source(
    source: Any, work: Path, *, fmt: Format = "auto", split: str | None = None,
    limit: int | None = None, chunk_bytes: int = CHUNK_BYTES,
) -> Source:  # fmt: skip
    """Plan the reading of ``source``: a path, a glob, a list of them, ``-``, a Dataset, a DataFrame or a list of dicts.

    ``work`` takes copies of what cannot be cut in place (stdin, compressed files, CSV, Python objects).
    Raises InputError where there is nothing to read.
    """
    plan = _Plan(work, chunk_bytes, limit, fmt)
    if isinstance(source, str | os.PathLike):
        source = [source]
    if isinstance(source, list) and source and all(isinstance(s, str | os.PathLike) for s in source):
        for path, name in _paths([os.fspath(s) for s in source], work, split):
            plan.add_file(path, name)
    else:
        _from_python(source, plan)
    out = plan.source
    if not out.chunks:
        names = ", ".join(f.name for f in out.files) or "the input"
        raise InputError("no rows", where=names, hint="The file is empty or holds blank lines only.")
    out.title = ", ".join(f.name for f in out.files[:3]) + (f" and {len(out.files) - 3} more" if len(out.files) > 3 else "")
    return out


def _paths(names: Sequence[str], work: Path, split: str | None) -> Iterator[tuple[Path, str]]:
    for name in names:
        if name == "-":
            import sys

            held = work / "stdin"
            if not held.exists():  # a resumed run finds the copy of the first one
                with (work / "stdin.part").open("wb") as file:
                    shutil.copyfileobj(sys.stdin.buffer, file)
                (work / "stdin.part").rename(held)
            yield held, "stdin"
        elif name.startswith("hf:"):
            raise InputError("names of the Hub are not read yet", where=name, hint="Download the set and give its folder.")
        elif Path(name).is_dir():
            yield from _folder(Path(name), split)
        elif Path(name).is_file() or Path(name).is_fifo():
            yield Path(name), Path(name).name
        elif any(c in name for c in "*?["):
            found = sorted(p for p in glob.glob(name, recursive=True) if Path(p).is_file())
            if not found:
                raise InputError("matches no file", where=name)
            yield from ((Path(p), Path(p).name) for p in found)
        else:
            near = Path(name).parent
            known = [p.name for p in near.iterdir()] if near.is_dir() else []
            raise InputError("does not exist", where=name, hint=did_you_mean(Path(name).name, known))


def _folder(folder: Path, split: str | None) -> Iterator[tuple[Path, str]]:
    """The data files of a Hugging Face folder: ``save_to_disk``, a card with ``configs``, or data files alone."""
    if (folder / "dataset_dict.json").is_file():
        known = orjson.loads((folder / "dataset_dict.json").read_bytes())["splits"]
        yield from _folder(folder / _choose({s: [] for s in known}, split, folder), None)
        return
    if (folder / "state.json").is_file():
        state = orjson.loads((folder / "state.json").read_bytes())
        if state.get("_indices_data_files"):
            raise InputError("was saved with an index over its rows", where=str(folder), hint="Save it again after .flatten_indices().")
        yield from ((folder / f["filename"], f"{folder.name}/{f['filename']}") for f in state["_data_files"])
        return
    splits: dict[str, list[Path]] = {}
    for name, pattern in _card_files(folder):
        splits.setdefault(name, []).extend(p for p in sorted(folder.glob(pattern)) if p.is_file())
    if splits:
        chosen = splits[_choose(splits, split, folder)]
    else:
        chosen = sorted(
            p for p in folder.rglob("*")
            if p.is_file() and not any(part.startswith(".") for part in p.relative_to(folder).parts)
            and _suffix(p) in SUFFIXES
        )  # fmt: skip
    if not chosen:
        raise InputError("holds no data files", where=str(folder), hint=f"Known: {', '.join(SUFFIXES)}, save_to_disk folders")
    yield from ((p, str(p.relative_to(folder))) for p in chosen)


def _choose(splits: Mapping[str, Any], wanted: str | None, folder: Path) -> str:
    if wanted is not None:
        if wanted not in splits:
            raise InputError(f"has no split {wanted!r}", where=str(folder), hint=f"Splits: {', '.join(splits)}")
        return wanted
    if len(splits) > 1:
        raise InputError(f"holds the splits {', '.join(splits)}", where=str(folder), hint=f"Choose one: --input-split {next(iter(splits))}")
    return next(iter(splits))


def _card_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Split and pattern of each data file of the default configuration in the folder's dataset card."""
    if not (folder / "README.md").is_file():
        return
    from huggingface_hub import DatasetCard

    try:
        configs = DatasetCard.load(folder / "README.md").data.to_dict().get("configs") or []
    except ValueError as error:
        raise InputError(f"has a card whose front matter cannot be read: {error}", where=str(folder / "README.md")) from error
    config = next((c for c in configs if c.get("default") or c.get("config_name") == "default"), configs[0] if configs else {})
    files = config.get("data_files") or []
    for entry in [files] if isinstance(files, str | Mapping) else files:
        if isinstance(entry, str):
            yield "train", entry
        else:
            paths = entry.get("path", [])
            yield from ((entry.get("split", "train"), p) for p in ([paths] if isinstance(paths, str) else paths))


def _suffix(path: Path) -> str:
    parts = [s.lower() for s in path.suffixes if s.lower() not in (".gz", ".zst")]
    return parts[-1] if parts else ""


class _Plan:
    """Collects files and chunks; each ``add_`` cuts one file at places that depend on its bytes alone."""

    def __init__(self, work: Path, chunk_bytes: int, limit: int | None, fmt: Format) -> None:
        self.work, self.chunk_bytes, self.left, self.fmt = work, chunk_bytes, limit, fmt
        self.source = Source()

    def add_file(self, path: Path, name: str) -> None:
        if self.left == 0:
            return
        with path.open("rb") as file:
            start = file.read(64)
        if start.startswith(b"version https://git-lfs"):
            raise InputError("is a Git LFS pointer, not the data", where=name, hint="Fetch the file: git lfs pull")
        digest, size = _sha256(path)
        self.source.files.append(File(name, size, digest))
        if start[:2] == b"\x1f\x8b" or start[:4] == b"\x28\xb5\x2f\xfd":
            path = self._unpacked(path, name, start)
            with path.open("rb") as file:
                start = file.read(64)
        if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise InputError("is UTF-16, not UTF-8", where=name, hint="Convert it: iconv -f UTF-16 -t UTF-8")
        kind = {"auto": None, "jsonl": "json", "json": "json", "csv": "csv", "parquet": "parquet", "hf": "arrow"}[self.fmt]
        kind = kind or ("parquet" if start[:4] == b"PAR1" else "arrow" if path.suffix == ".arrow" else SUFFIXES.get(_suffix(path)))
        if kind is None:
            kind = "json" if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[", b"") else "csv"
        {"json": self._json, "csv": self._csv, "parquet": self._parquet, "arrow": self._arrow}[kind](path, name)

    def _unpacked(self, path: Path, name: str, start: bytes) -> Path:
        """A decompressed copy in the work folder: a compressed stream cannot be cut into chunks."""
        import gzip
        import zlib

        import zstandard

        held = self.work / f"unpacked-{len(self.source.files):04d}{_suffix(path)}"
        opened: IO[bytes] = gzip.open(path) if start[:2] == b"\x1f\x8b" else zstandard.open(path, "rb")  # type: ignore[assignment]
        try:
            with opened as packed, held.open("wb") as plain:
                shutil.copyfileobj(packed, plain, 1 << 20)
        except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
            raise InputError(f"is broken or cut off: {error}", where=name, hint="Get the file again.") from error
        return held

    def _add(self, chunk: Chunk, rows: int | None = None) -> None:
        self.source.chunks.append(replace(chunk, index=len(self.source.chunks), file=len(self.source.files) - 1))
        if self.left is not None and rows is not None:
            self.left -= rows

    def _json(self, path: Path, name: str) -> None:
        """JSON lines are cut at line ends; an array, a wrapped array or objects over several lines between objects."""
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                return
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        at = 3 if data[:3] == b"\xef\xbb\xbf" else 0
        first = _next_visible(data, at)
        if first is None:
            return
        if data[first : first + 1] == b"[":
            self._documents(path, data, first, 1)
        elif self._is_lines(data, first):
            self._lines(path, data)
        else:
            whole = list(itertools.islice(spans(data, first), 2))
            if len(whole) != 1:
                (self._documents if len(whole) > 1 else self._lines)(path, data, *((first, 0) if len(whole) > 1 else ()))
                return
            try:
                value = orjson.loads(data[first : whole[0][1]])
            except orjson.JSONDecodeError:
                self._lines(path, data)
                return
            lists = [k for k, v in value.items() if isinstance(v, list) and v and all(isinstance(r, dict) for r in v)]
            if {"chosen", "rejected"} <= value.keys():
                self._documents(path, data, first, 0)
            elif len(lists) == 1:
                self._documents(path, data, first, 2, lists[0].encode())
            else:
                hint = f"Several lists ({', '.join(lists)}): save one alone." if lists else "Expected one object a line, or an array of objects."
                raise InputError("no list of rows was found", where=name, hint=hint)

    @staticmethod
    def _is_lines(data: mmap.mmap, first: int) -> bool:
        """True if one of the first lines is a whole JSON object (the first may be broken)."""
        at = first
        for _ in range(50):
            end = data.find(b"\n", at)
            line = data[at : end if end >= 0 else len(data)].strip()
            if line.startswith(b"{") and line.endswith(b"}"):
                try:
                    # {"a": [ on the first line and } on the last: an inner object of a pretty-printed one also parses,
                    # but is indented.
                    if isinstance(orjson.loads(line), dict) and data[at : at + 1] == b"{":
                        return True
                except orjson.JSONDecodeError:
                    pass
            if end < 0:
                return False
            at = end + 1
        return False

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
            self._add(Chunk(0, 0, str(path), "lines", start, end, first_line=line))
            line += _count_lines(data, start, end)
            start = end

    def _documents(self, path: Path, data: mmap.mmap, first: int, depth: int, key: bytes = b"") -> None:
        if depth == 2:  # the list behind the key; a level less deep once we stand behind its name
            first = _list_of_key(data, first, key)
            depth = 1
        found = spans(data, first, depth) if self.left is None else itertools.islice(spans(data, first, depth), self.left)
        start: int | None = None
        line, counted, stop, rows = 1, 0, 0, 0
        for a, b in found:
            if start is None:
                start = a
            stop, rows = b, rows + 1
            if b - start >= self.chunk_bytes:
                line += _count_lines(data, counted, start)
                counted = start
                self._add(Chunk(0, 0, str(path), "documents", start, b, first_line=line), rows)
                start, rows = None, 0
        if start is not None:
            line += _count_lines(data, counted, start)
            self._add(Chunk(0, 0, str(path), "documents", start, stop, first_line=line), rows)

    def _parquet(self, path: Path, name: str) -> None:
        try:
            meta = pq.ParquetFile(path).metadata
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"cannot be read as Parquet: {error}", where=name, hint="Get the file again.") from error
        for group in range(meta.num_row_groups):
            info = meta.row_group(group)
            self._blocks(path, "parquet", group, info.num_rows, info.total_byte_size)

    def _arrow(self, path: Path, name: str) -> None:
        """Arrow streams (``save_to_disk``) are written again as files, which can be read from any batch on."""
        try:
            with pa.memory_map(str(path)) as source:
                reader = pa.ipc.open_stream(source)
                self.add_batches(reader.schema, reader)
        except pa.ArrowInvalid as error:
            raise InputError(f"cannot be read as Arrow: {error}", where=name) from error

    def add_batches(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Write record batches as an Arrow file of the work folder, a chunk a batch (or a part of one)."""
        held = self.work / f"rows-{len(self.source.files):04d}.arrow"
        sizes = []
        with pa.OSFile(str(held), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                sizes.append((batch.num_rows, batch.nbytes))
        for group, (rows, size) in enumerate(sizes):
            self._blocks(held, "arrow", group, rows, size)

    def _blocks(self, path: Path, kind: Literal["arrow", "parquet"], group: int, rows: int, size: int) -> None:
        step = max(1, rows // max(1, -(-size // self.chunk_bytes)))
        # A row group that is little larger than a chunk stays whole, so that our own parts are read back as they are.
        step = rows if size < 2 * self.chunk_bytes else step
        for start in range(0, rows, max(1, step)):
            stop = min(start + step, rows)
            if self.left is not None:
                stop = min(stop, start + self.left)
            if stop > start:
                self._add(Chunk(0, 0, str(path), kind, start, stop, group), stop - start)

    def _csv(self, path: Path, name: str) -> None:
        """A real CSV reader, whole file once: a quoted line break cannot be told from a row's end in the middle."""
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
                if len(set(names)) < len(names):
                    twice = next(n for n in names if names.count(n) > 1)
                    raise InputError(f"has two columns named {twice!r}", where=f"{name}:1")
                schema = pa.schema([(n, pa.string()) for n in names] + [(LINE, pa.int64()), (BAD, pa.string())])
                self.add_batches(schema, self._csv_batches(reader, names, schema))
            except UnicodeDecodeError as error:
                looks = guess_encoding(path.read_bytes()[:1 << 16])
                raise InputError(f"is not UTF-8; looks like {looks}", where=name, hint="Convert it: iconv -f ... -t UTF-8") from error
            except csv.Error as error:
                raise InputError(f"is not valid CSV: {error}", where=f"{name}:{reader.line_num}") from error

    def _csv_batches(self, reader: Any, names: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
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
            if size >= self.chunk_bytes:
                yield pa.RecordBatch.from_pylist(rows, schema)
                rows, size = [], 0
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema)


def _from_python(source: Any, plan: _Plan) -> None:
    """Rows from memory: a list of dicts goes through JSON, a DataFrame and a Dataset through Arrow."""
    kind = f"{type(source).__module__.split('.')[0]}.{type(source).__name__}"
    if kind == "datasets.DatasetDict":
        raise InputError(f"holds the splits {', '.join(source)}", where="DatasetDict", hint="Give one of them: dataset['train']")
    if kind == "datasets.Dataset":
        arrow = source.flatten_indices().data.table if source._indices is not None else source.data.table
        _add_memory(plan, "Dataset", arrow.schema.remove_metadata(), _batches(arrow, plan.chunk_bytes))
        return
    if kind == "pandas.DataFrame":
        try:
            table = pa.Table.from_pandas(source, preserve_index=False).replace_schema_metadata(None)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # columns of mixed types
            source = source.to_dict("records")
        else:
            _add_memory(plan, "DataFrame", table.schema, _batches(table, plan.chunk_bytes))
            return
    if isinstance(source, str) or not isinstance(source, Iterable):
        raise InputError(f"cannot read rows from {kind}", hint="Give a path, a list of dicts, a DataFrame or a Dataset.")
    held = plan.work / "rows.jsonl"
    with held.open("wb") as file:
        for i, row in enumerate(source):
            try:
                file.write(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))
            except TypeError as error:
                raise InputError(f"row {i} cannot be written as JSON: {error}", where="list") from error
    plan.fmt = "jsonl"
    plan.add_file(held, "rows.jsonl")


def _add_memory(plan: _Plan, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    plan.source.files.append(File(name, 0, ""))
    plan.add_batches(schema, batches)
    digest, size = _sha256(plan.work / f"rows-{len(plan.source.files):04d}.arrow")
    plan.source.files[-1] = File(name, size, digest)


def _batches(table: pa.Table, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    """Batches of about a chunk, cut by the table's size alone (its own chunks do not count)."""
    rows = max(1, min(len(table), int(len(table) * chunk_bytes / max(1, table.nbytes))))
    for start in range(0, len(table), rows):
        yield from table.slice(start, rows).combine_chunks().to_batches()


def _sha256(path: Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), size


def _count_lines(data: mmap.mmap, start: int, stop: int) -> int:
    return sum(data[a : min(a + _BLOCK, stop)].count(b"\n") for a in range(start, stop, _BLOCK))


def _next_visible(data: mmap.mmap, at: int) -> int | None:
    while at < len(data):
        block = data[at : at + _BLOCK]
        rest = block.lstrip()
        if rest:
            return at + len(block) - len(rest)
        at += len(block)
    return None


def _list_of_key(data: mmap.mmap, first: int, key: bytes) -> int:
    """Where the list under a top-level key begins."""
    import re

    for match in re.compile(rb'"' + re.escape(key) + rb'"\s*:\s*\[').finditer(data, first):
        level = sum({b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(t, 0) for t in re.findall(rb'[{}\[\]]', re.sub(rb'"(?:[^"\\]|\\.)*"', b"", data[first : match.start()])))
        if level == 1:
            return match.end() - 1
    raise InputError(f"no list of rows was found under {key.decode()!r}")
