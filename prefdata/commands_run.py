"""The command that runs jobs: ``run``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prefdata.errors import ConfigError, PrefdataError
from prefdata.say import Say

if TYPE_CHECKING:
    from prefdata.job_ready import Ready
    from prefdata.jobs import Done

# fmt: off
Jobs = Annotated[list[str], typer.Argument(metavar="JOB...", help="Job files, or the shipped clean_then_train.", show_default=False)]
Input = Annotated[list[str] | None, typer.Option("--input", metavar="IN", help="Instead of the job's input; repeatable.")]
Output = Annotated[Path | None, typer.Option("--output", metavar="OUT", help="Instead of the job's output folder.")]
SetTo = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="STAGE.PARAM, train.KEY, clean.KEY or evaluate.KEY; repeatable.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say which steps would run and why; write nothing.")]
From = Annotated[str | None, typer.Option("--from", metavar="STEP", help="Run this step (clean, gate, train, evaluate, report) and those after it again.")]
Until = Annotated[str | None, typer.Option("--until", metavar="STEP", help="Stop after this step.")]
Force = Annotated[bool, typer.Option("--force", help="Run every step again.")]
KeepGoing = Annotated[bool, typer.Option("--keep-going", help="Go on with the next job after one that failed.")]
# fmt: on


def run(
    jobs: Jobs, input: Input = None, output: Output = None, set: SetTo = None, dry_run: DryRun = False, start: From = None,
    until: Until = None, force: Force = False, keep_going: KeepGoing = False,
) -> None:  # fmt: skip
    """Batch jobs: clean, gate, train, evaluate, report. Steps whose inputs have not changed are skipped; a run that was killed goes on."""
    from prefdata.job_file import read
    from prefdata.job_ready import ready

    if len(jobs) > 1 and (input or output):
        raise ConfigError(
            "--input and --output are for one job", hint="Run the jobs one by one, or name these in their files."
        )
    if force and start is not None:
        raise ConfigError("--force and --from: --force is --from clean", hint="Leave one of them out.")
    start = "clean" if force else start
    Say.goes_on = "the same command goes on"
    asked = [
        ready(read(name, input or (), output, set or ())) for name in jobs
    ]  # a mistake in the last one is told first
    places = [a.job.output.resolve() for a in asked]
    if twice := [p for i, p in enumerate(places) if p in places[:i]]:
        raise ConfigError("two jobs write there", where=str(twice[0]), hint="Give each its own output.")
    done = []
    for one in asked:
        done.append(_one(one, start, until, dry_run, keep_going))
        if not done[-1].ok and not keep_going:
            break
    Say.out([], {"ok": all(d.ok for d in done), "dry_run": dry_run, "jobs": [d.document() for d in done]})
    if not all(d.ok for d in done):
        raise typer.Exit(2 if any(d.error for d in done) else 1)


def _one(ready: Ready, start: str | None, until: str | None, dry_run: bool, keep_going: bool) -> Done:
    from prefdata import jobs as steps
    from prefdata.terminal import Progress

    _tell(f"{ready.job.name} → {ready.job.output}")
    if dry_run:
        found = steps.plan(ready, start, until)
        for step in found.steps:
            _tell(f"  {step.did:<8} {step.name:<9} {step.text}")
        _tell("nothing was written (--dry-run)")
        return found
    try:
        with Progress() as progress:
            return steps.run(ready, start=start, until=until, tell=_tell, say=Say.err, progress=progress)
    except PrefdataError as error:
        if not keep_going:
            raise
        Say.err(f"error: {error}")
        return steps.Done(ready.job.name, ready.job.output, error=str(error))


def _tell(line: str) -> None:
    """A line of a run, at once; with --json there is one document at the end."""
    if not Say.json:
        Say.out([line], {})
        sys.stdout.flush()


ALL = (run,)
