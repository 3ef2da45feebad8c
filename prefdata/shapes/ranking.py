"""Several answers to one prompt, in an order of preference (scores or ranks): which pairs they give, and reading such lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any, Literal

from prefdata.errors import ConfigError
from prefdata.pairs import Fault, Pair, kind_of
from prefdata.shapes.answers import information, parted, score_of
from prefdata.shapes.columns import Asked, Columns, Row, asking, value
from prefdata.shapes.sides import pair_in

PARTS = ("prompt", "context", "system", "answers", "score", "rank")
LEFT_OUT, _UNUSED = "answer without a score or rank left out", "answer in no pair: --pairs takes others"


@dataclass(frozen=True, slots=True)
class Answer:
    """One of several answers; of two scores the greater is the better, None where there is none. ``name`` says where it stands,
    ``info`` what else is known of it, ``member`` its row in a group of rows.
    """

    side: Any
    score: float | None
    name: str
    info: Mapping[str, Any]
    member: int | None = None


def picked(scores: Sequence[float], policy: Literal["best-worst", "adjacent", "all"]) -> list[tuple[int, int]]:
    """Which answers make pairs, each as (better, worse); two of equal score stand in their own order. At least two scores.

    ``best-worst``: the highest against the lowest, of equals the first; ``adjacent``: neighbours in the order of their scores;
    ``all``: each against each.
    """
    down = sorted(range(len(scores)), key=lambda i: -scores[i])  # stable: equals stay in their order
    if policy == "adjacent":
        return list(pairwise(down))
    if policy == "all":
        return [(i, j) if scores[i] >= scores[j] else (j, i) for i, j in combinations(range(len(scores)), 2)]
    worst = min(range(len(scores)), key=scores.__getitem__)
    return [(down[0], worst if scores[worst] < scores[down[0]] else down[1])]


def ranked(
    answers: Sequence[Answer], asked: Asked, where: str, pair: Callable[[Answer, Answer], Pair | Fault]
) -> list[Pair | Fault]:
    """The pairs of these answers by ``asked.pairs``, made by ``pair(better, worse)``, with margin and what else is known.

    Answers without a score, and those that the policy uses in no pair, are counted in ``changes`` of the first pair. ``where``
    names the answers in faults.
    """
    if len(answers) < 2:
        return [Fault("missing_field", f"{where}: {len(answers)} answers, but a pair needs two")]
    scored = [a for a in answers if a.score is not None]
    scores = [a.score for a in scored if a.score is not None]
    if len(scored) < 2:
        detail = f"{where}: {len(scored)} of {len(answers)} answers have a score or rank, but a pair needs two"
        return [Fault("missing_label", detail)]
    places = picked(scores, asked.pairs)
    out: list[Pair | Fault] = []
    for better, worse in places:
        a, b = scored[better], scored[worse]
        out.append(_complete(pair(a, b), a, b, (scores[better], scores[worse]), asked))
    count(out, LEFT_OUT, len(answers) - len(scored))
    count(out, _UNUSED, len(scored) - len({i for place in places for i in place}))
    return out


def count(out: Sequence[Pair | Fault], what: str, times: int) -> None:
    """Have something told of all these pairs, so many times, by the first of them."""
    first = next((p for p in out if isinstance(p, Pair)), None)
    if times and first is not None:
        first.changes += (what,) * times


def _complete(
    got: Pair | Fault, better: Answer, worse: Answer, scores: tuple[float, float], asked: Asked
) -> Pair | Fault:
    members = tuple(a.member for a in (better, worse) if a.member is not None)
    if isinstance(got, Fault):
        return replace(got, members=members)
    tie, keep = scores[0] == scores[1], asked.ties == "keep"
    got.members, got.scores, got.tie = members, scores, tie and keep
    got.extra = {"pd_margin": 0.0 if tie else scores[0] - scores[1]}
    got.extra |= {"pd_strength": float(not tie)} if keep else {}
    got.extra |= information(better.info, worse.info)
    if tie and not keep:
        got.fault = Fault("tie", f"{better.name} and {worse.name} have the same score or rank", members)
    return got


def items_of(given: Any) -> list[Any] | None:
    """A list; or an object of lists of one length, as column stores keep lists of objects, turned back."""
    if isinstance(given, list):
        return given
    lists = list(given.values()) if isinstance(given, Mapping) else []
    if not lists or not all(isinstance(v, list) and len(v) == len(lists[0]) for v in lists):
        return None
    return [dict(zip(given, item, strict=True)) for item in zip(*lists, strict=True)]


def cut(path: str, names: Sequence[str] | Row) -> tuple[str, str | None]:
    """The column that a path begins with, and the rest of it: ``completions.overall_score``."""
    if path in names:
        return path, None
    column, _, inner = path.partition(".")
    return column, inner or None


def columns_of_list(
    shape: str, names: Sequence[str], asked: Asked, answers: tuple[str, str | None], order: tuple[str, str, str | None]
) -> Columns:
    """How answers at a (column, path inside of the items) are read, put in order by a (part, column, path inside)."""
    column, (part, by) = answers[0], order[:2]
    found = asking(names, asked, (column, by))
    parts: dict[str, str | tuple[str, ...]] = {**found, "answers": _path(*answers), part: _path(*order[1:])}
    taken = dict.fromkeys((*(n for n in found.values() if n in names), column, by))
    return Columns(shape, parts, (column,), tuple(taken), scored=True)


def _path(column: str, inner: str | None) -> str:
    return f"{column}.{inner}" if inner else column


def order_asked(asked: Asked, names: Sequence[str]) -> tuple[str, str, str | None] | None:
    """What the user named to put answers in order: (``score`` or ``rank``, column, path inside), if anything.

    Raises ConfigError where both were named.
    """
    named = [p for p in ("rank", "score") if p in asked.columns]
    if len(named) > 1:
        raise ConfigError("--columns: answers are put in order by score or by rank, not by both", hint="Name one.")
    return (named[0], *cut(asked.columns[named[0]], names)) if named else None


def read_lists(row: Row, columns: Columns, asked: Asked) -> list[Pair | Fault]:
    """The pairs of a row whose ``answers`` stand in a list, with ``score`` or ``rank`` beside them or in a list of its own."""
    part = "rank" if "rank" in columns.parts else "score"
    (column, inner), (by, field) = cut(columns.parts["answers"], row), cut(columns.parts[part], row)  # type: ignore[arg-type]
    given, marks = items_of(row.get(column)), items_of(row.get(by))
    if given is None:
        reason = "missing_field" if row.get(column) is None else "bad_type"
        return [Fault(reason, f"{column} is {kind_of(row.get(column))}, not a list of answers")]
    if marks is None or len(marks) != len(given):
        has = f"has {len(marks)} values" if marks is not None else f"is {kind_of(row.get(by))}"
        return [Fault("missing_label", f"{by} {has}, {column} has {len(given)} answers")]
    out = []
    for i, (item, mark) in enumerate(zip(given, marks, strict=True)):
        side, info = parted(item, inner)
        if by != column:
            info[by] = mark
        if field is not None:
            mark = value(mark, field) if isinstance(mark, Mapping) else None
        out.append(Answer(side, score_of(mark, part), f"{column}[{i}]", info))
    return ranked(out, asked, column, lambda a, b: pair_in(row, columns, a.side, b.side, (a.name, b.name)))
