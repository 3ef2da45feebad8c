"""The pipeline file: YAML to a list of stages with their parameters, each with its line; and what options change in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from prefdata.errors import ConfigError, did_you_mean

_KEYS = ("version", "stages", "gate")


@dataclass
class Entry:
    """A stage as the file lists it: name or path, parameters, the line of each, and its own line."""

    name: str
    given: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    line: int = 1

    @property
    def word(self) -> str:
        """What it is called on the command line."""
        return Path(self.name).stem if self.name.endswith(".py") else self.name


def read(text: str, path: Path) -> tuple[list[Entry], list[tuple[Any, str]]]:
    """The stages and the gates (each with its place) of a pipeline file; errors name file and line."""
    try:
        tree = YAML(typ="rt").load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else text.count("\n", 0, getattr(error, "position", 0)) + 1
        what = str(getattr(error, "problem", None) or error).split("\n")[0]
        raise ConfigError(what, where=f"{path}:{line}") from error
    if not isinstance(tree, CommentedMap):
        raise ConfigError("is not a mapping with 'stages:'", where=f"{path}:1")
    for key in tree:
        if key not in _KEYS:
            raise ConfigError(
                f"unknown key {key!r}",
                where=f"{path}:{tree.lc.key(key)[0] + 1}",
                hint=did_you_mean(str(key), _KEYS) or f"Known: {', '.join(_KEYS)}",
            )
    if tree.get("version", 1) != 1:
        raise ConfigError(
            f"version {tree['version']} is not known here",
            where=f"{path}:{tree.lc.key('version')[0] + 1}",
            hint="This prefdata reads version 1.",
        )
    entries: list[Entry] = []
    listed = CommentedSeq() if tree.get("stages") is None else tree["stages"]
    if not isinstance(listed, CommentedSeq):
        raise ConfigError("'stages' is not a list", where=f"{path}:{tree.lc.key('stages')[0] + 1}")
    for i, entry in enumerate(listed):
        line = listed.lc.item(i)[0] + 1
        if isinstance(entry, str):
            entries.append(Entry(entry, line=line))
        elif isinstance(entry, CommentedMap) and len(entry) == 1:
            stage, given = next(iter(entry.items()))
            given = CommentedMap() if given is None else given
            if not isinstance(given, CommentedMap):
                raise ConfigError(
                    f"stages[{i}].{stage}: parameters are a mapping",
                    where=f"{path}:{line}",
                    hint=f"- {stage}: {{name: value}}",
                )
            lines = {str(k): given.lc.key(k)[0] + 1 for k in given}
            entries.append(Entry(str(stage), {str(k): plain(v) for k, v in given.items()}, lines, line))
        else:
            raise ConfigError(f"stages[{i}] is neither a name nor 'name: {{parameters}}'", where=f"{path}:{line}")
    return entries, _gates(tree, path)


def _gates(tree: CommentedMap, path: Path) -> list[tuple[Any, str]]:
    """The gates of a pipeline file, each with its place."""
    listed = CommentedSeq() if tree.get("gate") is None else tree["gate"]
    if not isinstance(listed, CommentedSeq):
        raise ConfigError("'gate' is not a list of texts", where=f"{path}:{tree.lc.key('gate')[0] + 1}")
    return [(g, f"{path}:{listed.lc.item(i)[0] + 1}") for i, g in enumerate(listed)]


def plain(value: Any) -> Any:
    """A YAML value without the loader's own types."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def _value(text: str) -> Any:
    """A parameter from the command line, as YAML reads it; text without quotes stays exactly as given."""
    value = plain(YAML(typ="rt").load(text))
    if value is None and text.strip() not in (
        "null",
        "Null",
        "NULL",
        "~",
    ):  # white space, or what YAML takes for a comment
        return text
    return text if isinstance(value, str) and not text.startswith(("'", '"')) else value


def select(entries: list[Entry], only: Sequence[str], skip: Sequence[str]) -> None:
    """Leave in the list what ``--only`` and ``--skip`` leave; ``malformed`` always stays."""
    named = [e.word for e in entries]
    for option, words in (("--only", only), ("--skip", skip)):
        for word in words:
            if word not in named:
                raise ConfigError(
                    f"{option} {word}: not a stage of this pipeline",
                    hint=did_you_mean(word, named) or f"Stages: {', '.join(named)}",
                )
    if "malformed" in skip:
        raise ConfigError(
            "--skip malformed: rows that are no pair cannot be kept", hint="Mend them, or leave malformed in."
        )
    entries[:] = [
        e for e, n in zip(entries, named, strict=True)
        if n == "malformed" or ((not only or n in only) and n not in skip)
    ]  # fmt: skip


def override(entries: list[Entry], sets: Sequence[str]) -> dict[tuple[str, str], str]:
    """Carry ``--set`` out on the entries; returns which parameter came from which option, for error messages."""
    origin = {}
    for item in sets:
        match = re.fullmatch(r"([\w./-]+)\.(\w+)=(.*)", item, re.DOTALL)
        if match is None:
            raise ConfigError(
                f"--set {item}: not stage.parameter=value", hint="For example: --set near_duplicate.threshold=0.7"
            )
        stage, parameter, value = match.groups()
        entry = next((e for e in entries if stage in (e.name, e.word)), None)
        if entry is None:
            names = [e.name for e in entries]
            raise ConfigError(
                f"--set {item}: {stage} is not in this pipeline",
                hint=did_you_mean(stage, names) or f"Stages: {', '.join(names)}",
            )
        try:
            entry.given[parameter] = _value(value)
        except YAMLError as error:
            raise ConfigError(
                f"--set {item}: not valid YAML", hint="Quote text that holds brackets or colons."
            ) from error
        origin[entry.name, parameter] = f"--set {stage}.{parameter}"
    return origin
