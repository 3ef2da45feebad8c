"""A few pairs of each kind with their texts, read back from a finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from prefdata import lookup
from prefdata.diff_match import Rows
from prefdata.diff_side import Side
from prefdata.pairs import SIDES, readable
from prefdata.report.compare import CUT_AT, Texts


def pick(rows: int, most: int) -> Rows:
    """Places of at most ``most`` of ``rows``, evenly over all of them."""
    if rows <= most:
        return np.arange(rows)
    return np.unique(np.linspace(0, rows - 1, most).astype(np.int64))


def texts(side: Side, rows: Sequence[int]) -> dict[int, Texts]:
    """These pairs of a side. A cleaned run holds all texts; an audit those of its report only."""
    found = _published(side, rows) if side.manifest["action"] == "clean" else _reported(side, rows)
    return {row: told(side, row, found.get(row)) for row in rows}


def no_texts(side: Side) -> str:
    """Why texts of this side may be missing, or nothing."""
    if side.manifest["action"] == "clean":
        return ""
    return f"{side.name} is an audit, which holds the texts of the pairs in its report only; prefdata clean keeps all of them."


def told(side: Side, row: int, found: Mapping[str, Any] | None) -> Texts:
    """What became of a pair, and its texts where they were found."""
    held: Mapping[str, Any] = found or dict.fromkeys(SIDES, "")
    whole = {s: readable(str(held[s])) for s in SIDES}
    cut = {s: t[:CUT_AT] for s, t in whole.items()}
    return Texts(
        row=row, pd_id=str(held.get("pd_id", row)), state="kept" if side.kept[row] else "dropped", reason=side.reason(row),
        known=found is not None, lengths={s: len(t) for s, t in whole.items() if len(t) > CUT_AT} | dict(held.get("lengths", {})), **cut,
    )  # fmt: skip


def _reported(side: Side, rows: Sequence[int]) -> dict[int, dict[str, Any]]:
    wanted = set(rows)
    found = {e.row: e.model_dump() for e in side.report.rows if e.row in wanted and e.raw is None}
    for row, held in found.items():  # the report shows pairs as read
        if side.turned[row]:
            held["chosen"], held["rejected"] = held["rejected"], held["chosen"]
            names = {"chosen": "rejected", "rejected": "chosen"}
            held["lengths"] = {names.get(k, k): v for k, v in held["lengths"].items()}
    return found


def _published(side: Side, rows: Sequence[int]) -> dict[int, dict[str, Any]]:
    wanted, out = np.unique(np.asarray(rows, np.int64)), dict[int, dict[str, Any]]()
    with lookup.as_written(side.out):
        decisions = pq.read_table(side.out / "audit/decisions.parquet", columns=["row", "action"])
        names = set(pq.read_schema(side.out / "audit/signals.parquet").names)
        more = [n for n in ("pair.split", "pair.reversed") if n in names]
        signals = pq.read_table(side.out / "audit/signals.parquet", columns=["row", *more])
        for path, held in lookup._parts(side.out, list(side.manifest["splits"]), decisions, signals):
            here = np.flatnonzero(np.isin(held, wanted))
            for at, row in zip(here, _read(path, here), strict=True):
                out.setdefault(int(held[at]), row)  # mirrors come behind the pairs that they were made from
    return out


def _read(path: Path, at: Rows) -> list[dict[str, Any]]:
    """Rows of a Parquet file by place, a row group at a time."""
    if not len(at):
        return []
    file, out, start = pq.ParquetFile(path), list[dict[str, Any]](), 0
    columns = [c for c in (*SIDES, "pd_id") if c in file.schema_arrow.names]
    for group in range(file.num_row_groups):
        n = file.metadata.row_group(group).num_rows
        here = at[(at >= start) & (at < start + n)] - start
        if len(here):
            table = file.read_row_group(group, columns=columns).take(pa.array(here))
            out += [_plain(row) for row in table.to_pylist()]
        start += n
    return out


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A published row as texts: messages with their roles; the prompt that both sides of an implicit pair begin with stays there."""
    return {"pd_id": row["pd_id"]} | {s: _text(row.get(s)) for s in SIDES}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "\n\n".join(f"{m.get('role', '')}: {m.get('content') or ''}" for m in value if isinstance(m, dict))
    return "" if value is None else str(value)
