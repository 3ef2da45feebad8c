"""prefdata finds and removes bad preference pairs, shows you each one, and trains DPO on what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefdata.converting import Converted, convert
    from prefdata.decisions import Decisions, Finding, Signals
    from prefdata.errors import PrefdataError
    from prefdata.pairs import Pairs
    from prefdata.pipeline import Pipeline
    from prefdata.result import Options, Result
    from prefdata.run import audit, clean
    from prefdata.stage import Stage
    from prefdata.training.api import train

__all__ = [
    "Converted",
    "Decisions",
    "Finding",
    "Options",
    "Pairs",
    "Pipeline",
    "PrefdataError",
    "Result",
    "Signals",
    "Stage",
    "audit",
    "clean",
    "convert",
    "train",
]

_HOME = {
    "Converted": "converting", "convert": "converting", "Decisions": "decisions", "Finding": "decisions", "Signals": "decisions", "PrefdataError": "errors", "Pairs": "pairs",
    "Pipeline": "pipeline", "Options": "result", "Result": "result", "audit": "run", "clean": "run", "Stage": "stage",
    "train": "training.api",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that ``prefdata --help`` imports no table library."""
    if name not in _HOME:
        raise AttributeError(f"module 'prefdata' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"prefdata.{_HOME[name]}"), name)
