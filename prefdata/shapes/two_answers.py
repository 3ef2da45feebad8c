"""Two answers, in two columns or in a list of two, and a column that says which is better: a label, or their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefdata.errors import ConfigError, InputError
from prefdata.pairs import Fault, Pair, is_message
from prefdata.shapes import judged
from prefdata.shapes.columns import Asked, Columns, Parts, Row, Shown, value

SHOWN = (
    Shown("two_answers", "two answers and a label", ({
        "question": "What do bees make?", "answer_a": "Milk.", "answer_b": "Honey.", "winner": "B",
    },)),
)  # fmt: skip
PARTS = judged.PARTS
_LISTS = ("choices", "responses", "completions", "answers", "outputs", "candidates", "summaries", "generations")
_FIELDS = ("text", "content", "response", "answer", "output", "completion", "message", "messages", "summary")
_RATED = ("score", "scores", "rating", "ratings", "rank", "ranks", "ranking", "rewards")
_SCORES = ("score", "rating", "reward", "ups")


def find(names: Sequence[str], asked: Asked, head: Sequence[Row]) -> Columns | None:
    """Two columns of one stem, or a list of two, beside a label or two scores."""
    there = answers(names, asked, head)
    if there is None:
        return None
    first, second, listed = there
    try:
        found = judged.label_of([n for n in names if n not in there], asked, head, first, second)
    except InputError:
        if listed and set(_RATED) & set(names):  # rated or ranked, and the column is no label
            return None
        raise
    if found is None and judged.beside(names, first, second, _SCORES) is None:
        return None
    return columns_of("two_answers", names, asked, head, there, *(found or ({}, {})))


def columns_of(
    shape: str, names: Sequence[str], asked: Asked, head: Sequence[Row], there: tuple[str, str, str | None],
    said: Parts, code: Mapping[str, float],
) -> Columns:  # fmt: skip
    """The columns of a set with these answers, and of what says which is better: the parts ``said`` and their code."""
    first, second, listed = there
    used = [n for n in there if n is not None]
    parts: dict[str, Any] = {**judged.asked_of(names, asked, head, used), "first": first, "second": second, **said}
    parts["scores"] = judged.beside(names, first, second, _SCORES)
    parts["models"] = judged.beside(names, first, second, judged.MODELS)
    held = {part: column for part, column in parts.items() if column is not None}
    needs = (listed,) if listed else (first, second)
    return Columns.of(shape, names, held, needs, used, code, scored="scores" in held)


def answers(names: Sequence[str], asked: Asked, head: Sequence[Row]) -> tuple[str, str, str | None] | None:
    """The paths of both answers, and the column where they are a list; None where there are none."""
    first, second = asked.columns.get("first"), asked.columns.get("second")
    if first is not None and second is not None:
        return None if first == second else (*judged.in_order(first, second, asked), None)
    if first is not None or second is not None:
        raise ConfigError("--columns names one of two answers", hint="Name both: first=...,second=...")
    if pair := judged.two_columns(names, judged.STEMS):
        return *pair, None
    for name in (n for n in _LISTS if n in names):
        lists = [v for r in head if (v := value(r, name)) is not None]
        if lists and all(isinstance(v, list) and len(v) == 2 for v in lists):
            items = [x for v in lists for x in v]
            if all(isinstance(x, str | list) or is_message(x) for x in items):
                return f"{name}.0", f"{name}.1", name
            field = next((f for f in _FIELDS if all(isinstance(x, Mapping) and f in x for x in items)), None)
            if field is not None:
                return f"{name}.0.{field}", f"{name}.1.{field}", name
    return None


def not_two(row: Row, columns: Columns) -> Fault | None:
    """The fault of a row whose list of answers, unlike those of the first rows, does not hold two."""
    if len(columns.needs) == 1 and isinstance(held := row.get(columns.needs[0]), list) and len(held) != 2:
        return Fault("bad_type", f"{columns.needs[0]} holds {len(held)} answers, not two")
    return None


def read(row: Row, columns: Columns, asked: Asked) -> tuple[str, Pair | Fault]:
    """The name of the row's form, and its pair or fault."""
    fault = not_two(row, columns)
    return "two_answers", fault or judged.judged(row, columns, asked, judged.verdict_of(row, columns, asked))
