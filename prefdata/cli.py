"""The commands. The only file that prints, and the only one that knows exit codes."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prefdata.errors import ConfigError, InputError, PrefdataError

if TYPE_CHECKING:
    from prefdata.pipeline import Pipeline

OK, FAILED, WRONG, BUG = 0, 1, 2, 3

app = typer.Typer(
    name="prefdata", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Finds and removes bad preference pairs, and shows you each one.",
    epilog="Try: prefdata init demo && cd demo && prefdata clean sample.jsonl out/",
)  # fmt: skip


class Say:
    """Global options, and the two places to print: results to stdout, everything else to stderr."""

    quiet = 0
    json = False
    progress = True
    color = "auto"
    log_format = "text"
    debug = False

    @classmethod
    def console(cls, stderr: bool = False) -> Any:
        """A rich console for stdout or stderr that obeys ``--color`` and ``NO_COLOR``."""
        from rich.console import Console

        forced = True if cls.color == "always" else False if cls.color == "never" else None
        wide = None if (sys.stderr if stderr else sys.stdout).isatty() else 120
        return Console(
            stderr=stderr,
            force_terminal=forced,
            no_color=cls.color == "never" or None,
            highlight=False,
            width=wide,
            soft_wrap=True,
        )

    @classmethod
    def out(cls, text: str = "") -> None:
        """A line of the result."""
        if not cls.quiet and not cls.json:
            print(text)

    @classmethod
    def err(cls, text: str) -> None:
        """A line beside the result."""
        if cls.quiet < 2:
            print(text, file=sys.stderr)

    @classmethod
    def document(cls, value: Any) -> None:
        """The one JSON document of ``--json``."""
        print(json.dumps(value, ensure_ascii=False, indent=2))


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"prefdata {version('prefdata')}")
        raise typer.Exit


@app.callback()
def _globals(
    quiet: Annotated[int, typer.Option("-q", "--quiet", count=True, help="Less; twice: nothing but errors.")] = 0,
    json_: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout, everything else on stderr.")
    ] = False,
    log_format: Annotated[str, typer.Option(help="Progress as text or json events.", metavar="text|json")] = "text",
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No progress.")] = False,
    color: Annotated[str, typer.Option(metavar="auto|always|never")] = "auto",
    online: Annotated[
        bool,
        typer.Option("--online/--offline", help="Whether names of models and tokenizers may be fetched from the Hub."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    _choice("--color", color, ("auto", "always", "never"))
    _choice("--log-format", log_format, ("text", "json"))
    Say.quiet, Say.json, Say.color, Say.log_format, Say.debug = quiet, json_, color, log_format, debug
    Say.progress = not no_progress and not quiet
    if online:
        os.environ["PREFDATA_ONLINE"] = "1"


def _choice(option: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ConfigError(f"{option} {value}: not one of {', '.join(known)}")
    return value


# ---------------------------------------------------------------------------------------------- audit and clean

In = Annotated[
    list[str],
    typer.Argument(
        metavar="IN... [OUT]",
        help="File, glob, folder or - for stdin; several; then the output folder.",
        show_default=False,
    ),
]
PipelineOption = Annotated[
    str | None,
    typer.Option("-p", "--pipeline", metavar="NAME|FILE", help="Default: ./prefdata.yaml, else the shipped 'default'."),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="STAGE.PARAM=VALUE", help="Override a parameter; repeatable.")
]
OnlyOption = Annotated[str | None, typer.Option(metavar="A,B", help="These stages only.")]
SkipOption = Annotated[str | None, typer.Option(metavar="A,B", help="Leave these stages out.")]
ColumnsOption = Annotated[
    str | None, typer.Option(metavar="prompt=question,...", help="Which column is what; else detected.")
]
FormatInOption = Annotated[str, typer.Option("--input-format", metavar="auto|jsonl|json|csv|parquet|hf")]
InSplitOption = Annotated[
    str | None, typer.Option("--input-split", metavar="NAME", help="Which split of a dataset folder.")
]
GateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--gate",
        metavar="WORD<=5%",
        help="Exit 1 unless it holds; a reason word, a stage, kept, dropped, flagged, longer_chosen, contradictions; repeatable.",
    ),
]
ZeroOption = Annotated[bool, typer.Option("--exit-zero", help="Report, but never exit 1.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="First N rows only; the report says 'partial'.")]
EngineOption = Annotated[str, typer.Option(metavar="local|ray")]
WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Processes; default: the cores.", envvar="PREFDATA_WORKERS")
]
SeedOption = Annotated[int, typer.Option(min=0, max=2**63 - 1)]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace prefdata's own files in OUT.")]
KeepOption = Annotated[
    bool,
    typer.Option(
        "--keep-scratch", help="Keep measured parts, so that --resume with another limit measures nothing again."
    ),
]
DryOption = Annotated[
    bool, typer.Option("--dry-run", help="Read 1,000 rows, print the plan and an estimate, write nothing.")
]
BadOption = Annotated[
    str, typer.Option("--on-bad-row", metavar="skip|stop", help="A line that is not JSON, a missing field.")
]
SplitOption = Annotated[str | None, typer.Option(metavar="test=0.02", help="Cut by prompt and duplicate group.")]


@app.command()
def audit(
    where: In,
    pipeline: PipelineOption = None, set_: SetOption = None, only: OnlyOption = None, skip: SkipOption = None,
    columns: ColumnsOption = None, input_format: FormatInOption = "auto", input_split: InSplitOption = None,
    gate: GateOption = None, exit_zero: ZeroOption = False, limit: LimitOption = None, engine: EngineOption = "local",
    workers: WorkersOption = None, seed: SeedOption = 0, resume: ResumeOption = False, overwrite: OverwriteOption = False,
    keep_scratch: KeepOption = False, dry_run: DryOption = False, on_bad_row: BadOption = "skip",
    split: SplitOption = None,
) -> None:  # fmt: skip
    """Measure and decide, write a report, change nothing. Without OUT: a table here only."""
    inputs, out = _places(where, needs_out=False)
    _go("audit", inputs, out, dry_run, exit_zero, {"name": pipeline, "sets": set_, "only": only, "skip": skip, "gates": gate}, dict(  # noqa: C408
        columns=columns, input_format=input_format, input_split=input_split, limit=limit, engine=engine, workers=workers, seed=seed,
        resume=resume, overwrite=overwrite, keep_scratch=keep_scratch, on_bad_row=on_bad_row, split=split,
    ))  # fmt: skip


@app.command()
def clean(
    where: In,
    pipeline: PipelineOption = None, set_: SetOption = None, only: OnlyOption = None, skip: SkipOption = None,
    columns: ColumnsOption = None, input_format: FormatInOption = "auto", input_split: InSplitOption = None,
    format_: Annotated[str, typer.Option("--format", metavar="auto|text|chat|implicit", help="Form of the written pairs; auto: as the input.")] = "auto",
    split: SplitOption = None,
    export: Annotated[str, typer.Option(metavar="all|none|trl,axolotl,...", help="Training recipes to write.")] = "all",
    sample: Annotated[str, typer.Option(metavar="5%", help="Kept rows in spotcheck.csv (at least 50).")] = "5%",
    license_: Annotated[str | None, typer.Option("--license", metavar="ID", help="Licence for the dataset card; never guessed.")] = None,
    gate: GateOption = None, exit_zero: ZeroOption = False, limit: LimitOption = None, engine: EngineOption = "local",
    workers: WorkersOption = None, seed: SeedOption = 0, resume: ResumeOption = False, overwrite: OverwriteOption = False,
    keep_scratch: KeepOption = False, dry_run: DryOption = False, on_bad_row: BadOption = "skip",
) -> None:  # fmt: skip
    """Audit, then write the cleaned dataset, every dropped row with its reason, and the report."""
    inputs, out = _places(where, needs_out=True)
    _go("clean", inputs, out, dry_run, exit_zero, {"name": pipeline, "sets": set_, "only": only, "skip": skip, "gates": gate}, dict(  # noqa: C408
        columns=columns, input_format=input_format, input_split=input_split, format=_choice("--format", format_, ("auto", "text", "chat", "implicit")),
        split=split, export=export, sample=_share(sample), license=license_, limit=limit, engine=engine, workers=workers, seed=seed,
        resume=resume, overwrite=overwrite, keep_scratch=keep_scratch, on_bad_row=on_bad_row,
    ))  # fmt: skip


def _places(where: list[str], needs_out: bool) -> tuple[list[str], Path | None]:
    """Inputs and output of ``IN... [OUT]``. For audit the last one is an output unless it is there to be read."""
    if needs_out:
        if len(where) < 2:
            raise ConfigError("clean needs an output folder", hint=f"prefdata clean {where[0]} out/")
        return where[:-1], Path(where[-1])
    last = where[-1]
    if len(where) == 1 or last == "-" or any(c in last for c in "*?["):
        return where, None
    from prefdata.output import is_ours

    path = Path(last)
    readable = path.is_file() or (path.is_dir() and any(path.iterdir()) and not is_ours(path))
    return (where, None) if readable else (where[:-1], path)


def _share(text: str) -> float:
    try:
        share = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(f"--sample {text}: not a share", hint="For example: --sample 5%")
    return share


def _go(
    action: Any,
    inputs: list[str],
    out: Path | None,
    dry_run: bool,
    exit_zero: bool,
    pipe: dict[str, Any],
    given: dict[str, Any],
) -> None:
    from prefdata.pipeline import load
    from prefdata.run import Options, run

    words = {k: tuple(filter(None, (pipe[k] or "").split(","))) for k in ("only", "skip")}
    pipeline, title = load(pipe["name"], sets=pipe["sets"] or (), gates=pipe["gates"] or (), **words)
    _choice("--input-format", given["input_format"], ("auto", "jsonl", "json", "csv", "parquet", "hf"))
    _choice("--on-bad-row", given["on_bad_row"], ("skip", "stop"))
    given["columns"] = _mapping(given["columns"])
    options = Options(**given, command=" ".join(["prefdata", *sys.argv[1:]]))
    if dry_run:
        from prefdata.terminal import plan

        document = plan(inputs, pipeline, title, options, Say.out)
        if Say.json:
            Say.document(document)
        return
    from prefdata.terminal import Progress, document_of, show

    with Progress(Say.console(stderr=True), Say.log_format, Say.progress) as progress:
        result = run(action, inputs, out, pipeline, options, progress)
    if Say.json:
        Say.document(document_of(result))
    elif not Say.quiet:
        show(Say.console(), result, title, inputs)
    if out is not None and not result.counts["kept"]:
        reasons = ", ".join(f"{r} {n:,}" for r, n in result.counts["reasons"].items())
        longest = next(
            (
                f"; limit {_limit(pipeline)}, longest prompt {f.value} tokens"
                for f in result.findings
                if f.name == "longest_prompt"
            ),
            "",
        )
        name = result.report.source["files"][0]["name"]
        Say.err(f"error: {name}: 0 of {result.counts['pairs']:,} rows left ({reasons}{longest}). See {out}/report.html")
    if not result.ok and not exit_zero:
        raise typer.Exit(FAILED)


def _limit(pipeline: Pipeline) -> int:
    return next((int(s.max_length) for s in pipeline.stages if hasattr(s, "max_length")), 0)


def _mapping(text: str | None) -> dict[str, str]:
    out = {}
    for part in filter(None, (text or "").split(",")):
        key, eq, value = part.partition("=")
        if not eq or not value:
            raise ConfigError(
                f"--columns {part}: not part=column",
                hint="For example: --columns prompt=question,chosen=good,rejected=bad",
            )
        out[key.strip()] = value.strip()
    return out


# ---------------------------------------------------------------------------------------------- looking things up


@app.command()
def report(
    out: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    no_rows: Annotated[bool, typer.Option("--no-rows", help="Numbers only, to send outside.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Make report.html again, from audit/report.json."""
    from prefdata.output import put
    from prefdata.report.model import Report
    from prefdata.report.render import render

    manifest = _manifest(out)
    page = Report.model_validate_json((out / "audit/report.json").read_bytes())
    target = out / ("report-no-rows.html" if no_rows else "report.html")
    put(target, render(page, manifest["run"], rows=not no_rows))
    Say.out(f"report  {target}")
    if Say.json:
        Say.document({"report": str(target)})
    if open_:
        typer.launch(target.resolve().as_uri())


def _manifest(out: Path) -> dict[str, Any]:
    path = out / "manifest.json"
    if not path.is_file():
        unfinished = (out / ".work").is_dir()
        raise InputError(
            "holds no finished run" if out.is_dir() else "does not exist",
            where=str(out),
            hint="Go on with --resume." if unfinished else "",
        )
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


@app.command()
def stages(name: Annotated[str | None, typer.Argument(help="One stage, or a .py file.")] = None) -> None:
    """The stages and input shapes; with NAME, one stage's documentation, parameters and reason words."""
    from prefdata import terminal
    from prefdata.stage import shipped, stage_class

    if name is None:
        if Say.json:
            Say.document(terminal.stages_document(shipped()))
        else:
            terminal.show_stages(Say.console(), shipped())
        return
    kind = stage_class(name)
    Say.document(terminal.stage_document(kind)) if Say.json else terminal.show_stage(Say.console(), kind)


@app.command()
def explain(word: Annotated[str, typer.Argument(help="A reason word such as too_similar.")]) -> None:
    """What a reason word means and what to do."""
    from prefdata.errors import did_you_mean
    from prefdata.stage import shipped

    known = {w: (kind, text) for kind in shipped().values() for w, text in kind.reasons.items()}
    if word not in known:
        raise ConfigError(
            f"no such reason word: {word}", hint=did_you_mean(word, known) or f"Known: {', '.join(sorted(known))}"
        )
    kind, text = known[word]
    notes = kind.documentation()
    if Say.json:
        Say.document({"word": word, "stage": kind.name(), "text": " ".join(text.split()), **notes})
        return
    Say.out(
        f"{word}  (stage {kind.name()})\n\n{' '.join(text.split())}\n\nIt asks: {notes['asks']}\nWhy it matters: {notes['why']}\nHow it decides: {notes['how']}\nWhat it misses: {notes['misses']}"
    )


@app.command("explain-row")
def explain_row(
    out: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    row: Annotated[str, typer.Argument(help="Row number or pd_id.")],
) -> None:
    """One row's whole history: every stage's value, limit and verdict."""
    from prefdata import terminal

    _manifest(out)
    document = terminal.row_document(out, row)
    Say.document(document) if Say.json else terminal.show_row(Say.console(), document)


@app.command()
def schema() -> None:
    """The JSON schema of a pipeline file, for editors."""
    from prefdata.pipeline import json_schema

    print(json.dumps(json_schema(), indent=2))


@app.command()
def init(folder: Annotated[Path, typer.Argument()] = Path()) -> None:
    """A folder to begin with: prefdata.yaml, pipelines/, a sample with planted faults, .gitignore."""
    from prefdata.terminal import start_folder

    made = start_folder(folder)
    if Say.json:
        Say.document({"created": made})
    Say.out(f"created {'  '.join(made)}")
    there = "" if folder == Path() else f"cd {folder} && "
    Say.out(f"next: {there}prefdata clean sample.jsonl out/")


@app.command()
def doctor() -> None:
    """Versions, machine, and which optional parts work; paste it into an issue."""
    from prefdata import terminal

    document = terminal.doctor_document()
    Say.document(document) if Say.json else terminal.show_doctor(Say.console(), document)
    if document["broken"]:
        raise typer.Exit(WRONG)


def main() -> None:
    """Run the command line, and turn every ending into its exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    code: int | None = OK
    try:
        _arrange()
        result = app(standalone_mode=False)
        code = result if isinstance(result, int) else OK
        if code == 130:  # what Typer makes of Ctrl-C
            print("interrupted; --resume goes on", file=sys.stderr)
        sys.stdout.flush()
    except PrefdataError as error:
        code = WRONG
        if Say.debug:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
    except typer.Exit as ended:
        code = ended.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
        print("interrupted; --resume goes on", file=sys.stderr)
    except _Terminated:
        code = 143
        print("terminated; --resume goes on", file=sys.stderr)
    except SystemExit as ended:  # what Typer makes of a closed pipe
        code = 141 if isinstance(ended.__context__, BrokenPipeError) else FAILED
    except BrokenPipeError:
        code = 141
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the interpreter's last flush is quiet too
    except Exception as error:
        if hasattr(error, "exit_code") and hasattr(error, "format_message"):  # click's usage errors
            code = WRONG
            context = getattr(error, "ctx", None)
            at = f"\nTry '{context.command_path} --help'." if context is not None else ""
            print(f"error: {error.format_message()}{at}", file=sys.stderr)
        else:
            code = BUG
            traceback.print_exc()
            print(
                "This is a bug in prefdata. Please report it with the lines above and the output of 'prefdata doctor'.",
                file=sys.stderr,
            )
    sys.exit(code)


class _Terminated(BaseException):
    pass


def _terminated(number: int, frame: Any) -> None:
    raise _Terminated


_ANYWHERE = {"-q", "--quiet", "-qq", "--json", "--no-progress", "--online", "--offline", "--debug"}
_WITH_VALUE = {"--color", "--log-format"}


def _arrange() -> None:
    """Global options may stand behind the command too: put them first."""
    first: list[str] = []
    rest: list[str] = []
    words = iter(sys.argv[1:])
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _ANYWHERE or (word.split("=")[0] in _WITH_VALUE and "=" in word):
            first.append(word)
        elif word in _WITH_VALUE:
            first += [word, *([v] if (v := next(words, None)) is not None else [])]
        else:
            rest.append(word)
    sys.argv[1:] = first + rest
