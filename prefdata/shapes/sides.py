"""From the values of a row to a pair: what was asked and two answers, each as text or messages, in any mixture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prefdata.pairs import Fault, Pair, kind_of
from prefdata.shapes import conversation, explicit, transcript
from prefdata.shapes.columns import Columns, Row, value

_ROLES = ("role", "from")
_LIKE = {explicit.NAME: ("chat", "sharegpt", "alpaca")}  # names of what ``explicit`` reads too


def read_asked(row: Row, columns: Columns) -> tuple[Any, str | None, tuple[str, ...]] | Fault:
    """Prompt, system text and changes of form of a row; its context is joined to the prompt behind a blank line."""
    prompt, system, extra = (value(row, columns[part]) for part in ("prompt", "system", "context"))
    if system is not None and not isinstance(system, str):
        return Fault("bad_type", f"{columns['system']} is {kind_of(system)}, not text")
    changes: tuple[str, ...] = ()
    if extra is not None and extra not in ("", [], {}):
        if not isinstance(extra, str):
            return Fault("bad_type", f"{columns['context']} is {kind_of(extra)}, not text")
        if isinstance(prompt, list):
            return Fault("bad_type", f"{columns['context']} is text, but the prompt is messages")
        if isinstance(prompt, str):
            prompt, changes = f"{prompt}\n\n{extra}", (f"{columns['context']} joined to the {columns['prompt']}",)
    return prompt, system or None, changes


def pair_of(
    prompt: Any, chosen: Any, rejected: Any, system: str | None = None, names: tuple[str, str] = ("chosen", "rejected"),
    only: str | None = None,
) -> tuple[str, Pair | Fault]:  # fmt: skip
    """The name of the shape that these values have, and the pair or why there is none.

    ``names`` are what the answers are called in faults; ``only`` forces the reading of one shape.
    """
    if type(prompt) is str and type(chosen) is str and type(rejected) is str and system is None:
        return explicit.NAME, Pair(prompt, chosen, rejected)
    sides, sharegpt = [], False
    for name, given in zip(names, (chosen, rejected), strict=True):
        if given is None:
            return explicit.NAME, Fault("missing_field", f"{name} is missing")
        side = _messages(given)
        if not isinstance(side, str | list):
            return explicit.NAME, Fault("bad_type", f"{name} is {kind_of(given)}, not text or messages")
        sharegpt = sharegpt or _is_sharegpt(side)
        sides.append(side)
    asked = _messages(prompt)
    sharegpt = sharegpt or _is_sharegpt(asked)
    for shape in (explicit, conversation, transcript):
        if (only is None or only in (shape.NAME, *_LIKE.get(shape.NAME, ()))) and shape.fits(asked, *sides):
            got = shape.pair(asked, *sides, system)
            chat = isinstance(got, Pair) and isinstance(got.prompt, list)
            return "sharegpt" if sharegpt else "chat" if chat and shape is explicit else shape.NAME, got
    if only in (conversation.NAME, transcript.NAME):
        return only, Fault("bad_type", f"the answers are no {only}s")
    if asked is None and any(isinstance(s, list) for s in sides):
        return explicit.NAME, Fault("bad_type", "one answer is text, the other messages, and there is no prompt")
    return explicit.NAME, Fault("missing_field", "prompt is missing")


def pair_in(
    row: Row, columns: Columns, chosen: Any, rejected: Any, names: tuple[str, str] = ("chosen", "rejected")
) -> Pair | Fault:
    """The pair of two answers to what this row asked."""
    asked = read_asked(row, columns)
    if isinstance(asked, Fault):
        return asked
    got = pair_of(asked[0], chosen, rejected, asked[1], names)[1]
    return replace(got, changes=(*got.changes, *asked[2])) if isinstance(got, Pair) and asked[2] else got


def _messages(side: Any) -> Any:
    """One message as a list of one."""
    if isinstance(side, Mapping):
        return [side] if any(k in side for k in _ROLES) else side
    return side


def _is_sharegpt(side: Any) -> bool:
    return isinstance(side, list) and any(isinstance(m, Mapping) and "from" in m for m in side[:1])
