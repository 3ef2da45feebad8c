"""The numbers of the page's charts: where lines, ticks and squares lie in drawings of fixed size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from prefdata.report.numbers import nice

WIDTH, HEIGHT = 520.0, 200.0
LEFT, RIGHT, TOP, BASE = 62.0, 510.0, 10.0, 172.0
MOST = 400  # points of a line
CELL, LINE = 22.0, 20.0
NAMES = 132.0  # for the names of layers
COLUMNS = 16  # looks that the map of layers shows
_SUFFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))

Line = tuple[str, str, str]
Lines = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Asked:
    """A chart: its title, what it means and what to do, its lines (key, name, look) and a level to compare with."""

    title: str
    says: str
    lines: tuple[Line, ...]
    level: float | None = None
    level_name: str = ""
    scale: tuple[float, float] | None = None


def asked(settings: Mapping[str, Any]) -> list[Asked]:
    """The charts of a run, in their order."""

    def both(key: str, name: str = "") -> tuple[Line, Line]:
        return (key, f"{name} training".strip(), "a thin"), (f"eval_{key}", f"{name} held out".strip(), "a dots")

    def sides(key: str) -> tuple[Line, ...]:
        a, b = both(f"{key}/chosen", "chosen")
        return a, b, (f"{key}/rejected", "rejected training", "b thin"), (f"eval_{key}/rejected", "rejected held out", "b dots")  # fmt: skip

    plain = settings.get("loss_type") == ["sigmoid"]
    return [
        Asked("Loss", "It starts at ln 2 = 0.693, where the model is its own reference, and falls. Flat: raise learning_rate; held out rising while training falls: stop earlier."
              if plain else "It falls when the model learns. Held out rising while training falls: stop earlier.",
              both("loss"), math.log(2) if plain else None, "ln 2"),
        Asked("Margin", "How far the chosen answer is ahead of the rejected one, beta times log-ratio. Held out it is to rise and stay up; exploding: lower learning_rate.", both("rewards/margins"), 0.0, "0"),
        Asked("Accuracy and ties", "Share of pairs with the chosen answer ahead, and of pairs that are exactly even. 100 % at once means a shortcut in the data; many ties mean nothing is learnt.",
              (*both("rewards/accuracies", "accuracy"), ("ties", "ties training", "b thin"), ("eval_ties", "ties held out", "b dots")), 0.5, "50 %", (0, 1)),
        Asked("Log-probability of chosen and rejected answers", "Of whole answers. Both falling together: likelihood of good answers is lost too; add the sft loss, or lower learning_rate.", sides("logps")),
        Asked("Distance from the reference, per token", "Mean log-probability of the model minus that of the reference, per token of the given answers. It stands for the KL divergence, which would need answers of the model's own. Far from 0: raise beta.", sides("log_ratio"), 0.0, "0"),
        Asked("Gradient norm", "Before clipping, mean since the last point. Spikes: look at the rows of that step, or lower learning_rate.", (("grad_norm", "training", "a thin"),),
              settings.get("max_grad_norm") if settings.get("clip_percentile") is None else None, "bound of clipping"),
        Asked("Clipped steps", "Share of steps whose gradient was clipped. Always: the bound sets the step size, not the learning rate.", (("clipped", "training", "a thin"),), scale=(0, 1)),
        Asked("Learning rate", "As the schedule gives it, warm-up first.", (("learning_rate", "training", "a thin"),)),
        Asked("beta", "How strongly the model is held to its reference.", (("beta", "training", "a thin"),)),
        Asked("Entropy", "Of the next token, in nats. Falling towards 0: the model says one thing only; raise beta, or stop earlier.", both("entropy")),
        Asked("Speed", "Tokens a second in training steps; evaluations and probes do not count. Falling: memory is short, or answers grew longer.", (("tokens_per_second", "training", "a thin"),)),
        Asked("Memory", "Most bytes in use so far, of the main process or its GPU. Close to what there is: lower micro_batch_size.", (("memory", "training", "a thin"),)),
        Asked("Answers to the probes", "Length against the first round, share of different pairs of tokens, share that ended by itself. Growing length or falling variety: the model was taught length or repetition.",
              (("probes/length_ratio", "length ratio", "a dots"), ("probes/distinct", "distinct-2", "b dots"), ("probes/ended", "ended", "c dots"))),
    ]  # fmt: skip


def charts(lines: Lines, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All charts of which there are numbers."""
    return [made for a in asked(settings) if (made := chart(a, lines))]


def chart(ask: Asked, lines: Lines) -> dict[str, Any] | None:
    """One chart, or None where no line has a point."""
    found = [(name, look, runs) for key, name, look in ask.lines if (runs := _runs(lines, key))]
    points = [p for *_, runs in found for run in runs for p in run]
    if not points:
        return None
    across = (min(0.0, *(x for x, _ in points)), max(1.0, *(x for x, _ in points)))
    values = [y for _, y in points] + ([ask.level] if ask.level is not None else [])
    up = ask.scale or _room(min(values), max(values))

    def x_at(x: float) -> float:
        return round(LEFT + (x - across[0]) / (across[1] - across[0]) * (RIGHT - LEFT), 1)

    def y_at(y: float) -> float:
        return round(BASE - (y - up[0]) / (up[1] - up[0]) * (BASE - TOP), 1)

    return {
        "title": ask.title, "says": ask.says, "width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "base": BASE,
        "series": [
            {"name": name, "look": look, "last": runs[-1][-1][1],
             "runs": [" ".join(f"{x_at(x)},{y_at(y)}" for x, y in run) for run in runs],
             "dots": [{"x": x_at(x), "y": y_at(y)} for run in runs for x, y in run] if "dots" in look and sum(map(len, runs)) < 60 else
                     [{"x": x_at(run[0][0]), "y": y_at(run[0][1])} for run in runs if len(run) == 1]}
            for name, look, runs in found
        ],
        "x_ticks": [{"at": x_at(t), "text": f"{t:,.0f}"} for t in _ticks(*across, whole=True)],
        "y_ticks": [{"at": y_at(t), "text": text} for t, text in zip(_ticks(*up), labels(_ticks(*up)), strict=True)],
        "level": None if ask.level is None else {"at": y_at(ask.level), "name": ask.level_name},
    }  # fmt: skip


def _runs(lines: Lines, key: str) -> list[list[tuple[float, float]]]:
    """Points of a key; a step that is not above the one before begins a new line: the run was taken up again there."""
    runs: list[list[tuple[float, float]]] = []
    for line in lines:
        value, step = line.get(key), line.get("step")
        if not _number(value) or not _number(step):
            continue
        if not runs or step <= runs[-1][-1][0]:
            runs.append([])
        runs[-1].append((float(step), float(value)))
    total = sum(map(len, runs))
    return [_thinned(run, max(2, MOST * len(run) // total)) for run in runs]


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _thinned(run: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """So many points at most: the lowest and the highest of each part, so that no spike is lost; the last one stays."""
    if len(run) <= most:
        return run
    size = -(-2 * len(run) // most)
    out: list[tuple[float, float]] = []
    for i in range(0, len(run), size):
        part = run[i : i + size]
        out += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return out if out[-1] == run[-1] else [*out, run[-1]]


def _room(low: float, high: float) -> tuple[float, float]:
    """The values with some room, of a scale that is never empty."""
    if high == low:
        wide = abs(high) / 2 or 1.0
        return (low - wide, high + wide) if low < 0 else (max(0.0, low - wide), high + wide)
    room = (high - low) * 0.06
    return (0.0 if low == 0 else low - room), high + room


def _ticks(low: float, high: float, whole: bool = False) -> list[float]:
    step = nice((high - low) / 4)
    if whole:
        step = max(1.0, math.ceil(step))
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    return [k * step for k in range(first, last + 1)]


def labels(values: list[float]) -> list[str]:
    """Numbers beside an axis, with as many digits as tell neighbours apart."""
    digits = next(d for d in range(4, 16) if d == 15 or len({label(v, d) for v in values}) == len(values))
    return [label(v, digits) for v in values]


def label(value: float, digits: int = 4) -> str:
    """A number beside an axis: short, also when it is bytes."""
    for size, suffix in _SUFFIXES:
        if abs(value) >= size * 10 or (abs(value) >= size and size > 1e3):
            return f"{value / size:.{digits}g}{suffix}"
    return f"{value:.{digits}g}".replace("-", "\u2212") if abs(value) > 1e-12 else "0"


def layers(lines: Lines) -> dict[str, Any] | None:
    """The map of layers and looks: the stronger, the further a layer moved since the look before, on a logarithmic scale."""
    looks = [line for line in lines if isinstance(line.get("update_ratio"), dict)]
    looks = looks[:: -(-len(looks) // COLUMNS) or 1]
    names = list(dict.fromkeys(n for line in looks for n in line["update_ratio"]))
    values = [v for line in looks for v in line["update_ratio"].values() if _number(v) and v > 0]
    if not values:
        return None
    low, high = math.log(min(values)), math.log(max(values))

    def shade(value: Any) -> float:
        if not _number(value) or value <= 0:
            return 0.0
        return round(0.12 + 0.88 * ((math.log(value) - low) / (high - low) if high > low else 1.0), 3)

    wide = max(CELL, (WIDTH - NAMES) / len(looks))
    return {
        "width": NAMES + wide * len(looks), "height": LINE * len(names) + 22, "low": min(values), "high": max(values), "wide": wide, "tall": LINE,
        "names": [{"y": LINE * i + 14, "text": n if len(n) < 19 else n[:8] + "…" + n[-9:]} for i, n in enumerate(names)],
        "steps": [{"x": NAMES + wide * (i + 0.5), "text": f"{line['step']:,}"} for i, line in enumerate(looks)],
        "cells": [
            {"x": NAMES + wide * i, "y": LINE * j, "shade": shade(line["update_ratio"].get(n))}
            for i, line in enumerate(looks) for j, n in enumerate(names)
        ],
        "rows": [{"name": n, "values": [line["update_ratio"].get(n) for line in looks]} for n in names],
    }  # fmt: skip


def rounds(generated: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Probes with their rounds in order of steps; where a run went back, what it said later counts."""
    probes: dict[str, dict[str, Any]] = {}
    for line in generated:
        probe = probes.setdefault(str(line.get("id")), {**line, "said": {}})
        probe["said"][line.get("step") or 0] = line
    return [{**p, "said": [p["said"][s] for s in sorted(p["said"])]} for p in probes.values()]
