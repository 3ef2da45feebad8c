"""The measured parts of a run on disk: where they lie, whether they may be used again, and reading a few rows of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from prefdata import schema
from prefdata.decisions import Part, Signals
from prefdata.pairs import SIDES, side_text
from prefdata.passes import INTERNAL, PLAIN, Form, Measured, MeasureTask
from prefdata.report.summary import Row


def reusable(task: MeasureTask) -> Measured | None:
    """What an earlier run noted of this chunk, if its parts hold all that this task would measure."""
    try:
        note = json.loads(Path(task.note).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    key = note["key"]
    same = key["base"] == task.key["base"] and task.key["stages"].items() <= key["stages"].items()
    if not same or not Path(task.spool).exists() or not Path(task.signals).exists():
        return None
    return Measured(**note["measured"])


@dataclass
class Spool:
    """All chunks of a run, measured: rows are numbered through in the order of the chunks."""

    tasks: Sequence[MeasureTask]
    measured: Sequence[Measured]
    form: Form
    _open: dict[int, pa.Table] = field(default_factory=dict)

    @cached_property
    def starts(self) -> list[int]:
        """The first row of each chunk."""
        return [0, *np.cumsum([m.pairs for m in self.measured]).tolist()][: len(self.measured)]

    @cached_property
    def pairs(self) -> int:
        """Rows in all."""
        return sum(m.pairs for m in self.measured)

    def plain(self, rows: npt.NDArray[np.bool_]) -> bool:
        """True if every chat message of these rows (a mask of all) is a role and a text, and nothing else."""
        return self.form == "text" or all(
            self._table(i).column(PLAIN).to_numpy()[rows[start : start + m.pairs]].all()
            for i, (start, m) in enumerate(zip(self.starts, self.measured, strict=True))
            if m.pairs
        )

    def signals(self, seed: int) -> Signals:
        """The measured numbers of all rows."""
        parts = [
            Part(t.signals, s, m.pairs)
            for t, s, m in zip(self.tasks, self.starts, self.measured, strict=True)
            if m.pairs
        ]
        return Signals(parts, seed=seed)

    def _table(self, chunk: int) -> pa.Table:
        if chunk not in self._open:
            self._open[chunk] = pa.ipc.open_file(pa.memory_map(self.tasks[chunk].spool)).read_all()
        return self._open[chunk]

    @cached_property
    def schema(self) -> pa.Schema:
        """One type for each further column of the set, ``pd_id`` excepted, in the order of their appearance."""
        seen: dict[str, list[tuple[int, pa.DataType]]] = {}
        for i, m in enumerate(self.measured):
            for f in schema.from_text(m.schema):
                seen.setdefault(f.name, []).append((i, f.type))
        fields = []
        for name, found in seen.items():
            kind = schema.merge([t for _, t in found])
            if pa.types.is_floating(kind) and any(pa.types.is_integer(t) for _, t in found):
                exact = all(schema.fits(self._table(i).column(name), kind) for i, t in found if pa.types.is_integer(t))
                kind = kind if exact else schema.JSON
            if name != "pd_id":
                fields.append(pa.field(name, kind))
        return pa.schema(fields)

    def drifted(self) -> list[str]:
        """Columns whose values had no type in common and are written as JSON."""
        mixed = []
        for f in self.schema:
            if isinstance(f.type, pa.JsonType):
                kinds = {str(g.type) for m in self.measured for g in schema.from_text(m.schema) if g.name == f.name}
                if len(kinds - {"null"}) > 1:
                    mixed.append(f.name)
        return mixed

    def rows(self, numbers: Sequence[int]) -> list[Row]:
        """A few rows as a reader sees them, in the order asked."""
        at = np.asarray(numbers, np.int64)
        chunks = np.searchsorted(self.starts, at, "right") - 1
        found: dict[int, Row] = {}
        for chunk in np.unique(chunks).tolist():
            mine = np.unique(at[chunks == chunk])
            for number, row in zip(mine.tolist(), self._read(chunk, mine - self.starts[chunk]), strict=True):
                found[number] = row
        return [found[n] for n in at.tolist()]

    def _read(self, chunk: int, local: npt.NDArray[np.int64]) -> Iterator[Row]:
        file = self.tasks[chunk].file_name
        for place, row in zip(local.tolist(), self._table(chunk).take(pa.array(local)).to_pylist(), strict=True):
            number = place + self.starts[chunk]
            own = row.get("pd_id")
            yield Row(
                row=number,
                pd_id=str(number) if own is None else str(own),
                file=file,
                line=row["pd$line"],
                **{side: self.view(row[side], side) for side in SIDES},
                columns={k: v for k, v in row.items() if k not in SIDES and k not in INTERNAL and k != "pd_id"},
                raw=row["pd$raw"],
                detail=row["pd$detail"],
            )

    def view(self, value: str | None, side: str) -> str:
        """A spooled side as the text that stages saw."""
        if value is None or self.form == "text":
            return value or ""
        return side_text(orjson.loads(value), "user" if side == "prompt" else "assistant")
