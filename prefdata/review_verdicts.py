"""Verdict files, read line by line: what the page exports (JSONL, CSV), and a filled ``spotcheck.csv``."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from prefdata.errors import InputError, near_or_all
from prefdata.report.render import visible
from prefdata.report.sheet import left_side
from prefdata.review_file import Said
from prefdata.review_sheet import Place

OPEN, BLIND = ("accept", "reject", "unsure"), ("left", "right", "same", "both_bad")
MOST, NOTE, NAME = 256 << 20, 10_000, 80  # bytes of a file, characters of a note and of a name
LISTED = 20
_WORDS = {"l": "left", "1": "left", "r": "right", "2": "right", "0": "same", "b": "both_bad", "both bad": "both_bad"}
_FORMULA = ("'=", "'+", "'-", "'@", "'\t", "'\r")
Find = Callable[[set[str]], Mapping[str, Place]]


@dataclass
class Sheet:
    """What a verdict must fit: the name of the sheet, its seed, its pairs by row, and how other pairs are found by ``pd_id``."""

    name: str
    seed: int
    places: Mapping[int, Place]
    find: Find


@dataclass
class Bad:
    """Lines that are no verdict on this sheet, each with its place."""

    lines: list[str] = field(default_factory=list)

    def stop(self) -> None:
        """Raise InputError with all of them, if there are any."""
        if self.lines:
            more = [f"and {len(self.lines) - LISTED:,} more"] if len(self.lines) > LISTED else []
            raise InputError("\n".join([*self.lines[:LISTED], *more]), hint="Nothing was imported.")


def read(path: Path, sheet: Sheet, reviewer: str | None, bad: Bad) -> list[tuple[Place, Said]]:
    """The verdicts of a file in their order; what is wrong with a line joins ``bad``. InputError for what is no such file."""
    text = _text(path)
    usual = (reviewer or path.stem)[:NAME]
    if text.lstrip()[:1] == "{":
        return list(_each(path, _json(text), sheet, usual, bad, _verdict))
    names, rows = _csv(path, text)
    if {"row", "key", "mode", "verdict", "sheet"} <= names:
        return list(_each(path, rows, sheet, usual, bad, _verdict))
    if not {"pd_id", "left", "right", "verdict"} <= names:
        what = f"has no columns of a verdict file: {visible(', '.join(sorted(names))[:200]) or 'nothing'}"
        hint = "Give what review.html exported (JSONL or CSV), or spotcheck.csv with its verdict column filled."
        raise InputError(what, where=f"{path}:1", hint=hint)
    filled = [(line, row) for line, row in rows if isinstance(row, str) or (row.get("verdict") or "").strip()]
    known = {p.pd_id: p for p in sheet.places.values()}
    ids = {_cell(row.get("pd_id")) for _, row in filled if not isinstance(row, str)} - set(known)
    known |= sheet.find(ids) if ids else {}
    return list(_each(path, filled, sheet, usual, bad, partial(_of_csv, known)))


def _text(path: Path) -> str:
    try:
        if (size := path.stat().st_size) > MOST:
            raise InputError(f"is too large for verdicts ({size / 1e6:,.0f} MB)", where=str(path))
        held = path.read_bytes()
    except OSError as error:
        what = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise InputError(what, where=str(path)) from error
    try:
        return held.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"{path}:{held.count(bytes([10]), 0, error.start) + 1}"
        raise InputError("is not UTF-8", where=where, hint="Save it as UTF-8 (in a spreadsheet: CSV UTF-8).") from error


Rows = Iterable[tuple[int, dict[str, Any] | str]]
"""Lines of a file with their numbers; text says what is wrong with one."""


def _json(text: str) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                held = orjson.loads(line)
            except ValueError as error:
                yield number, f"is not JSON ({str(error).split(':')[0]})"
                continue
            yield number, held if isinstance(held, dict) else "is not a JSON object"


def _csv(path: Path, text: str) -> tuple[set[str], Rows]:
    """The columns, and the rows with the line that each begins in."""
    csv.field_size_limit(1 << 30)
    head = text.split("\n", 1)[0]
    mark = max(",;\t", key=head.count)  # what a spreadsheet writes depends on its country
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=mark, strict=True)

    def rows() -> Iterator[tuple[int, dict[str, Any] | str]]:
        while True:
            line = reader.reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield line, f"is not CSV ({error})"
                return
            yield line, "has more cells than the header" if None in row else row

    try:
        return set(reader.fieldnames or ()), list(rows())
    except csv.Error as error:
        raise InputError(f"is neither JSONL nor CSV ({error})", where=f"{path}:1") from error


Reader = Callable[[dict[str, Any], Sheet, str], tuple[Place, Said]]


def _each(path: Path, rows: Rows, sheet: Sheet, usual: str, bad: Bad, read: Reader) -> Iterator[tuple[Place, Said]]:
    for line, row in rows:
        try:
            if isinstance(row, str):
                raise ValueError(row)
            if "verdict" in row and row["verdict"] in (None, ""):
                continue  # a note on a pair that is not judged yet
            yield read(row, sheet, usual)
        except ValueError as error:
            bad.lines.append(f"{path}:{line}: {error}")


def _verdict(row: dict[str, Any], sheet: Sheet, usual: str) -> tuple[Place, Said]:
    """One verdict of the page; ValueError says what is wrong with it."""
    missing = [name for name in ("sheet", "row", "key", "mode", "verdict") if row.get(name) in (None, "")]
    if missing:
        raise ValueError(f"has no {' and no '.join(missing)}")
    for name in ("sheet", "key", "mode", "verdict", "reviewer", "note", "time"):
        if not isinstance(row.get(name) or "", str):
            raise ValueError(f"{name} is not text")
    if row["sheet"] != sheet.name:
        raise ValueError(
            f"is a verdict on another sheet, {row['sheet'][:40]!r}; the sheet of this run is {sheet.name!r}"
        )
    number = row["row"]
    if isinstance(number, str) and number.isascii() and number.isdecimal() and len(number) < 19:
        number = int(number)
    place = sheet.places.get(number) if isinstance(number, int) and not isinstance(number, bool) else None
    if place is None:
        raise ValueError(f"the sheet of this run has no row {visible(str(number)[:40])}")
    if row["key"] != place.key:
        raise ValueError(f"the texts of row {number} are not those that were judged (their key is another)")
    return place, _said(place, row["mode"], row["verdict"], row, usual)


def _said(place: Place, mode: str, verdict: str, row: Mapping[str, Any], usual: str) -> Said:
    if mode not in ("open", "blind"):
        raise ValueError(f"mode {mode[:40]!r} is neither open nor blind")
    known = OPEN if mode == "open" else BLIND
    if verdict not in known:
        raise ValueError(f"no such verdict: {verdict[:40]!r}. {near_or_all(verdict[:40], known, 'One of')}")
    if mode == "blind" and place.state == "dropped":
        raise ValueError(f"row {place.row} was dropped: whether that was right cannot be judged blind")
    name, note, time = (_cell(row.get(n)) for n in ("reviewer", "note", "time"))
    if len(note) > NOTE or len(name) > NAME:
        raise ValueError(f"the {'note' if len(note) > NOTE else 'name of the reviewer'} is too long")
    return Said(reviewer=name.strip() or usual, mode=mode, verdict=verdict, note=note, time=time[:40])


def _of_csv(known: Mapping[str, Place], row: dict[str, Any], sheet: Sheet, usual: str) -> tuple[Place, Said]:
    """One row of ``spotcheck.csv``, whose sides stand as read."""
    pd_id = _cell(row.get("pd_id"))
    place = known.get(pd_id)
    if place is None:
        raise ValueError(f"this run kept no pair {pd_id[:40]!r}")
    if place.shown is not None:
        sides = [place.shown.chosen, place.shown.rejected]
        if left_side(pd_id, sheet.seed) == "rejected":
            sides.reverse()
        there = zip(("prompt", "left", "right"), (place.shown.prompt, *sides), strict=True)
        if not all(_alike(str(row.get(name) or ""), text) for name, text in there):
            raise ValueError(f"the texts of {pd_id[:40]!r} are not those of this run")
    word = str(row["verdict"]).strip().lower()
    return place, _said(place, "blind", _WORDS.get(word, word), row, usual)


def _cell(value: Any) -> str:
    """A cell without the mark that keeps a spreadsheet from taking it for a formula."""
    text = str(value or "")
    return text[1:] if text.startswith(_FORMULA) else text


def _alike(cell: str, text: str) -> bool:
    """True if the cell begins as the text does; a spreadsheet leaves letters and digits alone, and the page cuts long texts."""
    first, second = ("".join(c for c in s if c.isalnum()) for s in (cell, text))
    n = 200 if len(text) < 400 else min(len(first), len(second), 200)
    return first[:n] == second[:n]
