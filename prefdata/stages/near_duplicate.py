"""Pairs that are an earlier pair with a few words edited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from prefdata.decisions import Decisions, Finding, Signals
from prefdata.near import BANDS, COMPARED, bands, buckets, grams, jaccard, joined
from prefdata.pairs import SIDES, Pairs
from prefdata.stage import Stage

_SHORT = 8  # words; two answers below that say too little for their likeness to mean anything
_AT_ONCE = 5  # bands read in one pass over the signals: 40 bytes a row of memory
_HOPELESS = 0.3  # a side this far below the limit ends the comparison


class NearDuplicate(Stage):
    """Is the pair an earlier one with a few words edited?

    Why it matters: near copies weigh double like exact ones, and carry test rows into the training part, but no exact
    comparison sees them.

    How it decides: prompt, chosen and rejected must each share at least the limit of their word pairs (Jaccard
    index) with an earlier row that stays, so that a chain of small steps never collapses into one survivor.
    Candidates come from MinHash (20 bands of 6 rows: of pairs at 0.8 it finds 99.8 %); each is then compared
    exactly. A word is one character in Chinese, Japanese, Thai and the like. Numbers, negations, symbols, single
    letters and whatever looks like code must be equal in order. Where both answers are shorter than 8 words the
    prompts must be the same, and a pair whose answers fit the other's opposite ones better is no duplicate. The
    score is the lowest of the three indices.

    What it misses: paraphrases and translations; with a limit below 0.7 an increasing share of the near pairs (at 0.6,
    about 1 in 3). Each row is compared with at most 64 earlier ones, those that share most bands first; a finding says
    if that happened. Short texts hardly reach the limit with a word edited: 0.8 takes about 20 words. Negation inside a
    word (Turkish, Finnish, Burmese) is not seen.

    References: ChenghaoMou/text-dedup#17, marin-community/marin#6851, marin-community/marin#6854, bigcode-dataset#35
    """

    reasons: ClassVar[Mapping[str, str]] = {
        "near_duplicate": "An earlier pair that stays (named as peer) is the same but for a few words in each text."
        " Read both; raise the limit if the difference matters to you.",
    }
    measured: ClassVar[frozenset[str]] = frozenset()
    drops: ClassVar[Literal["above", "below"] | None] = "above"
    scale: ClassVar[str] = "lowest Jaccard index of word pairs among prompt, chosen and rejected, 0-1"

    threshold: float = Field(0.8, gt=0, le=1)
    action: Literal["drop", "flag"] = "drop"

    def measure(self, pairs: Pairs) -> pa.Table:
        """``bands``: the keys of MinHash; rows that share one are compared."""
        keys = bands([pairs.words[side] for side in SIDES])
        return pa.table({"bands": pa.FixedSizeListArray.from_arrays(pa.array(keys.ravel()), BANDS)})

    def decide(self, signals: Signals) -> Decisions:
        """Go through the rows that share a bucket, in row order, against the rows that stay."""
        out = Decisions(signals.index, limit=self.threshold)
        compare = _Comparison(signals)
        peers, unsure = joined(
            buckets(_bands(signals)), lambda row, earlier: self._peer(compare, row, earlier, out.score)
        )
        rows, found = np.array(list(peers), np.int64), np.array(list(peers.values()), np.int64)
        out.mark(rows, self.action, "near_duplicate", peer=signals.index[found])
        if unsure:
            said = f"rows kept after comparison with {COMPARED} of the earlier ones that may be near; more may be left"
            out.findings.append(Finding("near_duplicate_cut", unsure, len(signals), said))
        return out

    def _peer(self, compare: _Comparison, row: int, earlier: list[int], scores: npt.NDArray[np.float32]) -> int:
        """The first of the earlier rows that this one repeats, or -1; leaves the score of it, or the highest."""
        for other in earlier:
            score = compare(row, other, self.threshold - _HOPELESS)
            if score >= self.threshold and compare.alike(row, other):
                scores[row] = score
                return other
            if not score <= scores[row]:  # the first one is compared with NaN
                scores[row] = score
        return -1


class _Comparison:
    """Exact comparison of two rows by their positions; keeps the word pairs of the rows it saw last."""

    def __init__(self, signals: Signals) -> None:
        self.signals = signals
        self.keys = [signals.column(f"pair.{side}_key") for side in SIDES]
        counts = np.stack([signals.column(f"pair.{side}_words") for side in SIDES])
        self.short = counts[1:].max(axis=0) < _SHORT
        self.edges = np.concatenate([np.zeros_like(counts[:1]), counts.cumsum(axis=0)]).T  # of the sides in the words
        self.content = signals.column("pair.content")
        self.words = lru_cache(1024)(self._words)
        self.pairs = lru_cache(4096)(self._pairs)

    def _words(self, row: int) -> npt.NDArray[np.uint32]:
        return self.signals.rows("pair.words", self.signals.index[[row]])[0]

    def _pairs(self, row: int, side: int) -> npt.NDArray[np.uint64]:
        return grams(self.words(row)[self.edges[row, side] : self.edges[row, side + 1]])

    def index(self, row: int, side: int, other: int, other_side: int) -> float:
        """The Jaccard index of two texts; equal ones need no look at their words."""
        if self.keys[side][row] == self.keys[other_side][other]:
            return 1.0
        return jaccard(self.pairs(row, side), self.pairs(other, other_side))

    def __call__(self, row: int, other: int, hopeless: float) -> float:
        """The lowest index of the three sides; NaN as soon as one is hopeless."""
        lowest = 1.0
        for side in (1, 2, 0):
            lowest = min(lowest, self.index(row, side, other, side))
            if lowest < hopeless:
                return np.nan
        return lowest

    def alike(self, row: int, other: int) -> bool:
        """False where the numbers of the comparison do not mean what they say."""
        if self.content[row] != self.content[other]:
            return False
        if self.short[row] and self.short[other] and self.keys[0][row] != self.keys[0][other]:
            return False
        straight = self.index(row, 1, other, 1) + self.index(row, 2, other, 2)
        # Sets of such different sizes share no more than this: most answers need no closer look.
        if self._most(row, 1, other) + self._most(row, 2, other) <= straight:
            return True
        return self.index(row, 1, other, 2) + self.index(row, 2, other, 1) <= straight

    def _most(self, row: int, side: int, other: int) -> float:
        sizes = len(self.pairs(row, side)), len(self.pairs(other, 3 - side))
        return min(sizes) / max(1, *sizes)


def _bands(signals: Signals) -> Iterator[npt.NDArray[np.uint64]]:
    """The keys of one band after the other, a few read at a time."""
    for first in range(0, BANDS, _AT_ONCE):
        keys = np.empty((_AT_ONCE, len(signals)), np.uint64)
        for where, batch in signals.batches(["near_duplicate.bands"]):
            flat = batch["near_duplicate.bands"].flatten().to_numpy()
            keys[:, where] = flat.reshape(-1, BANDS)[:, first : first + _AT_ONCE].T
        yield from keys
