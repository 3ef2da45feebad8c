"""Evaluation sets: their prompts, out of files of any form, as texts that can be looked for in a training set."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefdata import sources
from prefdata.errors import InputError
from prefdata.pairs import Fault, Side, blank, message_text, read_messages, side_text
from prefdata.reading import read as read_chunk
from prefdata.shapes.columns import PROMPTS
from prefdata.shapes.transcript import ASSISTANT, HUMAN

# These hold an answer too: the prompt is what stands before it.
_WHOLE = ("conversation_a", "chosen", "chosen_messages", "text_chosen", "text")
_KNOWN = (*PROMPTS, "problem", "turns", "ctx", "goal", "question_stem", *_WHOLE)


@dataclass
class Evaluation:
    """The prompts of one file, each as the text views under which it may occur: see ``views``.

    ``unread`` counts the rows in which no prompt was found; ``columns`` are those that held one.
    """

    name: str
    sha256: str
    prompts: list[list[str]] = field(default_factory=list)
    columns: dict[str, None] = field(default_factory=dict)
    unread: int = 0


def read(path: str) -> list[Evaluation]:
    """The evaluation sets that a path, a glob or a folder names, one a file.

    Raises InputError for what cannot be read, and for a file without prompts.
    """
    if path == "-":
        raise InputError("an evaluation set is not read from stdin", where=path, hint="Give a file.")
    with tempfile.TemporaryDirectory(prefix="prefdata-") as work:
        source = sources.open_source(path, Path(work))
        made = [Evaluation(f.name, f.sha256) for f in source.files]
        names: list[dict[str, None]] = [{} for _ in made]
        for chunk in source.chunks:
            block, into = read_chunk(chunk), made[chunk.file]
            names[chunk.file] |= dict.fromkeys(block.names)
            for row in block.rows:
                column, side = _prompt(row) if isinstance(row, dict) else ("", None)
                if side is None or blank(side_text(side, "user")):
                    into.unread += 1
                else:
                    into.prompts.append(views(side))
                    into.columns[column] = None
    for file, columns in zip(made, names, strict=True):
        if not file.prompts:
            listed = f" (columns: {', '.join(map(str, columns))})" if columns else ""
            hint = f"Known names: {', '.join(_KNOWN)}. Rename the column."
            raise InputError(f"no prompt was found in this evaluation set{listed}", where=file.name, hint=hint)
    return made


def views(side: Side) -> list[str]:
    """The prompt's text view; and the user's turn alone, where it is the only one among system text or role marks."""
    turns = side.count(HUMAN) if isinstance(side, str) else sum(m["role"] == "user" for m in side)
    last = last_turn(side)
    return [side_text(side, "user"), *([last] if last and turns == 1 else [])]


def last_turn(side: Side) -> str:
    """The user's last turn, where the prompt (messages, or a HH transcript) holds more than that; else nothing."""
    if isinstance(side, str):
        _, mark, said = side.rpartition(HUMAN)
        return said.partition(ASSISTANT)[0].strip() if mark else ""
    turns = [message_text(m) for m in side if m["role"] == "user"]
    return turns[-1] if turns and len(side) > 1 else ""


def _prompt(row: Mapping[str, Any]) -> tuple[str, Side | None]:
    """The column that holds the prompt of a row, and the prompt; Alpaca's ``input`` is joined to it."""
    for name in _KNOWN:
        side = _asked(row.get(name), name in _WHOLE)
        if side is not None:
            extra = row.get("input") if name == "instruction" else None
            if isinstance(side, str) and isinstance(extra, str) and extra:
                return "instruction + input", f"{side}\n\n{extra}"
            return name, side
    return "", None


def _asked(value: Any, whole: bool) -> Side | None:
    """What a value asks: a text as it is, messages up to the user's last turn, the first of several texts (turns).

    A text that holds the answer too (``whole``) is cut behind the last mark of a transcript.
    """
    if isinstance(value, list) and value and isinstance(value[0], str):
        value = value[0]
    if isinstance(value, Mapping):  # one message, or the root of a tree
        text = next((value[k] for k in ("text", "stem") if isinstance(value.get(k), str)), None)
        value = [value] if text is None else text
    if isinstance(value, str):
        cut = value.rfind(ASSISTANT)
        return value if not whole else value[: cut + len(ASSISTANT)] if cut >= 0 else None
    if not isinstance(value, list):
        return None
    if all(isinstance(p, Mapping) and "type" in p and "role" not in p for p in value):
        value = [{"role": "user", "content": value}]
    got = read_messages(value, "messages")
    if isinstance(got, Fault):
        return None
    last = max((i for i, m in enumerate(got[0]) if m["role"] == "user"), default=-1)
    return got[0][: last + 1] or None
