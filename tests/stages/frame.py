"""Rows of texts as the signals that ``decide`` reads, by the frame's own function."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from prefdata.decisions import Decisions, Part, Signals
from prefdata.frame import measure_pairs
from prefdata.pairs import Pair, Pairs
from prefdata.stage import Stage

Row = tuple[str, str, str]


def signals(rows: Sequence[Row], *stages: Stage, batch: int = 1000, **columns: Sequence[Any]) -> Signals:
    """The signals of the rows, measured in batches of that size, one part each; ``columns`` join as ``pair.*``."""
    folder, parts = Path(tempfile.mkdtemp()), []
    for start in range(0, max(1, len(rows)), batch):
        some = rows[start : start + batch]
        table = measure_pairs(Pairs.of([Pair(*r) for r in some]), stages)
        for name, values in columns.items():
            table = table.append_column(f"pair.{name}", pa.array(values[start : start + batch]))
        table = table.append_column("pair.fault", pa.nulls(len(some), pa.string())).combine_chunks()
        path = folder / f"{start}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        parts.append(Part(str(path), start, len(some)))
    return Signals(parts)


def decide(rows: Sequence[Row], stage: Stage, batch: int = 1000, **columns: Sequence[Any]) -> Decisions:
    """What the stage decides, held to the contract."""
    seen = signals(rows, stage, batch=batch, **columns)
    made = stage.decide(seen)
    made.check(seen.index)
    return made


def having(made: Decisions, ids: Sequence[str], action: str) -> list[str]:
    """Ids of the rows with that action."""
    return [i for i, a in zip(ids, made.of(action), strict=True) if a]  # type: ignore[arg-type]
