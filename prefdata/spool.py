"""The measured parts of a run on disk, and reading a few rows of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from prefdata import schema
from prefdata.cutting import Source
from prefdata.decisions import Part, Signals
from prefdata.making import Form
from prefdata.measuring import DETAIL, FILE, INTERNAL, LINE, PART, PLAIN, RAW, SOURCE, Measured, MeasureTask
from prefdata.pairs import SIDES, Row, side_text


@dataclass
class Spool:
    """All chunks of a run, measured: rows are numbered through in the order of the chunks."""

    tasks: Sequence[MeasureTask]
    measured: Sequence[Measured]
    form: Form
    changes: dict[str, int] = field(default_factory=dict)  # of form, made before chunks were read
    reused: int = 0  # chunks that an earlier run has measured
    why: str = ""  # why others that it left were measured again
    _open: dict[int, pa.Table] = field(default_factory=dict)

    @cached_property
    def starts(self) -> list[int]:
        """The first row of each chunk."""
        return [0, *np.cumsum([m.pairs for m in self.measured]).tolist()][: len(self.measured)]

    @property
    def _filled(self) -> Iterator[tuple[int, int, int]]:
        """The chunks that gave pairs: number, first pair, and the first one behind them."""
        found = enumerate(zip(self.starts, self.measured, strict=True))
        return ((i, start, start + m.pairs) for i, (start, m) in found if m.pairs)

    @property
    def parts(self) -> dict[str, Any]:
        """How many parts were ``measured``, how many came from an earlier run, and why not those others that it left."""
        return {"measured": len(self.tasks) - self.reused, "reused": self.reused, "why": self.why}

    @cached_property
    def pairs(self) -> int:
        """Rows in all."""
        return sum(m.pairs for m in self.measured)

    def sums(self, name: str) -> Counter[str]:
        """What the chunks counted under this name (``shapes``, ``changes``, ``seconds``, ...), added up."""
        out: Counter[str] = Counter()
        for m in self.measured:
            out.update(getattr(m, name))
        return out

    @cached_property
    def origins(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]] | None:
        """Of each pair the number of its source row, and which of that row's pairs it is (-1: the only one); None where each
        row gave one pair, so that both have the same number.
        """
        if all(m.one_to_one for m in self.measured):
            return None
        source, part = [], []
        first = 0
        for i, (task, m) in enumerate(zip(self.tasks, self.measured, strict=True)):
            table = self._table(i)
            if SOURCE in table.column_names:
                at = 0 if task.chunk.kind == "groups" else first  # rows of groups are numbered through already
                source.append(table.column(SOURCE).to_numpy() + at)
                part.append(table.column(PART).to_numpy())
            else:
                source.append(np.arange(first, first + m.pairs))
                part.append(np.full(m.pairs, -1, np.int32))
            first += m.rows
        return np.concatenate(source), np.concatenate(part)

    def ids(self, pairs: npt.NDArray[np.int64]) -> list[str]:
        """``pd_id`` of these pairs, unless the input has its own: the row's number, ``row.k`` where it gave several pairs."""
        if self.origins is None:
            return [str(p) for p in pairs.tolist()]
        rows, parts = (o[pairs].tolist() for o in self.origins)
        return [f"{r}" if k < 0 else f"{r}.{k}" for r, k in zip(rows, parts, strict=True)]

    def all_ids(self) -> Iterator[pa.Array] | None:
        """``pd_id`` of all pairs, a chunk that has some at a time; None where they have the numbers of their rows."""
        if self.origins is None:
            return None
        return (with_own(self._table(i), self.ids(np.arange(a, b))) for i, a, b in self._filled)

    def splits(self, planned: Source) -> npt.NDArray[np.int8]:
        """The split of each pair as its file has it: an index into ``planned.splits``."""
        of_file = np.array([planned.splits.index(f.split) for f in planned.files], np.int8)
        return np.repeat(of_file[[t.chunk.file for t in self.tasks]], [m.pairs for m in self.measured])

    def plain(self, rows: npt.NDArray[np.bool_]) -> bool:
        """True if every chat message of these rows (a mask of all) is a role and a text, and nothing else."""
        return self.form == "text" or all(
            self._table(i).column(PLAIN).to_numpy()[rows[a:b]].all() for i, a, b in self._filled
        )

    def signals(self, seed: int) -> Signals:
        """The measured numbers of all rows."""
        return Signals([Part(self.tasks[i].signals, a, b - a) for i, a, b in self._filled], seed=seed)

    def _table(self, chunk: int) -> pa.Table:
        if chunk not in self._open:
            self._open[chunk] = schema.mapped(self.tasks[chunk].spool)
        return self._open[chunk]

    @cached_property
    def _others(self) -> dict[str, list[pa.ChunkedArray]]:
        """The further columns of the set, each in all parts that have it, in the order of their appearance."""
        out: dict[str, list[pa.ChunkedArray]] = {}
        for i in range(len(self.tasks)):
            for name, column in zip((table := self._table(i)).column_names, table.columns, strict=True):
                if name not in SIDES and name not in INTERNAL:
                    out.setdefault(name, []).append(column)
        return out

    @cached_property
    def schema(self) -> pa.Schema:
        """One type for each further column of the set, ``pd_id`` excepted, in the order of their appearance."""
        fields = []
        for name, parts in self._others.items():
            if any(name in m.as_text for m in self.measured):
                fields.append(pa.field(name, pa.string(), metadata=schema.AS_TEXT))
            elif name != "pd_id":
                fields.append(pa.field(name, schema.settle(parts)))
        return pa.schema(fields)

    def drifted(self) -> dict[str, int]:
        """What became of columns whose values had no type in common, or none that can be read again: for all rows."""
        changes = dict(self.changes)
        for f in self.schema:
            if f.metadata != schema.AS_TEXT and not isinstance(f.type, pa.JsonType):
                continue
            parts = self._others[f.name]
            if f.metadata == schema.AS_TEXT:
                changes[f"column {f.name!r} holds integers beyond 64 bits and is written as JSON text"] = self.pairs
            elif schema.differ([p.type for p in parts]) or any(f.name in m.several for m in self.measured):
                changes[f"column {f.name!r} holds values of several types and is written as JSON"] = self.pairs
            if lost := sum(schema.lost_as_json(schema.whole(p)) for p in parts):
                changes[f"NaN or infinity inside column {f.name!r} written as null"] = lost
        return changes

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
        file, numbers = self.tasks[chunk].file_name, local + self.starts[chunk]
        table = self._table(chunk).take(pa.array(local))
        ids = with_own(table, self.ids(numbers)).to_pylist()
        for number, pd_id, row in zip(numbers.tolist(), ids, table.to_pylist(), strict=True):
            yield Row(
                row=number, pd_id=pd_id, file=row.get(FILE) or file, line=row[LINE], raw=row[RAW], detail=row[DETAIL],
                **{side: self.view(row[side], side) for side in SIDES},
                columns={k: v for k, v in row.items() if k not in SIDES and k not in INTERNAL and k != "pd_id"},
            )  # fmt: skip

    def view(self, value: str | None, side: str) -> str:
        """A spooled side as the text that stages saw."""
        if value is None or self.form == "text":
            return value or ""
        return side_text(orjson.loads(value), "user" if side == "prompt" else "assistant")


def with_own(table: pa.Table, ids: Sequence[str] | pa.Array) -> pa.Array:
    """``pd_id`` of these spooled rows: ``ids``, but where a row came with one; its pairs are told apart by ``.k``."""
    numbers = ids if isinstance(ids, pa.Array) else pa.array(ids, pa.string())
    if "pd_id" not in table.column_names:
        return numbers
    own = schema.whole(table.column("pd_id")).cast(pa.string())
    if PART in table.column_names:
        part = schema.whole(table.column(PART))
        several = pc.binary_join_element_wise(own, part.cast(pa.string()), ".")
        own = pc.if_else(pc.greater_equal(part, 0), several, own)
    return pc.coalesce(own, numbers)
