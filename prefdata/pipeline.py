"""A pipeline: stages in order, and gates. YAML to stages and back; deciding, stage by stage."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from prefdata.decisions import Decisions, Signals
from prefdata.errors import ConfigError, did_you_mean
from prefdata.gates import Gate
from prefdata.parameters import describe
from prefdata.stage import Stage, blaming, check, stage_class

_KEYS = ("version", "stages", "gate")


@dataclass
class Pipeline:
    """Stages in order and gates; ``name`` is what was asked for, ``title`` says where it came from."""

    name: str
    stages: list[Stage] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)

    @property
    def specs(self) -> list[tuple[str, dict[str, Any]]]:
        """What a worker builds the stages from."""
        return [(n, s.model_dump(mode="json")) for n, s in zip(self.names, self.stages, strict=True)]

    def resolved(self) -> dict[str, Any]:
        """The pipeline with every parameter written out, as stored in the manifest; can be given back as a file."""
        stages = [{n: s.model_dump(mode="json")} for n, s in zip(self.names, self.stages, strict=True)]
        return {"version": 1, "stages": stages, "gate": [str(g) for g in self.gates]}

    def decide(
        self,
        signals: Signals,
        divide: Callable[[Signals, Decisions | None], npt.NDArray[np.int8]] | None = None,
        progress: Callable[[str, int, int], None] | None = None,
        clock: Callable[[str], None] | None = None,
    ) -> tuple[list[Decisions], npt.NDArray[np.int8]]:
        """Ask each stage in order about the rows still living; also the split of every row (0: train).

        ``divide(signals, near)`` cuts the splits, behind ``near_duplicate`` (or behind the last stage); ``clock`` is told
        of each stage when it is done.
        """
        living = signals
        made: list[Decisions] = []
        splits: npt.NDArray[np.int8] | None = None
        for i, stage in enumerate(self.stages):
            if progress:
                progress(stage.name(), i, len(self.stages))
            with blaming(stage):
                got = stage.decide(living)
                check(stage, got, living)
            made.append(got)
            if divide is not None and stage.name() == "near_duplicate":
                splits = divide(living, got)  # with the rows it drops: their prompts join groups
            living = living.living(living.index[~got.of("drop")])
            if clock:
                clock(stage.name())
        if splits is None:
            splits = divide(living, None) if divide else np.zeros(signals.total, np.int8)
        return made, splits


def find(name: str | None) -> tuple[str, Path, str]:
    """Name, file and title of a pipeline: a path, a shipped name, or ``./prefdata.yaml`` else ``default``."""
    home = next(p for p in (Path(__file__).parent / "pipelines", Path(__file__).parents[1] / "pipelines") if p.is_dir())
    if name is None and Path("prefdata.yaml").is_file():
        return "prefdata.yaml", Path("prefdata.yaml"), "prefdata.yaml"
    name = name or "default"
    known = sorted(p.stem for p in home.glob("*.yaml"))
    if name in known:
        return name, home / f"{name}.yaml", f"{name} (shipped)"
    if Path(name).is_file():
        return name, Path(name), name
    raise ConfigError(
        f"no such pipeline: {name}",
        hint=did_you_mean(name, known) or f"Shipped: {', '.join(known)}; or the path of a file",
    )


def load(
    name: str | None = None, *, sets: Sequence[str] = (), only: Sequence[str] = (), skip: Sequence[str] = (),
    gates: Sequence[str] = (), against: Sequence[str] = (), min_margin: float | None = None,
) -> tuple[Pipeline, str]:  # fmt: skip
    """The pipeline of that name with overrides (``stage.parameter=value``), and its title.

    ``against`` are evaluation sets, for the stage ``contaminated`` (put in where it is not listed); ``min_margin`` is the
    parameter of ``contradiction``.
    """
    found, path, title = find(name)
    held = path.read_bytes()
    try:
        text = held.decode("utf-8")
    except UnicodeDecodeError as error:
        line = held.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8", where=f"{path}:{line}", hint="Save it as UTF-8.") from error
    more = {} if not against else {"against": [str(a) for a in against]}
    if min_margin is not None:
        sets = [*sets, f"contradiction.min_margin={min_margin}"]
    return parse(text, path, found, sets=sets, only=only, skip=skip, gates=gates, contaminated=more), title


def parse(
    text: str, path: Path, name: str, *, sets: Sequence[str] = (), only: Sequence[str] = (), skip: Sequence[str] = (),
    gates: Sequence[str] = (), contaminated: Mapping[str, Any] | None = None,
) -> Pipeline:  # fmt: skip
    """A pipeline out of YAML text; errors name file and line. ``contaminated`` are parameters of that stage, put in behind
    ``malformed`` where it is not listed."""
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
    entries: list[tuple[str, dict[str, Any], dict[str, int], int]] = []
    listed = CommentedSeq() if tree.get("stages") is None else tree["stages"]
    if not isinstance(listed, CommentedSeq):
        raise ConfigError("'stages' is not a list", where=f"{path}:{tree.lc.key('stages')[0] + 1}")
    for i, entry in enumerate(listed):
        line = listed.lc.item(i)[0] + 1
        if isinstance(entry, str):
            entries.append((entry, {}, {}, line))
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
            entries.append((str(stage), {str(k): _plain(v) for k, v in given.items()}, lines, line))
        else:
            raise ConfigError(f"stages[{i}] is neither a name nor 'name: {{parameters}}'", where=f"{path}:{line}")
    if "malformed" not in [e[0] for e in entries]:
        entries.insert(0, ("malformed", {}, {}, 1))
    elif entries[0][0] != "malformed":
        raise ConfigError("malformed comes first: other stages see sound pairs only", where=f"{path}:{entries[0][3]}")
    if contaminated:
        if "contaminated" in skip:
            raise ConfigError("--against and --skip contaminated: one undoes the other", hint="Leave one of them out.")
        if all(e[0] != "contaminated" for e in entries):
            entries.insert(1, ("contaminated", {}, {}, 1))
        next(e for e in entries if e[0] == "contaminated")[1].update(contaminated)
        only = [*only, "contaminated"] if only else only
    _select(entries, only, skip)
    origin = _override(entries, sets)
    out = Pipeline(name)
    for stage, given, lines, line in entries:
        where = f"{path}:{line}"
        try:
            kind = stage_class(stage, path.parent)
        except ConfigError as error:
            raise ConfigError(error.what, where=error.where or where, hint=error.hint) from error
        out.stages.append(_make(kind, stage, given, lines, path, line, origin))
        out.names.append(str((path.parent / stage).resolve()) if stage.endswith(".py") else stage)
    named = [s.name() for s in out.stages]
    twice = next((n for n in named if named.count(n) > 1), None)
    if twice:
        raise ConfigError(f"the stage {twice} stands there twice", where=str(path))
    adding = [s.name() for s in out.stages[:-1] if s.adds]
    if adding:
        raise ConfigError(f"{adding[0]} adds rows and so must come last", where=str(path))
    out.gates = [_gate(g, out.stages, where) for g, where in [*_gates(tree, path), *((g, "--gate") for g in gates)]]
    return out


def _gates(tree: CommentedMap, path: Path) -> list[tuple[Any, str]]:
    """The gates of a pipeline file, each with its place."""
    listed = CommentedSeq() if tree.get("gate") is None else tree["gate"]
    if not isinstance(listed, CommentedSeq):
        raise ConfigError("'gate' is not a list of texts", where=f"{path}:{tree.lc.key('gate')[0] + 1}")
    return [(g, f"{path}:{listed.lc.item(i)[0] + 1}") for i, g in enumerate(listed)]


def _gate(text: Any, stages: Sequence[Stage], where: str) -> Gate:
    if not isinstance(text, str):
        raise ConfigError(f"gate {_plain(text)!r} is not text", where=where, hint='For example: "too_similar<=5%"')
    gate = Gate.parse(text, stages, where)
    if gate.share and gate.bound > 100:
        raise ConfigError(f"gate {text!r}: a share is at most 100%", where=where)
    return gate


def _plain(value: Any) -> Any:
    """A YAML value without the loader's own types."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def _value(text: str) -> Any:
    """A parameter from the command line, as YAML reads it; text without quotes stays exactly as given."""
    value = _plain(YAML(typ="rt").load(text))
    if value is None and text.strip() not in (
        "null",
        "Null",
        "NULL",
        "~",
    ):  # white space, or what YAML takes for a comment
        return text
    return text if isinstance(value, str) and not text.startswith(("'", '"')) else value


def _select(entries: list[Any], only: Sequence[str], skip: Sequence[str]) -> None:
    named = [Path(e[0]).stem if e[0].endswith(".py") else e[0] for e in entries]
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


def _override(entries: list[Any], sets: Sequence[str]) -> dict[tuple[str, str], str]:
    """Carry ``--set`` out on the entries; returns which parameter came from which option, for error messages."""
    origin = {}
    for item in sets:
        match = re.fullmatch(r"([\w./-]+)\.(\w+)=(.*)", item, re.DOTALL)
        if match is None:
            raise ConfigError(
                f"--set {item}: not stage.parameter=value", hint="For example: --set near_duplicate.threshold=0.7"
            )
        stage, parameter, value = match.groups()
        entry = next((e for e in entries if e[0] == stage or Path(e[0]).stem == stage), None)
        if entry is None:
            names = [e[0] for e in entries]
            raise ConfigError(
                f"--set {item}: {stage} is not in this pipeline",
                hint=did_you_mean(stage, names) or f"Stages: {', '.join(names)}",
            )
        try:
            entry[1][parameter] = _value(value)
        except YAMLError as error:
            raise ConfigError(
                f"--set {item}: not valid YAML", hint="Quote text that holds brackets or colons."
            ) from error
        origin[entry[0], parameter] = f"--set {stage}.{parameter}"
    return origin


def _make(
    kind: type[Stage],
    stage: str,
    given: dict[str, Any],
    lines: Mapping[str, int],
    path: Path,
    line: int,
    origin: Mapping[tuple[str, str], str],
) -> Stage:
    try:
        return kind(**given)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        where = origin.get((stage, key), f"{path}:{lines.get(key, line)}: {stage}.{key}")
        fields = kind.model_fields
        if first["type"] == "extra_forbidden":
            near = did_you_mean(key, fields)
            known = near[13:-1] if near else ""
            hint = (
                f"Did you mean {known} ({describe(kind, known)})?"
                if known
                else f"Parameters: {', '.join(fields) or 'none'}"
            )
            raise ConfigError("no such parameter", where=where, hint=hint) from error
        hint = f"{key} is {describe(kind, key)}." if key in fields else ""
        raise ConfigError(f"{first['msg']}, got {str(first['input'])[:60]!r}", where=where, hint=hint) from error
