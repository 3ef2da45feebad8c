"""The spot-check: which pairs people are asked to judge, and in which order. Seeded; the same decisions give the same sheet."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import xxhash

from prefdata.decisions import Decisions, Index, Outcome
from prefdata.identity import spelled
from prefdata.report.model import Example
from prefdata.report.parts import SheetRow, Spotcheck, Stratum

LEAST, MOST, EXTRA = 50, 400, 20
State = Literal["kept", "flagged", "swapped", "dropped"]


@dataclass(frozen=True)
class Strata:
    """Of each pair its stratum (-1: nothing to judge), and what the strata are: issue and outcome."""

    of: npt.NDArray[np.int16]
    names: list[tuple[str | None, State]]

    def sizes(self, rows: Index) -> npt.NDArray[np.int64]:
        """How many of these rows are in each."""
        return np.bincount(self.of[rows], minlength=len(self.names))


def strata(keys: Sequence[Sequence[str]], decisions: Sequence[Decisions], outcome: Outcome) -> Strata:
    """By the issue that dropped a pair, else by the first one that marked it; what is no pair at all is in none."""
    names: list[tuple[str | None, State]] = [(None, "kept")]
    of = np.zeros(len(outcome.stage), np.int16)
    for i, (made, words) in enumerate(zip(decisions, keys, strict=True)):
        for at, key in enumerate(words):
            has = made.reason == at
            stays = made.rows[has & ((made.action == 1) | (made.action == 3))]
            stays = stays[outcome.kept[stays] & (of[stays] == 0)]
            turned = outcome.swapped[stays]
            drop = made.rows[has & made.of("drop")]
            found: list[tuple[State, Index]] = [
                ("flagged", stays[~turned]),
                ("swapped", stays[turned]),
                ("dropped", drop),
            ]
            for state, rows in found:
                if i == 0 and state == "dropped":  # no pair at all
                    of[rows] = -1
                elif len(rows):
                    of[rows] = len(names)
                    names.append((key, state))
    return Strata(of, names)


def base(rows: Index, of: Strata, share: float, seed: int, most: int | None = None) -> Index:
    """A sample of these rows in proportion to their strata, in row order: that share of them, at least ``LEAST``."""
    rng = np.random.default_rng([seed & 0xFFFFFFFF, 1])
    wanted = min(len(rows), max(LEAST, round(share * len(rows))), len(rows) if most is None else most)
    if not wanted:
        return rows[:0]
    order = np.lexsort((rng.permutation(len(rows)), of.of[rows]))
    step = len(rows) / wanted  # every step-th of the rows as they lie, stratum by stratum: in proportion by itself
    at = np.floor((np.arange(wanted) + rng.random()) * step).astype(np.int64)
    return np.sort(rows[order[np.minimum(at, len(rows) - 1)]])


def left_side(pd_id: str, seed: int) -> Literal["chosen", "rejected"]:
    """Which side stands left where a sheet hides the label: a seeded coin toss."""
    return "rejected" if xxhash.xxh3_64_intdigest(pd_id.encode(), seed) & 1 else "chosen"


@dataclass(frozen=True)
class Picked:
    """The rows of the page's sheet in the order they are judged in; the first ``base`` are the sample of all kept pairs."""

    rows: list[int]
    base: int


def pick(of: Strata, kept: Index, share: float, seed: int) -> Picked:
    """The sample of the kept pairs in random order, then more of each issue, issue by issue."""
    rng = np.random.default_rng([seed & 0xFFFFFFFF, 2])
    first = base(base(kept, of, share, seed), of, 1.0, seed, MOST)
    first = rng.permutation(first)
    extra: list[int] = []
    among = np.zeros(len(of.of), bool)
    among[kept] = True
    for number, (issue, state) in enumerate(of.names):
        if issue is None:
            continue
        rows = np.flatnonzero((of.of == number) & (among if state != "dropped" else ~among))
        have = int((of.of[first] == number).sum())
        rows = np.setdiff1d(rows, first)
        extra += rng.choice(rows, min(len(rows), max(0, EXTRA - have)), replace=False).tolist()
    return Picked([*first.tolist(), *extra], len(first))


def sheet(
    of: Strata, picked: Picked, shown: Sequence[Example], keys: dict[int, int], kept: Index, share: float, seed: int
) -> Spotcheck:
    """The sheet; ``shown`` are the picked rows that the page holds, ``keys`` the hashes of their texts."""
    by_row = {r.row: r for r in shown}
    own = set(picked.rows[: picked.base])
    rows = [
        SheetRow(
            row=n, pd_id=by_row[n].pd_id, key=spelled(keys[n]), stratum=int(of.of[n]), base=n in own,
            left=left_side(by_row[n].pd_id, seed),
        )
        for n in picked.rows if n in by_row
    ]  # fmt: skip
    population = of.sizes(np.flatnonzero(of.of >= 0))
    counted = [[sum(r.stratum == i and r.base is b for r in rows) for b in (True, False)] for i in range(len(of.names))]
    made = [
        Stratum(issue=issue, state=state, population=int(population[i]), base=counted[i][0], extra=counted[i][1])
        for i, (issue, state) in enumerate(of.names)
    ]
    mark = "\n".join([str(seed), *(f"{r.row} {r.key} {r.base}" for r in rows)])
    name = hashlib.sha256(mark.encode()).hexdigest()[:12]
    in_base = sum(r.base for r in rows)
    return Spotcheck(id=name, seed=seed, share=share, kept=len(kept), base=in_base, strata=made, rows=rows)
