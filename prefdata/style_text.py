"""Texts as flagged characters and hashed words, many at once: what ``style`` counts.

A word is a run of letters, digits and ``_`` without case, or one Han character. (``words`` splits for another purpose: there
punctuation and emoji are words too.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from prefdata.lexicon import P, Q, mixed
from prefdata.words_numpy import U64, Bools, Ints, polynomial

U32 = npt.NDArray[np.uint32]

_SOME = {
    "stop": ".!?。！？", "end": ".!?。！？\"')`:”）", "bullet": "-*•", "after_number": ".)、", "question": "?",
    "exclamation": "!", "quote": '"', "parenthesis": "(", "comma": ",", "colon": ":", "line": "\n",
}  # fmt: skip
_TESTS = {
    "space": str.isspace, "letter": str.isalnum, "digit": str.isdigit, "decimal": str.isdecimal, "upper": str.isupper,
    "lower": str.islower,
}  # fmt: skip
_ROW_BITS = 16  # of a key that holds the row and a hash; all of them, so that no key depends on how many rows there are


@cache
def characters() -> tuple[U32, dict[str, np.uint32], U32]:
    """Flags of every code point, the bit of each flag, and every code point's lower case."""
    every = list(map(chr, range(0x32400)))  # no letter, digit or space stands above
    code = np.arange(0x110000, dtype=np.uint32)
    above = np.zeros(len(code) - len(every), bool)
    found = {name: np.append([test(c) for c in every], above) for name, test in _TESTS.items()}
    found["symbol"] = ~found["letter"] & ~found["space"]
    found["word"] = found["letter"] | (code == ord("_"))
    found["han"] = (code >= 0x4E00) & (code <= 0x9FFF)
    found |= {name: np.isin(code, [ord(c) for c in some]) for name, some in _SOME.items()}
    lower = code.copy()
    for i in np.flatnonzero(found["upper"]):
        lower[i] = ord(chr(i).lower()[0])  # "İ" alone has two
    bits = {name: np.uint32(1 << i) for i, name in enumerate(found)}
    flags = np.zeros(len(code), np.uint32)
    for name, those in found.items():
        flags[those] |= bits[name]
    return flags, bits, lower


class Block:
    """Some texts, fewer than 65,536: ``n`` of them, text ``i`` being the code points ``cp[starts[i]:ends[i]]``.

    Its words are ``hash[edges[i]:edges[i + 1]]``, each ``cp[first:last]`` and of text ``row``.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        # A line end before and behind every text, so that no rule reaches across; three at the end, for looking ahead.
        joined = "\n" + "\n".join(texts) + "\n\n\n"
        self.cp = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
        self.n = len(texts)
        self.lengths = np.fromiter(map(len, texts), np.int64, self.n)
        self.ends = (self.lengths + 1).cumsum()
        self.starts = self.ends - self.lengths
        self._bounds = np.append(self.starts, self.ends[-1] + 1)
        flags, self.bits, lower_case = characters()
        self.flags = flags.take(self.cp)

        word = self.has("word")
        opens, closes = word.copy(), word.copy()
        opens[1:] &= ~word[:-1]
        closes[:-1] &= ~word[1:]
        han = self.has("han")
        if han.any():
            opens |= han
            opens[1:] |= word[1:] & han[:-1]
            closes |= han
            closes[:-1] |= word[:-1] & han[1:]
        self.first, self.last = np.flatnonzero(opens), np.flatnonzero(closes) + 1
        self.edges = np.searchsorted(self.first, self._bounds)
        self.counts = np.diff(self.edges)
        self.row = np.repeat(np.arange(self.n), self.counts)
        small = self.cp.astype(np.uint64)
        upper = np.flatnonzero(self.has("upper"))
        small[upper] = lower_case[self.cp[upper]]
        self.hash = mixed(polynomial(small, self.first, self.last, P))

    def has(self, flag: str, at: Ints | None = None) -> Bools:
        """Whether the characters at these places (all, if not said) have this flag."""
        found: Bools = (self.flags if at is None else self.flags[at]) & self.bits[flag] != 0
        return found

    def per_text(self, places: Ints) -> Ints:
        """How many of these places (in order) each text has, its closing line end among them."""
        return np.diff(np.searchsorted(places, self._bounds))

    def distinct(self, size: int) -> tuple[U64, Ints, Ints]:
        """The different n-grams of words of each text: keys in order, how often each is there, and where texts begin.

        A key is the number of the text and 48 bits of a hash.
        """
        h, row = self.hash, self.row
        for i in range(1, size):
            h = h[:-1] * Q + self.hash[i:]
        if size > 1:
            inside = np.flatnonzero(row[: len(h)] == row[size - 1 :])
            h, row = mixed(h[inside]), row[inside]
        bits = np.uint64(64 - _ROW_BITS)
        keys = np.sort((row.astype(np.uint64) << bits) | (h >> np.uint64(_ROW_BITS)))
        new = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
        times, keys = np.diff(new, append=len(keys)), keys[new]
        return keys, times, np.searchsorted(keys, np.arange(self.n + 1, dtype=np.uint64) << bits)
