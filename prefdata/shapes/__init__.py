"""Published forms of preference data, one a file: which rows fit, and how a source row becomes pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from prefdata.errors import ConfigError, InputError, did_you_mean
from prefdata.pairs import Fault, Pair
from prefdata.shapes import conversation, explicit, transcript

Row = Mapping[str, Any]


class Shape(Protocol):
    """What a module of this package offers."""

    NAME: str
    TITLE: str
    EXAMPLE: dict[str, Any]

    def fits(self, prompt: Any, chosen: Any, rejected: Any) -> bool:
        """Whether a row with these values has this form."""

    def pair(self, prompt: Any, chosen: Any, rejected: Any, system: str | None) -> Pair | Fault:
        """The pair of such a row, or why there is none."""


SHAPES: tuple[Shape, ...] = (explicit, conversation, transcript)

_PAIRS = (
    ("chosen", "rejected"), ("chosen_response", "rejected_response"), ("response_chosen", "response_rejected"),
    ("text_chosen", "text_rejected"), ("chosen_messages", "rejected_messages"), ("response", "rejected_response"),
    ("response_j", "response_k"),
)  # fmt: skip
_PROMPTS = ("prompt", "question", "instruction", "query")
_SYSTEMS = ("system", "system_prompt")
_SCORES = (("score_chosen", "score_rejected"), ("chosen_score", "rejected_score"), ("chosen_rating", "rejected_rating"))


@dataclass(frozen=True)
class Columns:
    """Which source columns hold what; ``context`` is Alpaca's ``input``, joined to the prompt behind a blank line.

    ``scores`` are the two columns that say how good each answer is; they are carried along too.
    """

    chosen: str
    rejected: str
    prompt: str | None = None
    system: str | None = None
    context: str | None = None
    scores: tuple[str, str] | None = None

    def consumed(self) -> frozenset[str]:
        """Columns that are wholly contained in the pair, and so are not carried beside it."""
        return frozenset(self.named().values())

    def named(self) -> dict[str, str]:
        """``{"prompt": "question", ...}``, set ones only, in reading order."""
        order = ("prompt", "context", "system", "chosen", "rejected")
        return {k: v for k in order if (v := getattr(self, k))}

    def __str__(self) -> str:
        return ", ".join(f"{k} = {v}" for k, v in self.named().items())


def find_columns(names: Sequence[str], given: Mapping[str, str], where: str) -> Columns:
    """The mapping of a set with these columns; ``given`` (from ``--columns``) wins over known names.

    Raises InputError where no known names are found: which answer is better is never guessed.
    """
    allowed = ("prompt", "chosen", "rejected", "system", "context")
    for key, value in given.items():
        if key not in allowed:
            raise ConfigError(
                f"--columns {key}=...: no such part of a pair",
                hint=did_you_mean(key, allowed) or f"Known: {', '.join(allowed)}",
            )
        if value not in names:
            raise ConfigError(
                f"--columns {key}={value}: {where} has no column {value!r}",
                hint=did_you_mean(value, names) or f"Columns: {', '.join(names)}",
            )
    found = next(((c, r) for c, r in _PAIRS if c in names and r in names), (None, None))
    chosen, rejected = given.get("chosen", found[0]), given.get("rejected", found[1])
    if chosen is None or rejected is None or chosen == rejected:
        raise InputError(
            f"no columns that say which answer is better (columns: {', '.join(map(str, names))})",
            where=where,
            hint="Name them: --columns prompt=...,chosen=...,rejected=...",
        )
    free = [n for n in names if n not in (chosen, rejected, *given.values())]
    prompt = given.get("prompt") or next((n for n in _PROMPTS if n in free), None)
    system = given.get("system") or next((n for n in _SYSTEMS if n in free), None)
    context = given.get("context") or ("input" if prompt == "instruction" and "input" in free else None)
    scores = next((pair for pair in _SCORES if set(pair) <= set(names)), None)
    columns = Columns(chosen, rejected, prompt, system, context, scores)
    used = list(columns.named().values())
    twice = next((n for n in used if used.count(n) > 1), None)
    if twice is not None:
        parts = " and ".join(k for k, v in columns.named().items() if v == twice)
        raise ConfigError(f"--columns: the column {twice!r} cannot be {parts}", hint="Name a column for each part.")
    return columns


def read_row(row: Row, columns: Columns) -> tuple[str, Pair | Fault]:
    """The name of the row's shape and its pair, or the fault."""
    prompt = row.get(columns.prompt) if columns.prompt else None
    chosen, rejected = row.get(columns.chosen), row.get(columns.rejected)
    system = row.get(columns.system) if columns.system else None
    changes: tuple[str, ...] = ()
    extra = row.get(columns.context) if columns.context else None
    if extra is not None and extra == extra and extra not in ("", [], {}):
        if not isinstance(extra, str):
            return explicit.NAME, Fault("bad_type", f"{columns.context} is {_kind(extra)}, not text")
        if isinstance(prompt, list):
            return explicit.NAME, Fault("bad_type", f"{columns.context} is text, but the prompt is messages")
        if isinstance(prompt, str):
            prompt, changes = f"{prompt}\n\n{extra}", (f"{columns.context} joined to the {columns.prompt}",)
    if type(prompt) is str and type(chosen) is str and type(rejected) is str and system is None:
        return explicit.NAME, Pair(prompt, chosen, rejected, changes)  # by far the most frequent
    for name, value in (("chosen", chosen), ("rejected", rejected)):
        if value is None or (isinstance(value, float) and value != value):
            return explicit.NAME, Fault("missing_field", f"{name} is missing" if value is None else f"{name} is NaN")
        if not isinstance(value, str | list):
            return explicit.NAME, Fault("bad_type", f"{name} is {_kind(value)}, not text or messages")
    if system is not None and not isinstance(system, str):
        return explicit.NAME, Fault("bad_type", f"system is {_kind(system)}, not text")
    for shape in SHAPES:
        if shape.fits(prompt, chosen, rejected):
            got = shape.pair(prompt, chosen, rejected, system or None)
            return shape.NAME, replace(got, changes=(*got.changes, *changes)) if isinstance(got, Pair) else got
    return explicit.NAME, Fault("missing_field", "prompt is missing")


def _kind(value: Any) -> str:
    from prefdata.pairs import kind_of

    return kind_of(value)
