"""Whole conversations in ``chosen`` and ``rejected``, without a prompt column: the prompt is what they share."""

from __future__ import annotations

from typing import Any

from prefdata.pairs import Fault, Pair, read_messages

NAME = "conversation"
TITLE = "implicit prompt (whole conversations)"
EXAMPLE: dict[str, Any] = {
    "chosen": [{"role": "user", "content": "What do bees make?"}, {"role": "assistant", "content": "Honey."}],
    "rejected": [{"role": "user", "content": "What do bees make?"}, {"role": "assistant", "content": "Milk."}],
}


def fits(prompt: Any, chosen: Any, rejected: Any) -> bool:
    """Two lists of messages, no prompt."""
    return isinstance(chosen, list) and isinstance(rejected, list)


def pair(prompt: Any, chosen: Any, rejected: Any, system: str | None) -> Pair | Fault:
    """Split both sides behind their last turn that is not the answer's; what stands before must be equal."""
    changes: set[str] = {"conversation split into prompt and answer"}
    heads, tails = [], []
    for name, value in (("chosen", chosen), ("rejected", rejected)):
        got = read_messages(value, name)
        if isinstance(got, Fault):
            return got
        messages, changed = got
        changes |= set(changed)
        if not messages:
            return Fault("empty_completion", f"{name} has no message")
        if messages[-1]["role"] not in ("assistant", "tool", "function"):
            return Fault("bad_messages", f"{name} ends with a {messages[-1]['role']} turn, not the assistant's")
        asks = [i for i, m in enumerate(messages) if m["role"] in ("user", "system", "developer")]
        cut = asks[-1] + 1 if asks else 0
        heads.append(messages[:cut])
        tails.append(messages[cut:])
    if heads[0] != heads[1]:
        return Fault("prompt_mismatch", "the turns before the last answer differ between chosen and rejected")
    if not heads[0]:
        return Fault("empty_prompt", "there is no turn before the answer")
    asked = heads[0]
    # Tool calls and their results that both sides share belong to what was asked, not to the answer.
    while len(tails[0]) > 1 and len(tails[1]) > 1 and tails[0][0] == tails[1][0]:
        asked = [*asked, tails[0].pop(0)]
        tails[1].pop(0)
    if system is not None and asked[0]["role"] != "system":
        asked = [{"role": "system", "content": system}, *asked]
        changes.add("system column to system message")
    elif system is not None and asked[0].get("content") != system:
        return Fault("prompt_mismatch", "the system column and the system message differ")
    return Pair(asked, tails[0], tails[1], tuple(sorted(changes)))
