"""Faults of known truth, planted in a set: wrong labels as masks of rows, other faults as rows of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata.bench.sentences import edit, jaccard
from prefdata.pairs import SIDES

Mask = npt.NDArray[np.bool_]
Row = dict[str, Any]
ANNOTATORS = 10
LEAD = "Here is what I think about it. "


def uniform(n: int, rate: float, seed: int) -> Mask:
    """``round(rate * n)`` of ``n`` rows, every one as likely as any other."""
    return _chosen(np.arange(n), round(rate * n), n, np.random.default_rng([seed, 1]))


def by_length(gap: npt.NDArray[Any], rate: float, seed: int) -> Mask:
    """Flips by an annotator who likes short answers: drawn among the rows whose chosen answer is the longer one.

    ``gap`` (n,) is length of chosen minus length of rejected. As many as ``rate`` asks for, or as there are such rows.
    """
    return _chosen(np.flatnonzero(gap > 0), round(rate * len(gap)), len(gap), np.random.default_rng([seed, 2]))


def by_annotator(who: npt.NDArray[Any], rate: float, seed: int) -> Mask:
    """Flips by annotators who err unequally: from not at all to twice the rate (at most half), evenly spread among them.

    ``who`` (n,) names the annotator of each row. The order from good to bad is drawn.
    """
    rng = np.random.default_rng([seed, 3])
    names, of = np.unique(who, return_inverse=True)
    shares = np.minimum(np.linspace(0, 2 * rate, len(names)) if len(names) > 1 else np.array([rate]), 0.5)
    out = np.zeros(len(who), bool)
    for k, share in zip(rng.permutation(len(names)), shares, strict=True):
        rows = np.flatnonzero(of == k)
        out |= _chosen(rows, round(share * len(rows)), len(who), rng)
    return out


def annotators(groups: npt.NDArray[Any], seed: int, of: int = ANNOTATORS) -> npt.NDArray[np.int64]:
    """Who judged each row, where the set does not say: each prompt (``groups``, (n,)) goes to one of ``of`` annotators."""
    _, prompt = np.unique(groups, return_inverse=True)
    return np.random.default_rng([seed, 4]).integers(0, of, int(prompt.max(initial=0)) + 1)[prompt]


def _chosen(rows: npt.NDArray[np.int64], count: int, n: int, rng: np.random.Generator) -> Mask:
    out = np.zeros(n, bool)
    out[rng.permutation(rows)[:count]] = True
    return out


# ---------------------------------------------------------------------------------------------- rows


@dataclass
class Planted:
    """Rows with a fault in some of them: ``bad`` are the faulty rows, ``partners`` what else its removal may take along."""

    rows: list[Row]
    bad: set[int]
    partners: set[int] = field(default_factory=set)


def exact(rows: Sequence[Row], count: int, rng: Random) -> Planted:
    """Copies of ``count`` rows, behind the others."""
    return _copies(rows, count, rng, dict)


def near(rows: Sequence[Row], count: int, rng: Random) -> Planted:
    """Copies with 1 to 4 % of the words of each text changed, never a number, a negation or code, that still have 0.8 of their
    word pairs in common in each text (in short texts one word is more than that): fewer than ``count`` where few can be changed so.
    """
    copies: list[Row] = []
    for i in rng.sample(range(len(rows)), len(rows)):
        if len(copies) == count:
            break
        texts = [rows[i][s] for s in SIDES]
        changed = edit(texts, rng.uniform(0.01, 0.04), _SPARE, rng)
        if changed != texts and all(jaccard(a, b, 2) >= 0.8 for a, b in zip(texts, changed, strict=True)):
            copies.append(rows[i] | dict(zip(SIDES, changed, strict=True)))
    return Planted([*rows, *copies], set(range(len(rows), len(rows) + len(copies))))


def contradiction(rows: Sequence[Row], count: int, rng: Random) -> Planted:
    """Copies with the label turned round. Of such two neither is right for sure: the row copied may go as well."""
    out = _copies(rows, count, rng, lambda row: row | {"chosen": row["rejected"], "rejected": row["chosen"]})
    seen = {(r["prompt"], r["chosen"], r["rejected"]): i for i, r in enumerate(rows)}
    out.partners = {seen[r["prompt"], r["rejected"], r["chosen"]] for r in (out.rows[i] for i in out.bad)}
    return out


def identical(rows: Sequence[Row], count: int, rng: Random) -> Planted:
    """Rejected becomes the chosen text, but for white space at its end."""
    return _changed(rows, count, rng, lambda row: row | {"rejected": row["chosen"] + rng.choice(("", "", "\n", "  "))})


def cut(rows: Sequence[Row], count: int, rng: Random, window: int) -> Planted:
    """Both answers begin with one text that is longer than ``window`` tokens: within the window they are the same."""

    def changed(row: Row) -> Row:
        start = (row["chosen"] + " ") * (window * _LONGEST_TOKEN // (len(row["chosen"]) + 1) + 1)
        return row | {"chosen": start + row["chosen"], "rejected": start + row["rejected"]}

    return _changed(rows, count, rng, changed)


def shortcut(rows: Sequence[Row], strength: float, rng: Random) -> list[Row]:
    """One answer of every pair gets a stock opening: the chosen one in a share ``strength`` of the pairs."""
    at = set(rng.sample(range(len(rows)), round(strength * len(rows))))
    sides = ["chosen" if i in at else "rejected" for i in range(len(rows))]
    return [dict(row) | {side: LEAD + row[side]} for row, side in zip(rows, sides, strict=True)]


PLANTS: Mapping[str, Callable[[Sequence[Row], int, Random], Planted]] = {
    "exact": exact, "near": near, "contradiction": contradiction, "identical": identical,
}  # fmt: skip
_SPARE = ("apple", "pear", "river", "window", "garden", "silver", "market", "paper")
_LONGEST_TOKEN = 10  # characters; the mean of any real text is below


def _copies(rows: Sequence[Row], count: int, rng: Random, changed: Callable[[Row], Row]) -> Planted:
    copies = [changed(dict(rows[i])) for i in rng.sample(range(len(rows)), count)]
    return Planted([*rows, *copies], set(range(len(rows), len(rows) + count)))


def _changed(rows: Sequence[Row], count: int, rng: Random, changed: Callable[[Row], Row]) -> Planted:
    at = set(rng.sample(range(len(rows)), count))
    return Planted([changed(dict(row)) if i in at else row for i, row in enumerate(rows)], at)
