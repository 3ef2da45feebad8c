"""The smaller commands: pairs in another form, the report again, and looking things up."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from prefdata import cli_options as option
from prefdata import commands_diff
from prefdata.errors import ConfigError, PrefdataError
from prefdata.say import Say


def report(
    out: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    no_rows: Annotated[bool, typer.Option("--no-rows", help="Numbers only, to send outside.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    against: Annotated[str | None, typer.Option("--against", metavar="EARLIER", help="Compare with an earlier run, or set: kept in audit/compare.json and shown from then on.")] = None,
    no_against: Annotated[bool, typer.Option("--no-against", help="Take the comparison away again.")] = False,
) -> None:  # fmt: skip
    """Make report.html again, from audit/report.json, with the review and the comparison that stand beside it."""
    from prefdata import lookup, review_file
    from prefdata.files import put
    from prefdata.report.model import Report
    from prefdata.report.render import render

    manifest = lookup.manifest(out)
    with lookup.as_written(out / "audit/report.json"):
        page = Report.model_validate_json((out / "audit/report.json").read_bytes())
    commands_diff.keep(out, against, no_against)
    beside = {"review": review_file.shown(out), "compare": review_file.held_json(out / commands_diff.PLACE)}
    with lookup.as_written(out / "manifest.json"):
        text = render(page, manifest["run"], rows=not no_rows, **beside)
    target = out / ("report-no-rows.html" if no_rows else "report.html")
    put(target, text)
    Say.out([f"report  {target}"], {"report": str(target)})
    if open_:
        typer.launch(target.resolve().as_uri())


def convert(
    where: option.ConvertPlaces, to: option.To, columns: option.Columns = None, shape: option.Shape = None, labels: option.Labels = None,
    pairs: option.Pairs = "best-worst", ties: option.Ties = "drop", input_format: option.InputFormat = "auto",
    encoding: option.Encoding = None, input_config: option.InputConfig = None, input_split: option.InputSplit = None,
    on_bad_row: option.StopOrSkip = "stop", seed: option.OrderSeed = 0, license: option.License = None, workers: option.Workers = None,
    overwrite: option.OverwriteFile = False,
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

    named, meant = option.mapping("--columns", columns), option.mapping("--labels", labels)
    with Progress() as progress:
        done = converting.convert(inputs, out, columns=named, labels=meant, progress=progress, **given)
    if done.skipped:
        told = ", ".join(f"{reason} {n:,}" for reason, n in done.skipped.items())
        listed = f" → {done.listed}" if done.listed else ""
        Say.err(f"left out {done.read - done.pairs:,} of {done.read:,}: {told}{listed}")
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


def explain(
    word: Annotated[str, typer.Argument(help="A word such as too_similar, fp16_weights, beta or near_duplicate.")],
) -> None:
    """What a reason word means, with an example that gets it and one that does not; also words, settings and numbers of training, stages and parameters."""
    from prefdata import glossary

    document = glossary.word_document(word)
    Say.out(glossary.word_lines(document), document)


def explain_row(
    out: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    row: Annotated[str, typer.Argument(help="pd_id or row number.")],
) -> None:
    """One row's whole history: every stage's value, limit and verdict."""
    from prefdata import lookup

    with lookup.as_written(out):
        document = lookup.row_document(out, row)
    Say.out(lookup.row_lines(document), document)


def bench(
    where: option.BenchPlaces, faults: option.Faults = "all", rates: option.Rates = "5,10,20,30", seeds: option.Seeds = 5,
    no_worth: option.NoWorth = False, out: option.BenchOut = None, tokenizer: option.BenchTokenizer = None, encoder: option.BenchEncoder = None,
    columns: option.Columns = None, shape: option.Shape = None, labels: option.Labels = None, pairs: option.Pairs = "best-worst",
    input_format: option.InputFormat = "auto", encoding: option.Encoding = None, input_config: option.InputConfig = None,
    input_split: option.InputSplit = None, limit: option.Limit = None, workers: option.Workers = None, seed: option.Seed = 0,
) -> None:  # fmt: skip
    """Plant faults of known truth in your pairs, and see what is found of them and what cleaning is worth."""
    from prefdata.bench import planted
    from prefdata.files import put
    from prefdata.run import default_workers
    from prefdata.terminal import Progress

    kinds = planted.FAULTS if faults == "all" else tuple(filter(None, faults.split(",")))
    asked = planted.Asked(
        kinds, option.shares("--rates", rates), seeds, not no_worth, tokenizer=tokenizer, encoder=encoder,
        workers=workers or default_workers(), seed=seed,
    )  # fmt: skip
    read = {"shape": shape, "pairs": pairs, "input_format": input_format, "encoding": encoding, "input_config": input_config,
            "input_split": input_split, "limit": limit}  # fmt: skip
    named = {"columns": option.mapping("--columns", columns), "labels": option.mapping("--labels", labels)}
    with Progress() as progress:
        found = planted.bench(_titles(where), asked, progress, **named, **read)
    lines = planted.report(found, " ".join(["prefdata", *sys.argv[1:]]))
    if out is not None:
        put(out, "\n".join([*lines, ""]))
        Say.err(f"wrote {out}")
    Say.out(lines, found)


def _titles(places: list[str]) -> dict[str, str]:
    """Each place by its last name; by its whole one where two have the same."""
    last = [Path(place).name or place for place in places]
    return {short if last.count(short) == 1 else place: place for short, place in zip(last, places, strict=True)}


def schema() -> None:
    """The JSON schema of a pipeline file, for editors."""
    from prefdata.parameters import json_schema

    print(json.dumps(json_schema(), indent=2))


def init(folder: Annotated[Path, typer.Argument(help="Made if it is not there; default: here.", show_default=False)] = Path()) -> None:  # fmt: skip
    """A folder to begin with: prefdata.yaml, pipelines/, a sample with planted faults, .gitignore."""
    from prefdata import lookup

    made = lookup.start_folder(folder)
    there = "" if folder == Path() else f"cd {folder} && "
    Say.out([f"created {'  '.join(made)}", f"next: {there}prefdata clean sample.jsonl out/"], {"created": made})


def doctor(
    run: Annotated[Path | None, typer.Argument(help="A run of prefdata train, or a folder of plain Trainer; default: this machine.", show_default=False)] = None,
) -> None:  # fmt: skip
    """Versions, machine, and which optional parts work; paste it into an issue. With RUN: what went wrong in a training run."""
    from prefdata import lookup

    if run is not None:
        from prefdata.training import diagnose

        found = diagnose.doctor(run)
        Say.out(diagnose.lines(found), found)
        if found["headline"]:
            raise typer.Exit(1)
        return
    document = lookup.doctor_document()
    Say.out(lookup.doctor_lines(document), document)
    if document["broken"]:
        raise PrefdataError(f"required and missing: {', '.join(document['broken'])}", hint="Install prefdata again.")


ALL = (convert, report, bench, stages, explain, explain_row, schema, init, doctor)
