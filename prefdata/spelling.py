"""Word hashes as words again: findings speak of hashes, and the rows that they name hold the words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby

import pyarrow as pa

from prefdata.decisions import Decisions, Finding
from prefdata.lexicon import CLASS, JOIN, SINGLE, SKIP, WORD, classes
from prefdata.pairs import SIDES, Row
from prefdata.words import words

UNKNOWN = "?"  # a word that none of the named rows holds
_LOWER = {c: c + 32 for c in range(65, 91)}  # words are compared without ASCII case, and shown without it


def spell(made: Sequence[Decisions], read: Callable[[Sequence[int]], list[Row]]) -> None:
    """Put the words into the findings of all stages; ``read`` gives a few rows by number."""
    wanted = sorted({r for d in made for f in d.findings if f.words for r in f.rows})
    texts = {row.row: [str(getattr(row, side)) for side in SIDES] for row in read(wanted)} if wanted else {}
    for d in made:
        d.findings = [spelled(f, [t for r in f.rows for t in texts[r]]) if f.words else f for f in d.findings]


def spelled(found: Finding, texts: Iterable[str]) -> Finding:
    """The finding with its words, as these texts spell them, in the place of ``{words}`` or ``{phrase}``."""
    known = spellings(texts)
    said = [known.get(h, UNKNOWN) for h in found.words]
    text = found.text.replace("{words}", ", ".join(said)).replace("{phrase}", " ".join(said))
    return replace(found, text=text, words=())


def spellings(texts: Iterable[str]) -> dict[int, str]:
    """Every word of the texts by its hash; of words with one hash the first."""
    table = classes()
    split = dict[str, None]()
    for text in texts:
        seen = ((int(table[ord(c)]) & CLASS, c) for c in text.translate(_LOWER))
        for kind, run in groupby((at for at in seen if at[0] != SKIP), lambda at: WORD if at[0] == JOIN else at[0]):
            if kind == WORD:  # with its joiners: ``words`` knows which of them count
                split.setdefault("".join(c for _, c in run))
            elif kind == SINGLE:
                split.update(dict.fromkeys(c for _, c in run))
    out: dict[int, str] = {}
    found = words(pa.array(split, pa.string()))
    for word, first, last in zip(split, found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True):
        if last - first == 1:
            out.setdefault(int(found.hashes[first]), word)
    return out
