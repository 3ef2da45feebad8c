"""The second pass: carry the decisions out on each spool part, as Parquet parts of the dataset and of the dropped rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from prefdata import output, schema
from prefdata.engines import Engine
from prefdata.files import whole
from prefdata.measuring import DETAIL, FILE, LINE, RAW, VERDICT
from prefdata.pairs import SIDES
from prefdata.result import Progress, Result
from prefdata.spool import Spool, with_own

MESSAGES = pa.list_(pa.field("element", pa.struct([("role", pa.string()), ("content", pa.string())])))


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
    targets: tuple[str, ...]  # the Parquet part of each split, "" where the part keeps none of its rows
    dropped: str
    split: npt.NDArray[np.int8]  # index into ``targets``, -1 for a dropped row
    swapped: npt.NDArray[np.bool_]
    verdict: Mapping[str, Any]  # of the dropped rows: stage, code, score, limit, peer


def publish(task: PublishTask) -> list[str]:
    """Write this part's rows of each split, and its dropped rows; returns the files written."""
    table = schema.mapped(task.spool)
    ids = with_own(table, task.ids if task.ids is not None else _numbers(task.start, len(table)))
    if task.swapped.any():
        pick = pa.array(task.swapped)
        chosen, rejected = (table.column(s).combine_chunks() for s in ("chosen", "rejected"))
        table = table.set_column(1, "chosen", pa.compute.if_else(pick, rejected, chosen))
        table = table.set_column(2, "rejected", pa.compute.if_else(pick, chosen, rejected))
    written = []
    for i, target in enumerate(task.targets):
        if target:
            mask = pa.array(task.split == i)
            part = table.filter(mask)
            columns = _sides(part, task, task.plain[0]) | _others(part, task.schema) | {"pd_id": ids.filter(mask)}
            _parquet(pa.table(columns), target)
            written.append(target)
    if task.dropped:
        mask = pa.array(task.split < 0)
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
    tell: Progress,
) -> dict[str, str]:  # fmt: skip
    """The second pass: parts are numbered over the chunks that have rows, so that none is empty.

    ``where`` gives each pair its split, an index into ``of``; -1 for one that is dropped, as ``result`` says (without one, such
    pairs are not written).
    """
    verdict = (lambda rows: {}) if result is None else _verdict(result, spool)
    swapped = np.zeros(spool.pairs, bool) if result is None else result.outcome.swapped
    tasks: list[PublishTask] = []
    number: Counter[str] = Counter()
    plain = spool.plain(where >= 0), spool.plain(where < 0)
    for task, start, m in zip(spool.tasks, spool.starts, spool.measured, strict=True):
        if not m.pairs:
            continue
        mine = where[start : start + m.pairs]
        paths = []
        for i, folder in enumerate((*(f"data/{name}" for name in of), "audit/dropped")):
            there = bool((mine == i).any() if i < len(of) else result is not None and (mine < 0).any())
            paths.append(str(out / folder / f"part-{number[folder]:05d}.parquet") if there else "")
            number[folder] += there
        gone = np.flatnonzero(mine < 0) + start
        tasks.append(PublishTask(
            task.spool, start, _ids(spool, start, m.pairs), task.file_name, form, plain, spool.schema, tuple(paths[:-1]),
            paths[-1], mine, swapped[start : start + m.pairs], verdict(gone),
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
