"""Options that several commands take, and how the text of one becomes a value."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prefdata.errors import ConfigError

# fmt: off
_IN = "File, glob, folder, hf:NAME or - for stdin; several; then the output folder."
AuditPlaces = Annotated[list[str], typer.Argument(metavar="IN... [OUT]", help=_IN, show_default=False)]
ConvertPlaces = Annotated[list[str], typer.Argument(metavar="IN... OUT", help="File, glob, folder, hf:NAME or - for stdin; several; then the output: a folder (hf-*, llamafactory), or a .jsonl file or - for stdout.", show_default=False)]
CleanPlaces = Annotated[list[str], typer.Argument(metavar="IN... OUT", help=_IN, show_default=False)]
Pipeline = Annotated[str | None, typer.Option("-p", "--pipeline", metavar="NAME|FILE", help="Default: ./prefdata.yaml, else the shipped 'default'.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="STAGE.PARAM=VALUE", help="Override a parameter; repeatable.")]
Only = Annotated[str | None, typer.Option(metavar="A,B", help="These stages only.")]
Skip = Annotated[str | None, typer.Option(metavar="A,B", help="Leave these stages out.")]
Columns = Annotated[str | None, typer.Option(metavar="prompt=question,...", help="Which column is what; else detected.")]
InputFormat = Annotated[str, typer.Option(metavar="auto|jsonl|json|csv|parquet|hf", help="What the input files are; auto: by name and content.")]
Encoding = Annotated[str | None, typer.Option(metavar="NAME", help="Encoding of text files that are not UTF-8: gb18030, utf-16, latin-1, ...")]
Shape = Annotated[str | None, typer.Option(metavar="NAME", help="The form of the rows, see 'prefdata stages'; else detected.")]
Labels = Annotated[str | None, typer.Option(metavar="first=1,second=2,tie=0", help="What the values of a label column mean, where they do not say it themselves.")]
Pairs = Annotated[str, typer.Option(metavar="best-worst|adjacent|all", help="Which pairs a list of ranked or rated answers gives.")]
Ties = Annotated[str, typer.Option(metavar="drop|keep", help="Labels that name no winner: drop them, or keep them flagged, with pd_strength 0.")]
InputConfig = Annotated[str | None, typer.Option(metavar="NAME", help="Which configuration of a dataset folder.")]
InputSplit = Annotated[str | None, typer.Option(metavar="NAME", help="One split of a dataset folder; else all, kept apart.")]
Against = Annotated[list[str] | None, typer.Option(metavar="EVAL", help="Find prompts of this evaluation set (reason 'contaminated'); repeatable.")]
Verdicts = Annotated[list[str] | None, typer.Option(metavar="FILE|OUT", help="Apply the verdicts of people: a review.json, or the folder of a run that was reviewed; repeatable.")]
MinMargin = Annotated[float | None, typer.Option(min=0, metavar="X", help="Drop scored pairs whose scores differ by less.")]
Gate = Annotated[list[str] | None, typer.Option(metavar="WORD<=5%", help="Exit 1 unless it holds; a reason word, a stage, kept, dropped, flagged, longer_chosen, length_bias, contradictions; also WORD<=baseline+0.5%; repeatable.")]
Baseline = Annotated[str | None, typer.Option(metavar="OUT", help="An earlier run: no reason word may be more frequent, no less may be kept, and length may say no more, unless gates say what to compare. Its manifest.json does.")]
Tolerance = Annotated[str | None, typer.Option(metavar="0.5%", help="Points by which rates may be worse than those of the baseline.")]
OutputFormat = Annotated[str, typer.Option(metavar="text|junit|github", help="How to tell the gates: JUnit XML on stdout, or GitHub's annotations below the text.")]
OutputFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JUnit XML there, and the text to stdout.")]
ExitZero = Annotated[bool, typer.Option("--exit-zero", help="Report, but never exit 1.")]
Limit = Annotated[int | None, typer.Option(min=1, help="First N rows only; the report says 'partial'.")]
Engine = Annotated[str, typer.Option(metavar="local|ray", help="Processes here, or tasks of a Ray cluster.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; default: the cores.", envvar="PREFDATA_WORKERS")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="For everything drawn by chance: splits, spot-check, examples.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace prefdata's own files in OUT.")]
KeepScratch = Annotated[bool, typer.Option("--keep-scratch", help="Keep measured parts, so that --resume with another limit measures nothing again.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read 1,000 rows, print the plan and an estimate, write nothing.")]
OnBadRow = Annotated[str, typer.Option(metavar="skip|stop", help="A line that is not JSON, a missing field.")]
To = Annotated[str, typer.Option("--to", metavar="hf-text|hf-chat|hf-implicit|llamafactory|kto|jsonl|ab", help="The form to write.", show_default=False)]
StopOrSkip = Annotated[str, typer.Option("--on-bad-row", metavar="stop|skip", help="Rows that are no pair, or that the form cannot hold: stop, or leave them out and list them in OUT.skipped.jsonl.")]
OrderSeed = Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="For the order of the two answers (ab).")]
OverwriteFile = Annotated[bool, typer.Option("--overwrite", help="Replace the file OUT, or prefdata's own files in the folder OUT.")]
Split = Annotated[str | None, typer.Option(metavar="test=0.02", help="Cut by prompt and duplicate group.")]
Format = Annotated[str, typer.Option(metavar="auto|text|chat|implicit", help="Form of the written pairs; auto: as the input.")]
Export = Annotated[str, typer.Option(metavar="all|none|trl,axolotl,...", help="Training recipes to write.")]
Sample = Annotated[str, typer.Option(metavar="5%", help="Kept rows in spotcheck.csv (at least 50).")]
BenchPlaces = Annotated[list[str], typer.Argument(metavar="IN...", help="Sets of pairs; each file, glob, folder or hf:NAME is one.", show_default=False)]
BenchOut = Annotated[Path | None, typer.Option("--out", metavar="FILE.md", help="Write the report there too.")]
Faults = Annotated[str, typer.Option(metavar="A,B", help="What to plant: flips, length, annotators, random, exact, near, contradiction, identical, cut, shortcut.")]
Rates = Annotated[str, typer.Option(metavar="5,10,20", help="Shares of wrong labels, in per cent.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="How often each is planted anew.")]
NoWorth = Annotated[bool, typer.Option("--no-worth", help="Leave out what cleaning is worth, the slowest part.")]
BenchTokenizer = Annotated[str | None, typer.Option("--tokenizer", metavar="FOLDER", help="Plant answers that its window cuts, too.")]
BenchEncoder = Annotated[str | None, typer.Option("--encoder", metavar="NAME", help="Let learners see these vectors too: wordllama, or a SentenceTransformer.")]
License = Annotated[str | None, typer.Option(metavar="ID", help="Licence for the dataset card; never guessed.")]
# fmt: on


def mapping(option: str, text: str | None) -> dict[str, str]:
    """``name=value,...`` as a mapping; raises ConfigError for a part without a value."""
    out = {}
    for part in filter(None, (text or "").split(",")):
        key, _, value = part.partition("=")
        if not value:
            example = "prompt=question,chosen=good,rejected=bad" if option == "--columns" else "first=1,second=2,tie=0"
            raise ConfigError(f"{option} {part}: not name=value", hint=f"For example: {option} {example}")
        if key.strip() in out:
            raise ConfigError(f"{option} {key.strip()}=...: is there twice", hint="Leave one of them out.")
        out[key.strip()] = value.strip()
    return out


def shares(option: str, text: str) -> list[float]:
    """``5,10,20`` in per cent as shares of one; raises ConfigError for what is no number."""
    try:
        return [float(part.strip().removesuffix("%")) / 100 for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{option} {text}: not numbers", hint=f"For example: {option} 5,10,20") from None
