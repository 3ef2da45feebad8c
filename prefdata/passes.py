"""The two passes over the text, each a function of one chunk that any engine can map.

``measure``: read, make pairs, ask every stage for its signals; leaves a spool part and a signals part.
``publish``: carry the decisions out on a spool part; leaves Parquet parts of the dataset and of the dropped rows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from prefdata import schema
from prefdata.errors import InputError
from prefdata.frame import measure_pairs
from prefdata.pairs import SIDES, Fault, Message, Pair, Pairs, Side, fault_of
from prefdata.reading import BadRow, Block, Chunk, read
from prefdata.shapes import Columns, read_row
from prefdata.stage import Stage, stage_class

Form = Literal["text", "chat"]
Spec = tuple[str, dict[str, Any]]  # a stage's name or path, and its parameters: what a worker builds it from

MESSAGES = pa.list_(pa.field("element", pa.struct([("role", pa.string()), ("content", pa.string())])))
_LINE, _FAULT, _DETAIL, _RAW, PLAIN = "pd$line", "pd$fault", "pd$detail", "pd$raw", "pd$plain"
_STOPS = ("parse_error", "encoding_error", "missing_field")
INTERNAL = (_LINE, _FAULT, _DETAIL, _RAW, PLAIN)


@dataclass(frozen=True)
class MeasureTask:
    """One chunk to measure; parts are written to ``spool`` and ``signals``, and then ``note`` tells that they are whole."""

    chunk: Chunk
    columns: Columns
    scores: tuple[str, str] | None
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
    schema: str = ""
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
    clock("reading")
    out = Measured(rows=len(block.rows))
    shapes: Counter[str] = Counter()
    changes: Counter[str] = Counter()
    pairs: list[Pair | None] = []
    faults: list[Fault | None] = []
    for at, row in enumerate(block.rows):
        pair: Pair | None
        fault: Fault | None
        if type(row) is BadRow:
            pair, fault = None, row.fault
        else:
            assert isinstance(row, dict)
            name, got = read_row(row, task.columns)
            shapes[name] += 1
            if isinstance(got, Fault):
                pair, fault = None, got
            else:
                if got.changes:
                    changes.update(got.changes)
                pair, fault = got, fault_of(got, row)
        if fault is not None and task.stop_on_bad and fault.reason in _STOPS:
            where = _where(task, block, at)
            raise InputError(
                f"{fault.reason}: {fault.detail}", where=where, hint="--on-bad-row skip lists such rows and goes on."
            )
        if pair is not None and task.form == "chat":
            pair = to_chat(pair)
        elif pair is not None and not isinstance(pair.prompt, str):
            out.needs_chat = _where(task, block, at)
            return out
        pairs.append(pair)
        faults.append(fault)
    out.pairs, out.shapes, out.changes = len(pairs), dict(shapes), dict(changes)
    clock("shapes")

    spool = _spool(task, block, pairs, faults)
    out.schema = schema.to_text(pa.schema([f for f in spool.schema if f.name not in INTERNAL and f.name not in SIDES]))
    sound = [i for i, f in enumerate(faults) if f is None]
    batch = _batch(task, spool, pairs, sound)
    _write(spool, task.spool)
    clock("spool")
    signals = measure_pairs(batch, build(task.stages), clock)
    if task.scores is not None:
        for name, side in zip(("pair.score_chosen", "pair.score_rejected"), task.scores, strict=True):
            signals = signals.append_column(name, pa.array([_number(block.rows[i], side) for i in sound], pa.float64()))
    if len(sound) < len(pairs):
        place = np.full(len(pairs), -1)
        place[sound] = np.arange(len(sound))
        signals = signals.take(pa.array(place, mask=place < 0))
    reasons = [None if f is None else f.reason for f in faults]
    signals = signals.append_column("pair.fault", pa.array(reasons, pa.string()))
    _write(signals.combine_chunks(), task.signals)
    clock("signals")
    out.seconds = clock.spent
    note = Path(task.note)
    note.with_suffix(".part").write_bytes(orjson.dumps({"key": task.key, "measured": asdict(out)}))
    note.with_suffix(".part").rename(note)
    return out


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
    except (KeyError, TypeError, ValueError):
        return None


def _spool(task: MeasureTask, block: Block, pairs: list[Pair | None], faults: list[Fault | None]) -> pa.Table:
    """The rows as they will be written, with what is needed to lead back to them."""
    plain = np.ones(len(pairs), bool)
    columns: dict[str, pa.Array] = {}
    for side in SIDES:
        values = [None if p is None else getattr(p, side) for p in pairs]
        if task.form == "chat":
            plain &= np.fromiter((v is None or _is_plain(v) for v in values), bool, len(values))
            values = [None if v is None else orjson.dumps(v).decode() for v in values]
        columns[side] = pa.array(values, pa.string())
    used = task.columns.consumed() | set(SIDES)
    if block.table is not None:
        for name in block.table.column_names:
            if name not in used:
                column = block.table.column(name).combine_chunks()
                columns[name] = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    else:
        names = dict.fromkeys(n for r in block.rows if type(r) is dict for n in r)
        for name in names:
            if name not in used:
                values = [None if type(r) is BadRow else r.get(name) for r in block.rows]  # type: ignore[union-attr]
                columns[name] = schema.column_of(_exact(values, block, name))
    columns[_LINE] = pa.array(block.lines, pa.int64())
    columns[_FAULT] = pa.array([None if f is None else f.reason for f in faults], pa.string())
    columns[_DETAIL] = pa.array([None if f is None else f.detail for f in faults], pa.string())
    columns[_RAW] = pa.array(
        [None if f is None else _raw(r) for f, r in zip(faults, block.rows, strict=True)], pa.string()
    )
    columns[PLAIN] = pa.array(plain)
    return pa.table(columns)


def _exact(values: list[Any], block: Block, name: str) -> list[Any]:
    """Integers beyond 64 bits come out of the fast parser as floats: read those rows again, digit by digit."""
    if block.texts is not None and any(type(v) is float and abs(v) >= 2.0**63 for v in values):
        import json

        for i, v in enumerate(values):
            if type(v) is float and abs(v) >= 2.0**63:
                values[i] = json.loads(block.texts[i])[name]
    return values


def _raw(row: dict[str, Any] | BadRow) -> str:
    return row.raw if type(row) is BadRow else orjson.dumps(row, default=str).decode()


def _is_plain(messages: list[Message]) -> bool:
    return all(m.keys() == {"role", "content"} and isinstance(m["content"], str) for m in messages)


def _batch(task: MeasureTask, spool: pa.Table, pairs: list[Pair | None], sound: list[int]) -> Pairs:
    """The sound pairs as stages see them."""
    rest = spool if len(sound) == len(pairs) else spool.take(pa.array(sound, pa.int64()))
    columns = {n: rest.column(n).combine_chunks() for n in rest.column_names if n not in INTERNAL and n not in SIDES}
    kept = [p for i in sound if (p := pairs[i]) is not None]
    if task.form == "chat":
        tools = columns["tools"].to_pylist() if "tools" in columns else [None] * len(kept)
        for pair, tool in zip(kept, tools, strict=True):
            pair.tools = orjson.loads(tool) if isinstance(tool, str) and tool.strip() else tool
        return Pairs.of(kept, columns)
    text = {side: rest.column(side).combine_chunks() for side in SIDES}
    text = {k: v.chunk(0) if isinstance(v, pa.ChunkedArray) else v for k, v in text.items()}
    strings = {side: [getattr(p, side) for p in kept] for side in SIDES}
    return Pairs(**text, columns=columns, strings=strings)


def _write(table: pa.Table, path: str) -> None:
    """An Arrow file of one batch, complete or not there."""
    target = Path(path)
    part = target.with_suffix(".part")
    with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)
    part.rename(target)


# ---------------------------------------------------------------------------------------------- second pass


@dataclass(frozen=True)
class PublishTask:
    """One spool part to carry the decisions out on. Arrays have one entry a pair of the part."""

    spool: str
    start: int
    file_name: str
    form: Literal["text", "chat", "implicit"]
    plain: tuple[bool, bool]  # whether all messages of the kept, and of the dropped rows are a role and a text only
    schema: str
    splits: tuple[str, ...]
    targets: tuple[str, ...]  # the Parquet part of each split, "" where the part keeps none of its rows
    dropped: str
    split: npt.NDArray[np.int8]  # index into ``splits``, -1 for a dropped row
    swapped: npt.NDArray[np.bool_]
    verdict: Mapping[str, Any]  # of the dropped rows: stage, code, score, limit, peer


def publish(task: PublishTask) -> list[str]:
    """Write this part's rows of each split, and its dropped rows; returns the files written."""
    table = pa.ipc.open_file(pa.memory_map(task.spool)).read_all()
    ids = _ids(table, task.start)
    if task.swapped.any():
        pick = pa.array(task.swapped)
        chosen, rejected = (table.column(s).combine_chunks() for s in ("chosen", "rejected"))
        table = table.set_column(1, "chosen", pa.compute.if_else(pick, rejected, chosen))
        table = table.set_column(2, "rejected", pa.compute.if_else(pick, chosen, rejected))
    rest = schema.from_text(task.schema)
    written = []
    for i, target in enumerate(task.targets):
        if target:
            mask = pa.array(task.split == i)
            part = table.filter(mask)
            columns = _sides(part, task, task.plain[0]) | _others(part, rest) | {"pd_id": ids.filter(mask)}
            _parquet(pa.table(columns), target)
            written.append(target)
    if task.dropped:
        mask = pa.array(task.split < 0)
        part = table.filter(mask)
        v = task.verdict
        reasons = [d or _sentence(c, s, li, p) for d, c, s, li, p in zip(
            part.column(_DETAIL).to_pylist(), v["code"], v["score"], v["limit"], v["peer"], strict=True)]  # fmt: skip
        columns = _sides(part, task, task.plain[1]) | _others(part, rest) | {
            "pd_id": ids.filter(mask),
            "pd_file": pa.array([task.file_name] * len(part), pa.string()),
            "pd_line": part.column(_LINE).combine_chunks(),
            "pd_stage": pa.array(v["stage"], pa.string()),
            "pd_code": pa.array(v["code"], pa.string()),
            "pd_reason": pa.array(reasons, pa.string()),
            "pd_score": pa.array(v["score"], pa.float32()),
            "pd_limit": pa.array(v["limit"], pa.float32()),
            "pd_peer": pa.array([None if p is None else str(p) for p in v["peer"]], pa.string()),
            "pd_raw": part.column(_RAW).combine_chunks(),
        }  # fmt: skip
        _parquet(pa.table(columns), task.dropped)
        written.append(task.dropped)
    return written


def _sentence(code: str, score: float | None, limit: float | None, peer: int | None) -> str:
    parts = [code.replace("_", " ")]
    if peer is not None:
        parts.append(f"of row {peer}")
    if score is not None:
        parts.append(f"score {score:.4g}" + (f", limit {limit:.4g}" if limit is not None else ""))
    return ": ".join([parts[0], ", ".join(parts[1:])]) if len(parts) > 1 else parts[0]


def _ids(table: pa.Table, start: int) -> pa.Array:
    own = table.column("pd_id").combine_chunks() if "pd_id" in table.column_names else None
    if own is not None and own.null_count == 0:
        return own.cast(pa.string()) if not isinstance(own, pa.ChunkedArray) else own.combine_chunks().cast(pa.string())
    return pa.array(np.arange(start, start + len(table)).astype(str), pa.string())


def _sides(table: pa.Table, task: PublishTask, plain: bool) -> dict[str, pa.Array]:
    texts = {side: table.column(side).combine_chunks() for side in SIDES}
    if task.form == "text":
        return texts
    sides = {side: [None if v is None else orjson.loads(v) for v in t.to_pylist()] for side, t in texts.items()}
    if task.form == "implicit":
        sides = {
            s: [None if a is None else p + a for p, a in zip(sides["prompt"], sides[s], strict=True)]
            for s in ("chosen", "rejected")
        }
    return {s: pa.array(v, MESSAGES) if plain else schema.as_json(v) for s, v in sides.items()}


def _others(table: pa.Table, rest: pa.Schema) -> dict[str, pa.Array]:
    out = {}
    for f in rest:
        if f.name in table.column_names:
            column = table.column(f.name).combine_chunks()
            out[f.name] = schema.cast(column.chunk(0) if isinstance(column, pa.ChunkedArray) else column, f.type)
        else:
            nulls = pa.nulls(len(table), f.type.storage_type if isinstance(f.type, pa.BaseExtensionType) else f.type)
            out[f.name] = (
                pa.ExtensionArray.from_storage(f.type, nulls) if isinstance(f.type, pa.BaseExtensionType) else nulls
            )
    return out


def _parquet(table: pa.Table, path: str) -> None:
    target = Path(path)
    part = target.with_name(target.name + ".part")
    # Texts hardly ever repeat within a part: trying a dictionary first only costs time.
    words = [
        n
        for n in table.column_names
        if n not in SIDES and n != "pd_id" and not pa.types.is_nested(table.schema.field(n).type)
    ]
    pq.write_table(
        table, part, compression="zstd", compression_level=1, use_dictionary=words, write_statistics=words,
        row_group_size=max(1, len(table)), data_page_size=1 << 20,
    )  # fmt: skip
    part.rename(target)
