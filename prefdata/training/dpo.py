"""The whole way of a training run: data, plan, pre-flight, training under guards, evaluation, what is saved."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prefdata import output
from prefdata.errors import OutputError
from prefdata.files import put
from prefdata.training import attempts, average, checks, data, evaluate, models, monitors, page, preflight
from prefdata.training.folder import CHECKPOINTS, GENERATIONS, METRICS, PAGE, RECORD, STARTED
from prefdata.training.plan import Machine, plan
from prefdata.training.settings import Settings
from prefdata.training.telling import Tell

OWN = (RECORD, METRICS, CHECKPOINTS, PAGE, GENERATIONS, STARTED, "model", "adapter", "data")
_TOLD = ("prefdata", "torch", "transformers", "trl", "accelerate", "datasets")
MAIN = int(os.environ.get("RANK", "0")) == 0  # of the processes that `accelerate launch` starts, the one that writes
Say = Callable[[str], None]


@dataclass
class Trained:
    """How a run ended. ``status`` is complete, stopped (a guard), refused (a check), checked (nothing was to be trained)
    or interrupted (by the keyboard)."""

    out: Path
    status: str
    plan: dict[str, Any]
    checks: list[checks.Check]
    alarms: list[Any] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    averaged: dict[str, Any] = field(default_factory=dict)
    started: float = 0.0

    @property
    def ok(self) -> bool:
        """True if no check failed and no guard stopped the run."""
        return self.status in ("complete", "checked")


def train(
    source: Any, out: str | Path, settings: Settings, *, check: bool = False, resume: bool = False, overwrite: bool = False,
    say: Say = lambda text: None, tell: Tell | None = None,
) -> Trained:  # fmt: skip
    """Train on a cleaned folder, a dataset or a file, into ``out``; ``check`` ends after pre-flight. ``say`` hears alarms as text, ``tell`` events.

    A run that is interrupted by the keyboard says so in its record before it ends.
    """
    models.need()
    monitors.need(settings.report_to)
    started = time.time()
    home = Path(out)
    untrained = _untrained(home)
    if MAIN:
        _refuse(home, resume=resume, overwrite=overwrite or untrained)
    with silent():
        case, found = prepared(source, home, settings, clear=(overwrite or untrained) and not resume)
        if not checks.failed(found) and case is not None:
            case.notes["tell"] = tell
            found += preflight.with_model(case, home)
        status = "refused" if checks.failed(found) else "checked"
        if status == "refused" and not data.is_cleaned(source) and not resume and MAIN:
            preflight.untidy(home)
        done = Trained(home, status, {} if case is None else case.plan.document(), found, started=started)
        if check or status == "refused" or case is None:
            goes_on = resume and not untrained and (home / RECORD).is_file()
            return done if goes_on else _ended(done, settings, case)  # a mistake takes nothing from the record of a run
        try:
            _run(case, done, resume, say)
        except KeyboardInterrupt:
            done.status = "interrupted"
            _ended(done, settings, case)
            raise
        return _ended(done, settings, case)


def prepared(
    source: Any, home: Path, settings: Settings, *, clear: bool = False
) -> tuple[checks.Case | None, list[checks.Check]]:  # fmt: skip
    """All that is known before a weight is read, and what the checks say of it; no case where no pair is left. A source that was not cleaned
    is cleaned into ``home``.
    """
    facts, tokenizer = models.facts(settings.model), models.tokenizer(settings)
    machine = Machine.here(settings.device)
    given = data.is_cleaned(source)
    with _main_first(settings), output.writing(home, "Choose another folder."):
        if MAIN and clear:
            _clear(home)
        if MAIN and not given:
            preflight.cleaned(source, home, settings, facts, tokenizer)
        home.mkdir(parents=True, exist_ok=True)
    found = [] if given else preflight.certain(home)
    if len(found) > 1:  # no pair is left to look at
        return None, found
    pairs = data.load(source if given else home / preflight.DATA, settings)
    planned = plan(settings, facts, machine, len(pairs.train), pairs.smoothing, pairs.max_length)
    case = checks.Case(settings, facts, machine, planned, pairs, tokenizer)
    with _main_first(settings):
        found += preflight.before_weights(case, found)
    return case, found


@contextmanager
def silent() -> Iterator[None]:
    """No warnings, notes or bars of the libraries: what matters of them is said by a check or a guard."""
    import datasets
    from transformers.utils import logging as told

    loggers = [logging.getLogger(n) for n in ("transformers", "trl", "peft", "accelerate", "datasets", "torch")]
    levels = [log.level for log in loggers]
    bars = (told.is_progress_bar_enabled(), datasets.are_progress_bars_disabled())
    told.disable_progress_bar()
    datasets.disable_progress_bars()
    for log in loggers:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(loggers, levels, strict=True):
            log.setLevel(level)
        if bars[0]:
            told.enable_progress_bar()
        if not bars[1]:
            datasets.enable_progress_bars()


def _untrained(home: Path) -> bool:
    """True for the folder of checks alone, which holds no training: it may be used again."""
    try:
        status = json.loads((home / RECORD).read_bytes())["status"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return status in ("checked", "refused") and not (home / STARTED).is_file() and not (home / "model").is_dir()


def _refuse(home: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that holds something else, or a run that is neither to go on nor to be replaced."""
    if home.exists() and not home.is_dir():
        raise OutputError("is a file, not a folder", where=str(home), hint="Choose a new folder.")
    held = home.is_dir() and any(home.iterdir())
    if held and not resume and not overwrite:
        raise OutputError(
            "exists and is not empty", where=str(home), hint="--resume goes on with its run, --overwrite replaces it."
        )


def _clear(home: Path) -> None:
    """Take away what an earlier run left; files of other people stay."""
    for name in OWN:
        path = home / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def _main_first(settings: Settings) -> Iterator[None]:
    """Of several processes the main one goes through first, the others when it is done: it writes what they read."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    from accelerate import PartialState

    with PartialState(cpu=settings.device == "cpu").main_process_first():
        yield


def _run(case: checks.Case, done: Trained, resume: bool, say: Say) -> None:
    """Evaluate, train under guards, evaluate again, save."""
    done.before = evaluate.evaluate(case)
    ended = attempts.run(case, done.out, resume, say)
    done.alarms, done.plan = [a.document() for a in ended.alarms], case.plan.document()
    done.status = "stopped" if ended.stopped is not None else "complete"
    if done.status == "complete":
        done.after = evaluate.evaluate(case)
        done.averaged = average.better(case, done.after)
        about = {"data": case.data.place, "data_manifest_sha256": case.data.manifest_hash, "model": case.settings.model}
        if MAIN:
            models.save(case.trainer.model, case.tokenizer, done.out, about)


def _ended(done: Trained, settings: Settings, case: checks.Case | None) -> Trained:
    if not MAIN:
        return done
    pairs = None if case is None else case.data
    record = {
        "status": done.status, "settings": settings.model_dump(mode="json"), "plan": done.plan,
        "checks": [c.document() for c in done.checks], "alarms": done.alarms, "before": done.before, "after": done.after, "averaged": done.averaged,
        "data": {} if pairs is None else {"place": pairs.place, "manifest_sha256": pairs.manifest_hash, "notes": pairs.notes},
        "run": {"seconds": round(time.time() - done.started, 1), "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(done.started)), "versions": {n: version(n) for n in _TOLD}},
    }  # fmt: skip
    put(done.out / RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    page.write(done.out)
    return done
