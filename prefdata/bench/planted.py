"""``prefdata bench``: faults of known truth planted in any set, what the tool finds of them, and what cleaning is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prefdata.bench import faults, peers, sections
from prefdata.bench.detector import STAGE
from prefdata.bench.flips import Gain, Noise, prepared
from prefdata.bench.kept import Tell, run_all
from prefdata.bench.public_sets import PairSet, read_set
from prefdata.errors import ConfigError, near_or_all

WRONG_LABELS = ("flips", "length", "annotators", "random")
FAULTS = (*WRONG_LABELS, *faults.STAGES, "shortcut")
PEER_RATE = 0.2


@dataclass(frozen=True)
class Asked:
    """What is to be planted: kinds of ``FAULTS``, rates of wrong labels, seeds, and whether cleaning is to be judged too."""

    faults: Sequence[str] = FAULTS
    rates: Sequence[float] = (0.05, 0.1, 0.2, 0.3)
    seeds: int = 5
    worth: bool = True
    share: float = 0.05
    strengths: Sequence[float] = (0.6, 0.7, 0.9)
    tokenizer: str | None = None
    encoder: str | None = None
    workers: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise ConfigError for what cannot be planted."""
        for name in self.faults:
            if name not in FAULTS:
                raise ConfigError(f"--faults {name}: no such fault", hint=near_or_all(name, FAULTS))
        for rate in self.rates:
            if not 0 < rate < 0.5:
                raise ConfigError(
                    f"--rates {100 * rate:g}: not between 0 and 50 %", hint="For example: --rates 5,10,20"
                )
        if self.worth and self.seeds < 3:
            raise ConfigError(f"--seeds {self.seeds}: what cleaning is worth needs three", hint="Or give --no-worth.")
        if self.tokenizer is None and tuple(self.faults) == ("cut",):
            raise ConfigError("--faults cut needs --tokenizer FOLDER")
        if self.tokenizer is not None and "cut" not in self.faults:
            raise ConfigError("--tokenizer does nothing here", hint="It is for --faults cut.")
        if self.encoder is not None and not self.worth:
            raise ConfigError("--encoder does nothing beside --no-worth", hint="It is for what cleaning is worth.")


def bench(sources: Mapping[str, Any], asked: Asked, tell: Tell, **options: Any) -> dict[str, Any]:
    """Measure on each of ``sources`` (name -> what ``audit`` takes; ``options`` say how to read it).

    Returns ``{sets, flips, worth, rows, shortcuts, notes}``: lists of records, one a run, see ``flips.run``, ``flips.gain`` and
    ``faults.measure``. ``tell(what, done, total)`` hears of the progress.
    """
    with TemporaryDirectory(prefix="prefdata-bench-") as scratch:
        work = Path(scratch)
        sets = [
            read_set(name, source, work / str(i), faults.pipeline(STAGE), **options)
            for i, (name, source) in enumerate(sources.items())
        ]
        out: dict[str, Any] = {"sets": [{"set": s.name, "n": len(s), "left_out": dict(s.left_out)} for s in sets]}
        paths = [
            prepared(s, work / f"{i}.pickle", asked.encoder) if _labels(asked) else None for i, s in enumerate(sets)
        ]
        tasks = [task for path in paths if path for task in _tasks(str(path), asked)]
        done = run_all(tasks, asked.workers, tell)
        out["flips"] = [r for task, r in zip(tasks, done, strict=True) if isinstance(task, Noise)]
        out["worth"] = [r for task, found in zip(tasks, done, strict=True) if isinstance(task, Gain) for r in found]
        out["rows"], out["shortcuts"] = _of_rows(sets, asked, tell)
    out["notes"] = _notes(asked)
    return out


def _labels(asked: Asked) -> bool:
    return asked.worth or any(name in WRONG_LABELS for name in asked.faults)


def _tasks(path: str, asked: Asked) -> Iterator[Noise | Gain]:
    seeds = range(asked.seed, asked.seed + asked.seeds)
    rates = [*asked.rates]
    at = min(rates, key=lambda rate: abs(rate - PEER_RATE), default=PEER_RATE)
    for name, seed in product((f for f in WRONG_LABELS if f in asked.faults), seeds):
        if name == "random":
            yield Noise(path, name, 0.5, seed)
        else:
            yield from (Noise(path, name, rate, seed, peers=name == "flips" and rate == at) for rate in rates)
    if asked.worth:
        yield from (Gain(path, rate, seed) for rate, seed in product(rates, seeds) if rate >= at)


def _of_rows(sets: Sequence[PairSet], asked: Asked, tell: Tell) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    kinds = [k for k in faults.STAGES if k in asked.faults]
    rows: list[dict[str, Any]] = []
    shortcuts: list[dict[str, Any]] = []
    for i, one in enumerate(sets):
        tell("rows", i, len(sets))
        pairs = one.rows() if kinds or "shortcut" in asked.faults else []
        for seed in range(asked.seed, asked.seed + asked.seeds):
            if kinds:
                rows += [
                    {"set": one.name, **r} for r in faults.measure(pairs, kinds, asked.share, seed, asked.tokenizer)
                ]
            if "shortcut" in asked.faults:
                shortcuts += [{"set": one.name, **faults.shortcut(pairs, s, seed)} for s in asked.strengths]
    return rows, shortcuts


def _notes(asked: Asked) -> list[str]:
    out = []
    if "flips" in asked.faults and not peers.has_cleanlab():
        out.append(peers.NO_CLEANLAB)
    if "cut" in asked.faults and asked.tokenizer is None:
        out.append("answers cut by the window were not planted: they need --tokenizer FOLDER")
    return out


def report(found: Mapping[str, Any], command: str) -> list[str]:
    """What ``bench`` found as lines of Markdown."""
    lines = ["# Planted faults", "", "```console", f"$ {command}", "```", "", *sections.left_out(found["sets"])]
    labels, random = ([r for r in found["flips"] if (r["fault"] == "random") == is_] for is_ in (False, True))
    for title, said, table in (
        ("Wrong labels", sections.FLIPS_SAY, sections.flips(labels) if labels else []),
        ("Control: labels drawn by chance", "", sections.control(random) if random else []),
        (
            "Beside other detectors",
            sections.PEERS_SAY,
            sections.peers(labels) if any("peers" in r for r in labels) else [],
        ),
        ("What cleaning is worth", sections.WORTH_SAY, sections.gains(found["worth"]) if found["worth"] else []),
        ("Faults of rows", "", sections.rows(found["rows"]) if found["rows"] else []),
        ("Shortcuts", "", sections.shortcuts(found["shortcuts"]) if found["shortcuts"] else []),
    ):
        if table:
            lines += ["", f"## {title}", "", *([said, ""] if said else []), *table]
    return [*lines, *(f"\n{note[0].upper()}{note[1:]}." for note in found["notes"])]
