"""Two whole conversations, or the turns of two, and who won: where they stand in a row, and the pair that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from prefdata.pairs import Fault, Message, Pair, read_messages
from prefdata.shapes import judged
from prefdata.shapes.columns import Asked, Columns, Row, asking, value
from prefdata.shapes.sides import pair_of, read_asked

PARTS = ("system", "first", "second", "label")
_STEMS = ("conversation", "messages", "dialogue", "dialog", "chat")


def find(names: Sequence[str], asked: Asked, head: Sequence[Row]) -> Columns | None:
    """Two conversations, or a prompt and two responses that are lists of turns (as JSON text, too), and a winner."""
    first, second = asked.columns.get("first"), asked.columns.get("second")
    pair = judged.in_order(first, second, asked) if first and second else judged.two_columns(names, _STEMS)
    parts: dict[str, str | tuple[str, ...]] = {}
    if pair is None or not all(isinstance(value(r, n), list | None) for r in head for n in pair):
        pair = judged.two_columns(names, ("response", "answer", "completion"))
        if pair is None or "prompt" not in names or not _are_turns(head, ("prompt", *pair)):
            return None
        parts["prompt"] = "prompt"
    elif not any(_is_talk(value(r, n)) for r in head for n in pair):
        return None
    found = judged.label_of(names, asked, head, *pair)
    if found is None:
        return None
    parts |= {"first": pair[0], "second": pair[1], **found[0]}
    if models := judged.beside(names, *pair, judged.MODELS):
        parts["models"] = models
    if system := asking([n for n in names if n != "prompt"], asked, pair).get("system"):
        parts["system"] = system
    if "turn" in names and "prompt" not in parts:
        parts["turn"] = "turn"
    used = (parts.get("prompt"), *pair, system) if "turn" not in parts else (system,)
    needs = tuple(n.split(".")[0] for n in pair)
    return Columns("arena", parts, needs, tuple(str(n) for n in used if n in names), found[1])


def _is_talk(given: Any) -> bool:
    """Messages that begin with a question."""
    first = given[0] if isinstance(given, list) and given else None
    return isinstance(first, dict) and first.get("role", first.get("from")) in ("user", "human", "system")


def _turns(given: Any) -> list[Any] | None:
    """Texts of turns: a list, or JSON text of one."""
    if isinstance(given, str) and given.startswith("["):
        try:
            given = orjson.loads(given)
        except orjson.JSONDecodeError:
            return None
    whole = isinstance(given, list) and all(isinstance(t, str | None) for t in given)
    return given if whole else None


def _are_turns(head: Sequence[Row], names: Sequence[str]) -> bool:
    given = [v for r in head for n in names if (v := value(r, n)) is not None]
    return bool(given) and all(_turns(v) is not None for v in given)


def conversations(row: Row, columns: Columns) -> tuple[Any, Any] | Fault:
    """Both conversations; up to the turn that was judged, where the row says which."""
    names = columns.all("first") + columns.all("second")
    given = [value(row, n) for n in names]
    if (prompt := columns["prompt"]) is not None:
        asked, *said = [_turns(v) for v in (value(row, prompt), *given)]
        if asked is None or any(s is None or len(s) != len(asked) for s in said):
            return Fault("bad_type", f"{prompt}, {' and '.join(names)} are not lists of as many texts")
        given = [_woven(asked, s) for s in said if s is not None]
    elif isinstance(turn := value(row, columns["turn"]), int):
        given = [_until(v, turn) for v in given]
    return given[0], given[1]


def _woven(asked: list[Any], said: list[Any]) -> list[Message]:
    return [
        {"role": r, "content": t}
        for both in zip(asked, said, strict=True)
        for r, t in zip(("user", "assistant"), both, strict=True)
    ]


def _until(given: Any, turn: int) -> Any:
    """A conversation up to the answer of this number."""
    if not _is_talk(given):
        return given
    ends = [
        i for i, m in enumerate(given) if isinstance(m, dict) and m.get("role", m.get("from")) in ("assistant", "gpt")
    ]
    return given[: ends[turn - 1] + 1] if 0 < turn < len(ends) else given


def judge(
    row: Row, columns: Columns, asked: Asked, label: float | None, said: str, extra: dict[str, Any] | None = None
) -> Pair | Fault:
    """The pair of a row by its label. The prompt is what both conversations share: where they go on after different
    answers, the answers have several turns.
    """
    sides = conversations(row, columns)
    if isinstance(sides, Fault):
        return sides
    order = (1, 0) if label is not None and label < 0 else (0, 1)
    names = str(columns["first"]), str(columns["second"])
    better, worse = (sides[i] for i in order)
    asks = read_asked(row, replace(columns, parts={k: v for k, v in columns.parts.items() if k == "system"}))
    if isinstance(asks, Fault):
        return asks
    pair = pair_of(None, better, worse, asks[1], (names[order[0]], names[order[1]]))[1]
    if (
        isinstance(pair, Fault)
        and pair.reason == "prompt_mismatch"
        and isinstance(better, list)
        and isinstance(worse, list)
    ):
        pair = _from_the_first_answer(better, worse, asks[1], pair)
    return judged.finished(pair, row, columns, asked, label, said, order, extra)


def _from_the_first_answer(better: list[Any], worse: list[Any], system: str | None, fault: Fault) -> Pair | Fault:
    read = [read_messages(side, "conversation") for side in (better, worse)]
    found = [r[0] for r in read if not isinstance(r, Fault)]
    if len(found) < 2:
        return fault
    shared = 0
    while shared < min(map(len, found)) and found[0][shared] == found[1][shared]:
        shared += 1
    while shared and found[0][shared - 1]["role"] != "user":
        shared -= 1
    if not shared:
        return fault
    asked, changes = found[0][:shared], {c for r in read if not isinstance(r, Fault) for c in r[1]}
    if system is not None and asked[0]["role"] != "system":
        asked = [{"role": "system", "content": system}, *asked]
        changes.add("system column to system message")
    changes.add("conversation split behind the turns that both share")
    return Pair(asked, found[0][shared:], found[1][shared:], tuple(sorted(changes)))
