"""Antisymmetric logistic regression: no intercept, features are differences, and every row's label is "chosen wins".

Swapping the two answers of a pair negates its row, and so its score exactly. The penalty is ``|w|^2 / (2 C)``, as in
scikit-learn; all fits start from the one over all rows, so that leaving a fold out costs a few steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Matrix = Any  # float32, (n, k): an array or a scipy CSR matrix


def slope(margin: Floats) -> Floats:
    """How much a row of that margin pulls: minus the derivative of ``log(1 + exp(-m))``."""
    out: Floats = 1 / (1 + np.exp(np.clip(margin, -60, 60)))
    return out


def newton(x: npt.NDArray[np.float32], c: float, folds: Sequence[npt.NDArray[np.bool_]]) -> list[Floats]:
    """Weights (k,) of dense rows, one fit for each fold left out: Newton steps from the optimum over all rows."""
    ridge = np.eye(x.shape[1]) / c
    weights = np.zeros(x.shape[1])
    for _ in range(30):
        pull = slope(x @ weights)
        hessian = _gram(x, pull * (1 - pull)) + ridge
        step = np.linalg.solve(hessian, weights / c - x.T @ pull)
        weights -= step
        if np.abs(step).max(initial=0) < 1e-7:
            break
    pull = slope(x @ weights)
    hessian = _gram(x, pull * (1 - pull)) + ridge
    out = []
    for fold in folds:
        without = np.linalg.inv(hessian - _gram(x[fold], (pull * (1 - pull))[fold]))
        rest, own = x[~fold], weights.copy()
        for _ in range(12):  # the curvature hardly moves: the one at the start will do
            step = without @ (own / c - rest.T @ slope(rest @ own))
            own -= step
            if np.abs(step).max(initial=0) < 1e-7:
                break
        out.append(own)
    return out


def _gram(x: npt.NDArray[np.float32], weight: Floats) -> Floats:
    out = np.zeros((x.shape[1], x.shape[1]))
    for i in range(0, len(x), 20_000):
        block = x[i : i + 20_000]
        out += (block.T * weight[i : i + 20_000].astype(np.float32)) @ block
    return out


def descent(x: Matrix, c: float, folds: Sequence[npt.NDArray[np.bool_]]) -> Iterator[Floats]:
    """Weights (k,) of sparse rows, one fit for each fold left out, by L-BFGS from the optimum over all rows."""
    start = _descend(x, x.T.tocsr(), np.ones(x.shape[0]), c, np.zeros(x.shape[1]))
    turned = x.T.tocsr()
    for fold in folds:
        yield _descend(x, turned, (~fold).astype(np.float64), c, start)


def _descend(x: Matrix, turned: Matrix, weight: Floats, c: float, start: Floats) -> Floats:
    from scipy.optimize import minimize

    def loss(w: Floats) -> tuple[float, Floats]:
        margin = x @ w
        value = float(weight @ np.logaddexp(0, -margin)) + float(w @ w) / (2 * c)
        return value, w / c - turned @ (weight * slope(margin))

    # scaled so that the tolerance speaks of the gradient a row
    found = minimize(
        loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200, "maxcor": 10, "gtol": 1e-3, "ftol": 1e-9}
    )
    return np.asarray(found.x, np.float64)
