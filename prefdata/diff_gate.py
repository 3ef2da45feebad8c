"""``--fail-on``: conditions on a comparison, for CI. ``only_in_b>0``, ``changed>1%``, ``near_duplicate>+1%``."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prefdata.errors import ConfigError, near_or_all
from prefdata.report.compare import KINDS, Compare

_COMPARE = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
_SET = ("kept", "dropped", "flagged", "longer_chosen")
_EXAMPLE = 'For example: "only_in_b>0", "changed>1%" or "near_duplicate>+1%" (a rise in points)'


@dataclass(frozen=True)
class Condition:
    """A bound on a kind of rows, on a rate of B, or (``change``) on how a rate or a count moved from A to B."""

    name: str
    compare: str
    bound: float
    share: bool
    change: bool

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read ``name>0``, ``name>1%`` or ``name>+1%``; raises ConfigError for what it is not. Reason words are known later."""
        match = re.fullmatch(r"\s*([\w@-]+)\s*(<=|>=|<|>)\s*([+-]?)(\d+(?:\.\d+)?)\s*(%?)\s*", str(text))
        if match is None:
            raise ConfigError(f"--fail-on {text!r} is not name, comparison, number", hint=_EXAMPLE)
        name, compare, sign, bound, percent = match.groups()
        if name in KINDS and sign:
            raise ConfigError(f"--fail-on {text!r}: {name} is a change already", hint=f"For example: {name}>0")
        if name == "longer_chosen" and not percent:
            raise ConfigError(f"--fail-on {text!r}: longer_chosen is a share", hint="For example: longer_chosen>+2%")
        return cls(name, compare, float(sign + bound), bool(percent), bool(sign))

    def __str__(self) -> str:
        bound = f"{self.bound:+g}" if self.change else f"{self.bound:g}"
        return f"{self.name}{self.compare}{bound}{'%' if self.share else ''}"

    def check(self, found: Compare) -> dict[str, Any]:
        """Condition, value, its text, and whether it holds (which is a failure); a rate that one side lacks does not hold."""
        value = self._value(found)
        unit = (" points" if self.change else " %") if self.share else " rows"
        text = "not known: the stage did not run on both sides"
        if value is not None:
            text = (f"{value:+.4g}" if self.change else f"{value:,.4g}" if self.share else f"{value:,.0f}") + unit
        holds = value is not None and bool(_COMPARE[self.compare](value, self.bound))
        return {
            "condition": str(self),
            "value": None if value is None else round(value, 6),
            "text": text,
            "holds": holds,
        }

    def _value(self, found: Compare) -> float | None:
        kind = next((k for k in found.kinds if k.kind == self.name), None)
        if kind is not None:
            return 100 * (kind.share or 0.0) if self.share else float(kind.all)
        rates = [r for r in found.rates if r.name == self.name]
        if not rates:  # a word that neither side says of any pair
            return 0.0
        rate = rates[0]
        if not self.change:
            if rate.b is None or rate.b.value is None:
                return None
            return 100 * rate.b.value if self.share else float(rate.b.hits)
        if rate.a is None or rate.b is None or rate.change is None:
            return None
        return 100 * rate.change if self.share else float(rate.b.hits - rate.a.hits)


def known(conditions: Sequence[Condition], words: Iterable[str]) -> None:
    """Raise ConfigError for a name that no comparison has: a kind of rows, a share of the set, or one of these reason words."""
    names = list(dict.fromkeys([*KINDS, *_SET, *words]))
    for condition in conditions:
        if condition.name.split("@")[0] not in names:
            what = f"--fail-on {condition}: nothing here is called {condition.name}"
            raise ConfigError(what, hint=near_or_all(condition.name, names))
