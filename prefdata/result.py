"""What is asked of a run, and what it found."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pyarrow as pa

from prefdata.cutting import Format
from prefdata.decisions import Decisions, Finding, Outcome
from prefdata.errors import ConfigError, InputError
from prefdata.report.model import Report
from prefdata.sources import CHUNK_BYTES

Action = Literal["audit", "clean"]
Progress = Callable[[str, int, int], None]
_ACTED: tuple[Literal["drop", "flag", "swap", "add"], ...] = ("drop", "flag", "swap", "add")


@dataclass(frozen=True)
class Options:
    """Options of a run; the names are those of the command line."""

    columns: Mapping[str, str] = field(default_factory=dict)
    shape: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  # {"first": "1", "second": "2", "tie": "0"}
    pairs: Literal["best-worst", "adjacent", "all"] = "best-worst"  # which pairs a ranked list gives
    ties: Literal["drop", "keep"] = "drop"
    input_format: Format = "auto"
    encoding: str | None = None
    input_config: str | None = None
    input_split: str | None = None
    format: Literal["auto", "text", "chat", "implicit"] = "auto"
    split: str | None = None
    export: str = "all"
    sample: float = 0.05
    limit: int | None = None
    engine: str = "local"
    workers: int | None = None
    seed: int = 0
    resume: bool = False
    overwrite: bool = False
    keep_scratch: bool = False
    on_bad_row: Literal["skip", "stop"] = "skip"
    license: str | None = None
    baseline: str | os.PathLike[str] | None = None  # the folder of a run, or its manifest.json
    tolerance: str | None = None  # "0.5%": points that a rate may be worse than the baseline's
    command: str = ""
    chunk_bytes: int = CHUNK_BYTES  # private: tests cut small files into many chunks

    def __post_init__(self) -> None:
        """Raise ConfigError for a word that an option does not know."""
        for name, kind in get_type_hints(type(self)).items():
            if get_origin(kind) is Literal and getattr(self, name) not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise ConfigError(f"--{name.replace('_', '-')} {getattr(self, name)}: not one of {known}")
        for name, example in (("columns", '{"prompt": "question"}'), ("labels", '{"first": "1", "second": "2"}')):
            if not isinstance(getattr(self, name), Mapping):
                raise ConfigError(f"{name}: not a mapping", hint=f"For example: {name}={example}")
        if not 0 <= self.seed < 1 << 63:
            raise ConfigError(f"--seed {self.seed}: not between 0 and 2**63 - 1")

    def settings(self) -> dict[str, Any]:
        """The options that decide what is written, as the manifest holds them."""
        names = (
            "shape", "pairs", "ties", "input_format", "encoding", "input_config", "input_split", "format", "split", "export",
            "sample", "limit", "seed", "on_bad_row", "license",
        )  # fmt: skip
        mappings = {"columns": dict(self.columns), "labels": dict(self.labels)}
        return mappings | {n: getattr(self, n) for n in names}


@dataclass
class Result:
    """What a run found; ``dataset`` is read from ``out`` when asked for."""

    action: Action
    out: Path | None
    stages: list[str]
    made: list[Decisions] = field(repr=False)
    outcome: Outcome = field(repr=False)
    report: Report = field(repr=False)
    gates: list[dict[str, Any]]
    splits: dict[str, int]
    rates: dict[str, float | None] = field(default_factory=dict, repr=False)  # see ``gates.rates``
    parts: dict[str, Any] = field(default_factory=dict, repr=False)  # see ``Spool.parts``

    @cached_property
    def by_stage(self) -> dict[str, dict[str, Any]]:
        """By stage: the pairs it was asked about (``in``), rows by action, and by ``reasons`` and action."""
        return {
            name: {"in": len(d), **{a: d.count(a) for a in _ACTED}, "reasons": d.by_reason()}
            for name, d in zip(self.stages, self.made, strict=True)
        }  # fmt: skip

    @cached_property
    def counts(self) -> dict[str, Any]:
        """Pairs in, kept (in = kept + dropped), dropped, flagged, rows added beside them, and dropped by reason."""
        kept, total = int(self.outcome.kept.sum()), len(self.outcome.stage)
        reasons: Counter[str] = Counter()
        for found in self.by_stage.values():
            reasons.update({r: a["drop"] for r, a in found["reasons"].items() if "drop" in a})
        flagged, added = (int((self.outcome.kept & mask).sum()) for mask in (self.outcome.flagged, self.outcome.added))
        return {
            "pairs": total, "kept": kept, "dropped": total - kept, "flagged": flagged, "added": added, "reasons": dict(reasons),
        }  # fmt: skip

    @property
    def label_smoothing(self) -> float:
        """What a trainer is to smooth labels by; 0 where no stage says so."""
        return float(next((f.value for f in self.findings if f.name == "label_smoothing"), 0.0))

    @property
    def ok(self) -> bool:
        """True if every gate holds and something is left."""
        return all(g["ok"] for g in self.gates) and self.something_left

    @property
    def something_left(self) -> bool:
        """True if pairs are kept; an audit of rows in KTO form need not find any."""
        kto = self.action == "audit" and self.report.source["shape"] == "unpaired"
        return kto or bool(self.counts["kept"] > 0)

    @cached_property
    def decisions(self) -> pa.Table:
        """One row a decision: row, stage, action, reason, score, limit, peer."""
        tables = [d.table(n) for n, d in zip(self.stages, self.made, strict=True)]
        return pa.concat_tables(tables, promote_options="default").unify_dictionaries()

    @property
    def findings(self) -> list[Finding]:
        """Statements about the whole set, of all stages."""
        return [f for made in self.made for f in made.findings]

    @cached_property
    def dataset(self) -> Any:
        """The cleaned set as a ``datasets.DatasetDict``; only a finished ``clean`` has one."""
        if self.action != "clean" or self.out is None or not any(self.splits.values()):
            raise InputError("there is no cleaned dataset", hint="Call prefdata.clean(input, out), and see counts.")
        from datasets import load_dataset

        return load_dataset(str(self.out))
