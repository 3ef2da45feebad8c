"""HH-style transcripts: ``\\n\\nHuman: ...\\n\\nAssistant: ...`` as one text a side, without a prompt column."""

from __future__ import annotations

import re
from dataclasses import replace

from prefdata.pairs import Fault, Pair

SPLIT = "transcript split into prompt and answer"  # a change that pairs of any reader may tell
HUMAN, ASSISTANT = "\n\nHuman:", "\n\nAssistant:"
_TURN = re.compile(r"\n\n(Human|Assistant):")


def fits(chosen: str, rejected: str) -> bool:
    """Two texts that hold turns."""
    return ASSISTANT in chosen and ASSISTANT in rejected


def pair(chosen: str, rejected: str, system: str | None) -> Pair | Fault:
    """Split each text behind its last ``Assistant:`` marker, so that prompt + answer is the text byte for byte."""
    for name, value in (("chosen", chosen), ("rejected", rejected)):
        if value.rfind(HUMAN) > value.rfind(ASSISTANT):
            return Fault("bad_messages", f"{name} ends with a human turn, not the assistant's")
    changes: tuple[str, ...] = (SPLIT,)
    halves = [_cut(value, value.rfind(ASSISTANT)) for value in (chosen, rejected)]
    if halves[0][0] != halves[1][0]:
        # Two assistant turns in a row on one side: the answer is all that follows the last human turn.
        halves = [_cut(value, value.find(ASSISTANT, max(0, value.rfind(HUMAN)))) for value in (chosen, rejected)]
        changes += ("answer of several assistant turns",)
    if halves[0][0] != halves[1][0]:
        return Fault("prompt_mismatch", "the turns before the last answer differ between chosen and rejected")
    if not halves[0][0].removesuffix(ASSISTANT):
        return Fault("empty_prompt", "there is no turn before the answer")
    if system is not None:
        turns = [{"role": "system", "content": system}, {"role": "user", "content": halves[0][0]}]
        answers = [[{"role": "assistant", "content": half[1]}] for half in halves]
        return Pair(turns, answers[0], answers[1], (*changes, "system column to system message"))
    return Pair(halves[0][0], halves[0][1], halves[1][1], changes)


def to_messages(pair: Pair) -> Pair:
    """The same pair as chat: each turn a message, without its marker and the space behind that."""
    if not isinstance(pair.prompt, str):
        return pair
    parts = _TURN.split(pair.prompt.removesuffix(ASSISTANT))
    asked = [{"role": "system", "content": parts[0]}] if parts[0].strip() else []
    asked += [
        {"role": "user" if who == "Human" else "assistant", "content": text.removeprefix(" ")}
        for who, text in zip(parts[1::2], parts[2::2], strict=True)
    ]
    answers = [[{"role": "assistant", "content": str(s).removeprefix(" ")}] for s in (pair.chosen, pair.rejected)]
    changes = (*pair.changes, "transcript turns to messages")
    return replace(pair, prompt=asked, chosen=answers[0], rejected=answers[1], changes=changes)


def _cut(value: str, marker: int) -> tuple[str, str]:
    return value[: marker + len(ASSISTANT)], value[marker + len(ASSISTANT) :]
