"""Answers that are objects of their own: which field holds the text, which one a score or a rank, and what else they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prefdata.shapes.columns import Columns, Row, number, value

TEXTS = (
    "response", "answer", "text", "content", "output", "completion", "generation", "value", "body", "message", "messages",
)  # fmt: skip
RANKS = ("rank", "ranking", "ranks", "rankings")  # the smallest is the best
SCORES = (
    "fine-grained_score", "fine_grained_score", "score", "rating", "reward", "overall_score", "overall_rating", "pm_score",
    "avg_rating", "average_rating", "mean_rating", "quality", "scores", "rewards", "ratings", "annotations",
)  # fmt: skip
_ROLES = {"role", "from"}


def text_field(items: Sequence[Any]) -> str | None:
    """The first known field in which some of these objects hold text or messages."""
    return _first(items, TEXTS, lambda v: isinstance(v, str | list) or (isinstance(v, Mapping) and "content" in v))


def order_field(items: Sequence[Any]) -> tuple[str, str] | None:
    """The first known field in which some of these objects hold a rank, else a score: (``rank`` or ``score``, its name).

    UltraFeedback: the ``fine-grained_score``, the mean of the four aspects, counts before the ``overall_score``, in which
    answers of the lowest grade stand as 10.
    """
    for part, known in (("rank", RANKS), ("score", SCORES)):
        if (found := _first(items, known, lambda v: score_of(v) is not None)) is not None:
            return part, found
    return None


def _first(items: Sequence[Any], known: Sequence[str], fits: Any) -> str | None:
    return next((n for n in known if any(isinstance(i, Mapping) and n in i and fits(i[n]) for i in items)), None)


def score_of(given: Any, part: str = "score") -> float | None:
    """A score as a number, true as 1, and a rank (``part``) as a number below zero, so that the greater is the better.

    Of annotations by aspect (UltraFeedback) it is the mean of their ratings, if all have one.
    """
    if isinstance(given, Mapping):
        rated = [number(v.get("Rating", v.get("rating"))) if isinstance(v, Mapping) else None for v in given.values()]
        numbers = [r for r in rated if r is not None]
        found = sum(numbers) / len(numbers) if numbers and len(numbers) == len(rated) else None
    else:
        found = float(given) if isinstance(given, bool) else number(given)
    return -found if found and part == "rank" else found


def is_object(given: object) -> bool:
    """True for an object that is no chat message."""
    return isinstance(given, Mapping) and not _ROLES & given.keys()


def parted(given: Any, field: str | None) -> tuple[Any, dict[str, Any]]:
    """The text in this field of an answer, and the other fields; an answer that is no object is its own text."""
    if field is None or not isinstance(given, Mapping):
        return given, {}
    return value(given, field), {k: v for k, v in given.items() if k != field}


def information(better: Mapping[str, Any], worse: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a pair for what else its source says of the answers, where it says something."""
    return {name: info for name, info in (("pd_chosen_info", better), ("pd_rejected_info", worse)) if info}


def in_columns(columns: Columns, head: Sequence[Row]) -> Columns:
    """The columns of two answers; where some are objects, with the field of their ``text`` and the paths of their scores."""
    sides = [str(columns[side]) for side in ("chosen", "rejected")]
    items = [v for r in head for side in sides if is_object(v := value(r, side))]
    text = text_field(items)
    if text is None:
        return columns
    part, field = order_field(items) or ("", "")
    found: dict[str, str | tuple[str, ...]] = {"text": text}
    if field:
        found["rank" if part == "rank" else "scores"] = tuple(f"{side}.{field}" for side in sides)
    return replace(columns, parts={**columns.parts, **found}, scored=columns.scored or bool(field))
