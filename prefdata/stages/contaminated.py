"""Pairs whose prompt is also a prompt of an evaluation set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from prefdata.decisions import Decisions, Finding, Signals
from prefdata.lexicon import mixed
from prefdata.pairs import Pairs
from prefdata.stage import Stage
from prefdata.text import Words, keys, words

if TYPE_CHECKING:
    from prefdata.evaluation import Evaluation

U64 = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
_SHORT = 4  # words; a prompt below that ("Hi", "Go on.") belongs to nobody
_BELOW = 0.1  # scores that far below the limit are told too
_ROWS = 12  # bits: rows looked at in one pass; the other bits of a number hold the hash of a word pair
_BITS = np.uint64(64 - _ROWS)
_TABLE = 22  # bits: of the table that most word pairs are turned away by
_CELLS = 4_000_000  # rows x evaluation prompts compared in one go: about 50 MB
_FEW, _OFTEN = 10, 0.02  # a word pair in more views of a file than this, and than this share of them, is its template
_EXAMPLES = 50


class Contaminated(Stage):
    """Is the prompt of this pair also a prompt of an evaluation set?

    Why it matters: a model that was trained on the questions of a test is better at that test and at nothing else; the
    result cannot be compared with anyone's, and nobody sees it afterwards.

    How it decides: the prompts of the evaluation sets (``against``: files, globs, folders, in any form, with or without
    answers) are compared with each prompt, and with the user's last turn where a prompt holds more than that (system text,
    earlier turns). They are the same if their normal forms are equal, or if they share at least the limit of their word
    pairs (Jaccard index) and all numbers, negations, symbols and code, in order: a template with another number is another
    question. The limit must hold once more without the word pairs that stand in more than 1 of 50 prompts of a file (and in
    more than 10), which are its template. Each is compared exactly. Prompts of fewer than 4 words must be equal, and are
    flagged only: everybody says them. The score is the lower of the two indices, told down to 0.1 below the limit. A finding
    for each file says how many of its prompts occur, and where.

    What it misses: paraphrases and translations; questions asked in an earlier turn, or with options, passages or
    instructions put around them that the evaluation file has in other columns; answers of the evaluation set; pictures.

    References: z-lab/dflash#43, huggingface/open-r1#416, allenai/open-instruct#403, marin-community/marin#6852
    """

    reasons: ClassVar[Mapping[str, str]] = {
        "contaminated": "The prompt is, but for a few words, one of an evaluation set; the findings say of which file. Leave"
        " it out, or do not report results on that set.",
    }
    measured: ClassVar[frozenset[str]] = frozenset()  # of ``against`` only whether there is any: see depends_on
    drops: ClassVar[Literal["above", "below"] | None] = "above"
    scale: ClassVar[str] = "Jaccard index of word pairs with the nearest prompt of the evaluation sets, 0-1"

    against: tuple[str, ...] = ()
    """Evaluation sets: paths, globs, folders."""
    threshold: float = Field(0.8, gt=0, le=1)
    action: Literal["drop", "flag"] = "drop"

    def depends_on(self) -> str:
        """Whether there is any set to compare with; one that cannot be read is told here, before the work."""
        self._evaluations()
        return "prompts" if self.against else ""

    def measure(self, pairs: Pairs) -> pa.Table:
        """Hashes of the user's last turn, of nothing where it is the whole prompt: its form, its content, its words."""
        if not self.against:
            return pa.table({})
        from prefdata.evaluation import last_turn

        chat = pairs.chat or [None] * len(pairs)
        turns = [last_turn(p.prompt if p else t) for p, t in zip(chat, pairs.texts("prompt"), strict=True)]
        array = pa.array(turns, pa.string())
        found = words(array)
        return pa.table({
            "turn_key": keys(turns, array), "turn_content": found.content,
            "turn_words": _lists(found),
        })  # fmt: skip

    def decide(self, signals: Signals) -> Decisions:
        """Read the evaluation sets and look for each prompt among theirs."""
        if not self.against:
            out = Decisions(signals.index)
            text = "no evaluation set was given: nothing was compared with one"
            out.findings.append(Finding("contamination_not_checked", len(out), len(out), text))
            return out
        sets = self._evaluations()
        index = _Index(sets, self.threshold)
        out = Decisions(signals.index, limit=self.threshold)
        known, sure = np.zeros((len(sets), len(out)), bool), np.zeros(len(out), bool)
        for where, key, content, texts, counts in _asked(signals):
            equal, same = index.equal(key)
            best = np.full(len(key), np.nan)
            best[equal] = 1
            near, close = index.near(content, texts, counts, best)
            out.score[where] = np.fmax(out.score[where], best)
            sure[where][near] = True
            sure[where][equal[counts[equal] >= _SHORT]] = True
            index.note(known[:, where], np.append(equal, near), np.append(same, close))
        for action, some in ((self.action, sure), ("flag", ~sure)):
            out.mark(known.any(axis=0) & some, action, "contaminated")
        for number, (file, rows) in enumerate(zip(sets, known, strict=True)):
            there, n = index.found(number)
            of = f"{file.name} ({', '.join(file.columns)}; sha256 {file.sha256[:12]})"
            text = f"{there} of {n} prompts of {of} occur, in {rows.sum()} pairs"
            if file.unread:
                text += f"; {file.unread} rows of the file have no prompt that can be read"
            examples = tuple(signals.index[np.flatnonzero(rows)[:_EXAMPLES]].tolist())
            out.findings.append(Finding("evaluation_prompts", there, n, text, rows=examples))
        return out

    def _evaluations(self) -> list[Evaluation]:
        from prefdata import evaluation

        return [e for path in self.against for e in evaluation.read(path)]


def _asked(signals: Signals) -> Iterator[tuple[slice, U64, U64, pa.ListArray, Ints]]:
    """Chunk by chunk, the prompts and then the last turns: where, form, content, lists that begin with the words, how many."""
    names = ["pair.prompt_key", "pair.prompt_content", "pair.words", "pair.prompt_words"]
    for where, got in signals.batches(names):
        yield where, *(got[n] for n in names[:3]), got[names[3]].astype(np.int64)
    names = ["contaminated.turn_key", "contaminated.turn_content", "contaminated.turn_words"]
    for where, got in signals.batches(names):
        yield where, *(got[n] for n in names), np.diff(got[names[2]].offsets.to_numpy()).astype(np.int64)


class _Index:
    """The prompts of evaluation sets, ready to be compared with many others.

    A *view* is a distinct text under which prompts occur. ``pairs_of`` is the sparse matrix of views x word pairs (none of
    a view too short to be near anything), ``views_of`` that of word pairs x views, without the pairs of templates.
    """

    def __init__(self, sets: list[Evaluation], threshold: float) -> None:
        from scipy.sparse import csr_array

        prompts = [(number, views) for number, file in enumerate(sets) for views in file.prompts]
        told = [text for _, views in prompts for text in views]
        array = pa.array(told, pa.string())
        self.threshold = threshold
        self.file = np.array([number for number, _ in prompts])
        self.prompt = np.repeat(np.arange(len(prompts)), [len(views) for _, views in prompts])
        self.keys, first, self.view = np.unique(keys(told, array), return_index=True, return_inverse=True)
        self.seen = np.zeros(len(self.keys), bool)
        self.holds = np.zeros((len(sets), len(self.keys)), bool)
        self.holds[self.file[self.prompt], self.view] = True

        found = words(array.take(pa.array(first)))
        self.content = found.content
        made = [(start + row, pair) for start, row, pair in _pairs(_lists(found), found.counts.astype(np.int64))]
        row, pair = (np.concatenate(parts) for parts in zip(*made, strict=True))
        self.pairs, column = np.unique(pair, return_inverse=True)
        self.counts = np.bincount(row, minlength=len(self.keys))
        self.pairs_of = csr_array((np.ones(len(row), np.int32), (row, column)), (len(self.keys), len(self.pairs)))
        self.rare = np.ones(len(self.pairs), bool)
        for holds in self.holds:
            often = np.bincount(column[holds[row]], minlength=len(self.pairs))
            self.rare &= often <= max(_FEW, _OFTEN * holds.sum())
        self.rare_counts = np.bincount(row[self.rare[column]], minlength=len(self.keys))
        self.views_of = (self.pairs_of * self.rare).T.tocsr()
        self.views_of.eliminate_zeros()
        self.maybe = np.zeros(1 << _TABLE, bool)
        self.maybe[self.pairs >> (_BITS - np.uint64(_TABLE))] = True

    def equal(self, key: U64) -> tuple[Ints, Ints]:
        """The rows whose key is that of a view, and which view."""
        at = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        row = np.flatnonzero(self.keys[at] == key)
        return row, at[row]

    def near(self, content: U64, texts: pa.ListArray, counts: Ints, best: npt.NDArray[np.float64]) -> tuple[Ints, Ints]:
        """The rows that are near a view, and which view; raises ``best`` to the highest index of each row compared."""
        from scipy.sparse import csr_array

        rows, views = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for start, row, pair in _pairs(texts, np.where(np.isin(content, self.content), counts, 0)):
            size = np.bincount(row)
            likely = np.flatnonzero(self.maybe[pair >> (_BITS - np.uint64(_TABLE))])
            column = np.minimum(np.searchsorted(self.pairs, pair[likely]), len(self.pairs) - 1)
            there = self.pairs[column] == pair[likely]
            row, column = row[likely[there]], column[there]
            rare = self.rare[column]
            hits = np.bincount(row[rare], minlength=len(size))
            rare_size = size - np.bincount(row[~rare], minlength=len(size))
            # No view can share more of a row's pairs than all views together.
            some = np.flatnonzero((hits > 0) & (hits >= (self.threshold - _BELOW) * rare_size))
            own = csr_array((np.ones(len(row), np.int32), (row, column)), (len(size), len(self.pairs)))
            step = max(1, _CELLS // len(self.keys))
            for part in (some[i : i + step] for i in range(0, len(some), step)):
                both = (own[part] @ self.views_of).tocoo()
                at, view = part[both.coords[0]], both.coords[1].astype(np.int64)
                index = both.data / (rare_size[at] + self.rare_counts[view] - both.data)
                like = (index >= self.threshold - _BELOW) & (content[start + at] == self.content[view])
                at, view, index = at[like], view[like], index[like]
                shared = own[at].multiply(self.pairs_of[view]).sum(axis=1)
                index = np.fmin(index, shared / (size[at] + self.counts[view] - shared))
                np.fmax.at(best, start + at, index)
                close = index >= self.threshold
                rows.append(start + at[close])
                views.append(view[close])
        return np.concatenate(rows), np.concatenate(views)

    def note(self, known: npt.NDArray[np.bool_], row: Ints, view: Ints) -> None:
        """These rows hold these views: mark the rows in ``known`` (files x rows), and remember the views."""
        self.seen[view] = True
        for file, holds in zip(known, self.holds, strict=True):
            file[row[holds[view]]] = True

    def found(self, file: int) -> tuple[int, int]:
        """How many distinct prompts of a file were found, and how many it has."""
        occurs = np.zeros(len(self.file), bool)
        occurs[self.prompt[self.seen[self.view]]] = True
        whole = self.view[np.searchsorted(self.prompt, np.arange(len(self.file)))]
        mine = np.flatnonzero(self.file == file)
        _, first = np.unique(whole[mine], return_index=True)
        return int(occurs[mine[first]].sum()), len(first)


def _lists(found: Words) -> pa.ListArray:
    return pa.ListArray.from_arrays(found.offsets.astype(np.int32), found.hashes)


def _pairs(texts: pa.ListArray, counts: Ints) -> Iterator[tuple[int, Ints, U64]]:
    """The distinct word pairs of texts of at least ``_SHORT`` words: the number of the first row of some, and for each pair
    its row among these and its hash, sorted by both. A text is the first ``counts`` words of its list.
    """
    begin, hashes = texts.offsets.to_numpy().astype(np.int64), texts.values.to_numpy()
    counts = np.where(counts >= _SHORT, counts, 0)
    for start in range(0, max(1, len(counts)), 1 << _ROWS):
        count = counts[start : start + (1 << _ROWS)]
        row = np.repeat(np.arange(len(count)), count)
        before = begin[start : start + len(count)] - (np.cumsum(count) - count)
        wide = hashes[before[row] + np.arange(len(row))].astype(np.uint64)
        inside = row[1:] == row[:-1]
        hashed = mixed((wide[:-1] << np.uint64(32)) | wide[1:])[inside] >> np.uint64(_ROWS)
        packed = (row[1:][inside].astype(np.uint64) << _BITS) | hashed
        packed.sort()  # np.unique takes ten times as long
        packed = packed[np.diff(packed, prepend=~np.uint64(0)) != 0]
        yield start, (packed >> _BITS).astype(np.int64), packed & ((np.uint64(1) << _BITS) - np.uint64(1))
