"""What the model prefers of pairs that it was not trained on, with intervals; and what it has forgotten of plain text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata.intervals import wilson
from prefdata.training import neutral
from prefdata.training.checks import Case

Floats = npt.NDArray[np.float64]
SIDES = ("chosen", "rejected")
_NAMES = (*SIDES, *(f"ref_{s}" for s in SIDES))
_DIGITS = 6


def evaluate(case: Case) -> dict[str, Any]:
    """How the model takes the held-out pairs, and ``forgetting`` (perplexity on neutral text).

    ``accuracy`` is the share of pairs whose reward of the chosen answer is strictly the larger one, ``margin`` the mean of beta (of the settings) times
    (policy minus reference); both with bounds of 95 %, and both 0 before training, where every pair is a tie. ``reference_accuracy`` is
    the share whose chosen answer the model itself finds more likely, ``length_accuracy`` what "the longer one wins" would score.
    ``chosen`` and ``rejected`` are mean log-probabilities of whole answers. Where pairs are held out and the evaluation gives no
    number, ``error`` is the word for it: evaluation_empty or evaluation_nonfinite.
    """
    out: dict[str, Any] = {}
    if case.held is not None and len(case.held.dataset):
        out = _held(case)
    return {**out, "forgetting": neutral.forgetting(case)}


def _held(case: Case) -> dict[str, Any]:
    assert case.held is not None
    trainer = case.trainer
    with _collected(trainer) as seen:
        # Not trainer.evaluate(): that would write a log, and wake early stopping and probes.
        got = trainer.evaluation_loop(trainer.get_eval_dataloader(), "held", prediction_loss_only=True)
    trainer._metrics["eval"].clear()  # else TRL adds these batches to the next evaluation's means
    by_row = _gathered(seen)
    loss = got.metrics.get("eval_loss")
    if loss is None or not by_row:
        return {"pairs": 0, "error": "evaluation_empty"}
    rows = sorted(by_row)
    table = np.array([by_row[r] for r in rows], np.float64).T
    out = figures(dict(zip(_NAMES, table, strict=True)), case.settings.beta)
    lengths = {s: np.zeros(len(case.data.held or ()), np.int64) for s in SIDES}
    for side, counts in case.held.lengths().items():
        if side in lengths:
            lengths[side][case.held.rows] = counts
    longer = lengths["chosen"][rows] - lengths["rejected"][rows]
    out["length_accuracy"] = round(float((longer > 0).mean() + 0.5 * (longer == 0).mean()), _DIGITS)
    out["loss"] = round(float(loss), _DIGITS)
    if not all(math.isfinite(v) for v in out.values()):
        out = {k: v if math.isfinite(v) else None for k, v in out.items()} | {"error": "evaluation_nonfinite"}
    return out


@contextmanager
def _collected(trainer: Any) -> Iterator[dict[int, list[float]]]:
    """Log-probabilities of each pair by its row, as the trainer's own code finds them, in place of who watches else."""
    seen: dict[int, list[float]] = {}

    def watch(rows: Any, numbers: Mapping[str, Any], training: bool) -> None:
        columns = zip(*(numbers[n].float().tolist() for n in _NAMES), strict=True)
        seen.update({r: list(c) for r, c in zip(rows.tolist(), columns, strict=True)})

    before, trainer.watch = trainer.watch, watch
    try:
        yield seen
    finally:
        trainer.watch = before


def _gathered(seen: dict[int, list[float]]) -> dict[int, list[float]]:
    """Of all processes; a pair that pads the last batch of one of them counts once."""
    from accelerate.utils import gather_object

    return dict(gather_object(list(seen.items())))


def figures(found: Mapping[str, Floats], beta: float) -> dict[str, Any]:
    """Accuracy and margin with bounds of 95 % (Wilson; Student's t), ties and means, of log-probabilities (pairs,) by name."""
    chosen, rejected = found["chosen"], found["rejected"]
    margins = beta * ((chosen - found["ref_chosen"]) - (rejected - found["ref_rejected"]))
    right = float((margins > 0).mean())
    low, high = wilson(right, len(margins))
    mean, half = mean_and_half(margins)
    out = {
        "accuracy": right, "accuracy_low": low, "accuracy_high": high, "margin": mean, "margin_low": mean - half,
        "margin_high": mean + half, "ties": float((margins == 0).mean()), "reference_accuracy": float((chosen > rejected).mean()),
        "chosen": float(chosen.mean()), "rejected": float(rejected.mean()),
    }  # fmt: skip
    return {"pairs": len(margins), **{k: round(v, _DIGITS) for k, v in out.items()}}


def mean_and_half(values: Floats) -> tuple[float, float]:
    """A mean and half of its 95 % interval by Student's t; the half is infinite for one value."""
    from scipy.stats import t

    n = len(values)
    mean = float(values.mean())
    if n < 2:
        return mean, math.inf
    return mean, float(t.ppf(0.975, n - 1) * values.std(ddof=1) / math.sqrt(n))
