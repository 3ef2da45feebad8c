"""What the numbers of the steps say when they are seen together. Each look is given the steps so far, and answers with what is
wrong, in numbers, or with nothing.

The limits come from 30 healthy runs (a tiny Qwen2, 30 and 90 steps, pairs that one phrase decides and pairs with 15 % wrong labels,
batches of 8 and 2, beta 0.1 and 0.5, sigmoid, hinge, ipo, sigmoid_norm and apo_down, all weights at 1e-5 to 1e-2 and adapters at 1e-3
and 1e-2), and from 9 at 0.1 to 50, which are not: each limit says what it stands between. No model of a real size is among them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import theilslopes

from prefdata.training.monitors import Step

NORMED = ("ipo", "sigmoid_norm")  # losses of means over tokens: their margin grows with the length of the answers
LN2 = math.log(2)
WINDOW = 30  # steps that a trend is taken over
LEAST = 15  # and that it needs


@dataclass(frozen=True)
class Scale:
    """What a run's numbers are to be measured by: ``tokens`` of an answer on average; ``plain``: no weights, no other reference."""

    losses: tuple[str, ...]
    batch: int
    steps: int
    warmup: int
    tokens: float
    plain: bool
    same: bool
    rate: float

    @property
    def gate(self) -> int:
        """The first steps, which tell most: 100, or a fifth of a shorter run."""
        return max(10, min(100, self.steps // 5))


Look = Callable[[Scale, Sequence[Step]], str]


def unit(steps: Sequence[Step]) -> float:
    """The loss at the start, by which losses are compared: ln 2 for sigmoid, 1 for hinge, 25 for ipo with beta 0.1."""
    return max(statistics.median(s.loss for s in steps[:3]), 0.1)


def nats(step: Step, value: float) -> float:
    """A reward or margin as log-probability."""
    return value / step.beta if step.beta else 0.0


def zero_loss(scale: Scale, steps: Sequence[Step]) -> str:
    """No loss, no gradient. Hinge has none once each pair is 1 apart, which is its aim."""
    last = steps[-3:]
    if len(last) < 3 or any(s.loss != 0 for s in last) or (scale.losses == ("hinge",) and last[-1].margin > 0):
        return ""
    return f"loss exactly 0 for 3 steps, margin {last[-1].margin:.3g}"


def exploding(scale: Scale, steps: Sequence[Step]) -> str:
    """Healthy runs stay below 10 (a loss of e^-10 a pair); 50 is beyond any sense. lr 1 reaches 190, lr 50 2,000 in one step."""
    limit = 50.0 * (scale.tokens if set(scale.losses) & set(NORMED) else 1.0)
    last = steps[-1]
    if not abs(last.margin) > limit:
        return ""
    return f"margin {last.margin:.4g}, beyond {limit:.0f}: log-probabilities moved by {nats(last, last.margin):.4g}"


def diverging(scale: Scale, steps: Sequence[Step]) -> str:
    """The loss of one batch of a healthy run stays below 2.2 times that of the start; lr 1 gives 6 to 50 times, and stays there."""
    last, start = [s.loss for s in steps[-5:]], unit(steps)
    if len(last) < 5 or not min(last) > 3 * start:
        return ""
    return f"loss above {min(last):.4g} for 5 steps; it began at {start:.4g}"


def no_signal(scale: Scale, steps: Sequence[Step]) -> str:
    """Every margin exactly 0, while there is no gradient, or while the model moves: the two answers are one for it."""
    last = steps[-10:]
    if len(last) < 10 or last[0].step <= scale.warmup or any(s.ties < 1 for s in last):
        return ""
    still = all(
        s.grad_norm is not None and s.grad_norm < 1e-6 for s in last
    )  # rounding leaves 1e-9 of two equal answers
    moved = abs(nats(last[-1], last[-1].chosen_reward))
    if not still and moved == 0:
        return ""
    why = (
        "gradient norm 0: identical answers, answers cut alike, or weights 0"
        if still
        else "the answers are identical to it"
    )
    return f"every margin is exactly 0 for 10 steps, loss {last[-1].loss:.4g}; {why}"


def stuck(scale: Scale, steps: Sequence[Step]) -> str:
    """Log-probabilities less than 0.01 from the reference, 10 steps after the warm-up; 0.08 and more at lr 1e-5 on a tiny model."""
    last = steps[-10:]
    if len(last) < 10 or last[0].step <= max(10, scale.warmup) or steps[-1].beta == 0:
        return ""
    moved = max(abs(nats(s, v)) for s in last for v in (s.margin, s.chosen_reward, s.rejected_reward))
    if moved >= 0.01:
        return ""
    if not moved:
        why = "the weights do not move: nothing trained, or updates lost in rounding"
    else:
        why = f"the learning rate {scale.rate:g} is too low, or the answers are nearly equal"
    return f"loss {last[-1].loss:.4f} after {last[-1].step} steps, log-probabilities moved by {moved:.2g}: {why}"


def _residuals(losses: Sequence[float]) -> tuple[float, Any]:
    """What the line through these losses (Theil-Sen) gives for the next step, and how far each lies off the line."""
    x = np.arange(len(losses))
    slope, base, *_ = theilslopes(np.asarray(losses), x)
    return float(base + slope * len(losses)), np.asarray(losses) - (base + slope * x)


def _spread(residuals: Any) -> float:
    """Standard deviation by the median of the absolute deviations: a few outliers do not count."""
    return float(1.4826 * np.median(np.abs(residuals - np.median(residuals))))


def spiking(scale: Scale, steps: Sequence[Step]) -> str:
    """A loss far above its own trend: 8 robust deviations, and more than one odd pair of the batch can make (a healthy run's
    largest, at the highest learning rates with wrong labels, is 1.3 times the loss at the start above its trend). Before there is
    a trend, far above the start (healthy: 1.1 times the start; lr 0.2 to 0.5: 4 to 17 times).
    """
    before, start = [s.loss for s in steps[-WINDOW - 1 : -1]], unit(steps)
    if len(before) < LEAST:
        above, usual = steps[-1].loss - start, 0.0
        limit = start * (2 + 8 / scale.batch)
    else:
        wanted, off = _residuals(before)
        above, usual = steps[-1].loss - max(wanted, 0.0), _spread(off)
        limit = max(8 * usual, start * (1 + 8 / scale.batch))
    if not above > limit:
        return ""
    return f"loss {steps[-1].loss:.4g}, {above:.4g} above its trend; {usual:.2g} is usual"


def oscillating(scale: Scale, steps: Sequence[Step]) -> str:
    """Losses that jump about their trend: a spread of half the start's loss, more for small batches (healthy: up to 0.31 at 8 pairs, 0.39 at 2)."""
    last = [s.loss for s in steps[-WINDOW:]]
    if len(last) < WINDOW:
        return ""
    spread, start = _spread(_residuals(last)[1]), unit(steps)
    if not spread > start * max(0.5, 1.5 / math.sqrt(scale.batch)):
        return ""
    return f"loss {spread:.3g} about its trend over {WINDOW} steps, from {min(last):.3g} to {max(last):.3g}"


def falling(scale: Scale, steps: Sequence[Step], limit: float = 0.5) -> str:
    """Both answers grow less likely, the chosen one too. DPO is known for it; half a nat a token is beyond healthy runs
    (0.42 in their worst single step; lr 1 gives 68 and more).
    """
    if len(steps) < 20 or (scale.losses == ("apo_down",) and limit < 1):  # the aim of apo_down
        return ""
    now = statistics.median(s.chosen_ratio for s in steps[-10:])
    before = statistics.median(s.chosen_ratio for s in steps[-20:-10])
    worse = statistics.median(s.rejected_ratio for s in steps[-10:])
    if not (now < -limit and worse < 0 and now < before):
        return ""
    return f"log-probability a token: chosen {now:+.2f}, rejected {worse:+.2f} against the reference, and falling"


def lost(scale: Scale, steps: Sequence[Step]) -> str:
    """Each token of the chosen answer 20 times less likely than before training: the model that was is gone."""
    return falling(scale, steps, 3.0)


def at_once(scale: Scale, steps: Sequence[Step]) -> str:
    """Nearly all pairs right while the margin is next to nothing: what one batch taught settles every other one. 100 pairs, so
    that it is no luck.
    """
    if steps[0].step != 1:
        return ""
    early = [s for s in steps[: scale.gate] if s.ties < 1 and abs(s.margin) < 0.1]
    pairs = sum(s.pairs for s in early)
    if pairs < 100:
        return ""
    right = sum(s.accuracy * s.pairs for s in early) / pairs
    if not right > 0.95:
        return ""
    return f"accuracy {right:.2f} over {pairs} pairs by step {early[-1].step}, while the margin is below 0.1"


def first_off(scale: Scale, steps: Sequence[Step]) -> str:
    """Before any step the policy is its reference: margin 0, and with the sigmoid loss ln 2."""
    first = steps[0]
    if first.step != 1 or len(steps) > 1 or not scale.same:
        return ""
    off = scale.losses == ("sigmoid",) and scale.plain and abs(first.loss - LN2) > 0.02
    if not off and abs(nats(first, first.margin)) < 1:
        return ""
    return f"loss {first.loss:.4f} at step 1 with margin {first.margin:.3g}; ln 2 is 0.6931"


STOPS: dict[str, Look] = {
    "zero_loss": zero_loss, "margin_explodes": exploding, "loss_diverges": diverging, "no_signal": no_signal, "likelihood_lost": lost,
}  # fmt: skip
WARNS: dict[str, Look] = {
    "first_loss_off": first_off, "loss_stuck": stuck, "loss_oscillates": oscillating, "likelihood_falls": falling,
    "accuracy_at_once": at_once,
}  # fmt: skip
SPIKE = "loss_spike"
