"""Texts as word hashes, for any script, straight from Arrow's bytes.

A word is a run of letters, digits and marks without ASCII case; in scripts written without spaces, and for emoji,
punctuation and symbols, each character is one. What cannot be seen is passed over; a joiner (U+200C, U+200D) counts
unless it stands behind a Latin letter.

``content`` is the hash of what is never a small edit, in its order: numbers with sign and separators, negations,
symbols of mathematics and code, single letters (x, y; answer B), text in back quotes, and whole lines that look like
code. Too much of it only means that two texts are not called near; too little would lose a row.

Two ways give the same hashes: ``_scan`` compiled by numba, if it is there and the batch is worth its start, and
numpy (``words_numpy``). ``_scan`` reads top to bottom and is the definition.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prefdata import words_numpy
from prefdata.lexicon import (
    APOSTROPHE,
    CALL,
    CLASS,
    CONTENT,
    DIGIT,
    INDENT,
    JOIN,
    LINE,
    MARK,
    SEMICOLON,
    SIGN,
    SINGLE,
    SKIP,
    SLOTS,
    TAB,
    TICK,
    TOKENS_PER_MARK,
    WORD,
    A,
    B,
    P,
    Q,
    T,
    classes,
    mixed,
    vocabulary,
)
from prefdata.words_numpy import U32, U64, Bytes, Ints

_Scan = Callable[[Bytes, Ints], tuple[U32, Ints, U64]]

_COMPILED_FROM = 6_000_000  # bytes in a batch; below, importing numba takes longer than numpy does


@dataclass(frozen=True)
class Words:
    """Word hashes of texts one after the other; text ``i`` has ``hashes[offsets[i]:offsets[i + 1]]``."""

    hashes: U32
    offsets: Ints
    content: U64

    @property
    def counts(self) -> npt.NDArray[np.int32]:
        """How many words each text has."""
        return np.diff(self.offsets).astype(np.int32)


def words(texts: pa.StringArray | pa.LargeStringArray) -> Words:
    """Word hashes of an Arrow array of text, which may be a slice of a larger one."""
    wide = pa.types.is_large_string(texts.type)
    _, places, payload = texts.buffers()
    n = len(texts)
    if not n or payload is None:
        return Words(np.empty(0, np.uint32), np.zeros(n + 1, np.int64), mixed(np.zeros(n, np.uint64)))
    offsets = np.frombuffer(places, np.int64 if wide else np.int32)[texts.offset : texts.offset + n + 1]
    data = np.frombuffer(payload, np.uint8)[offsets[0] : offsets[-1]]
    return Words(*_best(len(data))(data, offsets.astype(np.int64) - offsets[0]))


def _best(size: int) -> _Scan:
    if "numba" in sys.modules or (size >= _COMPILED_FROM and importlib.util.find_spec("numba") is not None):
        return with_numba
    return words_numpy.scan


def _scan(
    data: Bytes,
    offsets: Ints,
    table: Bytes,
    vocabulary: U64,
    shift: np.uint64,
    out: U32,
    counts: Ints,
    contents: U64,
) -> int:
    zero, s30, s27, s31, s32 = np.uint64(0), np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
    slots = np.uint64(SLOTS - 1)
    total = 0
    for text in range(len(offsets) - 1):
        i, stop, first = offsets[text], offsets[text + 1], total
        plain = code = zero  # hash of the content so far, if this line is not code and if it is
        fenced = inline = in_word = indented = False
        place = 0  # among the bytes that can be seen
        line_start = line_tokens = marks = ticks = leading = semicolon = 0
        start = flags = single_letter = head = 0
        h = before = zero  # of the word now read; of the single character before
        word_end = sign_end = apostrophe_end = tick_end = single_end = -1
        sign, sign_pushed, letter_first, previous = zero, False, False, 0
        tabbed = False
        while i <= stop:
            cp, size = LINE, 1  # the end of the text is the end of a line
            if i < stop:
                b = int(data[i])
                if b < 128:
                    cp = b
                elif b < 0xE0:
                    size = 2
                elif b < 0xF0:
                    size = 3
                else:
                    size = 4
                size = min(size, stop - i)
                if size == 2:
                    cp = (b & 31) << 6 | (int(data[i + 1]) & 63)
                elif size == 3:
                    cp = (b & 15) << 12 | (int(data[i + 1]) & 63) << 6 | (int(data[i + 2]) & 63)
                elif size == 4:
                    cp = (b & 7) << 18 | (int(data[i + 1]) & 63) << 12 | (int(data[i + 2]) & 63) << 6
                    cp = min(cp | (int(data[i + 3]) & 63), 0x10FFFF)
            k = int(table[cp])
            kind = k & CLASS
            if kind >= SKIP:
                if kind == JOIN and previous >= 0x250:
                    kind = WORD if int(table[previous]) & CLASS == WORD else SINGLE
                else:
                    previous = cp
                    i += size
                    continue
            previous = cp
            if kind == WORD:
                if not in_word:
                    in_word, start, flags, h, head = True, place, 0, zero, k
                    lower = cp + 32 if 65 <= cp <= 90 else cp
                    single_letter = lower if 97 <= lower <= 122 else 0
                    letter_first = single_letter != 0
                else:
                    single_letter = 0
                flags |= k
                for j in range(i, i + size):
                    b = int(data[j])
                    h = h * P + np.uint64(b + 32 if 65 <= b <= 90 else b)
                place += size
                i += size
                while i < stop and data[i] < 128 and table[data[i]] & CLASS == WORD:  # most bytes end here
                    b = previous = int(data[i])
                    flags |= int(table[b])
                    h = h * P + np.uint64(b + 32 if 65 <= b <= 90 else b)
                    single_letter = 0
                    place += 1
                    i += 1
                continue
            if in_word:
                in_word = False
                h = (h ^ (h >> s30)) * A
                h = (h ^ (h >> s27)) * B
                h = h ^ (h >> s31)
                out[total] = np.uint32(h >> s32)
                total += 1
                if line_tokens == 0 and letter_first and (start - line_start >= INDENT or tabbed):
                    indented = True
                line_tokens += 1
                semicolon = 0
                tells = flags & CONTENT != 0 or vocabulary[(h >> shift) & slots] == h
                if single_letter != 0:
                    if start == apostrophe_end:
                        tells = tells or single_letter == T  # n't
                    else:
                        tells = tells or (single_letter != 97 and single_letter != 105)  # but a and I
                if head & DIGIT and start == sign_end and not sign_pushed:
                    plain = plain * Q + sign
                if tells or inline or fenced:
                    plain = plain * Q + h
                code = code * Q + h
                word_end = place
            if kind == SINGLE:
                h = zero
                for j in range(i, i + size):
                    h = h * P + np.uint64(data[j])
                h = (h ^ (h >> s30)) * A
                h = (h ^ (h >> s27)) * B
                h = h ^ (h >> s31)
                out[total] = np.uint32(h >> s32)
                total += 1
                if cp == TICK:
                    if leading == line_tokens and (leading == 0 or tick_end == place):
                        leading += 1
                    ticks += 1
                    tick_end = place + size
                    inline = not inline
                line_tokens += 1
                semicolon = 1 if cp == SEMICOLON else 0
                if k & MARK or (cp == CALL and word_end == place):
                    marks += 1
                tells = k & CONTENT != 0 or vocabulary[(h >> shift) & slots] == h
                if single_end == place and not tells:
                    both = before * Q + h
                    tells = vocabulary[(both >> shift) & slots] == both
                if tells or inline or fenced:
                    plain = plain * Q + h
                code = code * Q + h
                before, single_end = h, place + size
                if k & APOSTROPHE:
                    apostrophe_end = place + size
                if k & SIGN:
                    sign, sign_end, sign_pushed = h, place + size, tells or inline or fenced
            place += size
            if cp == LINE:
                marks += semicolon
                if indented or (marks > 0 and line_tokens <= TOKENS_PER_MARK * marks):
                    plain = code
                code = plain
                if leading >= 3 and leading == ticks:
                    fenced = not fenced
                inline = indented = tabbed = False
                line_start, line_tokens, marks, ticks, leading, semicolon = place, 0, 0, 0, 0, 0
            elif cp == TAB and line_tokens == 0:
                tabbed = True
            i += size
        counts[text] = total - first
        contents[text] = plain
    return total


@cache
def _compiled() -> Callable[..., int]:
    import numba

    try:
        made = numba.njit(cache=True, nogil=True)(_scan)
    except RuntimeError:  # no folder can be written to: compile in every process
        made = numba.njit(nogil=True)(_scan)
    return made  # type: ignore[no-any-return]


def warm() -> None:
    """Load the tables, and the compiled way if it is installed: many batches will come."""
    classes(), vocabulary()
    if importlib.util.find_spec("numba") is not None:
        with_numba(np.zeros(1, np.uint8), np.array([0, 1], np.int64))


def with_numba(data: Bytes, offsets: Ints) -> tuple[U32, Ints, U64]:
    """``words`` of UTF-8 bytes, compiled."""
    out = np.empty(len(data), np.uint32)  # never more words than bytes; pages not reached stay untouched
    ends, contents = np.zeros(len(offsets), np.int64), np.empty(len(offsets) - 1, np.uint64)
    table, shift = vocabulary()
    total = _compiled()(data, offsets, classes(), table, shift, out, ends[1:], contents)
    return out[:total].copy(), ends.cumsum(), mixed(contents)
