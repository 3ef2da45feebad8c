"""Checks of the pairs as they stand, before any id is made: cells, messages, weights, what the two splits share."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from prefdata.pairs import ASKS, SIDES, Message, blank, images_of, kind_of, message_text
from prefdata.training.checks import Case, Check, Checks, Status, of_rows
from prefdata.training.data import Pairs

_LIKE_NULL = {"nan", "none", "null", "<na>"}
_CHARACTERS = 2  # a text this short is a character, not an answer
_LEAST_PROMPT = 20  # characters; a shorter one may well begin an answer
_MARK = 3  # characters of a special token, above which nobody types it by chance
_MANY = 0.01  # of the pairs: no longer a few odd ones


def _splits(case: Case) -> Iterator[Pairs]:
    yield case.data.train
    if case.data.held is not None:
        yield case.data.held


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return False
    content = value.get("content")
    return isinstance(content, str | list) or (content is None and bool(value.get("tool_calls")))


def _form(value: Any) -> str:
    """text, messages, or what else the cell holds."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, list) and all(map(_is_message, value)):
        return "messages"
    return "a list that holds no messages" if isinstance(value, list) else kind_of(value)


def rows(case: Case) -> Iterator[Check]:
    """Something to train on, and enough to say something of the rest."""
    n, held = len(case.data.train), len(case.data.held) if case.data.held is not None else 0
    what = f"{n:,} pairs to train on, {held:,} held out"
    if not n:
        yield Check("no_rows", "fail", "0 pairs to train on")
    elif case.data.held is not None and not held:
        yield Check(
            "no_rows", "fail", f"{what}: the split {case.data.held_name} is empty, and an evaluation would give nothing"
        )
    elif not held:
        yield Check("no_rows", "warn", f"{what}: nothing will be evaluated")
    else:
        yield Check("no_rows", "ok", f"{what} (their accuracy is known to ±{98 / np.sqrt(held):.0f} points)")


def cells(case: Case) -> Iterator[Check]:
    """Every cell is text or a list of messages, and all of one kind: TRL decides by the first row alone."""
    odd, mixed, seen, n = list[str](), list[str](), dict[str, int](), 0
    whole = "messages" if case.data.chat else "text"
    for pairs in _splits(case):
        n += len(pairs)
        for i, forms in enumerate(zip(*(map(_form, pairs.columns[s]) for s in SIDES), strict=True)):
            other = [f for f in forms if f not in ("text", "messages")]
            if other:
                odd.append(pairs.ids[i])
                seen[other[0]] = seen.get(other[0], 0) + 1
            elif set(forms) != {whole}:
                mixed.append(pairs.ids[i])
    kinds = ", ".join(f"{k} in {c:,}" for k, c in list(seen.items())[:5])
    what = f"a cell is neither text nor messages ({kinds}). TRL stops there and names no row"
    yield of_rows("non_text_cell", "fail", n, odd, what, "every cell is text or messages")
    what = f"not of the form of the first pair, which is {whole}. TRL decides by its first row alone, and breaks on the others"
    yield of_rows("mixed_form", "fail", n, mixed, what, f"all cells are {whole}")


def answers(case: Case) -> Iterator[Check]:
    """Prompts and answers of nothing, of a word for nothing, of one character; the prompt inside the answer."""
    empty, null, unasked, roles, repeated = (list[str]() for _ in range(5))
    n, characters, lengths = 0, 0, list[int]()
    for pairs in _splits(case):
        n += len(pairs)
        before = [_beginning(list(map(_said, pairs.columns[s]))) for s in ("chosen", "rejected")]
        for i, (name, prompt, chosen, rejected) in enumerate(
            zip(pairs.ids, *(pairs.columns[s] for s in SIDES), strict=True)
        ):
            said = [_said(chosen), _said(rejected)]
            own = [t.removeprefix(p).strip().lower() for t, p in zip(said, before, strict=True)]
            lengths += map(len, said)
            if any(map(blank, said)):
                empty.append(name)
            if any(t in _LIKE_NULL for t in own):
                null.append(name)
            if blank(pairs.text("prompt", i)):
                unasked.append(name)
            characters += max(map(len, said)) <= _CHARACTERS
            if isinstance(prompt, list) and isinstance(chosen, list) and isinstance(rejected, list):
                last = [side[-1].get("role") if side and _is_message(side[-1]) else None for side in (chosen, rejected)]
                if any(r is None or r in ASKS for r in last) or (prompt and prompt[-1].get("role") == "assistant"):
                    roles.append(name)
                if prompt and prompt in (chosen[: len(prompt)], rejected[: len(prompt)]):
                    repeated.append(name)
            elif isinstance(prompt, str) and len(prompt) > _LEAST_PROMPT and any(t.startswith(prompt) for t in said):
                repeated.append(name)
    what = "an answer is empty or blank. Training goes on with accuracy 1.0: the model is taught to say nothing"
    yield of_rows("empty_answer", "fail", n, empty, what, "no answer is empty")
    what = "the prompt is empty: the first token of the answer is never trained, and nothing was asked"
    yield of_rows("empty_prompt", "warn", n, unasked, what, "no prompt is empty")
    what = "an answer is the word nan, None or null, as missing cells become when they are made text"
    yield of_rows(
        "null_word", "fail" if len(null) > _MANY * n else "warn", n, null, what, "no answer is a word for nothing"
    )
    middle = int(np.median(lengths)) if lengths else 0
    turned = characters > 0.5 * n
    what = f"{characters:,} of {n:,} pairs have answers of {_CHARACTERS} characters or fewer"
    what += ": a text was taken apart where rows were meant" if turned else f"; {middle:,} is the median"
    yield Check("rows_of_characters", "fail" if turned else "ok", what)
    what = "an answer does not end with the assistant's turn, or the prompt does"
    yield of_rows(
        "last_role",
        "fail" if len(roles) > _MANY * n else "warn",
        n,
        roles,
        what,
        "prompts end with a question, answers with the assistant",
    )
    what = "an answer begins with the whole prompt, which would be trained as part of the answer"
    yield of_rows(
        "prompt_repeated",
        "fail" if len(repeated) > 0.5 * n else "warn",
        n,
        repeated,
        what,
        "no answer repeats its prompt",
    )


def _said(side: Any) -> str:
    """The last message of an answer, or its text; a picture counts as something said."""
    if isinstance(side, list):
        last: Message = side[-1] if side and isinstance(side[-1], dict) else {}
        return message_text(last)
    return side if isinstance(side, str) else ""


def _beginning(texts: list[str]) -> str:
    """What all texts begin with, to its last sign that is no letter: ``Output: ``, which hides a cell that was missing."""
    shared = os.path.commonprefix([min(texts), max(texts)]) if len(texts) > 1 else ""  # noqa: RUF071 (by characters is meant)
    return shared[: max((m.end() for m in re.finditer(r"\W", shared)), default=0)]


def pictures(case: Case) -> Iterator[Check]:
    """Pairs with an image: TRL would take all for a vision set, or train the mark of the image as text."""
    found, n = list[str](), 0
    for pairs in _splits(case):
        n += len(pairs)
        marked = [False] * len(pairs) if pairs.pictures is None else pairs.pictures.tolist()
        sides = zip(*(pairs.columns[s] for s in SIDES), strict=True)
        found += [
            pairs.ids[i] for i, row in enumerate(sides)
            if marked[i] or any(isinstance(v, list) and all(map(_is_message, v)) and images_of(v) for v in row)
        ]  # fmt: skip
    yield of_rows(
        "image_rows", "fail", n, found, "they have an image, and a model of text is trained", "no pair has an image"
    )


def control_tokens(case: Case) -> Iterator[Check]:
    """Special tokens typed in the texts become real ones."""
    marks = [t for t in case.tokenizer.all_special_tokens if len(t) >= _MARK]
    found, n = list[str](), 0
    look = re.compile("|".join(map(re.escape, marks))).search if marks else None
    for pairs in _splits(case):
        n += len(pairs)
        if look is not None:
            found += [pairs.ids[i] for i in range(len(pairs)) if any(look(pairs.text(s, i)) for s in SIDES)]
    what = f"a special token stands in the text ({', '.join(marks[:4])}). The model sees a real one: a turn or a text ends there"
    yield of_rows(
        "control_tokens",
        "fail" if len(found) > 0.5 * n else "warn",
        n,
        found,
        what,
        "no special token stands in the texts",
    )


def weights(case: Case) -> Iterator[Check]:
    """Weights are finite and not negative, probabilities between 0 and 1, and something counts."""
    pairs = case.data.train
    with np.errstate(invalid="ignore"):
        good = np.isfinite(pairs.weight) & (pairs.weight >= 0) & (pairs.flip >= 0) & (pairs.flip <= 1)
    bad = [pairs.ids[i] for i in np.flatnonzero(~good).tolist()]
    if len(pairs) and not bad and not pairs.weight.any():
        yield Check("bad_weight", "fail", f"all {len(pairs):,} pairs have weight 0: nothing would be learnt")
        return
    fine = "all pairs count alike"
    if not bad and not pairs.plain:
        none = int((pairs.weight == 0).sum())
        fine = f"mean weight {pairs.weight.mean():.3g} ({none:,} are 0), mean probability of a wrong label {pairs.flip.mean():.3g}"
    what = "pd_weight is negative or no number, or pd_flip_prob is not between 0 and 1"
    yield of_rows("bad_weight", "fail", len(pairs), bad, what, fine)


def overlap(case: Case) -> Iterator[Check]:
    """Prompts on both sides of the split flatter the evaluation; case, spaces and punctuation do not count."""
    held = case.data.held
    if held is None or not len(held):
        yield Check("eval_overlap", "skipped", "no pairs are held out")
        return
    seen = {_folded(case.data.train.prompt(i)) for i in range(len(case.data.train))}
    shared = [held.ids[i] for i in range(len(held)) if _folded(held.prompt(i)) in seen]
    status: Status = "fail" if len(shared) > 0.5 * len(held) else "warn"
    what = f"held out, but the prompt is also one of {len(seen):,} trained on"
    yield of_rows("eval_overlap", status, len(held), shared, what, "no prompt stands on both sides")


def _folded(text: str) -> str:
    """The letters, digits and signs of a text; a text of nothing else stays as it is."""
    return " ".join(re.findall(r"\w+", text.lower())) or text


ALL: Checks = {
    rows: ("no_rows",),
    cells: ("non_text_cell", "mixed_form"),
    answers: ("empty_answer", "empty_prompt", "null_word", "rows_of_characters", "last_role", "prompt_repeated"),
    pictures: ("image_rows",),
    control_tokens: ("control_tokens",),
    weights: ("bad_weight",),
    overlap: ("eval_overlap",),
}
