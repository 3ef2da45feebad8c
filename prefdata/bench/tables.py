"""Figures over seeds, and Markdown tables of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prefdata.bench.quality import mean_sd

Record = Mapping[str, Any]


def over_seeds(records: Iterable[Record], by: Sequence[str], figures: Sequence[str]) -> list[dict[str, Any]]:
    """The records that agree in ``by`` as one: ``runs``, and of each figure ``{mean, sd, n}`` over the runs that have it.

    A figure that is true or false becomes the share of runs in which it is true.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in by), []).append(record)
    out = []
    for key, some in groups.items():
        one: dict[str, Any] = {**dict(zip(by, key, strict=True)), "runs": len(some)}
        for name in figures:
            mean, sd, n = mean_sd(r.get(name) for r in some)
            one[name] = {"mean": mean, "sd": sd, "n": n} if n else None
        out.append(one)
    return out


def markdown(head: str, rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table; ``head`` names its columns, a comma and a blank apart."""
    names = head.split(", ")
    lines = [names, ["---"] * len(names), *rows]
    return [f"| {' | '.join(str(cell) for cell in line)} |" for line in lines]


def number(value: float | None, digits: int = 3) -> str:
    """``0.712``; ``-`` for what is not known."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def spread(figure: Mapping[str, float] | None, digits: int = 3) -> str:
    """``0.712 ± 0.008``: mean and standard deviation over seeds."""
    return "-" if figure is None else f"{number(figure['mean'], digits)} ± {number(figure['sd'], digits)}"


def of(figure: Mapping[str, float] | None) -> str:
    """``18/20``: in how many of the runs that have the figure it is true."""
    return "-" if figure is None else f"{round(figure['mean'] * figure['n'])}/{figure['n']}"


def percent(value: float | None) -> str:
    """``20 %``."""
    return "-" if value is None or not math.isfinite(value) else f"{100 * value:.3g} %"
