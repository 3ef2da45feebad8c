"""The command line: its options, its two large commands, and the only place that knows exit codes."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prefdata import cli_options as option
from prefdata import commands, commands_diff, commands_review, commands_run, commands_train
from prefdata.errors import ConfigError, OutputError, PrefdataError
from prefdata.say import Say, rows

if TYPE_CHECKING:
    from prefdata.pipeline import Pipeline
    from prefdata.result import Result

OK, FAILED, WRONG, BUG = 0, 1, 2, 3

app = typer.Typer(
    name="prefdata", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Finds and removes bad preference pairs, shows you each one, and trains DPO on what is left.",
    epilog="Try: prefdata init demo && cd demo && prefdata clean sample.jsonl out/",
)  # fmt: skip


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"prefdata {version('prefdata')}")
        raise typer.Exit


@app.callback()
def _globals(
    quiet: Annotated[int, typer.Option("-q", "--quiet", count=True, help="Less; twice: nothing but errors.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, everything else on stderr.")] = False,
    log_format: Annotated[str, typer.Option(help="Progress as text or json events.", metavar="text|json")] = "text",
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No progress.")] = False,
    color: Annotated[str, typer.Option(metavar="auto|always|never", help="Colour of the progress bar; NO_COLOR works too.")] = "auto",
    online: Annotated[bool, typer.Option("--online/--offline", help="Whether datasets, models and tokenizers may be fetched from the Hub by name.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:  # fmt: skip
    _choice("--color", color, ("auto", "always", "never"))
    _choice("--log-format", log_format, ("text", "json"))
    Say.quiet, Say.json, Say.color, Say.log_format, Say.debug = quiet, json, color, log_format, debug
    Say.progress = not no_progress and not quiet
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when huggingface_hub is imported
    if online:
        os.environ["PREFDATA_ONLINE"] = "1"


def _choice(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{option} {value}: not one of {', '.join(known)}")


@app.command()
def audit(
    where: option.AuditPlaces, pipeline: option.Pipeline = None, set: option.Set = None, only: option.Only = None, skip: option.Skip = None,
    columns: option.Columns = None, shape: option.Shape = None, labels: option.Labels = None, pairs: option.Pairs = "best-worst",
    ties: option.Ties = "drop", input_format: option.InputFormat = "auto", encoding: option.Encoding = None,
    input_config: option.InputConfig = None, input_split: option.InputSplit = None, against: option.Against = None, min_margin: option.MinMargin = None, verdicts: option.Verdicts = None,
    gate: option.Gate = None, baseline: option.Baseline = None, tolerance: option.Tolerance = None,
    output_format: option.OutputFormat = "text", output_file: option.OutputFile = None, exit_zero: option.ExitZero = False, limit: option.Limit = None, engine: option.Engine = "local",
    workers: option.Workers = None, seed: option.Seed = 0, resume: option.Resume = False, overwrite: option.Overwrite = False,
    keep_scratch: option.KeepScratch = False, dry_run: option.DryRun = False, on_bad_row: option.OnBadRow = "skip", split: option.Split = None,
) -> None:  # fmt: skip
    """Measure and decide, write a report, change nothing. Without OUT: a table here only."""
    _go("audit", **locals())


@app.command()
def clean(
    where: option.CleanPlaces, pipeline: option.Pipeline = None, set: option.Set = None, only: option.Only = None, skip: option.Skip = None,
    columns: option.Columns = None, shape: option.Shape = None, labels: option.Labels = None, pairs: option.Pairs = "best-worst",
    ties: option.Ties = "drop", input_format: option.InputFormat = "auto", encoding: option.Encoding = None,
    input_config: option.InputConfig = None, input_split: option.InputSplit = None, against: option.Against = None, min_margin: option.MinMargin = None, verdicts: option.Verdicts = None,
    format: option.Format = "auto", split: option.Split = None, export: option.Export = "all", sample: option.Sample = "5%",
    license: option.License = None, gate: option.Gate = None, baseline: option.Baseline = None, tolerance: option.Tolerance = None,
    output_format: option.OutputFormat = "text", output_file: option.OutputFile = None, exit_zero: option.ExitZero = False, limit: option.Limit = None,
    engine: option.Engine = "local", workers: option.Workers = None, seed: option.Seed = 0, resume: option.Resume = False,
    overwrite: option.Overwrite = False, keep_scratch: option.KeepScratch = False, dry_run: option.DryRun = False, on_bad_row: option.OnBadRow = "skip",
) -> None:  # fmt: skip
    """Audit, then write the cleaned dataset, every dropped row with its reason, and the report."""
    _go("clean", **locals())


for _command in (*commands_train.ALL, *commands_run.ALL, *commands_review.ALL, *commands_diff.ALL, *commands.ALL):
    app.command()(_command)


def _go(
    action: Any, where: list[str], pipeline: str | None, set: list[str] | None, only: str | None, skip: str | None,
    gate: list[str] | None, exit_zero: bool, dry_run: bool, columns: str | None, labels: str | None, against: list[str] | None,
    min_margin: float | None, verdicts: list[str] | None, output_format: str, output_file: Path | None,
    sample: str = "5%", **given: Any,
) -> None:  # fmt: skip
    """Either command: check the options, run, print, and say by the exit code how it went."""
    inputs, out = _places(action, where)
    from prefdata import checks_out
    from prefdata.pipeline import load
    from prefdata.result import Options
    from prefdata.run import run
    from prefdata.terminal import Progress, checks_of, document_of, plan, table_of

    checks_out.usable(output_format, output_file)
    words = {k: tuple(filter(None, (v or "").split(","))) for k, v in (("only", only), ("skip", skip))}
    more = {"sets": set or (), "gates": gate or (), "against": against or (), "verdicts": verdicts or ()}
    steps, title = load(pipeline, **more, min_margin=min_margin, **words)
    command = " ".join(["prefdata", *sys.argv[1:]])
    named, meant = option.mapping("--columns", columns), option.mapping("--labels", labels)
    options = Options(columns=named, labels=meant, sample=_share(sample), command=command, **given)
    if dry_run:
        Say.out(*plan(inputs, steps, title, options))
        return
    with Progress() as progress:
        result = run(action, inputs, out, steps, options, progress, Say.err)
    checks, lines, document = checks_of(result), table_of(result, title, inputs), document_of(result)
    checks_out.tell(f"{action} {' '.join(inputs)}", checks, output_format, output_file, lines, document)
    if out is not None and not result.counts["kept"] and not result.ok:
        Say.err(_nothing_left(result, steps))
    if not result.ok and not exit_zero:
        raise typer.Exit(FAILED)


def _places(action: str, where: list[str]) -> tuple[list[str], Path | None]:
    """Inputs and output of ``IN... [OUT]``. For audit the last one is an output unless it is there to be read."""
    if action == "clean" and len(where) < 2:
        raise ConfigError("clean needs an output folder", hint=f"prefdata clean {where[0]} out/")
    *inputs, last = where
    if action == "audit" and (not inputs or last == "-" or last.startswith("hf:") or any(c in last for c in "*?[")):
        return where, None
    from prefdata.cutting import SUFFIXES, suffix
    from prefdata.output import is_ours

    def data(path: Path) -> bool:
        return suffix(path) in SUFFIXES or path.name in ("state.json", "dataset_dict.json")

    path = Path(last)
    misspelt = not path.exists() and data(path)  # a file to be read: no folder is called in.jsonl
    if action == "audit":
        input_folder = path.is_dir() and not is_ours(path) and any(map(data, path.rglob("*")))
        return (where, None) if path.is_file() or misspelt or input_folder else (inputs, path)
    if misspelt:
        hint = "The output folder comes last."
        raise OutputError("does not exist, and is no name of a folder", where=last, hint=hint)
    return inputs, path


def _share(text: str) -> float:
    try:
        share = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(f"--sample {text}: not a share", hint="For example: --sample 5%")
    return share


def _nothing_left(result: Result, pipeline: Pipeline) -> str:
    """``error: in.jsonl: 0 of 2 rows left (too_long 2; limit 256, longest prompt 812 tokens). See out/report.html``."""
    reasons = ", ".join(f"{r} {n:,}" for r, n in result.counts["reasons"].items())
    limit = next((s.max_length for s in pipeline.stages if hasattr(s, "max_length")), 0)
    found = {f.name: f.value for f in result.findings}
    longest = f"; limit {limit}, longest prompt {found['longest_prompt']} tokens" if "longest_prompt" in found else ""
    name = result.report.source["files"][0]["name"]
    hint = "Rows in KTO form need no pairs: train on them as they are, with KTO. " if "kto_rows" in found else ""
    return f"error: {name}: 0 of {rows(result.counts['pairs'])} left ({reasons}{longest}). {hint}See {result.out}/report.html"


class _Terminated(BaseException):
    pass


def _terminated(number: int, frame: Any) -> None:
    raise _Terminated


def main() -> None:
    """Run the command line, and turn every ending into its exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without UTF-8 shows \u2192 for an arrow, and no traceback
            stream.reconfigure(errors="backslashreplace")
    code: int | None = OK
    try:
        sys.argv[1:] = _arranged(sys.argv[1:])
        result = app(standalone_mode=False)
        code = result if isinstance(result, int) else OK
        if code == 130:  # what Typer makes of Ctrl-C
            raise KeyboardInterrupt
        if sys.stdout is not None:
            sys.stdout.flush()
    except PrefdataError as error:
        code = _mistake(str(error), debug=Say.debug)
    except typer.Exit as ended:
        code = ended.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
        print(f"interrupted; {Say.goes_on}", file=sys.stderr)
    except _Terminated:
        code = 143
        print(f"terminated; {Say.goes_on}", file=sys.stderr)
    except SystemExit as ended:  # what Typer makes of a closed pipe
        code = 141 if isinstance(ended.__context__, BrokenPipeError) else FAILED
    except BrokenPipeError:
        code = 141
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the interpreter's last flush is quiet too
    except Exception as error:
        if hasattr(error, "exit_code") and hasattr(error, "format_message"):  # click's usage errors
            context = getattr(error, "ctx", None)
            at = f"\nTry '{context.command_path} --help'." if context is not None else ""
            code = _mistake(f"{error.format_message()}{at}")
        elif isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ENOSPC):
            code = _mistake(f"{str(error.filename or 'the output')[:100]}: {error.strerror}", debug=Say.debug)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        else:
            code = BUG
            traceback.print_exc()
            ask = "Please report it with the lines above and the output of 'prefdata doctor'."
            print(f"This is a bug in prefdata. {ask}", file=sys.stderr)
    sys.exit(code)


def _mistake(text: str, debug: bool = False) -> int:
    if debug:
        traceback.print_exc()
    print(f"error: {text}", file=sys.stderr)
    return WRONG


_ANYWHERE = {"-q", "--quiet", "-qq", "--json", "--no-progress", "--online", "--offline", "--debug"}
_WITH_VALUE = {"--color", "--log-format"}


def _arranged(argv: list[str]) -> list[str]:
    """Global options may stand behind the command too: put them first."""
    first, rest, words = list[str](), list[str](), iter(argv)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _ANYWHERE or (word.split("=")[0] in _WITH_VALUE and "=" in word):
            first.append(word)
        elif word in _WITH_VALUE:
            first += [word, *([v] if (v := next(words, None)) is not None else [])]
        else:
            rest.append(word)
    return first + rest
