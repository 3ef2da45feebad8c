"""The measured numbers of the rows, as stages read them: columns of memory-mapped files, seen through the living rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prefdata.schema import mapped, whole

if TYPE_CHECKING:
    from prefdata.decisions import Decisions

Index = npt.NDArray[np.int64]


@dataclass
class Part:
    """The signals of one chunk on disk: rows ``start`` up to ``start + n`` of the set."""

    path: str
    start: int
    n: int


class Signals:
    """The measured numbers of the living rows. Columns are named ``stage.column`` (``pair.*`` are every stage's).

    The table lies in memory-mapped Arrow files, one a chunk; ``column`` gathers one scalar, ``batches`` streams,
    ``rows`` reads list values of a few rows. A list column is never gathered as a whole.
    """

    def __init__(
        self, parts: Sequence[Part], living: Index | None = None, seed: int = 0, swapped: npt.NDArray[np.bool_] | None = None
    ) -> None:  # fmt: skip
        self.parts = list(parts)
        self.starts = np.array([p.start for p in self.parts], np.int64)
        self.total = sum(p.n for p in self.parts)
        self.index: Index = np.arange(self.total, dtype=np.int64) if living is None else living
        self.seed = seed
        self._swapped = swapped
        self._tables: dict[int, pa.Table] = {}
        self._lists: dict[tuple[int, str], tuple[Index, npt.NDArray[Any]]] = {}

    def living(self, rows: Index) -> Signals:
        """The same signals, seen through fewer living rows."""
        out = Signals(self.parts, rows, self.seed, self._swapped)
        out._tables, out._lists = self._tables, self._lists
        return out

    def without(self, made: Decisions) -> Signals:
        """The signals after a stage: without what it drops, and with what it swaps turned round."""
        out = self.living(self.index[~made.of("drop")])
        if (swap := made.of("swap")).any():
            turned = np.zeros(self.total, bool) if self._swapped is None else self._swapped.copy()
            turned[made.rows[swap]] ^= True
            out._swapped = turned
        return out

    def __len__(self) -> int:
        return len(self.index)

    @property
    def swapped(self) -> npt.NDArray[np.bool_]:
        """Mask of the living rows whose label an earlier stage has turned round; signals speak of the pair as read."""
        return np.zeros(len(self), bool) if self._swapped is None else self._swapped[self.index]

    @property
    def names(self) -> list[str]:
        """The measured columns."""
        return list(self._table(0).column_names) if self.parts else []

    def _table(self, part: int) -> pa.Table:
        if part not in self._tables:
            self._tables[part] = mapped(self.parts[part].path)
        return self._tables[part]

    def _slices(self) -> Iterator[tuple[int, Index, slice]]:
        """Parts with living rows: part, local positions, where they lie among the living."""
        edges = np.searchsorted(self.index, np.append(self.starts, self.total))
        for i in range(len(self.parts)):
            lo, hi = int(edges[i]), int(edges[i + 1])
            if hi > lo:
                yield i, self.index[lo:hi] - self.parts[i].start, slice(lo, hi)

    def _values(self, part: int, name: str, local: Index) -> npt.NDArray[Any] | pa.Array:
        column = whole(self._table(part).column(name))
        if len(local) < len(column):
            column = column.take(pa.array(local))
        if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type) or pa.types.is_nested(column.type):
            return column
        return column.to_numpy(zero_copy_only=False)  # nulls of a float column become NaN

    def batches(self, names: Sequence[str]) -> Iterator[tuple[slice, Mapping[str, Any]]]:
        """Stream columns chunk by chunk: the slice among the living rows, and the values by name.

        Numbers come as numpy arrays, text and lists as Arrow arrays.
        """
        for part, local, where in self._slices():
            yield where, {name: self._values(part, name, local) for name in names}

    def column(self, name: str) -> npt.NDArray[Any]:
        """A scalar column of all living rows as one numpy array (text: array of str or None objects)."""
        out: npt.NDArray[Any] | None = None
        for part, local, where in self._slices():
            got = self._values(part, name, local)
            values = got if isinstance(got, np.ndarray) else np.array(got.to_pylist(), object)
            if out is None:
                out = np.empty(len(self), values.dtype)
            elif np.result_type(out, values) != out.dtype:
                out = out.astype(np.result_type(out, values))
            out[where] = values
        return np.empty(0) if out is None else out

    def mask(self, name: str) -> npt.NDArray[np.bool_]:
        """The living rows of which a boolean column is true: none where it is null, or not there."""
        out: npt.NDArray[np.bool_] = np.zeros(len(self), bool)
        if name in self.names and len(self):
            out = self.column(name) == True  # noqa: E712 - broken rows have nulls
        return out

    def rows(self, name: str, index: Index | Sequence[int]) -> list[npt.NDArray[Any]]:
        """The list values of a few rows (row numbers of the set), as numpy views."""
        out = []
        at = np.asarray(index, np.int64)
        for row, part in zip(at.tolist(), (np.searchsorted(self.starts, at, "right") - 1).tolist(), strict=True):
            if (part, name) not in self._lists:
                column = whole(self._table(part).column(name))
                self._lists[part, name] = column.offsets.to_numpy(), column.values.to_numpy()
            offsets, values = self._lists[part, name]
            local = row - self.parts[part].start
            out.append(values[offsets[local] : offsets[local + 1]])
        return out
