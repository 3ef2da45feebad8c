"""Near texts: which may be (MinHash), whether they are (Jaccard index of word pairs), and whom each joins."""

from __future__ import annotations

import os
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata.lexicon import A, Q, mixed
from prefdata.words import Words
from prefdata.words_numpy import U32, U64, Ints

# Two rows with an index of 0.8 share a band with probability 0.998; at 0.9 always, at 0.5 with 0.27, at 0.3 with 0.01.
BANDS, ROWS, SEED = 20, 6, 20240229
COMPARED = 64  # earlier items that an item, and that a bucket, is compared with at most
_AT_ONCE = 1000  # rows: their shingles stay in the cache


def bands(sides: Sequence[Words]) -> U64:
    """``BANDS`` keys a row: MinHash over the word pairs of all sides, each row's content mixed in.

    Rows that differ in content share no key.
    """
    band: U64 = np.arange(BANDS, dtype=np.uint64)
    keys: U64 = mixed(np.add.outer(combined([s.content for s in sides]), band))
    for first in range(0, len(keys), _AT_ONCE):
        some = [_part(s, first, first + _AT_ONCE) for s in sides]
        flat, offsets = woven([shingles(s, i) for i, s in enumerate(some)], [s.offsets for s in some])
        block = keys[first : first + _AT_ONCE]
        signs = signatures(flat, offsets).reshape(-1, BANDS, ROWS)
        for row in range(ROWS):
            block *= Q
            block += signs[:, :, row]
    return mixed(keys)


def _part(side: Words, first: int, last: int) -> Words:
    at = side.offsets[first : last + 1]
    return Words(side.hashes[at[0] : at[-1]], at - at[0], side.content[first:last])


def shingles(side: Words, salt: int) -> U64:
    """One hash for each word and the next of its text, the last again in the place of the next; salted by side.

    Each text has as many as it has words, so ``side.offsets`` fit. A text of one word is one shingle of its own.
    """
    out = side.hashes.astype(np.uint64)
    alone = side.offsets[:-1][np.diff(side.offsets) == 1]
    single = out[alone]
    out[:-1] = (out[:-1] << np.uint64(32)) | out[1:]
    last = side.offsets[1:][np.diff(side.offsets) > 1] - 1
    out[last] = out[last - 1]
    out[alone] = single
    out += mixed(np.array([salt + 1], np.uint64))
    out *= A
    out ^= out >> np.uint64(32)
    return out


def signatures(hashes: U64, offsets: Ints) -> U32:
    """MinHash of each row's hashes, ``BANDS * ROWS`` numbers a row."""
    from rensa import RMinHash

    with _one_thread():
        matrix = RMinHash.digest_matrix_from_flat_token_hashes(hashes, offsets.astype(np.uint64), BANDS * ROWS, SEED)
    flat = array("I", chain.from_iterable(matrix.to_rows()))  # rensa hands out Python numbers only
    return np.frombuffer(flat, np.uint32).reshape(-1, BANDS * ROWS)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Rensa reads this at each call. Its pool of threads does not survive a fork: a worker would wait for it for ever."""
    before = os.environ.get("RAYON_NUM_THREADS")
    os.environ["RAYON_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["RAYON_NUM_THREADS"]
        else:
            os.environ["RAYON_NUM_THREADS"] = before


def woven(parts: Sequence[npt.NDArray[Any]], offsets: Sequence[Ints]) -> tuple[npt.NDArray[Any], Ints]:
    """Lists of several arrays joined row by row: row ``i`` is ``parts[0]``'s row ``i``, then ``parts[1]``'s, ..."""
    edges = [(p, o.tolist()) for p, o in zip(parts, offsets, strict=True)]
    slices = [p[o[i] : o[i + 1]] for i in range(len(offsets[0]) - 1) for p, o in edges]
    return np.concatenate([parts[0][:0], *slices]), sum(offsets[1:], start=offsets[0])


def combined(parts: Sequence[U64]) -> U64:
    """One hash of several, in their order."""
    out: U64 = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        out = mixed(out * Q + part)
    return out


def grams(hashes: U32) -> U64:
    """The sorted set of a text's words with the word that follows; of a text of one word, that word."""
    wide = hashes.astype(np.uint64)
    if len(wide) < 2:
        return wide
    pairs = (wide[:-1] << np.uint64(32)) | wide[1:]
    pairs.sort()
    new = np.ones(len(pairs), bool)
    np.not_equal(pairs[1:], pairs[:-1], out=new[1:])
    return pairs if new.all() else pairs[new]


def jaccard(a: U64, b: U64) -> float:
    """The share of two sorted sets that both have; of nothing and nothing it is 0."""
    both = np.concatenate([a, b])
    both.sort()  # a third of the time of Python sets, at 2,000 words a tenth
    shared = int(np.count_nonzero(both[1:] == both[:-1]))
    return shared / max(1, len(both) - shared)


def buckets(bands: Iterable[U64]) -> Iterator[tuple[int, list[int]]]:
    """Items that share a key with another one in some band, in order, with the numbers of the buckets they share.

    Each band has one key an item; only one band is looked at at a time.
    """
    items, numbers, made = [np.empty(0, np.int32)], [np.empty(0, np.int32)], 0
    for keys in bands:
        order = np.argsort(keys, kind="stable")
        again = np.zeros(len(keys) + 1, bool)  # equal to the key before it
        again[1:-1] = keys[order[1:]] == keys[order[:-1]]
        shared = again[1:] | again[:-1]
        number = np.cumsum(~again[:-1])[shared] + made
        made += len(keys)
        items.append(order[shared].astype(np.int32))
        numbers.append(number.astype(np.int32))
    item, number = np.concatenate(items), np.concatenate(numbers)
    order = np.argsort(item, kind="stable")
    item, number = item[order], number[order]
    for start, end in pairwise([*np.flatnonzero(np.diff(item, prepend=-1)).tolist(), len(item)]):
        yield int(item[start]), number[start:end].tolist()


def joined(
    shared: Iterable[tuple[int, list[int]]], find: Callable[[int, list[int]], int]
) -> tuple[dict[int, int], int]:
    """Each item joins an earlier one that joined none itself, so that no chain of small steps collapses.

    ``find(item, earlier)`` picks one of the earlier items, those with most buckets in common first, or -1. Returns
    whom each item joined, and how many joined none but were not compared with all that share a bucket.
    """
    alone: defaultdict[int, list[int]] = defaultdict(list)  # bucket -> items that joined none
    full: set[int] = set()
    out: dict[int, int] = {}
    unsure = 0
    for item, own in shared:
        common = Counter(other for b in own if b in alone for other in alone[b])
        best = sorted(common, key=lambda other: (-common[other], other))
        other = find(item, best[:COMPARED]) if best else -1
        if other >= 0:
            out[item] = other
            continue
        unsure += len(best) > COMPARED or not full.isdisjoint(own)
        for b in own:
            if len(alone[b]) < COMPARED:
                alone[b].append(item)
            else:
                full.add(b)
    return out, unsure
