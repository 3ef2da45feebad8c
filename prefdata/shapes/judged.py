"""From two answers and what a label says of them to a pair: what the readers of labels share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from prefdata.errors import InputError
from prefdata.pairs import Fault, Pair
from prefdata.shapes import labels
from prefdata.shapes.answers import information
from prefdata.shapes.columns import Asked, Columns, Parts, Row, asking, first_of, number, value
from prefdata.shapes.sides import pair_in

PARTS = ("prompt", "context", "system", "first", "second", "label")
LABELS = (
    "gold", "gold_label", "gt_choice", "gt_label", "better_response_id", "better_response", "better_answer", "better",
    "overall_preference", "preference", "winner", "preferred", "preferred_response", "preferred_answer",
    "preferred_output", "choice", "chosen", "label", "labels", "verdict", "vote", "judgment", "judgement", "selected",
    "best", "preference_strength", "safer_response_id",
)  # fmt: skip
STEMS = (  # of columns of answers: ``output_1`` and ``output_2``
    "output", "response", "answer", "completion", "text", "human_ref", "summary", "generation", "reply", "candidate",
    "solution", "continuation", "code", "choice", "option", "assistant", "model_output", "model_response", "model_answer",
    "output_text", "response_text", "prediction",
)  # fmt: skip
ONE_HOT = (("winner_model_a", "winner_model_b", "winner_tie"), ("winner_a", "winner_b", "winner_tie"))
MODELS = ("model", "generator", "source", "model_name", "policy")
_ENDS = (("1", "2"), ("0", "1"), ("a", "b"), ("first", "second"), ("left", "right"))


class Verdict(NamedTuple):
    """What is said of the first of two answers (a number, see ``labels``), in which words, and further columns of the pair."""

    label: float | None
    said: str
    extra: Mapping[str, Any] = {}


def spelled(name: str) -> str:
    """A column name in one spelling: ``Response 1`` and ``response1`` are ``response_1``."""
    return re.sub(r"(?<=[a-z])(?=\d+$)", "_", re.sub(r"[\s_-]+", "_", name.casefold()))


def two_columns(names: Iterable[str], stems: Iterable[str]) -> tuple[str, str] | None:
    """Two columns of one stem, and no third: ``output_1`` and ``output_2``, ``text_a`` and ``text_b``, ``first_answer``..."""
    there = {spelled(n): n for n in names}
    for stem in stems:
        for one, two in _ENDS:
            third = {"1": "3", "0": "2", "a": "c"}.get(one, "third")
            for form in (f"{stem}_{{}}", f"{{}}_{stem}"):
                if form.format(one) in there and form.format(two) in there and form.format(third) not in there:
                    return there[form.format(one)], there[form.format(two)]
    return None


def beside(names: Iterable[str], first: str, second: str, tags: Iterable[str]) -> tuple[str, str] | None:
    """Two columns that say more of the two answers: ``score_1`` and ``score_2`` beside ``output_1`` and ``output_2``."""
    there = {spelled(n): n for n in names}
    ends = [spelled(n).rpartition("_") for n in (first, second)]
    for tag in tags:
        for form in ("{tag}_{end}", "{stem}_{end}_{tag}", "{tag}_{stem}_{end}", "{stem}_{tag}_{end}"):
            one, two = (form.format(tag=tag, stem=stem, end=end) for stem, _, end in ends)
            if one != two and one in there and two in there:
                return there[one], there[two]
    return None


def label_of(
    names: Sequence[str], asked: Asked, head: Sequence[Row], first: str, second: str
) -> tuple[Parts, dict[str, float]] | None:
    """The parts that tell the label, and its code; None where there is no label column.

    The first column of a known name whose values are clear counts. Raises InputError where there are such columns, but none
    is clear.
    """
    there = {spelled(n): n for n in names if n not in (first, second)}
    marked = next((o for o in ONE_HOT if set(o) <= set(names)), None)
    if marked is not None and "label" not in asked.columns:
        return {"label": marked}, {}
    if "label" in asked.columns:
        known = [asked.columns["label"]]
    else:
        by_side = [k for k in there if labels.speaks_of(k, first, second)]
        found = (there[k] for k in dict.fromkeys((*LABELS, *by_side)) if k in there)
        known = [n for n in found if labels.word_like(value(r, n) for r in head)]
        known.sort(key=lambda n: all(value(r, n) is None for r in head))  # an empty column comes last
    models = beside(names, first, second, MODELS)
    unclear: InputError | None = None
    clear: list[tuple[str, dict[str, float], dict[str, str]]] = []
    for name in known:
        values = [v for r in head if by_name(v := value(r, name), r, models) is None]
        try:
            code, scale = labels.code(name, values, first, second, asked)
        except InputError as error:
            unclear = unclear or error
            continue
        clear.append((name, code, scale))
    if not clear:
        if unclear is not None:
            raise unclear
        return None
    (name, code, scale), *others = clear
    for other, its, _ in others:
        if "safer" in other:  # another question
            continue
        said = [(code.get(labels.plain(value(r, name))), its.get(labels.plain(value(r, other)))) for r in head]
        both = [one * two for one, two in said if one and two]
        if 2 * sum(v < 0 for v in both) > len(both):
            what = f"the columns {name!r} and {other!r} name different answers as the better one"
            raise InputError(what, hint=f"Choose one: --columns label={name}")
    unused = {"unused labels": tuple(n for n in known if n != name)} if len(known) > 1 else {}
    return {"label": name, **scale, **unused}, code


def by_name(given: Any, row: Row, models: Sequence[str] | None) -> float | None:
    """What a label says that is the name of a model of this row."""
    won = [isinstance(given, str) and value(row, m) == given for m in models or ()]
    return (1.0 if won[0] else -1.0) if won.count(True) == 1 else None


def verdict_of(row: Row, columns: Columns, asked: Asked) -> Verdict:
    """What the row says: by a label, by columns of which one is marked (first, second, tie), or by scores."""
    names = columns.all("label") or columns.all("scores")
    given = [value(row, n) for n in names]
    said = ", ".join(map(labels.told, names, given))
    if len(names) == 1:
        found = by_name(given[0], row, columns.all("models"))
        return Verdict(labels.meaning(given[0], columns, asked) if found is None else found, said)
    if len(names) == 3:
        marks = [labels.plain(g) in ("1", "true") for g in given]
        return Verdict((1.0, -1.0, 0.0)[marks.index(True)] if sum(marks) == 1 else None, said)
    one, two = map(number, given)
    return Verdict(None if one is None or two is None else float((one > two) - (one < two)), said)


def asked_of(names: Sequence[str], asked: Asked, head: Sequence[Row], used: Iterable[str]) -> dict[str, str]:
    """The columns of what was asked; a prompt that is an object is read by its text field."""
    found = asking(names, asked, used)
    if "prompt" not in found and (other := first_of(names, ("context", "info"))):
        found["prompt"] = other
    prompt = found.get("prompt")
    first = next((v for r in head if isinstance(v := value(r, prompt), Mapping)), None)
    if prompt is not None and first is not None and "role" not in first:
        fields = ("full_text", "text", "post", "prompt", "content", "question", "article")
        field = next((f for f in fields if any(isinstance(value(r, f"{prompt}.{f}"), str) for r in head)), None)
        if field is not None:
            found["prompt"] = f"{prompt}.{field}"
        elif prompt == "info":
            del found["prompt"]
    return found


def in_order(first: str, second: str, asked: Asked) -> tuple[str, str]:
    """Columns that the user named the other way round, in the order that words like ``A`` and ``model_b`` have."""
    ends = tuple(spelled(n).rpartition("_")[2] for n in (second, first))
    return (second, first) if ends in _ENDS and not {"first", "second"} & asked.labels.keys() else (first, second)


def order_of(label: float | None) -> tuple[int, int]:
    """The places of the better and the worse answer: their own order where it is a tie or missing."""
    return (1, 0) if label is not None and label < 0 else (0, 1)


def judged(row: Row, columns: Columns, asked: Asked, verdict: Verdict) -> Pair | Fault:
    """The pair of a row, the better answer first, or both in their own order where it is a tie or missing."""
    sides = [str(columns[part]) for part in ("first", "second")]
    better, worse = (sides[i] for i in order_of(verdict.label))
    pair = pair_in(row, columns, value(row, better), value(row, worse), (better, worse))[1]
    return finished(pair, row, columns, asked, verdict)


def finished(pair: Pair | Fault, row: Row, columns: Columns, asked: Asked, verdict: Verdict) -> Pair | Fault:
    """The pair with what its label and the columns beside the answers say."""
    if isinstance(pair, Fault):
        return pair
    label, order = verdict.label, order_of(verdict.label)
    more: dict[str, Any] = {}
    if columns.scored:
        chosen, rejected = (number(value(row, columns.all("scores")[i])) for i in order)
        pair.scores = chosen, rejected
        if "label" not in columns.parts:
            more["pd_margin"] = None if chosen is None or rejected is None else chosen - rejected
    if "scale" in columns.parts or asked.ties == "keep":
        more["pd_strength"] = None if label is None else abs(label)
    more |= {k: v for k, v in verdict.extra.items() if v is not None or k not in more}
    more |= information(*(_info(row, columns, i) for i in order))
    if label:
        pair.position = order[0]
    if label is None:
        pair.fault = Fault("missing_label", verdict.said)
    elif label == 0 and asked.ties == "keep":
        pair.tie = True
    elif label == 0:
        pair.fault = Fault("tie", verdict.said)
    return replace(pair, extra=more or None)


def _info(row: Row, columns: Columns, i: int) -> dict[str, Any]:
    """What else the source says of an answer: its model, and the other fields of an object that holds it."""
    out: dict[str, Any] = {}
    if models := columns.all("models"):
        out["model"] = value(row, models[i])
    parent, _, field = str(columns[("first", "second")[i]]).rpartition(".")
    if parent and not field.isdigit() and isinstance(held := value(row, parent), Mapping):
        out |= {k: v for k, v in held.items() if k != field}
    return out
