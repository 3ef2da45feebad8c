"""Published forms of preference data: which columns make one, and how a source row becomes pairs.

A reader is a module with ``SHOWN`` (the forms that it reads, with examples), ``PARTS`` (what ``--columns`` may name),
``find(names, asked, head)`` (the columns that make this form, or None) and one of

- ``read(row, columns, asked)``: the name of the row's form, and its pair, its fault, or a list of both;
- ``key(row, columns)`` and ``read_group(rows, columns, asked)``, where ``columns.grouped``: rows of one key are read together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefdata.errors import ConfigError, InputError, did_you_mean
from prefdata.pairs import SIDES, Fault, Pair
from prefdata.shapes import arena, comparisons, pair_columns, ranked, rated_rows, tree, two_answers, unpaired, votes
from prefdata.shapes.columns import REVERSED, Asked, Columns, Row, Shown, value
from prefdata.shapes.sides import EXPLICIT

__all__ = ["READERS", "SHAPES", "Asked", "Reading", "find_reading"]

Made = Pair | Fault | list[Pair | Fault]
# In the order in which their columns count, where a set has those of several.
READERS: tuple[Any, ...] = (pair_columns, votes, arena, two_answers, comparisons, ranked, tree, unpaired, rated_rows)
SHAPES: tuple[Shown, ...] = tuple(s for reader in READERS for s in reader.SHOWN)
_BY_NAME: dict[str, Any] = {r.__name__.rsplit(".", 1)[1]: r for r in READERS}
_CHOOSE = ("ranked", "tree", "unpaired", "rated_rows")  # readers that ``--pairs`` tells which pairs to make
_ORDERED = ("votes", "arena", "two_answers", "comparisons")
_INSIDE = ("answers", "score", "rank")  # parts whose paths may go on inside of each answer of a list
_SETS = 100  # sets of columns that are looked at one by one


@dataclass(frozen=True)
class Reading:
    """How the rows of a set are read: each by the first of these that has an answer in it. ``marked`` says that some may be
    marked as the mirror of another row (``pd_reversed``).
    """

    layouts: tuple[Columns, ...]
    asked: Asked
    marked: bool = False

    @property
    def scored(self) -> bool:
        """Whether pairs may have scores."""
        return any(c.scored for c in self.layouts)

    @property
    def ordered(self) -> bool:
        """Whether the source may show two answers in an order of its own, a label saying which is better."""
        return any(c.shape in _ORDERED for c in self.layouts)

    @property
    def grouped(self) -> bool:
        """Whether some rows are read in groups."""
        return any(c.grouped for c in self.layouts)

    def mirror(self, row: Row) -> bool:
        """Whether this row is marked as another one with its answers exchanged. Where a label says which answer is better, such
        a mark speaks of the order in which they are shown, and the pair is as good as any.
        """
        said = str(row.get(REVERSED)).lower() in ("true", "1")
        return said and self.layout(row).shape == "pair_columns"

    def layout(self, row: Row) -> Columns:
        """The columns that this row is read by."""
        if len(self.layouts) == 1:
            return self.layouts[0]
        answered = [c for c in self.layouts if any(row.get(n) is not None for n in c.needs)]
        whole = (c for c in answered if (prompt := c["prompt"]) is None or row.get(prompt) is not None)
        return next(whole, answered[0] if answered else self.layouts[0])

    @property
    def texts(self) -> tuple[str, str, str] | None:
        """The columns of prompt, chosen and rejected, where pairs are made of these three alone; else None."""
        columns = self.layouts[0]
        if len(self.layouts) > 1 or columns.shape != "pair_columns" or self.asked.shape not in (None, EXPLICIT):
            return None
        prompt, chosen, rejected = names = tuple(str(columns[side]) for side in SIDES)
        plain = columns.parts.keys() == set(SIDES) and prompt != "instruction" and chosen != "messages"
        return (prompt, chosen, rejected) if plain and not any("." in n for n in names) else None

    def taken(self) -> frozenset[str]:
        """Columns that are contained in the pair, whichever way a row is read."""
        return frozenset.union(*(frozenset(c.taken) for c in self.layouts))

    def read(self, row: Row) -> tuple[str, Made]:
        """The name of the row's form, and what it gives: a pair, a fault, or several of these."""
        columns = self.layout(row)
        if columns.grouped:
            return self.read_group([row])
        got: tuple[str, Made] = _BY_NAME[columns.shape].read(row, columns, self.asked)
        return got

    def key(self, row: Row) -> str | None:
        """What rows of one group share; None for a row that stands alone. Rows that are read differently share none."""
        columns = self.layout(row)
        found: str | None = _BY_NAME[columns.shape].key(row, columns) if columns.grouped else None
        return None if found is None else f"{self.layouts.index(columns)} {found}"

    def read_group(self, rows: Sequence[Row]) -> tuple[str, list[Pair | Fault]]:
        """The name of the form of rows of one group, and what they give; each tells its members."""
        columns = self.layout(rows[0])
        got: tuple[str, list[Pair | Fault]] = _BY_NAME[columns.shape].read_group(rows, columns, self.asked)
        return got

    def tally(self, rows: Sequence[Row]) -> Mapping[str, int]:
        """What the reader of these rows, one group or one row, counts of them; nothing for most readers."""
        columns = self.layout(rows[0])
        count = getattr(_BY_NAME[columns.shape], "tally", None)
        found: Mapping[str, int] = count(rows, columns) if columns.grouped and count else {}
        return found

    def check_used(self) -> None:
        """Raise ConfigError for an option that speaks of something that no row of the set has, and so would do nothing."""
        labelled, scored = any(c.code for c in self.layouts), self.scored
        told = labelled or any("label" in c.parts for c in self.layouts)
        if self.asked.labels and not labelled:
            raise ConfigError("--labels: no row has a label whose values could mean something", hint="Leave it out.")
        if self.asked.pairs != "best-worst" and not any(c.shape in _CHOOSE for c in self.layouts):
            what = f"--pairs {self.asked.pairs}: no row, or group of rows, has several answers to choose pairs from"
            raise ConfigError(what, hint="Leave it out.")
        if self.asked.ties == "keep" and not (told or scored):
            raise ConfigError("--ties keep: no row has a label or scores, so there are no ties", hint="Leave it out.")

    def named(self) -> dict[str, str]:
        """Which column is what, for people; ``a or b`` where rows differ in it."""
        out: dict[str, dict[str, None]] = {}
        for columns in self.layouts:
            for part, name in columns.named().items():
                out.setdefault(part, {})[name] = None
        return {part: " or ".join(names) for part, names in out.items()}


def find_reading(
    names: Sequence[str], asked: Asked, head: Sequence[Row], where: str, sets: Sequence[Sequence[str]] = ()
) -> Reading:
    """How a set with these columns is read; ``head`` are its first rows. What the user asked for wins over known names.

    Where rows have different columns, each set of them may have its own reading: those of the first rows are looked at, and
    ``sets`` that were met later.

    Raises InputError where no form is found, or where it is not clear what a label means: which answer is better is never
    guessed. Raises ConfigError for a column or a shape that is not there.
    """
    readers = _asked_readers(names, asked, where)
    for part, path in asked.columns.items():
        if part in _INSIDE or path in names or not head:
            continue
        if all(value(row, path) is None for row in head):
            raise ConfigError(
                f"--columns {part}={path}: leads to nothing in the first rows of {where}",
                hint="See docs/reference/input.md.",
            )
    layouts: list[Columns] = []
    filled = dict.fromkeys(tuple(n for n, v in row.items() if v is not None) for row in head)
    for some in [tuple(names), *list(dict.fromkeys([*filled, *map(tuple, sets)]))[:_SETS]]:
        mine = [r for r in head if set(some) <= r.keys()] if layouts else head
        for reader in readers:
            try:
                found = reader.find(some, asked, mine)
            except InputError as error:
                if layouts:  # the set is read without it; its columns are carried along
                    continue
                raise InputError(error.what, where=error.where or where, hint=error.hint) from error
            if found is not None and all(found.needs != c.needs or found["prompt"] != c["prompt"] for c in layouts):
                layouts.append(found)
                _check_twice(found)
    if not layouts:
        what = "no columns that say which answer is better"
        hint = "Name them: --columns prompt=...,chosen=...,rejected=..., or first=...,second=...,label=..."
        if asked.shape is not None:
            what = f"has no columns of the shape {asked.shape}"
            hint = "Name them with --columns; 'prefdata stages' shows an example row."
        raise InputError(f"{what} (columns: {', '.join(map(str, names))})", where=where, hint=hint)
    return Reading(tuple(layouts), asked, REVERSED in names)


def _asked_readers(names: Sequence[str], asked: Asked, where: str) -> Sequence[Any]:
    """The readers that may be meant, after a check of what the user named."""
    known = list(dict.fromkeys(p for r in READERS for p in r.PARTS))
    for key, path in asked.columns.items():
        if key not in known:
            raise ConfigError(
                f"--columns {key}=...: no such part of a pair",
                hint=did_you_mean(key, known) or f"Known: {', '.join(known)}",
            )
        if path not in names and path.split(".")[0] not in names:
            raise ConfigError(
                f"--columns {key}={path}: {where} has no column {path!r}",
                hint=did_you_mean(path, names) or f"Columns: {', '.join(names)}",
            )
    readers = [r for r in READERS if set(asked.columns) <= set(r.PARTS)]
    if not readers:
        raise ConfigError(f"--columns {', '.join(asked.columns)}: no form of pairs has all of these parts")
    if asked.shape is not None:
        shapes = {s.name: r for r in READERS for s in r.SHOWN}
        if asked.shape not in shapes:
            hint = did_you_mean(asked.shape, shapes) or f"Known: {', '.join(shapes)}"
            raise ConfigError(f"--shape {asked.shape}: no such shape", hint=hint)
        readers = [r for r in readers if r is shapes[asked.shape]]
        if not readers:
            raise ConfigError(f"--shape {asked.shape} has no part {', '.join(asked.columns)}")
    return readers


def _check_twice(columns: Columns) -> None:
    used = [name for part in columns.parts for name in columns.all(part)]
    twice = next((n for n in used if used.count(n) > 1), None)
    if twice is not None:
        parts = " and ".join(k for k in columns.parts if twice in columns.all(k))
        raise ConfigError(f"--columns: the column {twice!r} cannot be {parts}", hint="Name a column for each part.")
