"""From the rows of a block to pairs and faults, in the form of the set: a row may give several, or rows of a group few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from prefdata.pairs import Fault, Message, Pair, Side, fault_of
from prefdata.reading import BadRow, Block, Group
from prefdata.shapes import Reading, transcript

Form = Literal["text", "chat"]


@dataclass
class Made:
    """What a block gave; all lists have one entry a pair, ``pairs[i]`` or ``faults[i]`` may be None.

    ``rows`` are the source rows that a pair carries columns of, ``lines`` their lines. ``source`` is the number of the source
    row, in the block, or in the whole input for groups; ``part`` counts the pairs of one row, -1 where it gave one only. Both
    are None where each row gave one pair. ``table`` holds the rows of a columnar source.
    """

    pairs: list[Pair | None] = field(default_factory=list)
    faults: list[Fault | None] = field(default_factory=list)
    rows: Sequence[Any] = ()
    lines: Sequence[int | None] = ()
    source: list[int] | None = None
    part: list[int] | None = None
    table: pa.Table | None = None
    shapes: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    needs_chat: bool = False


def make(block: Block, reading: Reading, form: Form, bad: Callable[[int | None, int, Fault], None]) -> Made:
    """The pairs of a block. ``bad(line, row, fault)`` hears of each fault and may raise; a text set that turns out to be chat
    ends at once, marked so.
    """
    out = Made(changes=Counter(block.changes), table=block.table)
    at: list[int] = []  # the row of the block that each pair came from
    several = False
    for i, row in enumerate(block.rows):
        if type(row) is dict:
            name, got = reading.read(row)
            size, seen = 1, row
        elif isinstance(row, Group):
            several = True
            name, got, seen = _of_group(row, reading)
            size = len(row.rows)
        else:
            assert isinstance(row, BadRow)
            name, got, size, seen = "", row.fault, 0, {}
        if size:
            out.shapes[name] += size
        several = several or (type(got) is list and len(got) != 1)
        for one in got if isinstance(got, list) else (got,):
            at.append(i)
            if not _add(out, one, seen, name, form):
                return out
            if (fault := out.faults[-1]) is not None:
                bad(block.lines[i], i, fault)
    if not several:
        out.rows, out.lines = block.rows, block.lines
    else:
        _lead_back(out, block, at)
    return out


def _of_group(group: Group, reading: Reading) -> tuple[str, Any, dict[str, Any]]:
    first = group.rows[0]
    if isinstance(first, BadRow):
        return "", first.fault, {}
    if len(group.rows) == 1 and reading.key(first) is None:
        return *reading.read(first), first
    return *reading.read_group([r for r in group.rows if isinstance(r, dict)]), first


def _add(out: Made, got: Pair | Fault, row: dict[str, Any], name: str, form: Form) -> bool:
    """Take one pair or fault in; False where the set must be read as chat."""
    if isinstance(got, Fault):
        out.pairs.append(None)
        out.faults.append(got)
        return True
    fault = fault_of(got, row)
    if got.changes:
        out.changes.update(got.changes)
    if form == "chat":
        if isinstance(got.prompt, str):
            out.changes["text to messages"] += 1
        got = to_chat(transcript.to_messages(got) if name == transcript.NAME else got)
    elif not isinstance(got.prompt, str):
        out.needs_chat = True
        return False
    out.pairs.append(got)
    out.faults.append(fault)
    return True


def _lead_back(out: Made, block: Block, at: list[int]) -> None:
    """Fill in where each pair came from, where rows and pairs are not one to one."""
    rows: list[Any] = []
    lines: list[int | None] = []
    source: list[int] = []
    for i, pair, fault in zip(at, out.pairs, out.faults, strict=True):
        row = block.rows[i]
        if isinstance(row, Group):
            members = (pair and pair.members) or (fault and fault.members) or (0,)
            source.append(row.numbers[members[0]])
            lines.append(row.lines[members[0]])
            some = [row.rows[m] for m in members]
            rows.append(some[0] if len(members) == 1 else _common([r for r in some if isinstance(r, dict)]))
            if pair is not None and len(members) > 1:
                pair.extra = {**(pair.extra or {}), "pd_rows": [row.numbers[m] for m in members]}
        else:
            source.append(i)
            lines.append(block.lines[i])
            rows.append(row)
    many = Counter(source)
    seen: Counter[int] = Counter()
    out.part = []
    for number in source:
        out.part.append(seen[number] if many[number] > 1 else -1)
        seen[number] += 1
    out.rows, out.lines, out.source = rows, lines, source
    if out.table is not None:
        out.table = out.table.take(pa.array(at))


def _common(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The columns of several rows: a value that all share, else the list of their values."""
    names = dict.fromkeys(n for r in rows for n in r)
    held = {n: [r.get(n) for r in rows] for n in names}
    return {n: v[0] if all(x == v[0] for x in v) else v for n, v in held.items()}


def to_chat(pair: Pair) -> Pair:
    """The pair with messages on all sides; texts become one user and one assistant message."""
    if isinstance(pair.prompt, str) or isinstance(pair.chosen, str) or isinstance(pair.rejected, str):
        sides = ((pair.prompt, "user"), (pair.chosen, "assistant"), (pair.rejected, "assistant"))
        prompt, chosen, rejected = (_turn(side, role) for side, role in sides)
        return replace(pair, prompt=prompt, chosen=chosen, rejected=rejected)
    return pair


def _turn(side: Side, role: str) -> list[Message]:
    return [{"role": role, "content": side}] if isinstance(side, str) else side


def read_heads(rows: Sequence[dict[str, Any]], reading: Reading) -> Made:
    """What the first rows of a set give, read by themselves: for detection."""
    lone = [r for r in rows if reading.key(r) is None]
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if (key := reading.key(row)) is not None:
            groups.setdefault(key, []).append(row)
    held: list[dict[str, Any] | BadRow | Group] = [*lone]
    held += [Group(g, list(range(len(g))), [None] * len(g)) for g in groups.values()]
    return make(Block(held, [None] * len(held)), reading, "text", lambda line, row, fault: None)
