"""What a sample of the pairs shows of its answers: beginnings, endings and words, out of the signals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata.decisions import Index, Signals
from prefdata.noise import shortcuts
from prefdata.noise.evidence import pair_hash
from prefdata.pairs import SIDES

GRAM_PAIRS, GRAM_WORDS, GRAM_COLUMNS = 20_000, 400, 1 << 18
U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Seen:
    """Pairs in the order of their hashes, so that the order of the rows does not matter; as they are labelled now.

    ``rows`` are their numbers in the set, ``edges`` the keys of the beginnings and endings of the chosen and of the rejected
    answers (see ``shortcuts.edges``), ``grams`` the word 1-2-grams of the first ``GRAM_PAIRS``, chosen minus rejected.
    """

    signals: Signals
    order: Index
    rows: Index
    prompts: U64
    fold: npt.NDArray[np.int8]
    swapped: npt.NDArray[np.bool_]
    edges: tuple[U64, U64]
    grams: Any

    def column(self, name: str) -> npt.NDArray[np.float32]:
        """A measured difference, chosen minus rejected; 0 where it is not known."""
        values = np.nan_to_num(self.signals.column(name).astype(np.float32))[self.order]
        return np.where(self.swapped, -values, values)

    def sides(self, chosen: str, rejected: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Two columns of which one speaks of each answer."""
        one, two = (self.signals.column(name)[self.order] for name in (chosen, rejected))
        return np.where(self.swapped, two, one), np.where(self.swapped, one, two)

    def phrase(self, at: int, *, chosen: bool, ending: bool, words: int) -> tuple[int, ...]:
        """Hashes of the first or last words of an answer of the pair at this position."""
        one = self.signals.living(self.rows[at : at + 1])
        sizes = [int(one.column(f"pair.{side}_words")[0]) for side in SIDES]
        side = 1 if chosen != bool(self.swapped[at]) else 2
        listed = one.rows("pair.words", one.index)[0][sum(sizes[:side]) : sum(sizes[: side + 1])]
        return tuple((listed[-words:] if ending else listed[:words]).tolist())


def keys(told: Signals) -> tuple[U64, U64, U64]:
    """The keys of prompt, chosen and rejected, as the pairs are labelled now."""
    prompt, one, two = (told.column(f"pair.{side}_key") for side in SIDES)
    return prompt, np.where(told.swapped, two, one), np.where(told.swapped, one, two)


def seen(told: Signals, most: int) -> Seen:
    """At most so many of these pairs, those with the smallest hashes."""
    from scipy import sparse

    hashes = pair_hash(told)
    if len(hashes) > most:
        few = hashes < np.partition(hashes, most)[most]
        told, hashes = told.living(told.index[few]), hashes[few]
    order = np.argsort(hashes, kind="stable")
    rank = np.argsort(order)
    edges: tuple[list[U64], list[U64]] = [], []
    grams = []
    for where, got in told.batches(["pair.words", *(f"pair.{side}_words" for side in SIDES)]):
        listed = got["pair.words"]
        words, start = listed.values.to_numpy(), listed.offsets.to_numpy()[:-1] + got["pair.prompt_words"]
        few = rank[where] < GRAM_PAIRS
        counted = []
        for k, side in enumerate(SIDES[1:]):
            stop = start + got[f"pair.{side}_words"]
            edges[k].append(shortcuts.edges(words, start, stop))
            counted.append(shortcuts.grams(words, start[few], np.minimum(stop, start + GRAM_WORDS)[few], GRAM_COLUMNS))
            start = stop
        grams.append(counted[0] - counted[1])
    swapped = told.swapped[order]
    one, two = (np.concatenate(e)[order] for e in edges)
    turn = swapped[:, None]
    first = order[:GRAM_PAIRS]
    sign = sparse.diags(np.where(swapped[:GRAM_PAIRS], -1, 1).astype(np.float32))
    gram = sign @ sparse.vstack(grams).tocsr()[np.argsort(np.argsort(first))]
    prompts = told.column("pair.prompt_key")[order]
    return Seen(
        told, order, told.index[order], prompts, shortcuts.folds(prompts, told.seed), swapped,
        (np.where(turn, two, one), np.where(turn, one, two)), gram.tocsr(),
    )  # fmt: skip
