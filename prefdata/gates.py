"""Gates: bounds on what a run found, for CI. ``too_similar<=5%``, ``kept>=60%``, ``longer_chosen<60%``."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefdata.decisions import Decisions
from prefdata.errors import ConfigError, near_or_all
from prefdata.stage import Stage

_COMPARE = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
_WORDS = ("kept", "dropped", "flagged", "longer_chosen", "contradictions")


@dataclass(frozen=True)
class Gate:
    """A bound on a reason word, a stage, or one of ``kept dropped flagged longer_chosen contradictions``."""

    name: str
    compare: str
    bound: float
    share: bool

    @classmethod
    def parse(cls, text: str, stages: Sequence[Stage], where: str = "") -> Gate:
        """Read ``name<=5%``; raises ConfigError for a word that this pipeline cannot say."""
        match = re.fullmatch(r"\s*(\w+)\s*(<=|>=|<|>)\s*(\d+(?:\.\d+)?)\s*(%?)\s*", str(text))
        if match is None:
            raise ConfigError(
                f"gate {text!r} is not name, comparison, number",
                where=where,
                hint='For example: "too_similar<=5%" or "kept>=1000"',
            )
        name, compare, bound, percent = match.groups()
        known = [*_WORDS, *(s.name() for s in stages), *(r for s in stages for r in s.reasons)]
        if name not in known:
            what = f"gate {text!r}: nothing here is called {name}"
            raise ConfigError(what, where=where, hint=near_or_all(name, known))
        if name == "longer_chosen" and not percent:
            raise ConfigError(
                f"gate {text!r}: longer_chosen is a share", where=where, hint="For example: longer_chosen<=60%"
            )
        return cls(name, compare, float(bound), bool(percent))

    def __str__(self) -> str:
        return f"{self.name}{self.compare}{self.bound:g}{'%' if self.share else ''}"

    def check(self, counts: dict[str, float], total: int) -> dict[str, Any]:
        """Gate, value (share or rows), its text, and whether it holds."""
        got = counts.get(self.name, 0)
        value = got * 100 if self.name == "longer_chosen" else 100 * got / max(1, total) if self.share else got
        text = f"{value:.4g} %" if self.share else f"{value:,.0f} rows"
        return {
            "gate": str(self),
            "value": round(value, 6),
            "text": text,
            "ok": bool(_COMPARE[self.compare](value, self.bound)),
        }


def counts(
    stages: Sequence[str], decisions: Sequence[Decisions], kept: int, flagged: int, total: int, longer: float
) -> dict[str, float]:
    """Rows not simply kept, by reason word and by stage (a word that is both is the reason), and those of the whole set."""
    out: dict[str, float] = {"kept": kept, "dropped": total - kept, "longer_chosen": longer, "flagged": flagged}
    for made in decisions:
        for reason, actions in made.by_reason().items():
            out[reason] = out.get(reason, 0) + sum(actions.values())
    for name, made in zip(stages, decisions, strict=True):
        out.setdefault(name, len(made) - made.count("keep"))
    out["contradictions"] = out.get("contradiction", 0)
    return out
