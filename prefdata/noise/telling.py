"""What label noise says of a set as a whole, as findings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prefdata.decisions import Finding, Signals
from prefdata.noise.probability import ENOUGH
from prefdata.noise.ruling import Ruling, Scores, self_check


def told(living: Signals, scores: Scores, ruling: Ruling, limit: float, folds: int) -> list[Finding]:
    """The findings; ``limit`` is the probability from which a label is acted upon, ``folds`` those of the self-check (0: none)."""
    n, signal, rate = len(living), ruling.signal, ruling.estimate
    there = "signal" if signal.there else "no_signal"
    text = f"the rest of the set agrees with {signal.agreement:.1%} of the labels (z {signal.z:.1f})"
    if not signal.there:
        why = f"{n:,} pairs are fewer than {ENOUGH}" if n < ENOUGH else f"{text}, no better than chance"
        text = f"label_noise says nothing of single labels: {why}"
    out = [Finding("label_signal", there, n, text)]
    decided = bool(np.isfinite(ruling.flip).any())
    if decided:
        sure = np.nan_to_num(ruling.flip) >= limit
        text = f"pairs reach a probability of {limit:g} of a wrong label"
        out.append(Finding("flip_prob_reached", int(sure.sum()), n, text, rows=_rows(living, np.flatnonzero(sure))))
    if not signal.there:
        return out
    if not ruling.heard:
        text = "what the set shows does not follow the annotators' certainty and may be their common taste: their votes alone count"
        out.append(Finding("classifier_not_heard", 1, n, text))
    upper = f"at most {rate.upper:.1%} of the labels are wrong, if errors fall alike on all pairs"
    out.append(Finding("noise_rate_upper", rate.upper, n, upper))
    if ruling.rate is not None and ruling.rate > rate.upper:
        text = f"the rate given, {ruling.rate:.1%}, is above the {rate.upper:.1%} that the set allows at most: look at what is dropped"
        out.append(Finding("noise_rate_above", ruling.rate, n, text))
    if rate.value is not None:
        text = f"about {rate.value:.1%} of the labels are wrong (90 % interval {rate.low:.1%} to {rate.high:.1%})"
        out.append(Finding("noise_rate", rate.value, n, text, rate.low, rate.high))
    elif not decided:
        text = (
            f"at most {rate.upper:.1%} of the labels are wrong; how many cannot be told from this set, so pairs are ranked and"
            " none is called wrong: give label_noise.rate, or label_noise.verified, to act"
        )
        out.append(Finding("noise_rate_unknown", rate.upper, n, text))
    if decided and ruling.heard:
        alone = sure & ~ruling.both
        text = "pairs reach it by their length or by refusing alone: they are not acted upon, read them"
        out.append(Finding("length_alone", int(alone.sum()), n, text, rows=_rows(living, np.flatnonzero(alone))))
    text = f"length alone explains {ruling.length:.0%} of the variation of the score"
    out.append(Finding("length_share", ruling.length, n, text))
    if folds:
        auroc, found, k = self_check(scores.evidence, folds, living.seed)
        text = f"of {k:,} labels turned round as a test, {found:.0%} are among the {k:,} most doubtful ones (AUROC {auroc:.3f})"
        out.append(Finding("self_check", auroc, k, text))
    order = np.argsort(ruling.margin, kind="stable")[:50]
    text = "pairs to read first: those whose labels are contradicted most"
    out.append(Finding("review_first", len(order), n, text, rows=_rows(living, order)))
    return out


def _rows(living: Signals, at: npt.NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(living.index[at[:50]].tolist())
