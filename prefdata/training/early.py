"""Stopping early: conditions on evaluations such as ``accuracy<0.01``. No torch here: settings read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prefdata.errors import near_or_all

HELD = ("accuracy", "margin", "chosen", "loss")  # of the held-out pairs
PROBED = ("length_ratio", "distinct")  # of the answers to the probes
METRICS = (*HELD, *PROBED)


@dataclass(frozen=True)
class Condition:
    """Met when ``metric`` improved by less than ``least`` over the last evaluations. Better is more, for loss less, for
    length_ratio nearer to 1. A negative ``least`` allows that much of a loss: ``chosen<-5`` is met when the chosen answers
    have lost more than 5 of their log-probability.
    """

    metric: str
    least: float

    def good(self, value: float) -> float:
        """The number where more is better."""
        return -value if self.metric == "loss" else -abs(value - 1) if self.metric == "length_ratio" else value

    def gain(self, values: Sequence[float], patience: int) -> float | None:
        """How much the best of the last ``patience`` values is better than the best before; None while there are too few."""
        if len(values) <= patience:
            return None
        ranked = [self.good(v) for v in values]
        return max(ranked[-patience:]) - max(ranked[:-patience])


def condition(text: str) -> Condition:
    """Read ``accuracy<0.01``; raises ValueError."""
    metric, sign, limit = (part.strip() for part in text.partition("<"))
    if metric not in METRICS:
        raise ValueError(f"no metric {metric!r} to stop early by. {near_or_all(metric, METRICS)}")
    try:
        return Condition(metric, float(limit if sign else "no"))
    except ValueError as error:
        raise ValueError(f"{text}: not METRIC<NUMBER, for example accuracy<0.01") from error


def met(
    conditions: Sequence[str], rule: str, patience: int, evals: Sequence[Mapping[str, float]], generated: Sequence[Mapping[str, float]]
) -> str:  # fmt: skip
    """What ends the run, in numbers, or nothing; ``rule`` is any or all."""
    told = []
    for text in conditions:
        wanted = condition(text)
        lines = generated if wanted.metric in PROBED else evals
        gain = wanted.gain([line[wanted.metric] for line in lines if wanted.metric in line], patience)
        if gain is not None and gain < wanted.least:
            told.append(f"{wanted.metric} {gain:+.4g} over {patience} evaluations (less than {wanted.least:g})")
    enough = len(told) == len(conditions) if rule == "all" else bool(told)
    return "; ".join(told) if enough and told else ""
