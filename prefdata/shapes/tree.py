"""Message trees with ranked replies (Open-Assistant): one tree a row, or one message a row with its parent's id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from prefdata.pairs import ROLES, Fault, Message, Pair, dump, kind_of
from prefdata.shapes.answers import LEFT_OUT, Answer, count, ranked, score_of
from prefdata.shapes.columns import Asked, Columns, Row, Shown, value
from prefdata.shapes.sides import pair_of

_ASKED = {"message_id": "q", "text": "What do bees make?", "role": "prompter"}
_ANSWERS: tuple[dict[str, Any], ...] = (
    {"message_id": "a", "text": "Honey.", "role": "assistant", "rank": 0},
    {"message_id": "b", "text": "Milk.", "role": "assistant", "rank": 1},
)
SHOWN = (
    Shown("tree", "message trees with ranked replies (Open-Assistant)", (
        {"prompt": {**_ASKED, "replies": [{**a, "replies": []} for a in _ANSWERS]}},
    )),
    Shown("tree_rows", "messages of such trees, one a row", (
        {"message_tree_id": "q", "parent_id": None, **_ASKED, "rank": None},
        *({"message_tree_id": "q", "parent_id": "q", **a} for a in _ANSWERS),
    )),
)  # fmt: skip
PARTS = ("tree",)
_ROW = ("message_tree_id", "message_id", "parent_id", "text", "role", "rank")
_OF_TREE = ("message_tree_id", "tree_state")  # what rows of one tree have in common
_MEMBER = "pd$member"  # the place of a message's row among those of its tree
_INNER = ("text", "role", "replies", _MEMBER, *_OF_TREE)


def find(names: Sequence[str], asked: Asked, head: Sequence[Row]) -> Columns | None:
    """A column that holds messages with replies, or the columns of single messages of trees."""
    for name in [asked.columns["tree"]] if "tree" in asked.columns else names:
        if any(isinstance(m := r.get(name), Mapping) and {"text", "role", "replies"} <= m.keys() for r in head):
            return Columns("tree", {"tree": name}, (name,), (name,), scored=True)
    if "tree" not in asked.columns and set(_ROW) <= set(names):
        taken = tuple(n for n in names if n not in _OF_TREE)
        return Columns("tree", {n: n for n in _ROW}, ("text",), taken, scored=True, grouped=True)
    return None


def read(row: Row, columns: Columns, asked: Asked) -> tuple[str, list[Pair | Fault]]:
    """The pairs of one tree, or why there are none."""
    root = row.get(str(columns["tree"]))
    if not isinstance(root, Mapping):
        return "tree", [Fault("missing_field", f"{columns['tree']} is {kind_of(root)}, not a message")]
    total, todo = 0, [root]
    while todo:
        total += 1
        todo += _replies(todo.pop())
    return "tree", _pairs([root], total, asked)


def key(row: Row, columns: Columns) -> str | None:
    """The tree of a message."""
    found = value(row, "message_tree_id")
    return None if found is None else str(found)


def read_group(rows: Sequence[Row], columns: Columns, asked: Asked) -> tuple[str, list[Pair | Fault]]:
    """The pairs of the tree that these messages make; ``members`` are the rows of the two answers."""
    nodes: dict[Any, dict[str, Any]] = {}
    for i, row in enumerate(rows):
        nodes.setdefault(_id(row, "message_id"), {**row, "replies": [], _MEMBER: i})
    roots = []
    for node in nodes.values():
        parent = _id(node, "parent_id")
        if parent is None:
            roots.append(node)
        elif parent in nodes:
            nodes[parent]["replies"].append(node)
    made = _pairs(roots, len(rows), asked)
    if len(made) == 1 and isinstance(made[0], Fault) and not made[0].members:
        made = [replace(made[0], members=tuple(range(len(rows))))]
    return "tree_rows", made


def _id(message: Row, name: str) -> str | float | None:
    found = value(message, name)
    return found if isinstance(found, str | int | float | None) else dump(found)


def _replies(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    held = message.get("replies")
    return [m for m in held if isinstance(m, Mapping)] if isinstance(held, list) else []


def _stays(message: Mapping[str, Any]) -> bool:
    return not message.get("deleted") and message.get("review_result") is not False


def _pairs(roots: Sequence[Mapping[str, Any]], total: int, asked: Asked) -> list[Pair | Fault]:
    """The pairs of these trees of ``total`` messages, in the order of the conversation; one fault where there are none."""
    out: list[Pair | Fault] = []
    todo: list[tuple[Mapping[str, Any], ...]] = [(root,) for root in reversed(roots)]
    seen = unranked = 0
    while todo:
        path = todo.pop()
        if not _stays(path[-1]):
            continue
        seen += 1
        replies = _replies(path[-1])
        todo += [(*path, reply) for reply in reversed(replies)]
        said = [m for m in replies if _stays(m) and ROLES.get(str(m.get("role")).lower()) == "assistant"]
        answers = [_answer(m, i) for i, m in enumerate(said)]
        if sum(a.score is not None for a in answers) > 1:
            out += ranked(answers, asked, "replies", partial(_pair, path))
        elif len(answers) > 1:
            unranked += len(answers)
    if not out:
        found = f"; {unranked} that could be compared have no rank" if unranked else ""
        left = f"; {total - seen} messages are deleted, failed review, or stand below such" if total > seen else ""
        return [Fault("missing_label", f"no message of the tree has two ranked answers{found}{left}")]
    count(out, LEFT_OUT, unranked)
    count(out, "message left out: deleted, failed review, or below one that is or is not there", total - seen)
    return out


def _answer(message: Mapping[str, Any], place: int) -> Answer:
    name = f"reply {message.get('message_id', place)}"
    info = {k: v for k, v in message.items() if k not in _INNER}
    return Answer(message.get("text"), score_of(message.get("rank"), "rank"), name, info, message.get(_MEMBER))


def _pair(path: Sequence[Mapping[str, Any]], better: Answer, worse: Answer) -> Pair | Fault:
    prompt: list[Message] = [{"role": m.get("role"), "content": m.get("text")} for m in path]
    if any(m["content"] is None for m in prompt):
        return Fault("missing_field", "a message of the prompt has no text")
    chosen, rejected = ([{"role": "assistant", "content": a.side}] for a in (better, worse))
    return pair_of(prompt, chosen, rejected, names=(better.name, worse.name))[1]
