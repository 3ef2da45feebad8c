"""Text as stages compare it: normal forms and word hashes, for any script. Nothing here edits what is written out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from prefdata.words import Words, words

__all__ = ["INVISIBLE", "Words", "keys", "normal", "words"]

INVISIBLE = re.compile(
    r"[\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\u0000-\u001f\u007f]*"
)
# Joiners carry meaning in emoji and in Indic and Arabic script; behind a Latin letter they are only hidden.
_HIDDEN = re.compile(
    r"[\u00ad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]|(?<=[\u0000-\u024f])[\u200c\u200d]"
)
# All that ``normal`` could change but outer white space: hidden marks, line ends, and what NFC may touch (marks, jamo, and
# the letters that stand for others). One pass of Arrow over a batch finds the few texts that hold any.
_SPECIAL = (
    r"[\x{ad}\x{180e}\x{200b}-\x{200f}\x{202a}-\x{202e}\x{2060}-\x{2064}\x{2066}-\x{2069}\x{feff}]|\r|[ \t]\n|\p{M}"
    r"|[\x{1161}-\x{1175}\x{11a8}-\x{11c2}\x{374}\x{37e}\x{387}\x{958}-\x{95f}\x{9dc}-\x{9df}\x{a33}-\x{a5e}\x{b5c}-\x{b5d}"
    r"\x{f43}-\x{f69}\x{1f71}-\x{1ffd}\x{2000}\x{2001}\x{2126}\x{212a}\x{212b}\x{2329}\x{232a}\x{2adc}"
    r"\x{f900}-\x{fad9}\x{fb1d}-\x{fb4e}\x{1d15e}-\x{1d1c0}\x{2f800}-\x{2fa1d}]"
)
_MAYBE_HIDDEN = re.compile(r"[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_LINE_TAIL = re.compile(r"[^\S\n]+(?=\n)")


def normal(value: str) -> str:
    """The form in which texts are called the same: NFC, without hidden marks, line ends as ``\\n``, no trailing or
    outer white space. White space inside a line, case and punctuation count.
    """
    if not value.isascii():
        if _MAYBE_HIDDEN.search(value):  # eight times as fast as the other, and hardly ever true
            value = _HIDDEN.sub("", value)
        if not unicodedata.is_normalized("NFC", value):
            value = unicodedata.normalize("NFC", value)
    if "\r" in value:
        value = value.replace("\r\n", "\n").replace("\r", "\n")
    if " \n" in value or "\t\n" in value:
        value = _LINE_TAIL.sub("", value)
    return value.strip()


def keys(values: Sequence[str], array: pa.StringArray) -> npt.NDArray[np.uint64]:
    """64-bit XXH3 of each text's normal form; ``array`` holds the same texts."""
    digest = xxhash.xxh3_64_intdigest
    special = pc.match_substring_regex(array, _SPECIAL).to_pylist()
    forms = (normal(v) if s else v.strip() for v, s in zip(values, special, strict=True))
    return np.fromiter((digest(f.encode()) for f in forms), np.uint64, len(values))
