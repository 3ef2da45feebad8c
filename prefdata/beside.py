"""What a cleaned set holds beside its pairs: weights, rows that are mirrors of others, and pairs in both orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prefdata.decisions import Decisions, Signals
from prefdata.stage import Stage

WEIGHT, FLIP_PROB, SOURCE_ROW = "pd_weight", "pd_flip_prob", "pd_source_row"
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Beside:
    """Every array has one entry a pair of the set.

    ``marked`` rows came in as mirrors of others: they and, in the mode ``raw``, mirrors of the added ones go to
    ``reversed/``. In the mode ``order`` pairs of the first split that are not ``ties`` go to ``ab/``, and so do the added
    ones once more in the other order. ``columns`` are numbers that the kept rows get.
    """

    marked: Bools
    ties: Bools
    mode: str | None
    seed: int
    columns: Mapping[str, Floats]

    @classmethod
    def of(
        cls, signals: Signals, stages: Sequence[Stage], made: Sequence[Decisions], splits: npt.NDArray[np.int8]
    ) -> Beside:
        """What these decisions ask for; ``signals`` are those of all pairs."""
        mode = next((str(getattr(s, "mode", "raw")) for s in stages if s.adds), None)
        marked, ties = signals.mask("pair.reversed"), signals.mask("pair.tie")
        return cls(marked, ties, mode, signals.seed, weight_columns(made, splits))

    def told(self, names: Sequence[str], kept: Bools) -> dict[str, int]:
        """Changes of form, and how many pairs they touch; ``names`` are the further columns of the input."""
        told = {
            f"column {n!r} of the input is replaced by that of this run": len(kept) for n in self.columns if n in names
        }
        if n := int((self.marked & kept).sum()):
            told["rows marked pd_reversed are written to the configuration 'reversed', never to data/"] = n
        return told


def weight_columns(made: Sequence[Decisions], splits: npt.NDArray[np.int8]) -> dict[str, Floats]:
    """``pd_weight`` (the product over the stages that weigh, 1 outside the first split and where it is not known) and
    ``pd_flip_prob`` (of the last such stage that gives it, NaN where not known) of every pair; nothing where no stage weighs.
    """
    out: dict[str, Floats] = {}
    for d in made:
        if d.weight is None:
            continue
        out.setdefault(WEIGHT, np.ones(len(splits), np.float32))
        out[WEIGHT][d.rows] *= np.nan_to_num(d.weight, nan=1.0)
        if d.flip_prob is not None:
            out[FLIP_PROB] = np.full(len(splits), np.nan, np.float32)
            out[FLIP_PROB][d.rows] = d.flip_prob
    if WEIGHT in out:
        out[WEIGHT][splits != 0] = 1
    return out
