"""One side of a comparison: a finished run, read back as arrays of all its pairs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prefdata import lookup
from prefdata.diff_match import Keys, Mask
from prefdata.errors import InputError
from prefdata.identity import SIDE_KEYS
from prefdata.pairs import SIDES
from prefdata.report.model import Report

Numbers = npt.NDArray[np.float32]
AGAIN = "Run prefdata again with --overwrite."


@dataclass
class Side:
    """All pairs of a run, by row number: keys (as they leave: ``turned`` pairs the other way round), outcome, why dropped (an index into ``words``; -1: kept), words, scores by stage."""

    name: str
    out: Path
    audited_here: bool
    manifest: dict[str, Any]
    report: Report
    keys: Keys
    turned: Mask
    why: npt.NDArray[np.int32]
    words: list[str]
    lengths: dict[str, Numbers] = field(repr=False)
    scores: dict[str, Numbers] = field(repr=False)

    @property
    def kept(self) -> Mask:
        """Mask of the pairs that stay."""
        return self.keys.kept

    def reason(self, row: int) -> str:
        """The word that dropped this pair, or nothing."""
        return self.words[self.why[row]] if self.why[row] >= 0 else ""


def read(out: Path, name: str, audited_here: bool = False) -> Side:
    """A finished run; raises InputError where it is none, or was made before texts were known by hashes."""
    manifest = lookup.manifest(out)
    with lookup.as_written(out):
        report = Report.model_validate_json((out / "audit/report.json").read_bytes())
        decisions = pq.read_table(
            out / "audit/decisions.parquet", columns=["row", "stage", "action", "reason", "score"]
        )
        known = set(pq.read_schema(out / "audit/signals.parquet").names)
        if lacking := set(SIDE_KEYS) - known:
            what = f"has no {min(lacking)} in audit/signals.parquet: another version of prefdata made it"
            raise InputError(what, where=str(out), hint=AGAIN)
        signals = pq.read_table(
            out / "audit/signals.parquet", columns=[*SIDE_KEYS, *(f"pair.{s}_words" for s in SIDES)]
        )
        return _side(name, out, audited_here, manifest, report, decisions, signals)


def _side(
    name: str, out: Path, audited_here: bool, manifest: dict[str, Any], report: Report, decisions: pa.Table, signals: pa.Table
) -> Side:  # fmt: skip
    n = len(signals)
    rows = decisions["row"].to_numpy()
    (stage, stages), (action, actions), (reason, words) = (_codes(decisions[c]) for c in ("stage", "action", "reason"))
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < n:
        raise ValueError("audit/decisions.parquet and audit/signals.parquet speak of other rows")
    why = np.full(n, -1, np.int32)
    drop = action == _place(actions, "drop")
    why[rows[drop]] = reason[drop]
    turned = np.zeros(n, bool)
    swap = action == _place(actions, "swap")
    np.logical_xor.at(turned, rows[swap], True)
    kept = why < 0
    turned &= kept  # dropped rows stay as they were read
    sound = np.ones(n, bool)
    keys = []
    for key in SIDE_KEYS:
        sound &= ~np.asarray(signals[key].is_null())
        keys.append(pc.fill_null(signals[key], 0).to_numpy().astype(np.uint64))
    score = decisions["score"].to_numpy().astype(np.float32)
    has = np.isfinite(score)
    prompt, chosen, rejected = (signals[f"pair.{s}_words"].to_numpy().astype(np.float32) for s in SIDES)
    return Side(
        name, out, audited_here, manifest, report, Keys(keys[0], *_turn(keys[1], keys[2], turned), sound, kept), turned, why, words,
        dict(zip(SIDES, (prompt, *_turn(chosen, rejected, turned)), strict=True)),
        {s: score[has & (stage == i)] for i, s in enumerate(stages) if s},
    )  # fmt: skip


def _turn(chosen: Any, rejected: Any, turned: Mask) -> tuple[Any, Any]:
    return np.where(turned, rejected, chosen), np.where(turned, chosen, rejected)


def _place(words: list[str], word: str) -> int:
    return words.index(word) if word in words else -2


def _codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    """A column of words as numbers (-1: none) and the words."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    held = column.unify_dictionaries().combine_chunks()
    if isinstance(held, pa.ChunkedArray):  # what Arrow makes of a column without rows
        return np.zeros(0, np.int32), []
    return pc.fill_null(held.indices, -1).to_numpy(zero_copy_only=False).astype(np.int32), held.dictionary.to_pylist()
