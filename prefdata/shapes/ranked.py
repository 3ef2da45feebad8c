"""A list of answers in one row, each an object with its own score or rank (UltraFeedback, Nectar, Stack Exchange)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prefdata.pairs import Fault, Pair
from prefdata.shapes import answers, ranking
from prefdata.shapes.columns import Asked, Columns, Row, Shown
from prefdata.shapes.ranking import cut, items_of, read_lists

SHOWN = (
    Shown("ranked", "a list of answers, each an object with a score or a rank", ({
        "prompt": "What do bees make?", "answers": [
            {"text": "Honey.", "rank": 1, "model": "a"}, {"text": "Wax and milk.", "rank": 2, "model": "b"},
            {"text": "Milk.", "rank": 3, "model": "c"},
        ],
    },)),
)  # fmt: skip
PARTS = ranking.PARTS
_LISTS = ("completions", "generations", "responses", "answers", "candidates", "outputs", "replies", "choices")


def find(names: Sequence[str], asked: Asked, head: Sequence[Row]) -> Columns | None:
    """A list under a known name whose items have a text and a score or rank; a rank counts before a score."""
    order = ranking.order_asked(asked, names)
    given = cut(asked.columns["answers"], names) if "answers" in asked.columns else None
    for column in [given[0]] if given else [order[1]] if order else [n for n in _LISTS if n in names]:
        items = [i for r in head for i in items_of(r.get(column)) or () if isinstance(i, Mapping)]
        text = (given and given[1]) or answers.text_field(items)
        if order:
            part, field = order[0], order[2] if order[1] == column else None
        else:
            part, field = answers.order_field(items) or ("", None)
        if items and text and field:
            return ranking.columns_of_list("ranked", names, asked, (column, text), (part, column, field))
    return None


def read(row: Row, columns: Columns, asked: Asked) -> tuple[str, list[Pair | Fault]]:
    """The pairs of the list, or why there are none."""
    return "ranked", read_lists(row, columns, asked)
