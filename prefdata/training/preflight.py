"""Pre-flight in order: what needs no weights, then what needs the model; and the way of a file that was not cleaned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefdata.training.checks import Case, Check
from prefdata.training.prepare import prepare
from prefdata.training.settings import Settings


def cleaned(source: Any, home: Path, settings: Settings) -> Path:
    """Run the certain checks over an input that was not cleaned, into ``home/data``; raises ConfigError where a row does not pass."""
    raise NotImplementedError


def before_weights(case: Case) -> Iterator[Check]:
    """Settings, tokenizer, cells; then ids, made by TRL, and what is seen in them."""
    yield from weights_type(case)
    case.train = prepare(case.data.train, case.tokenizer, case.plan.max_length, "train")
    if case.data.held is not None and len(case.data.held):
        case.held = prepare(case.data.held, case.tokenizer, case.plan.max_length, "eval")


def with_model(case: Case) -> list[Check]:
    """What the model says of a first batch."""
    return []


def weights_type(case: Case) -> Iterator[Check]:
    """float16 master weights, the cause of the NaN that follows the first step."""
    p = case.plan
    if p.method == "full" and p.dtype == "float16":
        yield Check(
            "fp16_weights", "fail", "all weights would be trained as float16: the first optimiser step makes them NaN"
        )
    else:
        yield Check(
            "fp16_weights",
            "ok",
            f"{'adapters are float32, frozen weights' if p.method == 'lora' else 'weights are'} {p.dtype}",
        )
