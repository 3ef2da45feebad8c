"""What a pair is: prompt, chosen, rejected; its text view, its faults and its identity.

A side is either text or a list of chat messages. Stages compare *text views*: an answer of one assistant message
is its content, anything longer is spelled out with its roles, so that text and chat rows can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from prefdata import text
from prefdata.errors import InputError
from prefdata.style import styles

SIDES = ("prompt", "chosen", "rejected")
ANNOTATIONS, ANNOTATORS = "pd_annotations", "pd_annotators"  # single votes (1: chosen, -1: rejected, 0: tie), and whose
Message = dict[str, Any]
Side = str | list[Message]

ROLES = {
    "system": "system", "developer": "developer", "user": "user", "human": "user", "prompter": "user",
    "assistant": "assistant", "gpt": "assistant", "bot": "assistant", "model": "assistant", "chatgpt": "assistant",
    "tool": "tool", "function": "function", "observation": "tool", "function_call": "assistant",
}  # fmt: skip
ASKS = ("system", "developer", "user")  # all other roles are those of answers
_UNIT, _RECORD = "\x1f", "\x1e"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a source row cannot be a pair: a reason word of ``malformed`` and a sentence about this row."""

    reason: str
    detail: str
    members: tuple[int, ...] = ()  # of a group of source rows (see ``Pair.members``)


@dataclass(slots=True)
class Pair:
    """One pair as a shape found it; ``changes`` names changes of form (renamed roles, parts to text, ...).

    ``scores`` are those of chosen and rejected, where the source has some. ``extra`` are further columns of the pair's own
    (``pd_margin``, ``pd_strength``, ...). ``fault`` says why the pair must not be trained on although both answers are
    there: a tie, a missing label; they then stand in the order of the source. ``members`` are the places of the rows that it
    was made of, in a group of source rows. ``tie`` marks a tie that was asked to be kept. ``position`` says which of the two
    answers of the source the chosen one was: 0 the first, 1 the second, None where they have no order.
    """

    prompt: Side
    chosen: Side
    rejected: Side
    changes: tuple[str, ...] = ()
    tools: Any = None
    scores: tuple[float | None, float | None] | None = None
    extra: dict[str, Any] | None = None
    fault: Fault | None = None
    members: tuple[int, ...] = ()
    tie: bool = False
    position: int | None = None


def blank(value: str) -> bool:
    """True if nothing in the text can be seen: white space, zero-width and other format characters only."""
    if value and "!" <= value[0] <= "~":
        return False
    return not value or value.isspace() or text.INVISIBLE.fullmatch(value) is not None


def is_message(value: object) -> bool:
    """Whether this is a chat message by its keys."""
    return isinstance(value, Mapping) and ("role" in value or "from" in value)


def read_messages(value: Sequence[Any], where: str) -> tuple[list[Message], tuple[str, ...]] | Fault:
    """Messages in the one inner form (``role``, ``content``, every other key as it came), or the fault.

    Known names of roles and keys (``from``/``value``, ``Human``) are mapped; text parts become text.
    """
    changes: set[str] = set()
    out: list[Message] = []
    for i, raw in enumerate(value):
        if not isinstance(raw, Mapping):
            return Fault("bad_type", f"{where}[{i}] is {kind_of(raw)}, not a message")
        message = dict(raw)
        said = ROLES.get(str(message.get("from")).lower())
        if "role" in message and said is not None and said != ROLES.get(str(message["role"]).lower(), said):
            return Fault("bad_messages", f"{where}[{i}] has both role and from, which differ")
        if "from" in message and message.get("value") is not None and "content" in message:
            if message["content"] is not None:
                return Fault("bad_messages", f"{where}[{i}] has both value and content")
            del message["content"]  # the padding of a column store
        if "role" not in message and "from" in message:
            message = {("role" if k == "from" else "content" if k == "value" else k): v for k, v in message.items()}
            changes.add("from/value renamed to role/content")
        role = message.get("role")
        if not isinstance(role, str):
            return Fault("bad_messages", f"{where}[{i}] has no role")
        known = ROLES.get(role.lower())
        if known is None:
            return Fault("bad_messages", f"{where}[{i}] has the unknown role {role[:40]!r}")
        if known != role:
            message["role"] = known
            changes.add(f"role {role!r} renamed to {known!r}")
        content = message.get("content")
        if isinstance(content, list):
            joined = _parts_text(content)
            if joined is not None:
                message["content"] = joined
                changes.add("text parts joined to text")
            elif not all(isinstance(p, Mapping) for p in content):
                return Fault("bad_type", f"{where}[{i}].content is a list that holds no parts")
        elif content is not None and not isinstance(content, str):
            return Fault("bad_type", f"{where}[{i}].content is {kind_of(content)}, not text")
        out.append(message)
    return out, tuple(sorted(changes))


def _parts_text(parts: list[Any]) -> str | None:
    """The text of content parts if all of them are text, else None (a picture, a sound)."""
    written = [p for p in parts if isinstance(p, Mapping) and p.get("type", "text") == "text"]
    texts = [t for p in written if isinstance(t := p.get("text", p.get("value")), str)]
    return "".join(texts) if len(texts) == len(parts) else None


def without_nulls(value: Any) -> Any:
    """The value without keys whose value is null, at any depth: a column store pads ragged structs with them."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None or k == "content"}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


def message_text(message: Message) -> str:
    """What a reader sees of a message: its content, and its tool calls as sorted JSON."""
    content = message.get("content")
    seen = content if isinstance(content, str) else "" if content is None else dump(content)
    if message.get("tool_calls"):
        seen += _UNIT + dump(message["tool_calls"])
    return seen


def side_text(side: Side, alone: str) -> str:
    """The text view of a side; a single message of the role ``alone`` is its bare text."""
    if isinstance(side, str):
        return side
    if len(side) == 1 and side[0].get("role") == alone:
        return message_text(side[0])
    return _RECORD.join(f"{m.get('role')}{_UNIT}{message_text(m)}" for m in side)


def readable(view: str) -> str:
    """A text view for people: role marks spelled out."""
    return view.replace(_RECORD, "\n\n").replace(_UNIT, ": ") if _UNIT in view else view


def images_of(side: Side) -> int:
    """How many picture parts the messages carry."""
    if isinstance(side, str):
        return 0
    return sum(
        isinstance(p, Mapping) and "image" in str(p.get("type", ""))
        for m in side
        if isinstance(m.get("content"), list)
        for p in m["content"]
    )


def fault_of(pair: Pair, columns: Mapping[str, Any]) -> Fault | None:
    """The first fault that keeps a readable row from being a sound pair, or None."""
    p, c, r = pair.prompt, pair.chosen, pair.rejected
    if pair.fault is not None:
        return pair.fault
    if _nothing(p):
        return Fault("empty_prompt", "the prompt is empty")
    for name, side in (("chosen", c), ("rejected", r)):
        if not side:
            return Fault("empty_completion", f"{name} {'has no message' if isinstance(side, list) else 'is empty'}")
        last = side if isinstance(side, str) else side[-1]
        if isinstance(last, dict) and last["role"] in ASKS:
            return Fault("bad_messages", f"{name} ends with a {last['role']} turn, not the assistant's")
        if _nothing(last):
            return Fault("empty_completion", f"{name} is empty")
    pictures = columns.get("images")
    pictures = columns.get("image") if pictures is None else pictures
    if pictures is not None:
        marks = side_text(p, "user").count("<image>") + images_of(p)
        given = len(pictures) if isinstance(pictures, list) else 1
        if marks and given != marks:
            return Fault("image_mismatch", f"{marks} image placeholders, {given} images")
    return None


def _nothing(side: Side | Message) -> bool:
    if isinstance(side, str | dict):
        return blank(side if isinstance(side, str) else message_text(side))
    return not side or all(_nothing(m) for m in side)


def kind_of(value: Any) -> str:
    """The JSON name of a value's type, for messages to people."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {str(value)[:40]}"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list | tuple):
        return "a list"
    return "an object" if isinstance(value, Mapping) else type(value).__name__


def dump(value: Any, *, ordered: bool = True) -> str:
    """Compact JSON with sorted keys, so that equal values give equal text; or with the keys in their own order."""
    try:
        return orjson.dumps(value, str, orjson.OPT_NON_STR_KEYS | (orjson.OPT_SORT_KEYS if ordered else 0)).decode()
    except TypeError:  # an integer beyond 64 bits
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=ordered, default=str)
        except RecursionError:
            raise InputError("a value is nested too deeply to be written as JSON") from None


@dataclass(frozen=True)
class Row:
    """A pair for people to read: text views, the other columns, and what is known of a fault."""

    row: int
    pd_id: str
    file: str
    line: int | None
    prompt: str
    chosen: str
    rejected: str
    columns: Mapping[str, Any]
    raw: str | None
    detail: str | None


@dataclass
class Pairs:
    """A batch of sound pairs, as ``Stage.measure`` gets it; every array has one entry a pair.

    ``prompt``, ``chosen``, ``rejected`` are the text views (Arrow strings); ``chat`` holds the messages of chat rows
    (None in the place of a text row, and None altogether for a text-only batch); ``columns`` the other columns.
    """

    prompt: pa.StringArray
    chosen: pa.StringArray
    rejected: pa.StringArray
    chat: list[Pair | None] | None = None
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    strings: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Sequence[Pair], columns: Mapping[str, pa.Array] | None = None) -> Pairs:
        """A batch out of single pairs."""
        views = {
            "prompt": [side_text(p.prompt, "user") for p in pairs],
            "chosen": [side_text(p.chosen, "assistant") for p in pairs],
            "rejected": [side_text(p.rejected, "assistant") for p in pairs],
        }
        chat = [None if isinstance(p.prompt, str) and isinstance(p.chosen, str) else p for p in pairs]
        arrays = {k: pa.array(v, pa.string()) for k, v in views.items()}
        return cls(**arrays, chat=chat if any(chat) else None, columns=columns or {}, strings=views)

    def __len__(self) -> int:
        return len(self.prompt)

    def texts(self, side: str) -> list[str]:
        """The text views of a side as Python strings (made once)."""
        if side not in self.strings:
            self.strings[side] = getattr(self, side).to_pylist()
        return self.strings[side]

    @cached_property
    def keys(self) -> dict[str, npt.NDArray[np.uint64]]:
        """64-bit hash of each side's normal form (see ``text.normal``), for exact comparison."""
        return {side: text.keys(self.texts(side), getattr(self, side)) for side in SIDES}

    @cached_property
    def words(self) -> dict[str, text.Words]:
        """Word hashes of each side (see ``text.words``)."""
        return {side: text.words(getattr(self, side)) for side in SIDES}

    @cached_property
    def style(self) -> tuple[npt.NDArray[np.float32], ...]:
        """Counts of style (n, 47) of chosen and of rejected (see ``prefdata.style``)."""
        return styles(self.prompt, self.chosen, self.rejected)
