"""The pairs that people may judge: those of the page's sheet, and the others of ``spotcheck.csv``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prefdata.errors import InputError
from prefdata.identity import SIDE_KEYS, spelled
from prefdata.near import combined
from prefdata.report.model import Example, Report
from prefdata.report.sheet import left_side
from prefdata.review_file import State

Side = Literal["chosen", "rejected"]
_MARKS = pa.array(["flag", "swap"])


@dataclass(frozen=True)
class Place:
    """One pair that may be judged: what the run made of it, and which side of it, as it leaves, stands left where sides are hidden.

    ``shown`` is the pair as the page has it, None for pairs that only ``spotcheck.csv`` has.
    """

    row: int
    pd_id: str
    key: str
    issue: str | None
    state: State
    base: bool
    left: Side
    shown: Example | None = None


def of_page(report: Report) -> dict[int, Place]:
    """The pairs of the page's sheet by row, in the order to judge them in."""
    strata, shown = report.spotcheck.strata, {r.row: r for r in report.rows}
    return {
        r.row: Place(
            r.row, r.pd_id, r.key, strata[r.stratum].issue, strata[r.stratum].state, r.base, r.left, shown.get(r.row)
        )
        for r in report.spotcheck.rows
    }  # fmt: skip


def beyond(out: Path, report: Report, found: dict[str, int]) -> Iterable[Place]:
    """Other kept pairs by their row numbers, out of what the run decided and measured; ``found`` gives these by ``pd_id``."""
    rows = np.array(sorted(found.values()), np.int64)
    try:
        measured = pq.read_table(out / "audit/signals.parquet", columns=["row", *SIDE_KEYS])
        made = pq.read_table(out / "audit/decisions.parquet", columns=["row", "stage", "action", "reason"])
    except (OSError, ValueError) as error:
        what = f"was not left so by prefdata: {str(error).splitlines()[0]}"
        raise InputError(what, where=str(out / "audit"), hint="Run prefdata again with --overwrite.") from error
    measured = measured.filter(pc.is_in(measured["row"], value_set=pa.array(rows)))
    keys = combined([measured[name].to_numpy() for name in SIDE_KEYS])
    by_row = dict(zip(measured["row"].to_pylist(), keys.tolist(), strict=True))
    made = made.filter(pc.is_in(made["row"], value_set=pa.array(rows)))
    made = made.filter(pc.is_in(made["action"].cast("string"), value_set=_MARKS))
    marks: dict[int, list[tuple[str, str, str]]] = {}
    for d in made.to_pylist():
        marks.setdefault(d["row"], []).append((d["action"], d["stage"], d["reason"]))
    issues = {(i.stage, i.reason): i.key for i in report.issues}
    for pd_id, row in found.items():
        mine = marks.get(row, [])
        turned = sum(action == "swap" for action, _, _ in mine) % 2 == 1
        of = next((issues.get(m[1:]) for m in mine if not turned or m[0] == "swap"), None)
        state: State = "kept" if of is None else "swapped" if turned else "flagged"
        side = left_side(pd_id, report.spotcheck.seed)
        left: Side = side if not turned else "chosen" if side == "rejected" else "rejected"
        yield Place(row, pd_id, spelled(by_row[row]), of, state, True, left)
