"""An example of each reason word, out of ``samples/words.yaml``: rows that get it, and rows as near as can be that do not."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ruamel.yaml import YAML

_FILE = Path(__file__).parent / "samples/words.yaml"


@dataclass(frozen=True)
class Example:
    """``triggers`` and ``spares`` are lines of a file each: in the first the last one gets the word, in the second none does."""

    line: str
    """What the difference is, in one or two sentences."""
    triggers: tuple[str, ...]
    spares: tuple[str, ...]
    settings: tuple[str, ...] = ()
    """Parameters as ``--set`` takes them."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Further files that the settings name."""
    review: str = ""
    """What people said of the pair that gets the word, where the settings name their review."""
    crowd: tuple[str, ...] = ()
    """Lines that stand before both, where a word needs a set around the row."""


@cache
def examples() -> dict[str, Example]:
    """Every example by its word."""
    told = YAML(typ="safe", pure=True).load(_FILE.read_text("utf-8"))
    return {
        word: Example(
            line=it["line"], triggers=tuple(it["triggers"].splitlines()), spares=tuple(it["spares"].splitlines()),
            settings=tuple(it.get("settings", ())), files=it.get("files", {}), review=it.get("review", ""), crowd=_crowd(it.get("crowd")),
        )
        for word, it in told.items()
    }  # fmt: skip


def _crowd(told: Mapping[str, list[str]] | None) -> tuple[str, ...]:
    if told is None:
        return ()
    parts = {name: values for name, values in told.items() if name != "form"}
    lines = []
    for values in itertools.product(*parts.values()):
        line = str(told["form"])
        for name, value in zip(parts, values, strict=True):
            line = line.replace(f"{{{name}}}", value)
        lines.append(line)
    return tuple(lines)
