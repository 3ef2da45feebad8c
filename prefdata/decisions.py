"""Decisions: what each stage says of each living row, as data; findings; and the one function that carries them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prefdata.signals import Index as Index
from prefdata.signals import Part as Part
from prefdata.signals import Signals as Signals

ACTIONS = ("keep", "flag", "drop", "swap", "add")
Action = Literal["keep", "flag", "drop", "swap", "add"]
NONE = -1


@dataclass(frozen=True)
class Finding:
    """A statement about the whole set: ``name`` (a stable word), its value, and how sure it is.

    ``low``/``high`` bound an interval where there is one, of 95 % unless the text says otherwise; ``n`` is what the value was computed from; ``rows`` are
    up to 50 example rows; ``when`` says over which pairs: ``all`` sound ones or the ``kept`` ones. ``covers`` is the share of
    these pairs that the value says something of, where it is silent on some. ``wanted`` is what domains go by, a domain and its target share.

    ``decide`` sees no text. A finding that speaks of words gives their hashes in ``words`` (out of ``pair.words``), writes
    ``{words}`` (to become "one, two, three") or ``{phrase}`` ("one two three") in ``text``, and names ``rows`` that hold
    them all between them; ``spelling.spelled`` reads those rows and puts the words in.
    """

    name: str
    value: float | int | str
    n: int
    text: str = ""
    low: float | None = None
    high: float | None = None
    rows: tuple[int, ...] = ()
    when: Literal["all", "kept"] = "all"
    covers: float | None = None
    words: tuple[int, ...] = ()
    wanted: tuple[str, str, float] | None = None


class Decisions:
    """One decision for each living row of one stage, ordered by row; every array has one entry a living row.

    Begin with ``Decisions(signals.index)`` (all kept), then ``mark``. ``score`` and ``limit`` are float32 (NaN where there
    is none), ``peer`` a row number (-1 where there is none), ``reason`` an index into ``reasons`` (-1 where there is none).
    ``spared`` is a mask of rows that no later stage may drop or swap, None where there are none.
    """

    def __init__(self, rows: Index, score: npt.ArrayLike | None = None, limit: float | None = None) -> None:
        n = len(rows)
        self.rows = rows
        self.action = np.zeros(n, np.int8)
        self.reason = np.full(n, NONE, np.int16)
        self.score = np.full(n, np.nan, np.float32) if score is None else np.array(score, np.float32)
        self.limit = np.full(n, np.nan if limit is None else limit, np.float32)
        self.peer = np.full(n, NONE, np.int64)
        self.weight: npt.NDArray[np.float32] | None = None
        self.flip_prob: npt.NDArray[np.float32] | None = None
        self.spared: npt.NDArray[np.bool_] | None = None
        self.reasons: list[str] = []
        self.findings: list[Finding] = []

    def __len__(self) -> int:
        return len(self.rows)

    def mark(
        self,
        where: npt.ArrayLike,
        action: Action,
        reason: str,
        *,
        peer: npt.ArrayLike | None = None,
        score: npt.ArrayLike | None = None,
        limit: float | None = None,
    ) -> None:
        """Set action and reason at positions among the living rows (a boolean mask or positions, not row numbers).

        ``peer`` (row numbers), ``score`` and ``limit`` are set where given, aligned with the positions.
        """
        at = np.asarray(where)
        at = np.flatnonzero(at) if at.dtype == bool else at.astype(np.int64)
        if reason not in self.reasons:
            self.reasons.append(reason)
        self.action[at] = ACTIONS.index(action)
        self.reason[at] = self.reasons.index(reason)
        if peer is not None:
            self.peer[at] = np.asarray(peer, np.int64)
        if score is not None:
            self.score[at] = np.asarray(score, np.float32)
        if limit is not None:
            self.limit[at] = limit

    def among(self, living: Index) -> Decisions:
        """The same decisions among other rows: those that were not asked about are kept, and others are left out."""
        out = Decisions(living)
        _, here, there = np.intersect1d(self.rows, living, assume_unique=True, return_indices=True)
        for name in ("action", "reason", "score", "limit", "peer"):
            getattr(out, name)[there] = getattr(self, name)[here]
        for name, usual in (("weight", 1.0), ("flip_prob", np.nan)):
            if (values := getattr(self, name)) is not None:
                setattr(out, name, np.full(len(living), usual, np.float32))
                getattr(out, name)[there] = values[here]
        out.reasons, out.findings = self.reasons, self.findings
        return out

    def sparing(self, where: npt.NDArray[np.bool_]) -> Decisions:
        """The same decisions, but that rows of this mask are flagged where they would be dropped or swapped."""
        if (hit := where & (self.of("drop") | self.of("swap"))).any():
            self.action[hit] = ACTIONS.index("flag")
        return self

    def of(self, action: Action) -> npt.NDArray[np.bool_]:
        """Mask of the living rows with that action."""
        out: npt.NDArray[np.bool_] = self.action == ACTIONS.index(action)
        return out

    def count(self, action: Action) -> int:
        """How many rows have that action."""
        return int(self.of(action).sum())

    def by_reason(self) -> dict[str, dict[str, int]]:
        """``{reason: {action: rows}}``."""
        out: dict[str, dict[str, int]] = {}
        for i, reason in enumerate(self.reasons):
            has = self.reason == i
            counts = {a: int((has & (self.action == k)).sum()) for k, a in enumerate(ACTIONS)}
            out[reason] = {a: c for a, c in counts.items() if c}
        return {k: v for k, v in out.items() if v}

    def check(self, living: Index) -> None:
        """Hold the stage to the contract: one decision a living row; whatever is not a keep has a reason."""
        if len(self.rows) != len(living) or not np.array_equal(self.rows, living):
            raise ValueError("a stage must give one decision for each living row, in row order")
        if ((self.action != 0) & (self.reason == NONE)).any():
            raise ValueError("every flag, drop, swap and add needs a reason")

    def table(self, stage: str) -> pa.Table:
        """The decisions as an Arrow table: row, stage, action, reason, score, limit, peer (, weight, flip_prob)."""
        n = len(self)
        reason = np.where(self.reason < 0, 0, self.reason)
        words = pa.array(self.reasons or [""], pa.string())
        columns: dict[str, pa.Array] = {
            "row": pa.array(self.rows),
            "stage": pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([stage])),
            "action": pa.DictionaryArray.from_arrays(pa.array(self.action.astype(np.int32)), pa.array(list(ACTIONS))),
            "reason": pa.DictionaryArray.from_arrays(pa.array(reason.astype(np.int32), mask=self.reason < 0), words),
            "score": pa.array(self.score, mask=np.isnan(self.score)),
            "limit": pa.array(self.limit, mask=np.isnan(self.limit)),
            "peer": pa.array(self.peer, mask=self.peer < 0),
        }
        if self.weight is not None:
            columns["weight"] = pa.array(self.weight)
        if self.flip_prob is not None:
            columns["flip_prob"] = pa.array(self.flip_prob, mask=np.isnan(self.flip_prob))
        return pa.table(columns)


@dataclass
class Outcome:
    """All rows after all stages: ``stage`` is the index of the stage that dropped a row (-1: kept)."""

    stage: npt.NDArray[np.int16]
    swapped: npt.NDArray[np.bool_]
    flagged: npt.NDArray[np.bool_]
    added: npt.NDArray[np.bool_]
    """Rows that one more is made from."""

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """Mask of the rows that stay."""
        return self.stage < 0


def apply(n: int, decisions: Sequence[Decisions]) -> Outcome:
    """What becomes of ``n`` rows under these decisions; knows no stage."""
    out = Outcome(np.full(n, -1, np.int16), *(np.zeros(n, bool) for _ in range(3)))
    for i, made in enumerate(decisions):
        out.stage[made.rows[made.of("drop")]] = i
        out.swapped[made.rows[made.of("swap")]] ^= True
        out.flagged[made.rows[made.of("flag")]] = True
        out.added[made.rows[made.of("add")]] = True
    return out
