"""Many sequences of ids in one array, compared without a Python loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def places(start: Ints | int, length: Ints) -> Ints:
    """The places ``start[i]``, ``start[i] + 1``, ... of ``length[i]`` things in a row, for each ``i``, one after the other."""
    return np.arange(length.sum()) + np.repeat(start - (length.cumsum() - length), length)


@dataclass(frozen=True)
class Ragged:
    """Many id sequences in one array: sequence ``i`` is ``ids[at[i]:at[i + 1]]``."""

    ids: npt.NDArray[np.uint32]
    at: Ints

    @cached_property
    def lengths(self) -> Ints:
        """The length of each sequence."""
        return np.diff(self.at)

    def __len__(self) -> int:
        return len(self.at) - 1

    def __getitem__(self, i: int) -> npt.NDArray[np.uint32]:
        return self.ids[self.at[i] : self.at[i + 1]]

    def part(self, start: int, stop: int) -> Ragged:
        """The sequences from ``start`` up to ``stop``, as a view."""
        lo, hi = self.at[start], self.at[stop]
        return Ragged(self.ids[lo:hi], self.at[start : stop + 1] - lo)

    def followed_by(self, tail: Sequence[int]) -> Ragged:
        """Every sequence with the same ids put behind it."""
        if not tail:
            return self
        n, k = len(self), len(tail)
        at = self.at + np.arange(n + 1) * k
        out = np.empty(len(self.ids) + n * k, np.uint32)
        own = np.arange(len(self.ids)) + np.repeat(np.arange(n) * k, self.lengths)
        out[own] = self.ids
        out[(at[1:] - k)[:, None] + np.arange(k)] = np.asarray(tail, np.uint32)
        return Ragged(out, at)


def common_prefix(a: Ragged, b: Ragged) -> Ints:
    """How many leading ids sequence ``i`` of ``a`` shares with sequence ``i`` of ``b``."""
    most = np.minimum(a.lengths, b.lengths)
    out = most.copy()
    rows, done, step = np.arange(len(a)), 0, 16
    while len(rows):  # most pairs part early: look at few ids of all, then at many of the few that are left
        take = np.minimum(most[rows] - done, step)
        which = np.repeat(np.arange(len(rows)), take)
        k = places(done, take)
        unlike = np.flatnonzero(a.ids[a.at[rows][which] + k] != b.ids[b.at[rows][which] + k])
        first = unlike[np.diff(which[unlike], prepend=-1) > 0]
        out[rows[which[first]]] = k[first]
        open_ = most[rows] > done + step
        open_[which[first]] = False
        rows, done, step = rows[open_], done + step, step * 16
    return out
