"""Two answers and a column that says which is better: a label, or their scores."""

from __future__ import annotations

from prefdata.pairs import Fault, Pair
from prefdata.shapes import judged
from prefdata.shapes.columns import Asked, Columns, Row, Shown
from prefdata.shapes.two import find

__all__ = ["PARTS", "SHOWN", "find", "read"]

SHOWN = (
    Shown("two_answers", "two answers and a label", ({
        "question": "What do bees make?", "answer_a": "Milk.", "answer_b": "Honey.", "winner": "B",
    },)),
)  # fmt: skip
PARTS = judged.PARTS


def read(row: Row, columns: Columns, asked: Asked) -> tuple[str, Pair | Fault]:
    """The name of the row's form, and its pair or fault."""
    fault = judged.not_two(row, columns)
    return "two_answers", fault or judged.judged(row, columns, asked, *judged.verdict(row, columns, asked))
