"""A job with every setting checked, before anything is done."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prefdata import model_files
from prefdata.errors import ConfigError, located
from prefdata.job_file import Job, Section
from prefdata.pipeline import Pipeline, gate_of, load
from prefdata.result import Options

if TYPE_CHECKING:
    from prefdata.training.settings import Settings

STEPS = ("clean", "gate", "train", "evaluate", "report")


@dataclass
class Ready:
    """A job whose every setting was checked, and nothing done yet."""

    job: Job
    pipeline: Pipeline
    options: Options
    settings: Settings | None

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that this job has."""
        return STEPS if self.settings is not None else ("clean", "gate", "report")


def ready(job: Job) -> Ready:
    """Check pipeline, options and settings. Raises ConfigError with the file and line of what is wrong."""
    given = dict(job.clean.values)
    for name in ("only", "skip"):
        if isinstance(given.get(name), str):
            given[name] = given[name].split(",")
    of_pipeline = {
        k: given.pop(k) for k in ("only", "skip", "against", "min_margin", "verdicts") if given.get(k) is not None
    }
    pipeline, _ = load(job.pipeline, sets=job.sets, **of_pipeline)
    pipeline.gates += [gate_of(text, pipeline.stages, where) for text, where in job.gates]
    for name in ("columns", "labels"):
        given[name] = {str(k): str(v) for k, v in (given.get(name) or {}).items()}
    if isinstance(share := given.get("sample"), str):
        try:
            given["sample"] = float(share.rstrip("%")) / (100 if share.endswith("%") else 1)
        except ValueError:
            raise ConfigError(
                f"is no share: {share!r}", where=job.clean.origin["sample"], hint="For example: 5%"
            ) from None
    with located(job.name):
        options = Options(command=f"prefdata run {job.name}", **given)
    settings = None if job.train is None else _settings(job, job.train)
    if settings is not None:
        _same_window(pipeline, settings)
    return Ready(job, pipeline, options, settings)


def _settings(job: Job, train: Section) -> Settings:
    from prefdata.training import models
    from prefdata.training.settings import make

    models.need()
    if not train.values.get("model"):
        hint = "Add model: PATH under train:, or give --set train.model=PATH."
        raise ConfigError("train names no model", where=job.name, hint=hint)
    settings = make(train.values, train.origin)
    with located(train.origin.get("model", "")):
        model_files.place("model", settings.model)
    return settings


def _same_window(pipeline: Pipeline, settings: Settings) -> None:
    """Let token_length count with the model's own tokenizer and window where the pipeline names no other."""
    for i, stage in enumerate(pipeline.stages):
        if stage.name() == "token_length" and "tokenizer" not in stage.model_fields_set:
            given = {n: getattr(stage, n) for n in stage.model_fields_set}
            window = settings.max_length or min(1024, _positions(settings.model))
            given = {
                "tokenizer": settings.model,
                "chat_template": settings.chat_template,
                "max_length": window,
                **given,
            }
            pipeline.stages[i] = type(stage)(**given)


def _positions(model: str) -> int:
    try:
        held = json.loads((Path(model).expanduser() / "config.json").read_bytes())
        return int(held.get("max_position_embeddings") or held.get("n_positions") or 1024)
    except (OSError, ValueError, AttributeError):
        return 1024
