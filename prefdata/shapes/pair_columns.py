"""Two columns that say which answer is better by their names: ``chosen`` and ``rejected``, under any known name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefdata.pairs import Fault, Pair
from prefdata.shapes import sides
from prefdata.shapes.answers import information, is_object, order_field, parted, score_of, text_field
from prefdata.shapes.columns import Asked, Columns, Parts, Row, Shown, asking, value
from prefdata.shapes.judged import STEMS, two_columns
from prefdata.shapes.labels import plain

_OBJECTS = "answer_objects"
SHOWN = (
    Shown(sides.EXPLICIT, "prompt/chosen/rejected", (
        {"prompt": "What do bees make?", "chosen": "Honey.", "rejected": "Milk."},
    )),
    Shown(sides.CHAT, "prompt/chosen/rejected as messages", ({
        "prompt": [{"role": "user", "content": "What do bees make?"}],
        "chosen": [{"role": "assistant", "content": [{"type": "text", "text": "Honey."}]}], "rejected": "Milk.",
    },)),
    Shown(sides.CONVERSATION, "implicit prompt (whole conversations)", ({
        "chosen": [{"role": "user", "content": "What do bees make?"}, {"role": "assistant", "content": "Honey."}],
        "rejected": [{"role": "user", "content": "What do bees make?"}, {"role": "assistant", "content": "Milk."}],
    },)),
    Shown(sides.TRANSCRIPT, "implicit prompt (HH transcript)", ({
        "chosen": "\n\nHuman: What do bees make?\n\nAssistant: Honey.",
        "rejected": "\n\nHuman: What do bees make?\n\nAssistant: Milk.",
    },)),
    Shown(sides.SHAREGPT, "ShareGPT (from/value)", ({
        "conversations": [{"from": "human", "value": "What do bees make?"}],
        "chosen": {"from": "gpt", "value": "Honey."}, "rejected": {"from": "gpt", "value": "Milk."},
    },)),
    Shown(sides.ALPACA, "Alpaca (instruction, input)", ({
        "instruction": "Answer in one word.", "input": "What do bees make?", "chosen": "Honey.", "rejected": "Milk.",
    },)),
    Shown(_OBJECTS, "two answers as objects (pos_answer/neg_answer, chosen/rejected)", ({
        "question": "What do bees make?", "pos_answer": {"answer": "Honey.", "score": 1.0},
        "neg_answer": {"answer": "Milk.", "score": -1.0},
    },)),
)  # fmt: skip
PARTS = ("prompt", "chosen", "rejected", "system", "context")
_PAIRS = (
    ("chosen", "rejected"), ("chosen_response", "rejected_response"), ("response_chosen", "response_rejected"),
    ("text_chosen", "text_rejected"), ("chosen_messages", "rejected_messages"), ("chosen_answer", "rejected_answer"),
    ("chosen_text", "rejected_text"), ("answer_chosen", "answer_rejected"), ("accepted", "rejected"),
    ("preferred", "dispreferred"), ("preferred", "rejected"), ("preferred_output", "non_preferred_output"),
    ("preferred_response", "dispreferred_response"), ("winning_response", "losing_response"), ("y_w", "y_l"),
    ("response_j", "response_k"), ("response", "rejected_response"), ("better", "worse"), ("positive", "negative"),
    ("win", "lose"), ("winner_response", "loser_response"), ("good_response", "bad_response"),
    ("messages", "rejected_messages"), ("messages", "rejected_response"), ("pos_answer", "neg_answer"),
    ("positive_answer", "negative_answer"), ("winner", "loser"),
)  # fmt: skip
_SCORES = (
    ("score_chosen", "score_rejected"), ("chosen_score", "rejected_score"), ("chosen_rating", "rejected_rating"),
    ("rating_chosen", "rating_rejected"), ("chosen_avg_rating", "rejected_avg_rating"), ("chosen_reward", "rejected_reward"),
)  # fmt: skip


def find(names: Sequence[str], asked: Asked, head: Sequence[Row]) -> Columns | None:
    """Columns of known names, or named by the user; an ``output`` that holds lists of two is [better, worse]."""
    known = next((pair for pair in _PAIRS if set(pair) <= set(names) and not _only_names(names, head, pair)), None)
    lists = not (known or {"chosen", "rejected"} & asked.columns.keys()) and "output" in names and _lists_of_two(head)
    pair = ("output.0", "output.1") if lists else known or ("", "")
    chosen, rejected = asked.columns.get("chosen", pair[0]), asked.columns.get("rejected", pair[1])
    if not chosen or not rejected or chosen == rejected:
        return None
    whole = (chosen, rejected, "output") if lists else (chosen, rejected)
    parts: dict[str, Any] = {**asking(names, asked, whole), "chosen": chosen, "rejected": rejected}
    if chosen == "messages":  # the last turn is the chosen answer, and what stands before it is the prompt
        parts.pop("prompt", None)
    if scores := next((pair for pair in _SCORES if set(pair) <= set(names)), None):
        parts["scores"] = scores
    if "history" in names and "history" not in parts.values() and any(isinstance(r.get("history"), list) for r in head):
        parts["history"] = "history"
    parts |= _fields(head, chosen, rejected)
    scored = bool({"scores", "rank"} & parts.keys())
    return Columns.of("pair_columns", names, parts, (chosen, rejected), whole, scored=scored)


def _only_names(names: Sequence[str], head: Sequence[Row], pair: tuple[str, str]) -> bool:
    """Whether columns called ``chosen`` and ``rejected`` hold labels of two answers that stand elsewhere: ``A`` and ``B``,
    numbers, names of columns or of models.
    """
    if two_columns([n for n in names if n not in pair], STEMS) is None:
        return False
    held = [(r, v) for r in head for n in pair if (v := r.get(n)) is not None]
    return bool(held) and all(
        isinstance(v, bool | int | float) or v in names or (isinstance(v, str) and _short(v, r, pair)) for r, v in held
    )


def _short(text: str, row: Row, pair: tuple[str, str]) -> bool:
    others = (v for n, v in row.items() if n not in pair and "model" in n)
    return plain(text).strip("#") in ("first", "second", "0", "1", "2") or text in others


def _lists_of_two(head: Sequence[Row]) -> bool:
    lists = [v for r in head if (v := r.get("output")) is not None]
    return bool(lists) and all(isinstance(v, list) and [type(x) for x in v] == [str, str] for v in lists)


def _fields(head: Sequence[Row], chosen: str, rejected: str) -> Parts:
    """Where some answers are objects: the field of their text, and the paths of their scores or ranks."""
    items = [v for r in head for side in (chosen, rejected) if is_object(v := value(r, side))]
    if (text := text_field(items)) is None:
        return {}
    if (order := order_field(items)) is None:
        return {"text": text}
    part, field = order
    return {"text": text, "rank" if part == "rank" else "scores": (f"{chosen}.{field}", f"{rejected}.{field}")}


def read(row: Row, columns: Columns, asked: Asked) -> tuple[str, Pair | Fault]:
    """The name of the row's shape, and its pair or fault."""
    chosen, rejected = value(row, columns["chosen"]), value(row, columns["rejected"])
    objects = "text" in columns.parts and (is_object(chosen) or is_object(rejected))
    if objects:
        chosen, of_chosen = parted(chosen, columns["text"])
        rejected, of_rejected = parted(rejected, columns["text"])
    if columns["chosen"] == "messages" and isinstance(chosen, list) and isinstance(rejected, str):
        rejected = [*chosen[:-1], {"role": "assistant", "content": rejected}]
    name, pair = sides.pair_in(row, columns, chosen, rejected, only=asked.shape if asked.shape in sides.FORMS else None)
    if isinstance(pair, Pair):
        if columns.scored:
            part = "rank" if "rank" in columns.parts else "score"
            better, worse = (value(row, n) for n in columns.all("rank") or columns.all("scores"))
            pair.scores = score_of(better, part), score_of(worse, part)
        if objects:
            pair.extra = information(of_chosen, of_rejected) or None
    if objects:
        return _OBJECTS, pair
    return sides.ALPACA if name == sides.EXPLICIT and columns["prompt"] == "instruction" else name, pair
