"""Text as stages compare it: normal forms and word hashes, for any script. Nothing here edits what is written out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
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
_MAYBE_HIDDEN = re.compile(
    r"[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
)  # eight times faster
_LINE_TAIL = re.compile(r"[^\S\n]+(?=\n)")


def normal(value: str) -> str:
    """The form in which texts are called the same: NFC, without hidden marks, line ends as ``\\n``, no trailing or
    outer white space. White space inside a line, case and punctuation count.
    """
    if not value.isascii():
        if _MAYBE_HIDDEN.search(value):
            value = _HIDDEN.sub("", value)
        if not unicodedata.is_normalized("NFC", value):
            value = unicodedata.normalize("NFC", value)
    if "\r" in value:
        value = value.replace("\r\n", "\n").replace("\r", "\n")
    if " \n" in value or "\t\n" in value:
        value = _LINE_TAIL.sub("", value)
    return value.strip()


def keys(values: Sequence[str]) -> npt.NDArray[np.uint64]:
    """64-bit XXH3 of each text's normal form."""
    digest = xxhash.xxh3_64_intdigest
    return np.fromiter((digest(normal(v).encode()) for v in values), np.uint64, len(values))
