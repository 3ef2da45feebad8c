"""Two columns that say which answer is better by their names: ``chosen`` and ``rejected``, under any known name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from prefdata.pairs import Fault, Pair
from prefdata.shapes import answers, conversation, explicit, transcript
from prefdata.shapes.columns import Asked, Columns, Row, Shown, asking, value
from prefdata.shapes.sides import pair_of, read_asked

_OBJECTS = "answer_objects"
SHOWN = (
    Shown(explicit.NAME, explicit.TITLE, (explicit.EXAMPLE,)),
    Shown("chat", "prompt/chosen/rejected as messages", ({
        "prompt": [{"role": "user", "content": "What do bees make?"}],
        "chosen": [{"role": "assistant", "content": [{"type": "text", "text": "Honey."}]}], "rejected": "Milk.",
    },)),
    Shown(conversation.NAME, conversation.TITLE, (conversation.EXAMPLE,)),
    Shown(transcript.NAME, transcript.TITLE, (transcript.EXAMPLE,)),
    Shown("sharegpt", "ShareGPT (from/value)", ({
        "conversations": [{"from": "human", "value": "What do bees make?"}],
        "chosen": {"from": "gpt", "value": "Honey."}, "rejected": {"from": "gpt", "value": "Milk."},
    },)),
    Shown("alpaca", "Alpaca (instruction, input)", ({
        "instruction": "Answer in one word.", "input": "What do bees make?", "chosen": "Honey.", "rejected": "Milk.",
    },)),
    Shown(_OBJECTS, "two answers as objects (pos_answer/neg_answer, chosen/rejected)", ({
        "question": "What do bees make?", "pos_answer": {"answer": "Honey.", "score": 1.0},
        "neg_answer": {"answer": "Milk.", "score": -1.0},
    },)),
)  # fmt: skip
_FORMS = tuple(s.name for s in SHOWN if s.name != _OBJECTS)
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
    found = next((pair for pair in _PAIRS if set(pair) <= set(names)), (None, None))
    chosen, rejected = asked.columns.get("chosen", found[0]), asked.columns.get("rejected", found[1])
    if found == (None, None) and "output" in names and not {"chosen", "rejected"} & set(asked.columns):
        lists = [r["output"] for r in head if r.get("output") is not None]
        if lists and all(isinstance(v, list) and len(v) == 2 and all(isinstance(x, str) for x in v) for v in lists):
            chosen, rejected = "output.0", "output.1"
    if chosen is None or rejected is None or chosen == rejected:
        return None
    parts: dict[str, str | tuple[str, ...]] = {
        **asking(names, asked, (chosen, rejected, "output" if chosen == "output.0" else ""))
    }
    parts |= {"chosen": chosen, "rejected": rejected}
    if chosen == "messages":  # the last turn is the chosen answer, and what stands before it is the prompt
        parts.pop("prompt", None)
    scores = next((pair for pair in _SCORES if set(pair) <= set(names)), None)
    if scores:
        parts["scores"] = scores
    shown = [parts[p] for p in PARTS if p in parts]
    whole = ("output",) if chosen == "output.0" else ()
    taken = tuple(str(c) for c in shown if c in names) + whole
    needs = tuple(c.split(".")[0] for c in (chosen, rejected))
    return answers.in_columns(Columns("pair_columns", parts, needs, taken, scored=bool(scores)), head)


def read(row: Row, columns: Columns, asked: Asked) -> tuple[str, Pair | Fault]:
    """The name of the row's shape, and its pair or fault."""
    chosen, rejected = value(row, columns["chosen"]), value(row, columns["rejected"])
    got = read_asked(row, columns)
    if isinstance(got, Fault):
        return explicit.NAME, got
    prompt, system, changes = got
    objects = "text" in columns.parts and (answers.is_object(chosen) or answers.is_object(rejected))
    if objects:
        chosen, of_chosen = answers.parted(chosen, columns["text"])
        rejected, of_rejected = answers.parted(rejected, columns["text"])
    if columns["chosen"] == "messages" and isinstance(chosen, list) and isinstance(rejected, str):
        rejected = [*chosen[:-1], {"role": "assistant", "content": rejected}]
    only = asked.shape if asked.shape in _FORMS else None
    name, pair = pair_of(prompt, chosen, rejected, system, only=only)
    if isinstance(pair, Pair):
        if changes:
            pair = replace(pair, changes=(*pair.changes, *changes))
        if columns.scored:
            part = "rank" if "rank" in columns.parts else "score"
            better, worse = columns.all("scores") or columns.all("rank")
            pair.scores = answers.score_of(value(row, better), part), answers.score_of(value(row, worse), part)
        if objects:
            pair.extra = answers.information(of_chosen, of_rejected) or None
    if objects:
        return _OBJECTS, pair
    if name == explicit.NAME and columns["prompt"] == "instruction":
        name = "alpaca"
    return name, pair
