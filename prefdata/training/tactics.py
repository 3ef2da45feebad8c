"""Tactics of the write-ups, each off unless asked for: beta schedule, learning rates by group and layer, percentile clipping, order, replay, averaging."""

from __future__ import annotations

from typing import Any

from prefdata.training.checks import Case


def equip(case: Case, trainer: Any) -> None:
    """Give a new trainer the tactics that the settings ask for."""
