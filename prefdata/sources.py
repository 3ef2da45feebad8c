"""From what a user names (files, globs, folders, stdin, Python objects) to chunks of fixed size, and their identity."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from prefdata.cutting import SUFFIXES, File, Format, Plan, Source, sha256, suffix
from prefdata.errors import InputError, did_you_mean
from prefdata.schema import check_names

CHUNK_BYTES = 16 << 20


def open_source(
    source: Any, work: Path, *, fmt: Format = "auto", split: str | None = None,
    limit: int | None = None, chunk_bytes: int = CHUNK_BYTES,
) -> Source:  # fmt: skip
    """Plan the reading of ``source``: a path, a glob, a list of them, ``-``, a Dataset, a DataFrame or a list of dicts.

    ``work`` takes copies of what cannot be cut in place (stdin, compressed files, CSV, Python objects).
    Raises InputError where there is nothing to read.
    """
    plan = Plan(work, chunk_bytes, limit, fmt)
    if isinstance(source, str | os.PathLike):
        source = [source]
    if isinstance(source, list) and source and all(isinstance(s, str | os.PathLike) for s in source):
        for path, name in _paths([os.fspath(s) for s in source], work, split):
            plan.add_file(path, name)
    else:
        _no_choice(split, "input from Python")
        _from_python(source, plan)
    out = plan.source
    if not out.chunks:
        names = ", ".join(f.name for f in out.files) or "the input"
        raise InputError("no rows", where=names, hint="The file is empty or holds blank lines only.")
    out.title = ", ".join(f.name for f in out.files[:3]) + (
        f" and {len(out.files) - 3} more" if len(out.files) > 3 else ""
    )
    return out


def _paths(names: Sequence[str], work: Path, split: str | None) -> Iterator[tuple[Path, str]]:
    for name in names:
        if name == "-" or Path(name).is_file():
            _no_choice(split, name)
        if name == "-":
            import sys

            held = work / "stdin"
            if not held.exists():  # a resumed run reads the copy of the first one, not what comes in now
                with (work / "stdin.part").open("wb") as file:
                    shutil.copyfileobj(sys.stdin.buffer, file)
                (work / "stdin.part").rename(held)
            yield held, "stdin"
        elif name.startswith("hf:"):
            raise InputError(
                "names of the Hub are not read yet", where=name, hint="Download the set and give its folder."
            )
        elif Path(name).is_dir():
            yield from _folder(Path(name), split)
        elif Path(name).is_file() or Path(name).is_fifo():
            yield Path(name), Path(name).name
        elif any(c in name for c in "*?["):
            found = sorted(p for p in glob.glob(name, recursive=True) if Path(p).is_file())  # noqa: PTH207
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
        _no_choice(split, str(folder))
        state = orjson.loads((folder / "state.json").read_bytes())
        if state.get("_indices_data_files"):
            raise InputError(
                "was saved with an index over its rows",
                where=str(folder),
                hint="Save it again after .flatten_indices().",
            )
        yield from ((folder / f["filename"], f"{folder.name}/{f['filename']}") for f in state["_data_files"])
        return
    splits: dict[str, list[Path]] = {}
    for name, pattern in _card_files(folder):
        splits.setdefault(name, []).extend(p for p in sorted(folder.glob(pattern)) if p.is_file())
    if splits:
        chosen = splits[_choose(splits, split, folder)]
    else:
        _no_choice(split, str(folder))
        chosen = sorted(
            p for p in folder.rglob("*")
            if p.is_file() and not any(part.startswith(".") for part in p.relative_to(folder).parts)
            and suffix(p) in SUFFIXES
        )  # fmt: skip
    if not chosen:
        raise InputError(
            "holds no data files", where=str(folder), hint=f"Known: {', '.join(SUFFIXES)}, save_to_disk folders"
        )
    yield from ((p, str(p.relative_to(folder))) for p in chosen)


def _no_choice(split: str | None, where: str) -> None:
    if split is not None:
        raise InputError("has no splits to choose from", where=where, hint="Leave --input-split out.")


def _choose(splits: Mapping[str, Any], wanted: str | None, folder: Path) -> str:
    if wanted is not None:
        if wanted not in splits:
            raise InputError(f"has no split {wanted!r}", where=str(folder), hint=f"Splits: {', '.join(splits)}")
        return wanted
    if len(splits) > 1:
        raise InputError(
            f"holds the splits {', '.join(splits)}",
            where=str(folder),
            hint=f"Choose one: --input-split {next(iter(splits))}",
        )
    return next(iter(splits))


def _card_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Split and pattern of each data file of the default configuration in the folder's dataset card."""
    if not (folder / "README.md").is_file():
        return
    from huggingface_hub import DatasetCard

    try:
        configs = DatasetCard.load(folder / "README.md").data.to_dict().get("configs") or []
    except ValueError as error:
        raise InputError(
            f"has a card whose front matter cannot be read: {error}", where=str(folder / "README.md")
        ) from error
    config = next(
        (c for c in configs if c.get("default") or c.get("config_name") == "default"), configs[0] if configs else {}
    )
    files = config.get("data_files") or []
    for entry in [files] if isinstance(files, str | Mapping) else files:
        if isinstance(entry, str):
            yield "train", entry
        else:
            paths = entry.get("path", [])
            yield from ((entry.get("split", "train"), p) for p in ([paths] if isinstance(paths, str) else paths))


def _from_python(source: Any, plan: Plan) -> None:
    """Rows from memory: a list of dicts goes through JSON, a DataFrame and a Dataset through Arrow."""
    kind = f"{type(source).__module__.split('.')[0]}.{type(source).__name__}"
    if kind == "datasets.DatasetDict":
        raise InputError(
            f"holds the splits {', '.join(source)}", where="DatasetDict", hint="Give one of them: dataset['train']"
        )
    if kind == "datasets.Dataset":
        arrow = source.flatten_indices().data.table if source._indices is not None else source.data.table
        arrow = arrow.replace_schema_metadata(source.features.arrow_schema.metadata)  # names of classes
        _add_memory(plan, "Dataset", arrow.schema, _batches(arrow, plan.chunk_bytes))
        return
    if kind == "pandas.DataFrame":
        if not source.columns.is_unique:
            twice = source.columns[source.columns.duplicated()][0]
            raise InputError(f"has two columns named {twice!r}", where="DataFrame", hint="Rename one of them.")
        try:
            table = pa.Table.from_pandas(source, preserve_index=False).replace_schema_metadata(None)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # columns of mixed types
            source = source.to_dict("records")
        else:
            _add_memory(plan, "DataFrame", table.schema, _batches(table, plan.chunk_bytes))
            return
    if isinstance(source, str) or not isinstance(source, Iterable):
        raise InputError(
            f"cannot read rows from {kind}", hint="Give a path, a list of dicts, a DataFrame or a Dataset."
        )
    held = plan.work / "rows.jsonl"
    with held.open("wb") as file:
        for i, row in enumerate(source):
            file.write(_line(row, i) + b"\n")
    plan.fmt = "jsonl"
    plan.add_file(held, "rows.jsonl")


def _line(row: Any, number: int) -> bytes:
    try:
        return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            if "64-bit" in str(error):
                return json.dumps(row, ensure_ascii=False).encode()
        raise InputError(f"row {number} cannot be written as JSON: {error}", where="list") from error


def _add_memory(plan: Plan, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    check_names(schema.names, name)
    plan.source.files.append(File(name, 0, ""))
    plan.add_batches(schema, batches)
    digest, size = sha256(plan.work / f"rows-{len(plan.source.files):04d}.arrow")
    plan.source.files[-1] = File(name, size, digest)


def _batches(table: pa.Table, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    """Batches of about a chunk, cut by the table's size alone (its own chunks do not count)."""
    rows = max(1, min(len(table), int(len(table) * chunk_bytes / max(1, table.nbytes))))
    for start in range(0, len(table), rows):
        yield from table.slice(start, rows).combine_chunks().to_batches()
