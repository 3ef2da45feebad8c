"""Which pair of one set is which pair of another, by hashes of their texts. Whole columns at a time; every pair is matched once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prefdata.near import combined

U64 = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Keys:
    """Hashes of the three texts of ``n`` pairs, as they leave (a swap carried out); ``sound`` has those that have texts."""

    prompt: U64
    chosen: U64
    rejected: U64
    sound: Mask
    kept: Mask


@dataclass(frozen=True)
class Match:
    """Row numbers of A and of B that belong together, side by side; and the rows that are left, with ascending numbers."""

    same: tuple[Rows, Rows]
    swapped: tuple[Rows, Rows]
    changed: tuple[Rows, Rows]
    only_a: Rows
    only_b: Rows


def match(a: Keys, b: Keys) -> Match:
    """Match what is alike in all texts; then what has its label turned round; then what has one text changed (or both answers,
    where the prompt is left once on each side). Of several alike, kept ones are matched first, then in the order of rows.
    """
    left = tuple(np.concatenate([np.flatnonzero(k.sound & m) for m in (k.kept, ~k.kept)]) for k in (a, b))
    same, left = _step(_whole(a), _whole(b), left)
    swapped, left = _step(_unordered(a), _unordered(b), left)
    found = []
    for one, other in zip(_two_of_three(a), _two_of_three(b), strict=True):
        got, left = _step(one, other, left)
        found.append(got)
    once = tuple(r[_single(k.prompt[r])] for k, r in zip((a, b), left, strict=True))
    got, _ = _step(a.prompt, b.prompt, once)
    found.append(got)
    changed = tuple(np.concatenate([f[i] for f in found]) for i in (0, 1))
    rest = tuple(np.sort(np.setdiff1d(r, got[i], assume_unique=True)) for i, r in enumerate(left))
    return Match(same, swapped, (changed[0], changed[1]), rest[0], rest[1])


def _step(a: U64, b: U64, left: tuple[Rows, ...]) -> tuple[tuple[Rows, Rows], tuple[Rows, ...]]:
    """Match what is left by these keys; and what is left after that, in the same order."""
    at_a, at_b = paired(a[left[0]], b[left[1]])
    found = left[0][at_a], left[1][at_b]
    return found, (np.delete(left[0], at_a), np.delete(left[1], at_b))


def paired(a: U64, b: U64) -> tuple[Rows, Rows]:
    """Positions of equal keys, each used once: the first of a key in ``a`` with the first in ``b``, and so on."""
    order_a, order_b = np.argsort(a, kind="stable"), np.argsort(b, kind="stable")
    keys, start, size = np.unique(a[order_a], return_index=True, return_counts=True)
    if not len(keys) or not len(b):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    sorted_b = b[order_b]
    at = np.minimum(np.searchsorted(keys, sorted_b), len(keys) - 1)
    rank = np.arange(len(b)) - np.searchsorted(sorted_b, sorted_b)
    hit = (keys[at] == sorted_b) & (rank < size[at])
    return order_a[(start[at] + rank)[hit]], order_b[hit]


def _whole(k: Keys) -> U64:
    return combined([k.prompt, k.chosen, k.rejected])


def _unordered(k: Keys) -> U64:
    return combined([k.prompt, np.minimum(k.chosen, k.rejected), np.maximum(k.chosen, k.rejected)])


def _two_of_three(k: Keys) -> Iterator[U64]:
    """Keys that leave out the rejected answer, the chosen one, the prompt."""
    yield combined([k.prompt, k.chosen])
    yield combined([k.prompt, k.rejected])
    yield combined([k.chosen, k.rejected])


def _single(keys: U64) -> Mask:
    """Which of these keys occur once."""
    _, at, size = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(size[at] == 1)
