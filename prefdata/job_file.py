"""The job file of ``prefdata run``: a pipeline file that also says what to read, what to train and where to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from prefdata.errors import ConfigError, near_or_all
from prefdata.pipeline import find, text_of
from prefdata.pipeline_file import at, plain, tree_of, value_of

_TEXT, _TEXTS, _WORDS = str | None, str | list[str], Mapping[str, str | int | float | bool]
CLEAN: dict[str, Any] = {
    "columns": _WORDS, "labels": _WORDS, "shape": _TEXT, "pairs": str, "ties": str, "input_format": str, "encoding": _TEXT,
    "input_config": _TEXT, "input_split": _TEXT, "format": str, "split": _TEXT, "export": str, "sample": float | str, "limit": int | None,
    "seed": int, "on_bad_row": str, "license": _TEXT, "engine": str, "workers": int | None, "against": _TEXTS, "min_margin": float | None, "verdicts": _TEXTS,
    "only": _TEXTS, "skip": _TEXTS, "baseline": _TEXT, "tolerance": _TEXT, "keep_scratch": bool,
}  # fmt: skip
EVALUATE: dict[str, Any] = {"against_raw": bool, "seeds": int | list[int]}
_SECTIONS = ("clean", "train", "evaluate")
_KINDS = {_TEXT: "text", str: "text", float | str: "a share such as 5%", bool: "true or false", int: "a whole number", _TEXTS: "a text or a list of texts",
          int | None: "a whole number", float | None: "a number", _WORDS: "a mapping of names", int | list[int]: "a number of seeds or a list of them"}  # fmt: skip


@dataclass
class Section:
    """The values of ``clean``, ``train`` or ``evaluate``, and where each was said, for errors."""

    values: dict[str, Any] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)


@dataclass
class Job:
    """What a job asks for. ``pipeline`` is what ``-p`` takes; ``gates``, each with its place, come on top of that pipeline's own."""

    name: str
    input: list[str]
    output: Path
    pipeline: str
    gates: list[tuple[Any, str]]
    clean: Section
    train: Section | None
    evaluate: Section | None
    sets: list[str]


def read(name: str, source: Sequence[str] = (), output: Path | None = None, sets: Sequence[str] = ()) -> Job:
    """The job of that file or shipped name; ``source``, ``output`` and ``sets`` (options) override what it says.

    Paths are relative to the job file, those of options to the current folder. Raises ConfigError with file and line.
    """
    found, path, _ = find(name)
    tree = tree_of(text_of(path), path)
    home = path.parent
    given = list(source) or [_beside(home, p) for p in _listed(tree, "input", path)]
    out = output or (None if tree.get("output") is None else home / _typed(tree, "output", path, str, "a path"))
    lacking = [key for key, value in (("input", given), ("output", out)) if not value]
    if lacking or out is None:
        plainly = not any(k in tree for k in ("input", "output", "train", "clean"))
        what = f"is a pipeline, not a job: it has no {' and no '.join(lacking)}" if plainly else f"has no {lacking[0]}"
        hint = f"Add {' and '.join(f'{k}: PATH' for k in lacking)}, or give {' and '.join(f'--{k} PATH' for k in lacking)}."
        raise ConfigError(what, where=str(path), hint=hint)
    if "-" in given:
        raise ConfigError("a job cannot read stdin: it may have to read it again", hint="Give a file.")
    sections = {key: _section(tree, key, path) for key in _SECTIONS}
    of_stages = _overridden(sections, sets)
    for key, known in (("clean", CLEAN), ("evaluate", EVALUATE)):
        if (section := sections[key]) is not None:
            _check(section, known)
    if sections["evaluate"] is not None and sections["train"] is None:
        what = "evaluate without train: nothing is trained that could be evaluated"
        raise ConfigError(what, where=str(path), hint="Add train: {model: PATH}, or leave evaluate out.")
    pipeline, gates = _stages(tree, path, found)
    clean = sections["clean"] or Section()
    for key in ("against", "verdicts"):
        if key in clean.values:
            named = clean.values[key]
            clean.values[key] = [_beside(home, p) for p in ([named] if isinstance(named, str) else named)]
    if clean.values.get("baseline"):
        clean.values["baseline"] = _beside(home, clean.values["baseline"])
    return Job(Path(name).stem, given, out, pipeline, gates, clean, sections["train"], sections["evaluate"], of_stages)


def _beside(home: Path, name: str) -> str:
    return name if name == "-" or name.startswith("hf:") else str(home / Path(name).expanduser())


def _typed(tree: CommentedMap, key: str, path: Path, kind: type, called: str) -> Any:
    if not isinstance(tree[key], kind):
        raise ConfigError(f"{key!r} is not {called}", where=at(path, tree, key))
    return plain(tree[key])


def _listed(tree: CommentedMap, key: str, path: Path) -> list[str]:
    value = plain(tree.get(key))
    value = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ConfigError(f"{key!r} is neither a path nor a list of paths", where=at(path, tree, key))
    return value


def _stages(tree: CommentedMap, path: Path, found: str) -> tuple[str, list[tuple[Any, str]]]:
    """Which pipeline is asked for, and the gates that come on top of its own."""
    if "stages" in tree and "pipeline" in tree:
        what = "has both stages and pipeline"
        raise ConfigError(what, where=at(path, tree, "pipeline"), hint="Leave one of them out.")
    if "stages" in tree:
        return found, []
    if "pipeline" not in tree:
        raise ConfigError("names no stages", where=str(path), hint="Add stages:, or pipeline: default.")
    wanted = _typed(tree, "pipeline", path, str, "a name or a path")
    gates: Any = tree.get("gate") or []
    if not isinstance(gates, list):
        raise ConfigError("'gate' is not a list of texts", where=at(path, tree, "gate"))
    places = [f"{path}:{tree['gate'].lc.item(i)[0] + 1}" for i in range(len(gates))]
    inside = path.parent / wanted
    return str(inside) if inside.is_file() else wanted, list(zip(map(plain, gates), places, strict=True))


def _section(tree: CommentedMap, key: str, path: Path) -> Section | None:
    """A mapping of the file, or for ``train`` the path of a recipe; paths in it lie beside the file that names them."""
    if key not in tree:
        return None
    held = tree[key]
    if key == "train" and isinstance(held, str):
        recipe = path.parent / held
        if not recipe.is_file():
            raise ConfigError(f"no such recipe: {held}", where=at(path, tree, key))
        from ruamel.yaml import YAML

        try:
            held = YAML(typ="rt").load(text_of(recipe))
        except YAMLError as error:
            raise ConfigError("is not valid YAML", where=str(recipe)) from error
        path = recipe
    held = CommentedMap() if held is None else held
    if not isinstance(held, CommentedMap):
        called = "a mapping of settings or the path of a recipe" if key == "train" else "a mapping"
        raise ConfigError(f"{key!r} is not {called}", where=at(path, tree, key) if path != held else str(path))
    out = Section()
    for name in held:
        out.values[str(name)] = plain(held[name])
        out.origin[str(name)] = f"{path}:{held.lc.key(name)[0] + 1}: {key}.{name}"
    for name in ("model", "reference", "chat_template", "replay", "forgetting") if key == "train" else ():
        value = out.values.get(name)
        if isinstance(value, str) and (path.parent / value).exists():
            out.values[name] = str(path.parent / value)
    return out


def _overridden(sections: dict[str, Section | None], sets: Sequence[str]) -> list[str]:
    """Carry ``--set train.KEY=VALUE`` out (and ``clean.``, ``evaluate.``); returns the others, of stages."""
    rest = []
    for item in sets:
        key, equals, text = item.partition("=")
        section, _, name = key.partition(".")
        if section not in _SECTIONS or not equals or not name:
            rest.append(item)
            continue
        try:
            value = value_of(text)
        except YAMLError as error:
            raise ConfigError(f"--set {item}: not valid YAML", hint="Quote text that holds brackets.") from error
        held = sections[section] or Section()
        held.values[name], held.origin[name] = value, f"--set {key}"
        sections[section] = held
    return rest


def _check(section: Section, known: Mapping[str, Any]) -> None:
    for name, value in section.values.items():
        where = section.origin[name]
        if name not in known:
            raise ConfigError("no such option", where=where, hint=near_or_all(name, known))
        try:
            section.values[name] = TypeAdapter(known[name]).validate_python(value, strict=True)
        except ValidationError as error:
            raise ConfigError(f"is not {_KINDS[known[name]]}, got {str(value)[:60]!r}", where=where) from error
