"""What TRL's ``DPOTrainer`` (1.16) makes of a pair: the ids of ``_prepare_dataset``, counted without torch.

Text rows: the end token is put behind both answers where it is missing. Chat rows: the chat template
renders the prompt (with the generation prompt), prompt + chosen and prompt + rejected. Prompt and answer
are tokenised together, and the border is where the ids of the prompt alone and of the two wholes part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from prefdata.errors import ConfigError
from prefdata.pairs import Message, Pair, Pairs, Side, images_of
from prefdata.ragged import Ints, Ragged, common_prefix
from prefdata.tokens import Tokenizer

NOT_PREFIX, DOUBLE_START, MISSING_START, DOUBLE_END, MISSING_END, REFUSED, SAME, SLOW, PICTURES = (
    1 << i for i in range(9)
)
"""Bits of the flags. ``SAME``: both answers equal as written; ``SLOW``: the fast engine gave other ids."""
Three = tuple[str, str, str]


def of_text(tokenizer: Tokenizer, pairs: Pairs, at: list[int]) -> tuple[Ints, Ints]:
    """Counts (prompt, chosen, rejected, shared) and flags of the text rows at those places."""
    chosen, rejected = pairs.texts("chosen"), pairs.texts("rejected")
    same = np.array([SAME if chosen[i] == rejected[i] else 0 for i in at], np.int64)
    counts, flags = _count(tokenizer, wholes(tokenizer, pairs, at), special=True)
    return counts, flags | same


def wholes(tokenizer: Tokenizer, pairs: Pairs, at: Sequence[int]) -> list[Three]:
    """Prompt, prompt + chosen and prompt + rejected of the text rows at those places, the end token behind both answers."""
    eos = tokenizer.eos
    if eos is None:
        what, hint = "the tokenizer has no end token", "The trainer needs one: set eos_token."
        raise ConfigError(what, where=tokenizer.name, hint=hint)
    prompts, *answers = (pairs.texts(side) for side in ("prompt", "chosen", "rejected"))
    ended = (
        [t if t.endswith(eos) else t + eos for t in side] for side in ([texts[i] for i in at] for texts in answers)
    )
    return [(prompts[i], prompts[i] + c, prompts[i] + r) for i, c, r in zip(at, *ended, strict=True)]


def of_chat(tokenizer: Tokenizer, rows: Sequence[Pair], extras: Sequence[Any]) -> tuple[Ints, Ints]:
    """The same of chat rows; ``extras`` are their ``chat_template_kwargs``."""
    flags = np.zeros(len(rows), np.int64)
    rendered: list[Three | None] = render(tokenizer, rows, extras)
    for k, (pair, three) in enumerate(zip(rows, rendered, strict=True)):
        flags[k] |= SAME * (pair.chosen == pair.rejected)
        if any(images_of(side) for side in (pair.prompt, pair.chosen, pair.rejected)):
            flags[k] |= PICTURES
        elif three is None:
            flags[k] |= REFUSED
    good = [k for k, three in enumerate(rendered) if three is not None]
    counts = np.zeros((4, len(rows)), np.int64)
    if good:
        found, more = _count(tokenizer, [t for t in rendered if t is not None], special=False)
        counts[:, good] = found
        flags[good] |= more
    return counts, flags


def render(tokenizer: Tokenizer, rows: Sequence[Pair], extras: Sequence[Any]) -> list[Three | None]:
    """Prompt, prompt + chosen, prompt + rejected through the chat template; None where it raises an error."""
    out: list[Three | None] = [None] * len(rows)
    simple = [k for k, pair in enumerate(rows) if pair.tools is None and not extras[k]]
    rest = [k for k in range(len(rows)) if k not in set(simple)] if len(simple) < len(rows) else []
    for block in [simple, *([k] for k in rest)]:
        try:
            made = _render_alike(tokenizer, [rows[k] for k in block], extras[block[0]] if block else None)
        except ConfigError:
            raise
        except Exception:  # a template may raise anything: find out which row it was
            made = [_render_one(tokenizer, rows[k], extras[k]) for k in block]
        for k, three in zip(block, made, strict=True):
            out[k] = three
    return out


def _render_one(tokenizer: Tokenizer, row: Pair, extra: Any) -> Three | None:
    try:
        return _render_alike(tokenizer, [row], extra)[0]
    except ConfigError:
        raise
    except Exception:  # the template's own refusal
        return None


def _render_alike(tokenizer: Tokenizer, rows: Sequence[Pair], extra: Any) -> list[Three | None]:
    """Rows that share tools and template arguments (those of the first row)."""
    if not rows:
        return []
    tools, extra = (orjson.loads(x) if isinstance(x, str) else x for x in (rows[0].tools, extra or {}))
    given = {"tools": tools, **extra}
    prompts = [_messages(r.prompt, "user") for r in rows]
    alone = tokenizer.render(prompts, True, **given)
    whole = tokenizer.render(
        [p + _messages(s, "assistant") for side in ("chosen", "rejected")
         for p, s in zip(prompts, (getattr(r, side) for r in rows), strict=True)], False, **given,
    )  # fmt: skip
    for text in (*alone, *whole):
        text.encode()  # half a surrogate pair: no tokenizer takes it
    return list(zip(alone, whole[: len(rows)], whole[len(rows) :], strict=True))


def _messages(side: Side, role: str) -> list[Message]:
    return [{"role": role, "content": side}] if isinstance(side, str) else side


def _shared(a: str, b: str) -> int:
    """How many characters two texts share from the beginning."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a.startswith(b[:middle]) else (low, middle - 1)
    return low


def _cut(three: Three) -> int:
    """Where the beginning that all three share may be cut off: between a Latin letter and a space, as late
    as can be.
    """
    prompt, chosen, rejected = three
    n = len(prompt)
    if not (chosen.startswith(prompt) and rejected.startswith(prompt)):
        n = min(_shared(prompt, chosen), _shared(prompt, rejected))
    at = prompt.rfind(" ", 1, n)
    while at > 0 and not ("a" <= prompt[at - 1] <= "z" or "A" <= prompt[at - 1] <= "Z"):
        at = prompt.rfind(" ", 1, at)
    return max(at, 0)


def _count(tokenizer: Tokenizer, rows: Sequence[Three], special: bool) -> tuple[Ints, Ints]:
    """The four counts and the flags of prompt, prompt + chosen, prompt + rejected, given as whole texts.

    Their shared beginning is tokenised once, up to a place where the tokenizer's split rule parts it for
    certain."""
    n = len(rows)
    cuts = [_cut(r) for r in rows] if tokenizer.cuttable else [0] * n
    affixes = tokenizer.affixes if special else ([], [])
    heads = [r[0][:c] for r, c in zip(rows, cuts, strict=True)]
    tails = [r[k][c:] for k in range(3) for r, c in zip(rows, cuts, strict=True)]
    ids, refused = tokenizer.encode(heads + tails, special=affixes is None)
    before, behind = affixes or ([], [])
    head = ids.part(0, n)
    if affixes is None:  # nothing is cut there, and an empty text may yet have ids of its own
        head = Ragged(np.empty(0, np.uint32), np.zeros(n + 1, np.int64))
    alone, chosen, rejected = (ids.part(k * n, (k + 1) * n).followed_by(behind) for k in (1, 2, 3))
    start = head.lengths + len(before)
    border = np.minimum(common_prefix(alone, chosen), common_prefix(alone, rejected))
    shared = common_prefix(chosen, rejected)
    counts = np.stack([start + border, chosen.lengths - border, rejected.lengths - border, start + shared])
    flags: Ints = NOT_PREFIX * (border < alone.lengths).astype(np.int64) + SLOW * int(refused)
    flags = flags | _start_flags(tokenizer, before, head, chosen)
    return counts, flags | _end_flags(tokenizer, border, chosen) | _end_flags(tokenizer, border, rejected)


def _start_flags(tokenizer: Tokenizer, before: Sequence[int], head: Ragged, tail: Ragged) -> Ints:
    bos = tokenizer.bos_id
    out = np.zeros(len(head), np.int64)
    if bos is None:
        return out
    first = np.stack([_token(before, head, tail, k) for k in (0, 1)])
    out[(first == bos).all(axis=0)] = DOUBLE_START
    if tokenizer.affixes and bos in tokenizer.affixes[0]:
        out[first[0] != bos] = MISSING_START
    return out


def _token(before: Sequence[int], head: Ragged, tail: Ragged, k: int) -> Ints:
    """Token ``k`` of each sequence (before + head + tail), -1 behind its end."""
    if k < len(before):
        return np.full(len(head), before[k], np.int64)
    k -= len(before)
    out = np.full(len(head), -1, np.int64)
    own = head.lengths > k
    out[own] = head.ids[head.at[:-1][own] + k]
    rest = ~own & (head.lengths + tail.lengths > k)
    out[rest] = tail.ids[(tail.at[:-1] + k - head.lengths)[rest]]
    return out


def _end_flags(tokenizer: Tokenizer, border: Ints, tail: Ragged) -> Ints:
    """End tokens among the last three of an answer: templates put a line end behind them."""
    eos = tokenizer.eos_id
    out = np.zeros(len(tail), np.int64)
    if eos is None:
        return out
    last = np.full((3, len(tail)), -1, np.int64)
    for k in range(3):
        has = tail.lengths - border > k
        last[k, has] = tail.ids[(tail.at[1:] - 1 - k)[has]]
    ends = last == eos
    out[~ends.any(axis=0)] = MISSING_END
    out[(ends[0] & ends[1]) | (ends[1] & ends[2])] = DOUBLE_END
    return out
