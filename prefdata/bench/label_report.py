"""``python -m prefdata.bench labels``: the figures of ``label_noise`` on the published sets, beside those it must reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import prefdata
from prefdata.bench import bounds, faults, judges, peers, sections, tables
from prefdata.bench.bounds import AT, RATES, SIGNAL, WORTH
from prefdata.bench.detector import STAGE
from prefdata.bench.flips import Gain, Noise, prepared
from prefdata.bench.kept import Tell, run_all
from prefdata.bench.public_sets import SETS, PairSet, published
from prefdata.bench.tables import Record

KNOWN_RIGHT = ("llmbar", "ifbench", "codecorrect", "jade")
SHORTCUTS, STRENGTHS = ("hh_harmless", "pandalm", "davinci001"), (0.6, 0.7, 0.9)
ROWS = ("pandalm", "dpo_zh", "davinci001")
OFTEN = ("pandalm", "davinci001", "dpo_en", "hh_helpful")  # sets on which labels are drawn by chance as often as asked


@dataclass(frozen=True)
class Asked:
    """How often everything is done: ``seeds`` of planted flips, ``few`` of what is slower, ``random`` of labels by chance;
    ``kept`` is a file for what is finished, so that an interrupted report goes on."""

    seeds: int = 20
    few: int = 5
    random: int = 100
    workers: int = 2
    tokenizer: str | None = None
    names: Sequence[str] = tuple(SETS)
    kept: Path | None = None


def measure(data: Path, asked: Asked, tell: Tell) -> dict[str, Any]:
    """All records of the report, by section; ``data`` is the folder of the published sets."""
    with TemporaryDirectory(prefix="prefdata-bench-") as scratch:
        work = Path(scratch)
        sets, tasks = [], list[Noise | Gain]()
        for one in published(data, work, asked.names, faults.pipeline(STAGE)):
            path = prepared(one, work / f"{one.name}.pickle", learners=one.name in WORTH)
            sets.append(one)
            tasks += _tasks(one.name, str(path), asked)
            tell("reading", len(sets), len(asked.names))
        tasks.sort(
            key=lambda task: isinstance(task, Noise)
        )  # the slow ones first, so that no worker ends up alone with one
        done = run_all(tasks, asked.workers, tell, asked.kept)
        noise = [r for task, r in zip(tasks, done, strict=True) if isinstance(task, Noise)]
        return {
            "sets": [{"set": s.name, "n": len(s), "left_out": dict(s.left_out)} for s in sets],
            "flips": [r for r in noise if not r["rows"]],
            "sampled": [r for r in noise if r["rows"]],
            "worth": [r for task, found in zip(tasks, done, strict=True) if isinstance(task, Gain) for r in found],
            "defaults": [_defaults(s) for s in sets if s.name in KNOWN_RIGHT],
            "rows": [
                {"set": s.name, **r} for s in sets if s.name in ROWS for seed in range(3)
                for r in faults.measure(s.rows(), list(faults.STAGES), 0.05, seed, asked.tokenizer)
            ],
            "shortcuts": [
                {"set": s.name, **faults.shortcut(s.rows(), strength, seed)}
                for s in sets if s.name in SHORTCUTS for strength in STRENGTHS for seed in range(3)
            ],
            "judges": judges.measure(data, work / "judges"),
            "notes": [] if peers.has_cleanlab() else [peers.NO_CLEANLAB],
        }  # fmt: skip


def _tasks(name: str, path: str, asked: Asked) -> Iterator[Noise | Gain]:
    for rate, seed in product(RATES, range(asked.seeds)):
        yield Noise(path, "flips", rate, seed, peers=rate == AT and seed < asked.few)
    for fault, rate in (("flips", 0.4), ("length", AT), ("annotators", AT)):
        yield from (Noise(path, fault, rate, seed) for seed in range(asked.few))
    yield from (Noise(path, "flips", AT, seed, vectors=False) for seed in range(asked.few))
    yield from (
        Noise(path, "random", 0.5, seed)
        for seed in range(asked.random if name in OFTEN else min(asked.random, asked.seeds))
    )
    yield from (
        Noise(path, "flips", AT, seed, rows=n) for one, n in SIGNAL if n and one == name for seed in range(asked.seeds)
    )
    if name in WORTH:
        yield from (Gain(path, rate, seed) for rate, seed in product((0.2, 0.3), range(asked.few + 1)))


def _defaults(pairs: PairSet) -> dict[str, Any]:
    """What the stage drops and flags, at its defaults and nothing planted, of labels that are known to be right."""
    found = prefdata.audit(pairs.rows(), pipeline=faults.pipeline(STAGE), workers=1)
    made = found.made[-1]
    return {
        "set": pairs.name,
        "n": len(made),
        "dropped": made.count("drop") / len(made),
        "flagged": made.count("flag") / len(made),
    }


# ---------------------------------------------------------------------------------------------- the report


def markdown(found: Mapping[str, Any], command: str, asked: Asked) -> list[str]:
    """The report as lines of Markdown."""
    labels = [r for r in found["flips"] if r["vectors"]]
    few = [r for r in found["flips"] if r["seed"] < asked.few and r["fault"] == "flips" and r["rate"] == AT]
    wanted = bounds.all_of(found)
    reached = sum(bound.holds for bound in wanted)
    return [
        "# Wrong labels: what `label_noise` finds on published sets", "", "```console", f"$ {command}", "```", "",
        _HOW.format(seeds=asked.seeds, few=asked.few, random=asked.random), "", *sections.left_out(found["sets"]), "",
        "## What it must reach", "", f"{reached} of {len(wanted)} figures are reached.", "", *bounds.table(wanted), "",
        "## With and without vectors, 20 % flips", "", f"The same {asked.few} seeds with static word vectors (`[embed]`) and without.", "",
        *_vectors(few), "",
        "## Planted flips", "", sections.FLIPS_SAY, "", *sections.flips(labels), "",
        "## Control: labels drawn by chance", "", *sections.control(labels), "",
        "## Beside other detectors", "", sections.PEERS_SAY, "", *sections.peers(labels), "",
        "## What cleaning is worth", "", sections.WORTH_SAY, "", *sections.gains(found["worth"]), "",
        "## Real wrong labels: language models as judges", "", *judges.section(found["judges"]), "",
        "## Labels known to be right", "", "Nothing planted, everything at its defaults.", "",
        *tables.markdown("set, pairs, dropped, flagged", ([r["set"], r["n"], tables.percent(r["dropped"]), tables.percent(r["flagged"])] for r in found["defaults"])),
        "", "## Faults of rows", "", "A twentieth of the rows each.", "", *sections.rows(found["rows"]), "",
        "## Shortcuts", "", sections.SHORTCUTS_SAY, "", *sections.shortcuts(found["shortcuts"]),
        *(f"\n{note}" for note in found["notes"]), "",
    ]  # fmt: skip


def _vectors(records: Sequence[Record]) -> list[str]:
    names = ("auroc", "ap", "pk", "p10")
    both = [
        {f["set"]: f for f in tables.over_seeds([r for r in records if r["vectors"] == v], ("set", "n"), names)}
        for v in (True, False)
    ]
    return tables.markdown(
        "set, pairs, AUROC, without, P@k, without, P10, without",
        (
            [s, f["n"], *(tables.spread(one[s][name]) for name in ("auroc", "pk", "p10") for one in both)]
            for s, f in both[0].items()
        ),
    )


_HOW = """Labels as published are the truth; flips are planted in them, {seeds} times at 5 to 30 %, {few} times for the rest, {random} times
labels drawn by chance ({seeds} times on most sets). Scores are out of fold, folds by prompt. Sets are what is left without empty, equal and repeated pairs. Nothing was
tuned to a single file. The bounds were set before this was built, from a prototype; one that is missed says so."""
