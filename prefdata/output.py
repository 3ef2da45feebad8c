"""The ``out/`` folder: refusing bad places, atomic files, decisions and signals, spot-check sheet, dataset card, manifest."""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from prefdata import schema
from prefdata.decisions import Decisions, Index, Signals
from prefdata.errors import ConfigError, InputError, OutputError
from prefdata.files import put, whole
from prefdata.identity import SIDE_KEYS
from prefdata.pairs import Row
from prefdata.report.model import Report
from prefdata.report.sheet import left_side

OWN = (
    "data", "reversed", "ab", "audit", "recipes", "report.html", "report-no-rows.html", "manifest.json", "README.md",
    "spotcheck.csv", "review.html",
)  # fmt: skip
MANIFEST = "manifest.json"
OF_PEOPLE = ("review*.json", "verdicts")  # in audit/: their work outlives the run
NO_LICENSE = ["The licence was not given and is not guessed: set it before you share this set.", ""]
_BESIDE = {
    "reversed": "`reversed` holds pairs the wrong way round: the worse answer stands under `chosen` (`pd_reversed`; `pd_source_row` is"
    " the `pd_id` of the source, whose other columns it has; those of one answer stand with that answer). Plain DPO must not see them: each pulls against its source, and to"
    " train on both is label smoothing at the price of more rows. They are for losses that read `pd_reversed`.",
    "ab": "`ab` holds the kept pairs for pairwise classifiers and judges: `label` says which of `output_1` and `output_2` is"
    " better. Rows with `pd_reversed` show the pair of `pd_source_row` once more, in the other order.",
}  # fmt: skip
_COLUMNS = {
    "pd_weight": "how much the pair should count in the loss",
    "pd_flip_prob": "the probability that its label is the wrong way round",
}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def prepare(out: Path, *, overwrite: bool, resume: bool, inputs: Sequence[Path]) -> Path:
    """Make sure that ``out`` may be written, before any work; returns its work folder."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        what = "is a link" if out.is_symlink() else "is a file"
        raise OutputError(f"{what}, not a folder", where=str(out), hint="Choose a new folder.")
    place = out.resolve()
    for path in inputs:
        given = path.resolve()
        if given == place or place in given.parents:
            hint = "The input is never overwritten: choose another folder."
            raise OutputError(f"holds the input {path.name}", where=str(out), hint=hint)
        if given in place.parents and given.is_dir():  # a later run would read it as input
            raise OutputError(f"lies inside the input {path}", where=str(out), hint="Choose a folder outside.")
    if out.is_dir() and any(out.iterdir()) and not overwrite and not (resume and is_ours(out)):
        can = "--overwrite replaces prefdata's own files in it."
        hint = "It holds no run that can go on: use --overwrite." if resume else can
        raise OutputError("exists and is not empty", where=str(out), hint=hint)
    work = out / ".work"
    try:
        if overwrite and not resume and work.exists():
            shutil.rmtree(work)
        work.mkdir(parents=True, exist_ok=True)
        (work / "probe").write_bytes(b"")
        (work / "probe").unlink()
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", where=str(out)) from error
    return work


def is_ours(out: Path) -> bool:
    """True if an earlier run of prefdata left its work or its result here."""
    return (out / ".work").is_dir() or (out / MANIFEST).is_file()


def clear(out: Path) -> None:
    """Take away what an earlier run published, the manifest first; files of other people and verdicts of reviewers stay."""
    (out / MANIFEST).unlink(missing_ok=True)
    _spare_filled(out / "spotcheck.csv", out / "audit/verdicts")
    audit = [] if (out / "audit").is_symlink() else [*(out / "audit").glob("*")]
    others = [str(p.relative_to(out)) for p in audit if not any(map(p.match, OF_PEOPLE))]
    for name in (*others, *(n for n in OWN if n != "audit" or len(others) == len(audit))):
        path = out / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _spare_filled(path: Path, to: Path) -> None:
    """A sheet that somebody has begun to fill in is the work of people: it moves to their verdicts."""
    csv.field_size_limit(1 << 30)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            filled = any((row.get("verdict") or "").strip() for row in csv.DictReader(file))
    except FileNotFoundError:
        return
    except (OSError, ValueError, csv.Error):  # not as it was written: somebody has changed it
        filled = True
    if filled:
        to.mkdir(parents=True, exist_ok=True)
        path.replace(to / f"spotcheck-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}.csv")


@contextmanager
def writing(out: Path, hint: str = "Make room; --resume goes on.") -> Iterator[None]:
    """Turn errors of the file system (disk full, folder gone) into an error that says so."""
    try:
        yield
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise OutputError(what, where=str(error.filename or out), hint=hint) from error


@contextmanager
def tidying(out: Path, resumable: bool) -> Iterator[None]:
    """After an error that going on cannot mend, leave nothing half-done; an interrupted run keeps its parts."""
    try:
        yield
    except (InputError, ConfigError):
        if not resumable:
            shutil.rmtree(out / ".work", ignore_errors=True)
            if not any(out.iterdir()):
                out.rmdir()
        raise


def dump(value: Any) -> bytes:
    """JSON for people and programs: indented, keys in their own order."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)


def write_decisions(path: Path, stages: Sequence[str], decisions: Sequence[Decisions]) -> None:
    """``audit/decisions.parquet``: every decision, keeps included, a row group a stage."""
    full = Decisions(np.empty(0, np.int64)).table("").schema
    for name in ("weight", "flip_prob"):
        if any(getattr(d, name) is not None for d in decisions):
            full = full.append(pa.field(name, pa.float32()))
    with whole(path) as part, pq.ParquetWriter(
        part, full, compression="zstd", use_dictionary=["stage", "action", "reason", "limit"], write_statistics=False,
        column_encoding={"row": "DELTA_BINARY_PACKED", "peer": "DELTA_BINARY_PACKED"},
    ) as writer:  # fmt: skip
        for stage, made in zip(stages, decisions, strict=True):  # one table at a time: a million rows are 30 MB
            table = made.table(stage)
            for lacking in [f for f in full if f.name not in table.column_names]:
                table = table.append_column(lacking, pa.nulls(len(table), lacking.type))
            if len(table):
                writer.write_table(table.select(full.names), row_group_size=len(table))


def write_signals(
    path: Path, signals: Signals, stages: Sequence[str], split: np.ndarray[Any, Any] | None, ids: Iterator[pa.Array] | None
) -> None:  # fmt: skip
    """``audit/signals.parquet``: what these stages measured, a row group a chunk; lists and hashes are scratch, but for those that
    say which texts a pair is made of: another run is compared by them, and verdicts of people are known by them.

    ``ids`` are ``pd_id`` of the pairs, part by part, where pairs and rows have different numbers.
    Parts that an earlier run measured may hold the columns of stages that are left out now, and in another order.
    """
    known = ["pair", *stages]
    first = schema.mapped(signals.parts[0].path).schema
    names = [
        f.name for f in first
        if f.name in SIDE_KEYS or (f.name.split(".")[0] in known and not pa.types.is_nested(f.type) and not f.name.endswith(("_key", "content")))
    ]  # fmt: skip
    names.sort(key=lambda name: known.index(name.split(".")[0]))
    own = [] if ids is None else [("pd_id", pa.string())]
    full = pa.schema([("row", pa.int64()), *own, *(first.field(n) for n in names)])
    if split is not None:
        full = full.append(pa.field("pair.split", pa.int8()))
    with whole(path) as part, pq.ParquetWriter(part, full, compression="zstd", write_statistics=False) as writer:
        for where in signals.parts:
            table = schema.mapped(where.path).select(names)
            if ids is not None:
                table = table.add_column(0, "pd_id", next(ids))
            table = table.add_column(0, "row", pa.array(np.arange(where.start, where.start + where.n)))
            if split is not None:
                table = table.append_column("pair.split", pa.array(split[where.start : where.start + where.n]))
            writer.write_table(table.cast(full), row_group_size=max(1, len(table)))


def write_spotcheck(path: Path, rows: Index, read: Callable[[Sequence[int]], Sequence[Row]], seed: int) -> None:
    """``spotcheck.csv``, blind (which side is left is a seeded coin toss) and safe to open in a spreadsheet."""
    with whole(path) as part, part.open("w", encoding="utf-8-sig", newline="") as file:
        sheet = csv.writer(file)
        sheet.writerow(["pd_id", "prompt", "left", "right", "verdict", "note"])
        for start in range(0, len(rows), 1000):
            for row in read(rows[start : start + 1000].tolist()):
                sides = [row.chosen, row.rejected]
                if left_side(row.pd_id, seed) == "rejected":
                    sides.reverse()
                cells = [row.pd_id, row.prompt, *sides, "", ""]
                sheet.writerow(["'" + c if c.startswith(_FORMULA) else c for c in cells])


def card(
    report: Report, title: str, form: str, license: str | None, files: Mapping[str, str], columns: Sequence[str] = ()
) -> str:
    """``README.md`` of the output: front matter that ``load_dataset`` and the Hub read, and what was done.

    ``files`` are the sha256 of the data files by their path, ``columns`` the numbers that the run gave the kept pairs.
    """
    kept, dropped = sum(report.splits.values()), report.totals.dropped
    there = [name for name in _BESIDE if _splits_of(name, files)]
    lines = [
        *front_matter(f"{title}, cleaned", report.splits, license, files, dropped=dropped),
        f"{kept:,} preference pairs ({form} form), kept of {report.totals.pairs:,} by prefdata {report.prefdata}, pipeline `{report.pipeline}`.",
        "Kept rows have the values they were read with (changes of form are listed in `manifest.json`); `pd_id` leads back to the row of the input.", "",
        "| stage | in | dropped |", "| --- | --- | --- |",
        *(f"| {f.name} | {f.asked:,} | {f.dropped:,} |" for f in report.funnel), "",
        "```python", "from datasets import load_dataset", "",
        *(['pairs = load_dataset("path/to/this/folder")'] if kept else []),
        *(['dropped = load_dataset("path/to/this/folder", "dropped")  # each row with its stage and reason'] if dropped else []),
        *(f'{name} = load_dataset("path/to/this/folder", "{name}")' for name in there),
        "```", "", *(line for name in there for line in (_BESIDE[name], "")), *_for_trainers(report, columns),
        *(NO_LICENSE if license is None else []),
        "`audit/`, `spotcheck.csv`, `report.html` and `review.html` may hold personal or harmful text of dropped rows. To upload without them:",
        "", "```console", '$ hf upload NAME . --repo-type dataset --exclude "audit/*" "spotcheck.csv" "report.html" "review.html"', "```", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _for_trainers(report: Report, columns: Sequence[str]) -> list[str]:
    """What the card says to a trainer: label smoothing, weights."""
    said = [f.text for s in report.stages for f in s.findings if f.name == "label_smoothing"]
    lines = [f"For the trainer: {text}. `manifest.json` has it under `train`." for text in said]
    if columns:
        named = " and ".join(f"`{name}` ({_COLUMNS[name]})" for name in columns)
        lines.append(f"Each pair has {named}. Trainers that do not read the columns train on all pairs alike.")
    return [part for line in lines for part in (line, "")]


def _splits_of(config: str, files: Mapping[str, str]) -> list[str]:
    """The splits of a configuration that has files."""
    return list(dict.fromkeys(path.split("/")[1] for path in files if path.startswith(f"{config}/")))


def front_matter(
    title: str, splits: Mapping[str, int], license: str | None, files: Mapping[str, str], dropped: int = 0
) -> list[str]:
    """The head of a dataset card: where ``load_dataset`` finds the splits (rows of each), and the title."""
    from huggingface_hub import DatasetCardData

    # ``datasets`` names its cache by folder name and card alone: without a mark of the data in the card, two folders
    # called ``out``, or one that was written anew, would be taken for the same set.
    digest = hashlib.sha256(orjson.dumps(files, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
    found = {
        "default": [{"split": s, "path": f"data/{s}/*.parquet"} for s, n in splits.items() if n],
        "dropped": [{"split": "train", "path": "audit/dropped/*.parquet"}] if dropped else [],
        **{name: [{"split": s, "path": f"{name}/{s}/*.parquet"} for s in _splits_of(name, files)] for name in _BESIDE},
    }
    if any(found.values()) and not found["default"]:  # a lone configuration is what ``load_dataset`` takes unasked
        found["decisions"] = [{"split": "train", "path": "audit/decisions.parquet"}]
    configs = [
        {"config_name": name, **({"default": True} if name == "default" else {}), "description": f"data {digest}", "data_files": paths}
        for name, paths in found.items() if paths
    ]  # fmt: skip
    data = DatasetCardData(
        license=license or "other", pretty_name=title, size_categories=[_size(sum(splits.values()))],
        tags=["preference", "dpo", "prefdata"], configs=configs,
    )  # fmt: skip
    return ["---", data.to_yaml(), "---", "", f"# {title}", ""]


def _size(n: int) -> str:
    """The Hub's word for a size: ``1K<n<10K``."""
    names = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M")
    return next((name for i, name in enumerate(names) if n < 10 ** (i + 3)), "n>10M")


def hashes(out: Path, names: Sequence[str]) -> dict[str, str]:
    """sha256 of published files by their path in ``out``."""
    found = {}
    for name in names:
        with (out / name).open("rb") as file:
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def finish(out: Path, manifest: Mapping[str, Any], keep_scratch: bool) -> None:
    """Write the manifest, last of all, then take the work folder away."""
    put(out / MANIFEST, dump(manifest))
    if not keep_scratch:
        shutil.rmtree(out / ".work", ignore_errors=True)
    fd = os.open(out, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
