"""The commands that train: ``train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prefdata.errors import ConfigError
from prefdata.say import Say

# fmt: off
Source = Annotated[str, typer.Argument(metavar="DATA", help="A folder that clean wrote, a Hugging Face dataset folder, or any file that clean reads.", show_default=False)]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder for the model, the metrics and the report.", show_default=False)]
Model = Annotated[str | None, typer.Option(metavar="PATH|NAME", help="The model to train.")]
Recipe = Annotated[Path | None, typer.Option(metavar="FILE", help="Settings in YAML.")]
SetTo = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting, such as beta=0.2; repeatable.")]
Lora = Annotated[bool | None, typer.Option("--lora/--full", help="Adapters or all weights; default: adapters where peft is installed.")]
MaxSteps = Annotated[int | None, typer.Option(min=1, help="Optimiser steps; overrides the epochs.")]
Device = Annotated[str | None, typer.Option(metavar="auto|cpu|cuda", help="Where to train.")]
Check = Annotated[bool, typer.Option("--check", help="Pre-flight only: every check with its evidence; exit 1 where one fails.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in RUN.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in RUN.")]
# fmt: on


def train(
    data: Source, out: RunFolder, model: Model = None, recipe: Recipe = None, set: SetTo = None, lora: Lora = None,
    max_steps: MaxSteps = None, device: Device = None, check: Check = False, resume: Resume = False, overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """DPO on a cleaned set: pre-flight checks, training under guards, evaluation before and after, a report."""
    if check and resume:
        raise ConfigError("--check and --resume: a check trains nothing", hint="Leave one of them out.")
    from prefdata.training import dpo, settings

    method = None if lora is None else "lora" if lora else "full"
    given = {"model": model, "method": method, "max_steps": max_steps, "device": device}
    done = dpo.train(
        data, out, settings.load(recipe, set or (), given), check=check, resume=resume, overwrite=overwrite, say=Say.err
    )
    Say.out([f"{c.status:<8} {c.word}: {c.evidence}" for c in done.checks], {"status": done.status, "plan": done.plan})
    if not done.ok:
        raise typer.Exit(1)


ALL = (train,)
