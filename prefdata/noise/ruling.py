"""What is known of the labels of a set, put together: margins, whether they say anything, how many labels are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prefdata.decisions import Index, Signals
from prefdata.noise import probability
from prefdata.noise.crossfit import Scorer, with_votes
from prefdata.noise.evidence import U64, Array, Evidence, Features, pair_hash, prompt_groups
from prefdata.noise.probability import Rate, Signal

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

AT_ONCE = 20_000  # rows of a large set that are scored at a time
ALL, SAYS = 0.9, 2.0
"""Where length explains so much of the score (``ALL``), what is left is a vote only from that z on (``SAYS``): else a coin."""
REFUSES = 4
"""Of ``Evidence.side``: one answer begins with a refusal. There the residual must call the label wrong by itself."""
PLANTED, CHECKED = 0.1, 20_000  # share of flips that the self-check plants, and the pairs it looks at


@dataclass(frozen=True)
class Ruling:
    """Of n pairs: ``margin`` (log-odds that the label is right, by what the rest of the set shows), ``residual`` (the same
    without length and refusing), ``second`` (whether that is a vote against the label), ``flip`` (probability that it is
    wrong, NaN where unknown), and what all of them say: the ``signal``, the ``rate`` of wrong labels (None where it is neither
    given nor identified) with its bounds in ``estimate``, how much of the margins is ``length``, whether they were ``heard`` at
    all (not without a signal, nor where annotators voted and the margins may be their common taste), and whether the residuals
    say anything (``says``).
    """

    margin: Floats
    residual: Floats
    second: Bools
    flip: Floats
    signal: Signal
    estimate: Rate
    rate: float | None
    steepness: float
    length: float
    heard: bool
    says: bool

    @classmethod
    def of(
        cls, margin: Floats, side: Array, group: U64, rate: float | None = None, wrong: Floats | None = None
    ) -> Ruling:  # fmt: skip
        """From out-of-fold margins; ``side`` and ``group`` as in ``Evidence``. ``rate`` is given by somebody who knows;
        ``wrong`` (n,) by annotators: how likely each label is wrong by their votes, NaN without a vote.
        """
        signal = Signal.of(margin, group)
        residual, length = probability.residual(margin, side)
        estimate, steepness = Rate(0.5), 0.0
        flip = np.full(len(margin), np.nan)
        if signal.there:
            estimate = Rate.of(margin, group)
        known = rate if rate is not None else estimate.value
        before: float | Floats | None = known
        if wrong is not None:
            usual = np.nanmean(wrong) if known is None else known
            before = np.where(np.isnan(wrong), usual, np.clip(wrong, 1e-4, 1 - 1e-4))
        heard = signal.there and (wrong is None or probability.follows(margin, wrong) >= probability.Z)
        says = length < ALL or Signal.of(residual, group).z >= SAYS
        second = (residual < 0) & says
        if before is not None and heard:
            steepness = probability.fitted(margin, before)[0]
            flip = probability.flip_probability(margin, steepness, before)
            rest = probability.flip_probability(residual, probability.fitted(residual, before)[0], before)
            second &= (side[:, REFUSES] == 0) | (rest >= 0.5)
        elif wrong is not None:
            flip = wrong.astype(np.float64)
        steepness = steepness if wrong is None else 0.0
        return cls(margin, residual, second, flip, signal, estimate, known, steepness, length, heard, says)

    @property
    def both(self) -> Bools:
        """Pairs whose label both votes contradict: the margin, and what is left of it without length and refusing."""
        return (self.margin < 0) & self.second

    def margin_at(self, limit: float) -> float | None:
        """The margin at which the probability of a wrong label reaches ``limit``; None without one rate for all."""
        if self.rate is None or not self.steepness or not 0 < self.rate < 1:
            return None
        return float((np.log(self.rate / (1 - self.rate)) - np.log(limit / (1 - limit))) / self.steepness)

    def top(self, share: float) -> Bools:
        """The ``share`` of pairs whose labels are contradicted most, of these those that the residual contradicts too."""
        out = np.zeros(len(self.margin), bool)
        out[np.argsort(self.margin, kind="stable")[: round(share * len(out))]] = True
        return out & (self.margin < 0) & (self.residual < 0) & self.says


@dataclass(frozen=True)
class Scores:
    """Margins (n,), what the second vote is free of (n, 5), and prompt groups (n,) of living rows, in their order;
    ``evidence`` is that of the rows the models were fitted on, ``alone`` (n,) the margins without what further votes add.
    """

    margin: Floats
    alone: Floats
    side: Array
    group: U64
    evidence: Evidence


def score(
    signals: Signals, stage: str, votes: Array, sample: int, folds: int, by: Callable[[U64], Floats] | None = None
) -> Scores:  # fmt: skip
    """Cross-fitted margins of the living rows. Models are fitted on at most ``sample`` of them (those with the smallest hashes),
    the others are scored a part at a time. ``by`` gives margins by another scorer, from the prompt groups.
    """
    from threadpoolctl import threadpool_limits

    hashed = pair_hash(signals)
    chosen = np.arange(len(signals))
    if len(signals) > sample:
        chosen = np.sort(np.argsort(hashed, kind="stable")[:sample])
    prompts, of = np.unique(signals.column("pair.prompt_key").astype(np.uint64), return_inverse=True)
    joined = prompts.copy()  # the group of each prompt, for its pairs outside the sample too
    joined[of[chosen]] = prompt_groups(signals.living(signals.index[chosen]))
    group = joined[of]
    with threadpool_limits(1):  # sums of several threads have other last bits
        turned = signals.swapped  # by an earlier stage; evidence is of the pairs as read, and then turned as a whole
        votes = np.where(turned[:, None], -votes, votes)
        features, evidence = Features.fitted(_some(signals, chosen), stage, group[chosen], votes[chosen])
        margin, side = np.zeros(len(signals)), np.empty((len(signals), evidence.side.shape[1]), np.float32)
        own = None
        there = chosen[np.argsort(hashed[chosen], kind="stable")]  # the rows of the evidence
        evidence = evidence.flipped(turned[there])
        side[there] = evidence.side
        if by is None:
            own, margin[there] = Scorer.fitted(evidence, folds, signals.seed)
        alone = margin.copy()
        if own is not None and votes.shape[1]:
            alone[there] = own.of(evidence.without_votes())
        rest = np.setdiff1d(np.arange(len(signals)), chosen)
        for i in range(0, len(rest), AT_ONCE):
            part = rest[i : i + AT_ONCE]
            more = features.of(_some(signals, part), group[part], votes[part]).flipped(turned[part])
            side[part] = more.side
            if own is not None:
                margin[part], alone[part] = own.of(more), own.of(more.without_votes())
    if by is not None:
        margin = alone = by(group)
        if votes.shape[1]:
            order = np.argsort(hashed, kind="stable")
            scaled = (np.where(turned[:, None], -votes, votes)[order] / features.opinions).astype(np.float32)
            margin = np.empty(len(alone))
            margin[order] = with_votes(alone[order], scaled, group[order], folds, signals.seed)
    return Scores(margin, alone, side, group, evidence)


def _some(signals: Signals, at: Index) -> Signals:
    return signals.living(signals.index[at])


def self_check(evidence: Evidence, folds: int, seed: int) -> tuple[float, float, int]:
    """How well flips are found that are planted in the set as it is: AUROC, the share of them among the tenth of the pairs
    whose labels are contradicted most, and how many were planted. A lower bound, since there are wrong labels already.
    """
    from scipy.stats import rankdata
    from threadpoolctl import threadpool_limits

    some = evidence.rows(np.arange(min(len(evidence), CHECKED)))
    planted = np.zeros(len(some), bool)
    planted[np.random.default_rng(seed).permutation(len(some))[: round(PLANTED * len(some))]] = True
    k = int(planted.sum())
    if not k:
        return 0.5, 0.0, 0
    with threadpool_limits(1):
        margin = Scorer.fitted(some.flipped(planted), folds, seed)[1]
    ranks = rankdata(-margin)
    auroc = (ranks[planted].sum() - k * (k + 1) / 2) / (k * (len(some) - k))
    found = planted[np.argsort(margin, kind="stable")[:k]].mean()
    return float(auroc), float(found), k
