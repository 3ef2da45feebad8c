"""Pre-flight: named checks of data, tokenizer, model and settings, before any step; each with its evidence and its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from prefdata.training.data import Data
from prefdata.training.models import Facts
from prefdata.training.plan import Machine, Plan
from prefdata.training.prepare import Prepared
from prefdata.training.settings import Settings
from prefdata.training.words import WORDS

Status = Literal["ok", "warn", "fail", "skipped"]


@dataclass(frozen=True)
class Check:
    """What one check found; ``rows`` are ids of pairs it is about, 20 at most."""

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
    """All that a check may look at; ``model`` (adapters on it) and ``tokens`` are None until they are there."""

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


Checker = Callable[[Case], Iterator[Check]]


def failed(found: list[Check]) -> list[Check]:
    """The checks that stop a run."""
    return [c for c in found if c.status == "fail"]
