"""The spot-check: which pairs people are asked to judge, and in which order. Seeded; the same decisions give the same sheet."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile, zip_longest
from typing import Literal

import numpy as np
import numpy.typing as npt
import xxhash

from prefdata.decisions import Decisions, Index, Outcome
from prefdata.identity import spelled
from prefdata.report.model import Example
from prefdata.report.parts import SheetRow, Spotcheck, Stratum
from prefdata.stage import Stage

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


def strata(
    keys: Sequence[Sequence[str]], stages: Sequence[Stage], decisions: Sequence[Decisions], outcome: Outcome
) -> Strata:
    """By the issue that dropped a pair, else by the first one that marked it; ``keys`` are the issues of each stage's reasons.

    In none are what is no pair at all (the first stage's drops) and what was dropped though nothing is wrong with it.
    """
    names: list[tuple[str | None, State]] = [(None, "kept")]
    of = np.zeros(len(outcome.stage), np.int16)
    for i, (stage, made, words) in enumerate(zip(stages, decisions, keys, strict=True)):
        for at, key in enumerate(words):
            has = made.reason == at
            swap = made.of("swap")
            stays = outcome.kept[made.rows] & (of[made.rows] == 0)
            turned = outcome.swapped[made.rows]
            found: list[tuple[State, Index]] = [
                ("flagged", made.rows[has & (made.of("flag") | swap) & stays & ~turned]),
                ("swapped", made.rows[has & swap & stays & turned]),
                ("dropped", made.rows[has & made.of("drop")]),
            ]
            for state, rows in found:
                if state == "dropped" and (i == 0 or not stage.judged):
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
    """Which side, as read, stands left where a sheet hides the label: a seeded coin toss."""
    return "rejected" if xxhash.xxh3_64_intdigest(pd_id.encode(), seed) & 1 else "chosen"


def as_it_leaves(pair: Example) -> Example:
    """The pair as people are asked of it: what was swapped is turned round."""
    if pair.state != "swapped":
        return pair
    other = {"chosen": "rejected", "rejected": "chosen"}
    lengths = {other.get(side, side): n for side, n in pair.lengths.items()}
    return pair.model_copy(update={"chosen": pair.rejected, "rejected": pair.chosen, "lengths": lengths})


def _left(pair: Example, seed: int) -> Literal["chosen", "rejected"]:
    """The same side of the pair as it leaves."""
    side = left_side(pair.pd_id, seed)
    return side if pair.state != "swapped" else "chosen" if side == "rejected" else "rejected"


@dataclass(frozen=True)
class Picked:
    """The rows of the page's sheet in the order they are judged in; the first ``base`` are the sample of all kept pairs."""

    rows: list[int]
    base: int


def pick(of: Strata, kept: Index, share: float, seed: int) -> Picked:
    """The sample of the kept pairs in random order, then more of each issue, one of each in turn."""
    rng = np.random.default_rng([seed & 0xFFFFFFFF, 2])
    first = base(base(kept, of, share, seed), of, 1.0, seed, MOST)
    first = rng.permutation(first)
    extra: list[list[int]] = []
    among = np.zeros(len(of.of), bool)
    among[kept] = True
    for number, (issue, state) in enumerate(of.names):
        if issue is None:
            continue
        rows = np.flatnonzero((of.of == number) & (among if state != "dropped" else ~among))
        have = int((of.of[first] == number).sum())
        rows = np.setdiff1d(rows, first)
        extra.append(rng.choice(rows, min(len(rows), max(0, EXTRA - have)), replace=False).tolist())
    more = [row for turn in zip_longest(*extra) for row in turn if row is not None]
    return Picked([*first.tolist(), *more], len(first))


def sheet(
    of: Strata, picked: Picked, shown: Sequence[Example], keys: dict[int, int], kept: Index, share: float, seed: int
) -> Spotcheck:
    """The sheet; ``shown`` are the rows that the page holds, ``keys`` the hashes of the picked ones' texts.

    It ends before the first picked row that had no room: later ones may be shown for another reason, which makes them no sample.
    """
    by_row = {r.row: r for r in shown}
    own = set(picked.rows[: picked.base])
    rows = [
        SheetRow(
            row=n, pd_id=by_row[n].pd_id, key=spelled(keys[n]), stratum=int(of.of[n]), base=n in own,
            left=_left(by_row[n], seed),
        )
        for n in takewhile(by_row.__contains__, picked.rows)
    ]  # fmt: skip
    out = np.flatnonzero(np.isin(of.of, [i for i, (_, state) in enumerate(of.names) if state == "dropped"]))
    population = of.sizes(kept) + of.sizes(out)
    counted = [[sum(r.stratum == i and r.base is b for r in rows) for b in (True, False)] for i in range(len(of.names))]
    made = [
        Stratum(issue=issue, state=state, population=int(population[i]), base=counted[i][0], extra=counted[i][1])
        for i, (issue, state) in enumerate(of.names)
    ]
    mark = "\n".join([str(seed), *(f"{r.row} {r.key} {r.base}" for r in rows)])
    name = hashlib.sha256(mark.encode()).hexdigest()[:12]
    in_base = sum(r.base for r in rows)
    return Spotcheck(id=name, seed=seed, share=share, kept=len(kept), base=in_base, strata=made, rows=rows)
