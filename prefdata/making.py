"""From the rows of a block to pairs and faults, in the form of the set: a row may give several, or rows of a group few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from prefdata.pairs import SIDES, Fault, Pair, blank, fault_of
from prefdata.reading import BadRow, Block, Group
from prefdata.shapes import Reading, transcript
from prefdata.shapes.sides import EXPLICIT

Form = Literal["text", "chat"]


@dataclass
class Made:
    """What a block gave; all lists have one entry a pair, ``pairs[i]`` or ``faults[i]`` may be None.

    ``texts`` are prompt, chosen and rejected of a text set; a pair that is nothing but these has no entry in ``pairs``.
    ``rows`` are the source rows that a pair carries columns of, ``lines`` their lines. ``source`` is the number of the source
    row, in the block, or in the whole input for groups; ``part`` counts the pairs of one row, -1 where it gave one only. Both
    are None where each row gave one pair. ``files`` says for groups which file that row stands in. ``table`` holds the rows
    of a columnar source. ``tally`` is what readers count of their rows (see ``Reading.tally``), and the pairs of these rows.
    """

    texts: tuple[list[Any], list[Any], list[Any]] = field(default_factory=lambda: ([], [], []))
    pairs: list[Pair | None] = field(default_factory=list)
    faults: list[Fault | None] = field(default_factory=list)
    rows: Sequence[Any] = ()
    lines: Sequence[int | None] = ()
    source: list[int] | None = None
    part: list[int] | None = None
    files: list[int] | None = None
    table: pa.Table | None = None
    shapes: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    tally: Counter[str] = field(default_factory=Counter)
    needs_chat: bool = False


def make(block: Block, reading: Reading, form: Form) -> Made:
    """The pairs of a block; a text set that turns out to be chat ends at once, marked so."""
    out = Made(changes=Counter(block.changes), table=block.table)
    at: list[int] = []  # the row of the block that each pair came from
    several = False
    add_prompt, add_chosen, add_rejected = (side.append for side in out.texts)
    add_pair, add_fault = out.pairs.append, out.faults.append
    names = reading.texts if form == "text" and not {"images", "image"} & set(block.names) else None
    for i, row in enumerate(block.rows):
        if names is not None and type(row) is dict:
            # By far the most frequent rows: three texts in which there is something to be seen ("!" <= text < "\x7f": it
            # begins with a visible ASCII character). The same as ``read`` and ``fault_of`` say, without all their questions.
            p, c, r = row.get(names[0]), row.get(names[1]), row.get(names[2])
            if (
                type(p) is str and type(c) is str and type(r) is str and ("!" <= p < "\x7f" or not blank(p))
                and ("!" <= c < "\x7f" or not blank(c)) and ("!" <= r < "\x7f" or not blank(r))
            ):  # fmt: skip
                at.append(i)
                add_prompt(p)
                add_chosen(c)
                add_rejected(r)
                add_pair(None)
                add_fault(None)
                continue
        seen: Any = {}
        if type(row) is dict:
            seen = row
            name, got = reading.read(row)
            out.shapes[name] += 1
        elif isinstance(row, Group):
            several, seen = True, row.rows[0]
            got = _of_group(out, row, reading)
        else:
            assert isinstance(row, BadRow)
            got = row.fault
        several = several or (type(got) is list and len(got) != 1)
        for one in got if isinstance(got, list) else (got,):
            at.append(i)
            if isinstance(one, Pair) and one.scores is not None and one.fault is None:
                _even_scores(one, reading.asked.ties)
            if not _add(out, one, seen, form):
                return out
    if ready := len(at) - len([p for p, f in zip(out.pairs, out.faults, strict=True) if p or f]):
        out.shapes[EXPLICIT] += ready
    if not several:
        out.rows, out.lines = block.rows, block.lines
    else:
        _lead_back(out, block, at)
    return out


def _even_scores(pair: Pair, ties: str) -> None:
    """A pair whose scores are equal is a tie, whatever its columns say."""
    chosen, rejected = pair.scores or (None, None)
    if chosen is None or chosen != rejected:
        return
    if ties == "keep":
        pair.tie = True
    else:
        pair.fault = Fault("tie", f"both answers have the score {chosen:g}")


def _of_group(out: Made, group: Group, reading: Reading) -> Any:
    """What a group gives; its rows are counted."""
    rows = [r for r in group.rows if isinstance(r, dict)]
    if not rows:
        return next(r.fault for r in group.rows if isinstance(r, BadRow))
    name, got = reading.read(rows[0]) if len(rows) == 1 else reading.read_group(rows)
    out.shapes[name] += len(rows)
    if tally := reading.tally(rows):
        pairs = sum(isinstance(one, Pair) for one in (got if isinstance(got, list) else (got,)))
        out.tally.update(tally, pairs=pairs, prompts=reading.key(rows[0]) is not None, paired_prompts=pairs > 0)
    return got


def _add(out: Made, got: Pair | Fault, row: dict[str, Any], form: Form) -> bool:
    """Take one pair or fault in; False where the set must be read as chat."""
    pair, fault = (None, got) if isinstance(got, Fault) else (got, fault_of(got, row))
    if pair and form == "chat" and isinstance(pair.prompt, str):
        pair = transcript.to_messages(pair) if transcript.SPLIT in pair.changes else _to_messages(pair)
    elif pair and form == "text" and not isinstance(pair.prompt, str):
        out.needs_chat = True
        return False
    if pair and pair.changes:
        out.changes.update(pair.changes)
    out.pairs.append(pair)
    out.faults.append(fault)
    if form == "text":
        for texts, side in zip(out.texts, SIDES, strict=True):
            texts.append(pair and getattr(pair, side))
    return True


def _lead_back(out: Made, block: Block, at: list[int]) -> None:
    """Fill in where each pair came from, where rows and pairs are not one to one."""
    rows: list[Any] = []
    lines: list[int | None] = []
    source: list[int] = []
    files: list[int] = []
    for i, pair, fault in zip(at, out.pairs, out.faults, strict=True):
        row = block.rows[i]
        if isinstance(row, Group):
            members = (pair and pair.members) or (fault and fault.members) or (0,)
            source.append(row.numbers[members[0]])
            lines.append(row.lines[members[0]])
            files.append(row.files[members[0]])
            if len(members) == 1 or pair is None:
                rows.append(row.rows[members[0]])
            else:
                rows.append(_common([r for m in members if isinstance(r := row.rows[m], dict)], pair.extra or {}))
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
    out.rows, out.lines, out.source, out.files = rows, lines, source, files or None
    if out.table is not None:
        out.table = out.table.take(pa.array(at))


def _common(rows: Sequence[dict[str, Any]], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of several rows: a value that all share, else the list of their values.

    What is told of each answer by itself (``pd_chosen_info``) is not repeated, and ``pd_id`` is that of the first row.
    """
    told = extra.get("pd_chosen_info") or ()
    names = dict.fromkeys(n for r in rows for n in r if n not in told)
    held = {n: [r.get(n) for r in rows] for n in names}
    return {n: v[0] if n == "pd_id" or all(map(partial(_same, v[0]), v)) else v for n, v in held.items()}


def _same(a: object, b: object) -> bool:
    return type(a) is type(b) and a == b  # 1, 1.0 and True are not the same


def _to_messages(pair: Pair) -> Pair:
    """A pair of three texts as one user and one assistant message."""
    roles = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}
    sides: Any = {side: [{"role": role, "content": getattr(pair, side)}] for side, role in roles.items()}
    return replace(pair, **sides, changes=(*pair.changes, "text to messages"))


def read_heads(rows: Sequence[dict[str, Any]], reading: Reading) -> Made:
    """What the first rows of a set give, read by themselves: for detection."""
    lone = [r for r in rows if reading.key(r) is None]
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if (key := reading.key(row)) is not None:
            groups.setdefault(key, []).append(row)
    held: list[dict[str, Any] | BadRow | Group] = [*lone]
    held += [Group(g, list(range(len(g))), [None] * len(g), [0] * len(g)) for g in groups.values()]
    return make(Block(held, [None] * len(held)), reading, "text")
