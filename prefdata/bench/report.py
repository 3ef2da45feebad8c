"""``python -m prefdata.bench report``: how long the report of a large set takes after the decisions, and how large it gets.

The signals and decisions are made up for the stages of the shipped full pipeline; the rows that the page shows are generated
when it asks for them, as ``bench corpus`` makes them. So the report alone is timed, in this process.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from prefdata.bench.corpus import Maker, Plan, Shares
from prefdata.bench.sentences import read
from prefdata.decisions import Decisions, Finding, Part, Signals, apply
from prefdata.pairs import Row
from prefdata.pipeline import load
from prefdata.report.model import Report
from prefdata.report.render import render
from prefdata.report.summary import Facts, summarise
from prefdata.stage import Stage

CHUNK, MARKED = 65_536, 0.01  # rows of a file of signals; share of the rows that each reason word marks, at most
SOURCES, LANGUAGES = [f"source_{i:02}" for i in range(40)], ["en", "zh", "de", "fr", "ar", "unknown"]
RUN = {"command": "prefdata audit pairs.jsonl out/", "engine": "local", "workers": 2}


def signals(folder: Path, n: int, rng: np.random.Generator) -> Signals:
    """Signals of ``n`` rows, one in a thousand broken, in Arrow files in the folder."""
    parts = []
    for start in range(0, n, CHUNK):
        size = min(CHUNK, n - start)
        fault = pa.array(["parse_error"] * size, pa.string(), mask=rng.random(size) >= 0.001)
        known = pa.StructArray.from_arrays(
            [pa.array(np.array(SOURCES)[rng.zipf(1.5, size) % len(SOURCES)]), pa.nulls(size)], ["source", "topic"]
        )
        columns = {"pair.fault": fault, "pair.known": known}
        columns["domain_balance.language"] = pa.array(np.array(LANGUAGES)[rng.zipf(2.5, size) % len(LANGUAGES)])
        for side, words in (("prompt", 40), ("chosen", 110), ("rejected", 95)):
            columns[f"pair.{side}_words"] = pa.array(rng.geometric(1 / words, size).astype(np.int32))
            columns[f"pair.{side}_key"] = pa.array(rng.integers(0, 2**63, size).astype(np.uint64))
        path = str(folder / f"{start}.arrow")
        table = pa.table(columns)
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
            out.write_table(table)
        parts.append(Part(path, start, size))
    return Signals(parts)


def decided(stage: Stage, living: Signals, rng: np.random.Generator) -> Decisions:
    """Decisions such as the stage might take: for each of its words some rows, every other word drops; scores where it has any."""
    n = len(living)
    score = rng.beta(2, 4, n) if stage.drops else None
    limit = None if stage.drops is None else 0.8 if stage.drops == "above" else 0.03
    made = Decisions(living.index, score=score, limit=limit)
    for i, reason in enumerate(stage.reasons):
        found = rng.random(n) < MARKED * rng.random()
        if stage.drops and i == 0:
            found = made.score >= 0.8 if stage.drops == "above" else made.score <= 0.03
        at = np.flatnonzero(found & (made.action == 0))
        peers = living.index[np.maximum(0, at - rng.integers(1, 1000, len(at)))]
        made.mark(at, "flag" if i % 2 else "drop", reason, peer=peers if "duplicate" in stage.name() else None)
    made.findings = [Finding(f"{stage.name()}_share", 0.25, n, "Made up.", 0.2, 0.3, tuple(living.index[:9].tolist()))]
    return made


def facts(folder: Path, n: int, seed: int = 1) -> Facts:
    """What the report of ``n`` rows is made from; files go into the folder."""
    rng = np.random.default_rng(seed)
    every = signals(folder, n, rng)
    pipeline = load("full")[0]
    living, made = every, list[Decisions]()
    for stage in pipeline.stages:
        if stage is pipeline.stages[0]:
            first = Decisions(living.index)
            for where, got in living.batches(["pair.fault"]):
                first.mark(np.flatnonzero(got["pair.fault"].is_valid()) + where.start, "drop", "parse_error")
            made.append(first)
        else:
            made.append(decided(stage, living, rng))
        living = living.without(made[-1])
    maker = Maker(read([]), Plan.of(n, seed, Shares()), seed, 1400)

    def texts(rows: Sequence[int]) -> list[Row]:
        return [Row(r, str(r), "pairs.jsonl", r + 1, *maker.row(r), {"id": f"q{r}"}, None, None) for r in rows]

    outcome = apply(n, made)
    return Facts(
        signals=every, stages=pipeline.stages, decisions=made, outcome=outcome, read=texts,
        source={"files": [{"name": "pairs.jsonl", "bytes": 1400 * n, "sha256": "0" * 64, "rows": n}], "rows": n, "pairs": n, "form": "text"},
        pipeline="full", config=pipeline.resolved(), gates=[], action="audit", seed=seed, version="0", splits={"train": int(outcome.kept.sum())},
        sample=0.05, marked=np.zeros(n, bool),
    )  # fmt: skip


def made(given: Facts, say: Callable[[str], None]) -> tuple[Report, str, float]:
    """The report, its page and the seconds for both, with ``report.json``."""
    start = time.perf_counter()
    report = summarise(given)
    then = time.perf_counter()
    document = orjson.dumps(report.model_dump(mode="json"))
    dumped = time.perf_counter()
    page = render(report, RUN)
    end = time.perf_counter()
    say(f"numbers and rows {then - start:.1f} s, report.json {dumped - then:.1f} s ({len(document) / 1e6:.2f} MB), "
        f"page {end - dumped:.1f} s ({len(page.encode()) / 1e6:.2f} MB)")  # fmt: skip
    return report, page, end - start


def run(rows: int, seed: int, work: Path, say: Callable[[str], None], out: Path | None = None) -> str:
    """Make up a set of so many rows and time its report; a sentence with what came out. ``out`` also gets the page."""
    given = facts(work, rows, seed)
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    report, page, seconds = made(given, say)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    if out is not None:
        out.write_text(page, encoding="utf-8")
    size = len(page.encode()) / 1e6
    return (
        f"report, {rows:,} rows: {seconds:.1f} s, {size:.2f} MB, {len(report.rows)} rows in the page, {report.spotcheck.base} of "
        f"them the spot-check of kept pairs; peak memory {peak / 1e9:.2f} GB (before the report {before / 1e9:.2f} GB)"
    )
