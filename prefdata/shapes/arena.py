"""Arena rows: two whole conversations, or the turns of two, and who won."""

from __future__ import annotations

from prefdata.pairs import Fault, Pair
from prefdata.shapes import judged
from prefdata.shapes.columns import Asked, Columns, Row, Shown
from prefdata.shapes.talks import PARTS, find, judge

__all__ = ["PARTS", "SHOWN", "find", "read"]

SHOWN = (
    Shown("arena", "arena (two conversations and the winner)", ({
        "model_a": "bee-1", "model_b": "cow-2", "winner": "model_a",
        "conversation_a": [{"role": "user", "content": "What do bees make?"}, {"role": "assistant", "content": "Honey."}],
        "conversation_b": [{"role": "user", "content": "What do bees make?"}, {"role": "assistant", "content": "Milk."}],
    },)),
)  # fmt: skip


def read(row: Row, columns: Columns, asked: Asked) -> tuple[str, Pair | Fault]:
    """The name of the row's form, and its pair or fault."""
    return "arena", judge(row, columns, asked, *judged.verdict(row, columns, asked))
