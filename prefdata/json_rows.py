"""JSON by hand where it must be: one row with all that can be wrong with it, and where objects begin and end."""

from __future__ import annotations

import contextlib
import json
import mmap
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from prefdata.errors import InputError
from prefdata.pairs import Fault, kind_of
from prefdata.sniffing import looks_like

LONG_NUMBER = "[0-9]{19}"  # may be an integer beyond 64 bits
DEPTH = 250  # levels of lists and objects: about as many as can be written again
_BOM = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_BETWEEN = b" \t\r\n,"
_BLOCK = 1 << 24
_PYTHON = re.compile(r"\s*\{\s*'")
_COMMENT = re.compile(r"\s*(//|/\*|#|<!--)")


@dataclass(frozen=True)
class BadRow:
    """A line that is not a row."""

    fault: Fault
    raw: str


def parse(text: bytes) -> dict[str, Any] | BadRow | None:
    """One JSON object, or what is wrong with it; None for nothing. Falls back to the stdlib for NaN and lone surrogates."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        if not text.strip():
            return None
        if text.startswith(_BOM):  # of a file that was joined to another one
            return parse(text[3:])
        try:
            decoded = text.decode()
        except UnicodeDecodeError as error:
            what = f"not UTF-8 (byte 0x{text[error.start]:02x} at {error.start}); looks like {looks_like(text)}"
            return BadRow(Fault("encoding_error", what), text.decode("utf-8", "backslashreplace"))
        try:
            value = json.loads(decoded)
        except json.JSONDecodeError as error:
            return BadRow(Fault("parse_error", _why(decoded, error)), decoded)
        except (RecursionError, ValueError) as error:  # or a number of more than 4,300 digits
            why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            return BadRow(Fault("parse_error", why), decoded)
        if isinstance(value, dict) and not _too_deep(value) and _has_surrogate(value):
            return BadRow(Fault("encoding_error", "holds half of a surrogate pair"), decoded)
    if isinstance(value, dict):
        return not_too_deep(text, value)
    return BadRow(Fault("parse_error", f"is {kind_of(value)}, not an object"), text.decode("utf-8", "backslashreplace"))


def _why(text: str, error: json.JSONDecodeError) -> str:
    """What is wrong with a line, in the words of the likely mistake."""
    if _PYTHON.match(text):
        return f"looks like Python, not JSON: quotes must be double (json.dumps writes them); begins {text[:40]!r}"
    if _COMMENT.match(text):
        return f"looks like a comment, which JSON has not; begins {text[:40]!r}"
    what, seen = error.msg, text[: error.pos].rstrip()
    if "trailing comma" in what or (seen.endswith(",") and text[error.pos : error.pos + 1] in ("}", "]")):
        what = "a comma before the closing bracket"
    if what == "Extra data":
        rest = text[error.pos :].strip()
        what = "a comma behind the object" if rest == "," else "more than one value on the line"
    return f"not valid JSON at column {error.colno}: {what}; begins {text[:40]!r}"


def not_too_deep(text: bytes, value: dict[str, Any]) -> dict[str, Any] | BadRow:
    """The parsed object, or a bad row in its place."""
    if text.count(b"[") + text.count(b"{") > DEPTH and _too_deep(value):
        return BadRow(Fault("parse_error", f"nested too deeply (over {DEPTH} levels)"), text.decode())
    return value


def refuse_double_keys(numbers: Iterable[int], texts: Iterable[bytes], name: str) -> None:
    """Raise InputError for a key that stands twice in one object, with two values: the fast parser takes the last one."""
    doubled: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        held = dict(pairs)
        if len(held) < len(pairs):
            doubled.extend(k for k, v in pairs if held[k] != v)
        return held

    for number, text in zip(numbers, texts, strict=False):
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(text, object_pairs_hook=note)
        if doubled:
            what = f"the key {doubled[0]!r} stands twice in one object, with two values"
            raise InputError(what, where=f"{name}:{number}", hint="Give each key once.")


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH):
        inner = (v for x in level for v in (x.values() if isinstance(x, dict) else x))
        level = [v for v in inner if isinstance(v, dict | list)]
    return bool(level)


def _has_surrogate(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def spans(data: bytes | mmap.mmap, start: int = 0, depth: int = 0) -> Iterator[tuple[int, int, bool]]:
    """Byte ranges of the objects ``depth`` brackets inside of ``data`` (0: objects one after the other), marked True, and
    of what else than commas and white space stands between them, marked False.

    Raises EOFError where the data end inside of one.
    """
    level, opened, last = 0, 0, start
    for match in _TOKEN.finditer(data, start):
        mark = match.group()
        if mark in (b"{", b"["):
            if level == depth:
                opened = match.start()
                yield from _between(data, last, opened)
            level += 1
            if level == depth:
                last = match.end()
        elif mark in (b"}", b"]"):
            level -= 1
            if level == depth:
                last = match.end()
                yield opened, last, True
            elif level < depth and depth:
                yield from _between(data, last, match.start())
                return
            level = max(level, 0)
    if level:
        raise EOFError
    yield from _between(data, last, len(data))


def documents(data: bytes, line: int) -> Iterator[tuple[int, bytes]]:
    """Line and text of whole objects, since the planner cut between them; and each line of what stands between them."""
    last = 0
    for start, stop, row in spans(data):
        line += data.count(b"\n", last, start)
        last = start
        if row:
            yield line, data[start:stop]
        else:
            yield from ((n, text.strip(_BETWEEN)) for n, text in enumerate(data[start:stop].split(b"\n"), line))


def _between(data: bytes | mmap.mmap, start: int, stop: int) -> Iterator[tuple[int, int, bool]]:
    seen = data[start:stop].strip(_BETWEEN)
    if seen:
        at = data.find(seen, start)
        yield at, at + len(seen), False


def is_lines(data: mmap.mmap, first: int) -> bool:
    """True if one of the first lines is a whole JSON object (the first may be broken)."""
    at = first
    for _ in range(50):
        end = data.find(b"\n", at)
        line = data[at : end if end >= 0 else len(data)].strip()
        if line.startswith(b"{") and line.endswith(b"}"):
            # An inner object of a pretty-printed one also parses, but is indented.
            with contextlib.suppress(orjson.JSONDecodeError):
                if data[at : at + 1] == b"{" and isinstance(orjson.loads(line), dict):
                    return True
        if end < 0:
            return False
        at = end + 1
    return False


def next_visible(data: mmap.mmap, at: int, blank: bytes = b" \t\r\n\v\f") -> int | None:
    """Where the next byte stands that is not blank, or None."""
    while at < len(data):
        block = data[at : at + _BLOCK]
        rest = block.lstrip(blank)
        if rest:
            return at + len(block) - len(rest)
        at += len(block)
    return None


def list_of_key(data: mmap.mmap, first: int, key: str) -> int:
    """Where the list under a key of the object at ``first`` begins; it must have one."""
    level, text = 0, b""
    for match in _TOKEN.finditer(data, first):
        mark = match.group()
        if mark in (b"}", b"]"):
            level -= 1
        elif mark not in (b"{", b"["):
            text = mark
        elif level == 1 and mark == b"[" and orjson.loads(text) == key:
            return match.start()
        else:
            level += 1
    raise KeyError(key)
