"""Pre-flight: named checks of data, tokenizer, model and settings, before any step; each with its evidence and its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from prefdata.training.data import Data
from prefdata.training.models import Facts
from prefdata.training.plan import Machine, Plan
from prefdata.training.prepare import Prepared
from prefdata.training.settings import Settings
from prefdata.training.words import WORDS

Status = Literal["ok", "warn", "fail", "skipped"]
SHOWN = 20  # ids of pairs that a check names


@dataclass(frozen=True)
class Check:
    """What one check found, in numbers (also where all is well); ``rows`` are ids of pairs it is about, 20 at most."""

    word: str
    status: Status
    evidence: str
    rows: tuple[str, ...] = ()

    @property
    def remedy(self) -> str:
        """What to do; nothing where all is well."""
        return WORDS[self.word].remedy if self.status in ("warn", "fail") else ""

    def document(self) -> dict[str, Any]:
        """For programs and the page."""
        return {
            "word": self.word,
            "status": self.status,
            "evidence": self.evidence,
            "remedy": self.remedy,
            "rows": list(self.rows),
        }


@dataclass
class Case:
    """All that a check may look at; the ids (``train``, ``held``) and the ``trainer`` are None until they are there."""

    settings: Settings
    facts: Facts
    machine: Machine
    plan: Plan
    data: Data
    tokenizer: Any
    train: Prepared | None = None
    held: Prepared | None = None
    trainer: Any = None
    notes: dict[str, Any] = field(default_factory=dict)


Checks = Mapping[Callable[[Case], Iterator[Check]], tuple[str, ...]]
"""Functions in the order of their work, each with the words that it speaks of."""


def of_rows(word: str, status: Status, pairs: int, rows: list[str], what: str, fine: str) -> Check:
    """A check of single pairs: what is wrong with these, or that all are ``fine``."""
    if not rows:
        return Check(word, "ok", f"{fine} ({pairs:,} pairs)")
    return Check(word, status, f"{len(rows):,} of {pairs:,} pairs: {what}", tuple(rows[:SHOWN]))


def words_of(*groups: Checks) -> tuple[str, ...]:
    """All words that these checks speak of."""
    return tuple(word for group in groups for words in group.values() for word in words)


def skipped(words: Iterable[str], why: str) -> Iterator[Check]:
    """Checks by these words, with the reason why they could not be made."""
    for word in words:
        yield Check(word, "skipped", why)


def failed(found: Iterable[Check]) -> list[Check]:
    """The checks that stop a run."""
    return [c for c in found if c.status == "fail"]
