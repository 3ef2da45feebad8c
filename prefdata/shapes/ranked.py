"""A list of answers in one row, each with a score or rank of its own, or beside a list of these (UltraFeedback, Nectar)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefdata.errors import ConfigError, InputError
from prefdata.pairs import Fault, Pair, kind_of
from prefdata.shapes.answers import RANKS, Answer, is_object, order_field, parted, ranked, score_of, text_field
from prefdata.shapes.columns import Asked, Columns, Row, Shown, asking, cut, value
from prefdata.shapes.sides import pair_in

SHOWN = (
    Shown("score_lists", "a list of answers, and a list of their scores or ranks", ({
        "prompt": "What do bees make?", "responses": ["Milk.", "Honey."], "scores": [1.5, 9],
    },)),
    Shown("ranked", "a list of answers, each an object with a score or a rank", ({
        "prompt": "What do bees make?", "answers": [
            {"text": "Honey.", "rank": 1, "model": "a"}, {"text": "Wax and milk.", "rank": 2, "model": "b"},
            {"text": "Milk.", "rank": 3, "model": "c"},
        ],
    },)),
)  # fmt: skip
PARTS = ("prompt", "context", "system", "answers", "score", "rank")
_OBJECTS = ("completions", "generations", "responses", "answers", "candidates", "outputs", "replies", "choices")
_LISTS = (
    "responses", "completions", "generations", "answers", "texts", "text", "candidates", "outputs", "predictions",
    "all_generated_responses", "all_responses",
)  # fmt: skip
_SCORES = (
    "scores", "score", "rewards", "reward", "ratings", "rating", "all_rm_scores", "rm_scores", "all_rewards", "pm_scores",
)  # fmt: skip
_Order = tuple[str, str, str | None]  # ``score`` or ``rank``, its column, and where in the items of that


def find(names: Sequence[str], asked: Asked, head: Sequence[Row]) -> Columns | None:
    """Two lists of one length, of which one holds numbers; or a list of objects that have a text and a score or rank."""
    named = [p for p in ("rank", "score") if p in asked.columns]
    if len(named) > 1:
        raise ConfigError("--columns: answers are put in order by score or by rank, not by both", hint="Name one.")
    order = (named[0], *cut(asked.columns[named[0]], names)) if named else None
    two = _two_lists(names, asked, head, order) if asked.shape in (None, "score_lists") else None
    return two or (_one_list(names, asked, head, order) if asked.shape in (None, "ranked") else None)


def _two_lists(names: Sequence[str], asked: Asked, head: Sequence[Row], order: _Order | None) -> Columns | None:
    """A list called ``ranking`` may mean two things: it is not guessed."""
    known = [(p, n, None) for p, some in (("rank", RANKS), ("score", _SCORES)) for n in some if n in names]
    given = [asked.columns["answers"]] if "answers" in asked.columns else [n for n in _LISTS if n in names]
    for column, inner in (cut(path, names) for path in given):
        for part, by, field in [order] if order else known:
            both = [(items_of(r.get(column)), items_of(r.get(by))) for r in head] if by != column else []
            alike = [(a, b) for a, b in both if a and b and len(a) == len(b) > 1]
            marks = [value(m, field) if field and isinstance(m, Mapping) else m for _, b in alike for m in b]
            if all(score_of(m) is None for m in marks):
                continue
            if not order and by in ("ranking", "rankings"):
                raise InputError(
                    f"{by} may hold the rank of each of {column}, or their places from best to worst",
                    hint=f"If it holds ranks, 1 the best: --columns answers={column},rank={by}.",
                )
            text = inner or text_field([i for a, _ in alike for i in a if is_object(i)])
            return _columns(names, asked, (column, text), (part, by, field))
    return None


def _one_list(names: Sequence[str], asked: Asked, head: Sequence[Row], order: _Order | None) -> Columns | None:
    """A rank counts before a score."""
    given = cut(asked.columns["answers"], names) if "answers" in asked.columns else None
    for column in [given[0]] if given else [order[1]] if order else [n for n in _OBJECTS if n in names]:
        items = [i for r in head for i in items_of(r.get(column)) or () if isinstance(i, Mapping)]
        text = (given and given[1]) or text_field(items)
        found = order_field(items)
        by = order or (found and (found[0], column, found[1]))
        if items and text and by and by[1] == column and by[2]:
            return _columns(names, asked, (column, text), by)
    return None


def _columns(names: Sequence[str], asked: Asked, answers: tuple[str, str | None], order: _Order) -> Columns:
    """How answers at a (column, place in its items) are read, put in order by what stands at a place of the same kind."""
    part, *by = order
    both = (answers[0], order[1])
    parts = {"answers": ".".join(filter(None, answers)), part: ".".join(filter(None, by))}
    return Columns.of("ranked", names, {**asking(names, asked, both), **parts}, both[:1], both, scored=True)


def items_of(given: Any) -> list[Any] | None:
    """A list; or an object of lists of one length, as column stores keep lists of objects, turned back."""
    if isinstance(given, list):
        return given
    lists = list(given.values()) if isinstance(given, Mapping) else []
    if not lists or not all(isinstance(v, list) and len(v) == len(lists[0]) for v in lists):
        return None
    return [dict(zip(given, item, strict=True)) for item in zip(*lists, strict=True)]


def read(row: Row, columns: Columns, asked: Asked) -> tuple[str, list[Pair | Fault]]:
    """The name of the row's form, and the pairs of its list, or why there are none."""
    part = "rank" if "rank" in columns.parts else "score"
    (column, inner), (by, field) = cut(str(columns["answers"]), row), cut(str(columns[part]), row)
    name = "ranked" if by == column else "score_lists"
    given, marks = items_of(row.get(column)), items_of(row.get(by))
    if given is None:
        reason = "missing_field" if row.get(column) is None else "bad_type"
        return name, [Fault(reason, f"{column} is {kind_of(row.get(column))}, not a list of answers")]
    if marks is None or len(marks) != len(given):
        has = f"has {len(marks)} values" if marks is not None else f"is {kind_of(row.get(by))}"
        return name, [Fault("missing_label", f"{by} {has}, {column} has {len(given)} answers")]
    out = []
    for i, (item, mark) in enumerate(zip(given, marks, strict=True)):
        side, info = parted(item, inner)
        if by != column:
            info[by] = mark
        if field is not None:
            mark = value(mark, field) if isinstance(mark, Mapping) else None
        out.append(Answer(side, score_of(mark, part), f"{column}[{i}]", info))
    return name, ranked(out, asked, column, lambda a, b: pair_in(row, columns, a.side, b.side, (a.name, b.name))[1])
