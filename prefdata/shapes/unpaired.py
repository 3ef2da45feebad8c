"""Unpaired rows (KTO form): one answer a row and whether it is desirable. Rows of one prompt are read together.

A pair is made only where a prompt has answers of both labels: the first desirable one with the first undesirable one, the
second with the second, and so on, the shorter list beginning again (``best-worst`` and ``adjacent``), or each with each
(``all``). Prompts are the same where their texts, system texts, tools and images are, character by character.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from prefdata.errors import InputError
from prefdata.pairs import Fault, Pair, dump, side_text
from prefdata.shapes import one_answer
from prefdata.shapes.answers import SCORES, information
from prefdata.shapes.columns import Asked, Columns, Row, Shown, first_of, number, value
from prefdata.shapes.labels import told, word_like

SHOWN = (
    Shown("unpaired", "one answer a row and whether it is desirable (KTO)", (
        {"prompt": "What do bees make?", "completion": "Honey.", "label": True},
        {"prompt": "What do bees make?", "completion": "Milk.", "label": False},
    )),
)  # fmt: skip
PARTS = (*one_answer.PARTS, "label")
_LABELS = (
    "kto_tag", "kto_label", "label", "desirable", "is_desirable", "is_good", "thumbs", "thumbs_up", "feedback",
    "human_feedback", "user_feedback", "reaction",
)  # fmt: skip
_GOOD = (
    "true", "desirable", "good", "positive", "pos", "yes", "up", "thumbs_up", "thumbs up", "thumbsup", "👍", "like", "liked",
    "upvote", "chosen", "accepted", "accept", "preferred",
)  # fmt: skip
_BAD = (
    "false", "undesirable", "bad", "negative", "neg", "no", "down", "thumbs_down", "thumbs down", "thumbsdown", "👎",
    "dislike", "disliked", "downvote", "rejected", "reject", "dispreferred",
)  # fmt: skip
_WORDS = {**dict.fromkeys(_GOOD, 1.0), **dict.fromkeys(_BAD, -1.0)}


def find(names: Sequence[str], asked: Asked, head: Sequence[Row]) -> Columns | None:
    """An answer, or a whole conversation, beside a label whose two values say good and bad."""
    label = asked.columns.get("label") or first_of(names, _LABELS)
    got = None if label is None else one_answer.parts_of(names, asked, head, label)
    if label is None or got is None:
        return None
    parts, rows = got
    given = [v for r in rows if (v := value(r, label)) is not None]
    seen = {_word(v): v for v in given}
    code = _code(seen, asked)
    if code is not None and 2 * sum(_word(v) in code for v in given) < len(given):
        code = None
    said = "completion" in asked.columns or asked.shape == "unpaired" or label.startswith("kto")
    two_words = len(seen) == 2 and word_like(seen.values()) and first_of(names, SCORES) is None
    if code is None and (said or two_words):
        shown = ", ".join(repr(v)[:40] for v in list(seen.values())[:5])
        raise InputError(
            f"which values of {label!r} say that an answer is good is not clear ({shown})",
            hint="Say it: --labels desirable=...,undesirable=...",
        )
    if code is None or not (seen or said):
        return None
    answer = parts["completion"]
    return Columns.of("unpaired", names, {**parts, "label": label}, (answer,), (answer, label), code, grouped=True)


def _code(seen: dict[str, Any], asked: Asked) -> dict[str, float] | None:
    """What the values mean, 1 for desirable and -1 for undesirable; None where they do not say it."""
    if {"desirable", "undesirable"} & asked.labels.keys():
        return {_word(asked.labels[k]): v for k, v in (("desirable", 1.0), ("undesirable", -1.0)) if k in asked.labels}
    numbers = {w for w in seen if number(w) is not None}
    if not (numbers <= {"0", "1"} or numbers <= {"-1", "1"}):
        return None
    return {**_WORDS, "1": 1.0, "-1" if "-1" in numbers else "0": -1.0}


def _word(given: Any) -> str:
    """A label's value as the one spelling that is compared."""
    word = str(given).strip().casefold()
    found = number(word)
    return word if found is None else f"{found:g}"


def key(row: Row, columns: Columns) -> str | None:
    """The prompt of a sound row with a label; other rows stand alone."""
    half = one_answer.half(row, columns)
    labelled = _word(value(row, columns["label"])) in columns.code
    return one_answer.key(row, half) if labelled and isinstance(half, Pair) else None


def read_group(rows: Sequence[Row], columns: Columns, asked: Asked) -> tuple[str, list[Pair | Fault]]:
    """Rows of one prompt: pairs of desirable and undesirable answers, and a fault for each row that is in none."""
    label = str(columns["label"])
    halves, out = one_answer.halves(
        rows, label, lambda row: one_answer.half(row, columns), lambda given: columns.code.get(_word(given))
    )
    texts = {i: side_text(half.chosen, "assistant") for i, (half, _) in halves.items()}
    both = set.intersection(*({texts[i] for i, (_, sign) in halves.items() if sign == side} for side in (1.0, -1.0)))
    for i in (i for i in halves if texts[i] in both):
        said = told(label, value(rows[i], label))
        out.append(Fault("label_conflict", f"{said} here, but not for the same answer elsewhere", (i,)))
    good, bad = ([i for i in halves if halves[i][1] == side and texts[i] not in both] for side in (1.0, -1.0))
    if not good or not bad:
        lacking = "undesirable" if good else "desirable"
        out += [Fault("unpaired", f"no {lacking} answer to the same prompt", (i,)) for i in good + bad]
        return "unpaired", sorted(out, key=lambda one: one.members)
    if asked.pairs == "all":
        links = list(product(good, bad))
    else:
        links = [(good[k % len(good)], bad[k % len(bad)]) for k in range(max(len(good), len(bad)))]
    told_of = one_answer.told_apart(rows, columns)
    for i, j in links:
        got = replace(one_answer.joined(halves[i][0], halves[j][0]), members=(i, j))
        if isinstance(got, Pair):
            got.extra = information(told_of[i], told_of[j]) or None
        out.append(got)
    return "unpaired", sorted(out, key=lambda one: one.members)


def tally(rows: Sequence[Row], columns: Columns) -> dict[str, int]:
    """How many of these rows have which label, and how many repeat another one of them."""
    labels = [columns.code.get(_word(value(row, columns["label"]))) for row in rows]
    out = {"desirable": labels.count(1.0), "undesirable": labels.count(-1.0), "unlabelled": labels.count(None)}
    return out | {"repeated": len(rows) - len({dump(r) for r in rows}) if len(rows) > 1 else 0}
