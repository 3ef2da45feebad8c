"""``python -m prefdata.bench reading``: what reading costs, against plain orjson and Arrow.

Plain is as little as one can do with the same rows: orjson a line, three columns of strings, an Arrow file. Ours is what a run
books as reading, shapes and spool: the same, with line numbers, faults, long numbers and further columns looked after. Both
in this process, in turn, CPU seconds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import orjson
import pyarrow as pa

from prefdata.bench.corpus import make_corpus
from prefdata.run import audit

BOOKED = ("reading", "shapes", "spool")
NAMES = ("prompt", "chosen", "rejected")


def plain(path: Path, out: Path) -> float:
    """CPU seconds of the plain way from JSON lines to an Arrow file."""
    start = time.process_time()
    with path.open("rb") as file:
        rows = [orjson.loads(line) for line in file]
    table = pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in NAMES})
    with pa.OSFile(str(out), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return time.process_time() - start


def ours(path: Path, out: Path) -> dict[str, float]:
    """CPU seconds of ours, by what they went to."""
    audit(str(path), out, only=["malformed"], workers=1, overwrite=True)
    spent = json.loads((out / "manifest.json").read_bytes())["run"]["seconds_by_stage"]
    return {name: spent[name] for name in BOOKED}


def run(rows: int, rounds: int, seed: int, work: Path, say: Callable[[str], None]) -> str:
    """Make a corpus of so many rows, time both ways in turn; a sentence with the median of the rounds' ratios."""
    corpus = work / f"reading-{rows}.jsonl"
    make_corpus([], rows, corpus, corpus.with_suffix(".truth.jsonl"), seed)
    plain(corpus, work / "plain.arrow")  # the first time pays for imports
    ours(corpus, work / "ours")
    ratios = []
    for i in range(rounds):
        if i % 2:
            got, base = ours(corpus, work / "ours"), plain(corpus, work / "plain.arrow")
        else:
            base, got = plain(corpus, work / "plain.arrow"), ours(corpus, work / "ours")
        ratios.append(sum(got.values()) / base)
        parts = ", ".join(f"{name} {spent:.3f}" for name, spent in got.items())
        say(f"round {i + 1}: plain {base:.3f} s, ours {sum(got.values()):.3f} s ({parts}), ratio {ratios[-1]:.2f}")
    size = corpus.stat().st_size / 1e6
    return f"reading, {rows} rows, {size:.1f} MB: {median(ratios):.2f} times plain orjson and Arrow, median of {rounds}"
