"""The training split as it was before it was cleaned, rebuilt from what ``clean`` leaves in its folder."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prefdata import schema
from prefdata.beside import SOURCE_ROW
from prefdata.errors import InputError
from prefdata.files import put, whole
from prefdata.output import MANIFEST, dump
from prefdata.pairs import SIDES, side_text
from prefdata.reading import values
from prefdata.text import normal
from prefdata.training.data import EXTRA

NOT_TRAINABLE = ("malformed", "token_length")
"""Stages whose rows stay out: no trainer can take them, or TRL leaves them out by itself."""


def rebuild(cleaned: Path, out: Path) -> dict[str, Any]:
    """Write ``out`` as a folder with the raw training split and the same other splits; returns ``rows``, and ``left_out`` by stage.

    Labels that were turned round are turned back, added rows and weights are left out, dropped rows come back, in the order of the
    input. Rows of a prompt that stands in another split stay out (``shared_prompt``). Raises InputError where the folder does not
    say which rows were turned round.
    """
    train, *others = _splits(cleaned)
    kept, dropped = _read(cleaned / "data" / train), _read(cleaned / "audit/dropped")
    if kept is not None and SOURCE_ROW in kept.column_names:  # rows that were made from others
        kept = kept.filter(pc.is_null(kept[SOURCE_ROW]))
    held = [t for t in (_read(cleaned / "data" / s) for s in others) if t is not None]
    left: Counter[str] = Counter()
    numbers, turned, of_train = _audit(cleaned)
    if dropped is not None:
        dropped = _trainable(dropped, held, of_train, left)
    parts = [t for t in (kept, dropped) if t is not None]
    names = [*SIDES, *(e for e in EXTRA if all(e in t.column_names for t in parts)), "pd_id"]
    table = _joined([t.select(names) for t in parts])
    ids = table["pd_id"].to_pylist()
    if lost := turned - set(ids) - set(_ids(held)) - _gone(cleaned, ids):
        raise InputError(f"does not say which {len(lost)} pairs were turned round", where=str(cleaned / "audit"))
    table = _turned_back(table, np.array([i in turned for i in ids], bool))
    place = [numbers.get(i, len(numbers)) for i in ids]
    table = table.take(pa.array(np.argsort(place, kind="stable")))
    manifest = orjson.loads((cleaned / MANIFEST).read_bytes())
    shutil.rmtree(out, ignore_errors=True)
    with whole(out / "data" / train / "part-00000.parquet") as part:
        pq.write_table(table, part, compression="zstd")
    for name in others:
        shutil.copytree(cleaned / "data" / name, out / "data" / name)
    about = {
        "action": "clean",
        "raw": True,
        "config": manifest["config"],
        "counts": {"pairs": len(table), "kept": len(table)},
    }
    put(out / MANIFEST, dump(about))
    return {"rows": len(table), "left_out": dict(left)}


def _splits(cleaned: Path) -> list[str]:
    """The training split, then the others that hold rows."""
    found = sorted(p.name for p in (cleaned / "data").glob("*") if any(p.glob("*.parquet")))
    return sorted(found, key=lambda n: (n != "train", not n.startswith("train")))


def _read(folder: Path) -> pa.Table | None:
    tables = [pq.read_table(p) for p in sorted(folder.glob("*.parquet"))]
    return pa.concat_tables(tables, promote_options="default") if tables else None


def _audit(cleaned: Path) -> tuple[dict[str, int], set[str], set[str]]:
    """Row numbers by ``pd_id``; which pairs were turned round an odd number of times; which were read from the training split."""
    signals = pq.read_table(cleaned / "audit/signals.parquet", columns=_some(cleaned, "row", "pd_id", "pair.split"))
    rows = signals["row"].to_pylist()
    ids = signals["pd_id"].to_pylist() if "pd_id" in signals.column_names else [str(r) for r in rows]
    split = signals["pair.split"].to_pylist() if "pair.split" in signals.column_names else [0] * len(rows)
    made = pq.read_table(cleaned / "audit/decisions.parquet", columns=["row", "action"])
    swaps = Counter(made.filter(pc.equal(pc.cast(made["action"], pa.string()), "swap"))["row"].to_pylist())
    of_row = dict(zip(rows, ids, strict=True))
    turned = {of_row[r] for r, n in swaps.items() if n % 2}
    return dict(zip(ids, rows, strict=True)), turned, {i for i, s in zip(ids, split, strict=True) if s == 0}


def _some(cleaned: Path, *names: str) -> list[str]:
    there = pq.read_schema(cleaned / "audit/signals.parquet").names
    return [n for n in names if n in there]


def _trainable(dropped: pa.Table, held: list[pa.Table], of_train: set[str], left: Counter[str]) -> pa.Table:
    """The dropped rows that a trainer could have been given; ``left`` counts the others."""
    prompts, ids = {p for t in held for p in _prompts(t)}, set(_ids(held))
    mask = []
    rows = zip(*(dropped[n].to_pylist() for n in ("pd_id", "pd_stage", "pd_peer")), _prompts(dropped), strict=True)
    for name, stage, peer, prompt in rows:
        why = stage if stage in NOT_TRAINABLE else ""
        if not why and (prompt in prompts or peer in ids or (of_train and name not in of_train)):
            why = "shared_prompt" if name in of_train else "other_split"
        left[why] += bool(why)
        mask.append(not why)
    del left[""]
    return dropped.filter(pa.array(mask, pa.bool_()))


def _prompts(table: pa.Table) -> Iterator[str]:
    """Prompts in the form by which ``clean`` tells them apart when it cuts splits."""
    for value in values(table["prompt"]):
        yield normal(side_text(value, "user") if isinstance(value, list) else value or "")


def shared_prompts(folder: Path) -> int:
    """How many pairs of the other splits have a prompt that the training split has too."""
    train, *others = (_read(folder / "data" / s) for s in _splits(folder))
    seen = set(_prompts(train)) if train is not None else set()
    return sum(p in seen for t in others if t is not None for p in _prompts(t))


def _ids(tables: list[pa.Table]) -> list[str]:
    return [str(i) for t in tables for i in t["pd_id"].to_pylist()]


def _gone(cleaned: Path, there: list[str]) -> set[str]:
    """Pairs that were dropped for good: whether they were turned round no longer matters."""
    table = _read(cleaned / "audit/dropped")
    return set() if table is None else set(_ids([table])) - set(there)


def _joined(tables: list[pa.Table]) -> pa.Table:
    """One table; messages that were written in two ways become JSON."""
    if len({t.schema.remove_metadata() for t in tables}) > 1:
        tables = [
            pa.table({n: schema.as_json(values(t[n])) if n != "pd_id" else t[n] for n in t.column_names})
            for t in tables
        ]
    return pa.concat_tables(tables)


def _turned_back(table: pa.Table, turned: Any) -> pa.Table:
    if not turned.any():
        return table
    n, at = len(table), np.arange(len(table))
    both = pa.chunked_array([*table["chosen"].chunks, *table["rejected"].chunks])
    for name, picked in (("chosen", np.where(turned, at + n, at)), ("rejected", np.where(turned, at, at + n))):
        table = table.set_column(table.column_names.index(name), name, both.take(pa.array(picked)))
    return table
