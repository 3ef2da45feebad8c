"""The first pass, a function of one chunk that any engine can map: read it, make pairs, ask every stage for its signals.

It leaves a spool part (the rows) and a signals part (numbers).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa

from prefdata import schema
from prefdata.errors import InputError
from prefdata.frame import measure_pairs
from prefdata.pairs import SIDES, Fault, Message, Pair, Pairs, Side, dump, fault_of
from prefdata.reading import BadRow, Block, Chunk, read
from prefdata.shapes import Columns, read_row, transcript
from prefdata.stage import Stage, stage_class

Form = Literal["text", "chat"]
Spec = tuple[str, dict[str, Any]]  # a stage's name or path, and its parameters: what a worker builds it from

LINE, _FAULT, DETAIL, RAW, PLAIN = INTERNAL = "pd$line", "pd$fault", "pd$detail", "pd$raw", "pd$plain"
VERDICT = tuple(f"pd_{n}" for n in ("file", "line", "stage", "code", "reason", "score", "limit", "peer", "raw"))
_STOPS = ("parse_error", "encoding_error", "missing_field")


@dataclass(frozen=True)
class MeasureTask:
    """One chunk to measure; parts are written to ``spool`` and ``signals``, and then ``note`` tells that they are whole."""

    chunk: Chunk
    columns: Columns
    form: Form
    stages: tuple[Spec, ...]
    stop_on_bad: bool
    file_name: str
    spool: str
    signals: str
    note: str
    key: dict[str, Any]


@dataclass
class Measured:
    """What the run must know of a measured chunk."""

    pairs: int = 0
    rows: int = 0
    names: list[str] = field(default_factory=list)  # columns of the source
    schema: str = ""
    as_text: list[str] = field(default_factory=list)  # columns that hold integers beyond 64 bits
    needs_chat: str = ""
    shapes: dict[str, int] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def build(specs: Sequence[Spec]) -> list[Stage]:
    """The stages of these specs."""
    return [stage_class(name)(**parameters) for name, parameters in specs]


def measure(task: MeasureTask) -> Measured:
    """Measure one chunk. A chunk that needs the other form says so and leaves nothing."""
    clock = Clock()
    block = read(task.chunk)
    schema.check_names(block.names, task.file_name)
    clock("reading")
    out = Measured(rows=len(block.rows), names=block.names)
    pairs, faults = _read_pairs(task, block, out)
    clock("shapes")
    if out.needs_chat:
        return out
    strings = _strings(task, pairs, faults)
    sound = [i for i, f in enumerate(faults) if f is None]
    spool = _spool(task, block, strings, faults, out)
    spool = spool.append_column(PLAIN, pa.array([p is None or _is_plain(p) for p in pairs], pa.bool_()))
    batch = _batch(task, spool, pairs, strings, sound)
    _write(spool, task.spool)
    clock("spool")
    signals = measure_pairs(batch, build(task.stages), clock)
    for name, side in zip(("pair.score_chosen", "pair.score_rejected"), task.columns.scores or (), strict=False):
        signals = signals.append_column(name, pa.array([_number(block.rows[i], side) for i in sound], pa.float64()))
    if len(sound) < len(pairs):
        place = np.full(len(pairs), -1)
        place[sound] = np.arange(len(sound))
        signals = signals.take(pa.array(place, mask=place < 0))
    signals = signals.append_column("pair.fault", spool.column(_FAULT))
    _write(signals.combine_chunks(), task.signals)
    clock("signals")
    out.seconds = clock.spent
    note = Path(task.note)
    note.with_suffix(".part").write_bytes(orjson.dumps({"key": task.key, "measured": asdict(out)}))
    note.with_suffix(".part").rename(note)
    return out


def _read_pairs(task: MeasureTask, block: Block, out: Measured) -> tuple[list[Pair | None], list[Fault | None]]:
    """A pair or a fault of each row (a pair may have one too); stops at the first that needs the other form."""
    shapes: Counter[str] = Counter()
    changes: Counter[str] = Counter(block.changes)
    pairs: list[Pair | None] = []
    faults: list[Fault | None] = []
    for at, row in enumerate(block.rows):
        pair: Pair | None = None
        fault: Fault | None
        name = ""
        if isinstance(row, BadRow):
            fault = row.fault
        else:
            name, got = read_row(row, task.columns)
            shapes[name] += 1
            if isinstance(got, Fault):
                fault = got
            else:
                pair, fault = got, fault_of(got, row)
                changes.update(got.changes)
        if fault is not None and task.stop_on_bad and fault.reason in _STOPS:
            hint = "--on-bad-row skip lists such rows and goes on."
            raise InputError(f"{fault.reason}: {fault.detail}", where=_where(task, block, at), hint=hint)
        if pair is not None and task.form == "chat":
            if isinstance(pair.prompt, str):
                changes["text to messages"] += 1
            pair = to_chat(transcript.to_messages(pair) if name == transcript.NAME else pair)
        elif pair is not None and not isinstance(pair.prompt, str):
            out.needs_chat = _where(task, block, at)
            break
        pairs.append(pair)
        faults.append(fault)
    out.pairs, out.shapes, out.changes = len(pairs), dict(shapes), dict(changes)
    return pairs, faults


def _where(task: MeasureTask, block: Block, at: int) -> str:
    line = block.lines[at]
    return task.file_name + (f" row {at}" if line is None else f":{line}")


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


def to_chat(pair: Pair) -> Pair:
    """The pair with messages on all sides; texts become one user and one assistant message."""
    if isinstance(pair.prompt, str) or isinstance(pair.chosen, str) or isinstance(pair.rejected, str):
        return Pair(
            _turn(pair.prompt, "user"), _turn(pair.chosen, "assistant"), _turn(pair.rejected, "assistant"), pair.changes
        )
    return pair


def _turn(side: Side, role: str) -> list[Message]:
    return [{"role": role, "content": side}] if isinstance(side, str) else side


def _number(row: Any, column: str) -> float | None:
    try:
        return float(row[column])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _strings(task: MeasureTask, pairs: list[Pair | None], faults: list[Fault | None]) -> dict[str, list[Any]]:
    """Each side of each row as it is spooled: text, or messages as JSON with their keys as they came."""
    out: dict[str, list[Any]] = {}
    for side in SIDES:
        values = [None if p is None else getattr(p, side) for p in pairs]
        if task.form == "chat":
            for i, messages in enumerate(values):
                try:
                    values[i] = None if messages is None else orjson.dumps(messages, option=orjson.OPT_NON_STR_KEYS)
                except TypeError as error:
                    values[i] = dump(messages, ordered=False)
                    faults[i] = Fault("bad_messages", f"{side} {_unwritten(str(error))}")
        out[side] = values
    return out


def _unwritten(error: str) -> str:
    """Why messages cannot be spooled, in our words."""
    if "64-bit" in error:
        return "holds an integer beyond 64 bits, unreadable for datasets"
    return "is nested too deeply" if "ecursion" in error else f"cannot be written as JSON: {error}"


def _spool(
    task: MeasureTask, block: Block, strings: dict[str, list[Any]], faults: list[Fault | None], out: Measured
) -> pa.Table:
    """The rows as they will be written, with what is needed to lead back to them."""
    columns = {side: pa.array(values, pa.string()) for side, values in strings.items()}
    others: dict[str, pa.Array] = {}
    consumed = task.columns.consumed()
    for source in block.names:
        if source in consumed:
            continue
        name = source
        if source in SIDES:
            name = f"pd_{source}"
            if name in block.names:
                raise InputError(f"has the columns {source!r} and {name!r}", where=task.file_name, hint="Rename one.")
            out.changes[f"column {source!r} is carried as {name!r}: the mapping takes its name"] = len(faults)
        elif source in VERDICT:
            name_there = f"pd_{source}"
            if name_there in block.names:
                what = f"has the columns {source!r} and {name_there!r}"
                raise InputError(what, where=task.file_name, hint="Rename one.")
            out.changes[f"column {source!r} is carried as {name_there!r} in the dropped rows"] = len(faults)
        if block.table is None or name == "pd_id":
            values = [r.get(source) if type(r) is dict else None for r in block.rows]
            if name == "pd_id":
                values = [None if v is None else str(v) for v in values]
            others[name] = schema.column_of(values)
            if isinstance(others[name].type, pa.JsonType) and (lost := schema.not_finite(values, others[name].storage)):
                out.changes[f"NaN or infinity inside column {source!r} written as null"] = lost
        elif schema.holds_map(block.table.schema.field(source).type):
            others[name] = schema.as_json(block.table.column(source).to_pylist())
            out.changes[f"column {source!r} holds maps and is written as JSON (lists of pairs)"] = len(faults)
        else:
            others[name] = schema.whole(block.table.column(source))
        if schema.beyond_64_bits(others[name]):
            out.as_text.append(name)
    out.schema = schema.to_text(pa.schema([(n, c.type) for n, c in others.items()]))
    found = [(f, r) if f is not None else (None, None) for f, r in zip(faults, block.rows, strict=True)]
    return pa.table(columns | others | {
        LINE: pa.array(block.lines, pa.int64()),
        _FAULT: pa.array([f and f.reason for f, _ in found], pa.string()),
        DETAIL: pa.array([f and f.detail for f, _ in found], pa.string()),
        RAW: pa.array([None if r is None else _raw(r) for _, r in found], pa.string()),
    })  # fmt: skip


def _raw(row: dict[str, Any] | BadRow) -> str:
    return row.raw if isinstance(row, BadRow) else dump(row, ordered=False)


def _is_plain(pair: Pair) -> bool:
    """True if all its messages are a role and a text, and nothing else."""
    for side in (pair.prompt, pair.chosen, pair.rejected):
        if isinstance(side, list):
            for message in side:
                if len(message) != 2 or not isinstance(message.get("content"), str):
                    return False
    return True


def _batch(
    task: MeasureTask, spool: pa.Table, pairs: list[Pair | None], strings: dict[str, list[Any]], sound: list[int]
) -> Pairs:
    """The sound pairs as stages see them."""
    rest = spool.drop_columns(list(INTERNAL))
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
    """An Arrow file of one batch, complete or not there."""
    target = Path(path)
    part = target.with_suffix(".part")
    with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)
    part.rename(target)
