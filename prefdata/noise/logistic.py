"""Antisymmetric logistic regression: no intercept, features are differences, and every row's label is "chosen wins".

Swapping the two answers of a pair negates its row, and so its score exactly. The penalty is ``|w|^2 / (2 C)``, as in
scikit-learn. Fits with each fold left out are made side by side, from the optimum over all rows: a few products with
the whole matrix serve all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Matrix = Any  # float32, (n, k): an array or a scipy CSR matrix

ENOUGH = 1e-5  # change of a weight from which steps end


def slope(margin: npt.NDArray[Any]) -> Floats:
    """How much a row of that margin pulls: minus the derivative of ``log(1 + exp(-m))``."""
    out: Floats = 1 / (1 + np.exp(np.clip(margin, -60, 60)))
    return out


def _kept(fold: npt.NDArray[np.int64], folds: int) -> npt.NDArray[np.bool_]:
    """(n, folds): whether a row takes part in the fit that leaves that fold out."""
    return np.asarray(fold[:, None] != np.arange(folds))


def newton(x: npt.NDArray[np.float32], c: float, fold: npt.NDArray[np.int64], folds: int) -> Floats:
    """Weights (folds, k) of dense rows, with each fold left out: Newton steps from the optimum over all rows."""
    ridge = np.eye(x.shape[1]) / c
    weights = np.zeros(x.shape[1])
    curve, hessian = np.zeros(len(x)), ridge
    for _ in range(30):
        pull = slope(x @ weights.astype(np.float32))
        curve = pull * (1 - pull)
        hessian = _gram(x, curve) + ridge
        step = np.linalg.solve(hessian, weights / c - x.T @ pull.astype(np.float32))
        weights -= step
        if np.abs(step).max(initial=0) < ENOUGH:
            break
    without = [np.linalg.inv(hessian - _gram(x[fold == k], curve[fold == k])) for k in range(folds)]
    out = np.tile(weights[:, None], folds)
    kept = _kept(fold, folds)
    for _ in range(10):  # the curvature hardly moves: the one at the start will do
        pull = slope(x @ out.astype(np.float32)) * kept
        gradient = out / c - x.T @ pull.astype(np.float32)
        step = np.stack([inverse @ g for inverse, g in zip(without, gradient.T, strict=True)], 1)
        out -= step
        if np.abs(step).max(initial=0) < ENOUGH:
            break
    return out.T


def _gram(x: npt.NDArray[np.float32], weight: Floats) -> Floats:
    out = np.zeros((x.shape[1], x.shape[1]))
    for i in range(0, len(x), 20_000):
        block = x[i : i + 20_000]
        out += (block.T * weight[i : i + 20_000].astype(np.float32)) @ block
    return out


def descent(x: Matrix, c: float, fold: npt.NDArray[np.int64], folds: int) -> Floats:
    """Weights (folds, k) of sparse rows, with each fold left out: L-BFGS from the optimum over all rows."""
    n, k = x.shape
    start = _descend(x, c, np.ones((n, 1), bool), np.zeros((k, 1)))
    return _descend(x, c, _kept(fold, folds), np.tile(start, folds)).T


def _descend(x: Matrix, c: float, kept: npt.NDArray[np.bool_], start: Floats) -> Floats:
    from scipy.optimize import minimize

    n = max(1, x.shape[0])

    def loss(flat: Floats) -> tuple[float, Floats]:
        w = flat.reshape(start.shape)
        margin = (x @ w.astype(np.float32)).astype(np.float64)
        value = float((np.logaddexp(0, -margin) * kept).sum()) + float((w * w).sum()) / (2 * c)
        gradient = w / c - x.T @ (slope(margin) * kept).astype(np.float32)
        return value / n, gradient.ravel() / n  # a mean, so that the tolerances mean the same for any n

    options: Any = {"maxiter": 200, "maxcor": 6, "gtol": 1e-6, "ftol": 1e-8}
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x, np.float64).reshape(start.shape)
