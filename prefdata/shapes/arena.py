"""Arena rows: two whole conversations, or the turns of two, and who won."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from prefdata.pairs import Fault, Message, Pair, kind_of, read_messages
from prefdata.shapes import judged
from prefdata.shapes.columns import Asked, Columns, Row, Shown, asking, value
from prefdata.shapes.sides import pair_of, told

SHOWN = (
    Shown("arena", "arena (two conversations and the winner)", ({
        "model_a": "bee-1", "model_b": "cow-2", "winner": "model_a",
        "conversation_a": [{"role": "user", "content": "What do bees make?"}, {"role": "assistant", "content": "Honey."}],
        "conversation_b": [{"role": "user", "content": "What do bees make?"}, {"role": "assistant", "content": "Milk."}],
    },)),
)  # fmt: skip
PARTS = ("system", "first", "second", "label")
_STEMS = ("conversation", "messages", "dialogue", "dialog", "chat")


def find(names: Sequence[str], asked: Asked, head: Sequence[Row]) -> Columns | None:
    """Two conversations, or a prompt and two responses that are lists of turns (as JSON text, too), and a winner."""
    first, second = asked.columns.get("first"), asked.columns.get("second")
    pair = judged.in_order(first, second, asked) if first and second else judged.two_columns(names, _STEMS)
    parts: dict[str, Any] = {}
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
    return Columns.of("arena", names, parts, pair, () if "turn" in parts else pair, found[1])


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
    return given if isinstance(given, list) and all(isinstance(t, str | None) for t in given) else None


def _are_turns(head: Sequence[Row], names: Sequence[str]) -> bool:
    given = [v for r in head for n in names if (v := value(r, n)) is not None]
    return bool(given) and all(_turns(v) is not None for v in given)


def conversations(row: Row, columns: Columns) -> tuple[Any, Any] | Fault:
    """Both conversations; up to the turn that was judged, where the row says which."""
    names = str(columns["first"]), str(columns["second"])
    first, second = (value(row, n) for n in names)
    if (prompt := columns["prompt"]) is not None:
        asked, one, two = (_turns(v) for v in (value(row, prompt), first, second))
        if asked is None or one is None or two is None or not len(asked) == len(one) == len(two):
            return Fault("bad_type", f"{prompt}, {' and '.join(names)} are not lists of as many texts")
        return _woven(asked, one), _woven(asked, two)
    if isinstance(turn := value(row, columns["turn"]), int):
        return _until(first, turn), _until(second, turn)
    return first, second


def _woven(asked: list[Any], said: list[Any]) -> list[Message]:
    out: list[Message] = []
    for question, answer in zip(asked, said, strict=True):
        out += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return out


def _until(given: Any, turn: int) -> Any:
    """A conversation up to the answer of this number."""
    if not _is_talk(given):
        return given
    roles = [m.get("role", m.get("from")) if isinstance(m, dict) else None for m in given]
    ends = [i for i, role in enumerate(roles, 1) if role in ("assistant", "gpt")]
    return given[: ends[turn - 1]] if 0 < turn < len(ends) else given


def judge(row: Row, columns: Columns, asked: Asked, verdict: judged.Verdict) -> Pair | Fault:
    """The pair of a row by its label. The prompt is what both conversations share: where they go on after different
    answers, the answers have several turns.
    """
    sides, system = conversations(row, columns), value(row, columns["system"])
    if isinstance(sides, Fault):
        return sides
    if system is not None and not isinstance(system, str):
        return Fault("bad_type", f"{columns['system']} is {kind_of(system)}, not text")
    at, other = judged.order_of(verdict.label)
    names = str(columns["first"]), str(columns["second"])
    better, worse = sides[at], sides[other]
    pair = pair_of(None, better, worse, system or None, (names[at], names[other]))[1]
    if (
        isinstance(pair, Fault)
        and pair.reason == "prompt_mismatch"
        and isinstance(better, list)
        and isinstance(worse, list)
    ):
        pair = _from_the_first_answer(better, worse, system or None) or pair
    return judged.finished(pair, row, columns, asked, verdict)


def _from_the_first_answer(better: list[Any], worse: list[Any], system: str | None) -> Pair | Fault | None:
    """The pair split behind the last question that both conversations share, if they share one."""
    one, two = read_messages(better, "conversation"), read_messages(worse, "conversation")
    if isinstance(one, Fault) or isinstance(two, Fault):
        return None
    shared = next(
        (i for i, (a, b) in enumerate(zip(one[0], two[0], strict=False)) if a != b), min(len(one[0]), len(two[0]))
    )
    while shared and one[0][shared - 1]["role"] != "user":
        shared -= 1
    if not shared:
        return None
    changes = {*one[1], *two[1], "conversation split behind the turns that both share"}
    return told(one[0][:shared], one[0][shared:], two[0][shared:], system, changes)


def read(row: Row, columns: Columns, asked: Asked) -> tuple[str, Pair | Fault]:
    """The name of the row's form, and its pair or fault."""
    return "arena", judge(row, columns, asked, judged.verdict_of(row, columns, asked))
