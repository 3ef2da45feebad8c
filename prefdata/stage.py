"""A stage: one question asked of every pair. And how stages are found by name or by path."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from prefdata.decisions import ACTIONS, NONE, Decisions, Signals
from prefdata.errors import ConfigError, PrefdataError, near_or_all
from prefdata.pairs import Pairs


class Amount(int):
    """About how many pairs, and about how many ``characters`` their texts have in all."""

    characters: int

    def __new__(cls, pairs: int, characters: int) -> Amount:  # noqa: D102
        made = super().__new__(cls, pairs)
        made.characters = characters
        return made


class Stage(BaseModel):
    """One question. Its fields are its YAML parameters; its docstring is its documentation.

    The docstring's first line is the question; paragraphs that begin with ``Why it matters:``, ``How it decides:``,
    ``What it misses:`` and ``References:`` follow. ``measure`` looks at one batch and nothing else; ``decide`` sees numbers of
    all living rows, and no text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    reasons: ClassVar[Mapping[str, str]] = {}
    """Reason word -> what it means and what to do; ``prefdata explain WORD`` prints it."""
    measured: ClassVar[frozenset[str]] = frozenset()
    """Names of the fields that ``measure`` reads: only a change of these makes measuring necessary again."""
    drops: ClassVar[Literal["above", "below"] | None] = None
    """On which side of the limit a score is dropped; None for a stage without a score."""
    scale: ClassVar[str] = ""
    """What the score is, and its unit: ``character ratio of the two answers, 0-1``."""
    adds: ClassVar[bool] = False
    """True for a stage that adds rows; it must come last."""
    train_only: ClassVar[bool] = False
    """True for a stage that leaves rows of other splits than the first alone: a test must not flatter the cleaning."""
    compares: ClassVar[bool] = False
    """True for a stage of findings only: it is decided over all sound pairs, and again over the kept ones."""
    judged: ClassVar[bool] = True
    """False for a stage that drops rows with which nothing is wrong: people are not asked whether that was right."""

    def idle(self) -> tuple[str, str] | None:
        """A parameter that does nothing beside the others as they are, and what it needs; None if each does something."""
        return None

    def notice(self, pairs: int) -> str:
        """What a user must hear before about ``pairs`` pairs (an ``Amount``) are measured: calls that cost money. Empty for
        nothing. A stage that says something is not tried by ``--dry-run``.
        """
        return ""

    def warm(self) -> None:
        """Load what ``measure`` needs. Called before workers are forked, so that they need not load it again."""

    def depends_on(self) -> str:
        """A digest of what ``measure`` reads beside its fields (files, models): measured parts are not reused if it changes."""
        return ""

    def measure(self, pairs: Pairs) -> pa.Table:
        """Signals of one batch, one row a pair; column names without the stage's name."""
        return pa.table({})

    def decide(self, signals: Signals) -> Decisions:
        """One decision for each living row, by ``signals.index``."""
        raise NotImplementedError

    @classmethod
    def name(cls) -> str:
        """The stage's name: the name of its file."""
        return cls.__module__.rsplit(".", 1)[-1].removeprefix(_LOADED)

    @classmethod
    def documentation(cls) -> dict[str, str]:
        """The docstring by section: ``asks``, ``why``, ``how``, ``misses``, ``references`` (missing ones are empty)."""
        found = {"asks": "", "why": "", "how": "", "misses": "", "references": ""}
        labels = {
            "Why it matters": "why",
            "How it decides": "how",
            "What it misses": "misses",
            "References": "references",
        }
        for i, part in enumerate(re.split(r"\n\s*\n", (cls.__doc__ or "").replace("``", "`").strip())):
            label, _, rest = part.strip().partition(":")
            if label in labels:
                found[labels[label]] = " ".join(rest.split())
            elif i == 0:
                found["asks"] = " ".join(part.split())
        return found


_LOADED = "prefdata_stage_"
_USERS = "prefdata_loaded_"


@contextmanager
def blaming(stage: Stage) -> Iterator[None]:
    """What a user's stage raises is a mistake in their file; what a shipped one raises is a bug, and goes on as it is."""
    try:
        yield
    except PrefdataError:
        raise
    except (Exception, SystemExit) as error:
        if not type(stage).__module__.startswith(_USERS):
            raise
        raise _fault(
            error, str(sys.modules[type(stage).__module__].__file__), "The stage's code is at fault."
        ) from error


def check(stage: Stage, got: Any, living: Signals) -> None:
    """Hold what a stage decided to the contract."""
    if not isinstance(got, Decisions):
        raise TypeError(f"decide must return Decisions, not {type(got).__name__}")
    got.check(living.index)
    kinds = {"action": "iu", "reason": "iu", "peer": "iu", "score": "f", "limit": "f", "weight": "f", "flip_prob": "f"}
    for name, kind in kinds.items():
        values = getattr(got, name)
        if values is None and name in ("weight", "flip_prob"):
            continue
        if not isinstance(values, np.ndarray) or values.shape != (len(living),) or values.dtype.kind not in kind:
            raise ValueError(f"Decisions.{name} must be an array of one number for each living row")
    bounds = {"action": (0, len(ACTIONS)), "reason": (NONE, len(got.reasons)), "peer": (NONE, living.total)}
    for name, (low, high) in bounds.items():
        values = getattr(got, name)
        if ((values < low) | (values >= high)).any():
            raise ValueError(f"Decisions.{name} holds a number outside {low} to {high - 1}")
    unknown = next((word for word in got.reasons if word not in stage.reasons), None)
    if unknown is not None:
        raise ValueError(f"the reason word {unknown!r} is not in the stage's reasons")


def _fault(error: BaseException, path: str, hint: str) -> ConfigError:
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    return ConfigError(text, where=f"{path}:{lines[-1]}" if lines else path, hint=hint)


def _blamed(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(method)
    def call(stage: Stage) -> Any:
        with blaming(stage):
            return method(stage)

    return call


@cache
def shipped() -> dict[str, type[Stage]]:
    """The stages of the package by name, in no particular order."""
    import prefdata.stages as home

    return {
        m.name: _stage_in(importlib.import_module(f"prefdata.stages.{m.name}"))
        for m in pkgutil.iter_modules(home.__path__)
    }


def _stage_in(module: Any) -> type[Stage]:
    found = [
        v for v in vars(module).values()
        if isinstance(v, type) and issubclass(v, Stage) and v is not Stage and v.__module__ == module.__name__
    ]  # fmt: skip
    if len(found) != 1:
        raise ConfigError(
            f"holds {len(found)} stages, not one", where=str(module.__file__), hint="One file, one Stage subclass."
        )
    return found[0]


def stage_class(name: str, base: Path | None = None) -> type[Stage]:
    """The stage of that name; a name that ends in ``.py`` is a path, relative to ``base`` (the pipeline file's folder)."""
    if name.endswith(".py"):
        return _from_file(((base or Path()) / name).resolve())
    if not re.fullmatch(r"[a-z_]+", name) or importlib.util.find_spec(f"prefdata.stages.{name}") is None:
        known = [m.name for m in pkgutil.iter_modules(importlib.import_module("prefdata.stages").__path__)]
        raise ConfigError(f"no such stage: {name}", hint=near_or_all(name, sorted(known)))
    return _stage_in(importlib.import_module(f"prefdata.stages.{name}"))


def _from_file(path: Path) -> type[Stage]:
    if not path.is_file():
        raise ConfigError(
            "does not exist", where=str(path), hint="A stage of your own is named by the path of its file."
        )
    # One module a path and content, so that an edited file is loaded anew and two files of one name do not mix.
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    unique = f"{_USERS}{digest}.{_LOADED}{path.stem}"
    if unique not in sys.modules:
        spec = importlib.util.spec_from_file_location(unique, path)
        if spec is None or spec.loader is None:
            raise ConfigError("cannot be loaded as Python", where=str(path))
        module = importlib.util.module_from_spec(spec)
        sys.modules[unique] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # the user's code: whatever it raises is their file's fault
            del sys.modules[unique]
            raise _fault(error, str(path), "The stage's file must import.") from error
        kind = _stage_in(module)
        for name in ("warm", "depends_on"):
            setattr(kind, name, _blamed(getattr(kind, name)))
    return _stage_in(sys.modules[unique])
