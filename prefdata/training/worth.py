"""What cleaning is worth: the same training on cleaned and on raw data, with the same number of steps, seed by seed."""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prefdata.errors import ConfigError
from prefdata.files import put
from prefdata.output import MANIFEST, dump
from prefdata.training import data, dpo, models, raw
from prefdata.training.folder import CHECKPOINTS, RECORD
from prefdata.training.plan import Machine, plan
from prefdata.training.settings import Settings

EVALUATION = "evaluation.json"
RUNS = "worth"
CLEANED, RAW = "cleaned", "raw"
_HEAVY = (CHECKPOINTS, "model", "adapter")  # of a single run: only its figures are wanted
FIGURES = ("margin", "accuracy")
Say = Callable[[str], None]


def measure(
    cleaned: Path, home: Path, settings: Settings, seeds: Sequence[int], against_raw: bool, say: Say = lambda text: None
) -> dict[str, Any]:
    """Train on the cleaned folder, and on its raw pairs, with each seed; write ``home/evaluation.json`` and return what it holds.

    All runs have the steps and the window that the cleaned set is planned with, and the same held-out pairs. A run that an earlier
    call finished with the same settings and data is not made again. Raises ConfigError where no split is held out, or its prompts
    are trained on.
    """
    if not seeds:
        raise ConfigError("no seed is given", hint="For example seeds: [0, 1, 2].")
    held = _held_out(cleaned, settings)
    fixed = _fixed(cleaned, settings)
    arms: dict[str, Path] = {CLEANED: cleaned}
    out: dict[str, Any] = {"steps": fixed.max_steps, "seeds": list(seeds), "pairs": {"held": held}}
    if against_raw:
        arms[RAW] = home / RUNS / "raw-data"
        with dpo._main_first(settings):
            out["raw_left_out"] = raw.rebuild(cleaned, arms[RAW])["left_out"] if dpo.MAIN else {}
    runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
    for seed in seeds:
        for arm, place in arms.items():
            runs[arm].append(_one(place, home / RUNS / f"{arm}-{seed}", fixed.model_copy(update={"seed": seed}), say))
    out |= {"runs": runs, **summary(runs)}
    if dpo.MAIN:
        put(home / EVALUATION, dump(out))
    return out


def _held_out(cleaned: Path, settings: Settings) -> int:
    found = data.load(cleaned, settings.model_copy(update={"eval_share": 0.0})).held
    if found is None or not len(found):
        raise ConfigError("no split is held out", where=str(cleaned), hint="Clean with --split test=5%.")
    if shared := raw.shared_prompts(cleaned):
        what = f"{shared:,} held-out pairs have a prompt that is trained on"
        raise ConfigError(what, where=str(cleaned), hint="Clean the set in one split with --split test=5%.")
    return len(found)


def _fixed(cleaned: Path, settings: Settings) -> Settings:
    """The settings of all runs: steps and window as the cleaned set gives them; nothing that would end a run sooner."""
    pairs = data.load(cleaned, settings)
    facts, machine = models.facts(settings.model), Machine.here(settings.device)
    planned = plan(settings, facts, machine, len(pairs.train), pairs.smoothing, pairs.max_length)
    same = {"max_steps": planned.steps, "max_length": planned.max_length, "early_stop": [], "average": None}
    return settings.model_copy(update={**same, "guards": "warn", "on_spike": "warn", "probes": 0, "report_to": []})


def _one(place: Path, home: Path, settings: Settings, say: Say) -> dict[str, Any]:
    """The figures of one run, trained now or before."""
    record = _finished(place, home, settings)
    if record is None:
        say(f"training {home.name}")
        done = dpo.train(place, home, settings, overwrite=True, say=say)
        record = {"status": done.status, "before": done.before, "after": done.after, "plan": done.plan}
        record["checks"] = [c.document() for c in done.checks]
        for name in _HEAVY if dpo.MAIN else ():
            shutil.rmtree(home / name, ignore_errors=True)
        del done
        gc.collect()
    after, before = record["after"], record["before"]
    out = {"seed": settings.seed, "status": record["status"], "steps": record["plan"].get("steps")}
    out |= {k: v for k, v in after.items() if k != "forgetting"}
    if record["status"] != "complete":
        out["why"] = [c["word"] for c in record["checks"] if c["status"] == "fail"]
    return {**out, "perplexity": [e.get("forgetting", {}).get("perplexity") for e in (before, after)]}


def _finished(place: Path, home: Path, settings: Settings) -> dict[str, Any] | None:
    """The record of an earlier run, if it was complete, and of the same settings and data."""
    try:
        record: dict[str, Any] = json.loads((home / RECORD).read_bytes())
        same = (
            record["status"] == "complete"
            and record["settings"] == settings.model_dump(mode="json")
            and record["data"]["manifest_sha256"] == hashlib.sha256((place / MANIFEST).read_bytes()).hexdigest()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if same else None


def summary(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Means of each arm, their difference (cleaned minus raw), the A/A spread (the largest difference between two seeds of one arm)
    and the verdict, by the margin: cleaned_better, raw_better, no_difference, one_seed (no spread to compare with), not_trained
    (a run did not end or gave no number) or not_compared (no raw runs).
    """
    out: dict[str, Any] = {}
    usable = all(r["status"] == "complete" and r.get("margin") is not None for some in runs.values() for r in some)
    for name in FIGURES if usable else ():
        found = {arm: [float(r[name]) for r in some] for arm, some in runs.items()}
        out[name] = {arm: round(float(np.mean(v)), 6) for arm, v in found.items()}
        apart = [abs(a - b) for v in found.values() for a, b in itertools.combinations(v, 2)]
        out[name]["aa_spread"] = round(max(apart), 6) if apart else None
        if RAW in found:
            out[name]["difference"] = round(float(np.mean(found[CLEANED]) - np.mean(found[RAW])), 6)
    return {**out, "verdict": _verdict(out.get("margin"), RAW in runs)}


def _verdict(margin: Mapping[str, Any] | None, compared: bool) -> str:
    if margin is None:
        return "not_trained"
    if not compared:
        return "not_compared"
    if margin["aa_spread"] is None:
        return "one_seed"
    if abs(margin["difference"]) <= margin["aa_spread"]:
        return "no_difference"
    return "cleaned_better" if margin["difference"] > 0 else "raw_better"
