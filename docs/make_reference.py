"""Writes the pages of ``docs/reference/`` from the code: ``python docs/make_reference.py``.

Commands come from the command line's own definition, stages and reason words from the stages' docstrings, files and
columns from a run on the sample, examples of reason words from ``prefdata/samples/words.yaml``. Words that no code holds stand here, and each is checked against the code.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import typer
from pydantic import BaseModel

import prefdata
from prefdata import cli, cutting, gates, glossary, pipeline, pipeline_file, recipes, shapes
from prefdata.report.compare import Compare
from prefdata.report.model import Report
from prefdata.review_file import Review
from prefdata.stage import Stage, shipped
from prefdata.training.settings import Settings
from prefdata.training.words import WORDS
from prefdata.training.words_numbers import NUMBERS
from prefdata.word_examples import Example, examples

HERE = Path(__file__).parent / "reference"
ROOT = HERE.parents[1]
SAMPLE = ROOT / "prefdata" / "samples" / "planted.jsonl"
NOTE = "<!-- Made by docs/make_reference.py. Change the code, not this page. -->\n"

# Files of a finished run; the page fails to build if a run writes one that is not here, or does not write one that is.
FILES = {
    "README.md": "Dataset card: what was done, counts, how to load. Its front matter tells `load_dataset` where the splits lie.",
    "data/train/part-00000.parquet": "The kept rows: `prompt`, `chosen`, `rejected`, the input's other columns unchanged, and `pd_id`. More parts if the input has more chunks.",
    "data/test/part-00000.parquet": "Only with `--split test=...`.",
    "report.html": "The report, one file that opens without a network.",
    "manifest.json": "Written last: while it is missing, the run is not finished. Status, counts, gates, the pipeline with every parameter, hashes of the input and of the data, versions, time and memory.",
    "spotcheck.csv": "A sample of kept rows for people to judge, the sides in random order. Opens in a spreadsheet; cells that look like a formula begin with `'`.",
    "recipes/trl_dpo.yaml": "`trl dpo --config out/recipes/trl_dpo.yaml`",
    "recipes/axolotl_dpo.yaml": "`axolotl train out/recipes/axolotl_dpo.yaml`",
    "recipes/openrlhf_dpo.sh": "OpenRLHF's DPO command.",
    "recipes/llamafactory/dataset_info.json": "LLaMA-Factory's entry for this set.",
    "recipes/llamafactory/dpo.yaml": "LLaMA-Factory's configuration.",
    "audit/dropped/part-00000.parquet": "Every dropped row as it was read, with why. Left out if nothing was dropped.",
    "audit/decisions.parquet": "Every decision of every stage about every row it saw, keeps included.",
    "audit/signals.parquet": "The numbers that were measured, one row a pair.",
    "audit/report.json": "What `report.html` is made from; its keys: [report-json.md](report-json.md).",
    "audit/run.log.jsonl": "Start, seconds of each stage, end.",
}
LATER = {
    "report-no-rows.html": "`report --no-rows`: the page without any text.",
    "review.html": "`review`: the page on which people judge a sample.",
    "audit/review.json": "`review --import`: what they said; [its keys](review-json.md). `--overwrite` leaves it alone.",
    "audit/compare.json": "`report --against`: the comparison with an earlier run; [its keys](diff-json.md).",
}
"""What other commands put beside them."""
ONLY_CLEAN = ("README.md", "spotcheck.csv", "data/", "recipes/", "audit/dropped/")

PD = {
    "pd_id": "Which pair this is: the row number in the input, counted from 0. An input that already has `pd_id` keeps it.",
    "pd_file": "The input file.",
    "pd_line": "The line in that file, counted from 1.",
    "pd_stage": "The stage that dropped it.",
    "pd_code": "The reason word; `prefdata explain WORD` tells more.",
    "pd_reason": "The reason in words, about this row.",
    "pd_score": "The stage's score, where it has one.",
    "pd_limit": "The limit that was in force.",
    "pd_peer": "Number of the row (counted from 0) that this one repeats or contradicts; its `pd_id`, unless rows came with their own.",
    "pd_raw": "The line as it was read, where it could not be read as a row.",
}

CODES = {
    cli.OK: "Done, and every gate holds.",
    cli.FAILED: "Done, but it did not pass. `audit`, `clean`: a gate failed or no row is left. The output is written all the same; `manifest.json` says `gate_failed` or `empty`. `--exit-zero` turns this into 0. `train`: a check failed and nothing was trained, or a guard stopped the run. `run`: a gate or a step failed. `diff`: a condition of `--fail-on` holds. `review`: the rejected share's upper bound is above `--max-rejected`. `doctor RUN`: a cause was found.",
    cli.WRONG: "Usage, configuration, input or output is wrong, or an extra is missing. The message says what to do. Nothing that looks finished is written.",
    cli.BUG: "A bug in prefdata: traceback, and a line that asks for a report.",
    130: "Interrupted (Ctrl-C). `--resume` goes on; `run` goes on by the same command.",
    141: "The reader of a pipe went away (`prefdata ... | head`). Quiet.",
    143: "Terminated (SIGTERM). `--resume` goes on; `run` goes on by the same command.",
}


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join([*lines, *("| " + " | ".join(cell(c) for c in row) + " |" for row in rows)]) + "\n"


def commands() -> str:
    """Every command with every option, from the definition of the command line."""
    group: Any = typer.main.get_command(cli.app)
    out = [
        NOTE,
        "# Commands\n",
        "`prefdata [OPTIONS] COMMAND ...`. These options stand before or behind the command:\n",
        options(group),
    ]
    for name, command in group.commands.items():
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        usage = " ".join(
            (p.metavar or p.name.upper()) if p.required else f"[{p.metavar or p.name.upper()}]" for p in arguments
        )
        out.append(
            f"\n## {name}\n\n{' '.join(command.help.split())}\n\n```text\n{f'prefdata {name} [OPTIONS] {usage}'.strip()}\n```\n"
        )
        said = [(f"`{p.metavar or p.name.upper()}`", p.help or "") for p in arguments if getattr(p, "help", None)]
        out += [table(("argument", "meaning"), said)] if said else []
        out += [options(command)] if any(p.param_type_name == "option" for p in command.params) else []
    return "\n".join(out)


def options(command: Any) -> str:
    """The options of a command as a table."""
    rows = []
    for p in command.params:
        if p.param_type_name != "option" or p.name in ("help", "install_completion", "show_completion"):
            continue
        names = ", ".join(f"`{o}`" for o in [*p.opts, *p.secondary_opts])
        value = "" if p.is_flag or p.count else f" `{p.metavar or 'N'}`"  # those without a metavar are numbers
        default = (
            ""
            if p.default in (None, False, 0, ()) and p.name != "seed"
            else f"`{'on' if p.default is True else p.default}`"
        )
        note = f" Also from the environment: `{p.envvar}`." if p.envvar else ""
        rows.append((names + value, default, (p.help or "") + note))
    return table(("option", "default", "meaning"), rows)


def in_order() -> dict[str, type[Stage]]:
    """The stages in the order of the full pipeline."""
    known = shipped()
    order = [n for n in pipeline.load("full")[0].names if n in known]
    return {n: known[n] for n in [*order, *sorted(set(known) - set(order))]}


def stages() -> str:
    """Every stage from its docstring and fields, then the input shapes."""
    out = [NOTE, "# Stages\n", "In the order in which they are asked. `prefdata stages NAME` prints the same.\n"]
    for name, kind in in_order().items():
        notes = kind.documentation()
        out.append(f"\n## {name}\n\n**{code(notes['asks'])}**\n")
        labels = (
            ("Why it matters", "why"),
            ("How it decides", "how"),
            ("What it misses", "misses"),
            ("Seen in", "references"),
        )
        out += [f"{label}: {code(notes[key])}\n" for label, key in labels if notes[key]]
        if kind.scale:
            side = f" Drops at the limit and {kind.drops}." if kind.drops and "at the limit" not in kind.scale else ""
            out.append(f"Score: {kind.scale}.{side}\n")
        out.append(table(("parameter", "values"), [(f"`{n}`", pipeline.describe(kind, n)) for n in kind.model_fields]))
        out.append(f"Reason words: {', '.join(f'[`{w}`](reasons.md#{w})' for w in kind.reasons)}\n")
    return "\n".join(out)


def code(text: str) -> str:
    """A docstring's double backticks as Markdown's single ones."""
    return text.replace("``", "`")


def reasons() -> str:
    """One table of all reason words, then an example of each."""
    known = [(word, name, code(text)) for name, kind in in_order().items() for word, text in kind.reasons.items()]
    rows = [(f"[`{word}`](#{word})", f"[{name}](stages.md#{name})", text) for word, name, text in known]
    out = [
        NOTE,
        "# Reason words\n",
        "The word is the code: it stands in `pd_code`, in the report and in gates. `prefdata explain WORD` prints the same and more.\n",
        table(("word", "stage", "meaning and remedy"), rows),
        "\n## Examples\n",
        "For each word rows of which the last one gets it, and rows as near to these as can be of which none does. Each is run by the tests.\n",
    ]
    for word, _, _ in known:
        if word in examples():
            out += [f"### {word}\n", *example(examples()[word])]
    return "\n".join(out)


def example(told: Example) -> list[str]:
    """The parts of one example as Markdown."""
    out = [f"{told.line}\n"]
    if told.settings:
        out.append(f"With {', '.join(f'`--set {s}`' for s in told.settings)}.\n")
    for name, text in told.files.items():
        out.append(f"The file `{name}`:\n\n```\n{text.rstrip()}\n```\n")
    if told.review:
        out.append(
            f"After a [review](../how-to/review.md) in which people said of the pair that gets it: {told.review}.\n"
        )
    if told.crowd:
        out.append(f"After {len(told.crowd)} pairs such as\n\n```json\n{told.crowd[0]}\n```\n")
    which = ", the last row" if len(told.triggers) > 1 else ""
    for head, lines in ((f"Gets it{which}:", told.triggers), ("Does not:", told.spares)):
        rows = "\n".join(lines)
        out.append(f"{head}\n\n```json\n{rows}\n```\n")
    return out


def pipelines() -> str:
    """The pipeline file: shipped ones, keys, gates."""
    home = pipeline.find("default")[1].parent
    order = ("certain", "default", "strict", "full")
    found = sorted(
        (p.stem for p in home.glob("*.yaml")), key=lambda n: (order.index(n) if n in order else len(order), n)
    )
    out = [
        NOTE, "# Pipelines\n",
        "A pipeline is a YAML file: stages in order, and gates. `-p NAME` takes a shipped one, `-p FILE` one of your own; without `-p`,"
        " `./prefdata.yaml` is taken if it is there, else `default`. Parent folders are never searched. `--set` beats the file, the file"
        " beats the defaults. A stage of your own is named by the path of its file, relative to the pipeline's folder."
        " `malformed` is always asked first, whether it is listed or not. `prefdata schema` prints a JSON schema for editors.\n",
        table(("key", "value"), [(f"`{k}`", v) for k, v in (("version", "1"), ("stages", "list of names, or `name: {parameter: value}`"), ("gate", "list of gates"))]),
        "\n## Gates\n",
        "`WORD COMPARISON NUMBER`, with `%` for a share of all pairs: `too_similar<=5%`, `kept>=1000`. Comparisons are `<=`, `>=`, `<`, `>`. A word is a"
        f" reason word, a stage (its drops, flags and swaps), or one of {', '.join(f'`{w}`' for w in gates._WORDS)}. `longer_chosen` is the share of kept"
        " pairs, ties left out, whose chosen answer has more words. A gate that fails makes the exit code 1.\n",
    ]  # fmt: skip
    for name in found:
        out.append(f"\n## {name}\n\n```yaml\n{(home / f'{name}.yaml').read_text('utf-8').strip()}\n```\n")
    assert set(pipeline_file._KEYS) == {"version", "stages", "gate"}
    return "\n".join(out)


def settings() -> str:
    """Every setting of a recipe from its class, and the numbers of an evaluation."""
    fields = Settings.model_fields
    rows = [(f"`{n}`", glossary.setting_values(n), code(fields[n].description or "")) for n in fields]
    return "\n".join([
        NOTE, "# Settings and numbers of training\n",
        "How to train: [training.md](../how-to/training.md). `prefdata explain NAME` prints a line of these tables.\n",
        "## Settings\n",
        "Keys of a recipe (`--recipe FILE`), each also as `--set KEY=VALUE` and as a keyword of `prefdata.train`. Where no default stands, the value is"
        " decided by model, set and machine, and printed.\n",
        table(("key", "values", "meaning"), rows),
        "## Numbers\n",
        "What `train.json` and `train.html` say of the held-out pairs, before training and after.\n",
        table(("number", "meaning"), [(f"`{n}`", t) for n, t in NUMBERS.items()]),
    ])  # fmt: skip


def training() -> str:
    """All words of training."""
    out = [
        NOTE,
        "# Words of training\n",
        "`prefdata explain WORD` prints a line of these tables. Settings: [settings.md](settings.md).\n",
    ]
    heads = {
        "before": "Checks before training",
        "during": "Guards while it trains",
        "after": "Diagnoses of `prefdata doctor`",
    }
    for when, head in heads.items():
        rows = [
            (f'<a id="{w}"></a>`{w}`', code(told.means), code(told.remedy))
            for w, told in WORDS.items()
            if told.when == when
        ]
        out += [f"## {head}\n", table(("word", "meaning", "what to do"), rows)]
    return "\n".join(out)


FORMS = """
Where a row holds several of these, the names that stand first in the table count. `--columns` also takes a path into an object or a list
(`chosen=responses.academy`, `rejected=answers.1`), and the parts of other forms: `first`, `second`, `label`; `completion`, `label`; `answers`, `score`.
Columns that are no part of the pair are carried along. `--shape NAME` reads every row by one form.

## Labels

A label that says it itself needs nothing: `1` and `2` with `0` for a tie, `A` and `B`, `model_a`, `tie`, `a-is-slightly-better`, the name of an answer's
column, an index into a list of two. Numbers from 1 to 2 are shares for the second answer (1.5 is the tie), and the columns of sets with a published
meaning (`overall_preference` of HelpSteer, `labels` of SHP) are read as published. Where a label could mean two things (0 and 1 beside `response_1`,
`response_2`), the run stops and asks: `--labels first=0,second=1,tie=2`.

Null, empty and unknown labels are dropped as `missing_label`, ties as `tie`; so are pairs whose two scores are equal. `--ties keep` leaves ties in, in the
order of the source, flagged, with `pd_strength` 0.

## Several answers, several votes

`--pairs` says which pairs ranked or rated answers give: `best-worst` (the default), `adjacent` neighbours in the ranking, or `all`. Equal ones are a tie.
Votes on the same two answers, in columns, in a list or in rows of their own, are one pair with the label that most voters gave; no majority is a tie.
KTO rows of one prompt give pairs of a desirable and an undesirable answer; a row without its counterpart is dropped as `unpaired`. Rows that are read
in groups are brought together first, up to 2,000,000 of them.

| column | what it is |
| --- | --- |
| `pd_margin` | score of chosen minus score of rejected |
| `pd_strength` | how clear the label is, 0 (tie) to 1 (certain, unanimous) |
| `pd_votes`, `pd_agreement` | votes counted, and the share of them for the chosen answer |
| `pd_annotations`, `pd_annotators` | each vote that counts (1 for chosen, -1 for rejected, 0 a tie), and whose it is, where that is known |
| `pd_chosen_info`, `pd_rejected_info` | what else the source says of each answer, such as its model |
| `pd_rows` | the source rows of a pair that was made of several |

A row that gives several pairs leads back by its `pd_id`: `12.0`, `12.1`, ... are pairs of row 12. Scored pairs whose scores are closer than `--min-margin`
are dropped as `small_margin`.

## Encodings

Text is UTF-8, with or without a byte-order mark. A file in another encoding is named as such, with a guess; `--encoding gb18030` (or any name that Python
knows) reads it. A single line that is not UTF-8 is dropped as `encoding_error`.
"""
FOLDERS = """
## Folders, splits and configurations

A folder is read as `datasets` reads it: what `save_to_disk` wrote; else the `data_files` of its card; else all data files below it, whose splits are
told by their paths: `data/NAME-00000-of-00001.parquet`, else a word in a folder's name, else a word in a file's name (`train`, `training`;
`validation`, `valid`, `dev`, `val`; `test`, `testing`, `eval`, `evaluation`; between `-`, `.`, `_`, spaces or digits). Without any such word all files
are one set. A path that says two splits is refused.

Several splits are all read and kept apart: `data/NAME/` in the output has the rows of each, `train` first. Copies are looked for across splits, and the
first one stays. `--input-split NAME` reads one. One split alone is called `train` in the output, whatever it was called, since that is what trainers ask
for. `--split` cuts an input of one split only. Files that are given beside a folder count as `train`. Names of splits are words (`test`, `train_prefs`,
`test.clean`), never paths.

Rows whose prompt, in normal form, also stands in `train` are told as the finding `shared_prompts`, with up to 50 of them. They stay: take them out with
`--against`.

Of several configurations the one called `default` or marked `default: true` is read; else choose one with `--input-config NAME`. In a folder whose card
names none, `NAME` is a subfolder.

Every file that was read stands in the report with its rows and its split. Left out, and named in the finding `files_not_read`, are `dataset_infos.json`,
`dataset_info.json`, `dataset_dict.json`, `state.json`, `config.json`, hidden files, files of other kinds, and files whose paths say no split where others
do. Links are followed.

`hf:NAME` and `hf:NAME@REVISION` are datasets of the Hub, fetched only with `--online` (or `PREFDATA_ONLINE=1`), into its own cache, and read as a folder;
the commit stands in `manifest.json` under `input.revisions`. `HF_TOKEN`, `HF_HOME` and `HF_ENDPOINT` count. Loading scripts are not run.
"""


def inputs() -> str:
    """Input: files and row forms."""
    out = [
        NOTE, "# Input\n",
        f"Files: {', '.join(f'`{x}`' for x in cutting.SUFFIXES)}, each also compressed (`.gz`, `.zst`) where it is text, and `.arrow`; JSON is one object a line or"
        " one array. Folders that `load_dataset` or `load_from_disk` reads; `hf:NAME`; globs; several files; `-` for stdin. In Python also a"
        " `datasets.Dataset` or `DatasetDict`, a pandas DataFrame and a list of dicts.\n",
        "These names of columns are known; `--columns prompt=question,chosen=good,rejected=bad` names others. Which answer is the better one is never"
        " guessed.\n",
        table(
            ("part", "known names"),
            [
                ("`chosen`, `rejected`", "; ".join(f"`{c}`, `{r}`" for c, r in shapes.pair_columns._PAIRS)),
                ("`prompt`", ", ".join(f"`{n}`" for n in shapes.columns.PROMPTS)),
                ("`system`", ", ".join(f"`{n}`" for n in shapes.columns.SYSTEMS)),
                ("`context`", "`input` beside `instruction`; it is put behind the prompt"),
            ],
        ),
        table(("shape", "what it is", "example"), [(f"`{s.name}`", s.title, "<br>".join(f"`{json.dumps(row, ensure_ascii=False)}`" for row in s.example)) for s in shapes.SHAPES]),
        FORMS,
        FOLDERS,
    ]  # fmt: skip
    return "\n".join(out)


def run() -> tuple[dict[str, Any], list[str], dict[str, list[str]]]:
    """Manifest, files and columns of a run on the sample."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        prefdata.clean(SAMPLE, out, split="test=0.2", workers=1)
        written = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
        columns = {
            name: pq.read_schema(out / name).names
            for name in (
                "data/train/part-00000.parquet",
                "audit/dropped/part-00000.parquet",
                "audit/decisions.parquet",
                "audit/signals.parquet",
            )
        }
        return json.loads((out / "manifest.json").read_bytes()), written, columns


def files() -> str:
    """The output folder, checked against a run."""
    manifest, written, columns = run()
    if set(written) != set(FILES):
        raise SystemExit(f"FILES and a run differ: {sorted(set(written) ^ set(FILES))}")
    dropped = [c for c in columns["audit/dropped/part-00000.parquet"] if c.startswith("pd_")]
    if unknown := set(dropped) - set(PD):
        raise SystemExit(f"PD lacks {sorted(unknown)}")
    out = [
        NOTE, "# The output folder\n",
        "`prefdata clean IN out/` writes all of it, `prefdata audit IN out/` what is marked so. A folder that is not empty is refused; `--overwrite`"
        " replaces prefdata's own files in it and leaves others alone.\n",
        table(("file", "audit too", "what it is"), [(f"`{n}`", "" if n.startswith(ONLY_CLEAN) else "yes", t) for n, t in FILES.items()]),
        "For chat data, and for text with columns of mixed types, `recipes/llamafactory/train.jsonl` (and `test.jsonl`) is written as well: LLaMA-Factory cannot read these from our Parquet.\n",
        "Where no row is kept, only the card and `audit/dropped/` are written beside what `audit` writes.\n",
        "Other commands add:\n",
        table(("file", "what it is"), [(f"`{n}`", t) for n, t in LATER.items()]),
        "## Beside the set\n",
        "Where a stage weighs pairs, the kept rows have `pd_weight` (1 outside the training split) and, where it says so, `pd_flip_prob`; columns of these names in the input are replaced. `reverse_pairs` writes"
        " `reversed/` (the worse answer under `chosen`) or `ab/` (both orders, with a label): configurations of their own, `load_dataset(\"out\", \"reversed\")`, never a part of `data/`. A row that comes in with a true `pd_reversed`"
        " goes to `reversed/` too. `manifest.json` tells a trainer of label smoothing and of these columns under `train`.\n",
        "## Columns of `audit/dropped/`\n",
        "The columns of the input, and:\n",
        table(("column", "meaning"), [(f"`{c}`", PD[c]) for c in dropped]),
        "## Columns of `audit/decisions.parquet`\n",
        f"{', '.join(f'`{c}`' for c in columns['audit/decisions.parquet'])}. `row` and `peer` are row numbers. `action` is `keep`, `flag`, `drop`, `swap` or `add`; where a stage gives them, `weight` and `flip_prob` follow.\n",
        "## Columns of `audit/signals.parquet`\n",
        f"{', '.join(f'`{c}`' for c in columns['audit/signals.parquet'])}. Named `stage.column`; which ones there are depends on the pipeline and the input.\n",
        "## Keys of `manifest.json`\n",
        f"{', '.join(f'`{k}`' for k in manifest)}. Everything that may differ between two runs on the same data (time, memory, command, versions) stands in `run`.\n",
        "## Recipes\n",
        f"`--export` chooses among {', '.join(f'`{n}`' for n in recipes.NAMES)}; `all` is the default, `none` writes none. Set the model in them before you train. What each trainer reads of a set: [trainers.md](../how-to/trainers.md).\n",
    ]  # fmt: skip
    return "\n".join(out)


def exit_codes() -> str:
    """Exit codes, checked against the numbers in cli.py."""
    text = Path(cli.__file__).read_text("utf-8")
    used = {cli.OK, cli.FAILED, cli.WRONG, cli.BUG, *map(int, re.findall(r"code = (\d+)", text))}
    if used != set(CODES):
        raise SystemExit(f"CODES and cli.py differ: {sorted(used ^ set(CODES))}")
    return "\n".join(
        [NOTE, "# Exit codes\n", table(("code", "meaning"), [(str(c), t) for c, t in sorted(CODES.items())])]
    )


DOCUMENTS = {
    "report-json.md": (
        "report.json", Report,
        f"`audit/report.json` holds every number of the page. `schema_version` is {Report.model_fields['schema_version'].default}; it changes when a key goes or changes its"
        " meaning. Rows are named by their numbers in the input, counted from 0; shares go from 0 to 1. Without a host, a time or a path: the same facts give the"
        " same bytes.",
    ),
    "review-json.md": (
        "review.json", Review,
        "`prefdata review OUT --import FILE...` writes `OUT/audit/review.json`; `clean --verdicts` reads it. It is the work of people: `--overwrite` leaves it alone. How to"
        " review: [review.md](../how-to/review.md).\n\n"
        "A verdict file, which the page exports and `--import` reads, is JSONL, or CSV with the same columns, one verdict a line: `sheet` (the spot-check that it belongs to),"
        " `row`, `pd_id`, `key` (the hash of the pair's texts), `mode` (`open` or `blind`), `verdict`, `reviewer`, `note`, `time`. With the mode `open` a verdict is `accept`,"
        " `reject` or `unsure`; with `blind`, sides hidden, it is `left`, `right`, `same` or `both_bad`. Of a pair that was dropped, `accept` says that dropping it was right.",
    ),
    "diff-json.md": (
        "The comparison of `diff`", Compare,
        "`prefdata diff A B --json` prints it, with the keys `fail_on` and `html` beside it; `report --against` keeps it as `audit/compare.json`. How to compare:"
        " [compare.md](../how-to/compare.md).",
    ),
}  # fmt: skip


def document(title: str, root: type[BaseModel], intro: str) -> str:
    """A JSON document: every object with its keys and types, from the classes that make it."""
    found: dict[str, type[BaseModel]] = {}
    parts_of(root, found)
    where = f"from {root.__module__} import {root.__name__}"
    out = [
        NOTE, f"# {title}\n", f"{intro}\n",
        f"Its JSON schema:\n\n```python\n{where}\n\nschema = {root.__name__}.model_json_schema()\n```\n",
    ]  # fmt: skip
    for name, kind in found.items():
        doc = code(" ".join((kind.__doc__ or "").split()))
        rows = [(f"`{key}`", f"`{type_of(field.annotation)}`") for key, field in kind.model_fields.items()]
        out += [f"## {name}\n", f"{doc}\n", table(("key", "type"), rows)]
    return "\n".join(out)


def parts_of(kind: type[BaseModel], found: dict[str, type[BaseModel]]) -> None:
    """The class and, in the order in which they are named, all classes of its fields."""
    found[kind.__name__] = kind
    todo: list[Any] = [field.annotation for field in kind.model_fields.values()]
    while todo:
        one = todo.pop(0)
        todo[:0] = get_args(one)
        if isinstance(one, type) and issubclass(one, BaseModel) and one.__name__ not in found:
            parts_of(one, found)


def type_of(annotation: Any) -> str:
    """``list[Share] | None`` as it stands in the code."""
    said = annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
    return re.sub(r"(\w+\.)+(?=\w)", "", said)


def pages() -> dict[str, str]:
    """Every page by its file name."""
    return {
        "commands.md": commands(), "stages.md": stages(), "reasons.md": reasons(), "pipelines.md": pipelines(),
        "input.md": inputs(), "output.md": files(), "exit-codes.md": exit_codes(),
        "settings.md": settings(), "training-words.md": training(),
        **{name: document(*told) for name, told in DOCUMENTS.items()},
    }  # fmt: skip


if __name__ == "__main__":
    for page, content in pages().items():
        (HERE / page).write_text(content, encoding="utf-8")
        print(f"docs/reference/{page}", file=sys.stderr)
