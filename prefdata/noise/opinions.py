"""Further opinions on the labels of a set: votes of models, scores that came with it, and rows that somebody verified."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata.decisions import Decisions, Finding, Signals
from prefdata.errors import ConfigError
from prefdata.intervals import wilson
from prefdata.noise.evidence import Array
from prefdata.pairs import Pairs

_SCORES = ("pair.score_chosen", "pair.score_rejected")
CIRCULAR = 0.995  # agreement from which a vote is taken for what the labels were made of
SEVERAL = 1.5  # votes on a pair in the mean, from which annotators can be told apart
_RIGHT, _WRONG = ("true", "right", "correct", "yes", "1"), ("false", "wrong", "flipped", "no", "0")


def gathered(living: Signals, stage: str, out: Decisions) -> Array:
    """Votes (n, m) on the living rows: how much better chosen is than rejected, NaN for no opinion.

    A vote that agrees with all labels is what they were made of: it says nothing of them, and is left out, which is told.
    """
    found: dict[str, npt.NDArray[Any]] = {
        n.split("vote_", 1)[1]: living.column(n) for n in living.names if n.startswith(f"{stage}.vote_")
    }
    if set(_SCORES) <= set(living.names):
        chosen, rejected = (living.column(n).astype(np.float64) for n in _SCORES)
        found["score"] = chosen - rejected
    turn = np.where(living.swapped, -1, 1)
    votes = []
    for name, values in found.items():
        vote = (values * turn).astype(np.float32)
        cast = int(np.isfinite(vote).sum())
        vote[~np.isfinite(vote)] = np.nan
        agree, differ = int((vote > 0).sum()), int((vote < 0).sum())
        share = agree / max(1, agree + differ)
        what = f"{name} agrees with {share:.1%} of the labels on which it has an opinion"
        if agree + differ and share >= CIRCULAR:
            text = f"{what}: it is what they were made of, and no further vote"
            out.findings.append(Finding("vote_left_out", share, cast, text))
        elif agree + differ:
            out.findings.append(Finding("vote_agreement", share, agree + differ, what))
            votes.append(vote)
        else:
            text = f"{name} prefers neither answer of any pair ({cast:,} of {len(living):,} have a usable opinion): it says nothing"
            out.findings.append(Finding("vote_says_nothing", len(living), len(living), text))
    return np.stack(votes, 1) if votes else np.empty((len(living), 0), np.float32)


def verified(pairs: Pairs, column: str) -> list[float | None]:
    """1 where somebody found the label right, 0 where wrong, None where nobody looked."""
    if column not in pairs.columns:  # of this batch: others may have it
        return [None] * len(pairs)
    return [_verdict(v, column) for v in pairs.columns[column].to_pylist()]


def _verdict(value: Any, column: str) -> float | None:
    word = str(value).strip().lower().removesuffix(".0")
    if value is None or not word:
        return None
    if word not in (*_RIGHT, *_WRONG):
        hint = f"True or false (or {', '.join(_RIGHT[1:3])}, {', '.join(_WRONG[1:3])}); leave out rows that nobody looked at."
        raise ConfigError(f"label_noise.verified: the column {column!r} holds {word[:40]!r}", hint=hint)
    return float(word in _RIGHT)


def rate_of(values: npt.NDArray[Any], column: str) -> Finding:
    """The rate of wrong labels among verified rows, with a 90 % interval (Wilson)."""
    known = values[np.isfinite(values.astype(np.float64))]
    n = len(known)
    if not n:
        raise ConfigError(f"label_noise.verified: no row of the column {column!r} says whether its label is right")
    p = float((known == 0).mean())
    low, high = wilson(p, n, z=1.645)
    text = f"{p:.1%} of the {n:,} verified labels are wrong (90 % interval {low:.1%} to {high:.1%})"
    return Finding("noise_rate_verified", p, n, text, low, high)
