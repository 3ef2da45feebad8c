"""What cleaning is worth: a held-out preference classifier that learns from noisy, from cleaned and from true labels.

The learners see another family of features than the detector does (character n-grams, or the vectors of an encoder), so that a
gain is not the detector handing on its own view. Which treatment won is said only outside the A/A interval: the spread of learners
that lost as many rows at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata.bench.planting import Mask
from prefdata.bench.quality import a_a_interval, mean_sd

Matrix = Any  # (n, k): a scipy CSR matrix or an array
OVERFITS, REGULARISED = "overfits", "regularised"
STRENGTHS: Mapping[str, Mapping[str, float]] = {
    "characters": {OVERFITS: 30.0, REGULARISED: 0.1},
    "encoder": {OVERFITS: 10.0, REGULARISED: 0.01},
}
"""``C`` of the logistic regression, by family of features."""
RANDOM_ARMS = 4
TREATMENTS = ("cleaned", "likely", "random")
_HELD_OUT = 0.3


def characters(chosen: Sequence[str], rejected: Sequence[str]) -> Matrix:
    """TF-IDF of character 2- to 4-grams, difference chosen - rejected, (n, k) CSR; no label enters it."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    made = TfidfVectorizer(
        analyzer="char", ngram_range=(2, 4), min_df=3, sublinear_tf=True, max_features=100_000, dtype=np.float32
    ).fit([*chosen, *rejected])
    return (made.transform(chosen) - made.transform(rejected)).tocsr()


def encoded(chosen: Sequence[str], rejected: Sequence[str], encoder: str) -> Matrix:
    """Difference of the encoder's unit vectors, scaled to a root mean square norm of 1, (n, k)."""
    from prefdata.encoders import load

    difference = load(encoder).embed(chosen) - load(encoder).embed(rejected)
    return difference / np.sqrt(np.square(difference).sum(1).mean())


def held_out(groups: npt.NDArray[Any], seed: int) -> Mask:
    """The rows of three in ten prompts (``groups``, (n,)): a prompt is never on both sides."""
    names, of = np.unique(groups, return_inverse=True)
    out = np.zeros(len(names), bool)
    out[np.random.default_rng([seed, 5]).permutation(len(names))[: round(_HELD_OUT * len(names))]] = True
    return out[of]


def accuracy(x: Matrix, flipped: Mask, train: npt.NDArray[np.int64], test: Mask, c: float) -> float:
    """Share of true labels that a logistic regression without intercept gives right on ``test``; it learns from the rows
    ``train`` with the labels of ``flipped`` turned round. A score of exactly 0 counts a half.
    """
    from sklearn.linear_model import LogisticRegression

    # Every second pair is shown the other way round: two classes, and the same fit, since there is no intercept.
    shown = np.where(np.arange(len(train)) % 2, -1.0, 1.0)
    label = np.where(flipped[train], -shown, shown)
    model = LogisticRegression(C=c, fit_intercept=False, solver="liblinear", dual=True, max_iter=2000, random_state=0)
    learnt = x[train]
    model.fit(
        learnt.multiply(shown[:, None]).tocsr() if hasattr(learnt, "multiply") else learnt * shown[:, None], label
    )
    margin = np.asarray(x[np.flatnonzero(test)] @ model.coef_[0])
    return float(((margin > 0) + 0.5 * (margin == 0)).mean())


def arms(
    x: Matrix, flipped: Mask, test: Mask, removed: Mapping[str, Mask], c: float, seed: int
) -> dict[str, Any]:  # fmt: skip
    """Held-out accuracy by what was done to the noisy training rows.

    ``removed`` masks, by treatment (``cleaned``, ``likely``), the rows taken out. ``random`` is the mean of learners that lost as
    many rows by chance as ``cleaned`` did; they are ``a_a``. ``oracle`` has the flips undone.
    """
    train = np.flatnonzero(~test)
    out: dict[str, Any] = {
        "noisy": accuracy(x, flipped, train, test, c),
        "oracle": accuracy(x, np.zeros_like(flipped), train, test, c),
    }
    for name, mask in removed.items():
        gone = mask[train]
        out[name] = accuracy(x, flipped, train[~gone], test, c) if gone.any() else out["noisy"]
    rng, count = np.random.default_rng([seed, 6]), int(removed["cleaned"][train].sum())
    # Where nothing was removed, resampled rows stand in: the spread of a learner does not vanish with the treatment.
    draws = [
        np.sort(rng.permutation(train)[count:]) if count else np.sort(rng.choice(train, len(train)))
        for _ in range(RANDOM_ARMS)
    ]
    out["a_a"] = [accuracy(x, flipped, rows, test, c) for rows in draws]
    out["random"] = float(np.mean(out["a_a"]))
    return out


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Figures over the seeds of one set, rate and learner, from what ``arms`` returned.

    ``recovery`` = (treatment - noisy) / (oracle - noisy) of the means, None where the loss itself lies within the A/A interval;
    ``a_a`` is half the width of that interval; ``verdict`` compares with noisy, ``better``, ``worse`` or ``no difference``.
    """
    out: dict[str, Any] = {"seeds": len(found), "a_a": a_a_interval([f["a_a"] for f in found])}
    mean = {name: mean_sd(f[name] for f in found)[0] for name in ("noisy", "oracle", *TREATMENTS)}
    loss = mean["oracle"] - mean["noisy"]
    for name in TREATMENTS:
        gains = [f[name] - f["noisy"] for f in found]
        gain, sd, _ = mean_sd(gains)
        told = "no difference" if not abs(gain) > out["a_a"] else "better" if gain > 0 else "worse"
        share = gain / loss if loss > out["a_a"] else None
        out[name] = {"accuracy": mean[name], "gain": gain, "sd": sd, "recovery": share, "verdict": told}
    return out | {"noisy": mean["noisy"], "oracle": mean["oracle"]}
