"""Sets of pairs to measure on: any input that ``audit`` reads, and the published sets of the label-noise report.

A set is what a label-noise study wants of a file: its sound pairs without equal answers and without repeated pairs, so that no
planted flip meets its own unflipped copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from prefdata.decisions import Index, Signals
from prefdata.engines import engine
from prefdata.errors import ConfigError, InputError, near_or_all
from prefdata.first_pass import measure_all
from prefdata.intake import detect, opened
from prefdata.pairs import SIDES
from prefdata.pipeline import Pipeline, load
from prefdata.result import Options
from prefdata.spool import Spool


@dataclass(frozen=True)
class Published:
    """Where a published set lies in the folder of the data, and what reading it takes."""

    files: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


_JADE = {"encoding": "gb18030", "columns": {"prompt": "问题", "chosen": "安全有用回答", "rejected": "违规回答"}}
SETS: Mapping[str, Published] = {
    "hh_harmless": Published(("hh-rlhf/harmless-base.test.jsonl.gz",)),
    "hh_helpful": Published(("dsp/hh-helpful-base.test.part1.json.gz",)),
    "dpo_en": Published(("llama-factory/dpo_en_demo.json.gz",)),
    "dpo_zh": Published(("llama-factory/dpo_zh_demo.json.gz",)),
    "llmbar": Published(
        tuple(
            f"llmbar/{name}.json"
            for name in ("Natural", "Adversarial-Neighbor", "Processed-LLMEval2", "Processed-FairEval")
        )
    ),
    "ifbench": Published(("ifbench/data.converted.json.gz",)),
    "pandalm": Published(("pandalm/testset-v1.json.gz",)),
    "oasst": Published(("open-assistant/en_100_tree.jsonl.gz",), {"pairs": "adjacent"}),
    "openinstruct": Published(("open-instruct-human-eval/eval_annotations.part1.csv.gz",)),
    "davinci001": Published(("alpaca-eval/text_davinci_001.alpaca_eval_gpt4.annotations.json.gz",)),
    "codecorrect": Published(("codeprefbench/correctness-alignment.jsonl.gz",)),
    "tone": Published(("llms-from-scratch/instruction-data-with-preference.json.gz",)),
    "jade": Published(("jade-db/jade_alignment_medium_zh.csv.gz",), _JADE),
}


@dataclass
class PairSet:
    """A set: its measured signals seen through the ``n`` pairs that were taken, and their texts.

    ``left_out`` counts, by reason, the pairs that were not taken. ``columns`` holds further columns by name, one value a pair.
    """

    name: str
    signals: Signals
    spool: Spool = field(repr=False)
    left_out: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.signals)

    def rows(self) -> list[dict[str, Any]]:
        """``{prompt, chosen, rejected, ...}`` of every pair as text, with the other columns: what ``audit`` takes."""
        return [{side: getattr(row, side) for side in SIDES} for row in self.spool.rows(self.signals.index.tolist())]

    def column(self, name: str) -> list[Any] | None:
        """The values of a further column of the source, one a pair; None where the set has no such column."""
        found = [row.columns.get(name) for row in self.spool.rows(self.signals.index.tolist())]
        return found if any(v is not None for v in found) else None


def read_set(name: str, source: Any, work: Path, pipeline: Pipeline | None = None, **options: Any) -> PairSet:
    """Read ``source`` as ``audit`` does and measure it with the stages of ``pipeline`` (default: none but ``malformed``).

    ``work`` is an empty folder for the measured parts, which the set reads from as long as it lives. Raises InputError where
    nothing is left.
    """
    steps = pipeline or load("default", only=["malformed"])[0]
    asked = Options(**options)
    work.mkdir(parents=True, exist_ok=True)
    planned = opened(source, work, asked)
    head, reading, form = detect(planned, asked)
    machine = engine("local", asked.workers or 1)
    try:
        spool, _ = measure_all(
            machine, planned, head, reading, form, steps, asked, work, lambda what, done, total: None
        )
    finally:
        machine.close()
    everything = spool.signals(asked.seed)
    sound = everything.without(steps.stages[0].decide(everything))
    taken, left_out = _distinct(sound)
    left_out = {"malformed": len(everything) - len(sound), **left_out}
    if not len(taken):
        raise InputError("no pair is left to measure on", where=name)
    return PairSet(name, everything.living(taken), spool, left_out)


def _distinct(sound: Signals) -> tuple[Index, dict[str, int]]:
    """The first of the pairs that have the same prompt and the same two answers, in either order; equal answers are no pair."""
    prompt, chosen, rejected = (sound.column(f"pair.{side}_key") for side in SIDES)
    differ = chosen != rejected
    triple = np.stack([prompt, np.minimum(chosen, rejected), np.maximum(chosen, rejected)])[:, differ]
    _, first = np.unique(triple, axis=1, return_index=True)
    taken = sound.index[differ][np.sort(first)]
    return taken, {"equal": int((~differ).sum()), "repeated": int(differ.sum()) - len(taken)}


def published(
    folder: Path, work: Path, names: Sequence[str] = tuple(SETS), pipeline: Pipeline | None = None
) -> Iterator[PairSet]:
    """The published sets of ``SETS`` that ``folder`` holds, one after the other; InputError names a file that is not there."""
    for name in names:
        if name not in SETS:
            raise ConfigError(f"--sets {name}: no such set", hint=near_or_all(name, SETS))
        paths = [folder / file for file in SETS[name].files]
        for path in paths:
            if not path.is_file():
                raise InputError(
                    "is not there", where=str(path), hint="--data names the folder with the published sets."
                )
        yield read_set(name, [str(p) for p in paths], work / name, pipeline, **SETS[name].options)
