"""How a response is written, in 47 counts: length, lists, refusal, hedges, pronouns, overlap with the prompt, repetition.

No model, and no words of any topic: what raters may like or dislike whatever the answer says. All steps go over whole arrays
of many texts, and all are exact within a text, so that its counts do not depend on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prefdata.style_text import Block
from prefdata.words_numpy import U64, Bools, Ints

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.float32]

NAMES = (
    "log_chars", "log_words", "log_sentences", "log_lines", "words_per_sentence", "word_length", "distinct_words",
    "log_list_items", "log_headings", "log_bold", "log_fences", "question_marks", "ends_with_question",
    "exclamation_marks", "digits", "upper_case", "symbols", "double_quotes", "parentheses", "non_ascii", "han",
    "refusing", "starts_refusing", "hedging", "first_person", "second_person", "polite", "starts_polite", "advising",
    "negating", "rude", "log_links", "commas", "colons", "words_in_prompt", "prompt_covered", "prompt_jaccard",
    "prompt_bigrams", "repeated_trigrams", "word_entropy", "ends_with_stop", "starts_lower_case", "starts_as_prompt",
    "at_most_four_words", "starts_sure", "starts_no", "starts_asking",
)  # fmt: skip

# A phrase has single spaces; its apostrophe may be ' or ’. Chinese is found anywhere, the rest as whole words.
_SAID = {
    "refusing": "sorry, cant, can't, cannot, can not, unable, wont, won't, as an ai, language model, not able, not appropriate, "
    "not comfortable, i do not know, i do not think, i do not have, i do not understand, i don't know, i don't think, "
    "i don't have, i don't understand, not sure, illegal, unethical, harmful, inappropriate, "
    "抱歉, 无法, 不能, 不适合, 对不起, 违法, 不道德",
    "hedging": "maybe, perhaps, might, could, may, possibly, probably, seem, seems, i think, i believe, generally, usually, "
    "可能, 也许, 大概",
    "first_person": "i, me, my, 我",
    "second_person": "you, your, 你, 您",
    "polite": "please, thank, thanks, welcome, glad, happy, hope, great, sure, of course, certainly, absolutely, 谢谢, 请",
    "advising": "should, must, need to, have to, recommend, important, consider, help, talk, safe, professional, "
    "应该, 建议, 重要",
    "negating": "no, not, never, n't, none, nothing, isnt, isn't, dont, don't, doesnt, doesn't, bad, wrong, 不, 没",
    "rude": "damn, hell, shit, fuck, ass, bitch, stupid, idiot, crap, hate, kill, steal, dumb",
}
_KINDS = tuple(_SAID)
_BEGINS = {
    "starts_sure": "Sure|Yes|Of course|Certainly|Absolutely",
    "starts_no": "No|I'm sorry|Sorry|I don|抱歉|对不起|不",
    "starts_asking": "What|How|Why|Can|Do|Are|Is",
}
_COUNTED = ("line", "digit", "upper", "symbol", "question", "exclamation", "quote", "parenthesis", "comma", "colon")

_PROMPT = 1_500  # characters of the prompt that are looked at, its last
_START = 60  # characters of a response that are its start
_BLOCK = 300_000  # bytes looked at in one go; the arrays take about 100 bytes a byte


def styles(prompts: pa.StringArray, *sides: pa.StringArray) -> tuple[Counts, ...]:
    """The counts (n, 47) of each of several responses to the same prompts, in the order of ``NAMES``; all are finite."""
    out = tuple(np.empty((len(prompts), len(NAMES)), np.float32) for _ in sides)
    searched = [_searched(side) for side in sides]
    for rows in _blocks(prompts, *sides):
        asked = Block([p[-_PROMPT:] for p in prompts[rows].to_pylist()])
        known = asked.distinct(1), asked.distinct(2)
        for table, side, marks in zip(out, sides, searched, strict=True):
            found = _counted(Block(side[rows].to_pylist()), asked, *known)
            found |= {name: values[rows] for name, values in marks.items()}
            table[rows] = np.column_stack([found[name] for name in NAMES])
    return out


def _blocks(prompts: pa.StringArray, *sides: pa.StringArray) -> Iterator[slice]:
    """Runs of rows of about ``_BLOCK`` bytes; one row may have more."""
    size = np.minimum(pc.binary_length(prompts).to_numpy(), 4 * _PROMPT).astype(np.int64) + 16
    for side in sides:
        size += pc.binary_length(side).to_numpy()
    edges = np.flatnonzero(np.diff(size.cumsum() // _BLOCK, prepend=-1, append=-1))
    yield from (slice(a, b) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def _searched(texts: pa.StringArray) -> dict[str, Floats]:
    """What Arrow's search counts: it knows word ends and spaces of ASCII only, so nothing here needs them."""

    def count(*patterns: str) -> Floats:
        found: Floats = np.log1p(sum(pc.count_substring(texts, p).to_numpy() for p in patterns))
        return found

    begins = {name: pc.match_substring_regex(texts, f"^(?:{p})") for name, p in _BEGINS.items()}
    return {
        "log_bold": np.log1p(pc.count_substring_regex(texts, r"\*\*[^*]+\*\*").to_numpy()),
        "log_fences": count("```"),
        "log_links": count("http://", "https://", "www."),
        **{name: found.to_numpy(zero_copy_only=False).astype(float) for name, found in begins.items()},
    }


_Distinct = tuple[U64, Ints, Ints]


def _counted(
    t: Block, p: Block, prompt_words: _Distinct, prompt_bigrams: _Distinct
) -> dict[str, npt.NDArray[np.generic]]:
    """All counts of some responses but those of ``_searched``."""
    chars, words = t.lengths, t.counts
    some = np.flatnonzero(t.flags & np.bitwise_or.reduce([t.bits[name] for name in _COUNTED]))
    of = {name: t.per_text(some[t.has(name, some)]) for name in _COUNTED}
    stop = t.has("stop")
    sentences = np.maximum(t.per_text(np.flatnonzero(stop[1:] & ~stop[:-1]) + 1), 1)
    letters = np.append(0, (t.last - t.first).cumsum())
    seen = np.flatnonzero(~t.has("space"))
    last = np.append(0, seen)[np.searchsorted(seen, t.ends)]
    last[last < t.starts] = 0  # a line end: the text shows nothing
    items, headings = _line_heads(t, seen)
    said, starts = _said(t)

    own, times, own_at = t.distinct(1)
    known, distinct, asked = _among(own, prompt_words[0]), np.diff(own_at), np.diff(prompt_words[2])
    shared = _sums(known, own_at)
    repeats = np.bincount(np.repeat(np.arange(t.n), distinct), times * np.log(times), t.n)
    bigrams, _, bigrams_at = t.distinct(2)
    trigrams = np.diff(t.distinct(3)[2])
    both = np.flatnonzero((words > 0) & (p.counts > 0))
    same = np.zeros(t.n)
    same[both] = t.hash[t.edges[both]] == p.hash[p.edges[both]]
    return {
        "log_chars": np.log1p(chars),
        "log_words": np.log1p(words),
        "log_sentences": np.log1p(sentences),
        "log_lines": np.log1p(of["line"]),
        "words_per_sentence": np.minimum(words / sentences, 60),
        "word_length": np.diff(letters[t.edges]) / np.maximum(words, 1),
        "distinct_words": distinct / (words + 3) ** 0.8,
        "log_list_items": np.log1p(items),
        "log_headings": np.log1p(headings),
        "question_marks": of["question"] / sentences,
        "ends_with_question": t.has("question", last),
        "exclamation_marks": of["exclamation"] / sentences,
        "digits": of["digit"] / (chars + 5),
        "upper_case": of["upper"] / (chars + 5),
        "symbols": of["symbol"] / (chars + 5),
        "double_quotes": of["quote"] / (words + 5),
        "parentheses": of["parenthesis"] / (words + 5),
        "non_ascii": t.per_text(np.flatnonzero(t.cp > 127)) / (chars + 5),
        "han": t.per_text(np.flatnonzero(t.has("han"))) / (chars + 5),
        **{kind: said[:, i] / (words + 5) for i, kind in enumerate(_KINDS)},
        "starts_refusing": starts[:, _KINDS.index("refusing")] > 0,
        "starts_polite": starts[:, _KINDS.index("polite")] > 0,
        "commas": of["comma"] / (words + 5),
        "colons": of["colon"] / (words + 5),
        "words_in_prompt": _sums(times * known, own_at) / (words + 3),
        "prompt_covered": shared / (asked + 3),
        "prompt_jaccard": shared / (distinct + asked - shared + 3),
        "prompt_bigrams": _sums(_among(bigrams, prompt_bigrams[0]), bigrams_at) / (np.maximum(words - 1, 0) + 3),
        "repeated_trigrams": 1 - trigrams / np.maximum(words - 2, 1),
        "word_entropy": np.log(np.maximum(words, 1)) - repeats / np.maximum(words, 1),
        "ends_with_stop": t.has("end", last),
        "starts_lower_case": t.has("lower", t.starts),
        "starts_as_prompt": same,
        "at_most_four_words": words <= 4,
    }


def _sums(values: npt.NDArray[np.generic], at: Ints) -> Ints:
    """The sum of whole numbers from each place to the next."""
    return np.diff(np.append(0, values.cumsum(dtype=np.int64))[at])


def _among(keys: U64, others: U64) -> Bools:
    """Which of the keys are among the others; both in order."""
    if not len(others):
        return np.zeros(len(keys), bool)
    return np.equal(others[np.minimum(np.searchsorted(others, keys), len(others) - 1)], keys)


def _line_heads(t: Block, seen: Ints) -> tuple[Ints, Ints]:
    """How many lines begin an item of a list (``- ``, ``* ``, ``• ``, ``1. ``, ``1) ``), and how many are headings (``# ``)."""
    line = np.flatnonzero(t.has("line")) + 1
    at = np.append(seen, len(t.cp) - 1)[np.searchsorted(seen, line)]
    at = at[np.diff(at, prepend=-1) > 0]  # of a line that shows nothing, the next line's was found
    mark = at + t.has("bullet", at)
    digit = t.has("decimal")
    number_ends = np.flatnonzero(digit[:-1] & ~digit[1:]) + 1
    numbered = np.flatnonzero(digit[at])
    behind = number_ends[np.searchsorted(number_ends, at[numbered])]
    mark[numbered] = np.where(t.has("after_number", behind), behind + 1, at[numbered])
    hashes = at.copy()
    for _ in range(6):
        hashes += t.cp[hashes] == ord("#")
    ends = np.append(t.ends, 0)[np.searchsorted(t.ends, at)]

    def count(behind: Ints) -> Ints:
        return t.per_text(at[(behind > at) & (behind < ends) & t.has("space", behind)])

    return count(mark), count(hashes)


@cache
def _lexicon() -> tuple[dict[int, int], list[tuple[int, list[int], str]], list[tuple[int, str]]]:
    """Words by hash, phrases as hashes and what is between them, and Chinese; all with the number of their kind."""
    words, phrases, chinese = {}, [], []
    for kind, said in enumerate(_SAID.values()):
        for phrase in said.split(", "):
            if not phrase.isascii():
                chinese.append((kind, phrase))
            elif len(hashes := Block([phrase]).hash.tolist()) == 1:
                words[hashes[0]] = kind
            else:
                phrases.append((kind, hashes, "".join(c for c in phrase if not c.isalpha())))
    return words, phrases, chinese


@cache
def _lookup() -> tuple[U64, Ints, Bools, Bools]:
    """Hashes that are a word or begin a phrase, in order; their kinds (-1: none), which begin one, and a filter by 16 bits."""
    words, phrases, _ = _lexicon()
    heads = {hashes[0] for _, hashes, _ in phrases}
    known = sorted({*words, *heads})
    hashes = np.array(known, np.uint64)
    maybe = np.zeros(1 << 16, bool)
    maybe[hashes >> np.uint64(48)] = True
    return hashes, np.array([words.get(h, -1) for h in known]), np.array([h in heads for h in known]), maybe


def _said(t: Block) -> tuple[Ints, Ints]:
    """How often a text has each of ``_SAID`` (n, 8), and how often it ends within the start."""
    _, phrases, chinese = _lexicon()
    known, kinds, begins, maybe = _lookup()
    hit = np.flatnonzero(maybe.take((t.hash >> np.uint64(48)).astype(np.intp)))
    place = np.minimum(np.searchsorted(known, t.hash[hit]), len(known) - 1)
    real = known[place] == t.hash[hit]
    hit, place = hit[real], place[real]
    alone, heads = hit[kinds[place] >= 0], hit[begins[place]]
    found = [(kinds[place][kinds[place] >= 0], t.first[alone], t.last[alone])]
    word = np.append(t.hash, np.zeros(4, np.uint64))  # zeros: for looking ahead
    for kind, hashes, links in phrases:
        at = heads[t.hash[heads] == hashes[0]]
        for i, link in enumerate(links):
            at = at[word[at + i + 1] == hashes[i + 1]]
            end = t.last[at + i]
            gap = t.cp[end]
            at = at[(t.first[at + i + 1] == end + 1) & ((gap == ord(link)) | ((gap == ord("’")) & (link == "'")))]
        found.append((np.full(len(at), kind), t.first[at], t.last[at + len(links)]))
    at = np.flatnonzero(t.last - t.first > 4)  # "fucking" and the like
    for i, c in enumerate("fuck"):
        at = at[t.cp[t.first[at] + i] | 32 == ord(c)]
    found.append((np.full(len(at), _KINDS.index("rude")), t.first[at], t.last[at]))
    han = np.flatnonzero(t.has("han"))
    for kind, phrase in chinese:
        at = han
        for i, c in enumerate(phrase):
            at = at[t.cp[at + i] == ord(c)]
        found.append((np.full(len(at), kind), at, at + len(phrase)))

    kind_of, first, last = (np.concatenate([f[i] for f in found]) for i in range(3))
    row = np.searchsorted(t.starts, first, "right") - 1
    key, size, shape = row * len(_KINDS) + kind_of, t.n * len(_KINDS), (t.n, len(_KINDS))
    early = key[last <= t.starts[row] + _START]
    return np.bincount(key, minlength=size).reshape(shape), np.bincount(early, minlength=size).reshape(shape)
