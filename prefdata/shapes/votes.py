"""Several people's labels of the same two answers: in columns, in a list, or in rows of their own. The majority decides."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import xxhash

from prefdata.pairs import Fault, Pair, dump
from prefdata.shapes import judged, labels, talks, two
from prefdata.shapes.columns import Asked, Columns, Row, Shown, value
from prefdata.shapes.sides import read_asked

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
    for form, parts in ((talks, talks.PARTS), (two, judged.PARTS)):
        if asked.columns.keys() - {"annotator"} <= set(parts):
            found = form.find(names, replace(asked, columns=_without(asked.columns)), head)
            if found is not None and "label" in found.parts:
                return _in_rows(found, names, asked, head)
    if "label" in asked.columns or "annotator" in asked.columns:
        return None
    there = two.answers(names, asked, head)
    annotators = there and _annotators([n for n in names if n not in there], head)
    if there is None or annotators is None:
        return None
    values = [v for r in head for v in _votes(r, annotators)]
    code, scale = labels.code(re.sub(r"[\d_ ]+$", "", annotators[0]), values, there[0], there[1], asked)
    said = {"votes": annotators} | ({"scale": scale} if scale else {})
    return two.columns_of("votes", names, asked, head, there, said, code)


def _without(columns: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in columns.items() if k != "annotator"}


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
    held = [value(row, c) for c in columns]
    return [_cast(x) for v in held for x in (v if isinstance(v, list) else [v])]


def _cast(given: Any) -> Any:
    if isinstance(given, Mapping):
        return next((given[f] for f in _FIELDS if f in given), None)
    return given


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


def _sides(row: Row, columns: Columns) -> tuple[Any, Any, Any]:
    """Prompt and answers as they stand in the row."""
    if _is_arena(columns):
        sides = talks.conversations(row, columns)
        return None, *(
            (value(row, columns["first"]), value(row, columns["second"])) if isinstance(sides, Fault) else sides
        )
    if judged.not_two(row, columns):  # a group of its own
        return None, row.get(columns.needs[0]), None
    asks = read_asked(row, columns)
    return (
        asks[:2] if isinstance(asks, tuple) else asks.detail,
        value(row, columns["first"]),
        value(row, columns["second"]),
    )


def _is_arena(columns: Columns) -> bool:
    return columns.parts.get("form") == "arena"


def key(row: Row, columns: Columns) -> str | None:
    """The prompt and both answers, in whichever order."""
    asks, *sides = _sides(row, columns)
    return xxhash.xxh3_128_hexdigest(dump([asks, *sorted(map(dump, sides))]).encode())


def read(row: Row, columns: Columns, asked: Asked) -> tuple[str, Pair | Fault]:
    """The name of the row's form, and its pair or fault: the votes stand in the row."""
    if fault := judged.not_two(row, columns):
        return "votes", fault
    names = columns.all("votes")
    given = _votes(row, names)
    counted = [labels.meaning(v, columns, asked, names[0]) for v in given]
    label, said, extra = _count(counted, [labels.told(", ".join(names), value(row, names[0]))])
    return "votes", judged.judged(row, columns, asked, label, said, extra)


def read_group(rows: Sequence[Row], columns: Columns, asked: Asked) -> tuple[str, list[Pair | Fault]]:
    """The name of the form, and the pair of rows that show the same two answers; a row may have them the other way round."""
    members = tuple(range(len(rows)))
    if fault := judged.not_two(rows[0], columns):
        return "votes_in_rows", [replace(fault, members=members)]
    first = _sides(rows[0], columns)[1]
    counted, said = [], []
    for row in rows:
        label, words = judged.verdict(row, columns, asked)
        counted.append(label if label is None or _sides(row, columns)[1] == first else -label)
        said.append(words)
    label, words, extra = _count(counted, said)
    judge = talks.judge if _is_arena(columns) else judged.judged
    pair = judge(rows[0], columns, asked, label, words, extra)
    return "votes_in_rows", [replace(pair, members=members)]


def _count(votes: Sequence[float | None], said: Sequence[str]) -> tuple[float | None, str, dict[str, Any]]:
    """The label of the majority, words for a fault, and columns of the pair: votes, agreement, strength."""
    counted = [v for v in votes if v is not None]
    if not counted:
        return None, said[0], {"pd_votes": 0, "pd_agreement": None, "pd_strength": None}
    signs = Counter((v > 0) - (v < 0) for v in counted)
    (side, most), *others = signs.most_common()
    split = bool(others) and others[0][1] == most
    label = 0.0 if split or side == 0 else float(side)
    words = f"{most} of {len(counted)} votes for each" if split else f"{most} of {len(counted)} votes for a tie"
    strength = abs(sum(counted)) / len(counted) if label else 0.0
    return label, words, {"pd_votes": len(counted), "pd_agreement": most / len(counted), "pd_strength": strength}
