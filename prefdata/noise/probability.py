"""From margins to statements: is there a signal, how many labels are wrong, how likely is this one.

The model: a label is turned round with probability ``e``, alike for all; where it is not, it agrees with the margin ``m``
with probability ``sigmoid(a |m|)``. Both numbers are fitted to margins of models that did not see the row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prefdata.intervals import wilson

Floats = npt.NDArray[np.float64]
U64 = npt.NDArray[np.uint64]

Z, AGREEMENT, ENOUGH = 3.0, 0.53, 100
POINT_FROM = 400  # pairs from which the rate is told: of fewer, one model may fit as well as another
# On random labels z has a standard deviation of 1.3 to 1.5, since folds share rows: 3 was passed in one of 220 runs.
IDENTIFIED = 0.88
"""Agreement on right labels, implied by the fit even at the lower end of its interval, from which the rate is told.

Below, errors of the model pass for wrong labels. In 20 runs each at planted rates of 5 to 30 % on 13 published sets no rate that
was told was off by more than 0.06.
"""
WIDER = 0.03  # of the interval: natural noise, which is not symmetric, moves the estimate
_TOPS, _UPPER_Z = (0.05, 0.1, 0.2, 0.4), 3.0


def sigmoid(x: npt.ArrayLike) -> Floats:
    """1 / (1 + exp(-x))."""
    return np.asarray(1 / (1 + np.exp(-np.clip(np.asarray(x, np.float64), -60, 60))), np.float64)


@dataclass(frozen=True)
class Signal:
    """How far the margins agree with the labels. ``z`` is that of their sum, each cut at twice their root mean square so that
    no few decide; each prompt counts once, however many pairs it has.
    """

    n: int
    agreement: float
    z: float

    @classmethod
    def of(cls, margin: Floats, group: U64) -> Signal:
        """The signal in the margins of n pairs; a margin of zero is no opinion."""
        root = float(np.sqrt((margin**2).mean())) if len(margin) else 0.0
        if not root:
            return cls(len(margin), 0.5, 0.0)
        weight = np.clip(margin / root, -2, 2)
        sums = np.bincount(np.unique(group, return_inverse=True)[1], weight)
        return cls(len(margin), float((np.sign(margin).mean() + 1) / 2), float(sums.sum() / np.sqrt((sums**2).sum())))

    @property
    def there(self) -> bool:
        """Whether anything may be said of single labels."""
        return self.n >= ENOUGH and self.z >= Z and self.agreement >= AGREEMENT


def fitted(margin: Floats, rate: float | Floats | None) -> tuple[float, float]:
    """The most probable ``(a, e)``; with the ``rate`` given (one, or one for each row) only ``a`` is fitted.

    Weak priors (0.05 log(a)^2, 0.02 (logit(2e) + 1)^2) keep both finite.
    """
    from scipy.optimize import minimize

    def loss(x: Floats) -> float:
        e = sigmoid(x[1]) / 2 if rate is None else rate
        likelihood = e + (1 - 2 * e) * sigmoid(np.exp(x[0]) * margin)
        prior = 0.05 * x[0] ** 2 + (0.02 * (x[1] + 1) ** 2 if rate is None else 0)
        return float(prior - np.log(np.maximum(likelihood, 1e-12)).sum())

    starts = [np.array([0.0, -1.0]), np.array([1.0, 0.5])]
    best = min(
        (minimize(loss, s[: 1 if rate is not None else 2], method="Nelder-Mead") for s in starts), key=lambda f: f.fun
    )
    return float(np.exp(best.x[0])), float(sigmoid(best.x[1]) / 2) if rate is None else float(np.mean(rate))


def flip_probability(margin: Floats, a: float, rate: float | Floats) -> Floats:
    """How likely each label is the wrong way round, given how often labels are."""
    right = sigmoid(a * margin)
    return np.asarray(rate * (1 - right) / np.maximum(rate * (1 - right) + (1 - rate) * right, 1e-300), np.float64)


@dataclass(frozen=True)
class Rate:
    """How many labels are wrong: at most ``upper``; ``value`` with a 90 % interval only where it can be told."""

    upper: float
    value: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, margin: Floats, group: U64) -> Rate:
        """Estimated from the margins alone; the interval (by prompt, as if ``a`` were known) is widened by ``WIDER``."""
        top = upper(margin)
        a, e = fitted(margin, None)
        right = sigmoid(a * margin)
        score = (1 - 2 * right) / np.maximum(e + (1 - 2 * e) * right, 1e-12)  # of each pair, for the rate
        sums = np.bincount(np.unique(group, return_inverse=True)[1], score)
        wide = 1.645 * float(np.sqrt((sums**2).sum()) / np.maximum((score**2).sum(), 1e-12))
        low, high, agreement = max(0.0, e - wide), e + wide, float((margin > 0).mean())
        if len(margin) < POINT_FROM or high >= 0.5 or (agreement - low) / (1 - 2 * low) < IDENTIFIED:
            return cls(top)
        return cls(max(top, e), e, max(0.0, low - WIDER), min(0.5, high + WIDER))


def follows(margin: Floats, wrong: Floats) -> float:
    """How surely the margins speak of the truth and not of the annotators' common taste, as a z value.

    Where labels are as likely wrong as right, margins that know the truth agree with half of them; margins that have learnt what
    annotators like agree with as many as anywhere. ``wrong`` (n,) is how likely each label is wrong by the votes, NaN without.
    """
    known = ~np.isnan(wrong)
    sign, sure = np.sign(margin[known]), 1 - 2 * wrong[known]
    sure = sure - sure.mean() if len(sure) else sure
    spread = float(sure @ sure)
    if len(sign) < ENOUGH or spread < 1e-9:
        return 0.0
    slope = float(sure @ sign) / spread
    rest = sign - sign.mean() - slope * sure
    return slope / float(np.sqrt(rest @ rest / (len(sign) - 2) / spread))


def upper(margin: Floats) -> float:
    """What the rate is at most: under symmetric noise every band of confidence disagrees with the labels at least as often."""
    order = np.argsort(-np.abs(margin), kind="stable")
    wrong = (margin <= 0)[order]
    tops = (max(1, round(t * len(margin))) for t in _TOPS)
    return min(0.5, *(wilson(float(wrong[:k].mean()), k, _UPPER_Z)[1] for k in tops))


def residual(margin: Floats, side: npt.NDArray[np.float32]) -> tuple[Floats, float]:
    """The margin without what length and refusing explain of it, and the share of its variation that length alone explains."""
    total = float(margin @ margin)
    if not total:
        return margin, 0.0
    weights = np.linalg.lstsq(side.astype(np.float64), margin, rcond=None)[0]
    by_length = side[:, :3].astype(np.float64)
    rest = margin - by_length @ np.linalg.lstsq(by_length, margin, rcond=None)[0]
    return margin - side @ weights, max(0.0, 1 - float(rest @ rest) / total)
