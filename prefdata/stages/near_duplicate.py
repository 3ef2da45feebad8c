"""Pairs that are an earlier pair with a few words edited."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from prefdata.decisions import Decisions, Finding, Signals
from prefdata.near import BANDS, bands, jaccard, word_pairs
from prefdata.pairs import SIDES, Pairs
from prefdata.stage import Stage

_SHORT = 8  # words; two answers below that say too little for their likeness to mean anything
_COMPARED = 64  # rows that one row, and one bucket, is compared with at most
_AT_ONCE = 5  # bands read in one pass over the signals: 40 bytes a row of memory
_HOPELESS = 0.3  # a side this far below the limit ends the comparison


class NearDuplicate(Stage):
    """Is the pair an earlier one with a few words edited?

    Why it matters: near copies weigh double like exact ones, and carry test rows into the training part, but no exact
    comparison sees them.

    How it decides: prompt, chosen and rejected must each share at least the limit of their word pairs (Jaccard index)
    with an earlier row that stays, so that a chain of small steps never collapses into one survivor. Candidates come
    from MinHash (20 bands of 6 rows: of pairs at 0.8 it finds 99.8 %); each is then compared exactly. A word is one
    character in Chinese, Japanese, Thai and the like. Numbers, negations, symbols, single letters and whatever looks
    like code must be equal in order. Where both answers are shorter than 8 words the prompts must be the same, and a
    pair that fits better with its answers swapped is no duplicate. The score is the lowest of the three indices.

    What it misses: paraphrases and translations; with a limit below 0.7 an increasing share of the near pairs (at 0.6,
    about 1 in 3). Each row is compared with at most 64 earlier ones, those that share most bands first; a finding says
    if that happened. Short texts hardly reach the limit with a word edited: 0.8 takes about 20 words. Negation inside a
    word (Turkish, Finnish, Burmese) is not seen.

    References: ChenghaoMou/text-dedup#17, marin-community/marin#6851, marin-community/marin#6854, bigcode-dataset#35
    """

    reasons: ClassVar[Mapping[str, str]] = {
        "near_duplicate": "An earlier pair that stays (named as peer) is the same but for a few words in each text. Read both; raise the limit if the difference matters to you.",
    }  # fmt: skip
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
        staying: defaultdict[int, list[int]] = defaultdict(list)  # bucket -> positions of rows that stay
        cut: set[int] = set()  # buckets with more staying rows than are compared
        unsure = 0
        for row, buckets in _buckets(signals):
            earlier = Counter(e for b in buckets if b in staying for e in staying[b])
            best = sorted(earlier, key=lambda e: (-earlier[e], e))
            peer = self._peer(compare, row, best[:_COMPARED], out.score)
            if peer >= 0:
                out.mark([row], self.action, "near_duplicate", peer=signals.index[[peer]])
                continue
            unsure += len(best) > _COMPARED or not cut.isdisjoint(buckets)
            for b in buckets:
                if len(staying[b]) < _COMPARED:
                    staying[b].append(row)
                else:
                    cut.add(b)
        if unsure:
            said = f"rows kept after a comparison with {_COMPARED} of the earlier rows that may be near; more duplicates may be left"
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
        self.counts = np.stack([signals.column(f"pair.{side}_words") for side in SIDES])
        self.content = signals.column("pair.content")
        self.words = lru_cache(1024)(self._words)
        self.pairs = lru_cache(8192)(self._pairs)

    def _words(self, row: int) -> npt.NDArray[np.uint32]:
        return self.signals.rows("pair.words", self.signals.index[[row]])[0]

    def _pairs(self, row: int, side: int) -> frozenset[int]:
        start = int(self.counts[:side, row].sum())
        return word_pairs(self.words(row)[start : start + int(self.counts[side, row])])

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
        if self.counts[1:, [row, other]].max() < _SHORT and self.keys[0][row] != self.keys[0][other]:
            return False
        straight = min(self.index(row, 1, other, 1), self.index(row, 2, other, 2))
        return straight >= min(self.index(row, 1, other, 2), self.index(row, 2, other, 1))


def _buckets(signals: Signals) -> Iterator[tuple[int, list[int]]]:
    """Rows that share a bucket with another, by position and in order, with their shared buckets."""
    rows, buckets, made = [np.empty(0, np.int32)], [np.empty(0, np.int32)], 0
    for first in range(0, BANDS, _AT_ONCE):
        keys = np.empty((_AT_ONCE, len(signals)), np.uint64)
        for where, batch in signals.batches(["near_duplicate.bands"]):
            flat = batch["near_duplicate.bands"].flatten().to_numpy()
            keys[:, where] = flat.reshape(-1, BANDS)[:, first : first + _AT_ONCE].T
        for key in keys:
            order = np.argsort(key, kind="stable")
            again = np.diff(key[order], prepend=0, append=0) == 0
            again[0] = again[-1] = False  # the ends are no neighbours of anything
            shared = again[1:] | again[:-1]
            bucket = np.cumsum(~again[:-1]) + made
            made = int(bucket[-1]) if len(bucket) else made
            rows.append(order[shared].astype(np.int32))
            buckets.append(bucket[shared].astype(np.int32))
    row, bucket = np.concatenate(rows), np.concatenate(buckets)
    order = np.argsort(row, kind="stable")
    row, bucket = row[order], bucket[order]
    edges = [*np.flatnonzero(np.diff(row, prepend=-1)).tolist(), len(row)]
    for start, end in pairwise(edges):
        yield int(row[start]), bucket[start:end].tolist()
