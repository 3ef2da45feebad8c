"""How alike two answers are: character ratio, ROUGE-L, BLEU, cosine; and what kind of likeness it is.

Every score is in [0, 1], finite, the same when the answers change places, and computed from the one pair
alone. Nothing is folded away before comparing: case, punctuation, symbols and white space count."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rapidfuzz.distance import Indel

from prefdata import text
from prefdata.errors import MissingExtra
from prefdata.words import Words, words

if TYPE_CHECKING:
    from prefdata.encoders import Encoder

Scores = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

DIFFERENT, EXACT, NORMALISED, FORMAT_ONLY, SMALL = range(5)
LONG = 8_000
"""Characters; if both answers are longer, ``ratio`` compares words: characters would take time with their
square.
"""
_ALIKE, _NEAR = 0.6, 0.9

_MARKS = b",.*_ \t\r\n\v\f\x1c\x1d\x1e\x1f"
_WIDE_MARKS = re.compile("[、。，．｡､]")
# a mark between two letters is spelling, not format: node.js, snake_case, a*b, e.g.
_LOOSE = re.compile(r"(?<!\w)[,.*_]+|[,.*_]+(?!\w)")
_DIGIT = re.compile(r"\d")
_CODE = re.compile(r"[`{}<>=\\|~^$\t]|\w\[|\[\]|\(\)|->|::|\w\.\w+\(|^(?: {2,}|#!|//|/\*)\S", re.MULTILINE)


def ratios(a: Sequence[str], b: Sequence[str], cutoff: float | None = None) -> Scores:
    """Indel ratio of each pair: 2 * characters in common order / all characters; 0 below ``cutoff``."""
    ratio = Indel.normalized_similarity
    long = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if len(x) > LONG and len(y) > LONG]
    if long:
        a, b = list(a), list(b)
        x_words, y_words = (words(pa.array([side[i] for i in long], pa.large_string())) for side in (a, b))
        found = word_ratios(x_words, y_words, np.arange(len(long)), cutoff)
        for i in long:
            a[i] = b[i] = ""
    out = np.array([ratio(x, y, score_cutoff=cutoff) for x, y in zip(a, b, strict=True)], np.float64)
    if long:
        out[long] = found
    return out


def word_ratios(a: Words, b: Words, rows: Rows, cutoff: float | None = None) -> Scores:
    """F of the longest common subsequence of words (ROUGE-L): 2 * LCS / all words. 0 where there is no
    word.
    """
    out = np.zeros(len(rows))
    for k, (x, y) in enumerate(zip(_word_lists(a, rows), _word_lists(b, rows), strict=True)):
        if x and y:
            out[k] = Indel.normalized_similarity(x, y, score_cutoff=cutoff)
    return out


def bleus(a: Words, b: Words, rows: Rows) -> Scores:
    """Sentence BLEU (1- to 4-grams, smoothed), the mean of both directions, over words of any script."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise MissingExtra.of("embed", "the metric bleu") from error
    # our words, not sacrebleu's: its tokenizer sees one word in a whole Chinese sentence
    bleu = BLEU(tokenize="none", effective_order=True, force=True)
    out = np.zeros(len(rows))
    for k, (x, y) in enumerate(zip(_word_lists(a, rows), _word_lists(b, rows), strict=True)):
        s, t = " ".join(map(str, x)), " ".join(map(str, y))
        if s and t:
            there, back = bleu.sentence_score(s, [t]).score, bleu.sentence_score(t, [s]).score
            out[k] = (min(there, back) + max(there, back)) / 200  # ordered, so that a swap gives the same last bit
    return np.clip(out, 0, 1)


def cosines(a: Sequence[str], b: Sequence[str], encoder: Encoder) -> Scores:
    """Cosine of the two answers' vectors; opposite directions and a text without a vector give 0."""
    if not a:
        return np.zeros(0)
    x, y = encoder.embed(a).astype(np.float64), encoder.embed(b).astype(np.float64)
    found = (x * y).sum(axis=1)
    return np.clip(np.where(np.isfinite(found), found, 0), 0, 1)


def _word_lists(side: Words, rows: Rows) -> list[list[int]]:
    hashes: npt.NDArray[np.uint32] = side.hashes
    return [hashes[side.offsets[i] : side.offsets[i + 1]].tolist() for i in rows.tolist()]


# ---------------------------------------------------------------------------------------------------------
# kinds


def kind_of_equal(a: str, b: str) -> int:
    """The kind of two answers whose normal forms are equal: leading white space still counts (it indents
    code).
    """
    if a == b:
        return EXACT
    return NORMALISED if text.normal("!" + a) == text.normal("!" + b) else SMALL


def kinds_of_unlike(a: Sequence[str], b: Sequence[str], ratio: Scores) -> npt.NDArray[np.int8]:
    """The kinds of answers whose normal forms differ, given their character ratios (0 if below 0.6)."""
    out = np.zeros(len(a), np.int8)
    for i in np.flatnonzero(ratio >= _ALIKE).tolist():
        if format_only(a[i], b[i]):
            out[i] = FORMAT_ONLY
        elif ratio[i] >= _NEAR:
            out[i] = SMALL
    return out


def format_only(a: str, b: str) -> bool:
    """True if prose of at least five words differs in commas, full stops and emphasis marks alone.

    Answers with digits or anything that looks like code never are: there a point or a star is content.
    """
    if (
        _word_differs(a, b)
        or _skeleton(a) != _skeleton(b)
        or _DIGIT.search(a)
        or _DIGIT.search(b)
        or _CODE.search(a)
        or _CODE.search(b)
    ):
        return False
    bare = _bare(a)
    return bare == _bare(b) and _word_count(bare) >= 5


def _word_differs(a: str, b: str) -> bool:
    """True if the first characters that differ are a letter each: no mark can be the difference. The quickest no."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a.startswith(b[:middle]) else (low, middle - 1)
    x, y = a[low : low + 2], b[low : low + 2]  # the second one might be an accent on the first
    return len(x) == len(y) == 2 and x.isascii() and y.isascii() and x[0].isalnum() and y[0].isalnum()


def _skeleton(value: str) -> bytes:
    """The text without marks and white space: a quick no to nearly every pair."""
    if not value.isascii():
        value = _WIDE_MARKS.sub("", text.normal(value))
    return value.encode("utf-8", "surrogatepass").translate(None, _MARKS)


def _bare(value: str) -> str:
    value = text.normal("!" + value)
    return _LOOSE.sub("", value if value.isascii() else _WIDE_MARKS.sub("", value)).rstrip()


def _word_count(value: str) -> int:
    """Words without the punctuation and symbols that ``words`` counts one by one."""
    marks = sum(unicodedata.category(c)[0] in "PS" for c in value)
    return int(words(pa.array([value], pa.large_string())).counts[0]) - marks
