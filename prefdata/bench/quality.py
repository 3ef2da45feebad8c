"""How good a detector is, from the truth: ranking, calibration, and figures over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Mask = npt.NDArray[np.bool_]


def ranking(wrong: Mask, suspicion: Floats) -> dict[str, float]:
    """``auroc``, ``ap`` (average precision), ``pk`` (precision at k, k = number of wrong rows) and ``p10`` (precision at 10 %
    recall) of ``suspicion`` (n,), high where a label is thought wrong. NaN where all rows are of one kind.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    k = int(wrong.sum())
    if k in (0, len(wrong)):
        return dict.fromkeys(("auroc", "ap", "pk", "p10"), float("nan"))
    hits = np.cumsum(wrong[np.argsort(-suspicion, kind="stable")])
    at = int(np.searchsorted(hits, np.ceil(0.1 * k))) + 1  # rows until a tenth of the wrong ones is found
    return {
        "auroc": float(roc_auc_score(wrong, suspicion)),
        "ap": float(average_precision_score(wrong, suspicion)),
        "pk": float(hits[k - 1] / k),
        "p10": float(hits[at - 1] / at),
    }


def calibration_error(wrong: Mask, probability: Floats, bins: int = 10) -> float:
    """ECE: mean over ``bins`` bins of equally many rows (by probability) of the gap between the mean probability and the share
    of wrong rows, weighed by rows.
    """
    order = np.argsort(probability, kind="stable")
    parts = [p for p in np.array_split(order, bins) if len(p)]
    return float(sum(abs(probability[p].mean() - wrong[p].mean()) * len(p) for p in parts) / len(wrong))


def flagging(wrong: Mask, flagged: Mask) -> dict[str, float]:
    """``share`` of rows flagged, and ``precision`` and ``recall`` (NaN where nothing is flagged, or wrong)."""
    hit, told, k = int((wrong & flagged).sum()), int(flagged.sum()), int(wrong.sum())
    nan = float("nan")
    return {"share": told / len(wrong), "precision": hit / told if told else nan, "recall": hit / k if k else nan}


def mean_sd(values: Iterable[float | None]) -> tuple[float, float, int]:
    """Mean, standard deviation (n - 1; 0 for one value) and number of the values that are numbers."""
    found = np.array([v for v in values if v is not None and np.isfinite(v)], float)
    if not len(found):
        return float("nan"), float("nan"), 0
    return float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else 0.0, len(found)


def a_a_interval(arms: Sequence[Sequence[float]]) -> float:
    """Half the width of the 95 % A/A interval of a mean difference: how far apart two learners come out that were given data of
    the same quality.

    ``arms`` holds for each seed the figures of several such learners. The variance of a difference of two is twice that within
    a seed; the mean over seeds divides it by their number. Source: the usual A/A test of experiments.
    """
    rows = [np.asarray(a, float) for a in arms if len(a) > 1]
    if not rows:
        return float("nan")
    pooled = sum(((r - r.mean()) ** 2).sum() for r in rows) / sum(len(r) - 1 for r in rows)
    return float(1.96 * np.sqrt(2 * pooled / len(rows)))
