"""Checks of the pairs as they stand, before any id is made: cells, messages, weights, what the two splits share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from prefdata.pairs import SIDES, images_of
from prefdata.training.checks import Case, Check, Status
from prefdata.training.data import Pairs

_LIKE_NULL = {"nan", "none", "null", "<na>"}
_CHARACTERS = 2  # a text this short is a character, not an answer
_SHOWN = 20


def _splits(case: Case) -> Iterator[Pairs]:
    yield case.data.train
    if case.data.held is not None:
        yield case.data.held


def _told(word: str, status: Status, pairs: int, rows: list[str], what: str, fine: str) -> Check:
    """One check out of the rows it is about."""
    if not rows:
        return Check(word, "ok", fine)
    return Check(word, status, f"{len(rows):,} of {pairs:,} pairs: {what}", tuple(rows[:_SHOWN]))


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return False
    content = value.get("content")
    return isinstance(content, str | list) or bool(value.get("tool_calls"))


def cells(case: Case) -> Iterator[Check]:
    """Every cell is text or a list of messages, and all of one kind: TRL decides by the first row alone."""
    odd, mixed, n = list[str](), list[str](), 0
    for pairs in _splits(case):
        n += len(pairs)
        for i, row in enumerate(zip(*(pairs.columns[s] for s in SIDES), strict=True)):
            texts = [isinstance(v, str) for v in row]
            messages = [isinstance(v, list) and all(map(_is_message, v)) for v in row]
            if not all(t or m for t, m in zip(texts, messages, strict=True)):
                odd.append(pairs.ids[i])
            elif any(texts) and any(messages) or any(messages) != case.data.chat:
                mixed.append(pairs.ids[i])
    what = "a cell is missing, a number, or neither text nor messages; TRL stops there without saying where, or trains on the word 'nan'"
    yield _told("non_text_cell", "fail", n, odd, what, "every cell is text or messages")
    yield _told("mixed_form", "fail", n, mixed, "text and messages are mixed, or differ from the first pair", "all pairs have one form")


def answers(case: Case) -> Iterator[Check]:
    """Answers of nothing, of a word for nothing, or of one character."""
    empty, null, n, lengths = list[str](), list[str](), 0, list[int]()
    pictures, roles, repeated, characters = list[str](), list[str](), list[str](), 0
    for pairs in _splits(case):
        n += len(pairs)
        for i in range(len(pairs)):
            prompt, chosen, rejected = (pairs.columns[s][i] for s in SIDES)
            seen = [_answer(v) for v in (chosen, rejected)]
            if any(not t.strip() for t in seen):
                empty.append(pairs.ids[i])
            if any(t.strip().lower() in _LIKE_NULL for t in seen):
                null.append(pairs.ids[i])
            if all(len(t) <= _CHARACTERS for t in (*seen, prompt if isinstance(prompt, str) else "abc")):
                characters += 1
            lengths += map(len, seen)
            if isinstance(prompt, list):
                if any(images_of(v) for v in (prompt, chosen, rejected)):
                    pictures.append(pairs.ids[i])
                if not chosen or not rejected or chosen[-1]["role"] != "assistant" or rejected[-1]["role"] != "assistant":
                    roles.append(pairs.ids[i])
                if prompt and (chosen[: len(prompt)] == prompt or rejected[: len(prompt)] == prompt):
                    repeated.append(pairs.ids[i])
            elif len(prompt) > 20 and (chosen.startswith(prompt) or rejected.startswith(prompt)):
                repeated.append(pairs.ids[i])
    yield _told("empty_answer", "fail", n, empty, "an answer is empty or blank: TRL learns to say nothing, with accuracy 1.0", "no answer is empty")
    share = len(null) / max(n, 1)
    what = "an answer is the word 'nan', 'None' or 'null', as cells become that were missing"
    yield _told("null_word", "fail" if share > 0.01 else "warn", n, null, what, "no answer is a word for nothing")
    turned = characters > 0.5 * n
    middle = int(np.median(lengths)) if lengths else 0
    what = f"{characters:,} of {n:,} pairs are single characters: a text was iterated where rows were meant" if turned else f"answers have {middle:,} characters in the middle"
    yield Check("rows_of_characters", "fail" if turned else "ok", what)
    yield _told("image_rows", "fail", n, pictures, "pictures in a training of text", "no pictures")
    yield _told("last_role", "fail", n, roles, "an answer does not end with the assistant's turn", "every answer is the assistant's")
    yield _told("repeated_prompt", "warn", n, repeated, "the answer begins with the prompt: it would be trained as answer", "no answer repeats its prompt")


def _answer(value: Any) -> str:
    if isinstance(value, str):
        return value
    last = value[-1] if value else {}
    if last.get("tool_calls"):
        return "tool call"
    content = last.get("content")
    return content if isinstance(content, str) else "parts" if content else ""


def control_tokens(case: Case) -> Iterator[Check]:
    """Special tokens typed in the texts become real ones, and fake turns."""
    if case.tokenizer is None:
        return
    marks = [t for t in case.tokenizer.all_special_tokens if len(t) > 3]
    found, n = list[str](), 0
    for pairs in _splits(case):
        n += len(pairs)
        found += [pairs.ids[i] for i in range(len(pairs)) if any(m in pairs.text(s, i) for s in SIDES for m in marks)]
    what = f"a special token of the tokenizer stands in the text ({', '.join(marks[:4])}): the model sees a real one"
    yield _told("control_token", "warn", n, found, what, "no special token stands in the texts")


def weights(case: Case) -> Iterator[Check]:
    """Weights are finite and not negative, probabilities between 0 and 1."""
    pairs = case.data.train
    bad = ~np.isfinite(pairs.weight) | (pairs.weight < 0) | ~np.isfinite(pairs.flip) | (pairs.flip < 0) | (pairs.flip > 1)
    rows = [pairs.ids[i] for i in np.flatnonzero(bad).tolist()]
    fine = "all pairs count alike" if pairs.plain else f"mean weight {pairs.weight.mean():.3g}, mean flip probability {pairs.flip.mean():.3g}"
    yield _told("bad_weight", "fail", len(pairs), rows, "pd_weight is negative or pd_flip_prob is not between 0 and 1", fine)
    if len(pairs) and not rows and float(pairs.weight.sum()) == 0:
        yield Check("bad_weight", "fail", "every pair has weight 0: nothing is learnt")


def overlap(case: Case) -> Iterator[Check]:
    """Prompts on both sides of the split flatter the evaluation."""
    held = case.data.held
    if held is None or not len(held):
        yield Check("eval_overlap", "skipped", "no pairs are held out")
        return
    seen = {_folded(case.data.train.prompt(i)) for i in range(len(case.data.train))}
    shared = [held.ids[i] for i in range(len(held)) if _folded(held.prompt(i)) in seen]
    status: Status = "fail" if len(shared) > 0.5 * len(held) else "warn"
    yield _told("eval_overlap", status, len(held), shared, "the prompt is also one of the training pairs", "no prompt is on both sides")


def _folded(text: str) -> str:
    return " ".join(text.lower().split())


def sizes(case: Case) -> Iterator[Check]:
    """Enough pairs to say something of the held-out ones."""
    n, held = len(case.data.train), len(case.data.held) if case.data.held is not None else 0
    if not n:
        yield Check("no_rows", "fail", "no pairs are left to train on")
        return
    half = 98 / math.sqrt(held) if held else math.inf
    what = f"{n:,} pairs to train on, {held:,} held out" + (f" (accuracy to about ±{half:.0f} points)" if held else ": nothing will be evaluated")
    yield Check("no_rows", "ok" if held else "warn", what)


ALL = (sizes, cells, answers, control_tokens, weights, overlap)
