"""The first pass, a function of one chunk that any engine can map: read it, make pairs, ask every stage for its signals.

It leaves a spool part (the rows) and a signals part (numbers).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from prefdata import schema
from prefdata.errors import InputError, located
from prefdata.files import put, whole
from prefdata.frame import measure_pairs, uncollected
from prefdata.making import Form, Made, make
from prefdata.pairs import SIDES, Fault, Pair, Pairs, dump
from prefdata.reading import BadRow, Block, Chunk, Group, read
from prefdata.shapes import Reading
from prefdata.stage import Stage, stage_class

Spec = tuple[str, dict[str, Any]]  # a stage's name or path, and its parameters: what a worker builds it from

LINE, FAULT, DETAIL, RAW, PLAIN = "pd$line", "pd$fault", "pd$detail", "pd$raw", "pd$plain"
# Of each pair its source row, which of that row's pairs it is (-1: the only one), and, for groups, the row's file.
SOURCE, PART, FILE = "pd$source", "pd$part", "pd$file"
INTERNAL = LINE, FAULT, DETAIL, RAW, PLAIN, SOURCE, PART, FILE
VERDICT = tuple(f"pd_{n}" for n in ("file", "line", "stage", "code", "reason", "score", "limit", "peer", "raw"))
_STOPS = ("parse_error", "encoding_error", "missing_field")


@dataclass(frozen=True)
class MeasureTask:
    """One chunk to measure; parts are written to ``spool`` and ``signals``, and then ``note`` tells that they are whole."""

    chunk: Chunk
    reading: Reading
    form: Form
    stages: tuple[Spec, ...]
    stop_on_bad: bool
    file_name: str
    file_names: tuple[str, ...]  # of the whole input
    spool: str
    signals: str
    note: str
    key: dict[str, Any]


@dataclass
class Measured:
    """What the run must know of a measured chunk."""

    pairs: int = 0
    rows: int = 0
    sets: list[list[str]] = field(default_factory=list)  # the columns of its rows, each combination once
    one_to_one: bool = True  # whether each row gave one pair
    as_text: list[str] = field(default_factory=list)  # columns that hold integers beyond 64 bits
    several: list[str] = field(default_factory=list)  # columns that became JSON since their values are of several types
    needs_chat: bool = False
    shapes: dict[str, int] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)  # rows by the number of their file
    tally: dict[str, int] = field(default_factory=dict)  # see ``making.Made``
    seconds: dict[str, float] = field(default_factory=dict)


def build(specs: Sequence[Spec]) -> list[Stage]:
    """The stages of these specs."""
    return [stage_class(name)(**parameters) for name, parameters in specs]


@uncollected()
def measure(task: MeasureTask) -> Measured:
    """Measure one chunk. A chunk that needs the other form says so and leaves nothing."""
    clock = Clock()
    block = read(task.chunk)
    schema.check_names(block.names, task.file_name)
    clock("reading")
    with located(task.file_name):
        made = make(block, task.reading, task.form)
    grouped = Counter(str(f) for r in block.rows if type(r) is Group for f in r.files)
    files = dict(grouped) or {str(task.chunk.file): len(block.rows)}
    out = Measured(len(made.pairs), sum(files.values()), block.sets, made.source is None, files=files)
    out.shapes, out.changes, out.tally = dict(made.shapes), dict(made.changes), dict(made.tally)
    clock("shapes")
    if made.needs_chat:
        out.needs_chat = True
        return out
    if task.stop_on_bad:
        _stop_at_bad(made, task.file_name)
    strings = _strings(task, made)
    spool = _spool(task, block, made, strings, out)
    plain = [True] * len(spool) if task.form == "text" else [p is None or _is_plain(p) for p in made.pairs]
    spool = spool.append_column(PLAIN, pa.array(plain, pa.bool_()))
    _write(spool, task.spool)
    clock("spool")
    if task.stages:  # without any, only the pairs are wanted
        _write(_signals(task, made, spool, strings, clock), task.signals)
        clock("signals")
    out.seconds = clock.spent
    put(Path(task.note), orjson.dumps({"key": task.key, "measured": asdict(out)}))
    return out


def _signals(task: MeasureTask, made: Made, spool: pa.Table, strings: dict[str, list[Any]], clock: Clock) -> pa.Table:
    """What the stages measure of the sound pairs, and nulls for the others."""
    sound = [i for i, f in enumerate(made.faults) if f is None]
    signals = measure_pairs(_batch(task, spool, made.pairs, strings, sound), build(task.stages), clock)
    if task.reading.scored:
        scores = [((p := made.pairs[i]) and p.scores) or (None, None) for i in sound]
        for at, side in enumerate(("chosen", "rejected")):
            signals = signals.append_column(f"pair.score_{side}", pa.array([s[at] for s in scores], pa.float64()))
    if task.reading.ordered:
        places = [None if (p := made.pairs[i]) is None else p.position for i in sound]
        signals = signals.append_column("pair.position", pa.array(places, pa.int8()))
    if task.reading.asked.ties == "keep":
        ties = [(p := made.pairs[i]) is not None and p.tie for i in sound]
        signals = signals.append_column("pair.tie", pa.array(ties, pa.bool_()))
    if task.reading.marked:
        mirrors = [type(r) is dict and task.reading.mirror(r) for r in (made.rows[i] for i in sound)]
        signals = signals.append_column("pair.reversed", pa.array(mirrors, pa.bool_()))
    if len(sound) < len(made.pairs):
        place = np.full(len(made.pairs), -1)
        place[sound] = np.arange(len(sound))
        signals = signals.take(pa.array(place, mask=place < 0))
    return signals.append_column("pair.fault", spool.column(FAULT))


def _stop_at_bad(made: Made, file: str) -> None:
    """Raise InputError for the first bad row."""
    for i, fault in enumerate(made.faults):
        if fault is not None and fault.reason in _STOPS:
            row = i if made.source is None else made.source[i]
            where = file + (f" row {row}" if made.lines[i] is None else f":{made.lines[i]}")
            hint = "--on-bad-row skip lists such rows and goes on."
            raise InputError(f"{fault.reason}: {fault.detail}", where=where, hint=hint)


class Clock:
    """CPU seconds by name: each call books what has passed since the last one."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self.last = time.process_time()

    def __call__(self, name: str) -> None:
        """Book the time since the last call."""
        now = time.process_time()
        self.spent[name] = self.spent.get(name, 0.0) + now - self.last
        self.last = now


def _strings(task: MeasureTask, made: Made) -> dict[str, list[Any]]:
    """Each side of each row as it is spooled: text, or messages as JSON with their keys as they came."""
    if task.form == "text":
        return dict(zip(SIDES, made.texts, strict=True))
    out: dict[str, list[Any]] = {}
    for side in SIDES:
        values = [None if p is None else getattr(p, side) for p in made.pairs]
        for i, messages in enumerate(values):
            try:
                values[i] = None if messages is None else orjson.dumps(messages, option=orjson.OPT_NON_STR_KEYS)
            except TypeError as error:
                values[i] = dump(messages, ordered=False)
                made.faults[i] = Fault("bad_messages", f"{side} {_unwritten(str(error))}")
        out[side] = values
    return out


def _unwritten(error: str) -> str:
    """Why messages cannot be spooled, in our words."""
    if "64-bit" in error:
        return "holds an integer beyond 64 bits, unreadable for datasets"
    return "is nested too deeply" if "ecursion" in error else f"cannot be written as JSON: {error}"


def _spool(task: MeasureTask, block: Block, made: Made, strings: dict[str, list[Any]], out: Measured) -> pa.Table:
    """The rows as they will be written, with what is needed to lead back to them."""
    columns = {side: pa.array(values, pa.string()) for side, values in strings.items()}
    others: dict[str, pa.Array] = {}
    for source in block.names:
        values = _carried(source, task.reading, made)
        if values is None:
            continue
        name = _name_there(source, block.names, task.file_name, len(made.pairs), out)
        if isinstance(values, pa.ChunkedArray) and name == "pd_id":
            values = values.to_pylist()
        if isinstance(values, list):
            if name == "pd_id":
                values = [None if v is None else str(v) for v in values]
            others[name] = _column(source, values, out)
            if others[name].type == schema.JSON and schema.several(values):
                out.several.append(name)
        elif schema.type_holds(values.type, pa.types.is_map):  # which ``datasets`` cannot read
            others[name] = schema.as_json(values.to_pylist())
            out.changes[f"column {source!r} holds maps and is written as JSON (lists of pairs)"] = len(made.pairs)
        else:
            others[name] = schema.whole(values)
        if schema.beyond_64_bits(others[name]):
            out.as_text.append(name)
    for name in dict.fromkeys(n for p in made.pairs if p and p.extra for n in p.extra):
        if name in others:
            what = f"has the column {name!r}, which prefdata makes itself here"
            raise InputError(what, where=task.file_name, hint="Rename it.")
        values = [p.extra.get(name) if p is not None and p.extra else None for p in made.pairs]
        others[name] = _column(name, values, out)
    # A row that gave several pairs is not repeated for each of them that has both answers.
    raw = [_raw(r) if f and not (p and made.source) else None
           for r, p, f in zip(made.rows, made.pairs, made.faults, strict=True)]  # fmt: skip
    inner = {
        LINE: pa.array(made.lines, pa.int64()),
        FAULT: pa.array([f and f.reason for f in made.faults], pa.string()),
        DETAIL: pa.array([f and f.detail for f in made.faults], pa.string()),
        RAW: pa.array(raw, pa.string()),
    }
    if made.source is not None:
        inner |= {SOURCE: pa.array(made.source, pa.int64()), PART: pa.array(made.part, pa.int32())}
    if made.files is not None:
        inner[FILE] = pa.array([task.file_names[f] for f in made.files], pa.string())
    return pa.table(columns | others | inner)


def _column(name: str, values: list[Any], out: Measured) -> pa.Array:
    made = schema.column_of(values)
    if isinstance(made.type, pa.JsonType) and (lost := schema.not_finite(values, made.storage)):
        out.changes[f"NaN or infinity inside column {name!r} written as null"] = lost
    return made


def _carried(source: str, reading: Reading, made: Made) -> list[Any] | pa.ChunkedArray | None:
    """The values of a source column that go beside the pairs; None for a column that is wholly contained in them."""
    if source in reading.taken():
        if len(reading.layouts) == 1:
            return None
        rows = [r if type(r) is dict and source not in reading.layout(r).taken else {} for r in made.rows]
        values = [r.get(source) for r in rows]
        return values if any(v is not None for v in values) else None
    if made.table is not None:
        return made.table.column(source)
    return [r.get(source) if type(r) is dict else None for r in made.rows]


def _name_there(source: str, names: Sequence[str], file: str, n: int, out: Measured) -> str:
    """What a carried column is called in the output; a name that is needed there gets a ``pd_`` in front, which is told."""
    if source not in SIDES and source not in VERDICT:
        return source
    name = f"pd_{source}"
    if name in names:
        raise InputError(f"has the columns {source!r} and {name!r}", where=file, hint="Rename one.")
    if source in SIDES:
        out.changes[f"column {source!r} is carried as {name!r}: the mapping takes its name"] = n
        return name
    out.changes[f"column {source!r} is carried as {name!r} in the dropped rows"] = n
    return source


def _raw(row: dict[str, Any] | BadRow) -> str:
    return row.raw if isinstance(row, BadRow) else dump(row, ordered=False)


def _is_plain(pair: Pair) -> bool:
    """True if all its messages are a role and a text, and nothing else."""
    sides: Any = (pair.prompt, pair.chosen, pair.rejected)
    return all(len(m) == 2 and isinstance(m.get("content"), str) for side in sides for m in side)


def _batch(
    task: MeasureTask, spool: pa.Table, pairs: list[Pair | None], strings: dict[str, list[Any]], sound: list[int]
) -> Pairs:
    """The sound pairs as stages see them."""
    rest = spool.drop_columns([n for n in INTERNAL if n in spool.column_names])
    if len(sound) < len(pairs):
        rest = rest.take(pa.array(sound, pa.int64()))
        strings = {side: [values[i] for i in sound] for side, values in strings.items()}
    columns = {name: schema.whole(rest.column(name)) for name in rest.column_names}
    text = {side: columns.pop(side) for side in SIDES}
    if task.form == "chat":
        kept = [p for i in sound if (p := pairs[i]) is not None]
        tools = columns["tools"].to_pylist() if "tools" in columns else [None] * len(kept)
        for pair, tool in zip(kept, tools, strict=True):
            pair.tools = None if isinstance(tool, str) and not tool.strip() else tool
        return Pairs.of(kept, columns)
    return Pairs(**text, columns=columns, strings=strings)


def _write(table: pa.Table, path: str) -> None:
    """An Arrow file of one batch."""
    with whole(Path(path)) as part, pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
