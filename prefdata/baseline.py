"""A baseline: an earlier run that this one is held against. "No worse than last time", whatever the sizes of the sets."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prefdata.decisions import Finding
from prefdata.errors import ConfigError, InputError
from prefdata.gates import Gate
from prefdata.pipeline import Pipeline


@dataclass(frozen=True)
class Baseline:
    """What gates need to know of the earlier run: rates by word, reason words that it found, its stages and its version."""

    rates: Mapping[str, float | None]
    reasons: Sequence[str]
    stages: Mapping[str, Mapping[str, Any]]
    prefdata: str

    def implied(self, pipeline: Pipeline, found: Sequence[str], tolerance: float) -> list[Gate]:
        """The gates that a baseline alone asks for: no reason word that either run found is more frequent by more than
        ``tolerance`` points, no less is kept, and length says no more about the label. None where gates name the baseline.
        """
        if any(g.relative for g in pipeline.gates):
            return []
        said = {r for s in pipeline.stages for r in s.reasons}
        words = [*found, *(w for w in self.reasons if w in said and w not in found)]
        no_more = [Gate(w, "<=", tolerance, True, True) for w in (*words, "length_bias")]
        return [*no_more, Gate("kept", ">=", -tolerance, True, True)]

    def notes(self, pipeline: Pipeline) -> list[Finding]:
        """What makes the two runs hard to compare: another version, other stages, other parameters."""
        here = stages_of(pipeline.resolved())
        told = [f"prefdata {self.prefdata}, here {version('prefdata')}"] if self.prefdata != version("prefdata") else []
        for names, where in ((self.stages.keys() - here, "there"), (here.keys() - self.stages, "here")):
            if names:
                told.append(f"only {where}: {', '.join(sorted(names))}")
        for name in (n for n in here if n in self.stages):
            was, now = self.stages[name], here[name]
            moved = [k for k in {**was, **now} if was.get(k) != now.get(k)]
            told += [f"{name}.{k} {_short(was.get(k))} there, {_short(now.get(k))} here" for k in moved]
        if not told:
            return []
        more = f"; {len(told) - 4} more" if len(told) > 5 else ""
        shown = told if len(told) <= 5 else told[:4]
        text = f"the baseline was made in another way ({'; '.join(shown)}{more}): rates may differ for that alone"
        return [Finding("baseline_differs", len(told), len(told), text)]


def stages_of(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Parameters by stage, out of a pipeline that was written out; a stage of the user's own is called by its file."""
    named = [(name, given) for stage in config["stages"] for name, given in stage.items()]
    return {Path(name).stem if name.endswith(".py") else name: given for name, given in named}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}..."


def asked(
    place: str | os.PathLike[str] | None, tolerance: str | None, pipeline: Pipeline, out: Path | None
) -> tuple[Baseline | None, float]:
    """The baseline and the tolerance in points, as the options say; ConfigError for options that do not go together."""
    relative = [str(g) for g in pipeline.gates if g.relative]
    if place is None:
        if relative:
            raise ConfigError(f"gate {relative[0]!r} needs a baseline", hint="Give the folder of a run: --baseline OUT")
        if tolerance is not None:
            raise ConfigError("--tolerance does nothing without --baseline", hint="Give both, or leave it out.")
        return None, 0.0
    if tolerance is not None and relative:
        hint = f'Write it into the gates: "{relative[0]}+0.5%"' if relative[0].endswith("baseline") else "Leave it out."
        raise ConfigError("--tolerance is for a baseline without gates that name it", hint=hint)
    if out is not None and out.resolve() in (Path(place).resolve(), Path(place).resolve().parent):
        hint = "Keep the baseline in a folder of its own; a run that fails would be what the next one is held against."
        raise ConfigError("--baseline is the output folder itself", where=str(place), hint=hint)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", tolerance or "0%")
    if match is None:
        raise ConfigError(f"--tolerance {tolerance}: not a number of points", hint="For example: --tolerance 0.5%")
    return read(Path(place)), float(match[1])


def content(place: Path) -> list[Any]:
    """All that gates depend on in the baseline there."""
    held = read(place)
    return [held.rates, held.reasons, held.stages, held.prefdata]


def read(place: Path) -> Baseline:
    """The baseline in that folder, or of that ``manifest.json`` alone; raises InputError for what is no finished run."""
    path = place / "manifest.json" if place.is_dir() else place
    hint = "Name the output folder of a finished audit or clean, or its manifest.json."
    if not path.is_file():
        what = "is no finished run" if place.exists() else "does not exist"
        raise InputError(f"baseline {what}", where=str(place), hint=hint)
    try:
        found = json.loads(path.read_bytes())
        held, made_of = found["rates"], stages_of(found["config"])
        if not all(isinstance(v, int | float | None) for v in held.values()):
            raise ValueError("a rate is no number")
        words = [r for s in found["stages"].values() for r in s["reasons"]]
        return Baseline(held, list(dict.fromkeys(words)), made_of, str(found["prefdata"]))
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        again = "Run it again with this version." if "'rates'" in str(error) else hint
        raise InputError("baseline is no manifest of prefdata that has rates", where=str(path), hint=again) from error


def check(
    before: Baseline | None, tolerance: float, pipeline: Pipeline, counts: Mapping[str, float | None],
    found: Sequence[str], total: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """Every gate that was asked for, and those that the baseline implies; ``found`` are the reason words of this run."""
    more = before.implied(pipeline, found, tolerance) if before else []
    held = before.rates if before else None
    return [g.check(counts, total, held) for g in (*pipeline.gates, *more)]
