"""How much each label agrees with what the rest of the set says: two linear models and further votes, stacked.

Every score of a pair comes from models that saw neither it nor another pair of its prompt; only the few weights that stack them
are fitted on scores of models that did. Swapping a pair negates its score exactly: features are differences, and no model has
an intercept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata.lexicon import mixed
from prefdata.noise.evidence import U64, Evidence
from prefdata.noise.logistic import descent, newton, slope

Floats = npt.NDArray[np.float64]

C_DENSE, C_SPARSE = 0.002, 1.0
# The stack's prior: means and standard deviations of the weights of the two models, and of each further vote.
PRIOR, SPREAD = np.array([0.7, 0.2]), np.array([0.3, 0.3])
VOTE_SPREAD = 1.0
LARGE, FEW = 20_000, 5  # in larger sets words are learnt with fewer folds left out: each fit has enough to learn from


def folds_of(group: U64, folds: int, seed: int) -> npt.NDArray[np.int64]:
    """The fold of each row, by a hash of its prompt group."""
    out: npt.NDArray[np.int64] = (mixed(group ^ mixed(np.array([seed + 1], np.uint64))) % np.uint64(folds)).astype(int)
    return out


@dataclass(frozen=True)
class Scorer:
    """Weights of each fold's models: ``dense`` (folds, k), ``sparse`` (folds, v), ``stack`` (folds, 2 + votes)."""

    dense: Floats
    sparse: Floats
    stack: Floats
    seed: int

    @classmethod
    def fitted(cls, evidence: Evidence, folds: int, seed: int) -> tuple[Scorer, Floats]:
        """The models, and the margins (n,) of the rows they were fitted on, each by models that did not see it."""
        fold = folds_of(evidence.group, folds, seed)
        few = folds if len(fold) <= LARGE else min(FEW, folds)
        dense = newton(evidence.dense, C_DENSE, fold, folds)
        sparse = descent(evidence.sparse, C_SPARSE, fold % few, few)[np.arange(folds) % few]
        found = cls(dense, sparse, np.empty((0, 0)), seed)
        parts = found._parts(evidence, fold)
        own = cls(dense, sparse, np.stack([_stacked(parts[fold != k]) for k in range(folds)]), seed)
        return own, own._sum(parts, fold)

    def of(self, evidence: Evidence) -> Floats:
        """Margins of further rows: each by the models that saw no pair of its prompt."""
        fold = folds_of(evidence.group, len(self.dense), self.seed)
        return self._sum(self._parts(evidence, fold), fold)

    def _parts(self, evidence: Evidence, fold: npt.NDArray[np.int64]) -> Floats:
        votes = np.nan_to_num(evidence.votes.astype(np.float64))
        parts = np.zeros((len(fold), 2))
        for k in np.unique(fold).tolist():
            rows = fold == k
            parts[rows] = np.stack(
                [_row_sums(evidence.dense[rows], self.dense[k]), evidence.sparse[rows] @ self.sparse[k]], 1
            )
        return np.hstack([parts, votes])

    def _sum(self, parts: Floats, fold: npt.NDArray[np.int64]) -> Floats:
        return np.asarray((parts * self.stack[fold]).sum(axis=1), np.float64)


def with_votes(margin: Floats, votes: npt.NDArray[np.float32], group: U64, folds: int, seed: int) -> Floats:
    """The margins (n,) of another scorer joined by further ``votes`` (n, m), with weights that each fold learns from the others.

    Rows are to be in the order of their hashes.
    """
    fold = folds_of(group, folds, seed)
    parts = np.column_stack([margin, np.zeros(len(margin)), np.nan_to_num(votes.astype(np.float64))])
    weights = np.stack([_stacked(parts[fold != k]) for k in range(folds)])
    return np.asarray((parts * weights[fold]).sum(axis=1), np.float64)


def _row_sums(rows: npt.NDArray[np.float32], weights: Floats) -> Floats:
    """``rows @ weights``, with the same bits for a row whatever stands beside it, which BLAS does not promise."""
    return np.concatenate(
        [np.zeros(0), *((rows[i : i + 4096] * weights).sum(axis=1) for i in range(0, len(rows), 4096))]
    )


def _stacked(parts: Floats) -> Floats:
    """The most probable weights of the columns: the two models not negative, votes free in sign."""
    from scipy.optimize import minimize

    more = parts.shape[1] - len(PRIOR)
    prior = np.concatenate([PRIOR, np.zeros(more)])
    spread = np.concatenate([SPREAD, np.full(more, VOTE_SPREAD)])

    def loss(w: Floats) -> tuple[float, Floats]:
        margin, off = parts @ w, (w - prior) / spread
        return float(np.logaddexp(0, -margin).sum() + off @ off / 2), off / spread - parts.T @ slope(margin)

    bounds: list[Any] = [(0, None)] * len(PRIOR) + [(None, None)] * more
    return np.asarray(minimize(loss, prior, jac=True, method="L-BFGS-B", bounds=bounds).x, np.float64)
