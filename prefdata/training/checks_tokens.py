"""Checks of token ids as TRL makes them: what it leaves out, what is cut, and what is left to learn from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from prefdata.ragged import Ints, Ragged, common_prefix
from prefdata.training.checks import SHOWN, Case, Check, Checks, Status, of_rows
from prefdata.training.prepare import Prepared

_LOST, _EQUAL, _DILUTED, _CUT, _PARTED = 0.1, 0.1, 0.2, 0.1, 0.5  # shares above which a check fails or warns
_SHORT, _LONG = 8, 16  # tokens: an answer of the second length that is cut to the first says nothing any more
_SYSTEMATIC = 0.5
_BEHIND = 3  # tokens from the end where the end token is looked for: templates put a line end behind it


def _sides(case: Case) -> list[tuple[str, Prepared]]:
    return [(n, p) for n, p in (("train", case.train), ("eval", case.held)) if p is not None]


def _kept(case: Case, made: Prepared) -> tuple[Ints, Ints, Ints]:
    """Tokens (entries,) of the prompt and of both answers that are inside the window."""
    sizes = made.lengths()
    room = case.plan.max_length - sizes["prompt"]
    return sizes["prompt"], np.minimum(sizes["chosen"], room), np.minimum(sizes["rejected"], room)


def lost(case: Case) -> Iterator[Check]:
    """Pairs that TRL leaves out without a word, because the prompt alone fills the window."""
    status: Status = "ok"
    told, names = [], list[str]()
    for name, made in _sides(case):
        before, after = len(made.pairs), len(made.dataset)
        gone = [made.pairs.ids[i] for i in made.left.tolist()]
        names += gone
        told.append(
            f"{name}: {before:,} pairs, {after:,} left" + (f" ({100 * len(gone) / before:.1f} % lost)" if gone else "")
        )
        if not after or len(gone) > _LOST * before:
            status = "fail"
        elif gone and status == "ok":
            status = "warn"
    longest = max(int(made.prompt_tokens.max(initial=0)) for _, made in _sides(case))
    what = f"{'; '.join(told)}; max_length {case.plan.max_length:,}, longest prompt {longest:,} tokens"
    yield Check("rows_lost", status, what, tuple(names[:SHOWN]))


def prefix(case: Case) -> Iterator[Check]:
    """The ids of the prompt begin those of prompt and answer; else its end is lost, or trained as answer."""
    parted, n = list[str](), 0
    for _, made in _sides(case):
        parted += [made.pairs.ids[i] for i in made.cut_prompts.tolist()]
        n += len(made.dataset)
    what = "the prompt's ids do not begin those of prompt and answer (tokens merge across the border, or the template differs): the end of the prompt is left out"
    status: Status = "fail" if len(parted) > _PARTED * n else "warn"
    yield of_rows("prompt_not_prefix", status, n, parted, what, "every prompt begins its whole")


def cuts(case: Case) -> Iterator[Check]:
    """Answers that are cut, equal within the window, or equal anyhow: the last two give no gradient."""
    cut, equal, n, idle, trained = list[str](), list[str](), 0, list[str](), 0
    for name, made in _sides(case):
        sizes = made.lengths()
        _, chosen, rejected = _kept(case, made)
        n += len(made.dataset)
        shorter = (chosen < sizes["chosen"]) | (rejected < sizes["rejected"])
        same = (chosen == rejected) & (common_prefix(made.ids["chosen"], made.ids["rejected"]) >= chosen)
        cut += made.named(shorter)
        equal += made.named(same & shorter)
        if name == "train":
            trained = len(made.dataset)
            idle = made.named(same | (made.pairs.weight[made.rows] == 0))
    what = f"an answer is cut at {case.plan.max_length:,} tokens: what comes behind is not compared, and no end is learnt. Not a cause of NaN"
    status: Status = "warn" if len(cut) > _CUT * n else "ok"
    yield of_rows("cut_answers", status, n, cut, what, "no answer is cut")
    what = f"both answers are the same tokens within {case.plan.max_length:,}: loss ln 2, margin 0, no gradient"
    yield of_rows(
        "identical_after_cut",
        "fail" if len(equal) > _EQUAL * n else "warn",
        n,
        equal,
        what,
        "no two answers become the same by cutting",
    )
    share = len(idle) / max(trained, 1)
    what = f"no gradient comes from them (equal answers or weight 0), {100 * share:.1f} % of every step"
    yield of_rows(
        "zero_signal",
        "fail" if share > _DILUTED else "warn",
        trained,
        idle,
        what,
        "every pair to train on has something to learn from",
    )


def labels(case: Case) -> Iterator[Check]:
    """Tokens that the loss is made of: none at all in an answer, or hardly any of a long one."""
    none, few, n = list[str](), list[str](), 0
    middle: list[Any] = []
    for _, made in _sides(case):
        sizes = made.lengths()
        prompt, chosen, rejected = _kept(case, made)
        n += len(made.dataset)
        none += made.named(np.minimum(chosen, rejected) - (prompt == 0) <= 0)  # the very first token is never a target
        few += made.named(
            ((chosen < _SHORT) & (sizes["chosen"] >= _LONG)) | ((rejected < _SHORT) & (sizes["rejected"] >= _LONG))
        )
        middle += [chosen, rejected]
    tokens = np.concatenate(middle)
    fine = f"median answer {int(np.median(tokens)) if len(tokens) else 0:,} tokens"
    what = "an answer has no token that is trained: its loss is a mean over nothing"
    yield of_rows("no_labels", "fail", n, none, what, f"every answer has tokens to train, {fine}")
    share = len(few) / max(n, 1)
    what = f"an answer of {_LONG} tokens or more is cut to fewer than {_SHORT} at max_length {case.plan.max_length:,}"
    yield of_rows(
        "degenerate_length",
        "fail" if share > _CUT else "warn",
        n,
        few,
        what,
        f"no long answer is cut to a stump, {fine}",
    )


def marks(case: Case) -> Iterator[Check]:
    """Exactly one start token where the tokenizer has the habit, exactly one end token behind an answer that is not cut."""
    tokenizer, n = case.tokenizer, sum(len(made.dataset) for _, made in _sides(case))
    start = tokenizer.bos_token_id
    habit = start is not None and tokenizer("x")["input_ids"][:1] == [start]
    twice, without = list[str](), list[str]()
    for _, made in _sides(case):
        first, second = (_nth(made.ids["prompt"], made.ids["chosen"], k) for k in (0, 1))
        if start is not None:
            twice += made.named((first == start) & (second == start))
            without += made.named((first != start) & habit)
    what = (
        f"two start tokens {tokenizer.bos_token!r}"
        if len(twice) >= len(without)
        else f"no start token {tokenizer.bos_token!r}, which the tokenizer puts before text"
    )
    fine = f"one start token {tokenizer.bos_token!r}" if habit else "no start token is put, and none stands twice"
    yield of_rows("start_tokens", _often(max(twice, without, key=len), n), n, max(twice, without, key=len), what, fine)
    yield _ends(case, n)


def _ends(case: Case, n: int) -> Check:
    tokenizer = case.tokenizer
    special = {i for i in tokenizer.all_special_ids if i != tokenizer.eos_token_id}
    twice, other, without = list[str](), list[str](), list[str]()
    for _, made in _sides(case):
        sizes = made.lengths()
        _, *kept = _kept(case, made)
        found = np.zeros((3, len(made.dataset)), np.bool_)
        for side, inside in zip(("chosen", "rejected"), kept, strict=True):
            last = np.stack([_last(made.ids[side], k) for k in range(_BEHIND)])
            ends, marked = last == tokenizer.eos_token_id, np.isin(last, list(special))
            whole = inside == sizes[side]
            found[0] |= whole & (ends[:-1] & ends[1:]).any(0)
            found[1] |= whole & ~ends.any(0) & marked.any(0)
            found[2] |= whole & ~ends.any(0) & ~marked.any(0)
        for names, mask in zip((twice, other, without), found, strict=True):
            names += made.named(mask)
    end = tokenizer.eos_token
    if without:
        what = f"an answer carries no end token {end!r}: the model is not taught to stop"
        return of_rows("end_tokens", _often(without, n), n, without, what, "")
    if other:
        what = f"an answer ends with another special token than {end!r}: generation must be told to stop at it"
        return of_rows("end_tokens", "warn", n, other, what, "")
    what = f"an answer ends with two end tokens {end!r}"
    return of_rows(
        "end_tokens", _often(twice, n), n, twice, what, f"one end token {end!r} behind every answer that is not cut"
    )


def _often(names: list[str], n: int) -> Status:
    return "fail" if len(names) > _SYSTEMATIC * n else "warn"


def _nth(a: Ragged, b: Ragged, k: int) -> Ints:
    """Token ``k`` of the sequences a + b, -1 behind their end."""
    out = np.full(len(a), -1, np.int64)
    own = a.lengths > k
    out[own] = a.ids[a.at[:-1][own] + k]
    rest = ~own & (a.lengths + b.lengths > k)
    out[rest] = b.ids[(b.at[:-1] + k - a.lengths)[rest]]
    return out


def _last(a: Ragged, k: int) -> Ints:
    """Token ``k`` from the end, -1 before the beginning."""
    out = np.full(len(a), -1, np.int64)
    has = a.lengths > k
    out[has] = a.ids[(a.at[1:] - 1 - k)[has]]
    return out


def vocabulary(case: Case) -> Iterator[Check]:
    """Ids against the rows of the embedding; a token beyond them is harmless as long as it is nowhere used."""
    rows, tokens, largest, names = case.facts.vocabulary, len(case.tokenizer), 0, list[str]()
    for _, made in _sides(case):
        for ids in made.ids.values():
            largest = max(largest, int(ids.ids.max(initial=0)))
            if largest >= rows:
                names += made.named(np.unique(np.searchsorted(ids.at, np.flatnonzero(ids.ids >= rows), "right") - 1))
    what = (
        f"the tokenizer has {tokens:,} tokens, the embedding {rows:,} rows; the largest id in the pairs is {largest:,}"
    )
    names = list(dict.fromkeys(names))
    if names:
        what += f": IndexError in {len(names):,} pairs"
    status: Status = "fail" if names else "warn" if tokens > rows else "ok"
    yield Check("vocabulary_mismatch", status, what, tuple(names[:SHOWN]))


FIRST: Checks = {lost: ("rows_lost",)}
ALL: Checks = {
    vocabulary: ("vocabulary_mismatch",),
    prefix: ("prompt_not_prefix",),
    cuts: ("cut_answers", "identical_after_cut", "zero_signal"),
    labels: ("no_labels", "degenerate_length"),
    marks: ("start_tokens", "end_tokens"),
}
