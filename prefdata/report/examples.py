"""Which rows the page shows: the worst and the nearest of each stage, and a fair sample of every issue."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from prefdata.decisions import ACTIONS, Decisions, Index
from prefdata.pairs import Row
from prefdata.report.model import Example, Mark
from prefdata.report.numbers import Floats, Mask, Side, short
from prefdata.report.sheet import LEAST

MOST = 400
CUTS = (4000, 2000, 1000, 400)
BUDGET, SHEET_BUDGET = 1_400_000, 1_100_000
COLUMNS, COLUMN_CUT = 12, 200


@dataclass(frozen=True)
class Picked:
    """Row numbers of a stage's own examples."""

    worst: list[int]
    near_acted: list[int]
    near_kept: list[int]


def pick(made: Decisions, drops: Side | None, limit: float | None, over: Mask | None, each: int = 3) -> Picked:
    """The worst rows acted on, and the nearest to the limit on each side; equal scores go by row number."""
    acted = made.action != 0
    if drops is None or limit is None or over is None:
        return Picked(_one_of_each(made, acted, each), [], [])
    scored = made.score[np.isfinite(made.score)]
    if not len(scored) or scored.min() == scored.max():  # nothing is nearer than anything else
        return Picked(_one_of_each(made, acted, each), [], [])
    sign = -1.0 if drops == "above" else 1.0
    worst = _first(made.rows, sign * made.score, acted & np.isfinite(made.score), each)
    if len(worst) < each:
        rest = acted & ~np.isfinite(made.score)
        worst += made.rows[np.flatnonzero(rest)[: each - len(worst)]].tolist()
    distance = np.abs(made.score - np.where(np.isfinite(made.limit), made.limit, np.float32(limit)))
    fresh = ~np.isin(made.rows, worst)
    inner = _first(made.rows, distance, over & fresh, each)
    outer = _first(made.rows, distance, ~over & np.isfinite(made.score) & fresh, each)
    return Picked(worst, inner, outer)


def _first(rows: Index, key: Floats, where: Mask, count: int) -> list[int]:
    """The rows with the smallest keys."""
    at = np.flatnonzero(where)
    if len(at) > 4 * count:  # only those up to the count-th smallest key need sorting
        edge = np.partition(key[at], count - 1)[count - 1]
        at = at[key[at] <= edge]
    return [int(r) for r in rows[at[np.argsort(key[at], kind="stable")[:count]]]]


def _one_of_each(made: Decisions, acted: Mask, count: int) -> list[int]:
    found: list[list[int]] = []
    for i in range(len(made.reasons)):
        found.append(made.rows[np.flatnonzero(acted & (made.reason == i))[:count]].tolist())
    return _in_turn(found, count)


def _in_turn(lists: Sequence[Sequence[int]], count: int) -> list[int]:
    """One of each list, then the second of each, ...; no row twice."""
    out: dict[int, None] = {}
    for i in range(max(map(len, lists), default=0)):
        for one in lists:
            if i < len(one) and len(out) < count:
                out.setdefault(one[i])
    return list(out)


def sample(rows: Index, seed: int, key: str, most: int = MOST) -> list[int]:
    """A seeded sample of row numbers, in random order."""
    rng = np.random.default_rng([seed & 0xFFFFFFFF, zlib.crc32(key.encode())])
    return [int(r) for r in rng.choice(rows, size=min(most, len(rows)), replace=False)]


def fair(strata: Sequence[Sequence[int]], first: Iterable[int], most: int = MOST) -> list[int]:
    """The stages' own rows, then in turn one of every stratum, until there are enough."""
    own = list(dict.fromkeys(first))[:most]
    taken = set(own)
    return own + _in_turn([[r for r in rows if r not in taken] for rows in strata], most - len(own))


@dataclass(frozen=True)
class Shown:
    """The rows for the page, how many were left out for their size, and where texts were cut."""

    rows: list[Example]
    left_out: int
    cut_at: int


def examples(
    wanted: Sequence[int],
    own: int,
    judged: Sequence[int],
    peers: Mapping[int, Sequence[int]],
    read: Callable[[Sequence[int]], list[Row]],
    make: Callable[[Row, int, bool], Example],
) -> Shown:
    """Read the wanted rows and the peers they point to, once, and keep as many as the page can carry.

    The first ``own`` of them are shown by the stages, so all of these must fit: texts are cut until they do. ``judged`` rows are
    those of the spot-check, which have room of their own.
    """
    listed = set(wanted)
    others = dict.fromkeys(p for r in (*wanted, *judged) for p in (r, *peers.get(r, ())) if p not in listed)
    read_rows = {row.row: row for row in read(sorted([*listed, *others]))} if listed or others else {}
    cut, made = CUTS[0], dict[int, tuple[Example, int]]()
    for cut in CUTS:
        made = {r: _sized(make(row, cut, r in listed)) for r, row in read_rows.items()}
        need = {r for w in wanted[:own] for r in (w, *peers.get(w, ()))}
        if sum(made[r][1] for r in need if r in made) <= BUDGET * 0.6:
            break
    out: dict[int, Example] = {}
    room, left = BUDGET, 0
    for row in wanted:
        group = [r for r in (row, *peers.get(row, ())) if r in made and r not in out]
        size = sum(made[r][1] for r in group)
        if row not in made or size > room:
            left += row not in out
            continue
        room -= size
        out.update((r, made[r][0]) for r in group)
    room = SHEET_BUDGET
    for place, row in enumerate(judged):  # a sheet that stops early is a random sample still
        group = [r for r in (row, *peers.get(row, ())) if r in made and r not in out]
        room -= sum(made[r][1] for r in group)
        if room < 0 and place >= LEAST:
            break
        out.update((r, made[r][0]) for r in group)
    # a row read as a peer of a shown one stays listed only if it was wanted, which make() has set
    return Shown([out[r] for r in sorted(out)], left, cut)


def _sized(example: Example) -> tuple[Example, int]:
    text = example.model_dump_json()
    return example, len(text.encode()) + 5 * text.count("<")


def example(
    row: Row, cut: int, listed: bool, state: Any, marks: list[Mark], findings: list[str],
    groups: dict[str, str],
) -> Example:  # fmt: skip
    """The row as the page shows it: texts cut, columns as short text."""
    texts = {"prompt": row.prompt, "chosen": row.chosen, "rejected": row.rejected, "raw": row.raw}
    lengths = {k: len(v) for k, v in texts.items() if v is not None and len(v) > cut}
    columns = {str(k): _plain(v) for k, v in list(row.columns.items())[:COLUMNS] if v is not None}
    return Example(
        row=row.row, pd_id=row.pd_id, file=row.file, line=row.line, prompt=row.prompt[:cut], chosen=row.chosen[:cut],
        rejected=row.rejected[:cut], lengths=lengths, columns=columns, raw=None if row.raw is None else row.raw[:cut],
        detail=row.detail, groups=groups, state=state, marks=marks, findings=findings, listed=listed,
    )  # fmt: skip


def _plain(value: Any) -> str:
    option = orjson.OPT_NON_STR_KEYS
    text = value if isinstance(value, str) else orjson.dumps(value, default=str, option=option).decode()
    return text if len(text) <= COLUMN_CUT else text[: COLUMN_CUT - 1] + "…"


def mark_of(made: Decisions, row: int, stage: str, keys: Sequence[str]) -> Mark | None:
    """What a stage said of a row; None where it was not asked, or kept it without a score."""
    at = int(np.searchsorted(made.rows, row))
    if at >= len(made.rows) or made.rows[at] != row:
        return None
    action, score, limit = int(made.action[at]), float(made.score[at]), float(made.limit[at])
    if action == 0 and not np.isfinite(score):
        return None
    reason = int(made.reason[at])
    return Mark(
        stage=stage, action=ACTIONS[action], issue=keys[reason] if reason >= 0 else None,
        score=short(score) if np.isfinite(score) else None, limit=short(limit) if np.isfinite(limit) else None,
        peer=int(made.peer[at]) if made.peer[at] >= 0 else None,
    )  # fmt: skip
