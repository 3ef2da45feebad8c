"""Which columns of a set hold what, by names that published sets use; what the user said about them; reading values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Row = Mapping[str, Any]
Parts = Mapping[str, str | tuple[str, ...]]

PROMPTS = (
    "prompt", "question", "instruction", "query", "conversations", "conversation", "messages", "history", "user_prompt",
    "user_input", "trajectory", "input", "post",
)  # fmt: skip
REVERSED = "pd_reversed"  # true in a row that is another one the other way round
SYSTEMS = ("system", "system_prompt", "system_message")
_ORDER = ("prompt", "context", "system", "chosen", "rejected")


@dataclass(frozen=True)
class Shown:
    """A published form, for people: its name, what it is called, and rows that show it (several where they belong together)."""

    name: str
    title: str
    example: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Asked:
    """What the user said about reading; the fields are those of the options."""

    columns: Mapping[str, str] = field(default_factory=dict)
    shape: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    pairs: Literal["best-worst", "adjacent", "all"] = "best-worst"
    ties: Literal["drop", "keep"] = "drop"


@dataclass(frozen=True)
class Columns:
    """How a shape reads the rows of a set: ``parts`` says which column (or columns) is what.

    ``needs`` are the columns of the answers: a row in which all of them are null or absent is left to another shape.
    ``taken`` are columns that are wholly contained in the pair and so not carried beside it. ``code`` says what values of a
    label mean: 1 the first answer is better, -1 the second, 0 a tie. ``scored`` says that pairs may have scores, ``grouped``
    that rows are read in groups of one key.
    """

    shape: str
    parts: Parts
    needs: tuple[str, ...]
    taken: tuple[str, ...]
    code: Mapping[str, float] = field(default_factory=dict)
    scored: bool = False
    grouped: bool = False

    @classmethod
    def of(
        cls, shape: str, names: Sequence[str], parts: Parts, answers: Sequence[str], whole: Sequence[str] | None = None,
        code: Mapping[str, float] | None = None, scored: bool = False, grouped: bool = False,
    ) -> Columns:  # fmt: skip
        """The columns of a set with these ``names``, with ``needs`` and ``taken`` worked out: taken are the columns of what was
        asked and of ``answers`` (columns or paths), or of ``whole`` in their place.
        """
        held = [parts.get(part) for part in (*_ORDER[:3], "history")] + list(answers if whole is None else whole)
        needs = tuple(cut(path, names)[0] for path in answers)
        return cls(shape, parts, needs, tuple(n for n in names if n in held), code or {}, scored, grouped)

    def __getitem__(self, part: str) -> str | None:
        """The column of a part, None where there is none."""
        found = self.parts.get(part)
        return found[0] if isinstance(found, tuple) else found

    def all(self, part: str) -> tuple[str, ...]:
        """All columns of a part."""
        found = self.parts.get(part, ())
        return (found,) if isinstance(found, str) else found

    def named(self) -> dict[str, str]:
        """``{"prompt": "question", ...}`` in reading order, for people."""
        keys = sorted(self.parts, key=lambda k: _ORDER.index(k) if k in _ORDER else len(_ORDER))
        return {k: ", ".join(self.all(k)) for k in keys}


def value(row: Row, path: str | None) -> Any:
    """The value of a column, or of a field inside of it (``pos_answer.answer``); None for what is absent or NaN."""
    if path is None:
        return None
    found: Any = row
    for name in (path,) if path in row else path.split("."):
        if isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, Mapping):
            found = found.get(name)
        else:
            return None
    return None if found != found else found


def cut(path: str, names: Sequence[str] | Row) -> tuple[str, str | None]:
    """The column that a path begins with, and the rest of it: ``completions.overall_score``."""
    if path in names:
        return path, None
    column, _, inner = path.partition(".")
    return column, inner or None


def first_of(names: Iterable[str], known: Iterable[str]) -> str | None:
    """The first of the known names that is there."""
    there = set(names)
    return next((n for n in known if n in there), None)


def asking(names: Sequence[str], asked: Asked, used: Iterable[str]) -> dict[str, str]:
    """The columns of what was asked: prompt, system text, and context (Alpaca's ``input``, joined to the prompt).

    ``used`` are columns that other parts hold. What the user named wins.
    """
    free = [n for n in names if n not in {*used, *asked.columns.values()}]
    prompt = asked.columns.get("prompt") or first_of(free, PROMPTS)
    joined = "input" if prompt == "instruction" and "input" in free else None
    found = {
        "prompt": prompt,
        "context": asked.columns.get("context") or joined,
        "system": asked.columns.get("system") or first_of(free, SYSTEMS),
    }
    return {part: column for part, column in found.items() if column is not None}


def number(given: object) -> float | None:
    """A score as a number; texts that spell one count."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    try:
        found = float(given)
    except (ValueError, OverflowError):
        return None
    return found if found == found else None
