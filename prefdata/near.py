"""Which texts may be near each other (MinHash), and whether they are (Jaccard index of word pairs, exact)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata.lexicon import A, Q, mixed
from prefdata.words import U32, U64, Ints, Words

BANDS, ROWS, SEED = 20, 6, 20240229  # two rows of Jaccard 0.8 share a band with probability 0.998, of 0.5 with 0.27
_AT_ONCE = 1000  # rows: their shingles stay in the cache


def bands(sides: Sequence[Words]) -> U64:
    """``BANDS`` keys a row: MinHash over the word pairs of all sides, each row's content mixed in.

    Rows that differ in content share no key.
    """
    content = combined([s.content for s in sides])
    keys = mixed(content[:, None] + np.arange(BANDS, dtype=np.uint64))
    for first in range(0, len(content), _AT_ONCE):
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

    matrix = RMinHash.digest_matrix_from_flat_token_hashes(hashes, offsets.astype(np.uint64), BANDS * ROWS, SEED)
    flat = array("I", chain.from_iterable(matrix.to_rows()))  # rensa hands out Python numbers only
    return np.frombuffer(flat, np.uint32).reshape(-1, BANDS * ROWS)


def woven(parts: Sequence[npt.NDArray[Any]], offsets: Sequence[Ints]) -> tuple[npt.NDArray[Any], Ints]:
    """Lists of several arrays joined row by row: row ``i`` is ``parts[0]``'s row ``i``, then ``parts[1]``'s, ..."""
    edges = [(p, o.tolist()) for p, o in zip(parts, offsets, strict=True)]
    slices = [p[o[i] : o[i + 1]] for i in range(len(offsets[0]) - 1) for p, o in edges]
    return np.concatenate([parts[0][:0], *slices]), sum(offsets[1:], start=offsets[0])


def combined(parts: Sequence[U64]) -> U64:
    """One hash of several, in their order."""
    out = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        out = mixed(out * Q + part)
    return out


def word_pairs(hashes: U32) -> frozenset[int]:
    """The set of a text's words with their next word; of a text of one word, that word."""
    if len(hashes) < 2:
        return frozenset(hashes.tolist())
    wide = hashes.astype(np.uint64)
    return frozenset(((wide[:-1] << np.uint64(32)) | wide[1:]).tolist())


def jaccard(a: frozenset[int], b: frozenset[int]) -> float:
    """Shared share of two sets; of nothing and nothing it is 0."""
    shared = len(a & b)
    return shared / max(1, len(a) + len(b) - shared)
