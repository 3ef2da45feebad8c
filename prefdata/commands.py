"""The smaller commands: pairs in another form, the report again, and looking things up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from prefdata.cli_options import (
    ColumnsOption,
    ConvertPlaces,
    EncodingOption,
    FormatInOption,
    InConfigOption,
    InSplitOption,
    LabelsOption,
    LicenseOption,
    OrderOption,
    PairsOption,
    ReplaceOption,
    ShapeOption,
    StopOption,
    TiesOption,
    ToOption,
    WorkersOption,
    mapping,
)
from prefdata.errors import ConfigError, InputError, PrefdataError
from prefdata.say import Say


def report(
    out: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    no_rows: Annotated[bool, typer.Option("--no-rows", help="Numbers only, to send outside.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Make report.html again, from audit/report.json."""
    from prefdata.files import put
    from prefdata.report.model import Report
    from prefdata.report.render import render

    manifest = _manifest(out)
    with _written(out / "audit/report.json"):
        page = Report.model_validate_json((out / "audit/report.json").read_bytes())
    with _written(out / "manifest.json"):
        text = render(page, manifest["run"], rows=not no_rows)
    target = out / ("report-no-rows.html" if no_rows else "report.html")
    put(target, text)
    Say.out([f"report  {target}"], {"report": str(target)})
    if open_:
        typer.launch(target.resolve().as_uri())


def _manifest(out: Path) -> dict[str, Any]:
    path = out / "manifest.json"
    if not path.is_file():
        what = "holds no finished run" if out.is_dir() else "does not exist"
        raise InputError(what, where=str(out), hint="Go on with --resume." if (out / ".work").is_dir() else "")
    with _written(path):
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict) or not isinstance(found.get("run"), dict) or "splits" not in found:
            raise ValueError("it has no 'run' or no 'splits'")
    return found


@contextmanager
def _written(path: Path) -> Iterator[None]:
    """What prefdata wrote itself is read: a file that is gone or was changed is told as such."""
    from jinja2 import UndefinedError

    try:
        yield
    except FileNotFoundError as error:
        raise InputError("does not exist", where=str(error.filename or path), hint=_AGAIN) from error
    except (OSError, ValueError, UndefinedError) as error:  # pydantic's, json's and Arrow's are ValueErrors
        what = str(error).split("\n")[0]
        raise InputError(f"was not left so by prefdata: {what}", where=str(path), hint=_AGAIN) from error


_AGAIN = "Run prefdata again with --overwrite."


def convert(
    where: ConvertPlaces, to: ToOption, columns: ColumnsOption = None, shape: ShapeOption = None, labels: LabelsOption = None,
    pairs: PairsOption = "best-worst", ties: TiesOption = "drop", input_format: FormatInOption = "auto",
    encoding: EncodingOption = None, input_config: InConfigOption = None, input_split: InSplitOption = None,
    on_bad_row: StopOption = "stop", seed: OrderOption = 0, license: LicenseOption = None, workers: WorkersOption = None,
    overwrite: ReplaceOption = False,
) -> None:  # fmt: skip
    """Write the pairs in another form; nothing is judged and no text is changed."""
    given = {k: v for k, v in locals().items() if k not in ("where", "columns", "labels")}
    *inputs, out = where
    if not inputs:
        raise ConfigError("convert needs an output", hint=f"prefdata convert {where[0]} out.jsonl --to jsonl")
    if out == "-" and Say.json:
        raise ConfigError("--json and the pairs cannot both go to stdout", hint="Give convert a file to write.")
    from prefdata import converting
    from prefdata.terminal import Progress, forms

    named, meant = mapping("--columns", columns), mapping("--labels", labels)
    with Progress() as progress:
        done = converting.convert(inputs, out, columns=named, labels=meant, progress=progress, **given)
    if done.skipped:
        told = ", ".join(f"{reason} {n:,}" for reason, n in done.skipped.items())
        Say.err(
            f"left out {done.read - done.pairs:,} of {done.read:,}: {told}"
            + (f" → {done.listed}" if done.listed else "")
        )
    of = f" ({', '.join(f'{name} {n:,}' for name, n in done.splits.items())})" if len(done.splits) > 1 else ""
    lines = [*forms(done.changes), f"wrote {done.pairs:,} pairs{of} as {to} → {done.out}"]
    if out == "-":
        for line in lines if not Say.quiet else ():
            Say.err(line)
    else:
        Say.out(lines, vars(done))


def stages(name: Annotated[str | None, typer.Argument(help="One stage, or a .py file.")] = None) -> None:
    """The stages and input shapes; with NAME, one stage's documentation, parameters and reason words."""
    from prefdata import lookup
    from prefdata.stage import shipped, stage_class

    if name is None:
        Say.out(lookup.stages_lines(shipped()), lookup.stages_document(shipped()))
    else:
        kind = stage_class(name)
        Say.out(lookup.stage_lines(kind), lookup.stage_document(kind))


def explain(word: Annotated[str, typer.Argument(help="A reason word such as too_similar.")]) -> None:
    """What a reason word means and what to do."""
    from prefdata import lookup

    document = lookup.word_document(word)
    Say.out(lookup.word_lines(document), document)


def explain_row(
    out: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    row: Annotated[str, typer.Argument(help="pd_id or row number.")],
) -> None:
    """One row's whole history: every stage's value, limit and verdict."""
    from prefdata import lookup

    splits = list(_manifest(out)["splits"])
    with _written(out):
        document = lookup.row_document(out, splits, row)
    Say.out(lookup.row_lines(document), document)


def schema() -> None:
    """The JSON schema of a pipeline file, for editors."""
    from prefdata.parameters import json_schema

    print(json.dumps(json_schema(), indent=2))


def init(folder: Annotated[Path, typer.Argument(help="Made if it is not there; default: here.", show_default=False)] = Path()) -> None:  # fmt: skip
    """A folder to begin with: prefdata.yaml, pipelines/, a sample with planted faults, .gitignore."""
    from prefdata.lookup import start_folder

    made = start_folder(folder)
    there = "" if folder == Path() else f"cd {folder} && "
    Say.out([f"created {'  '.join(made)}", f"next: {there}prefdata clean sample.jsonl out/"], {"created": made})


def doctor() -> None:
    """Versions, machine, and which optional parts work; paste it into an issue."""
    from prefdata import lookup

    document = lookup.doctor_document()
    Say.out(lookup.doctor_lines(document), document)
    if document["broken"]:
        raise PrefdataError(f"required and missing: {', '.join(document['broken'])}", hint="Install prefdata again.")


ALL = (convert, report, stages, explain, explain_row, schema, init, doctor)
