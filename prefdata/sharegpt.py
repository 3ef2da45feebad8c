"""LLaMA-Factory's ShareGPT form of a chat pair: turns as ``{from, value}``, each answer one turn, system text beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from prefdata.pairs import Message, dump

_FROM = {"user": "human", "assistant": "gpt", "tool": "observation", "function": "observation"}
_ASKS = ("human", "observation")


class NoPlace(ValueError):
    """What of a pair a form cannot hold."""


def row_of(prompt: Sequence[Message], chosen: Sequence[Message], rejected: Sequence[Message]) -> dict[str, Any]:
    """``conversations``, ``chosen``, ``rejected`` and ``system`` ("" for none) of a pair.

    Raises NoPlace for what LLaMA-Factory would skip or cut: turns that do not alternate, answers of several messages, pictures,
    keys of messages that change how they are trained on. Ids of tool calls and names of tools are left out.
    """
    asked = list(prompt)
    system = asked.pop(0).get("content") if asked and asked[0]["role"] in ("system", "developer") else ""
    if not isinstance(system, str):
        raise NoPlace("a system message that is no text")
    turns = [_turn(m) for m in asked]
    if any((t["from"] in _ASKS) != (i % 2 == 0) for i, t in enumerate(turns)):
        raise NoPlace("turns that do not alternate")
    if len(turns) % 2 == 0:
        raise NoPlace("a prompt that does not end with a question or a tool's result")
    answers = []
    for side in (chosen, rejected):
        if len(side) != 1:
            raise NoPlace("an answer of several messages")
        answers.append(_turn(side[0]))
        if answers[-1]["from"] in _ASKS:
            raise NoPlace("an answer that is not the assistant's")
    return {"conversations": turns, "chosen": answers[0], "rejected": answers[1], "system": system}


def _turn(message: Message) -> dict[str, str]:
    role, content, calls = message["role"], message.get("content"), message.get("tool_calls")
    if role not in _FROM:
        raise NoPlace(f"a {role} message behind the first turn")
    known = {"role", "content", "tool_calls"} | ({"name", "tool_call_id"} if _FROM[role] == "observation" else set())
    other = sorted(k for k, v in message.items() if k not in known and v not in (None, [], ""))
    if other:
        raise NoPlace(f"the message key {other[0]!r}")
    if calls:
        if content:
            raise NoPlace("text beside a tool call")
        made = [_call(c) for c in calls]
        return {"from": "function_call", "value": dump(made[0] if len(made) == 1 else made, ordered=False)}
    if not isinstance(content, str):
        raise NoPlace("a message that is no text")
    return {"from": _FROM[role], "value": content}


def _call(call: Any) -> dict[str, Any]:
    """``{name, arguments}`` of a tool call; arguments that came as JSON text are read, since they are written as JSON there."""
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise NoPlace("a tool call without a name")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            raise NoPlace("a tool call whose arguments are no JSON") from None
    return {"name": function["name"], "arguments": {} if arguments is None else arguments}


def tools_text(tools: Any) -> str:
    """The tools of a row as the JSON text that LLaMA-Factory reads; "" for none."""
    return tools if isinstance(tools, str) else dump(tools, ordered=False) if tools else ""


def entry(file_name: str, columns: Iterable[str], prompt: str | None = None) -> dict[str, Any]:
    """What ``dataset_info.json`` says of a file of such rows, or of texts whose ``prompt`` is the column of that name;
    ``columns`` are the others that may be named there.
    """
    form = {"formatting": "sharegpt"} if prompt is None else {}
    first = {"messages": "conversations"} if prompt is None else {"prompt": prompt}
    return {"file_name": file_name, **form, "ranking": True, "columns": first | {c: c for c in columns}}
