"""Sentences by script; the words of a text; light edits that leave numbers, negation and code alone."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import orjson

from prefdata.bench import vocabulary
from prefdata.errors import InputError

_THAI, _HAN, _KANA = "\u0e01-\u0e5b", "\u3400-\u9fff\uf900-\ufaff", "\u3040-\u30ff"
_WORD = re.compile(rf"[{_THAI}{_HAN}{_KANA}]|[^\W{_THAI}{_HAN}{_KANA}]+")
_FENCE = re.compile(r"```.*?```", re.DOTALL)
_ENDS = re.compile(r"(?<=[.!?؟])\s+|(?<=[。！？])\s*|\n+")
_SPEAKER = re.compile(r"^(?:Human|Assistant|User|System):\s*")
_UNWANTED = re.compile(
    r"<\||\[/?INST|</?s>|<image>|<unk>|<pad>|<[be]os>|_of_turn>"  # what a stage would call special
    r"|\ufffd|[\u200b-\u200f\u2060\ufeff\x00-\x08\x0e-\x1f]"
)
_CODE_LINE = re.compile(r"[`{}<>=_\\|@#$]|;$|\w\(|://|^\s{4}")
_NUMBERS = """one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred
thousand million billion half third quarter double twice once first second zero dozen"""
_NEGATION = """not no never none non nor neither nobody nothing nowhere without cannot cant dont doesnt isnt
wont unless except hardly against false true yes don
doesn didn isn aren wasn weren won wouldn couldn shouldn hasn haven hadn ain ما لا لم لن ليس غير بدون"""
_FIXED = frozenset(_NUMBERS.split() + _NEGATION.split())
_FIXED_HAN = frozenset("不没沒無无未非别別否勿莫弗禁零一二三四五六七八九十百千万萬亿億两兩半")
_THAI_NOT = re.compile("ไม่|มิ|ไร้|อย่า|หนึ่ง|สอง|สาม|สี่|ห้า|หก|เจ็ด|แปด|เก้า|สิบ|ร้อย|พัน")


def words(value: str) -> list[str]:
    """Lower-case words; each Chinese, Japanese or Thai character is a word."""
    return _WORD.findall(value.lower())


def jaccard(a: str, b: str, n: int) -> float:
    """Exact Jaccard index of the sets of word n-grams (a shorter text is one gram)."""
    x, y = _grams(words(a), n), _grams(words(b), n)
    return len(x & y) / len(x | y) if x or y else 1.0


def _grams(w: Sequence[str], n: int) -> set[tuple[str, ...]]:
    return {tuple(w[i : i + n]) for i in range(max(1, len(w) - n + 1))} if w else set()


@dataclass
class Language:
    """The sentences of one script, their bytes, and words that may be put in the place of others."""

    name: str
    joint: str
    sentences: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    spare: list[str] = field(default_factory=list)


@dataclass
class Pool:
    """What a corpus is made of: sentences by script, and blocks of code."""

    languages: list[Language]
    code: list[str]

    @property
    def size(self) -> int:
        """How many sentences."""
        return sum(len(x.sentences) for x in self.languages)

    @classmethod
    def of(cls, units: Iterable[str]) -> Pool:
        """Sort sentences and code blocks by script; scripts with fewer than 100 sentences are left out."""
        found = {"han": Language("han", ""), "thai": Language("thai", " "), "other": Language("other", " ")}
        code = []
        for unit in units:
            if unit.startswith("```"):
                code.append(unit)
                continue
            to = found[_script(unit)]
            to.sentences.append(unit)
            to.sizes.append(len(unit.encode()))
        languages = [x for x in found.values() if len(x.sentences) >= 100]
        for to in languages:
            to.plain = [s for s in to.sentences if not re.search(r"\d", s) and not _CODE_LINE.search(s)]
            count = Counter(w for s in islice(to.plain, 20000) for _, _, w in editable(s))
            to.spare = [w for w, _ in count.most_common(2000)] or ["word"]
        return cls(languages, code)


def _script(unit: str) -> str:
    n = len(unit)
    if len(re.findall(f"[{_HAN}{_KANA}]", unit)) * 3 > n:
        return "han"
    return "thai" if len(re.findall(f"[{_THAI}]", unit)) * 3 > n else "other"


def editable(value: str) -> list[tuple[int, int, str]]:
    """Spans of words whose change leaves numbers, negation, names and code as they are."""
    banned = [m.span() for m in _FENCE.finditer(value)]
    banned += [m.span() for m in _THAI_NOT.finditer(value)]
    out, at = [], 0
    for line in value.split("\n"):
        if not _CODE_LINE.search(line):
            for m in _WORD.finditer(line):
                word, lo = m.group(), at + m.start()
                if not _may_change(word) or line[m.end() : m.end() + 1] in ("'", "’", "\u0301"):
                    continue
                if banned and any(lo < b and a < lo + len(word) for a, b in banned):
                    continue
                out.append((lo, lo + len(word), word))
        at += len(line) + 1
    return out


def _may_change(word: str) -> bool:
    if len(word) == 1:
        if "\u0e01" <= word <= "\u0e2e":
            return word != "ม"
        return "\u3400" <= word <= "\u9fff" and word not in _FIXED_HAN
    return len(word) > 2 and word.isalpha() and word.islower() == (word.lower() != word.upper()) and word not in _FIXED


def edit(sides: Sequence[str], rate: float, spare: Sequence[str], rng: Random) -> list[str]:
    """The texts with a share of each one's words replaced, left out or joined by another; at least one."""
    spans = [editable(side) for side in sides]
    wanted = [int(rate * len(_WORD.findall(side)) + rng.random()) for side in sides]
    if not sum(min(w, len(s)) for w, s in zip(wanted, spans, strict=True)):
        most = max(range(len(sides)), key=lambda i: len(spans[i]))
        wanted[most] = 1
    return [
        _edited(side, rng.sample(s, min(w, len(s))), spare, rng)
        for side, s, w in zip(sides, spans, wanted, strict=True)
    ]


def _edited(text: str, spans: list[tuple[int, int, str]], spare: Sequence[str], rng: Random) -> str:
    for lo, hi, word in sorted(spans, reverse=True):
        other, way = rng.choice(spare), rng.random()
        if other == word:
            other = spare[0] if word != spare[0] else spare[-1]
        gap = " " if text[lo - 1 : lo] == " " and len(word) > 1 else ""
        if way < 0.6 or (not gap and len(word) > 1):
            text = text[:lo] + other + text[hi:]
        elif way < 0.8:
            text = text[: lo - len(gap)] + text[hi:]
        else:
            text = text[:hi] + gap + other + text[hi:]
    return text


def split(value: str) -> Iterator[str]:
    """Sentences and whole code blocks of a text; not the too short or long, nor special tokens."""
    for block in _FENCE.findall(value):
        if 20 <= len(block) <= 600:
            yield block
    for piece in _ENDS.split(_FENCE.sub("\n", value).replace("```", "\n")):
        one = _SPEAKER.sub("", " ".join(piece.split()))
        sound = one.count("`") % 2 == 0 and not _UNWANTED.search(one)
        if sound and 12 <= len(one.encode()) <= 400 and len(_WORD.findall(one)) > 2:
            yield one


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from _strings(v)
    elif isinstance(value, list):
        for v in value:
            yield from _strings(v)


def _texts(path: Path) -> Iterator[str]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        if path.name.removesuffix(".gz").endswith(".txt"):
            for line in file:
                yield line.decode("utf-8", "replace")
            return
        if file.read(1) == b"[":
            file.seek(0)
            yield from _strings(orjson.loads(file.read()))
            return
        file.seek(0)
        for line in file:
            try:
                yield from _strings(orjson.loads(line))
            except orjson.JSONDecodeError:
                continue  # a broken line has no sentences to give


def read(paths: Sequence[Path], most: int = 200_000, least: int = 1000) -> Pool:
    """The sentences of text, JSON or JSON-lines files (every string in them); made-up ones if too few."""
    seen: dict[str, None] = {}
    for path in paths:
        if not path.is_file():
            raise InputError(
                "does not exist",
                where=str(path),
                hint="Name a text, JSON or JSONL file, or leave --from out.",
            )
        for text in _texts(path):
            seen.update(dict.fromkeys(split(text)))
            if len(seen) >= most:
                break
    if len(seen) < least:
        seen.update(dict.fromkeys(vocabulary.sentences()))
    return Pool.of(seen)
