"""Stage ``label_shortcut``: see the class."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from prefdata import style
from prefdata.decisions import Decisions, Finding, Signals
from prefdata.noise import shortcuts, traits
from prefdata.noise.shortcuts import Named, Strength
from prefdata.noise.traits import Seen
from prefdata.pairs import Pairs
from prefdata.stage import Stage

_FORMAT = {  # style counts, and what a reader calls them; tables are counted here
    "log_list_items": "lists", "log_headings": "headings", "log_bold": "bold text", "log_fences": "code fences", "tables": "tables",
}  # fmt: skip
_REFUSAL = {"starts_refusing": "a refusal at the beginning", "refusing": "words of refusal"}
_TABLE_ROW = r"(?m)^[ \t]*\|.*\|[ \t]*$"
_MODELS = ("model", "model_name", "generator", "policy", "source", "name")
_NAMED, _NOTED, _ROWS, _LISTED = 5, 3, 5, 50
_RARE = 5  # pairs: a phrase or a source that tells the answers of fewer apart is not looked at
_PENALTY = {"first_words": 0.1, "stock_phrases": 0.1}  # C: many rare traits, each of which must not say much
_COVERS = 0.2  # of the pairs: a shortcut on fewer is not told beside the verdict
_LEARNT = {
    "format": "this formatting wins", "refusal": "answers that refuse (or do not) win", "first_words": "these first words win",
    "stock_phrases": "these stock phrases win", "source": "this author wins",
}  # fmt: skip
_NOT_LEARNT = ("ngrams",)  # they hold what the answers say, too


class LabelShortcut(Stage):
    """Does something simple tell which answer is chosen?

    Why it matters: a model learns the simplest thing that explains the labels. Where the longer answer, the one with a list,
    or that of a certain model wins nearly always, it learns this in place of quality; and one answer that wins under many
    prompts, or a phrase put in front of the winners, is how a set is poisoned.

    How it decides: it drops nothing. For each shortcut alone, a logistic regression without intercept on the differences of
    the two answers is fitted on nine tenths of the prompts and asked which answer is chosen on the last tenth, ten times:
    length in words and in characters, format, refusal, first words, stock phrases, source (columns that name the model of
    each answer), position (where the source shows two answers in an order), and hashed word 1-2-grams. The value is the
    accuracy over all pairs, 0.5 being chance; pairs whose answers do not differ in the trait count one half. The interval
    respects that pairs of one prompt are alike. It is told before cleaning and after. Phrases, sources and whole answers that
    win or lose for certain are named: phrases and sources are picked on nine tenths of the prompts and counted on the rest;
    an answer must stand under ``min_prompts`` prompts, each of which counts once.

    What it misses: whether a shortcut is wrong: longer answers may be better, and a refusal may be the right answer. Shortcuts
    that are made of several traits, or lie in the meaning. The position in rows that came as chosen and rejected. The word
    n-grams look at 20,000 pairs, and at 400 words of each answer.

    References: arXiv:2310.03716 (length), arXiv:2404.04475 (length control), arXiv:2409.11704 (format), arXiv:2311.14455
    (poisoned preferences).
    """

    compares: ClassVar = True
    measured: ClassVar = frozenset[str]()

    min_pairs: int = Field(100, ge=20)
    """With fewer pairs nothing is looked for: all would be chance."""
    max_pairs: int = Field(50_000, ge=100)
    """Pairs that the fits look at, at most; which ones, their hashes say."""
    min_prompts: int = Field(5, ge=2)
    """Prompts under which an answer must stand to be called recurring."""
    strong: float = Field(0.7, gt=0.5, le=1)
    """A shortcut that is right so often, on at least a fifth of the pairs, is told beside the verdict."""

    def measure(self, pairs: Pairs) -> pa.Table:
        """Differences of the answers, chosen minus rejected, and who wrote each where that is known."""
        one, two = pairs.style
        at = {name: k for k, name in enumerate(style.NAMES)}
        columns: dict[str, Any] = {name: one[:, at[name]] - two[:, at[name]] for name in _FORMAT if name in at}
        rows = [pc.count_substring_regex(answers, _TABLE_ROW).to_numpy() for answers in (pairs.chosen, pairs.rejected)]
        columns["tables"] = np.log1p(rows[0]).astype(np.float32) - np.log1p(rows[1]).astype(np.float32)
        for name in _REFUSAL:  # whether there are any: the count is a rate, which speaks of length, too
            columns[name] = (one[:, at[name]] > 0).astype(np.int8) - (two[:, at[name]] > 0)
        columns["characters"] = pc.subtract(pc.utf8_length(pairs.chosen), pc.utf8_length(pairs.rejected))
        for side, names in zip(("chosen", "rejected"), _authors(pairs.columns, len(pairs)), strict=True):
            columns[f"source_{side}"] = pa.array(names, pa.string()).dictionary_encode()
        return pa.table(columns)

    def decide(self, signals: Signals) -> Decisions:
        """Keep all; say how far each shortcut reaches."""
        out = Decisions(signals.index)
        told = signals.living(signals.index[~(signals.mask("pair.reversed") | signals.mask("pair.tie"))])
        if len(told) < self.min_pairs:
            text = f"fewer than {self.min_pairs} labelled pairs: no shortcut was looked for"
            out.findings.append(Finding("shortcuts_not_measured", len(told), len(told), text))
            return out
        seen = traits.seen(told, self.max_pairs)
        strong: list[tuple[Strength, str]] = []
        edges, keys = shortcuts.indicators(*seen.edges, _RARE)
        for name, trait, about in _shortcuts(seen, edges, keys):
            fold, prompts = seen.fold[: trait.shape[0]], seen.prompts[: trait.shape[0]]
            said, margin = shortcuts.said(trait, fold, prompts, _PENALTY.get(name, 1.0))
            found = shortcuts.strength(said, margin, prompts)
            best = np.argsort(-margin, kind="stable")[:_ROWS]
            text = f"{about}; right on {_percent(found.right)} of the pairs whose answers differ in it"
            out.findings.append(Finding(
                name, found.accuracy, found.n, text if found.covers else "the answers do not differ in it", found.low, found.high,
                tuple(seen.rows[best[margin[best] > 0]].tolist()), covers=found.covers,
            ))  # fmt: skip
            by_design = name == "position" and found.right > 0.99  # the better answer always stands in one place
            strong_here = found.right >= self.strong and found.covers >= _COVERS and found.low > 0.5
            if strong_here and not by_design and name not in _NOT_LEARNT:
                strong.append((found, _LEARNT.get(name, about.partition(",")[0])))
        out.findings += [
            *_phrases(seen, edges, keys),
            *_sources(seen),
            *_answers(told, self.min_prompts),
            *_note(strong),
        ]
        return out


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


# ---------------------------------------------------------------------------------------------- who wrote the answers


def _authors(columns: Mapping[str, pa.Array], n: int) -> tuple[list[str | None], list[str | None]]:
    """Who wrote the chosen and the rejected answer of each pair, where columns say so: ``chosen_model``, ``pd_chosen_info``..."""
    there = {re.sub(r"[\W_]+", "_", name.casefold()): name for name in columns}
    for tag in _MODELS:
        for form in ("{side}_{tag}", "{tag}_{side}"):
            pair = [there.get(form.format(side=side, tag=tag)) for side in ("chosen", "rejected")]
            if pair[0] is not None and pair[1] is not None:
                return _names(columns[pair[0]].to_pylist()), _names(columns[pair[1]].to_pylist())
    told = [columns.get(f"pd_{side}_info") for side in ("chosen", "rejected")]
    one, two = (_names([None] * n if t is None else map(_inside, t.to_pylist())) for t in told)
    return one, two


def _names(values: Any) -> list[str | None]:
    return [v if isinstance(v, str) and v else None for v in values]


def _inside(info: Any) -> Any:
    """The author in what a source says of an answer (an object, or one as JSON)."""
    if isinstance(info, str):
        try:
            info = orjson.loads(info)
        except orjson.JSONDecodeError:  # a column of the user's own
            return None
    return next((v for tag in _MODELS if (v := info.get(tag)) is not None), None) if isinstance(info, dict) else None


# ---------------------------------------------------------------------------------------------- each shortcut


def _shortcuts(seen: Seen, edges: Any, keys: Any) -> Iterator[tuple[str, Any, str]]:
    """Name, differences (pairs, k), and what wins, for each shortcut that there is something to say of."""
    words = seen.column("pair.chosen_words") - seen.column("pair.rejected_words")
    for unit, gap in (("words", words), ("characters", seen.column("label_shortcut.characters"))):
        yield f"length_{unit}", gap, f"the {'longer' if np.sign(gap).sum() >= 0 else 'shorter'} answer wins, in {unit}"
    for name, parts in (("format", _FORMAT), ("refusal", _REFUSAL)):
        gaps = np.stack([seen.column(f"label_shortcut.{part}") for part in parts], axis=1)
        yield name, gaps, _wins(gaps, list(parts.values()))
    ending, size = shortcuts.edge_of(keys)
    yield "first_words", edges[:, ~ending & (size <= 2)], "by the first word and the first two"
    yield (
        "stock_phrases",
        edges[:, np.where(ending, size > 1, size > 2)],
        "by frequent beginnings and endings of 2 to 4 words",
    )
    authors, names = _by_author(seen)
    if len(names):
        yield "source", authors, f"by who wrote the answer, {len(names)} known"
    if "pair.position" in seen.signals.names:
        second = seen.signals.column("pair.position").astype(np.float32)[seen.order]
        place = np.nan_to_num(np.where(seen.swapped, 2 * second - 1, 1 - 2 * second))
        if place.any():
            yield "position", place, f"the answer shown {'first' if place.sum() >= 0 else 'second'} wins"
    grams = shortcuts.frequent(seen.grams, _RARE)
    yield "ngrams", grams, "by single words and pairs of words"


def _wins(gaps: Any, parts: Sequence[str]) -> str:
    """How often the answer with more of each part wins."""
    told = []
    for gap, part in zip(gaps.T, parts, strict=True):
        if n := int((gap != 0).sum()):
            told.append(f"{part} {_percent(float((gap > 0).sum()) / n)} of {n:,}")
    return f"how often the answer with more of it wins: {', '.join(told)}"


def _by_author(seen: Seen) -> tuple[Any, Any]:
    """A column for each author, as ``shortcuts.indicators`` gives it, and their names."""
    sides = seen.sides("label_shortcut.source_chosen", "label_shortcut.source_rejected")
    known = [np.array([name is not None for name in side]) for side in sides]
    told = np.concatenate([side[k] for side, k in zip(sides, known, strict=True)]).astype(str)
    names, number = np.unique(told, return_inverse=True)
    keys = np.zeros((2, len(sides[0])), np.uint64)
    keys[np.stack(known)] = number + 1
    found, there = shortcuts.indicators(keys[0][:, None], keys[1][:, None], _RARE)
    return found, names[there.astype(np.int64) - 1]


# ---------------------------------------------------------------------------------------------- what is named


def _phrases(seen: Seen, edges: Any, keys: Any) -> Iterator[Finding]:
    ending, size = shortcuts.edge_of(keys)
    for i, found in enumerate(shortcuts.named(edges, size, seen.fold, seen.prompts, _NAMED), 1):
        at, k = int(found.pairs[0]), found.trait
        words = seen.phrase(at, chosen=edges[at, k] > 0, ending=bool(ending[k]), words=int(size[k]))
        text = f"the answer that {'ends' if ending[k] else 'begins'} with “{{phrase}}” wins {_percent(found.share)} of the {found.n:,} pairs in which the other one does not"
        yield _finding(f"phrase_{i}", found, text, seen.rows, words)


def _sources(seen: Seen) -> Iterator[Finding]:
    authors, names = _by_author(seen)
    same = np.zeros(len(names), np.int64)
    for i, found in enumerate(shortcuts.named(authors, same, seen.fold, seen.prompts, _NAMED), 1):
        text = f"the answer of {names[found.trait]} wins {_percent(found.share)} of its {found.n:,} pairs with answers of others"
        yield _finding(f"source_{i}", found, text, seen.rows)


def _answers(told: Signals, least: int) -> Iterator[Finding]:
    """Answers that recur under many prompts and win, or lose."""
    prompts, chosen, rejected = traits.keys(told)
    found = shortcuts.recurring(chosen, rejected, prompts, least)
    for name, does, some in (
        ("poisoned_answer", "chosen", [f for f in found if f.share > 0.5]),
        ("losing_answer", "rejected", [f for f in found if f.share < 0.5]),
    ):
        text = f"answers, each the same under at least {least} prompts, that are {does} under most of them"
        yield Finding(f"{name}s", len(some), len(told), text)
        for i, one in enumerate(some[:_NAMED], 1):
            share = one.share if does == "chosen" else 1 - one.share
            said = (
                f"one and the same answer stands under {one.n:,} prompts and is {does} under {_percent(share)} of them"
            )
            yield _finding(f"{name}_{i}", one, said, told.index)


def _finding(name: str, found: Named, text: str, rows: Any, words: tuple[int, ...] = ()) -> Finding:
    examples = tuple(rows[found.pairs[:_LISTED]].tolist())
    return Finding(name, found.share, found.n, text, found.low, found.high, examples, words=words)


def _note(strong: Sequence[tuple[Strength, str]]) -> Iterator[Finding]:
    """One sentence on the strongest shortcuts, for a reader of the verdict alone."""
    if not strong:
        return
    by_what: dict[str, Strength] = {}
    for found, learnt in sorted(strong, key=lambda s: -s[0].accuracy):
        by_what.setdefault(learnt, found)
    told = ", ".join(
        f"“{learnt}” is right on {_percent(found.right)} of {round(found.covers * found.n):,} pairs"
        for learnt, found in list(by_what.items())[:_NOTED]
    )
    n = max(found.n for found, _ in strong)
    text = f"A model can learn something simpler than quality here: {told}."
    yield Finding("strong_shortcuts", len(by_what), n, text)
