"""Gates: bounds on what a run found, for CI. ``too_similar<=5%``, ``kept>=60%``, ``near_duplicate<=baseline+0.5%``."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefdata.decisions import Decisions
from prefdata.errors import ConfigError, near_or_all
from prefdata.stage import Stage

_COMPARE = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
_SHARES = ("longer_chosen", "length_bias")
_WORDS = ("kept", "dropped", "flagged", "contradictions", *_SHARES)
_NUMBER = r"\d+(?:\.\d+)?"
_GATE = rf"\s*(\w+)\s*(<=|>=|<|>)\s*(?:({_NUMBER})\s*(%?)|(baseline)(?:\s*([+-])\s*({_NUMBER})\s*%)?)\s*"


@dataclass(frozen=True)
class Gate:
    """A bound on a reason word, a stage, or one of ``kept dropped flagged contradictions longer_chosen length_bias``.

    ``bound`` is a number of rows, per cent (``share``), or points beside the rate of the baseline (``relative``).
    ``length_bias`` is how far ``longer_chosen`` is from 50 %.
    """

    name: str
    compare: str
    bound: float
    share: bool
    relative: bool = False

    @classmethod
    def parse(cls, text: str, stages: Sequence[Stage], where: str = "") -> Gate:
        """Read ``name<=5%`` or ``name<=baseline+1%``; raises ConfigError for a word that this pipeline cannot say."""
        match = re.fullmatch(_GATE, str(text))
        if match is None:
            what = f"gate {text!r} is not name, comparison, number"
            hint = 'For example: "too_similar<=5%", "kept>=1000" or "kept>=baseline-1%"'
            raise ConfigError(what, where=where, hint=hint)
        name, compare, bound, percent, relative, sign, points = match.groups()
        known = [*_WORDS, *(s.name() for s in stages), *(r for s in stages for r in s.reasons)]
        if name not in known:
            what = f"gate {text!r}: nothing here is called {name}"
            raise ConfigError(what, where=where, hint=near_or_all(name, known))
        if relative:
            return cls(name, compare, float(f"{sign or '+'}{points or 0}"), True, True)
        if name in _SHARES and not percent:
            raise ConfigError(f"gate {text!r}: {name} is a share", where=where, hint=f"For example: {name}<=60%")
        if percent and float(bound) > 100:
            raise ConfigError(f"gate {text!r}: a share is at most 100%", where=where)
        return cls(name, compare, float(bound), bool(percent))

    def __str__(self) -> str:
        if self.relative:
            return f"{self.name}{self.compare}baseline" + (f"{self.bound:+g}%" if self.bound else "")
        return f"{self.name}{self.compare}{self.bound:g}{'%' if self.share else ''}"

    def check(
        self, counts: Mapping[str, float | None], total: int, before: Mapping[str, float | None] | None = None
    ) -> dict[str, Any]:
        """The gate, its ``value`` (per cent or rows; None: nothing to judge), the text of it, whether it holds, and what the
        ``baseline`` had in per cent. ``before`` are the rates of the baseline (see ``rates``), which a relative gate needs.
        """
        if not self.share:
            return self._told(float(counts.get(self.name) or 0), self.bound, None, "")
        value = _percent(rates(counts, total).get(self.name, 0.0))
        if not self.relative:
            return self._told(value, self.bound, None, "")
        was = _percent((before or {}).get(self.name, 0.0))
        bound = None if was is None else round(was + self.bound, 9)
        absent = "" if self.name in (before or {}) else ": not looked for there"
        return self._told(value, bound, was, f" (baseline {_text(was)}{absent})")

    def _told(self, value: float | None, bound: float | None, was: float | None, beside: str) -> dict[str, Any]:
        ok = value is None or bound is None or bool(_COMPARE[self.compare](value, bound))
        text = _text(value) if self.share else f"{value:,.0f} rows"
        if self.share and not ok and text == _text(bound):  # 5.0004 % is above 5 %, and is to look so
            text = _text(value, 9)
        return {"gate": str(self), "value": value, "text": text + beside, "baseline": was, "ok": ok}


def counts(
    stages: Sequence[Stage], decisions: Sequence[Decisions], kept: int, flagged: int, total: int, longer: float | None
) -> dict[str, float | None]:
    """Rows not simply kept, by reason word and by stage (a word that is both is the reason), and those of the whole set.

    ``longer`` is the share of kept pairs whose chosen answer is the longer one, of those that differ; None without any.
    """
    out: dict[str, float] = {"kept": kept, "dropped": total - kept, "flagged": flagged}
    out |= {word: 0 for stage in stages for word in stage.reasons} | reasons(decisions)
    for stage, made in zip(stages, decisions, strict=True):
        out.setdefault(stage.name(), len(made) - made.count("keep"))
    out["contradictions"] = out.get("contradiction", 0)
    return {**out, "longer_chosen": longer, "length_bias": None if longer is None else abs(longer - 0.5)}


def reasons(decisions: Sequence[Decisions]) -> dict[str, int]:
    """Rows by reason word."""
    out: dict[str, int] = {}
    for made in decisions:
        for reason, actions in made.by_reason().items():
            out[reason] = out.get(reason, 0) + sum(actions.values())
    return out


def rates(counts: Mapping[str, float | None], total: int) -> dict[str, float | None]:
    """What gates compare, as shares of all pairs: another run may be held against them."""
    return {name: n if name in _SHARES or n is None else n / max(1, total) for name, n in counts.items()}


def _percent(share: float | None) -> float | None:
    """Rounded, so that 58 of 100 is 58 %, and not a hair less."""
    return None if share is None else round(100 * share, 9)


def _text(percent: float | None, digits: int = 4) -> str:
    return "not known: no two answers differ in length" if percent is None else f"{percent:.{digits}g} %"
