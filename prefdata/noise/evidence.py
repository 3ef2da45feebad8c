"""What a set shows of its answers, as matrices for linear models; every row is chosen minus rejected.

``measured`` lays numbers down a batch at a time; ``Features`` is fitted on a fixed sample of them (scales and word
weights, no label takes part), and turns rows into ``Evidence``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prefdata.decisions import Index, Signals
from prefdata.lexicon import mixed
from prefdata.near import bands, buckets, combined, grams, jaccard, joined
from prefdata.pairs import SIDES, Pairs
from prefdata.ragged import places
from prefdata.style import NAMES
from prefdata.words import Words

Array = npt.NDArray[np.float32]
U64 = npt.NDArray[np.uint64]

BITS = 20  # words and word pairs are hashed to 2^20 columns
MIN_TEXTS, MIN_SHARE = 3, 1e-4  # those in fewer answers, or in a smaller share of them, are left out
SIGN, CLIP, NORM = 0.5, 4.0, 6.0
NEAR = 0.8  # Jaccard index of word pairs from which two prompts must share a fold
PER_COLUMN = ("style", "statistics")  # blocks whose columns are scaled one by one; the others are vectors
BLOCKS = (*PER_COLUMN, "vectors", "sentence", "product", "hidden")
_LENGTH = NAMES.index("log_words")
_REFUSALS = [NAMES.index(n) for n in ("refusing", "starts_refusing")]


def measured(pairs: Pairs, vectors: dict[str, Array]) -> dict[str, pa.Array]:
    """What ``Features`` reads of a batch, as lists: style counts, and further blocks (n, k) by name, all differences."""
    chosen, rejected = pairs.style
    blocks = {"style": chosen - rejected, **{n: v.astype(np.float16) for n, v in vectors.items()}}
    return {n: pa.FixedSizeListArray.from_arrays(pa.array(v.ravel()), v.shape[1]) for n, v in blocks.items()}


@dataclass(frozen=True)
class Evidence:
    """``dense`` (n, k) and ``sparse`` (n, v; CSR) features, ``side`` (n, 5): what the residual of the second vote is free
    of (length in words, three forms; refusal, two), ``group`` (n,) prompts that must share a fold, ``order`` (n,) a hash of
    each pair, and further ``votes`` (n, m), NaN for no opinion.
    """

    dense: Array
    sparse: Any
    side: Array
    group: U64
    order: U64
    votes: Array

    def __len__(self) -> int:
        return len(self.group)

    def flipped(self, where: npt.NDArray[np.bool_]) -> Evidence:
        """The same pairs with the labels of some turned round."""
        sign = np.where(where, -1, 1).astype(np.float32)
        turned = self.sparse.copy()
        turned.data = turned.data * np.repeat(sign, np.diff(turned.indptr))
        column = sign[:, None]
        return replace(
            self, dense=self.dense * column, sparse=turned, side=self.side * column, votes=self.votes * column
        )

    def without_votes(self) -> Evidence:
        """The same pairs, and nobody else has an opinion."""
        return replace(self, votes=np.full_like(self.votes, np.nan))

    def rows(self, at: Index | npt.NDArray[np.bool_]) -> Evidence:
        """Some of the pairs."""
        parts: Any = (self.dense, self.sparse, self.side, self.group, self.order, self.votes)
        return Evidence(*(p[at] for p in parts))


@dataclass(frozen=True)
class _Batch:
    """Raw numbers of some pairs: dense blocks by name, and the words of 2 n answers (all chosen, then all rejected)."""

    blocks: dict[str, Array]
    hashes: npt.NDArray[np.uint32]
    lengths: npt.NDArray[np.int64]
    votes: Array
    group: U64
    order: U64


def _batch(signals: Signals, stage: str, votes: Array, group: U64) -> _Batch:
    """The numbers of these living rows; of their texts only word hashes are read."""
    counts = [f"pair.{s}_words" for s in SIDES]
    blocks = [n for n in signals.names if n.startswith(f"{stage}.") and n.split(".")[1] in BLOCKS]
    dense: dict[str, list[Array]] = {name: [] for name in blocks}
    answers: dict[str, list[Any]] = {"chosen": [], "rejected": []}
    for _, got in signals.batches([*blocks, *counts, "pair.words"]):
        for name in blocks:
            flat = got[name].flatten().to_numpy(zero_copy_only=False)
            dense[name].append(flat.astype(np.float32).reshape(len(got[name]), -1))
        prompt, chosen, rejected = (np.asarray(got[c], np.int64) for c in counts)
        start = got["pair.words"].offsets.to_numpy()[:-1] + prompt
        values = got["pair.words"].values.to_numpy()
        answers["chosen"].append((values[places(start, chosen)], chosen))
        answers["rejected"].append((values[places(start + chosen, rejected)], rejected))
    parts = [*answers["chosen"], *answers["rejected"]]
    return _Batch(
        {name.split(".")[1]: np.concatenate(found) for name, found in dense.items()},
        np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), votes, group, pair_hash(signals),
    )  # fmt: skip


def pair_hash(signals: Signals) -> U64:
    """One hash a pair, whatever its place; rows are put in its order before a fit."""
    return combined([signals.column(f"pair.{side}_key").astype(np.uint64) for side in SIDES])


@dataclass(frozen=True)
class Features:
    """What turns raw numbers into matrices: fitted once, on rows of which no label is looked at."""

    stage: str
    scales: dict[str, Array]
    opinions: Array  # the scale of each vote
    column: npt.NDArray[np.int32]  # of each hash its column among the sparse ones, -1: left out
    idf: Array

    @classmethod
    def fitted(cls, signals: Signals, stage: str, group: U64, votes: Array) -> tuple[Features, Evidence]:
        """Features fitted on these rows, and their evidence in the order of their hashes, so that the order of the input
        is of no consequence; ``group`` (n,) and ``votes`` (n, m) have one entry a row.
        """
        raw = _batch(signals, stage, votes, group)
        order = np.argsort(raw.order, kind="stable")
        scales = {name: _scale(name, block[order]) for name, block in raw.blocks.items()}
        counts = _counted(raw)
        texts = np.bincount(counts.indices, minlength=1 << BITS)
        keep = texts >= max(MIN_TEXTS, MIN_SHARE * counts.shape[0])
        column = np.where(keep, np.cumsum(keep) - 1, -1).astype(np.int32)
        idf = (np.log((1 + counts.shape[0]) / (1 + texts[keep])) + 1).astype(np.float32)
        out = cls(stage, scales, _root(votes[order], axis=0), column, idf)
        return out, out._evidence(raw, counts).rows(order)

    def of(self, signals: Signals, group: U64, votes: Array) -> Evidence:
        """The evidence of any rows, in their order."""
        raw = _batch(signals, self.stage, votes, group)
        return self._evidence(raw, _counted(raw))

    def _evidence(self, raw: _Batch, counts: Any) -> Evidence:
        from scipy.sparse import csr_matrix, hstack

        n = len(raw.group)
        style = raw.blocks["style"]
        dense = []
        for name, block in raw.blocks.items():
            scaled = block / self.scales[name]
            if name in PER_COLUMN:  # the sign alone too: how much longer says less than that it is longer
                dense += [np.clip(scaled, -CLIP, CLIP), SIGN * np.sign(block)]
            else:
                dense.append(NORM * scaled)
        own = self.column[counts.indices]
        there = own >= 0
        value = (1 + np.log(counts.data[there])) * self.idf[own[there]]
        ends = np.concatenate([[0], np.cumsum(there)])[counts.indptr]
        answers = csr_matrix((value, own[there], ends), shape=(2 * n, len(self.idf)))
        norm = np.sqrt(np.bincount(np.repeat(np.arange(2 * n), np.diff(ends)), value.astype(np.float64) ** 2, 2 * n))
        answers.data /= np.repeat(np.where(norm > 0, norm, 1), np.diff(ends)).astype(np.float32)
        length = style[:, [_LENGTH]]
        sparse = hstack([answers[:n] - answers[n:], csr_matrix(length)], format="csr", dtype=np.float32)
        side = np.hstack([length, np.tanh(length), np.sign(length), style[:, _REFUSALS]])
        votes = (raw.votes / self.opinions).astype(np.float32)
        return Evidence(np.hstack(dense).astype(np.float32), sparse, side, raw.group, raw.order, votes)


def _root(values: Array, axis: int | None) -> Array:
    """Root mean square, 1 where there is nothing: turning a row round does not change it."""
    known = np.where(np.isnan(values), 0, values).astype(np.float64) ** 2
    count = np.maximum(1, (~np.isnan(values)).sum(axis))
    mean = np.sqrt(known.sum(axis) / count)
    return np.asarray(np.where(mean > 0, mean, 1), np.float32)


def _scale(name: str, block: Array) -> Array:
    if name in PER_COLUMN:
        return _root(block, axis=0)
    return _root(block, axis=None) * np.float32(np.sqrt(max(1, block.shape[1])))


def _counted(raw: _Batch) -> Any:
    """How often each hashed word and word pair stands in each of the 2 n answers, a CSR matrix."""
    from scipy.sparse import csr_matrix

    n, lengths = len(raw.lengths), raw.lengths
    wide = raw.hashes.astype(np.uint64)
    twice = np.zeros(2 * len(wide), np.int32)
    twice[::2] = mixed(wide) >> np.uint64(64 - BITS)
    twice[1:-1:2] = mixed((wide[:-1] << np.uint64(32)) | wide[1:]) >> np.uint64(64 - BITS)
    ends = lengths.cumsum()
    real = np.ones(len(twice), bool)
    real[2 * ends[lengths > 0] - 1] = False  # the last word of a text has none behind it
    indptr = np.concatenate([[0], np.maximum(2 * lengths - 1, 0).cumsum()])
    out = csr_matrix((np.ones(int(real.sum()), np.float32), twice[real], indptr), shape=(n, 1 << BITS))
    out.sum_duplicates()
    return out


def prompt_groups(signals: Signals, near: bool = True) -> U64:
    """A number for each living row: equal for equal prompts and, with ``near``, for prompts that are nearly equal."""
    keys = signals.column("pair.prompt_key").astype(np.uint64)
    prompts, first, of = np.unique(keys, return_index=True, return_inverse=True)
    if not near or len(prompts) < 2:
        return keys
    lengths = signals.column("pair.prompt_words").astype(np.int64)[first]
    texts = [w[:k] for w, k in zip(signals.rows("pair.words", signals.index[first]), lengths.tolist(), strict=True)]
    content = np.zeros(len(texts), np.uint64)  # numbers do not make two prompts of one template strangers
    words = Words(np.concatenate(texts), np.concatenate([[0], lengths.cumsum()]), content)
    keyed = bands([words])
    pairs_of = lru_cache(8192)(lambda i: grams(texts[i]))

    def find(item: int, earlier: list[int]) -> int:
        return next((e for e in earlier if jaccard(pairs_of(item), pairs_of(e)) >= NEAR), -1)

    to = np.arange(len(prompts))
    for item, other in joined(buckets(keyed.T), find)[0].items():
        to[item] = other
    return np.asarray(prompts[to][of], np.uint64)
