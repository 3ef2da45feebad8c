"""``audit/review.json``: what people said of the pairs of a spot-check, and what became of it; typed, written by ``review``."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from prefdata.errors import ConfigError

Decision = Literal["accept", "reject", "wrong_label", "unsure", "disputed"]
Apply = Literal["drop", "wrong_label", "keep"]
State = Literal["kept", "flagged", "swapped", "dropped"]
Answer = Literal["accept", "reject", "unsure", "left", "right", "same", "both_bad"]
PLACE = "audit/review.json"


class Part(BaseModel):
    """A piece of the file; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Said(Part):
    """One verdict of one person on one pair."""

    reviewer: str
    mode: Literal["open", "blind"]
    verdict: Answer
    note: str = ""
    time: str = ""


class Judged(Part):
    """One pair: what each person said, the decision of the majority, and what ``clean --verdicts`` makes of it.

    ``key`` is the hash of its texts (16 hex digits), ``issue`` and ``state`` what the run had made of it; ``base`` rows are the
    sample of all kept pairs; ``left`` is the side that stands left where sides are hidden.
    """

    row: int
    pd_id: str
    key: str = Field(pattern=r"^[0-9a-f]{16}$")
    issue: str | None
    state: State
    base: bool
    left: Literal["chosen", "rejected"]
    decision: Decision
    apply: Apply | None
    verdicts: list[Said]


class Rate(Part):
    """A share of ``n`` with its Wilson 95 % interval; None where nothing was counted."""

    value: float | None
    low: float | None
    high: float | None
    hits: int
    n: int


class Stratum(Rate):
    """Of the pairs with one issue and one outcome: ``judged`` in all, ``n`` of them decided. ``hits`` are rejected pairs, and for
    ``dropped`` ones those that were dropped rightly. ``look`` where it is clearly worse than the sample of all kept pairs.
    """

    issue: str | None
    state: State
    judged: int
    look: bool


class Reviewer(Part):
    """A person, how many pairs they judged (``counts`` by decision), and the files it was read from."""

    name: str
    judged: int
    counts: dict[str, int]
    files: list[dict[str, str]]


class Pairing(Part):
    """Two reviewers on the pairs that both judged: how often they agree, and Cohen's kappa (None where it is not defined)."""

    a: str
    b: str
    n: int
    agreement: float
    kappa: float | None


class Agreement(Part):
    """Means over all pairs of reviewers who have judged the same pairs; None where there is none."""

    value: float | None
    kappa: float | None
    pairs: list[Pairing]


class Review(Part):
    """The whole file. ``rejected`` and ``label_agreement`` (blind verdicts: the chosen side was preferred; ``n`` without a preference
    out) are of the sample of all kept pairs; ``same`` and ``both_bad`` count blind verdicts.
    """

    schema_version: Literal[1] = 1
    sheet: str
    reviewers: list[Reviewer]
    judged: int
    decisions: dict[str, int]
    rejected: Rate
    label_agreement: Rate
    same: int
    both_bad: int
    agreement: Agreement
    by_reason: list[Stratum]
    rows: list[Judged]


def read(path: Path) -> tuple[Review, str]:
    """The file and its sha256; ConfigError where it is no such file."""
    hint = "Name a review.json, or the folder of a run that was reviewed: prefdata review OUT --import FILE."
    try:
        held = path.read_bytes()
    except OSError as error:
        what = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise ConfigError(what, where=str(path), hint=hint) from error
    try:
        return Review.model_validate_json(held), hashlib.sha256(held).hexdigest()
    except (ValidationError, ValueError) as error:
        raise ConfigError(f"is no review: {_first(error)}", where=str(path), hint=hint) from error


def _first(error: Any) -> str:
    """The first thing that pydantic found, in a few words."""
    if not isinstance(error, ValidationError):
        return str(error).split("\n")[0]
    found = error.errors()[0]
    at = ".".join(map(str, found["loc"]))
    return f"{at}: {found['msg']}" if at else str(found["msg"])


def held_json(path: Path) -> dict[str, Any] | None:
    """A JSON object that prefdata left; None where there is none that can be read."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def shown(out: Path) -> dict[str, Any] | None:
    """The review in this folder, for its page; None where there is none that can be read."""
    try:
        return read(out / PLACE)[0].model_dump(mode="json")
    except ConfigError:
        return None
