"""``words`` without numba: the rules of ``words._scan`` as whole-array steps, about four times slower."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

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
    P,
    Q,
    T,
    classes,
    mixed,
    vocabulary,
)

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
_BLOCK = 300_000  # bytes looked at in one go, as numpy's arrays here take about 100 bytes a byte


def scan(data: Bytes, offsets: Ints) -> tuple[U32, Ints, U64]:
    """``words`` of UTF-8 bytes, a block of whole texts at a time."""
    done, n, first = [], len(offsets) - 1, 0
    while first < n:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + _BLOCK, "right")) - 1)
        done.append(_block(data[offsets[first] : offsets[last]], offsets[first : last + 1] - offsets[first]))
        first = last
    counts = np.concatenate([np.zeros(1, np.int64), *(d[1] for d in done)])
    return np.concatenate([d[0] for d in done]), counts.cumsum(), np.concatenate([d[2] for d in done])


class _Tokens:
    """The words of a block, one entry each, and the characters that can be seen."""

    def __init__(self, data: Bytes, offsets: Ints) -> None:
        # A line end before each text and after the last, so that no rule reaches across texts.
        raw = np.insert(data, offsets, LINE)
        at, cp = _decoded(raw)
        size = np.diff(at, append=len(raw))
        k = classes()[cp]
        kind = k & CLASS
        joins = np.flatnonzero(kind == JOIN)
        inside = np.where(k[joins - 1] & CLASS == WORD, WORD, SINGLE)
        kind[joins] = np.where(cp[joins - 1] < 0x250, SKIP, inside)
        seen = kind < SKIP
        shown = raw if seen.all() else raw[np.repeat(seen, size)]
        if len(shown) < len(raw):
            at, cp, size, k, kind = at[seen], cp[seen], size[seen], k[seen], kind[seen]
        end = size.cumsum()

        word, single = kind == WORD, kind == SINGLE
        opens, closes = word.copy(), word.copy()
        opens[1:] &= ~word[:-1]
        closes[:-1] &= ~word[1:]
        first, last = np.flatnonzero(opens | single), np.flatnonzero(closes | single)
        small = shown + ((shown >= 65) & (shown <= 90)) * np.uint8(32)

        self.start, self.end, self.word = end[first] - size[first], end[last], word[first]
        edges = offsets + np.arange(len(offsets))  # where each text begins in ``raw``
        self.text = np.searchsorted(edges, at[first], "right") - 1
        self.hash = mixed(polynomial(small.astype(np.uint64), self.start, self.end, P))
        self.touches = np.zeros(len(first), bool)  # no space before it
        self.touches[1:] = self.start[1:] == self.end[:-1]
        self.first_char, self.first_class = cp[first], k[first]
        self.told = np.zeros(len(first), bool)  # holds a character that is content
        self.told[np.searchsorted(first, np.flatnonzero(k & CONTENT), "right") - 1] = True
        line_ends = np.flatnonzero(cp == LINE)
        self.line = np.searchsorted(line_ends, first) - 1
        self.line_start = end[line_ends]
        self.line_text = np.searchsorted(edges, at[line_ends], "right") - 1
        tabs = np.flatnonzero(cp == TAB)
        behind = np.searchsorted(tabs, first)
        self.tabbed = np.append(-1, tabs)[behind] > line_ends[self.line]  # a tab since the line began
        self.counts = np.bincount(self.text, minlength=len(offsets) - 1)


def _block(data: Bytes, offsets: Ints) -> tuple[U32, Ints, U64]:
    tokens = _Tokens(data, offsets)
    chosen = _telling(tokens) | _in_code(tokens)
    edges = np.concatenate([[0], tokens.counts.cumsum()])
    kept = np.concatenate([[0], chosen.cumsum()])[edges]
    content = mixed(polynomial(tokens.hash[chosen], kept[:-1], kept[1:], Q))
    return (tokens.hash >> np.uint64(32)).astype(np.uint32), tokens.counts.astype(np.int64), content


def _decoded(raw: Bytes) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Where each character of valid UTF-8 begins, and its code point."""
    at = np.flatnonzero((raw & 0xC0) != 0x80)
    lead = raw[at]
    cp = lead.astype(np.int32)
    for low, high, more in ((0xC0, 0xE0, 1), (0xE0, 0xF0, 2), (0xF0, 0x100, 3)):
        these = np.flatnonzero((lead >= low) & (lead < high))
        value = cp[these] & (0x3F >> more)
        for j in range(1, more + 1):
            value = value << 6 | (raw[at[these] + j] & 63)
        cp[these] = value
    return at, cp


@cache
def _powers(base: int, n: int) -> U64:
    out = np.full(n, base, np.uint64)
    out[0] = 1
    return out.cumprod()


def polynomial(values: U64, starts: Ints, ends: Ints, base: np.uint64) -> U64:
    """Of each range, ``sum(value * base ** (end - 1 - i))`` modulo 2**64, which is Horner's rule without a loop."""
    size = 1 << max(16, len(values).bit_length())
    inverse = _powers(pow(int(base), -1, 1 << 64), size)
    sums = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values * inverse[: len(values)], out=sums[1:])
    return (sums[ends] - sums[starts]) * _powers(int(base), size)[np.maximum(ends - 1, 0)]


def _known(h: U64) -> Bools:
    table, shift = vocabulary()
    return np.equal(table[((h >> shift) & np.uint64(SLOTS - 1)).astype(np.intp)], h)


def _telling(t: _Tokens) -> Bools:
    """Words that are content wherever they stand."""
    out = t.told | _known(t.hash)
    before = np.roll(np.where(t.word, 0, t.first_class), 1)  # class of the single character this word touches
    before[~t.touches] = 0
    letter = t.first_char | 32
    alone = t.word & (t.end - t.start == 1) & (letter >= 97) & (letter <= 122)
    out |= alone & np.where(before & APOSTROPHE != 0, letter == T, (letter != 97) & (letter != 105))
    pairs = np.flatnonzero(~t.word & (before & CLASS == SINGLE))
    out[pairs] |= _known(t.hash[pairs - 1] * Q + t.hash[pairs])
    numbers = np.flatnonzero(t.word & (t.first_class & DIGIT != 0) & (before & SIGN != 0))
    out[numbers - 1] = True
    return out


def _in_code(t: _Tokens) -> Bools:
    """Words between back quotes, in fences, and in lines that look like code."""
    lines, n = len(t.line_start), len(t.word)
    per_line = np.bincount(t.line, minlength=lines)
    has = np.flatnonzero(per_line)
    last = per_line.cumsum()[has] - 1
    head = last - per_line[has] + 1
    behind_word = np.roll(t.word, 1) & t.touches
    mark = ~t.word & ((t.first_class & MARK != 0) | ((t.first_char == CALL) & behind_word))
    marks = np.bincount(t.line[mark], minlength=lines)
    marks[has] += t.first_char[last] == SEMICOLON
    code = (marks > 0) & (per_line <= TOKENS_PER_MARK * marks)
    letter = t.first_char[head] | 32
    deep = (t.start[head] - t.line_start[has] >= INDENT) | t.tabbed[head]
    code[has] |= t.word[head] & (letter >= 97) & (letter <= 122) & deep

    tick = t.first_char == TICK
    before = np.concatenate([[0], tick.cumsum()])
    ticks = before[last + 1] - before[head]
    fence = np.zeros(lines, bool)
    last_tick = np.searchsorted(before, before[last + 1]) - 1  # meaningless where the line has no tick
    fence[has] = (ticks >= 3) & tick[head] & (t.start[last_tick] - t.start[head] == ticks - 1) if n else False
    fences = np.concatenate([[0], fence.cumsum()])
    text_start = np.searchsorted(t.line_text, t.line_text)
    fenced = (fences[:-1] - fences[text_start]) % 2 == 1
    line_head = np.zeros(lines, np.int64)
    line_head[has] = head
    inline = (before[1:] - before[line_head[t.line]]) % 2 == 1
    return np.asarray(inline | (code | fenced)[t.line])
