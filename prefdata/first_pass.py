"""The first pass: having all chunks measured, and using again what an earlier run has measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from prefdata import words
from prefdata.cutting import Source
from prefdata.engines import Engine
from prefdata.errors import InputError
from prefdata.grouping import group
from prefdata.making import Form
from prefdata.measuring import Measured, MeasureTask, measure
from prefdata.pipeline import Pipeline
from prefdata.reading import read
from prefdata.result import Options, Progress
from prefdata.shapes import Reading, find_reading
from prefdata.spool import Spool
from prefdata.stage import Stage

_SETS, _SAMPLE = 100, 20  # combinations of columns that are looked at, and rows of each
_WHY = {
    "version": "they were made by another version", "files": "the input has changed", "reading": "the columns are read in another way",
    "form": "the columns are read in another way", "limit": "--limit is another", "stop": "--on-bad-row is another",
    "split": "--input-split is another", "encoding": "--encoding is another",
}  # fmt: skip


def measure_all(
    machine: Engine, planned: Source, head: Sequence[dict[str, Any]], reading: Reading, form: Form, pipeline: Pipeline,
    options: Options, work: Path, tell: Progress,
) -> tuple[Spool, Reading]:  # fmt: skip
    """The first pass over all chunks; once more where a later row shows what the first ones did not: that the set is
    chat, or columns of a known name.
    """
    began, first = [repr(reading), form], True
    while True:
        cut = group(planned, reading, work, options.chunk_bytes) if reading.grouped else planned
        tasks = _tasks(cut, reading, form, pipeline, options, work, began)
        notes = [_note(task) for task in tasks]
        led = _led_on(tasks, notes) if first else None
        measured = led or _measure(machine, tasks, notes, pipeline, tell)
        first = False
        sets = list(dict.fromkeys(tuple(s) for m in measured for s in m.sets))
        names = dict.fromkeys(n for some in sets for n in some)
        head = [*head, *_of_new_sets(tasks, measured, head)]
        there = {n for c in reading.layouts for n in c.needs} <= names.keys()
        found = find_reading(list(names), reading.asked, head, planned.title, sets) if there else reading
        chat = any(m.needs_chat for m in measured)
        if led is None and found == reading and not chat:
            break
        reading, form = found, "chat" if chat else form
    reading.check_used()
    if not sum(m.pairs for m in measured):
        raise InputError("no rows", where=planned.title, hint="The file is empty or holds blank lines only.")
    lacks = [lacking(task, note) for task, note in zip(tasks, notes, strict=True)]
    why = Counter(text for text in lacks if text).most_common(1)
    return Spool(tasks, measured, form, cut.changes, lacks.count(""), why[0][0] if why else ""), reading


def _note(task: MeasureTask) -> dict[str, Any] | None:
    """What an earlier run noted of this chunk; None if it has left no whole parts of it."""
    try:
        note: dict[str, Any] = json.loads(Path(task.note).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return note if Path(task.spool).exists() and Path(task.signals).exists() else None


def lacking(task: MeasureTask, note: dict[str, Any] | None) -> str | None:
    """Why the parts of an earlier run do not hold all that this task would measure; empty if they do, None without any."""
    if note is None:
        return None
    base, stages = note["key"]["base"], note["key"]["stages"]
    if other := [k for k, v in task.key["base"].items() if base.get(k) != v]:
        return next((_WHY[k] for k in _WHY if k in other), "the input is cut in other places")
    for name, mark in task.key["stages"].items():
        if name not in stages:
            return f"{name} was not measured"
        if stages[name] != mark:
            moved = [k for k, v in mark["reads"].items() if stages[name]["reads"].get(k) != v]
            return f"{name} measures by {', '.join(moved)}" if moved else f"what {name} reads has changed"
    return ""


def _led_on(tasks: Sequence[MeasureTask], notes: Sequence[dict[str, Any] | None]) -> list[Measured] | None:
    """What a run that began as this one does has noted after later rows had led it to another reading or form."""
    out = []
    for task, note in zip(tasks, notes, strict=True):
        if note is None or note["key"]["began"] != task.key["began"]:
            return None
        was, now = note["key"]["base"], task.key["base"]
        other = {k for k in now if was.get(k) != now[k]}
        if not other or other - {"reading", "form"}:
            return None
        out.append(Measured(**{**note["measured"], "needs_chat": was["form"] == "chat" != now["form"]}))
    return out


def _of_new_sets(
    tasks: Sequence[MeasureTask], measured: Sequence[Measured], head: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """A few rows of each combination of columns that the first rows do not have: what a label means is told by values."""
    known, out = {tuple(r) for r in head}, list[dict[str, Any]]()
    for task, m in zip(tasks, measured, strict=True):
        new = {tuple(s) for s in m.sets} - known
        if new and task.chunk.kind in ("lines", "documents", "groups") and len(known) < _SETS:
            rows = [r for r in read(task.chunk).dicts if tuple(r) in new]
            out += [r for s in sorted(new) for r in [r for r in rows if tuple(r) == s][:_SAMPLE]]
            known |= new
    return out


def _tasks(
    planned: Source, reading: Reading, form: Form, pipeline: Pipeline, options: Options, work: Path, began: list[str]
) -> list[MeasureTask]:
    """A task a chunk; its key says what its parts depend on."""
    base = {
        "version": version("prefdata"), "files": [f.sha256 for f in planned.files], "reading": repr(reading),
        "form": form, "limit": options.limit, "stop": options.on_bad_row, "chunk_bytes": options.chunk_bytes, "split": options.input_split, "encoding": options.encoding,
    }  # fmt: skip
    marks = {}
    for stage, (name, parameters) in zip(pipeline.stages, pipeline.specs, strict=True):
        reads = {field: value for field, value in parameters.items() if field in stage.measured}
        mark = {"stage": type(stage).__module__, "reads": reads, "files": stage.depends_on()}
        if type(stage).measure is not Stage.measure:  # others may be added at any time
            marks[name] = mark
    return [
        MeasureTask(
            chunk, reading, form, tuple(pipeline.specs), options.on_bad_row == "stop", planned.files[chunk.file].name,
            tuple(f.name for f in planned.files), str(work / f"spool-{chunk.index:05d}.arrow"), str(work / f"signals-{chunk.index:05d}.arrow"),
            str(work / f"measured-{chunk.index:05d}.json"),
            {"base": {**base, "chunk": [chunk.start, chunk.stop, chunk.group]}, "stages": marks, "began": began},
        )
        for chunk in planned.chunks
    ]  # fmt: skip


def _measure(
    machine: Engine, tasks: list[MeasureTask], notes: Sequence[dict[str, Any] | None], pipeline: Pipeline, tell: Progress
) -> list[Measured]:  # fmt: skip
    """What is known of each chunk, measuring those that no earlier run has measured."""
    both = enumerate(zip(tasks, notes, strict=True))
    measured = {i: Measured(**note["measured"]) for i, (task, note) in both if note and not lacking(task, note)}
    todo = [i for i in range(len(tasks)) if i not in measured]
    rows = sum(m.rows for m in measured.values())
    tell("reading", rows, 0)

    def done(i: int, got: Measured) -> None:
        nonlocal rows
        measured[todo[i]] = got
        rows += got.rows
        tell("reading", rows, round(rows * len(tasks) / len(measured)))

    if todo:
        machine.map(measure, [tasks[i] for i in todo], done, lambda: _warm(pipeline))
    return [measured[i] for i in range(len(tasks))]


def _warm(pipeline: Pipeline) -> None:
    pa.array([""])  # the first array of a process makes Arrow import pandas
    words.warm()
    for stage in pipeline.stages:
        stage.warm()
