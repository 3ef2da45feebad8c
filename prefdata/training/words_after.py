"""The words of ``doctor``: what went wrong with a run that has ended."""

from __future__ import annotations

from prefdata.training.word import Word

AFTER: dict[str, Word] = {}
