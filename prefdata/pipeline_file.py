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

from prefdata.errors import ConfigError, near_or_all

_KEYS = ("version", "stages", "gate")
JOB_KEYS = ("input", "output", "pipeline", "clean", "train", "evaluate")  # what `prefdata run` reads beside them


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
    """The stages and the gates (each with its place) of a pipeline or job file; errors name file and line."""
    tree = tree_of(text, path)
    if "pipeline" in tree:
        what = f"is a job with the stages of another pipeline, {tree['pipeline']}"
        raise ConfigError(what, where=at(path, tree, "pipeline"), hint="Name that one, or use prefdata run.")
    stages, gates = _list(tree, "stages", "a list", path), _list(tree, "gate", "a list of texts", path)
    entries = [_entry(entry, i, path, stages.lc.item(i)[0] + 1) for i, entry in enumerate(stages)]
    return entries, [(gate, f"{path}:{gates.lc.item(i)[0] + 1}") for i, gate in enumerate(gates)]


def tree_of(text: str, path: Path) -> CommentedMap:
    """The file as YAML with its lines; raises ConfigError for keys that neither a pipeline nor a job has."""
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
        if key not in (*_KEYS, *JOB_KEYS):
            hint = near_or_all(str(key), (*_KEYS, *JOB_KEYS))
            raise ConfigError(f"unknown key {key!r}", where=at(path, tree, key), hint=hint)
    if tree.get("version", 1) != 1:
        what = f"version {tree['version']} is not known here"
        raise ConfigError(what, where=at(path, tree, "version"), hint="This prefdata reads version 1.")
    return tree


def at(path: Path, tree: CommentedMap, key: str) -> str:
    """``file:line`` of a key."""
    return f"{path}:{tree.lc.key(key)[0] + 1}"


def _list(tree: CommentedMap, key: str, kind: str, path: Path) -> CommentedSeq:
    found = CommentedSeq() if tree.get(key) is None else tree[key]
    if not isinstance(found, CommentedSeq):
        raise ConfigError(f"{key!r} is not {kind}", where=at(path, tree, key))
    return found


def _entry(entry: Any, number: int, path: Path, line: int) -> Entry:
    """One item of the list of stages: a name, or a name with its parameters."""
    where = f"{path}:{line}"
    if isinstance(entry, str):
        return Entry(entry, line=line)
    if not isinstance(entry, CommentedMap) or len(entry) != 1:
        raise ConfigError(f"stages[{number}] is neither a name nor 'name: {{parameters}}'", where=where)
    stage, given = next(iter(entry.items()))
    given = CommentedMap() if given is None else given
    if not isinstance(given, CommentedMap):
        what, hint = f"stages[{number}].{stage}: parameters are a mapping", f"- {stage}: {{name: value}}"
        raise ConfigError(what, where=where, hint=hint)
    lines = {str(k): given.lc.key(k)[0] + 1 for k in given}
    return Entry(str(stage), {str(k): plain(v) for k, v in given.items()}, lines, line)


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


def value_of(text: str) -> Any:
    """A parameter from the command line, as YAML reads it; text without quotes stays exactly as given."""
    value = plain(YAML(typ="rt").load(text))
    if value is None:  # also what white space is, and what YAML takes for a comment
        return None if text.strip() in ("null", "Null", "NULL", "~") else text
    return text if isinstance(value, str) and not text.startswith(("'", '"')) else value


def select(entries: list[Entry], only: Sequence[str], skip: Sequence[str]) -> None:
    """Leave in the list what ``--only`` and ``--skip`` leave; ``malformed`` always stays."""
    named = [e.word for e in entries]
    for option, words in (("--only", only), ("--skip", skip)):
        for word in words:
            if word not in named:
                hint = near_or_all(word, named, "Stages")
                raise ConfigError(f"{option} {word}: not a stage of this pipeline", hint=hint)
    if "malformed" in skip:
        what = "--skip malformed: rows that are no pair cannot be kept"
        raise ConfigError(what, hint="Mend them, or leave malformed in.")
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
            hint = "For example: --set near_duplicate.threshold=0.7"
            raise ConfigError(f"--set {item}: not stage.parameter=value", hint=hint)
        stage, parameter, value = match.groups()
        entry = next((e for e in entries if stage in (e.name, e.word)), None)
        if entry is None:
            hint = near_or_all(stage, [e.name for e in entries], "Stages")
            raise ConfigError(f"--set {item}: {stage} is not in this pipeline", hint=hint)
        try:
            entry.given[parameter] = value_of(value)
        except YAMLError as error:
            hint = "Quote text that holds brackets or colons."
            raise ConfigError(f"--set {item}: not valid YAML", hint=hint) from error
        origin[entry.name, parameter] = f"--set {stage}.{parameter}"
    return origin
