"""``python -m prefdata.bench speed``: ``prefdata clean`` against ``byhand.py``, whole processes, one file.

Both are run in turn on the same corpus, so that the noise of a shared machine hits both; ratios are taken
within a round, never across runs. Truth is planted, so recall and precision are known.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from prefdata.bench import measure, tokenizer
from prefdata.bench.corpus import make_corpus
from prefdata.bench.sentences import read
from prefdata.errors import InputError

MAX_LENGTH = 1024
_BY_HAND = Path(__file__).with_name("byhand.py")  # never imported: datasketch is no dependency
Say = Callable[[str], None]


@dataclass
class Setting:
    """What is to be compared."""

    rows: Sequence[int] = (20_000,)
    rounds: int = 2
    sources: Sequence[Path] = ()
    tokenizer: str | None = None
    seed: int = 1
    hand: bool = True
    workers: int = 2
    pipeline: str = "certain"
    work: Path = Path("bench-work")


@dataclass
class Size:
    """What was measured at one number of rows: per round and tool CPU, wall, peak; stages; quality."""

    rows: int
    megabytes: float
    rounds: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    stages: Mapping[str, float] = field(default_factory=dict)
    quality: dict[str, dict[str, float | int]] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)


def process(command: Sequence[str], work: Path, name: str) -> dict[str, Any]:
    """Run one command under ``measure`` with its output in a log; an error says where the log is."""
    result, log = work / f"{name}.json", work / f"{name}.log"
    result.unlink(missing_ok=True)
    with log.open("wb") as out:
        subprocess.run(
            [sys.executable, "-P", str(measure.__file__), str(result), *command],
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    found: dict[str, Any] = json.loads(result.read_text()) if result.is_file() else {"code": -1}
    if found["code"] != 0:
        raise InputError(f"{name} ended with {found['code']}", where=str(log), hint="The log holds its last words.")
    return {**found, "log": str(log)}


def clean_command(corpus: Path, out: Path, folder: Path, workers: int = 2, pipeline: str = "certain") -> list[str]:
    """``prefdata clean`` as it is measured."""
    return [
        sys.executable, "-m", "prefdata", "clean", str(corpus), str(out), "-p", pipeline,
        "--set", f"token_length.tokenizer={folder}", "--set", f"token_length.max_length={MAX_LENGTH}",
        "--workers", str(workers), "--overwrite",
    ]  # fmt: skip


def hand_command(corpus: Path, out: Path, folder: Path) -> list[str]:
    """The script by hand as it is measured."""
    return [sys.executable, "-P", str(_BY_HAND), str(corpus), str(out), str(folder), str(MAX_LENGTH)]


def run(setting: Setting, say: Say) -> tuple[list[Size], str]:
    """Make the corpora, run both tools in turn, judge the decisions; the sizes and the tokenizer's origin."""
    work = setting.work
    work.mkdir(parents=True, exist_ok=True)
    pool = read(setting.sources)
    folder, origin = tokenizer.find(setting.tokenizer, work, [s for x in pool.languages for s in x.sentences])
    sizes = []
    for rows in setting.rows:
        corpus, truth = work / f"corpus-{rows}.jsonl", work / f"corpus-{rows}.truth.jsonl"
        made = make_corpus(list(setting.sources), rows, corpus, truth, setting.seed)
        size = Size(rows, made["bytes"] / 1e6)
        say(f"{rows} rows, {size.megabytes:.1f} MB, {made['kinds']}")
        out, by_hand = work / f"out-{rows}", work / f"byhand-{rows}.parquet"
        commands = {"prefdata": clean_command(corpus, out, folder, setting.workers, setting.pipeline)}
        if setting.hand:
            commands["by hand"] = hand_command(corpus, by_hand, folder)
        for i in range(setting.rounds):
            turn = list(commands) if i % 2 == 0 else list(commands)[::-1]
            size.rounds.append(
                {tool: process(commands[tool], work, f"{tool.replace(' ', '')}-{rows}") for tool in turn}
            )
            say(f"round {i + 1}: " + ", ".join(f"{t} {r['cpu']:.1f} s" for t, r in size.rounds[-1].items()))
        size.stages = json.loads((out / "manifest.json").read_text()).get("run", {}).get("seconds_by_stage", {})
        size.quality, size.kept["prefdata"] = quality(out / "audit" / "decisions.parquet", truth, rows)
        if setting.hand:
            size.kept["by hand"] = pq.read_metadata(by_hand).num_rows
        sizes.append(size)
    return sizes, origin


def quality(decisions: Path, truth: Path, rows: int) -> tuple[dict[str, dict[str, float | int]], int]:
    """Recall and precision by kind of planted fault, and how many rows no stage dropped."""
    drops = pq.read_table(decisions, columns=["row", "reason"], filters=[("action", "=", "drop")])
    acted: dict[str, set[int]] = {}
    for row, reason in zip(drops.column("row").to_pylist(), drops.column("reason").to_pylist(), strict=True):
        acted.setdefault(reason, set()).add(row)
    wanted = expected(truth)
    out: dict[str, dict[str, float | int]] = {}
    for name, (reason, rows_of, allowed) in wanted.items():
        got = acted.get(reason, set())
        out[name] = {
            "planted": len(rows_of),
            "recall": len(got & rows_of) / len(rows_of) if rows_of else 1.0,
            "false": len(got - allowed),
            "precision": len(got & allowed) / len(got) if got else 1.0,
        }
    return out, rows - len(set().union(*acted.values()))


def expected(truth: Path) -> dict[str, tuple[str, set[int], set[int]]]:
    """Planted kind -> its reason word, the rows to be dropped for it, the rows that may be."""
    by: dict[str, set[int]] = {}
    near: dict[str, set[int]] = {"j2": set(), "j5": set(), "all": set()}
    with truth.open("rb") as file:
        for line in map(json.loads, file):
            by.setdefault(line["kind"], set()).add(line["row"])
            if line["kind"] == "contradiction":
                by["contradiction"].add(line["peer"])
            if line["kind"] == "near":
                near["all"].add(line["row"])
                for n in ("j2", "j5"):
                    if line[n] >= 0.8:
                        near[n].add(line["row"])

    def kinds(*names: str) -> set[int]:
        return set().union(*(by.get(k, set()) for k in names))

    copies, opposed = kinds("exact", "vote"), kinds("contradiction", "contradiction_vote")
    return {
        "exact": ("exact_duplicate", copies, copies),
        "near, 2-gram J >= 0.8": ("near_duplicate", near["j2"], near["all"] | copies),
        "near, 5-gram J >= 0.8": ("near_duplicate", near["j5"], near["all"] | copies),
        "near, all planted": ("near_duplicate", near["all"], near["all"] | copies),
        "contradiction": ("contradiction", opposed, opposed),
        "identical": ("identical_pair", kinds("identical"), kinds("identical")),
        "format only": ("too_similar", kinds("format_only"), kinds("format_only")),
    }


# -------------------------------------------------------------------------------------------------- the table


def markdown(sizes: Sequence[Size], origin: str, command: Sequence[str]) -> str:
    """The figures as Markdown, with the command that made them."""
    lines = ["# Benchmark", "", "```console", f"$ {shlex.join(command)}", "```", ""]
    lines += [_HOW.format(origin=origin, length=MAX_LENGTH, period=measure.PERIOD), "", "## Cost", ""]
    lines += _table("rows, MB, round, tool, CPU s, wall s, peak MB, kept", (r for s in sizes for r in _costs(s)))
    lines += ["", *_ratios(sizes)]
    for size in sizes:
        lines += ["", f"## Stages at {size.rows} rows (seconds as prefdata measured them, last round)", ""]
        lines += _table("stage, s", ([name, _seconds(s)] for name, s in size.stages.items()))
        lines += ["", f"## Planted faults at {size.rows} rows", ""]
        found = (
            [name, q["planted"], f"{q['recall']:.3f}", q["false"], f"{q['precision']:.4f}"]
            for name, q in size.quality.items()
        )
        lines += _table("fault, planted, recall, dropped wrongly, precision", found)
    lines += ["", "All faults were planted by us in recombined sentences: precision near 1 says little.", ""]
    return "\n".join(lines)


_HOW = """Tokenizer: {origin}, max_length {length}. CPU is user + system of the whole process tree.
Memory is the peak of anonymous plus shared memory of that tree (mapped file pages not counted), sampled every
{period:g} s. The tools ran in turn on the same file; ratios are within a round. Absolute seconds swell on a
shared machine."""


def _table(head: str, rows: Iterable[Sequence[object]]) -> list[str]:
    names = head.split(", ")
    lines = [names, ["---"] * len(names), *rows]
    return [f"| {' | '.join(str(cell) for cell in line)} |" for line in lines]


def _costs(size: Size) -> Iterator[list[object]]:
    for i, one in enumerate(size.rounds, 1):
        for tool, r in sorted(one.items(), reverse=True):
            peak = f"{r['peak'] / 1e6:.0f}" if r["peak"] else "-"
            cost = [f"{r['cpu']:.1f}", f"{r['wall']:.1f}", peak, size.kept.get(tool, "-")]
            yield [size.rows, f"{size.megabytes:.1f}", i, tool, *cost]


def _seconds(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else json.dumps(value)


def _ratios(sizes: Sequence[Size]) -> list[str]:
    out = []
    for size in sizes:
        for what, name in (("cpu", "CPU"), ("peak", "Peak memory")):
            got = [
                one["by hand"][what] / one["prefdata"][what]
                for one in size.rounds
                if "by hand" in one and one["by hand"][what] and one["prefdata"][what]
            ]
            if got:
                each = ", ".join(f"{x:.1f}" for x in got)
                out.append(f"- {name}, by hand / prefdata, {size.rows} rows: {each} (median {median(got):.1f})")
    for small, large in pairwise(sizes):
        a, b = (median(r["prefdata"]["cpu"] for r in s.rounds) for s in (small, large))
        out.append(f"- Growth, CPU({large.rows}) / CPU({small.rows}): {b / a:.2f}, rows x{large.rows / small.rows:g}")
    return out
