"""Two detectors that others use, on the features of ours: cleanlab's confident learning and a vote of nearest neighbours."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata.bench.planting import Mask

Floats = npt.NDArray[np.floating]
NEIGHBOURS = 15
NO_CLEANLAB = "cleanlab is not installed and was left out: pip install cleanlab termcolor"


def has_cleanlab() -> bool:
    """Whether cleanlab, and what it imports without saying so, can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in ("cleanlab", "termcolor"))


def cleanlab(margins: Floats, seed: int) -> tuple[Mask, Floats]:
    """What confident learning flags, and its suspicion (n,), from cross-fitted log-odds that each label is right.

    cleanlab has no task of pairs: each pair is shown in an order drawn by chance, the class is which answer is better.
    """
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    first = np.random.default_rng([seed, 7]).random(len(margins)) < 0.5
    right = 1 / (1 + np.exp(-np.clip(margins, -30, 30)))
    of_first = np.where(first, right, 1 - right)
    labels, shares = first.astype(int), np.stack([1 - of_first, of_first], axis=1)
    flagged = find_label_issues(labels, shares, n_jobs=1)
    return np.asarray(flagged, bool), 1 - np.asarray(get_label_quality_scores(labels, shares), float)


def neighbours(x: npt.NDArray[Any], groups: npt.NDArray[Any], k: int = NEIGHBOURS) -> tuple[Mask, Floats]:
    """A vote of the ``k`` nearest pairs of other prompts, by cosine: flagged where most of them disagree with the label.

    ``x`` (n, d) are differences chosen - rejected. A pair and its mirror image are the same evidence, so the neighbours are those
    of largest absolute cosine, and one of negative cosine says that the label is wrong. Suspicion is the share of such votes.
    Source: SimiFeat (arXiv:2110.06283), which Docta uses.
    """
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    against = np.empty(len(x))
    for start in range(0, len(x), 1000):
        near = unit[start : start + 1000] @ unit.T
        size = np.abs(near)
        size[groups[start : start + 1000, None] == groups[None]] = -1  # itself, and what was judged with it
        best = np.argpartition(-size, min(k, len(x)) - 1, axis=1)[:, :k]
        against[start : start + 1000] = (np.take_along_axis(near, best, axis=1) < 0).mean(axis=1)
    return against > 0.5, against
