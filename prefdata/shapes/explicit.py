"""Explicit pairs: ``prompt``, ``chosen``, ``rejected`` as text, as chat messages, or a mixture of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefdata.pairs import Fault, Message, Pair, kind_of, read_messages

NAME = "explicit"
TITLE = "prompt/chosen/rejected"
EXAMPLE: dict[str, Any] = {"prompt": "What do bees make?", "chosen": "Honey.", "rejected": "Milk."}


def fits(prompt: Any, chosen: Any, rejected: Any) -> bool:
    """There is a prompt of some kind."""
    return prompt is not None and prompt == prompt


def pair(prompt: Any, chosen: Any, rejected: Any, system: str | None) -> Pair | Fault:
    """The pair; a prompt that answers repeat is taken off them, a system text becomes a system message."""
    if type(prompt) is str and type(chosen) is str and type(rejected) is str and system is None:
        return Pair(prompt, chosen, rejected)
    if not isinstance(prompt, str | list):
        return Fault("bad_type", f"prompt is {kind_of(prompt)}, not text or messages")
    changes: tuple[str, ...] = ()
    sides: dict[str, list[Message]] = {}
    for name, value, role in (
        ("prompt", prompt, "user"),
        ("chosen", chosen, "assistant"),
        ("rejected", rejected, "assistant"),
    ):
        if isinstance(value, str):
            sides[name] = [{"role": role, "content": value}]
            changes += ("text to messages",)
            continue
        if value and all(isinstance(p, Mapping) and "type" in p and not {"role", "from"} & p.keys() for p in value):
            value = [{"role": role, "content": value}]  # the content parts of one message
        got = read_messages(value, name)
        if isinstance(got, Fault):
            return got
        sides[name], changed = got
        changes += changed
    if not sides["prompt"]:
        return Fault("empty_prompt", "the prompt has no message")
    asked = sides["prompt"]
    for name in ("chosen", "rejected"):
        answer = sides[name]
        if len(answer) > len(asked) and answer[: len(asked)] == asked:
            sides[name] = answer[len(asked) :]
            changes += ("prompt repeated in the answer",)
        elif answer and answer[0]["role"] in ("user", "system", "developer"):
            if answer[-1]["role"] in ("user", "system", "developer"):
                return Fault("bad_messages", f"{name} ends with a {answer[-1]['role']} turn, not the assistant's")
            return Fault("prompt_mismatch", f"{name} begins with turns that are not the prompt's")
    if system is not None:
        first = asked[0]
        if first["role"] == "system" and first.get("content") != system:
            return Fault("prompt_mismatch", "the system column and the prompt's system message differ")
        if first["role"] != "system":
            sides["prompt"] = [{"role": "system", "content": system}, *asked]
            changes += ("system column to system message",)
    return Pair(sides["prompt"], sides["chosen"], sides["rejected"], tuple(sorted(set(changes))))
