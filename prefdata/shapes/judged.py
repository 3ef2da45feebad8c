"""From two answers and what a label says of them to a pair: what the readers of labels share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prefdata.errors import InputError
from prefdata.pairs import Fault, Pair
from prefdata.shapes import labels
from prefdata.shapes.columns import Asked, Columns, Row, asking, first_of, number, value
from prefdata.shapes.sides import pair_in

PARTS = ("prompt", "context", "system", "first", "second", "label")
LABELS = (
    "gold", "gold_label", "gt_choice", "gt_label", "better_response_id", "better_response", "better_answer", "better",
    "overall_preference", "preference", "winner", "preferred", "preferred_response", "preferred_answer",
    "preferred_output", "choice", "chosen", "label", "labels", "verdict", "vote", "judgment", "judgement", "selected",
    "best", "answer", "preference_strength", "safer_response_id",
)  # fmt: skip
ONE_HOT = (("winner_model_a", "winner_model_b", "winner_tie"), ("winner_a", "winner_b", "winner_tie"))
MODELS = ("model", "generator", "source", "model_name", "policy")
_ENDS = (("1", "2"), ("0", "1"), ("a", "b"), ("first", "second"), ("left", "right"))


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
) -> tuple[dict[str, str | tuple[str, ...]], dict[str, float]] | None:
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
    for name in known:
        values = [v for r in head if by_name(v := value(r, name), r, models) is None]
        try:
            code, scale = labels.code(name, values, first, second, asked)
        except InputError as error:
            unclear = unclear or error
            continue
        parts: dict[str, str | tuple[str, ...]] = {"label": name}
        if scale:
            parts["scale"] = scale
        if len(known) > 1:
            parts["unused labels"] = tuple(n for n in known if n != name)
        return parts, code
    if unclear is not None:
        raise unclear
    return None


def by_name(given: Any, row: Row, models: Sequence[str] | None) -> float | None:
    """What a label says that is the name of a model of this row."""
    won = [isinstance(given, str) and value(row, m) == given for m in models or ()]
    return (1.0 if won[0] else -1.0) if won.count(True) == 1 else None


def verdict(row: Row, columns: Columns, asked: Asked) -> tuple[float | None, str]:
    """What the row says of the first answer (see ``labels``), and in which words: by a label, by columns of which one is
    marked (first, second, tie), or by scores.
    """
    names = columns.all("label") or columns.all("scores")
    given = [value(row, n) for n in names]
    said = ", ".join(map(labels.told, names, given))
    if len(names) == 1:
        found = by_name(given[0], row, columns.all("models"))
        return labels.meaning(given[0], columns, asked) if found is None else found, said
    if len(names) == 3:
        marks = [labels.plain(g) in ("1", "true") for g in given]
        return (1.0, -1.0, 0.0)[marks.index(True)] if sum(marks) == 1 else None, said
    one, two = map(number, given)
    return None if one is None or two is None else float((one > two) - (one < two)), said


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


def not_two(row: Row, columns: Columns) -> Fault | None:
    """The fault of a row whose list of answers, unlike those of the first rows, does not hold two."""
    if len(columns.needs) == 1 and isinstance(held := row.get(columns.needs[0]), list) and len(held) != 2:
        return Fault("bad_type", f"{columns.needs[0]} holds {len(held)} answers, not two")
    return None


def judged(
    row: Row, columns: Columns, asked: Asked, label: float | None, said: str, extra: Mapping[str, Any] | None = None
) -> Pair | Fault:
    """The pair of a row by its label: the better answer first, or both in their own order where it is a tie or missing.

    ``said`` are the words of the label for a fault; ``extra`` further columns of the pair.
    """
    first, second = columns["first"], columns["second"]
    assert first is not None and second is not None
    sides = ((first, 0), (second, 1))
    (better, at), (worse, other) = sides if label is None or label >= 0 else sides[::-1]
    pair = pair_in(row, columns, value(row, better), value(row, worse), (better, worse))
    return finished(pair, row, columns, asked, label, said, (at, other), extra)


def finished(
    pair: Pair | Fault, row: Row, columns: Columns, asked: Asked, label: float | None, said: str,
    order: tuple[int, int], extra: Mapping[str, Any] | None = None,
) -> Pair | Fault:  # fmt: skip
    """The pair with what its label and the columns beside the answers say; ``order`` are the places of chosen and rejected."""
    if isinstance(pair, Fault):
        return pair
    more: dict[str, Any] = {}
    if columns.scored:
        found = [number(value(row, columns.all("scores")[i])) for i in order]
        pair.scores = found[0], found[1]
        if "label" not in columns.parts:
            more["pd_margin"] = None if found[0] is None or found[1] is None else found[0] - found[1]
    if "scale" in columns.parts or asked.ties == "keep":
        more["pd_strength"] = None if label is None else abs(label)
    more |= {k: v for k, v in (extra or {}).items() if v is not None or k not in more}
    for key, i in zip(("pd_chosen_info", "pd_rejected_info"), order, strict=True):
        if info := _info(row, columns, i):
            more[key] = info
    if label is None:
        pair.fault = Fault("missing_label", said)
    elif label == 0 and asked.ties == "keep":
        pair.tie = True
    elif label == 0:
        pair.fault = Fault("tie", said)
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
