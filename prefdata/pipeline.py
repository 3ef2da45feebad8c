"""A pipeline: stages in order, and gates. YAML to stages and back; deciding, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from prefdata.decisions import Decisions, Signals
from prefdata.errors import ConfigError, located, near_or_all, nearest
from prefdata.gates import Gate
from prefdata.parameters import describe
from prefdata.pipeline_file import JOB_KEYS, Entry, override, plain, read, select, tree_of
from prefdata.stage import Amount, Stage, blaming, check, stage_class


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

    def notices(self, amount: Amount) -> dict[str, str]:
        """What stages must say before they measure so much (see ``Stage.notice``), by their names."""
        said = {stage.name(): stage.notice(amount) for stage in self.stages}
        return {name: text for name, text in said.items() if text}

    def resolved(self) -> dict[str, Any]:
        """The pipeline with every parameter written out, as stored in the manifest; can be given back as a file."""
        stages = [{n: s.model_dump(mode="json")} for n, s in zip(self.names, self.stages, strict=True)]
        return {"version": 1, "stages": stages, "gate": [str(g) for g in self.gates]}

    def decide(
        self,
        signals: Signals,
        divide: Callable[[Signals, Decisions | None], npt.NDArray[np.int8]] | None = None,
        given: npt.NDArray[np.int8] | None = None,
        progress: Callable[[str, int, int], None] | None = None,
        clock: Callable[[str], None] | None = None,
    ) -> tuple[list[Decisions], npt.NDArray[np.int8]]:
        """Ask each stage in order about the rows still living; also the split of every row (0: train).

        ``divide(signals, near)`` cuts the splits, behind ``near_duplicate`` (without it, before the first stage that leaves
        test rows alone, or behind the last one); ``given`` are the splits of an input that came in some. ``clock`` is told
        of each stage when it is done. What a stage spares, later ones flag where they would drop or swap it.
        """
        sound = living = signals
        made: list[Decisions] = []
        splits, spared = given, np.zeros(signals.total, bool)
        for i, stage in enumerate(self.stages):
            if progress:
                progress(stage.name(), i, len(self.stages))
            if splits is None and stage.train_only and divide is not None:
                splits = divide(living, None)
            got = (
                _decided(stage, sound, splits).among(living.index)
                if stage.compares
                else _decided(stage, living, splits)
            )
            if spared.any():
                got = got.sparing(spared[living.index])
            if got.spared is not None:
                spared[living.index[got.spared]] = True
            made.append(got)
            if divide is not None and splits is None and stage.name() == "near_duplicate":
                splits = divide(living, got)  # with the rows it drops: their prompts join groups
            living = living.without(got)
            if i == 0:
                sound = living
            if clock:
                clock(stage.name())
        same = np.array_equal(living.index, sound.index) and not living.swapped.any()
        for stage, got in zip(self.stages, made, strict=True):
            if stage.compares:  # nothing is counted again where all sound pairs stay as they are
                again = got if same else _decided(stage, living, splits)
                got.findings += [replace(f, when="kept") for f in again.findings]
        if splits is None:
            splits = divide(living, None) if divide else np.zeros(signals.total, np.int8)
        return made, splits


def _decided(stage: Stage, living: Signals, splits: npt.NDArray[np.int8] | None) -> Decisions:
    """What the stage says of the living rows, held to the contract; rows it must leave alone are kept."""
    asked = living
    if stage.train_only and splits is not None:
        asked = living.living(living.index[splits[living.index] == 0])
    with blaming(stage):
        got = stage.decide(asked)
        check(stage, got, asked)
    return got if asked is living else got.among(living.index)


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
    hint = near_or_all(name, known, "The path of a file, or one of")
    raise ConfigError(f"no such pipeline: {name}", hint=hint)


def text_of(path: Path) -> str:
    """The text of a pipeline or job file; ConfigError where it is not UTF-8."""
    held = path.read_bytes()
    try:
        return held.decode("utf-8")
    except UnicodeDecodeError as error:
        line = held.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8", where=f"{path}:{line}", hint="Save it as UTF-8.") from error


def load(
    name: str | None = None, *, sets: Sequence[str] = (), only: Sequence[str] = (), skip: Sequence[str] = (),
    gates: Sequence[str] = (), against: Sequence[str] = (), min_margin: float | None = None, verdicts: Sequence[str] = (),
) -> tuple[Pipeline, str]:  # fmt: skip
    """The pipeline of that name with overrides (``stage.parameter=value``), and its title.

    ``against`` are evaluation sets, for the stage ``contaminated``, and ``verdicts`` reviews (or folders of runs that have one), for
    the stage ``reviewed``; both are put in where they are not listed. ``min_margin`` is the parameter of ``contradiction``.
    """
    found, path, title = find(name)
    text = text_of(path)
    given: dict[str, tuple[str, list[str]]] = {}  # option to its parameter and value
    if against:
        given["contaminated"] = "against", [str(a) for a in against]
    if verdicts:
        given["reviewed"] = "verdicts", [str(Path(v, "audit/review.json") if Path(v).is_dir() else v) for v in verdicts]
    if min_margin is not None:
        sets = [*sets, f"contradiction.min_margin={min_margin}"]
    made = parse(text, path, found, sets=sets, only=only, skip=skip, gates=gates, given=given)
    beside = [key for key in tree_of(text, path) if key in JOB_KEYS]
    return made, f"{title}, a job: {', '.join(beside)} are for prefdata run" if beside else title


def parse(
    text: str, path: Path, name: str, *, sets: Sequence[str] = (), only: Sequence[str] = (), skip: Sequence[str] = (),
    gates: Sequence[str] = (), given: Mapping[str, tuple[str, Any]] | None = None,
) -> Pipeline:  # fmt: skip
    """A pipeline out of YAML text; errors name file and line. ``given`` is by stage a parameter that an option of the same name
    gives: the stage is put in behind ``malformed`` where it is not listed."""
    entries, listed = read(text, path)
    if "malformed" not in [e.name for e in entries]:
        entries.insert(0, Entry("malformed"))
    elif entries[0].name != "malformed":
        raise ConfigError("malformed comes first: other stages see sound pairs only", where=f"{path}:{entries[0].line}")
    for stage, (parameter, value) in (given or {}).items():
        if stage in skip:
            raise ConfigError(f"--{parameter} and --skip {stage}: one undoes the other", hint="Leave one of them out.")
        if all(e.name != stage for e in entries):
            entries.insert(1, Entry(stage))
        next(e for e in entries if e.name == stage).given[parameter] = value
        only = [*only, stage] if only else only
    select(entries, only, skip)
    origin = override(entries, sets)
    out = Pipeline(name)
    for entry in entries:
        with located(f"{path}:{entry.line}"):
            kind = stage_class(entry.name, path.parent)
        out.stages.append(_make(kind, entry, path, origin))
        out.names.append(str((path.parent / entry.name).resolve()) if entry.name.endswith(".py") else entry.name)
    named = [s.name() for s in out.stages]
    twice = next((n for n in named if named.count(n) > 1), None)
    if twice:
        raise ConfigError(f"the stage {twice} stands there twice", where=str(path))
    adding = [s.name() for s in out.stages[:-1] if s.adds]
    if adding:
        raise ConfigError(f"{adding[0]} adds rows and so must come last", where=str(path))
    out.gates = [gate_of(g, out.stages, where) for g, where in [*listed, *((g, "--gate") for g in gates)]]
    return out


def gate_of(text: Any, stages: Sequence[Stage], where: str) -> Gate:
    """A gate as a file or an option gives it, which is at ``where``; raises ConfigError."""
    if not isinstance(text, str):
        raise ConfigError(f"gate {plain(text)!r} is not text", where=where, hint='For example: "too_similar<=5%"')
    return Gate.parse(text, stages, where)


def _make(kind: type[Stage], entry: Entry, path: Path, origin: Mapping[tuple[str, str], str]) -> Stage:
    def place(key: str) -> str:
        return origin.get((entry.name, key), f"{path}:{entry.lines.get(key, entry.line)}: {entry.name}.{key}")

    try:
        stage = kind(**entry.given)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        where = place(key)
        if not key:  # parameters that do not go together, of which an override is the likelier culprit
            where = next((w for (name, _), w in origin.items() if name == entry.name), where.rstrip("."))
            raise ConfigError(first["msg"].removeprefix("Value error, "), where=where) from error
        fields = kind.model_fields
        if first["type"] == "extra_forbidden":
            near = nearest(key, fields)
            hint = f"Did you mean {near} ({describe(kind, near)})?" if near else ""
            hint = hint or f"Parameters: {', '.join(fields) or 'none'}"
            raise ConfigError("no such parameter", where=where, hint=hint) from error
        hint = f"{key} is {describe(kind, key)}." if key in fields else ""
        raise ConfigError(f"{first['msg']}, got {str(first['input'])[:60]!r}", where=where, hint=hint) from error
    if idle := stage.idle():
        raise ConfigError(
            f"does nothing: it needs {idle[1]}", where=place(idle[0]), hint="Leave it out, or give that too."
        )
    return stage
