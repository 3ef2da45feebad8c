"""What the values of a label column mean: decided once, from the values that the first rows have and the names of columns.

A label says which of two answers is better, as a number of the first one: 1 it is better, -1 the second is, 0 neither; what
lies between is a degree. None stands for a label that is missing or names neither.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from prefdata.errors import ConfigError, InputError, did_you_mean
from prefdata.pairs import kind_of
from prefdata.shapes.columns import Asked, Columns

_NOUN = (
    "(?:model|output|response|answer|completion|assistant|option|choice|candidate|summary|text|chatbot|system|generation"
    "|reply|conversation|prediction|human ref|label|message|solution|code)"
)
_SIDE = "a|b|\\d|first|second|left|right|one|two"
_DEGREES = dict.fromkeys(
    ("slightly", "marginally", "somewhat", "weakly", "a bit", "a little"), " slightly"
) | dict.fromkeys(("much", "far", "significantly", "strongly", "clearly", "considerably", "a lot"), " much")
_VERB = f"is|was|wins?|won|winner|better|best|preferred|chosen|superior|good|worse|loses|lost|{'|'.join(_DEGREES)}"
_SAID = re.compile(
    rf"(?:the )?(?P<noun>{_NOUN} ?)?(?P<side>{_SIDE})(?P<noun2> {_NOUN})?(?P<rest>(?: (?:{_VERB}))*)"
    rf"(?: than (?:the )?(?:{_NOUN} ?)?(?:{_SIDE}))?"
)
_COMPARED = re.compile(rf"(?:{_NOUN} ?)?({_SIDE}) ?(>>?|<<?|==?|~|≈) ?(?:{_NOUN} ?)?({_SIDE})")
_WORDS = {"a": "first", "b": "second", "left": "first", "right": "second", "one": "1", "two": "2"}
_OTHER = {"first": "second", "second": "first", "1": "2", "2": "1"}
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_TIES = {
    "tie", "tied", "ties", "draw", "equal", "equals", "equally good", "equally bad", "same", "the same", "about the same",
    "neither", "both", "both good", "both bad", "bothbad", "tie bothbad", "tie both bad", "even", "no preference",
    "indifferent",
}  # fmt: skip
_MISSING = {"", "null", "none", "nan", "na", "n/a", "garbage", "unknown", "invalid", "error", "skip", "skipped", "?"}
_SIGNED = ("overall_preference", "preference_strength")  # HelpSteer: -3 to 3, negative where the first is better
_PLACE = re.compile(r"gt_\w+|\w+_(?:id|idx|index)|choice")  # labels that count from 0, where answers do
_CHANCE = re.compile(r"(?:p|prob|probability|win ?rate) (.+)")
_ONE, _SIGNS = {"1": 1.0, "2": -1.0, "0": 0.0, "1.5": 0.0}, {"first": 1.0, "second": -1.0, "tie": 0.0}
_HINT = "Say what the values mean: --labels first=..,second=..,tie=.."


def plain(given: Any) -> str:
    """A label in plain words: ``first`` or ``second``, `` slightly`` or `` much`` behind it, ``tie``, a number, ``#1`` for a
    noun with a number (``response_1``), the empty text for a missing one; else its own words.
    """
    if isinstance(given, str):
        return _plain(given[:80])
    if given is None or given != given:
        return ""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, int):
        return str(given)
    return _number(given) if isinstance(given, float) else f"({kind_of(given)})"


@lru_cache(maxsize=4096)
def _plain(text: str) -> str:
    if _NUMBER.fullmatch(text.strip()):
        return _number(float(text))
    words = " ".join(re.sub(r"[\[\](){}\"'*`_\s-]+", " ", text.casefold()).split()).rstrip(".! ")
    if words in _MISSING:
        return ""
    if words in _TIES or text.strip() == "[[C]]":
        return "tie"
    if compared := _COMPARED.fullmatch(words):
        one, sign, two = compared.groups()
        side = one if sign[0] == ">" else two
        return "tie" if sign[0] in "=~≈" else _WORDS.get(side, side) + (" much" if len(sign) == 2 else "")
    said = _SAID.fullmatch(words)
    if said is None:
        return words
    side = _WORDS.get(said["side"], said["side"])
    if re.search("worse|loses|lost", said["rest"]):
        side = _OTHER.get(side, "")
    if side.isdigit() and (said["noun"] or said["noun2"]):
        side = f"#{side}"
    return side + next((d for word, d in _DEGREES.items() if f" {word}" in said["rest"]), "")


def _number(given: float) -> str:
    return str(int(given)) if given.is_integer() else repr(given)


def base_of(first: str, second: str) -> int | None:
    """1 where columns are numbered 1 and 2, 0 for 0 and 1 (or the places of a list); None where they have no numbers."""
    ends = [re.findall(r"\d+", name)[-1:] for name in (first, second)]
    return 1 if ends == [["1"], ["2"]] else 0 if ends == [["0"], ["1"]] else None


def code(
    label: str, values: Iterable[Any], first: str, second: str, asked: Asked
) -> tuple[dict[str, float], dict[str, str]]:
    """What each label in plain words means; and the part ``scale`` of labels that have degrees, for people (none for others).

    ``values`` are those of the first rows, ``first`` and ``second`` the columns of the answers. What the user said wins.
    Raises InputError where the values leave open which answer is meant, or are mostly unknown words.
    """
    given = _given(asked)
    if {1.0, -1.0} <= set(given.values()):
        return {"tie": 0.0, **given}, {}
    values = [v for v in values if plain(v)]
    counts = Counter(map(plain, values))
    unclear = InputError(
        f"the column {label!r} has {_listed(values)}: not clear when {first} and when {second} is better", hint=_HINT
    )
    base, name = base_of(first, second), label.rsplit(".", 1)[-1].casefold()
    found, scale = _numbers(name, {p for p in counts if _NUMBER.fullmatch(p)} - given.keys(), first, base, unclear)
    nouns = {p[1] for p in counts if p[0] == "#"}
    start = 0 if "0" in nouns else 1 if "2" in nouns else base
    found |= {} if start is None else {f"#{start}": 1.0, f"#{start + 1}": -1.0}
    if {"true", "false"} & counts.keys():
        side = _SIGNS.get(_side(name, base))
        if not side:
            raise unclear
        found |= {"true": side, "false": -side}
    found = {plain(first): 1.0, plain(second): -1.0} | _SIGNS | found | given
    degrees = [d for d in (" slightly", "", " much") if any(f"{p}{d}" in counts for p in found)]
    graded = any(degrees) and len(degrees) > 1
    for p, sign in list(found.items()):
        if sign and not _NUMBER.fullmatch(p):
            for d in (" slightly", "", " much"):
                weak = 0.5 if d == " slightly" else 1.0
                found[p + d] = sign * ((degrees.index(d) + 1) / len(degrees) if graded and d in degrees else weak)
    unknown = sum(n for p, n in counts.items() if p not in found and not (scale and _NUMBER.fullmatch(p)))
    if 2 * unknown > len(values):
        raise unclear
    scale = "degrees" if graded else scale
    return found, {"scale": scale} if scale else {}


def _given(asked: Asked) -> dict[str, float]:
    for key in asked.labels:
        if key not in _SIGNS:
            hint = did_you_mean(key, _SIGNS) or f"Known: {', '.join(_SIGNS)}"
            raise ConfigError(f"--labels {key}=...: no such answer", hint=hint)
    given = {plain(v): _SIGNS[k] for k, v in asked.labels.items()}
    if len(given) < len(asked.labels):
        raise ConfigError("--labels: one value is said to mean two things", hint=_HINT)
    return given


def _numbers(
    name: str, seen: set[str], first: str, base: int | None, unclear: InputError
) -> tuple[dict[str, float], str | None]:
    """The code of numbers and their scale, by the names of columns where those settle it."""
    numbers = {float(p) for p in seen}
    if not numbers:
        return {}, None
    whole, least, most = all(n.is_integer() for n in numbers), min(numbers), max(numbers)
    if name in _SIGNED and least < 0 and whole and -3 <= least <= most <= 3:
        return {"-3": 1.0, "0": 0.0, "3": -1.0}, "-3 to 3"
    if name == "labels" and first == "human_ref_A" and seen <= {"0", "1"}:  # SHP
        return {"1": 1.0, "0": -1.0}, None
    if name == "label" and first == "response 1" and seen <= {"0", "1", "2"}:  # Auto-J
        return {"0": 1.0, "1": -1.0, "2": 0.0}, None
    chance = _CHANCE.fullmatch(plain(name))
    sign = _SIGNS.get(_side(chance[1] if chance else name, base))
    if sign and 0 <= least <= most <= 1 and (chance or whole):
        return {"1": sign, "0": -sign}, "0 to 1" if chance else None
    if not whole:
        if 1 <= min(numbers - {0.0}) <= most <= 2:
            return _ONE, None if numbers <= {0.0, 1.0, 1.5, 2.0} else "1 to 2"
        raise unclear
    if seen == {"1"} and base == 1:  # a 0 that comes later may be the other answer, or a tie
        return {p: v for p, v in _ONE.items() if p != "0"}, None
    if seen <= {"0", "1", "2"} and "2" in seen and (base == 1 or "0" not in seen):
        return _ONE, None
    if seen <= {"0", "1"} and base == 0 and ("." not in first or "0" in seen or _PLACE.fullmatch(name)):
        return {"0": 1.0, "1": -1.0}, None
    raise unclear


def _side(name: str, base: int | None) -> str:
    """The answer that the name of a column speaks of: ``a_is_better``, ``response_1_is_better``."""
    said = plain(name).lstrip("#")
    return said if base is None else {str(base): "first", str(base + 1): "second"}.get(said, said)


def _listed(values: Iterable[Any]) -> str:
    shown = list(dict.fromkeys(_shown(v) for v in values))
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more values" if len(shown) > 8 else "")


def _shown(given: Any) -> str:
    return (
        "null" if given is None or given != given else f'"{given[:40]}"' if isinstance(given, str) else str(given)[:40]
    )


def meaning(given: Any, columns: Columns, asked: Asked, label: str | None = None) -> float | None:
    """What a label says of the first answer, from 1 to -1; None where it is missing or names neither.

    Raises InputError for a number that the first rows do not explain.
    """
    said = plain(given)
    found = columns.code.get(said)
    if found is not None or not _NUMBER.fullmatch(said) or {"first", "second"} <= asked.labels.keys():
        return found
    ends = {value: float(p) for p, value in columns.code.items() if abs(value) == 1 and _NUMBER.fullmatch(p)}
    if len(ends) == 2 and ("scale" in columns.parts or ends == {1.0: 1.0, -1.0: 2.0}):
        at = (float(said) - ends[1.0]) / (ends[-1.0] - ends[1.0])
        if 0 <= at <= 1:
            return 1 - 2 * at
    what = f"the column {label or columns['label']!r} has the value {_shown(given)}, unlike its first rows"
    raise InputError(what, hint=_HINT)


def told(column: str | None, given: Any) -> str:
    """``preference is 2``, for a fault."""
    return f"{column} is {_shown(given)}"


def word_like(values: Iterable[Any]) -> bool:
    """Whether values may be labels: most are numbers, booleans or short texts."""
    held = [(isinstance(v, str) and len(v) <= 60) or isinstance(v, bool | int | float) for v in values if v is not None]
    return not held or 2 * sum(held) > len(held)


def speaks_of(name: str, first: str, second: str) -> bool:
    """Whether a column says by its name how good one of the two answers is: ``a_is_better``, ``prob_1``."""
    said = plain(name)
    chance = _CHANCE.fullmatch(said)
    found = _side(chance[1] if chance else name, base_of(first, second)) in _SIGNS
    return found and (chance is not None or re.search("better|preferred|best", name) is not None)
