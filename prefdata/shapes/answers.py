"""Several answers to one prompt: what objects that hold answers say of them, and which pairs their scores or ranks give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any, Literal

from prefdata.pairs import Fault, Pair, is_message
from prefdata.shapes.columns import Asked, number, value

TEXTS = (
    "response", "answer", "text", "content", "output", "completion", "generation", "value", "body", "message", "messages",
)  # fmt: skip
RANKS = ("rank", "ranking", "ranks", "rankings")  # the smallest is the best
SCORES = (
    "fine-grained_score", "fine_grained_score", "score", "rating", "reward", "overall_score", "overall_rating", "pm_score",
    "avg_rating", "average_rating", "mean_rating", "quality", "scores", "rewards", "ratings", "annotations",
)  # fmt: skip
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


# ---------------------------------------------------------------------------------------------- answers as objects


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


def _first(items: Sequence[Any], known: Sequence[str], fits: Callable[[Any], bool]) -> str | None:
    return next((n for n in known if any(isinstance(i, Mapping) and n in i and fits(i[n]) for i in items)), None)


def score_of(given: Any, part: str = "score") -> float | None:
    """A score as a number, true as 1, and a rank (``part``) as a number below zero, so that the greater is the better.

    Of annotations by aspect (UltraFeedback) it is the mean of their ratings, if all have one.
    """
    if isinstance(given, Mapping):
        found = mean(
            [number(v.get("Rating", v.get("rating"))) if isinstance(v, Mapping) else None for v in given.values()]
        )
    else:
        found = float(given) if isinstance(given, bool) else number(given)
    return -found if found and part == "rank" else found


def mean(scores: Sequence[float | None]) -> float | None:
    """The mean, None where one is missing or there is none."""
    there = [s for s in scores if s is not None]
    return sum(there) / len(there) if there and len(there) == len(scores) else None


def is_object(given: object) -> bool:
    """True for an object that is no chat message."""
    return isinstance(given, Mapping) and not is_message(given)


def parted(given: Any, field: str | None) -> tuple[Any, dict[str, Any]]:
    """The text in this field of an answer, and the other fields; an answer that is no object is its own text."""
    if field is None or not isinstance(given, Mapping):
        return given, {}
    return value(given, field), {k: v for k, v in given.items() if k != field}


def information(better: Mapping[str, Any], worse: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a pair for what else its source says of the answers, where it says something."""
    return {name: info for name, info in (("pd_chosen_info", better), ("pd_rejected_info", worse)) if info}


# ---------------------------------------------------------------------------------------------- pairs of them


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
    scored = [(a, a.score) for a in answers if a.score is not None]
    if len(scored) < 2:
        detail = f"{where}: {len(scored)} of {len(answers)} answers have a score or rank, but a pair needs two"
        return [Fault("missing_label", detail)]
    places = picked([score for _, score in scored], asked.pairs)
    out = [_complete(pair(scored[i][0], scored[j][0]), *scored[i], *scored[j], asked) for i, j in places]
    count(out, LEFT_OUT, len(answers) - len(scored))
    count(out, _UNUSED, len(scored) - len({i for place in places for i in place}))
    return out


def count(out: Sequence[Pair | Fault], what: str, times: int) -> None:
    """Have something told of all these pairs, so many times, by the first of them."""
    first = next((p for p in out if isinstance(p, Pair)), None)
    if times and first is not None:
        first.changes += (what,) * times


def _complete(
    got: Pair | Fault, better: Answer, high: float, worse: Answer, low: float, asked: Asked
) -> Pair | Fault:  # fmt: skip
    members = tuple(a.member for a in (better, worse) if a.member is not None)
    if isinstance(got, Fault):
        return replace(got, members=members)
    tie, keep = high == low, asked.ties == "keep"
    got.members, got.scores, got.tie = members, (high, low), tie and keep
    got.extra = {"pd_margin": 0.0 if tie else high - low}
    got.extra |= {"pd_strength": float(not tie)} if keep else {}
    got.extra |= information(better.info, worse.info)
    if tie and not keep:
        got.fault = Fault("tie", f"{better.name} and {worse.name} have the same score or rank", members)
    return got
