"""Answers in one list and their scores or ranks in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prefdata.errors import InputError
from prefdata.pairs import Fault, Pair
from prefdata.shapes import answers, ranking
from prefdata.shapes.columns import Asked, Columns, Row, Shown, value
from prefdata.shapes.ranking import cut, items_of

SHOWN = (
    Shown("score_lists", "a list of answers, and a list of their scores or ranks", ({
        "prompt": "What do bees make?", "responses": ["Milk.", "Honey."], "scores": [1.5, 9],
    },)),
)  # fmt: skip
PARTS = ranking.PARTS
_LISTS = (
    "responses", "completions", "generations", "answers", "texts", "text", "candidates", "outputs", "predictions",
    "all_generated_responses", "all_responses",
)  # fmt: skip
_SCORES = (
    "scores", "score", "rewards", "reward", "ratings", "rating", "all_rm_scores", "rm_scores", "all_rewards", "pm_scores",
)  # fmt: skip


def find(names: Sequence[str], asked: Asked, head: Sequence[Row]) -> Columns | None:
    """Two lists of one length, of which one holds numbers. A list called ``ranking`` may mean two things: it is not guessed."""
    order = ranking.order_asked(asked, names)
    known = [(p, n, None) for p, some in (("rank", answers.RANKS), ("score", _SCORES)) for n in some if n in names]
    given = [asked.columns["answers"]] if "answers" in asked.columns else [n for n in _LISTS if n in names]
    for column, inner in (cut(path, names) for path in given):
        for part, by, field in [order] if order else known:
            both = [(items_of(r.get(column)), items_of(r.get(by))) for r in head] if by != column else []
            alike = [(a, b) for a, b in both if a and b and len(a) == len(b) > 1]
            marks = [value(m, field) if field and isinstance(m, Mapping) else m for _, b in alike for m in b]
            if all(answers.score_of(m) is None for m in marks):
                continue
            if not order and by in ("ranking", "rankings"):
                raise InputError(
                    f"{by} may hold the rank of each of {column}, or their places from best to worst",
                    hint=f"If it holds ranks, 1 the best: --columns answers={column},rank={by}.",
                )
            text = inner or answers.text_field([i for a, _ in alike for i in a if answers.is_object(i)])
            return ranking.columns_of_list("scored", names, asked, (column, text), (part, by, field))
    return None


def read(row: Row, columns: Columns, asked: Asked) -> tuple[str, list[Pair | Fault]]:
    """The pairs of the two lists, or why there are none."""
    return "score_lists", ranking.read_lists(row, columns, asked)
