"""``convert``: the pairs of an input in another form. Nothing is judged and no text is changed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from prefdata import output, schema, sharegpt
from prefdata.cutting import Source
from prefdata.engines import Engine, engine
from prefdata.errors import ConfigError, InputError, near_or_all
from prefdata.files import put, whole
from prefdata.first_pass import measure_all
from prefdata.intake import detect, inputs_of, opened
from prefdata.line_forms import LINES, Lines, check, safe
from prefdata.measuring import DETAIL, FAULT, FILE, LINE, RAW
from prefdata.pairs import SIDES
from prefdata.pipeline import Pipeline
from prefdata.places import INFO, NEW, SKIPPED, place, publish, sink, skipped
from prefdata.publishing import publish_all
from prefdata.result import Options, Progress
from prefdata.run import default_workers
from prefdata.shapes import Reading
from prefdata.shapes.sides import TRANSCRIPT
from prefdata.sharegpt import NoPlace
from prefdata.spool import Spool, with_own

FORMS = ("hf-text", "hf-chat", "hf-implicit", "llamafactory", "kto", "jsonl", "ab")
_READ = (
    "columns", "shape", "labels", "pairs", "ties", "input_format", "encoding", "input_config", "input_split",
    "workers", "seed", "license", "overwrite", "chunk_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class Converted:
    """What was written: ``pairs`` of ``read``, as ``rows`` of each split. ``skipped`` counts by reason what was left out;
    ``listed`` is the file that holds it. ``changes`` are changes of form and how many rows they touched.
    """

    out: str
    to: str
    read: int
    pairs: int
    splits: dict[str, int]
    skipped: dict[str, int]
    listed: str | None
    changes: dict[str, int]


def convert(
    source: Any, out: str | os.PathLike[str], to: str, *, on_bad_row: str = "stop", progress: Progress | None = None,
    **options: Any,
) -> Converted:  # fmt: skip
    """Write the pairs of ``source`` (as for ``audit``) to ``out`` in the form ``to``.

    ``out`` is a new folder (``hf-*``, ``llamafactory``), or a file of JSON lines, ``-`` for stdout (``jsonl``, ``kto``,
    ``ab``). ``options`` are those of ``Options`` that say how to read, ``seed``, ``license`` and ``overwrite``. Rows that are
    no pair, or that the form cannot hold, stop it before anything is written; with ``on_bad_row="skip"`` they are left out and
    listed in ``<out>.skipped.jsonl``. Raises PrefdataError with what is wrong and what to do.
    """
    if to not in FORMS:
        raise ConfigError(f"--to {to}: no such form", hint=near_or_all(to, FORMS))
    if on_bad_row not in ("stop", "skip"):
        raise ConfigError(f"--on-bad-row {on_bad_row}: not one of stop, skip")
    for name in options:
        if name not in _READ:
            raise ConfigError(f"no such option: {name}", hint=near_or_all(name, _READ))
    asked = Options(format="chat" if to in ("hf-chat", "hf-implicit") else "auto", **options)
    if asked.ties == "keep" and to in ("kto", "ab"):
        raise ConfigError(f"--ties keep: {to} has no label for a tie", hint="Choose another form.")
    tell = progress or (lambda what, done, total: None)
    with ExitStack() as stack:
        work = stack.enter_context(place(Path(out), to, asked.overwrite, inputs_of(source)))
        tell("reading", 0, 0)
        planned = opened(source, work, asked)
        if len(planned.splits) > 1 and to in LINES:
            what = f"has the splits {', '.join(planned.splits)}, and {to} is one file"
            raise InputError(what, where=planned.title, hint="Choose one: --input-split NAME")
        machine = engine("local", asked.workers or default_workers())
        stack.callback(machine.close)
        spool, reading = _spooled(machine, planned, to, asked, work, tell)
        looked = _look(machine, spool, to)
        if not looked.keep.all() and (on_bad_row == "stop" or not looked.keep.any()):
            raise _refusal(looked, spool, planned, to, on_bad_row)
        where = np.where(looked.keep, spool.splits(planned), np.int8(-1)).astype(np.int8)
        splits = {name: n for i, name in enumerate(planned.splits) if (n := int((where == i).sum()))}
        changes = looked.changes + spool.sums("changes")
        if to.startswith("hf-"):
            _write_folder(work / NEW, planned, spool, where, splits, machine, to, asked, tell)
            changes.update(spool.drifted())
        else:
            lines = _lines(to, asked, planned, spool, reading, looked)
            if to in LINES:
                with sink(Path(out), work / NEW) as file:
                    _write_lines(file, spool, looked.keep, lines)
            else:
                of_split = {name: where == planned.splits.index(name) for name in splits}
                _write_llamafactory(work / NEW, spool, of_split, lines)
            changes.update(lines.told())
            changes.update(spool.changes)
        listed = _listing(Path(out), work, planned, spool, looked)
        publish(Path(out), work, to)
        kept, told = int(looked.keep.sum()), dict(sorted(changes.items()))
        return Converted(str(out), to, spool.pairs, kept, splits, looked.counts(), listed, told)


# ---------------------------------------------------------------------------------------------- reading


def _spooled(
    machine: Engine, planned: Source, to: str, asked: Options, work: Path, tell: Progress
) -> tuple[Spool, Reading]:  # fmt: skip
    """The pairs, measured by no stage. LLaMA-Factory puts its template around each text: transcripts become turns for it."""
    head, reading, form = detect(planned, asked)
    spool, reading = measure_all(machine, planned, head, reading, form, Pipeline("convert"), asked, work, tell)
    if to == "llamafactory" and spool.form == "text" and TRANSCRIPT in spool.sums("shapes"):
        spool, reading = measure_all(machine, planned, head, reading, "chat", Pipeline("convert"), asked, work, tell)
    return spool, reading


@dataclass
class _Looked:
    """Which pairs can be written, why others cannot (reason and sentence, by number), what is to be told of them."""

    keep: npt.NDArray[np.bool_]
    why: dict[int, tuple[str, str]] = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)
    system: bool = False

    def counts(self) -> dict[str, int]:
        """How many pairs were left out, by reason, the most frequent first."""
        return dict(Counter(reason for reason, _ in self.why.values()).most_common())


def _look(machine: Engine, spool: Spool, to: str) -> _Looked:
    checked = to if spool.form == "chat" and to in ("hf-text", "hf-implicit", "llamafactory") else ""
    out = _Looked(np.ones(spool.pairs, bool))
    tasks = [(t.spool, checked) for t, m in zip(spool.tasks, spool.measured, strict=True) if m.pairs]
    starts = [s for s, m in zip(spool.starts, spool.measured, strict=True) if m.pairs]
    for start, (wrong, told, system) in zip(starts, machine.map(look, tasks, lambda i, got: None), strict=True):
        out.why |= {start + i: (reason, detail) for i, reason, detail in wrong}
        out.changes.update(told)
        out.system = out.system or system
    out.keep[list(out.why)] = False
    return out


def look(task: tuple[str, str]) -> tuple[list[tuple[int, str, str]], Counter[str], bool]:
    """What of a spool part cannot be written (place, reason, sentence), what is to be told, whether there is a system text."""
    path, to = task
    table = schema.mapped(path)
    faults = zip(table.column(FAULT).to_pylist(), table.column(DETAIL).to_pylist(), strict=True)
    wrong = [(i, fault, detail) for i, (fault, detail) in enumerate(faults) if fault is not None]
    told: Counter[str] = Counter()
    system, no_pairs = False, {i for i, *_ in wrong}
    if to:
        for i, texts in enumerate(zip(*(table.column(s).to_pylist() for s in SIDES), strict=True)):
            if i not in no_pairs:
                prompt, chosen, rejected = map(orjson.loads, texts)
                try:
                    told.update(check(to, prompt, chosen, rejected))
                except NoPlace as error:
                    wrong.append((i, str(error), f"{to} has no place for {error}"))
                system = system or prompt[0]["role"] in ("system", "developer")
    return wrong, told, system


def _refusal(looked: _Looked, spool: Spool, planned: Source, to: str, on_bad_row: str) -> InputError:
    """``a.jsonl: 3 of 40 pairs cannot be written as kto (parse_error 2, tie 1). The first is a.jsonl:7: not valid JSON ...``."""
    counts = looked.counts()
    shown = [f"{reason} {n:,}" for reason, n in counts.items()]
    first = min(looked.why)
    row = spool.rows([first])[0]
    place = f"{row.file} row {row.pd_id}" if row.line is None else f"{row.file}:{row.line}"
    what = f"{len(looked.why):,} of {spool.pairs:,} pairs cannot be written as {to} ({', '.join(shown)}). The first is {place}: {looked.why[first][1]}"
    other = any(f"{to} has no place" in detail for _, detail in looked.why.values())
    ways = ["--on-bad-row skip leaves them out and lists them" if on_bad_row == "stop" else "Nothing is left to write"]
    ways += ["--to hf-chat or jsonl holds what this form cannot"] if other else []
    ways += [] if other and len(counts) == 1 else ["prefdata audit tells more of rows that are no pair"]
    return InputError(what, where=planned.title, hint="; ".join(ways) + ".")


# ---------------------------------------------------------------------------------------------- writing


def _lines(to: str, asked: Options, planned: Source, spool: Spool, reading: Reading, looked: _Looked) -> Lines:
    """What writes these pairs. Columns that speak of the answers in the order or in the words of the source (labels, models,
    scores) get other names in forms that have an order and words of their own.
    """
    there = [c for c in reading.layouts if c.shape != "pair_columns"] if to in ("kto", "ab") else []
    of_source = frozenset(name for c in there for part in c.parts for name in c.all(part))
    lines = Lines(to, spool.form, spool.schema, asked.seed, spool.pairs, planned.title, looked.system, of_source)
    part, ids, _ = next(_parts(spool, looked.keep))
    return safe(lines, part, ids)


def _write_lines(file: IO[bytes], spool: Spool, mine: npt.NDArray[np.bool_], lines: Lines) -> None:
    for part, ids, numbers in _parts(spool, mine):
        file.write(b"".join(lines.of(part, ids, numbers)))


def _write_llamafactory(new: Path, spool: Spool, of_split: Mapping[str, npt.NDArray[np.bool_]], lines: Lines) -> None:
    """A file a split, and the one that tells LLaMA-Factory of them."""
    more = ("tools", "images") if spool.form == "chat" else ("images",)
    columns = ["chosen", "rejected", *(c for c in more if c in lines.names), *(["system"] if lines.system else [])]
    known: dict[str, Any] = {}
    for split, mine in of_split.items():
        name = f"data/{split}.jsonl"
        with whole(new / name) as path, path.open("wb") as file:
            _write_lines(file, spool, mine, lines)
        entry = sharegpt.entry(name, columns, None if spool.form == "chat" else "instruction")
        known[f"prefs_{split}" if known else "prefs"] = entry
    put(new / INFO, output.dump(known))


def _parts(spool: Spool, mine: npt.NDArray[np.bool_]) -> Iterator[tuple[pa.Table, list[str], list[int]]]:
    """These pairs, part by part, with their ids and numbers."""
    for task, start, m in zip(spool.tasks, spool.starts, spool.measured, strict=True):
        local = np.flatnonzero(mine[start : start + m.pairs])
        if len(local):
            table = schema.mapped(task.spool).take(pa.array(local))
            if FILE not in table.column_names:
                table = table.append_column(FILE, pa.array([task.file_name] * len(table), pa.string()))
            yield table, with_own(table, spool.ids(local + start)).to_pylist(), (local + start).tolist()


def _write_folder(
    new: Path, planned: Source, spool: Spool, where: npt.NDArray[np.int8], splits: Mapping[str, int], machine: Engine,
    to: str, asked: Options, tell: Progress,
) -> None:  # fmt: skip
    """Parquet parts and a card, as ``clean`` writes them."""
    form = to.removeprefix("hf-")
    written = "single" if form == "text" and spool.form == "chat" else form
    files = publish_all(machine, spool, None, where, planned.splits, new, written, tell)
    card = output.front_matter(f"{planned.title}, pairs", splits, asked.license, files)
    said = f"{sum(splits.values()):,} preference pairs ({form} form), converted by prefdata {version('prefdata')}; nothing was judged."
    put(new / "README.md", "\n".join([*card, said, "", *(output.NO_LICENSE if asked.license is None else [])]))


def _listing(out: Path, work: Path, planned: Source, spool: Spool, looked: _Looked) -> str | None:
    """Write what was left out, each pair with its place and its reason; returns the name of the file."""
    if not looked.why or str(out) == "-":
        return None
    lines = Lines("skipped", spool.form, spool.schema, 0, spool.pairs, planned.title)
    with (work / SKIPPED).open("wb") as file:
        for part, ids, numbers in _parts(spool, ~looked.keep):
            told = zip(*(part.column(n).to_pylist() for n in (FILE, LINE, RAW)), strict=True)
            for number, line, (name, at, raw) in zip(numbers, lines.of(part, ids, numbers), told, strict=True):
                code, reason = looked.why[number]
                why = {"pd_file": name, "pd_line": at, "pd_code": code, "pd_reason": reason, "pd_raw": raw}
                file.write(line[:-2] + b"," + orjson.dumps(why)[1:] + b"\n")
    return str(skipped(out))
