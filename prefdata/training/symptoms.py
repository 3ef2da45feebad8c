"""What the log of a run shows, each by its word: rules over logged lines, which hold the means of several steps. No torch here.

Limits are those of the guards where these have one; what is per token there is a share here, for plain Trainer logs no tokens of answers.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prefdata.training.past import Past

USUAL = {
    False: (1e-8, 5e-6),
    True: (1e-7, 1e-4),
}  # learning rates of all weights and of adapters, for small models the highest
_FAR = 10.0  # times beyond these, and a rate is the cause of what a rate can cause
_OF_RATE = ("margin_explodes", "loss_diverges", "likelihood_lost")
_PER_TOKEN = ("ipo", "sigmoid_norm")  # their margins grow with the answers


@dataclass(frozen=True)
class Symptom:
    """``verdict``: cause, or suspect."""

    word: str
    verdict: str
    evidence: str


def found(past: Past) -> Iterator[Symptom]:
    """All symptoms; where numbers are not finite, nothing else is read out of them."""
    odd = [*_nonfinite(past)]
    yield from odd
    if not odd:
        named = [*_rising(past), *_still(past), *_shape(past), *_falling(past)]
        yield from _rate(past, {s.word for s in named})
        yield from named
        yield from _held(past)
    if not past.evals and past.train and _under_way(past):
        yield Symptom("no_evaluation", "suspect", f"{past.end:,} steps without an evaluation")
    speeds = [
        x for line in past.train[1:] if (x := _of(line, "tokens_per_second")) is not None
    ]  # the first step warms up
    third = len(speeds) // 3
    if third >= 10 and (last := statistics.median(speeds[-third:])) < 0.4 * (
        first := statistics.median(speeds[:third])
    ):
        yield Symptom("slows_down", "suspect", f"{first:,.0f} tokens a second at first, {last:,.0f} at last")


def _under_way(past: Past) -> bool:
    """Past the warm-up and the first evaluation, as far as one knows."""
    return past.end >= 0.2 * (past.steps or 0)


def _of(line: dict[str, Any], key: str) -> float | None:
    value = line.get(key)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _column(lines: Sequence[dict[str, Any]], key: str) -> list[float]:
    return [value for line in lines if (value := _of(line, key)) is not None]


def _nan(line: dict[str, Any]) -> list[str]:
    return sorted(k for k, v in line.items() if isinstance(v, float) and not math.isfinite(v))


def _nonfinite(past: Past) -> Iterator[Symptom]:
    bad = [(line, names) for line in past.train if (names := _nan(line))]
    if bad:
        line, names = bad[0]
        hidden = "loss" not in names
        zeros = sum(line["loss"] == 0 for line, _ in bad)
        what = f"step {line.get('step')}: loss {line['loss']:.4g}, but {', '.join(names[:4])}{' ...' if len(names) > 4 else ''} are NaN"
        what += f"; loss 0.0 in {zeros} of {len(past.train)} lines" if zeros else ""
        yield Symptom("nan_hidden" if hidden else "nonfinite_loss", "cause", what)
    for line in past.evals:
        names = _nan(line)
        if names:
            right = line.get("eval_rewards/accuracies")
            what = f"step {line.get('step')}: {len(names)} numbers are NaN, eval_loss {line.get('eval_loss')}"
            yield Symptom(
                "evaluation_nonfinite", "cause", what + (f", and the accuracy {right} with them" if right == 0 else "")
            )
            break
    if past.evals and not any("eval_loss" in line for line in past.evals):
        yield Symptom("evaluation_empty", "cause", f"{len(past.evals)} evaluations without eval_loss")


def _rising(past: Past) -> Iterator[Symptom]:
    """Margin and loss beyond any sense."""
    margins, losses = _column(past.train, "rewards/margins"), _column(past.train, "loss")
    limit = 5000.0 if set(past.losses) & set(_PER_TOKEN) else 50.0
    worst = max(margins, key=abs, default=0.0)
    if abs(worst) > limit:
        what = f"margin {worst:.4g} (log-probabilities moved by {worst / past.beta:.4g} at beta {past.beta:g}); beyond {limit:g} it means nothing"
        yield Symptom("margin_explodes", "cause", what)
    start = max(losses[0], math.log(2)) if losses else 0.0
    if len(losses) >= 3 and min(losses[-2:]) > 3 * start:
        yield Symptom("loss_diverges", "cause", f"loss {losses[-1]:.4g} at the end; it began at {losses[0]:.4g}")


def _still(past: Past) -> Iterator[Symptom]:
    """Nothing moves: no gradient, or no way for it to do anything."""
    last, norms = past.train[-2:], _column(past.train, "grad_norm")
    if len(last) < 2 or past.end < 10:
        return
    moved = max(
        (abs(x) / past.beta for k in ("margins", "chosen", "rejected") for x in _column(last, f"rewards/{k}")),
        default=math.inf,
    )
    still = len(norms) > 1 and max(norms[-2:]) < 1e-6
    loss = last[-1]["loss"]
    if still and moved < 1e-3:
        yield Symptom(
            "no_signal",
            "cause",
            f"gradient norm {norms[-1]:.2g}, margin 0, loss {loss:.4f}: equal answers, answers cut alike, or weights 0",
        )
    elif still:
        yield Symptom(
            "gradient_vanishes",
            "cause",
            f"gradient norm {norms[-1]:.2g} at step {last[-1].get('step')}, loss {loss:.4g}",
        )
    elif loss == 0 == last[0]["loss"] and "hinge" not in past.losses:
        yield Symptom("zero_loss", "cause", f"loss exactly 0 in the last {len(last)} lines")
    elif moved < 0.01 and past.end >= 20 and _under_way(past):
        rate = f" at learning rate {past.rate:g}" if past.rate is not None else ""
        yield Symptom(
            "loss_stuck",
            "cause",
            f"loss {loss:.4f} (ln 2 is 0.6931) after {past.end:,} steps{rate}; log-probabilities moved by {moved:.2g}",
        )


def _shape(past: Past) -> Iterator[Symptom]:
    """Spikes, jumps, a growing gradient, and accuracy without a margin."""
    losses, norms = _column(past.train, "loss"), _column(past.train, "grad_norm")
    start = max(losses[0], 0.1) if losses else 1.0
    for i in range(5, len(losses)):
        window = losses[max(0, i - 10) : i]
        usual = statistics.median(window)
        spread = 1.4826 * statistics.median(abs(x - usual) for x in window)
        if losses[i] - usual > max(8 * spread, 1.5 * start):
            yield Symptom(
                "loss_spike",
                "suspect",
                f"loss {losses[i]:.4g} at step {past.train[i].get('step')}, {usual:.4g} is usual there",
            )
            break
    steps = [abs(b - a) for a, b in itertools.pairwise(losses)]
    if len(steps) >= 15 and (jump := statistics.median(steps[-30:])) > start:
        yield Symptom(
            "loss_oscillates", "suspect", f"the loss jumps by {jump:.3g} from line to line; it began at {start:.3g}"
        )
    if len(norms) >= 6 and (late := statistics.median(norms[-3:])) > 100 * max(statistics.median(norms[:3]), 0.1):
        yield Symptom(
            "gradient_grows",
            "suspect",
            f"gradient norm {statistics.median(norms[:3]):.3g} at first, {late:.3g} at last",
        )
    yield from _at_once(past)


def _at_once(past: Past) -> Iterator[Symptom]:
    """Nearly all pairs right in the first tenth of the run, or while the margin is next to nothing."""
    pairs, right, before = 0, 0.0, 0
    for line in past.train:
        accuracy, margin, step = (
            _of(line, "rewards/accuracies"),
            _of(line, "rewards/margins"),
            int(line.get("step") or 0),
        )
        if accuracy is None or margin is None:
            continue
        if abs(margin) >= 0.1 and step > max(3, (past.steps or past.end) // 10):
            break
        n = (step - before) * (past.batch or 8)
        if margin != 0:  # before the first step all are ties
            pairs, right = pairs + n, right + accuracy * n
        before = step
    if pairs >= 64 and right > 0.95 * pairs:
        yield Symptom(
            "accuracy_at_once", "suspect", f"accuracy {right / pairs:.2f} over about {pairs} pairs by step {before}"
        )


def _falling(past: Past) -> Iterator[Symptom]:
    """Both rewards below 0, and the chosen answers far less likely than at the start."""
    good, bad = _column(past.train, "rewards/chosen")[-3:], _column(past.train, "rewards/rejected")[-3:]
    logps, tokens = _column(past.train, "logps/chosen"), _column(past.train, "log_ratio/chosen")[-3:]
    if not good or not bad or max(*good, *bad) >= 0 or len(logps) < 4 or past.losses == ("apo_down",):
        return
    if tokens:
        mild, hard, what = (
            *(statistics.mean(tokens) < x for x in (-0.5, -3)),
            f"chosen answers {statistics.mean(tokens):+.2f} a token",
        )
    else:
        share = (statistics.mean(logps[-3:]) - logps[0]) / max(abs(logps[0]), 1e-9)
        mild, hard, what = (
            share < -0.25,
            share < -1.5,
            f"log-probability of chosen answers {logps[0]:.4g} at first, {logps[-1]:.4g} at last",
        )
    rewards = f"rewards {good[-1]:.3g} chosen, {bad[-1]:.3g} rejected; {what}"
    if hard:
        yield Symptom("likelihood_lost", "cause", rewards)
    elif mild:
        yield Symptom("likelihood_falls", "suspect", rewards)


def _rate(past: Past, words: set[str]) -> Iterator[Symptom]:
    """A rate far from the usual ones is the cause of what a rate can cause, else worth a look."""
    if past.rate is None:
        return
    low, high = USUAL[bool(past.lora)]
    what = f"learning rate {past.rate:g} for {'adapters' if past.lora else 'all weights'}; usual {low:g} to {high:g}"
    hot, cold = past.rate > high, past.rate < low
    sure = (past.rate > _FAR * high and bool(words & set(_OF_RATE))) or (cold and "loss_stuck" in words)
    if hot or cold:
        yield Symptom("implausible_learning_rate", "cause" if sure else "suspect", what)


def _held(past: Past) -> Iterator[Symptom]:
    """The held-out loss rises while the training margin does."""
    held = [(int(e.get("step") or 0), x) for e in past.evals if (x := _of(e, "eval_loss")) is not None]
    margins = _column(past.train, "rewards/margins")
    accuracies, last = _column(past.evals, "eval_rewards/accuracies"), _column(past.train, "rewards/accuracies")[-5:]
    if len(held) >= 3:
        (at, best), (_, final) = min(held, key=lambda e: e[1]), held[-1]
        grown = len(margins) >= 4 and statistics.mean(margins[-2:]) > statistics.mean(margins[:2])
        if final > best + max(0.03, 0.1 * best) and grown:
            what = f"held-out loss {best:.4g} at step {at:,}, {final:.4g} at the end; training margin {margins[0]:.3g} to {margins[-1]:.3g}"
            yield Symptom("overfitted", "cause" if final > math.log(2) else "suspect", what)
    if accuracies and last and statistics.mean(last) > 0.9 and accuracies[-1] < 0.55:
        yield Symptom(
            "no_gain", "suspect", f"accuracy {statistics.mean(last):.2f} in training, {accuracies[-1]:.2f} held out"
        )
