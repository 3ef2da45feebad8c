"""The whole way of a training run: data, plan, pre-flight, training under guards, evaluation, what is saved."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefdata import output
from prefdata.errors import OutputError
from prefdata.files import put
from prefdata.training import attempts, building, checks, data, evaluate, models, page, preflight
from prefdata.training.folder import CHECKPOINTS, GENERATIONS, METRICS, PAGE, RECORD
from prefdata.training.plan import Machine, plan
from prefdata.training.settings import Settings

OWN = (RECORD, METRICS, CHECKPOINTS, PAGE, GENERATIONS, "model", "adapter", "data")
Say = Callable[[str], None]


@dataclass
class Trained:
    """How a run ended. ``status`` is complete, stopped (a guard), refused (a check) or checked (nothing was to be trained)."""

    out: Path
    status: str
    plan: dict[str, Any]
    checks: list[checks.Check]
    alarms: list[Any] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if no check failed and no guard stopped the run."""
        return self.status in ("complete", "checked")


def train(
    source: Any, out: str | Path, settings: Settings, *, check: bool = False, resume: bool = False, overwrite: bool = False,
    say: Say = lambda text: None,
) -> Trained:  # fmt: skip
    """Train on a cleaned folder, a dataset or a file, into ``out``; ``check`` ends after pre-flight."""
    models.need()
    home = Path(out)
    _place(home, resume=resume, overwrite=overwrite)
    facts = models.facts(settings.model)
    place = source if data.is_cleaned(source) else preflight.cleaned(source, home, settings)
    pairs = data.load(place, settings)
    machine = Machine.here(settings.device)
    planned = plan(settings, facts, machine, len(pairs.train), pairs.smoothing, pairs.max_length)
    case = checks.Case(settings, facts, machine, planned, pairs, models.tokenizer(settings))
    found = list(preflight.before_weights(case))
    if not checks.failed(found):
        case.trainer = building.trainer(case, home)
        found += preflight.with_model(case)
    status = "refused" if checks.failed(found) else "checked"
    done = Trained(home, status, planned.document(), found)
    if check or status == "refused":
        return _ended(done, case)
    return _ended(_run(case, done, resume, say), case)


def _place(home: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that holds something else, or a run that is neither to go on nor to be replaced."""
    if home.exists() and not home.is_dir():
        raise OutputError("is a file, not a folder", where=str(home), hint="Choose a new folder.")
    held = home.is_dir() and any(home.iterdir())
    if held and not resume and not overwrite:
        raise OutputError(
            "exists and is not empty", where=str(home), hint="--resume goes on with its run, --overwrite replaces it."
        )
    if held and overwrite and not resume:
        for name in OWN:
            path = home / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    with output.writing(home, "Choose another folder."):
        home.mkdir(parents=True, exist_ok=True)


def _run(case: checks.Case, done: Trained, resume: bool, say: Say) -> Trained:
    """Evaluate, train under guards, evaluate again, save."""
    done.before = evaluate.evaluate(case.trainer, case)
    ended = attempts.run(case, done.out, resume, say)
    done.alarms = [a.document() for a in ended.alarms]
    done.status = "stopped" if ended.stopped is not None else "complete"
    if done.status == "complete":
        done.after = evaluate.evaluate(case.trainer, case)
        about = {"data": case.data.place, "data_manifest_sha256": case.data.manifest_hash, "model": case.settings.model}
        models.save(case.trainer.model, case.tokenizer, done.out, about)
    return done


def _ended(done: Trained, case: checks.Case) -> Trained:
    record = {
        "status": done.status, "settings": case.settings.model_dump(mode="json"), "plan": done.plan,
        "checks": [c.document() for c in done.checks], "alarms": done.alarms, "before": done.before, "after": done.after,
        "data": {"place": case.data.place, "manifest_sha256": case.data.manifest_hash, "notes": case.data.notes},
    }  # fmt: skip
    put(done.out / RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    page.write(done.out)
    return done
