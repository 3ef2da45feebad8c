"""The mean of several checkpoints, evaluated beside the model that training ended with."""

from __future__ import annotations

from typing import Any

from prefdata.training.checks import Case


def better(case: Case, after: dict[str, Any]) -> dict[str, Any]:
    """Evaluate the mean of the checkpoints that ``average`` asks for, and leave it in ``case.trainer.model`` if it is better than ``after``."""
    return {}
