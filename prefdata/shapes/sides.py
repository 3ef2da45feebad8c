"""From the values of a row to a pair: what was asked and two answers, each as text or messages, in any mixture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prefdata.pairs import ASKS, Fault, Message, Pair, is_message, kind_of, read_messages
from prefdata.shapes import transcript
from prefdata.shapes.columns import Columns, Row, value

EXPLICIT, CHAT, CONVERSATION, TRANSCRIPT, SHAREGPT, ALPACA = FORMS = (
    "explicit", "chat", "conversation", "transcript", "sharegpt", "alpaca",
)  # fmt: skip


def pair_in(
    row: Row, columns: Columns, chosen: Any, rejected: Any, names: tuple[str, str] = ("chosen", "rejected"),
    only: str | None = None,
) -> tuple[str, Pair | Fault]:  # fmt: skip
    """The pair of two answers to what this row asked, as ``pair_of`` tells it; a context is joined behind a blank line."""
    prompt, system, context = (value(row, columns[part]) for part in ("prompt", "system", "context"))
    changes: tuple[str, ...] = ()
    if system is not None and not isinstance(system, str):
        return EXPLICIT, Fault("bad_type", f"{columns['system']} is {kind_of(system)}, not text")
    if context is not None and context not in ("", [], {}):
        if not isinstance(context, str):
            return EXPLICIT, Fault("bad_type", f"{columns['context']} is {kind_of(context)}, not text")
        if isinstance(prompt, list):
            return EXPLICIT, Fault("bad_type", f"{columns['context']} is text, but the prompt is messages")
        if isinstance(prompt, str):
            prompt, changes = f"{prompt}\n\n{context}", (f"{columns['context']} joined to the {columns['prompt']}",)
    if (history := value(row, columns["history"])) not in (None, []):
        turns = _turns(history)
        if turns is None or not isinstance(prompt, str):
            return EXPLICIT, Fault(
                "bad_messages", "the history is no list of [question, answer] before a prompt of text"
            )
        prompt, changes = [*turns, {"role": "user", "content": prompt}], (*changes, "history put before the prompt")
    form, got = pair_of(prompt, chosen, rejected, system or None, names, only)
    return form, replace(got, changes=got.changes + changes) if isinstance(got, Pair) and changes else got


def _turns(history: Any) -> list[Message] | None:
    """The messages of a history of [question, answer] pairs."""
    if not isinstance(history, list):
        return None
    texts = [t for turn in history for t in turn] if all(isinstance(t, list) and len(t) == 2 for t in history) else []
    if not texts or not all(isinstance(t, str) for t in texts):
        return None
    return [{"role": ("user", "assistant")[i % 2], "content": t} for i, t in enumerate(texts)]


def pair_of(
    prompt: Any, chosen: Any, rejected: Any, system: str | None = None, names: tuple[str, str] = ("chosen", "rejected"),
    only: str | None = None,
) -> tuple[str, Pair | Fault]:  # fmt: skip
    """The name of the shape that these values have, and the pair or why there is none.

    ``names`` are what the answers are called in faults; ``only`` forces the reading of one shape.
    """
    texts = type(prompt) is str and type(chosen) is str and type(rejected) is str
    if texts and system is None and only in (None, EXPLICIT, ALPACA):
        return EXPLICIT, Pair(prompt, chosen, rejected)
    asked, one, two = ([side] if is_message(side) else side for side in (prompt, chosen, rejected))
    for name, given, side in zip(names, (chosen, rejected), (one, two), strict=True):
        if given is None:
            return EXPLICIT, Fault("missing_field", f"{name} is missing")
        if not isinstance(side, str | list):
            return EXPLICIT, Fault("bad_type", f"{name} is {kind_of(given)}, not text or messages")
    if asked is not None and only not in (CONVERSATION, TRANSCRIPT):
        got = _explicit(asked, one, two, system)
        form = CHAT if isinstance(got, Pair) and isinstance(got.prompt, list) else EXPLICIT
    elif isinstance(one, list) and isinstance(two, list) and only in (None, CONVERSATION):
        form, got = CONVERSATION, split(one, two, system)
    elif isinstance(one, str) and isinstance(two, str) and only in (None, TRANSCRIPT) and transcript.fits(one, two):
        form, got = TRANSCRIPT, transcript.pair(one, two, system)
    elif only in (CONVERSATION, TRANSCRIPT):
        return only, Fault("bad_type", f"the answers are no {only}s")
    elif isinstance(one, list) != isinstance(two, list):
        return EXPLICIT, Fault("bad_type", "one answer is text, the other messages, and there is no prompt")
    else:
        return EXPLICIT, Fault("missing_field", "prompt is missing")
    from_value = any(
        isinstance(s, list) and s and isinstance(s[0], Mapping) and "from" in s[0] for s in (asked, one, two)
    )
    return SHAREGPT if from_value else form, got


def _explicit(prompt: Any, chosen: str | list[Any], rejected: str | list[Any], system: str | None) -> Pair | Fault:
    """The pair of a prompt of its own, as chat; a prompt that answers repeat is taken off them."""
    if not isinstance(prompt, str | list):
        return Fault("bad_type", f"prompt is {kind_of(prompt)}, not text or messages")
    changes: set[str] = set()
    sides: dict[str, list[Message]] = {}
    for name, side in (("prompt", prompt), ("chosen", chosen), ("rejected", rejected)):
        role = "user" if name == "prompt" else "assistant"
        if isinstance(side, str):
            sides[name] = [{"role": role, "content": side}]
            changes.add("text to messages")
            continue
        if side and all(isinstance(p, Mapping) and "type" in p and not is_message(p) for p in side):
            side = [{"role": role, "content": side}]  # the content parts of one message
        got = read_messages(side, name)
        if isinstance(got, Fault):
            return got
        sides[name], changed = got
        changes.update(changed)
    asked = sides.pop("prompt")
    if not asked:
        return Fault("empty_prompt", "the prompt has no message")
    chosen_last = sides["chosen"][-1:] or [{}]
    if (
        len(asked) > 1
        and asked[-1]["role"] == "assistant"
        and asked[-1].get("content") == chosen_last[0].get("content")
    ):
        asked = asked[:-1]  # a whole conversation beside the answers
        changes.add("chosen answer taken off the prompt")
    for name, answer in sides.items():
        if len(answer) > len(asked) and answer[: len(asked)] == asked:
            sides[name] = answer[len(asked) :]
            changes.add("prompt repeated in the answer")
        elif answer and answer[0]["role"] in ASKS:
            if answer[-1]["role"] in ASKS:
                return Fault("bad_messages", f"{name} ends with a {answer[-1]['role']} turn, not the assistant's")
            return Fault("prompt_mismatch", f"{name} begins with turns that are not the prompt's")
    return told(asked, sides["chosen"], sides["rejected"], system, changes)


def split(chosen: list[Any], rejected: list[Any], system: str | None = None) -> Pair | Fault:
    """The pair of two whole conversations, split behind the last turn that is not the answer's: what stands before must be
    equal.
    """
    changes = {"conversation split into prompt and answer"}
    heads, tails = [], []
    for name, side in (("chosen", chosen), ("rejected", rejected)):
        got = read_messages(side, name)
        if isinstance(got, Fault):
            return got
        messages, changed = got
        changes.update(changed)
        if not messages:
            return Fault("empty_completion", f"{name} has no message")
        if messages[-1]["role"] in ASKS:
            return Fault("bad_messages", f"{name} ends with a {messages[-1]['role']} turn, not the assistant's")
        at = max((i for i, m in enumerate(messages, 1) if m["role"] in ASKS), default=0)
        heads.append(messages[:at])
        tails.append(messages[at:])
    asked = heads[0]
    if asked != heads[1]:
        return Fault("prompt_mismatch", "the turns before the last answer differ between chosen and rejected")
    if not asked:
        return Fault("empty_prompt", "there is no turn before the answer")
    # Tool calls and their results that both sides share belong to what was asked, not to the answer.
    while len(tails[0]) > 1 and len(tails[1]) > 1 and tails[0][0] == tails[1][0]:
        asked.append(tails[0].pop(0))
        tails[1].pop(0)
    return told(asked, tails[0], tails[1], system, changes)


def told(
    asked: list[Message], chosen: list[Message], rejected: list[Message], system: str | None, changes: set[str]
) -> Pair | Fault:
    """The pair of these messages, behind the system text of a column; a fault where the messages have another one."""
    if system is not None and asked[0]["role"] != "system":
        asked = [{"role": "system", "content": system}, *asked]
        changes = changes | {"system column to system message"}
    elif system is not None and asked[0].get("content") != system:
        return Fault("prompt_mismatch", "the system column and the system message differ")
    return Pair(asked, chosen, rejected, tuple(sorted(changes)))
