"""``prefdata explain WORD``: reason words with an example each, words, settings and numbers of training, stages and their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from prefdata.errors import ConfigError, near_or_all
from prefdata.parameters import describe
from prefdata.stage import shipped
from prefdata.word_examples import examples

_LABELS = {"why": "Why it matters", "how": "How it decides", "misses": "What it misses"}


def word_document(word: str) -> dict[str, Any]:
    """All that a word means: a reason word (``stage``, ``text``, ``example``), a word of training (``training``), a setting of
    ``train`` (``setting``), a number of an evaluation (``number``), a stage (``reasons``), a parameter (``parameter``: by stage).
    """
    from prefdata.training.settings import Settings
    from prefdata.training.words import WORDS
    from prefdata.training.words_numbers import NUMBERS

    stages = shipped()
    of = {w: kind for kind in stages.values() for w in kind.reasons}
    out: dict[str, Any] = {"word": word}
    if word in of:
        kind = of[word]
        text = " ".join(kind.reasons[word].split())
        out |= {"stage": kind.name(), "text": text, **kind.documentation()}
        out["example"] = asdict(examples()[word]) if word in examples() else None
    elif word in stages:
        out |= stages[word].documentation()
    if word in stages and out.get("stage") != word:  # else all that is to say of the stage is said
        out["reasons"] = list(stages[word].reasons)
    if word in WORDS:
        out["training"] = asdict(WORDS[word])
    if word in Settings.model_fields:
        out["setting"] = {"values": setting_values(word), "text": Settings.model_fields[word].description}
    if word in NUMBERS:
        out["number"] = NUMBERS[word]
    if by_stage := {name: describe(kind, word) for name, kind in stages.items() if word in kind.model_fields}:
        out["parameter"] = by_stage
    if len(out) == 1:
        fields = {f for kind in stages.values() for f in kind.model_fields}
        known = sorted({*of, *stages, *WORDS, *Settings.model_fields, *NUMBERS, *fields})
        raise ConfigError(f"no such word: {word}", hint=near_or_all(word, known))
    return out


def setting_values(name: str) -> str:
    """What a setting of ``train`` may be, with its default where it has one."""
    from prefdata.training.settings import Settings

    return describe(Settings, name).replace(" or none, default none", "")


def word_lines(told: Mapping[str, Any]) -> Iterator[str]:
    """The same for people, a part for each thing that the word is."""
    for i, part in enumerate(_parts(told)):
        yield from ("",) if i else ()
        yield from part


def _parts(told: Mapping[str, Any]) -> Iterator[list[str]]:
    word = told["word"]
    if "stage" in told:
        example = list(_example(told["example"])) if told["example"] else []
        notes = [f"{label}: {told[key]}" for key, label in _LABELS.items() if told[key]]
        yield [f"{word}  (stage {told['stage']})", "", told["text"], *example, "", f"It asks: {told['asks']}", *notes]
    if "reasons" in told:
        words = f"Reason words: {', '.join(told['reasons']) or 'none, it only makes findings'}."
        yield [f"{word}  (a stage)", "", told["asks"], "", f"{words} All of it: prefdata stages {word}"]
    if training := told.get("training"):
        head = f"{word}  ({training['when']} training)"
        yield [head, "", training["means"], "", f"What to do: {training['remedy']}"]
    if setting := told.get("setting"):
        head = f"{word}  (a setting of train: {setting['values']})"
        yield [head, "", setting["text"], "", f"Set it with prefdata train ... --set {word}=VALUE, or in a recipe."]
    if "number" in told:
        yield [f"{word}  (a number of an evaluation of train)", "", told["number"]]
    if by_stage := told.get("parameter"):
        named = [f"  --set {stage}.{word}=VALUE   {values}" for stage, values in by_stage.items()]
        yield [f"{word}  (a parameter)", "", *named, "", f"All of it: prefdata stages {next(iter(by_stage))}"]


def _example(told: Mapping[str, Any]) -> Iterator[str]:
    """The two sets of rows of an example (the fields of ``Example``), as short as can be."""
    yield from ("", told["line"])
    if told["settings"]:
        yield f"with --set {' --set '.join(told['settings'])}"
    for name, text in told["files"].items():
        yield from (f"with the file {name}:", *(f"  {line}" for line in text.splitlines()))
    if told["review"]:
        yield f"after a review in which people said of the pair that gets it: {told['review']}"
    if told["crowd"]:
        yield f"after {len(told['crowd'])} pairs such as"
        yield f"  {told['crowd'][0]}"
    which = " (the last row)" if len(told["triggers"]) > 1 else ""
    for head, key in ((f"gets it{which}:", "triggers"), ("does not:", "spares")):
        yield from (head, *(f"  {line}" for line in told[key]))
