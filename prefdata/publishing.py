"""The second pass: carry the decisions out on each spool part, as Parquet parts of the dataset and of the dropped rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from prefdata import output, schema
from prefdata.beside import FLIP_PROB, SOURCE_ROW, Beside, Bools, Floats
from prefdata.engines import Engine
from prefdata.files import whole
from prefdata.measuring import DETAIL, FILE, LINE, RAW, VERDICT
from prefdata.pairs import ANNOTATIONS, SIDES
from prefdata.result import Progress, Result
from prefdata.shapes.columns import REVERSED
from prefdata.spool import Spool, with_own

MESSAGES = pa.list_(pa.field("element", pa.struct([("role", pa.string()), ("content", pa.string())])))
AB = ("output_1", "output_2", "label")  # of the form ``ab``, as ``convert`` writes it


@dataclass(frozen=True)
class PublishTask:
    """One spool part to carry the decisions out on. Arrays have one entry a pair of the part."""

    spool: str
    start: int
    ids: tuple[str, ...] | None  # of each pair; None: its number
    file_name: str
    form: Literal["text", "chat", "implicit", "single"]  # single: chat of single turns, written as text
    plain: tuple[bool, bool]  # whether all messages of the kept, and of the dropped rows are a role and a text only
    schema: pa.Schema  # of the further columns
    targets: tuple[str, ...]  # the Parquet part of each folder, "" where the part has no row for it
    dropped: str
    place: npt.NDArray[np.int16]  # index into ``targets``, -1 for a dropped row
    swapped: Bools
    verdict: Mapping[str, Any]  # of the dropped rows: stage, code, score, limit, peer
    mirror: npt.NDArray[np.int16]  # index into ``targets`` of the part that the row's mirror goes to, -1: it has none
    ab: str = ""  # the part in the form ``ab``
    shown: npt.NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))  # how often ``ab`` shows each row
    seed: int = 0
    own: Mapping[str, Floats] = field(default_factory=dict)


def publish(task: PublishTask) -> list[str]:
    """Write this part's rows of each folder, and its dropped rows; returns the files written."""
    table = schema.mapped(task.spool)
    ids = with_own(table, task.ids if task.ids is not None else _numbers(task.start, len(table)))
    table = _turned(table, task.swapped & (task.place >= 0))  # dropped rows stay as they were read
    written = []
    for i, target in enumerate(task.targets):
        if target:
            mirror = task.mirror == i
            at = np.repeat(np.arange(len(table)), (task.place == i).astype(int) + mirror)
            part = _turned(table.take(pa.array(at)), mirror[at])
            columns = _sides(part, task, task.plain[0]) | _beside(part, task, at, mirror[at])
            columns |= _marks(columns, ids.take(pa.array(at)), mirror[at], 2 * i >= len(task.targets))
            _parquet(pa.table(columns), target)
            written.append(target)
    if task.ab:
        _parquet(_both_orders(table, ids, task), task.ab)
        written.append(task.ab)
    if task.dropped:
        mask = pa.array(task.place < 0)
        part = table.filter(mask)
        v = task.verdict
        reasons = [d or _sentence(c, s, li, p) for d, c, s, li, p in zip(
            part.column(DETAIL).to_pylist(), v["code"], v["score"], v["limit"], v["peer"], strict=True)]  # fmt: skip
        others = {f"pd_{n}" if n in VERDICT else n: column for n, column in _others(part, task.schema).items()}
        columns = _sides(part, task, task.plain[1]) | others | {
            "pd_id": ids.filter(mask),
            "pd_file": part.column(FILE) if FILE in part.column_names else pa.array([task.file_name] * len(part), pa.string()),
            "pd_line": part.column(LINE).combine_chunks(),
            "pd_stage": pa.array(v["stage"], pa.string()),
            "pd_code": pa.array(v["code"], pa.string()),
            "pd_reason": pa.array(reasons, pa.string()),
            "pd_score": pa.array(v["score"], pa.float32()),
            "pd_limit": pa.array(v["limit"], pa.float32()),
            "pd_peer": pa.array(v["peer"], pa.string()),
            "pd_raw": part.column(RAW).combine_chunks(),
        }  # fmt: skip
        _parquet(pa.table(columns), task.dropped)
        written.append(task.dropped)
    return written


def _turned(table: pa.Table, where: Bools) -> pa.Table:
    """The rows with their answers exchanged at these places, and whatever else stands once for each of them (their scores,
    their models): two columns of one type whose names differ in ``chosen`` and ``rejected``."""
    if not where.any():
        return table
    n, at = len(table), np.arange(len(table))
    for one in table.column_names:
        other = one.replace("chosen", "rejected")
        if (
            other != one
            and other in table.column_names
            and table.schema.field(one).type == table.schema.field(other).type
        ):
            both = pa.chunked_array([*table.column(one).chunks, *table.column(other).chunks])
            for name, picked in ((one, np.where(where, at + n, at)), (other, np.where(where, at, at + n))):
                i = table.schema.get_field_index(name)
                table = table.set_column(i, table.schema.field(i), both.take(pa.array(picked)).combine_chunks())
    at = table.schema.get_field_index(ANNOTATIONS)
    if at >= 0 and pa.types.is_list(table.schema.field(at).type):  # votes for the chosen answer are now for the other
        votes = [v and [-x for x in v] if t else v for v, t in zip(table.column(at).to_pylist(), where, strict=True)]
        table = table.set_column(at, table.schema.field(at), pa.array(votes, table.schema.field(at).type))
    return table


def _beside(part: pa.Table, task: PublishTask, at: npt.NDArray[np.int64], turned: Bools) -> dict[str, pa.Array]:
    """The further columns of these rows. A mirror's label is wrong where that of its source is right."""
    own = {name: values[at] for name, values in task.own.items()}
    if FLIP_PROB in own:
        own[FLIP_PROB] = np.where(turned, 1 - own[FLIP_PROB], own[FLIP_PROB])
    return _others(part, task.schema) | {n: pa.array(v, pa.float32(), from_pandas=True) for n, v in own.items()}


def _marks(held: Mapping[str, pa.Array], ids: pa.Array, copies: Bools, marked: bool) -> dict[str, pa.Array]:
    """``pd_id``, and in ``reversed/`` what marks a row: that it is a mirror, and the ``pd_id`` of its source."""
    if not marked:
        return {"pd_id": ids}
    named = held[SOURCE_ROW].to_pylist() if SOURCE_ROW in held else [None] * len(ids)
    sources = [
        i if c else None if n is None else str(n) for i, c, n in zip(ids.to_pylist(), copies, named, strict=True)
    ]
    return {
        REVERSED: pa.array([True] * len(ids)), SOURCE_ROW: pa.array(sources, pa.string()), "pd_id": _with_copies(ids, copies),
    }  # fmt: skip


def _with_copies(ids: pa.Array, copies: Bools) -> pa.Array:
    return pa.array([f"{i}.reversed" if c else i for i, c in zip(ids.to_pylist(), copies, strict=True)], pa.string())


def _both_orders(table: pa.Table, ids: pa.Array, task: PublishTask) -> pa.Table:
    """Pairs without the order of better and worse: which comes first is a seeded hash of the texts, or the other way round for
    a second showing; the label (1 or 2) says which is better.
    """
    at = np.repeat(np.arange(len(table)), task.shown)
    part, again = table.take(pa.array(at)), np.append(False, at[1:] == at[:-1])
    texts = zip(*(part.column(side).to_pylist() for side in SIDES), strict=True)
    coin = [xxhash.xxh3_64_intdigest("\0".join(t).encode(), task.seed) & 1 for t in texts]
    second = np.array(coin, bool) ^ again
    chat = replace(task, form="chat") if task.form == "implicit" else task
    sides = _sides(_turned(part, second), chat, task.plain[0])
    others = {
        n: c for n, c in _beside(part, task, at, np.zeros(len(at), bool)).items() if n not in (REVERSED, SOURCE_ROW)
    }
    for name in AB:
        if name in others:  # a column of the input: its name says something else here
            free = next(n for k in range(1, len(others) + 2) if (n := "pd_" * k + name) not in others)
            others[free] = others.pop(name)
    picked = ids.take(pa.array(at))
    return pa.table({
        "prompt": sides["prompt"], "output_1": sides["chosen"], "output_2": sides["rejected"],
        "label": pa.array(1 + second.astype(np.int64)), **others, REVERSED: pa.array(again),
        SOURCE_ROW: pc.if_else(pa.array(again), picked, None), "pd_id": _with_copies(picked, again),
    })  # fmt: skip


def _sentence(code: str, score: float | None, limit: float | None, peer: str | None) -> str:
    parts = [code.replace("_", " ")]
    if peer is not None:
        parts.append(f"of row {peer}")
    if score is not None:
        parts.append(f"score {score:.4g}" + (f", limit {limit:.4g}" if limit is not None else ""))
    return ": ".join([parts[0], ", ".join(parts[1:])]) if len(parts) > 1 else parts[0]


def _numbers(start: int, n: int) -> pa.Array:
    return pa.array(np.arange(start, start + n).astype(str), pa.string())


def _sides(table: pa.Table, task: PublishTask, plain: bool) -> dict[str, pa.Array]:
    texts = {side: table.column(side).combine_chunks() for side in SIDES}
    if task.form == "text":
        return texts
    sides = {side: [None if v is None else orjson.loads(v) for v in t.to_pylist()] for side, t in texts.items()}
    if task.form == "single":
        return {s: pa.array([v and v[0]["content"] for v in values], pa.string()) for s, values in sides.items()}
    if task.form == "implicit":
        sides = {
            s: [None if a is None else p + a for p, a in zip(sides["prompt"], sides[s], strict=True)]
            for s in ("chosen", "rejected")
        }
    return {s: pa.array(v, MESSAGES) if plain else schema.as_json(v) for s, v in sides.items()}


def _others(table: pa.Table, rest: pa.Schema) -> dict[str, pa.Array]:
    """The further columns in the set's types; a column that this part lacks is null."""
    absent = pa.nulls(len(table))
    return {
        f.name: schema.cast(schema.whole(table.column(f.name)) if f.name in table.column_names else absent, f)
        for f in rest
    }


def _parquet(table: pa.Table, path: str) -> None:
    # Texts hardly ever repeat within a part: trying a dictionary first only costs time.
    words = [f.name for f in table.schema if f.name not in (*SIDES, "pd_id") and not pa.types.is_nested(f.type)]
    with whole(Path(path)) as part:
        pq.write_table(
            table, part, compression="zstd", compression_level=1, use_dictionary=words, write_statistics=words,
            row_group_size=max(1, len(table)), data_page_size=1 << 20,
        )  # fmt: skip


def publish_all(
    machine: Engine, spool: Spool, result: Result | None, where: npt.NDArray[np.int8], of: Sequence[str], out: Path, form: Any,
    tell: Progress, beside: Beside | None = None,
) -> dict[str, str]:  # fmt: skip
    """The second pass: parts are numbered over the chunks that have rows, so that none is empty.

    ``where`` gives each pair its split, an index into ``of``; -1 for one that is dropped, as ``result`` says (without one, such
    pairs are not written, and nothing is ``beside``).
    """
    verdict = (lambda rows: {}) if result is None else _verdict(result, spool)
    none = np.zeros(spool.pairs, bool)
    swapped, added = (none, none) if result is None else (result.outcome.swapped, result.outcome.added)
    held = beside or Beside(none, none, None, 0, {})
    folders = [f"{home}/{name}" for home in ("data", "reversed") for name in of]
    place = np.where(held.marked & (where >= 0), where + np.int16(len(of)), where).astype(np.int16)
    mirrored = added & (where >= 0) & ~held.marked
    mirror = np.where(mirrored & (held.mode == "raw"), where + np.int16(len(of)), np.int16(-1)).astype(np.int16)
    shown = ((where == 0) & ~held.marked & ~held.ties & (held.mode == "order")) * (1 + mirrored).astype(np.int8)
    tasks: list[PublishTask] = []
    number: Counter[str] = Counter()
    plain = spool.plain(where >= 0), spool.plain(where < 0)
    for task, start, m in zip(spool.tasks, spool.starts, spool.measured, strict=True):
        if not m.pairs:
            continue
        cut = slice(start, start + m.pairs)
        full = [bool(((place[cut] == i) | (mirror[cut] == i)).any()) for i in range(len(folders))]
        full += [result is not None and bool((place[cut] < 0).any()), bool(shown[cut].any())]
        paths = []
        for folder, there in zip((*folders, "audit/dropped", f"ab/{of[0]}"), full, strict=True):
            paths.append(str(out / folder / f"part-{number[folder]:05d}.parquet") if there else "")
            number[folder] += there
        gone = np.flatnonzero(place[cut] < 0) + start
        tasks.append(PublishTask(
            task.spool, start, _ids(spool, start, m.pairs), task.file_name, form, plain, spool.schema, tuple(paths[:-2]),
            paths[-2], place[cut], swapped[cut], verdict(gone), mirror[cut], paths[-1], shown[cut], held.seed,
            {name: values[cut] for name, values in held.columns.items()},
        ))  # fmt: skip
    tell("writing", 0, len(tasks))
    ready = 0

    def done(i: int, got: list[str]) -> None:
        nonlocal ready
        ready += 1
        tell("writing", ready, len(tasks))

    written = machine.map(publish, tasks, done)
    return output.hashes(out, [str(Path(p).relative_to(out)) for part in written for p in part])


def _ids(spool: Spool, start: int, n: int) -> tuple[str, ...] | None:
    return None if spool.origins is None else tuple(spool.ids(np.arange(start, start + n)))


def _verdict(result: Result, spool: Spool) -> Callable[[npt.NDArray[np.int64]], dict[str, list[Any]]]:
    """A way to read why rows were dropped: stage, code, score, limit and peer of the decision that did it."""
    total = len(result.outcome.kept)
    score, limit = np.full(total, np.nan, np.float32), np.full(total, np.nan, np.float32)
    peer, code = np.full(total, -1, np.int64), np.full(total, -1, np.int16)
    words: list[str] = []
    for d in result.made:
        drop = d.of("drop")
        at = d.rows[drop]
        score[at], limit[at], peer[at] = d.score[drop], d.limit[drop], d.peer[drop]
        code[at] = d.reason[drop] + len(words)
        words += d.reasons
    return lambda rows: {
        "stage": [result.stages[i] for i in result.outcome.stage[rows]],
        "code": [words[i] for i in code[rows]],
        "score": [None if np.isnan(v) else float(v) for v in score[rows]],
        "limit": [None if np.isnan(v) else float(v) for v in limit[rows]],
        "peer": [None if v < 0 else spool.ids(np.array([v]))[0] for v in peer[rows]],
    }
