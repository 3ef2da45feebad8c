"""What the tests of stages share: the hand-over cases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest


@pytest.fixture
def case(shared: Path) -> Callable[..., tuple[list[str], list[tuple[str, str, str]]]]:
    """``case(name)``: ids and rows of one of the shared cases."""

    def read(name: str, file: str = "rows.jsonl") -> tuple[list[str], list[tuple[str, str, str]]]:
        lines = [orjson.loads(line) for line in (shared / "cases" / name / file).read_bytes().splitlines()]
        return [r["id"] for r in lines], [(r["prompt"], r["chosen"], r["rejected"]) for r in lines]

    return read
