"""What a word of training is: a check or a guard by its name. No torch here: ``explain`` reads these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    """``when``: before, during or after training. ``means`` and ``remedy`` are sentences for people."""

    when: str
    means: str
    remedy: str
