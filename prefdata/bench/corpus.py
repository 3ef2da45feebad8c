"""A large set of preference pairs with planted faults of known truth, made by recombining given sentences."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from prefdata.bench.sentences import Language, Pool, edit, jaccard, read

KINDS = (
    "plain", "exact", "near", "contradiction", "contradiction_vote", "vote", "cycle", "identical",
    "format_only", "light_edit",
)  # fmt: skip
_CODE = {name: i for i, name in enumerate(KINDS)}
Row = tuple[str, str, str]


@dataclass(frozen=True)
class Shares:
    """Planted rows as shares of all rows. A fifth of the contradictions stand against three equal votes."""

    exact: float = 0.05
    near: float = 0.05
    contradiction: float = 0.01
    cycle: float = 0.002
    identical: float = 0.002
    format_only: float = 0.002
    light_edit: float = 0.10


@dataclass
class Plan:
    """What each row is: kind, first row of its group (-1: none), place in a cycle, length of the cycle."""

    kind: npt.NDArray[np.int8]
    peer: npt.NDArray[np.int64]
    place: npt.NDArray[np.int8]
    length: npt.NDArray[np.int8]

    @classmethod
    def of(cls, n: int, seed: int, shares: Shares) -> Plan:
        """Plant everywhere at random; each group has rows of its own, the first of them first in the file."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(n)
        out = cls(np.zeros(n, np.int8), np.full(n, -1, np.int64), np.zeros(n, np.int8), np.zeros(n, np.int8))
        used = 0

        def group(size: int) -> npt.NDArray[np.int64]:
            nonlocal used
            used += size
            return np.sort(order[used - size : used])

        def plant(kind: str, count: int) -> None:
            for _ in range(count):
                first, later = group(2)
                out.kind[later], out.peer[later] = _CODE[kind], first

        voted = round(n * shares.contradiction / 5)
        plant("exact", round(n * shares.exact))
        plant("near", round(n * shares.near))
        plant("contradiction", round(n * shares.contradiction) - voted)
        for _ in range(voted):
            rows = group(4)
            out.kind[rows[1:]], out.peer[rows[1:]] = _CODE["vote"], rows[0]
            out.kind[rng.choice(rows[1:])] = _CODE["contradiction_vote"]
        left = round(n * shares.cycle)
        while left >= 3:
            size = min(int(rng.integers(3, 7)), left)
            rows = group(size)
            left -= size
            out.kind[rows], out.peer[rows], out.length[rows] = _CODE["cycle"], rows[0], size
            out.place[rows] = np.arange(size)
        for kind in ("identical", "format_only"):
            out.kind[group(round(n * getattr(shares, kind)))] = _CODE[kind]
        if used > n:
            raise ValueError(f"{n} rows cannot hold the planted shares")
        free = np.flatnonzero(out.kind == 0)
        light = rng.choice(free, min(len(free), round(n * shares.light_edit)), replace=False)
        out.kind[light] = _CODE["light_edit"]
        return out


class Maker:
    """Makes any row from its number alone, so that a copy of an early row needs no memory of it."""

    def __init__(self, pool: Pool, plan: Plan, seed: int, mean_bytes: int = 1930) -> None:
        self.pool, self.plan, self.seed = pool, plan, seed
        self.scale = (mean_bytes - 45) / 1885
        weights = [sum(x.sizes) for x in pool.languages]
        self.edges = (np.cumsum(weights) / sum(weights)).tolist()

    def _rng(self, row: int, salt: int = 0) -> Random:
        return Random(((self.seed * 8 + salt) << 40) + row)

    def _language(self, rng: Random) -> Language:
        u = rng.random()
        return next(x for x, edge in zip(self.pool.languages, self.edges, strict=True) if u <= edge)

    def _text(self, rng: Random, of: Language, median: float, spread: float, plain: bool = False) -> str:
        """Some sentences, about as many bytes as a draw from a log-normal distribution."""
        goal = min(rng.lognormvariate(0, spread), 9.0) * median * self.scale
        source = of.plain if plain else of.sentences
        parts: list[str] = []
        size, n, draw = 0, len(source), rng.random
        listed = not plain and draw() < 0.08
        while True:
            at = int(draw() * n)
            one = source[at]
            grown = size + (len(one.encode()) if plain else of.sizes[at]) + 1
            if parts and grown - goal > goal - size:  # nearer to the goal without it
                break
            size = grown
            parts.append(
                "\n- " if listed and parts else "\n\n" if parts and draw() < 0.16 else of.joint if parts else ""
            )
            parts.append(one)
        if self.pool.code and not plain and goal > 400 and draw() < 0.04:
            parts += ["\n\n", self.pool.code[int(draw() * len(self.pool.code))]]
        return "".join(parts)

    def _base(self, row: int) -> tuple[Row, Language, Random]:
        rng = self._rng(row)
        of = self._language(rng)
        kind = KINDS[self.plan.kind[row]]
        plain = kind in ("identical", "format_only") and bool(of.plain)
        prompt = self._text(rng, of, 222, 0.9)
        chosen = self._text(rng, of, 680, 0.65, plain)
        if kind == "light_edit":
            rejected = edit([chosen], rng.uniform(0.01, 0.04), of.spare, rng)[0]
            if rejected == chosen:  # nothing in it could be edited
                rejected += of.joint + rng.choice(of.sentences)
        elif kind == "identical":
            rejected = chosen + rng.choice(("", "", "\n", "  ", "\u200b"))
        elif kind == "format_only":
            marks = list(re.finditer(r"[,.，。](?=\s|$)|[，。]", chosen))
            cut = rng.choice(marks).start() if marks else len(chosen)
            rejected = chosen[:cut] + chosen[cut + 1 :] if marks else chosen + "."
        else:
            rejected = self._text(rng, of, 565, 0.65)
        return (prompt, chosen, rejected), of, rng

    def row(self, row: int) -> Row:
        """The three texts of a row."""
        kind, peer = KINDS[self.plan.kind[row]], int(self.plan.peer[row])
        if peer < 0:
            return self._base(row)[0]
        (prompt, chosen, rejected), of, _ = self._base(peer)
        if kind.startswith("contradiction"):
            return prompt, rejected, chosen
        if kind == "near":
            rng = self._rng(row, 1)
            prompt, chosen, rejected = edit([prompt, chosen, rejected], rng.uniform(0.01, 0.04), of.spare, rng)
        if kind == "cycle":
            more = self._rng(peer, 2)
            size, at = int(self.plan.length[row]), int(self.plan.place[row])
            answers = [chosen, rejected] + [self._text(more, of, 600, 0.65) for _ in range(size - 2)]
            return prompt, answers[at], answers[(at + 1) % size]
        return prompt, chosen, rejected

    def truth(self, row: int, made: Row) -> dict[str, Any] | None:
        """The line of the truth file for a row, None for a plain one."""
        kind, peer = KINDS[self.plan.kind[row]], int(self.plan.peer[row])
        if kind == "plain":
            return None
        out: dict[str, Any] = {"row": row, "kind": kind, "peer": peer if peer >= 0 else None}
        if kind == "near":
            first = self._base(peer)[0]
            if first == made:
                return {**out, "kind": "exact"}  # nothing in it could be edited
            for n in (2, 5):
                out[f"j{n}"] = round(min(jaccard(a, b, n) for a, b in zip(first, made, strict=True)), 4)
        return out


def make_corpus(
    sources: list[Path],
    n: int,
    out: Path,
    truth: Path,
    seed: int = 0,
    shares: Shares | None = None,
    mean_bytes: int = 1930,
) -> dict[str, Any]:
    """Write ``n`` pairs and the truth about them; returns rows, bytes and how many of each kind.

    Streams: memory is the sentences (at most 200,000) and 19 bytes a row. Same arguments, same bytes.
    """
    maker = Maker(read(sources), Plan.of(n, seed, shares or Shares()), seed, mean_bytes)
    counts: Counter[str] = Counter()
    parts = [path.with_name(f"{path.name}.part") for path in (out, truth)]
    with parts[0].open("wb", 1 << 20) as rows, parts[1].open("wb", 1 << 20) as known:
        for i, made in _rows(maker, n):
            rows.write(orjson.dumps(dict(zip(("prompt", "chosen", "rejected"), made, strict=True))) + b"\n")
            line = maker.truth(i, made)
            counts[line["kind"] if line else "plain"] += 1
            if line:
                known.write(orjson.dumps(line) + b"\n")
    for part, path in zip(parts, (out, truth), strict=True):
        os.replace(part, path)  # noqa: PTH105
    return {"rows": n, "bytes": out.stat().st_size, "sentences": maker.pool.size, "kinds": dict(counts)}


def _rows(maker: Maker, n: int) -> Iterator[tuple[int, Row]]:
    for i in range(n):
        yield i, maker.row(i)
