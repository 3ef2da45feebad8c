"""What several annotators say together: Dawid and Skene's model of who is right how often, and the majority.

A vote is +1 (the chosen answer is better), -1 (the rejected one) or 0 (a tie). Who is right more often counts more.
Source: A. P. Dawid, A. M. Skene, "Maximum likelihood estimation of observer error-rates using the EM algorithm", Applied
Statistics 28 (1979).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from prefdata.decisions import Signals
from prefdata.pairs import ANNOTATIONS, ANNOTATORS, Pairs

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PRIOR = (4.0, 1.0, 2.0)
"""Votes that every annotator is thought to have given before, for each of the two truths: right, tie, wrong. It decides only
where votes are few.
"""
_STEPS, _STILL = 500, 1e-7


@dataclass(frozen=True)
class Votes:
    """A sparse table: ``annotator[k]`` (any integers) said ``vote[k]`` (+1, 0, -1) of ``item[k]``, a number below ``items``."""

    items: int
    item: Ints
    annotator: Ints
    vote: Ints

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, int]]) -> Votes:
        """From one mapping an item, of the annotators' names to their votes."""
        flat = [(i, _number(who), vote) for i, row in enumerate(rows) for who, vote in row.items()]
        item, annotator, vote = (
            (np.array(c, np.int64) for c in zip(*flat, strict=True)) if flat else (np.zeros(0, np.int64),) * 3
        )
        return cls(len(rows), item, annotator, vote)  # fmt: skip

    def turned(self, where: npt.NDArray[np.bool_]) -> Votes:
        """The votes on pairs that were turned round at these items."""
        return Votes(self.items, self.item, self.annotator, np.where(where[self.item], -self.vote, self.vote))

    @property
    def counts(self) -> Ints:
        """How many votes each item has."""
        return np.bincount(self.item, minlength=self.items)


@dataclass(frozen=True)
class Judged:
    """What the votes say. ``right`` is the probability that the chosen answer is the better one, (items,), NaN without a vote.

    ``annotators`` are the different ones, ``accuracy`` how often each says what is true, ``n`` the votes of each.
    ``objective`` is the penalised log-likelihood after each step, which never falls.
    """

    right: Floats
    annotators: Ints
    accuracy: Floats
    n: Ints
    objective: list[float]


def majority(votes: Votes) -> Floats:
    """The share of an item's votes for the chosen answer, a tie being half a vote, (items,); NaN without a vote."""
    n = votes.counts
    total = np.bincount(votes.item, votes.vote, votes.items)
    out: Floats = np.divide(n + total, 2 * n, out=np.full(votes.items, np.nan), where=n > 0)
    return out


def dawid_skene(votes: Votes) -> Judged:
    """EM for the truth of each item and how often each annotator is right, wrong or undecided, from the majority on.

    Nobody prefers a side ("one coin" a person), so exchanging an item's answers turns its probability into one minus it: it
    must be so where the votes themselves say which answer is called chosen.

    Sums run in the order of the votes: give these in the same order to get the same bits. O(steps * votes).
    """
    names, who = np.unique(votes.annotator, return_inverse=True)
    n, counts = np.bincount(who, minlength=len(names)), votes.counts
    voted = counts > 0
    right = (np.nan_to_num(majority(votes)) * counts + 1.5e-3) / (counts + 3e-3)
    objective: list[float] = []
    while True:
        # M: the mode of every annotator's rates under a Dirichlet prior; the two truths halve the votes between them
        agrees = np.where(votes.vote == 0, 0, (1 + votes.vote * (2 * right[votes.item] - 1)) / 2)
        hits, ties = (np.bincount(who, v, len(names)) for v in (agrees, votes.vote == 0))
        rates = np.stack([hits, ties, n - hits - ties], 1) / 2 + PRIOR
        rates /= rates.sum(1, keepdims=True)
        # E: the truth of every item
        log = np.log(rates)
        chosen, rejected = (np.bincount(votes.item, log[who, 1 - s * votes.vote], votes.items) for s in (1, -1))
        right = np.exp(-np.logaddexp(0, rejected - chosen))
        found = np.logaddexp(chosen, rejected)[voted].sum() - voted.sum() * np.log(2)
        objective.append(float(found + 2 * (log @ PRIOR).sum()))
        if len(objective) == _STEPS or (len(objective) > 1 and objective[-1] - objective[-2] <= _STILL * votes.items):
            break
    return Judged(np.where(voted, right, np.nan), names, rates[:, 0], n, objective)


def _number(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode()) >> 1  # what an int64 holds


def measured(pairs: Pairs) -> dict[str, pa.Array]:
    """The single votes of a batch (``pd_annotations``, ``pd_annotators``) as signals: ``votes`` and ``voters``, lists of
    numbers. Nothing where the batch has no such columns, or they hold something else.

    Votes without a name are those of one annotator, who is as good as all of the nameless together.
    """
    given = pairs.columns.get(ANNOTATIONS)
    if given is None:
        return {}
    named = pairs.columns.get(ANNOTATORS)
    names = named.to_pylist() if named is not None else [None] * len(pairs)
    votes, voters = [], []
    for cast, who in zip(given.to_pylist(), names, strict=True):
        held = cast if isinstance(cast, list) and set(cast) <= {-1, 0, 1} else []
        fits = isinstance(who, list) and len(who) == len(held)
        votes.append(held)
        voters.append([_number(str(w or "")) for w in who] if fits else [_number("")] * len(held))
    return {"votes": pa.array(votes, pa.list_(pa.int8())), "voters": pa.array(voters, pa.list_(pa.int64()))}


def gathered(signals: Signals, stage: str) -> Votes | None:
    """The votes on the living rows, as ``measured`` laid them down under the stage's name; None where there are none.

    Items are places among the living rows; votes speak of the pair as read (see ``Signals.swapped``, ``Votes.turned``).
    """
    names = [f"{stage}.votes", f"{stage}.voters"]
    if not set(names) <= set(signals.names):
        return None
    parts: list[tuple[Ints, Ints, Ints]] = []
    for where, held in signals.batches(names):
        votes, voters = (held[n].fill_null([]) for n in names)
        lengths = np.diff(votes.offsets.to_numpy())
        item = np.repeat(np.arange(where.start, where.stop), lengths)
        parts.append((item, voters.flatten().to_numpy(), votes.flatten().to_numpy().astype(np.int64)))
    item, annotator, vote = (
        (np.concatenate(c) for c in zip(*parts, strict=True)) if parts else (np.zeros(0, np.int64),) * 3
    )
    return Votes(len(signals), item, annotator, vote) if len(item) else None
