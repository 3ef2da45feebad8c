"""Several people's labels of the same two answers: in columns, in a list, or in rows of their own. The majority decides."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import xxhash

from prefdata.pairs import ANNOTATIONS, ANNOTATORS, Fault, Pair, dump
from prefdata.shapes import arena, judged, labels, two_answers
from prefdata.shapes.columns import Asked, Columns, Row, Shown, value

SHOWN = (
    Shown("votes", "two answers and several annotators", ({
        "instruction": "What do bees make?", "response1": "Honey.", "response2": "Milk.", "annotator1": 1, "annotator2": 1,
        "annotator3": 2,
    },)),
    Shown("votes_in_rows", "two answers, one row an annotator", (
        {"prompt": "What do bees make?", "output_1": "Honey.", "output_2": "Milk.", "preference": 1, "annotator": "p1"},
        {"prompt": "What do bees make?", "output_1": "Milk.", "output_2": "Honey.", "preference": 2, "annotator": "p2"},
    )),
)  # fmt: skip
PARTS = (*judged.PARTS, "annotator")
_COLUMN = re.compile(
    r"(annotator|annotation|label|vote|rater|rating|judge|worker|coder|preference|evaluator|human|choice|expert)_(\d+|[a-z])(?:_(?:label|vote|preference|choice))?"
)
_OF_ANSWERS = ("label", "vote", "preference", "choice", "rating")  # may speak of one answer each: label_1 of output_1
_LISTS = ("votes", "labels", "preferences", "judgments", "judgements", "annotations", "annotators")
_FIELDS = ("vote", "label", "preference", "choice", "winner", "verdict", "judgment", "answer")
_WHO = ("annotator", "annotator_id", "evaluator", "worker", "worker_id", "labeler", "labeler_id", "labeller", "rater",
        "rater_id", "judge", "judge_id", "user_id", "expert", "expert_id")  # fmt: skip


def find(names: Sequence[str], asked: Asked, head: Sequence[Row]) -> Columns | None:
    """Rows of one label where a column says whose it is and some pairs come again; or two answers and several labels."""
    one = {part: column for part, column in asked.columns.items() if part != "annotator"}
    for form in (arena, two_answers):
        if one.keys() <= set(form.PARTS):
            found = form.find(names, replace(asked, columns=one), head)
            if found is not None and "label" in found.parts:
                return _in_rows(found, names, asked, head)
    if "label" in asked.columns or "annotator" in asked.columns:
        return None
    there = two_answers.answers(names, asked, head)
    annotators = there and _annotators([n for n in names if n not in there], head)
    if there is None or annotators is None:
        return None
    values = [v for r in head for v in _votes(r, annotators)]
    code, scale = labels.code(re.sub(r"[\d_ ]+$", "", annotators[0]), values, there[0], there[1], asked)
    return two_answers.columns_of("votes", names, asked, head, there, {"votes": annotators, **scale}, code)


def _annotators(names: Sequence[str], head: Sequence[Row]) -> tuple[str, ...] | None:
    """Two or more columns of votes, or one that holds lists of them."""
    stems: dict[str, list[str]] = {}
    for name in names:
        if m := _COLUMN.fullmatch(judged.spelled(name)):
            stems.setdefault(m[1], []).append(name)
    for stem, columns in stems.items():
        values = [value(r, n) for r in head for n in columns]
        if len(columns) > (2 if stem in _OF_ANSWERS else 1) and labels.word_like(values):
            return tuple(columns)
    for name in _LISTS:
        lists = [v for r in head if name in names and (v := value(r, name)) is not None]
        if lists and all(isinstance(v, list) for v in lists) and any(_cast(x) is not None for v in lists for x in v):
            return (name,)
    return None


def _votes(row: Row, columns: Iterable[str]) -> list[Any]:
    """The votes of a row, null for a missing one."""
    return [_cast(x) for _, x in _held(row, columns)]


def _held(row: Row, columns: Iterable[str]) -> list[tuple[str, Any]]:
    """What stands in the columns of votes, lists one by one, each with the name of its column; none for a place in a list."""
    held = [(c, value(row, c)) for c in columns]
    return [(c, x) for n, v in held for c, x in ([("", y) for y in v] if isinstance(v, list) else [(n, v)])]


def _cast(given: Any) -> Any:
    if isinstance(given, Mapping):
        return next((given[f] for f in _FIELDS if f in given), None)
    return given


def _name(column: str, given: Any) -> str:
    """Whose vote it is: what an object says, else the column's name."""
    who = next((given[f] for f in _WHO if given.get(f) is not None), None) if isinstance(given, Mapping) else None
    return column if who is None else str(who)


def _in_rows(found: Columns, names: Sequence[str], asked: Asked, head: Sequence[Row]) -> Columns | None:
    """These columns, for groups of rows, where annotators are named and some pair is there more than once."""
    there = {judged.spelled(n): n for n in names}
    who = asked.columns.get("annotator") or next((there[n] for n in _WHO if n in there), None)
    if who is None or len({dump(v) for r in head if (v := value(r, who)) is not None}) < 2:
        return None
    form = {"form": "arena"} if found.shape == "arena" else {}
    columns = replace(found, shape="votes", parts={**found.parts, "annotator": who, **form}, grouped=True)
    if "annotator" not in asked.columns and len({key(r, columns) for r in head}) == len(head):
        return None
    return columns


def _sides(row: Row, columns: Columns) -> tuple[Any, Any]:
    """Both answers as they stand in the row; a list that does not hold two is one."""
    if two_answers.not_two(row, columns):
        return row.get(columns.needs[0]), None
    talks = arena.conversations(row, columns) if "form" in columns.parts else None
    return talks if isinstance(talks, tuple) else (value(row, columns["first"]), value(row, columns["second"]))


def key(row: Row, columns: Columns) -> str | None:
    """What was asked and both answers, in whichever order."""
    asks = () if "form" in columns.parts else [value(row, columns[p]) or None for p in ("prompt", "context", "system")]
    return xxhash.xxh3_128_hexdigest(dump([asks, *sorted(map(dump, _sides(row, columns)))]).encode())


def read(row: Row, columns: Columns, asked: Asked) -> tuple[str, Pair | Fault]:
    """The name of the row's form, and its pair or fault: the votes stand in the row."""
    if fault := two_answers.not_two(row, columns):
        return "votes", fault
    names = columns.all("votes")
    votes = [labels.meaning(v, columns, asked, names[0]) for v in _votes(row, names)]
    said = labels.told(", ".join(names), value(row, names[0]))
    whose = [_name(c, x) for c, x in _held(row, names)]
    return "votes", judged.judged(row, columns, asked, _majority(votes, whose, said))


def read_group(rows: Sequence[Row], columns: Columns, asked: Asked) -> tuple[str, list[Pair | Fault]]:
    """The name of the form, and the pair of rows that show the same two answers; a row may have them the other way round."""
    members = tuple(range(len(rows)))
    if fault := two_answers.not_two(rows[0], columns):
        return "votes_in_rows", [replace(fault, members=members)]
    first = _sides(rows[0], columns)[0]
    said = [judged.verdict_of(row, columns, asked) for row in rows]
    same = [_sides(row, columns)[0] == first for row in rows]
    votes = [one.label if one.label is None or s else -one.label for s, one in zip(same, said, strict=True)]
    judge = arena.judge if "form" in columns.parts else judged.judged
    whose = ["" if (who := value(row, columns["annotator"])) is None else str(who) for row in rows]
    got = judge(rows[0], columns, asked, _majority(votes, whose, said[0].said))
    if isinstance(got, Pair) and not all(same):
        got.position = None
    return "votes_in_rows", [replace(got, members=members)]


def _majority(votes: Sequence[float | None], whose: Sequence[str], said: str) -> judged.Verdict:
    """The verdict of the majority, with words for a fault (``said`` where no vote counts), and what is told of the votes:
    of all of them, and of each with its annotator (not even the names where nobody has one).
    """
    cast = [(v, who) for v, who in zip(votes, whose, strict=True) if v is not None]
    if not cast:
        return judged.Verdict(None, said, {"pd_votes": 0, "pd_agreement": None, "pd_strength": None})
    signs = [(v > 0) - (v < 0) for v, _ in cast]
    (side, most), *others = Counter(signs).most_common()
    split = bool(others) and others[0][1] == most
    label = 0.0 if split or side == 0 else float(side)
    words = f"{most} of {len(cast)} votes for each" if split else f"{most} of {len(cast)} votes for a tie"
    strength = abs(sum(v for v, _ in cast)) / len(cast) if label else 0.0
    extra: dict[str, Any] = {"pd_votes": len(cast), "pd_agreement": most / len(cast), "pd_strength": strength}
    extra[ANNOTATIONS] = [-s for s in signs] if label < 0 else signs
    if any(who for _, who in cast):
        extra[ANNOTATORS] = [who for _, who in cast]
    return judged.Verdict(label, words, extra)
