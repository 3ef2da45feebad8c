"""Stage ``token_length``: see the class."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from prefdata.decisions import Decisions, Finding, Signals
from prefdata.pairs import Pairs
from prefdata.stage import Stage
from prefdata.tokenizer_files import digest, load
from prefdata.trainer_ids import (
    DOUBLE_END,
    DOUBLE_START,
    MISSING_END,
    MISSING_START,
    NOT_PREFIX,
    PICTURES,
    REFUSED,
    SAME,
    SLOW,
    of_chat,
    of_text,
)

_SPOKEN = {
    "prompt_not_prefix": (
        NOT_PREFIX,
        "the ids of the prompt do not begin those of prompt + answer (tokens merge across the border, or the "
        "template renders the prompt alone differently): part of the prompt is trained as answer, or lost",
    ),
    "double_start": (DOUBLE_START, "the sequence begins with two start tokens"),
    "missing_start": (MISSING_START, "the tokenizer puts a start token before plain text, but none is here"),
    "double_end": (DOUBLE_END, "an answer ends with two end tokens"),
    "missing_end": (MISSING_END, "an answer carries no end token: the model is not taught to stop"),
    "template_refused": (REFUSED, "the chat template raises an error here, and the trainer would stop"),
    "not_counted": (PICTURES, "pictures in the messages: their tokens are not counted"),
    "slow_tokenizer": (
        SLOW,
        "the fast engine is not sure to give this tokenizer's ids: counted the slow way",
    ),
}
_COUNTS = ("prompt_tokens", "chosen_tokens", "rejected_tokens", "shared_tokens")
_LIMITS = (512, 1024, 2048, 4096)
_QUANTILES = (50, 90, 99, 100)


class TokenLength(Stage):
    """What will the trainer really see of this pair?

    Why it matters: a prompt that fills the window leaves nothing to learn from, and two answers that differ
    only past the cut give a gradient of zero; trainers pass over both in silence, or answer with NaN.

    How it decides: rows are tokenised exactly as TRL's DPOTrainer does it (1.16: end token put behind plain
    answers, chat template with tools, prompt and answer tokenised together, the border where the prompt
    alone and both wholes part, the end cut off). Every row is counted, none is estimated: ``prompt_tokens``
    up to the border, ``chosen_tokens`` and ``rejected_tokens`` behind it, ``shared_tokens`` that both
    wholes begin with. A prompt of ``max_length`` tokens or more, or an answer without a token, is
    ``too_long``; equal ids within the window although the answers differ are
    ``identical_after_truncation``. An answer cut but not to nothing stays and is counted.

    What it misses: it knows what is cut, not whether the cut part mattered. Pictures are not counted. Text
    rows are taken as plain text: if they are to go through a chat template, make messages of them first.
    Without a tokenizer only words are reported.

    References: huggingface/trl#3339, #5662, #6433, #2054; OpenRLHF/OpenRLHF#1311; natolambert/rlhf-book#503.
    """

    reasons: ClassVar = {
        "too_long": "The prompt fills the window (or an answer has no token): nothing is left to train on. "
        "Raise max_length or shorten the prompt.",
        "identical_after_truncation": "Within the window both answers are the same token ids: the pair "
        "carries no signal. Raise max_length.",
        "template_refused": "The chat template raises an error on this row, and so would the trainer. Use "
        "another template or mend the row's messages.",
    }
    measured: ClassVar = frozenset({"tokenizer", "chat_template"})
    drops: ClassVar = "above"
    scale: ClassVar = "tokens of the prompt as the trainer sees it; dropped at the limit and above"

    tokenizer: str | None = None
    """Folder, GGUF or tokenizer.json file, or hub name of the tokenizer that will train."""
    max_length: int = Field(1024, ge=1)
    """The trainer's window: tokens of prompt and answer together."""
    chat_template: str | None = None
    """Path of a Jinja template that replaces the tokenizer's own."""
    action: Literal["drop", "flag"] = "drop"
    """What happens to pairs that cannot train."""

    def warm(self) -> None:
        """Load the tokenizer and its fast engine."""
        if self.tokenizer is not None:
            _ = load(self.tokenizer, self.chat_template).fast

    def depends_on(self) -> str:
        """The tokenizer's files."""
        return "" if self.tokenizer is None else digest(self.tokenizer, self.chat_template)

    def measure(self, pairs: Pairs) -> pa.Table:
        """Token counts and flags of each pair; nothing without a tokenizer."""
        if self.tokenizer is None:
            return pa.table({})
        tokenizer = load(self.tokenizer, self.chat_template)
        n = len(pairs)
        counts = np.zeros((4, n), np.int32)
        flags = np.zeros(n, np.int16)
        chat = pairs.chat or [None] * n
        plain = [i for i, c in enumerate(chat) if c is None]
        if plain:
            counts[:, plain], flags[plain] = of_text(tokenizer, pairs, plain)
        spoken = [(i, c) for i, c in enumerate(chat) if c is not None]
        if spoken:
            at = [i for i, _ in spoken]
            extra = pairs.columns.get("chat_template_kwargs")
            extras = [None if extra is None else extra[i].as_py() for i in at]
            counts[:, at], flags[at] = of_chat(tokenizer, [c for _, c in spoken], extras)
        unknown = (flags & (REFUSED | PICTURES)) > 0
        table = {name: pa.array(counts[k], pa.int32(), mask=unknown) for k, name in enumerate(_COUNTS)}
        return pa.table({**table, "flags": pa.array(flags)})

    def decide(self, signals: Signals) -> Decisions:
        """Drop what cannot train at ``max_length``; count what is cut, at this limit and at others."""
        if self.tokenizer is None:
            return self._unchecked(signals)
        prompt, chosen, rejected, shared = (signals.column(f"token_length.{c}").astype(np.float64) for c in _COUNTS)
        flags = np.nan_to_num(signals.column("token_length.flags")).astype(np.int64)
        out = Decisions(signals.index, score=prompt, limit=self.max_length)
        same = (flags & SAME) > 0
        filled, equal, cut = _lost(prompt, chosen, rejected, shared, same, self.max_length)
        out.mark(equal, self.action, "identical_after_truncation", score=shared[equal])
        out.mark(filled, self.action, "too_long")
        out.mark((flags & REFUSED) > 0, "flag", "template_refused")

        n = int(np.isfinite(prompt).sum())
        found = out.findings
        text = f"one answer or both are cut at {self.max_length} tokens, but not to nothing; they stay"
        found.append(Finding("truncated", int(cut.sum()), n, text, rows=_rows(signals, cut)))
        for limit in sorted({*_LIMITS, self.max_length}):
            f, e, c = (int(x.sum()) for x in _lost(prompt, chosen, rejected, shared, same, limit))
            text = f"at {limit} tokens: {f + e} pairs lost ({f} prompts fill it, {e} become identical), {c} cut"
            found.append(Finding(f"loss_at_{limit}", (f + e) / max(n, 1), n, text))
            found.append(Finding(f"cut_at_{limit}", c / max(n, 1), n, text))
        if n:
            total = prompt + np.fmax(chosen, rejected)
            found += _quantiles("tokens", total, n)
            longest = int(np.nanargmax(prompt))
            row = int(signals.index[longest])
            found.append(Finding("longest_prompt", int(prompt[longest]), n, "tokens", rows=(row,)))
        for name, (bit, text) in _SPOKEN.items():
            has = (flags & bit) > 0
            if has.any():
                found.append(Finding(name, int(has.sum()), len(out), text, rows=_rows(signals, has)))
        return out

    def _unchecked(self, signals: Signals) -> Decisions:
        out = Decisions(signals.index)
        text = "no tokenizer was given: nothing was checked against the trainer's window, only words are counted"
        out.findings.append(Finding("length_not_checked", len(out), len(out), text))
        sides = [f"pair.{side}_words" for side in ("prompt", "chosen", "rejected")]
        if len(out) and set(sides) <= set(signals.names):
            prompt, chosen, rejected = (signals.column(c) for c in sides)
            out.findings += _quantiles("words", prompt + np.fmax(chosen, rejected), len(out))
        return out


Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def _lost(
    prompt: Floats, chosen: Floats, rejected: Floats, shared: Floats, same: Mask, limit: int
) -> tuple[Mask, Mask, Mask]:
    """Which pairs a window fills, which it makes identical, which it only cuts. NaN (not counted) is none
    of them.
    """
    filled = (prompt >= limit) | (np.fmin(chosen, rejected) == 0)
    ends = (chosen == rejected) & (shared == prompt + chosen)
    equal = ~filled & ~same & ((shared >= limit) | ends)
    cut = ~filled & ~equal & (prompt + np.fmax(chosen, rejected) > limit)
    return filled, equal, cut


def _quantiles(unit: str, total: npt.NDArray[Any], n: int) -> list[Finding]:
    values = [int(np.nanpercentile(total, q, method="higher")) for q in _QUANTILES]
    text = f"{unit} of the prompt and the longer answer"
    return [Finding(f"{unit}_p{q}", v, n, text) for q, v in zip(_QUANTILES, values, strict=True)]


def _rows(signals: Signals, where: Mask) -> tuple[int, ...]:
    return tuple(signals.index[np.flatnonzero(where)[:50]].tolist())
