"""The commands that train: ``train``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

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
Loss = Annotated[str | None, typer.Option(metavar="NAME[,NAME]", help="Loss of TRL; several are added up.")]
ReportTo = Annotated[str | None, typer.Option(metavar="NAME[,NAME]", help="Trackers beside metrics.jsonl: trackio, wandb, mlflow, tensorboard.")]
Check = Annotated[bool, typer.Option("--check", help="Pre-flight only: every check with its evidence; exit 1 where one fails.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Tokens, memory, the first batch and every effective value; no weights, writes nothing.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in RUN.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in RUN.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Every check, also those that are well.")]
Launch = Annotated[list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="Options of accelerate launch: the run is started by it, for several GPUs.", show_default=False)]
# fmt: on


def train(
    data: Source, out: RunFolder, launch: Launch = None, model: Model = None, recipe: Recipe = None, set: SetTo = None, lora: Lora = None,
    loss: Loss = None, max_steps: MaxSteps = None, device: Device = None, report_to: ReportTo = None, check: Check = False,
    dry_run: DryRun = False, resume: Resume = False, overwrite: Overwrite = False, verbose: Verbose = False,
) -> None:  # fmt: skip
    """DPO on a cleaned set: pre-flight checks, training under guards, evaluation before and after, a report."""
    if check and resume:
        raise ConfigError("--check and --resume: a check trains nothing", hint="Leave one of them out.")
    from prefdata.training import settings

    method = None if lora is None else "lora" if lora else "full"
    given = {
        "model": model,
        "method": method,
        "loss_type": loss,
        "max_steps": max_steps,
        "device": device,
        "report_to": report_to,
    }
    asked = settings.load(recipe, set or (), given)
    needed()
    if launch:
        raise typer.Exit(_launched(launch))
    if dry_run:
        from prefdata.training import dryrun

        lines, document = dryrun.look(data, asked)
        Say.out(lines, document)
        if not document["ok"]:
            raise typer.Exit(1)
        return
    from prefdata.training import dpo, telling

    if not dpo.MAIN:
        Say.quiet = 2
    done = dpo.train(data, out, asked, check=check, resume=resume, overwrite=overwrite, say=Say.err, tell=_tell)
    if not dpo.MAIN:
        raise typer.Exit(0 if done.ok else 1)
    lines = [*telling.plan_lines(done.plan, asked)] if done.plan else []
    lines += [*telling.check_lines(done.checks, every=check or verbose), *telling.end_lines(done)]
    Say.out(lines, telling.document(done))
    if not done.ok:
        raise typer.Exit(1)


def needed() -> None:
    """Raise MissingExtra where a part of [train] is not installed; imports nothing heavy."""
    from importlib.util import find_spec

    from prefdata.errors import MissingExtra

    missing = [m for m in ("torch", "transformers", "trl", "accelerate") if find_spec(m) is None]
    if missing:
        raise MissingExtra.of("train", f"training ({', '.join(missing)} not found)")


def _tell(event: Mapping[str, Any]) -> None:
    """A step or an evaluation on stderr."""
    if not Say.progress:
        return
    if Say.log_format == "json":
        print(json.dumps({"t": round(time.time(), 3), **event}), file=sys.stderr)
    else:
        from prefdata.training.telling import event_line

        print(event_line(event), file=sys.stderr)


def _launched(options: list[str]) -> int:
    """Start this command again under accelerate launch; its exit code."""
    if "--" not in sys.argv:
        raise ConfigError(
            f"train takes DATA and RUN, not also {options[0]}", hint="Options of accelerate launch stand behind --."
        )
    from prefdata.training import launching

    at = sys.argv.index("--")
    return launching.launch(sys.argv[1:at], sys.argv[at + 1 :])


ALL = (train,)
