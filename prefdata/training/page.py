"""``train.html``: the run on one page, from what lies in its folder."""

from __future__ import annotations

from pathlib import Path


def write(home: Path) -> None:
    """Make the page again from ``train.json``, ``metrics.jsonl`` and ``generations.jsonl``."""
