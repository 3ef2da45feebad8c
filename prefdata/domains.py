"""The domain of each pair: what is laid down of a batch, and what is made of it for the whole set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prefdata import cells, clusters, languages
from prefdata.decisions import Signals
from prefdata.errors import ConfigError, near_or_all
from prefdata.lexicon import mixed
from prefdata.near import combined
from prefdata.pairs import SIDES, Pairs

Ints = npt.NDArray[np.int64]
# Columns that are looked for, in this order.
COLUMNS = (
    "domain", "category", "topic", "subject", "task", "task_type", "subset", "source", "dataset", "source_dataset",
    "language", "lang",
)  # fmt: skip
_LONGEST, _MOST = 64, 1_000  # characters of a value, and different values, of a column taken for domains unasked
_SAMPLE = 20_000  # pairs that clusters are fitted to
_AT_ONCE = 8_192
_ROWS = 50


@dataclass(frozen=True)
class Domains:
    """The domain of each living pair: an index into ``names`` (largest first), -1 where it has none.

    Of clusters, ``words`` are the hashes of the words that stand for each, and ``examples`` rows that hold them.
    """

    of: Ints
    names: list[str]
    source: str
    words: list[tuple[int, ...]] | None = None
    examples: list[tuple[int, ...]] | None = None

    @property
    def counts(self) -> Ints:
        """Pairs of each domain."""
        return np.bincount(self.of[self.of >= 0], minlength=len(self.names))

    def called(self, domain: int) -> str:
        """The domain's name, that of a cluster with a place for its words (see ``Finding.words``)."""
        return f"{self.names[domain]} ({{words}})" if self.words and self.words[domain] else self.names[domain]


def known_columns(pairs: Pairs) -> pa.StructArray:
    """The columns of known names: short texts, and null for all else."""
    return pa.StructArray.from_arrays([_short(pairs, name) for name in COLUMNS], list(COLUMNS))


def _short(pairs: Pairs, name: str) -> pa.Array:
    column = pairs.columns.get(name)
    if column is None or not (pa.types.is_string(column.type) or pa.types.is_dictionary(column.type)):
        return pa.nulls(len(pairs), pa.null() if column is None else pa.string())
    text = cells.labels(column)
    label = pc.and_(pc.less_equal(pc.utf8_length(text), _LONGEST), pc.invert(pc.match_substring_regex(text, r"\n|://")))
    return pc.if_else(label, text, pa.scalar(None, pa.string()))


def others(pairs: Pairs, missing: bool) -> pa.Array:
    """The names of the columns there are, where the named one is missing; else nulls."""
    listed = sorted(pairs.columns) if missing else None
    return pa.array([listed] * len(pairs), pa.list_(pa.string()))


def must_be_there(signals: Signals, names: str, column: str, where: str) -> None:
    """Raise ConfigError if no batch had that column: ``names`` are signals of ``others``."""
    listed: list[str] = []
    for _, got in signals.batches([names]):
        if got[names].null_count:
            return
        listed = listed or got[names][0].as_py()
    if len(signals):
        near = near_or_all(column, listed, "Columns beside the pair")
        hint = near if listed else "The rows hold the pair and no more."
        raise ConfigError(f"no row has a column {column!r}", where=where, hint=hint)


def by_column(signals: Signals, name: str, column: str) -> Domains | None:
    """The values of a signal of texts; None if there are none."""
    return _coded(signals, name, lambda got: got, f"the column {column!r}")


def by_known_column(signals: Signals, name: str) -> Domains | None:
    """The first of the known columns with 2 to 1,000 different short texts."""
    for column in COLUMNS:
        found = _coded(signals, name, partial(pc.struct_field, indices=column), f"the column {column!r}", _MOST)
        if found and len(found.names) > 1:
            return found
    return None


def by_language(signals: Signals, name: str) -> Domains | None:
    """Languages; None where none was told."""
    return _coded(signals, name, lambda got: pc.if_else(pc.equal(got, languages.UNKNOWN), None, got), "language")


def _coded(
    signals: Signals, name: str, part: Callable[[pa.Array], pa.Array], source: str, most: int | None = None
) -> Domains | None:  # fmt: skip
    """Numbers for texts; None where there are none, or more than ``most`` different ones."""
    of, numbers = np.full(len(signals), -1), dict[str, int]()
    for where, got in signals.batches([name]):
        column = part(got[name])
        if column.null_count == len(column):
            continue
        coded = column.dictionary_encode()
        here = [numbers.setdefault(text, len(numbers)) for text in coded.dictionary.to_pylist()]
        if most is not None and len(numbers) > most:
            return None
        of[where] = np.array([*here, -1])[coded.indices.fill_null(len(here)).to_numpy(zero_copy_only=False)]
    return _ranked(of, list(numbers), source) if numbers else None


def _ranked(of: Ints, names: list[str], source: str) -> Domains:
    """Domains with the largest first; equal ones by name; those that no living pair has are left out."""
    counts = np.bincount(of[of >= 0], minlength=len(names)).tolist()
    order = sorted((i for i in range(len(names)) if counts[i]), key=lambda i: (-counts[i], names[i]))
    place = np.full(len(names) + 1, -1)
    place[order] = np.arange(len(order))
    return Domains(place[of], [names[i] for i in order], source)


def hashes(signals: Signals) -> npt.NDArray[np.uint64]:
    """A seeded hash of each living pair's texts."""
    keys = combined([signals.column(f"pair.{side}_key") for side in SIDES])
    return mixed(keys + mixed(np.array([signals.seed], np.uint64)))


def by_cluster(signals: Signals, name: str, count: int | None, encoder: str) -> Domains | None:
    """Clusters fitted to the vectors of the pairs with the smallest hashes, and the nearest of them for every pair."""
    if not len(signals):
        return None
    order = np.argsort(hashes(signals), kind="stable")[:_SAMPLE]
    vectors = signals.rows(name, signals.index[order])
    order = order[np.array([v.any() for v in vectors], bool)]
    vectors = [v for v in vectors if v.any()]
    centres = clusters.fit(np.stack(vectors), count, signals.seed) if vectors else None
    if centres is None:
        return None
    of = np.full(len(signals), -1)
    for where, got in signals.batches([name]):
        flat = got[name].flatten().to_numpy(zero_copy_only=False).reshape(-1, centres.shape[1])
        at = np.arange(where.start, where.stop)[got[name].is_valid().to_numpy(zero_copy_only=False)]
        for first in range(0, len(at), _AT_ONCE):
            of[at[first : first + _AT_ONCE]] = clusters.nearest(flat[first : first + _AT_ONCE], centres)
    ranked = _ranked(of, [f"{i:03}" for i in range(len(centres))], f"clusters of prompts ({encoder})")
    lengths = signals.column("pair.prompt_words")[order].astype(np.int64)
    prompts = [w[:n] for w, n in zip(signals.rows("pair.words", signals.index[order]), lengths, strict=True)]
    words = clusters.terms(prompts, ranked.of[order], len(ranked.names))
    examples = []
    for domain, terms in enumerate(words):
        mine = np.flatnonzero(ranked.of[order] == domain)
        holding = [next(i for i in mine if term in prompts[i]) for term in terms]
        examples.append(tuple(signals.index[order[list(dict.fromkeys([*holding, *mine[:_ROWS]]))]].tolist()[:_ROWS]))
    called = [f"cluster {i + 1}" for i in range(len(words))]
    return Domains(ranked.of, called, ranked.source, [tuple(w) for w in words], examples)
