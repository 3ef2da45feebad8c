"""Rows of one answer each, of which those to one prompt are read together: what such a row asks and answers, and its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prefdata.pairs import Fault, Pair, dump, fault_of, side_text
from prefdata.shapes import pair_columns, transcript
from prefdata.shapes.columns import Asked, Columns, Row, asking, first_of, value
from prefdata.shapes.labels import told
from prefdata.shapes.sides import pair_in, pair_of

PARTS = ("prompt", "completion", "system", "context")
_ANSWERS = (
    "orig_response", "completion", "response", "output", "answer", "generation", "generated_text", "model_output",
    "model_response", "model_answer", "reply", "completions", "text",
)  # fmt: skip
_WHOLE = ("messages", "conversations", "conversation", "chat")  # what was asked and its answer, in one column
_WITH_PROMPT = ("tools", "images", "image")


def parts_of(
    names: Sequence[str], asked: Asked, head: Sequence[Row], mark: str
) -> tuple[dict[str, str], list[Row]] | None:
    """Columns of what was asked and of its answer, beside ``mark``; and the rows that have such an answer and no pair."""
    answer = asked.columns.get("completion") or first_of([n for n in names if n != mark], (*_ANSWERS, *_WHOLE))
    if answer is None or answer == mark:
        return None
    pair = pair_columns.find(names, Asked(), head)
    rows = [r for r in head if value(r, answer) is not None]
    if pair is not None:
        rows = [r for r in rows if all(value(r, n) is None for n in pair.needs)]
    parts = asking(names, asked, (answer, mark))
    if "orig_instruction" in names and answer == "orig_response" and "prompt" not in asked.columns:
        parts = {"prompt": "orig_instruction"}
    if answer in _WHOLE and "prompt" not in asked.columns:
        parts = {part: column for part, column in parts.items() if part == "system"}
    given = [value(r, answer) for r in rows]
    alone = "prompt" not in parts  # then a text must hold what was asked too
    sound = [_is_messages(v) or (isinstance(v, str) and (not alone or transcript.fits(v, v))) for v in given]
    if 2 * sum(sound) < len(sound):
        return None
    return {**parts, "completion": answer}, rows


def _is_messages(given: Any) -> bool:
    return isinstance(given, Mapping) or (isinstance(given, list) and all(isinstance(m, Mapping) for m in given))


def half(row: Row, columns: Columns) -> Pair | Fault:
    """What the row asks and its answer, as a pair of the answer with itself; or what is wrong with the row."""
    name = columns["completion"] or ""
    answer = value(row, name)
    return checked(pair_in(row, columns, answer, answer, (name, name))[1], row, name)


def checked(got: Pair | Fault, row: Row, name: str) -> Pair | Fault:
    """The pair if it is sound; its answer is called ``name``."""
    fault = got if isinstance(got, Fault) else fault_of(got, row)
    if fault is None:
        return got
    return replace(fault, detail=name + fault.detail[6:]) if fault.detail.startswith("chosen") else fault


def halves(
    rows: Sequence[Row], mark: str, half: Callable[[Row], Pair | Fault], read: Callable[[Any], float | None]
) -> tuple[dict[int, tuple[Pair, float]], list[Pair | Fault]]:
    """Of each sound row what it asks and answers, and what ``read`` makes of its ``mark``; and faults for the other rows."""
    out: dict[int, tuple[Pair, float]] = {}
    faults: list[Pair | Fault] = []
    for i, row in enumerate(rows):
        given = value(row, mark)
        got, number = half(row), read(given)
        if isinstance(got, Fault):
            faults.append(replace(got, members=(i,)))
        elif number is None:
            faults.append(Fault("missing_label", told(mark, given), (i,)))
        else:
            out[i] = got, number
    return out, faults


def key(row: Row, asks: Pair, *more: Any) -> str:
    """What rows of one prompt share: its text, system text, tools and images, character by character; and ``more``."""
    return dump([side_text(asks.prompt, "user"), *(row.get(n) for n in _WITH_PROMPT), *more])


def joined(better: Pair, worse: Pair) -> Pair | Fault:
    """The pair of two answers to one prompt."""
    got = pair_of(better.prompt, better.chosen, worse.chosen)[1]
    if isinstance(got, Pair):
        got.changes = tuple(sorted({*better.changes, *worse.changes, *got.changes}))
    return got


def told_apart(rows: Sequence[Row], columns: Columns) -> list[dict[str, Any]]:
    """What each row tells of its answer: the columns that differ between rows of one prompt, what the pair holds aside."""
    names = dict.fromkeys(n for row in rows for n in row if n not in columns.taken and n != "pd_id")
    differ = [n for n in names if any(row.get(n) != rows[0].get(n) for row in rows)]
    return [{n: row.get(n) for n in differ} for row in rows]
