"""Judging in a terminal: one key a pair. Every verdict is in its file before the next pair is shown."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import orjson

from prefdata.errors import ConfigError
from prefdata.files import put
from prefdata.pairs import readable
from prefdata.report.model import Example, Report
from prefdata.report.render import visible
from prefdata.report.sheet import as_it_leaves
from prefdata.review import FOLDER
from prefdata.review_file import Said
from prefdata.review_sheet import Place, of_page
from prefdata.review_verdicts import Bad, Sheet, read

OPEN = {"a": "accept", "r": "reject", "u": "unsure"}
BLIND = {"1": "left", "2": "right", "0": "same", "b": "both_bad"}
BACK, NEXT = ("\x1b[D", "\x1bOD", "\xe0K", "p"), ("\x1b[C", "\x1bOC", "\xe0M", "s")
FOLD = 500  # characters at each end of a long prompt
_FIT = "Is the chosen answer really the better one, and the pair fit to train on?"
_BETTER = "Which answer is the better one?"
_DROPPED = "Was it right to drop this pair?"


def judge(out: Path, report: Report, name: str, blind: bool) -> Path | None:
    """Ask for a verdict on each pair of the sheet that has none of this person yet; the file with all of theirs.

    None where nothing was judged. Raises KeyboardInterrupt on Ctrl-C: what was judged is in the file.
    """
    if not re.fullmatch(r"[\w][\w .@+-]{0,59}", name):
        hint = "Letters, digits, blanks and . @ + - only: it becomes the name of a file."
        raise ConfigError(f"--reviewer {name[:60]!r}: no name to call a file by", hint=hint)
    places = list(of_page(report).values())
    if not places:
        raise ConfigError("the run has no pair to judge", where=str(out))
    file = _Kept(out / FOLDER / f"{name}.jsonl", report, name)
    shown = {r.row: as_it_leaves(r) for r in report.rows}
    at = _first_open(places, file)
    while at < len(places):
        at = _one(places, at, shown[places[at].row], blind, file)
    _show([f"{len(file.said)} of {len(places)} pairs judged, saved in {visible(str(file.path))}", ""])
    return file.path if file.said else None


class _Kept:
    """The verdicts of one person, in a file that grows by a line each."""

    def __init__(self, path: Path, report: Report, name: str) -> None:
        self.path, self.sheet, self.name = path, report.spotcheck.id, name
        self.said: dict[int, Said] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file():
            return
        held = path.read_bytes()
        lines = held[: held.rfind(b"\n") + 1]  # the last one may be half, where the machine went down
        if lines and f'"sheet":"{self.sheet}"'.encode() not in lines.split(b"\n")[0].replace(b": ", b":"):
            path.rename(path.with_name(f"{path.stem}-{int(path.stat().st_mtime)}.jsonl"))  # of an earlier run
            return
        if len(lines) < len(held):
            put(path, lines)
        bad = Bad()
        sheet = Sheet(self.sheet, report.spotcheck.seed, of_page(report), lambda ids: {})
        self.said = {p.row: said for p, said in read(path, sheet, name, bad) if said.reviewer == name} if lines else {}
        bad.stop()

    def add(self, place: Place, mode: str, verdict: str, note: str) -> None:
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = {
            "sheet": self.sheet, "row": place.row, "pd_id": place.pd_id, "key": place.key, "mode": mode,
            "verdict": verdict, "reviewer": self.name, "note": note, "time": time,
        }  # fmt: skip
        with self.path.open("ab") as file:
            file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            file.flush()
            os.fsync(file.fileno())
        self.said[place.row] = Said.model_validate(
            {k: line[k] for k in ("reviewer", "mode", "verdict", "note", "time")}
        )


def _first_open(places: Sequence[Place], file: _Kept, start: int = 0) -> int:
    return next((i for i in range(start, len(places)) if places[i].row not in file.said), len(places))


def _one(places: Sequence[Place], at: int, pair: Example, blind: bool, file: _Kept) -> int:
    """Show one pair and take its key; the place of the next one to show, beyond the last one to end."""
    place = places[at]
    hidden = blind and place.state != "dropped"
    answers = BLIND if hidden else OPEN
    before = file.said.get(place.row)
    note = before.note if before else ""
    _show(_card(places, at, pair, hidden, before, note))
    while True:
        key = _key()
        if key in ("", "q", "Q", "\x04"):
            return len(places)
        if key in BACK or (key == "b" and not hidden):
            return max(0, at - 1)
        if key in NEXT:
            return min(at + 1, len(places) - 1)
        if key == "m":
            _show(_card(places, at, pair, hidden, before, note, whole=True))
        elif key == "n":
            note = _note()
            if before is None:
                _show([f"note: {visible(note)}"])
                continue
            file.add(place, before.mode, before.verdict, note)
            return at
        elif (verdict := answers.get(key.lower())) is not None:
            file.add(place, "blind" if hidden else "open", verdict, note)
            return at + 1 if before and at + 1 < len(places) else _next_open(places, at, file)


def _next_open(places: Sequence[Place], at: int, file: _Kept) -> int:
    """The next pair without a verdict, then those that were passed over."""
    after = _first_open(places, file, at + 1)
    return after if after < len(places) else _first_open(places, file)


def _card(
    places: Sequence[Place], at: int, pair: Example, hidden: bool, before: Said | None, note: str, whole: bool = False
) -> list[str]:  # fmt: skip
    """The pair as text; no character of it can reach the terminal as anything but a character."""
    place = places[at]
    sides = ["chosen", "rejected"] if not hidden or place.left == "chosen" else ["rejected", "chosen"]
    titles = ["1 LEFT", "2 RIGHT"] if hidden else ["CHOSEN", "REJECTED"]
    why = "" if hidden or place.issue is None else f"   {place.state}: {visible(place.issue)}"
    lines = [
        f"── {at + 1} of {len(places)}   pair {visible(pair.pd_id)}{why}",
        "",
        *_text("PROMPT", pair, "prompt", FOLD if not whole else 0),
    ]
    for title, side in zip(titles, sides, strict=True):
        lines += ["", *_text(title, pair, side)]
    question = _DROPPED if place.state == "dropped" else _BETTER if hidden else _FIT
    keys = "1 left  2 right  0 same  b both bad" if hidden else "a yes  r no  u unsure"
    lines += ["", question]
    if before is not None:
        lines.append(f"judged before: {before.verdict}{f' ({visible(note)})' if note else ''}")
    return [*lines, f"{keys}   n note  m whole prompt  ← or p back  → or s skip  q quit"]


def _text(title: str, pair: Example, side: str, fold: int = 0) -> list[str]:
    text = visible(readable(str(getattr(pair, side))))
    if fold and len(text) > 2 * fold:  # what is asked stands at the end
        text = f"{text[:fold]}\n[{len(text) - 2 * fold:,} characters folded: m]\n{text[-fold:]}"
    cut = f"  (cut: {pair.lengths[side]:,} characters)" if side in pair.lengths else ""
    return [f"{title}{cut}", *(f"  {line}" for line in text.split("\n"))]


def _show(lines: Sequence[str]) -> None:
    """Beside the result, so that ``--json`` has stdout for itself."""
    if sys.stdin.isatty() and sys.stderr.isatty() and len(lines) > 3:
        print("\x1b[2J\x1b[H", end="", file=sys.stderr)
    print("\n".join(lines), file=sys.stderr, flush=True)


def _key() -> str:
    """One key; without a terminal the next character of stdin, at its end nothing."""
    if sys.stdin.isatty():
        from typer import getchar

        try:
            return getchar()
        except EOFError:
            return ""
    key = sys.stdin.read(1)
    while key in ("\n", "\r", " "):
        key = sys.stdin.read(1)
    return key + sys.stdin.read(2) if key == "\x1b" else key


def _note() -> str:
    """A line of text."""
    if sys.stdin.isatty():
        print("note: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return line.encode("utf-8", "replace").decode("utf-8", "replace").strip()[:10_000]
