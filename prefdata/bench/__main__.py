"""``python -m prefdata.bench corpus|speed|reading|report|labels|dpo``."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from prefdata.bench import dpo, label_report, sentences, tokenizer
from prefdata.bench import reading as reading_cost
from prefdata.bench import report as report_cost
from prefdata.bench.corpus import Shares, make_corpus
from prefdata.bench.public_sets import SETS
from prefdata.bench.run import Setting, markdown, run
from prefdata.errors import PrefdataError


def main(arguments: list[str] | None = None) -> int:
    """Parse the arguments, do what they ask, return the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m prefdata.bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    corpus = commands.add_parser("corpus", help="write a set of pairs with planted faults, and the truth about them")
    corpus.add_argument("rows", type=int)
    corpus.add_argument("out", type=Path)
    corpus.add_argument("--truth", type=Path, help="default: OUT with the suffix .truth.jsonl")
    corpus.add_argument("--mean-bytes", type=int, default=1930)
    for name, share in vars(Shares()).items():
        corpus.add_argument(f"--{name.replace('_', '-')}", type=float, default=share, metavar="SHARE")
    speed = commands.add_parser("speed", help="prefdata clean against a script by hand")
    speed.add_argument("--rows", type=int, action="append", help="repeatable; default 20000")
    speed.add_argument("--rounds", type=int, default=2)
    speed.add_argument("-p", "--pipeline", default="certain")
    speed.add_argument("--workers", type=int, default=2)
    speed.add_argument("--tokenizer", help="folder of a fast tokenizer; default: SmolLM2 or DeepSeek if installed")
    speed.add_argument("--no-hand", action="store_true", help="leave the script by hand out")
    speed.add_argument("--work", type=Path, help="where corpora and outputs stay; default: a folder that is removed")
    speed.add_argument("--out", type=Path, help="also write the table there")
    reading = commands.add_parser("reading", help="reading alone against plain orjson and Arrow")
    reading.add_argument("--rows", type=int, default=20_000)
    reading.add_argument("--rounds", type=int, default=5)
    reading.add_argument("--seed", type=int, default=1)
    page = commands.add_parser("report", help="the report of a large set: seconds after the decisions, and size")
    page.add_argument("--rows", type=int, default=1_000_000)
    page.add_argument("--seed", type=int, default=1)
    page.add_argument("--out", type=Path, help="also write the page there")
    labels = commands.add_parser(
        "labels", help="label_noise on published sets with planted flips, beside what it must reach"
    )
    labels.add_argument("--data", type=Path, required=True, help="folder of the published sets")
    labels.add_argument("--sets", type=lambda text: text.split(","), help="some of them only, by name")
    labels.add_argument(
        "--seeds", type=int, default=20, help="runs with planted flips; the slower kinds have 5 at most"
    )
    labels.add_argument("--random", type=int, default=100, help="runs with labels drawn by chance")
    labels.add_argument("--workers", type=int, default=2)
    labels.add_argument("--tokenizer", help="folder of a fast tokenizer; default: SmolLM2 or DeepSeek if installed")
    labels.add_argument("--out", type=Path, help="also write the report there")
    labels.add_argument("--kept", type=Path, help="file for finished runs, so that an interrupted report goes on")
    labels.add_argument("--records", type=Path, help="also write every run's figures there, as JSON")
    training = commands.add_parser("dpo", help="what cleaning is worth to a tiny DPO run, and what guards cost")
    training.add_argument("--pairs", type=int, default=1000)
    training.add_argument("--held", type=int, default=200)
    training.add_argument("--flipped", type=float, default=0.2, metavar="SHARE")
    training.add_argument("--seeds", type=int, default=3)
    training.add_argument(
        "--model", help="folder of the real model for the guards' cost; default: SmolLM2 if installed"
    )
    training.add_argument("--no-guards", action="store_true", help="leave the guards' cost out")
    training.add_argument(
        "--out", type=Path, help="also write the report there; what was written by hand below it is kept"
    )
    for one in (corpus, speed):
        one.add_argument("--from", dest="sources", type=Path, nargs="+", default=[], help="text, JSON, JSONL (.gz)")
        one.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(given)
    try:
        if options.command == "corpus":
            shares = Shares(**{name: getattr(options, name) for name in vars(Shares())})
            truth = options.truth or options.out.with_suffix(".truth.jsonl")
            made = make_corpus(
                options.sources, options.rows, options.out, truth, options.seed, shares, options.mean_bytes
            )
            print(json.dumps(made))
            return 0
        with tempfile.TemporaryDirectory(prefix="prefdata-bench-") as scratch:
            told = partial(print, file=sys.stderr, flush=True)
            if options.command == "labels":
                print(_labels(options, Path(scratch), told))
                return 0
            if options.command == "dpo":
                print(_dpo(options, Path(scratch), told))
                return 0
            if options.command == "reading":
                print(reading_cost.run(options.rows, options.rounds, options.seed, Path(scratch), told))
                return 0
            if options.command == "report":
                print(report_cost.run(options.rows, options.seed, Path(scratch), told, options.out))
                return 0
            setting = Setting(
                options.rows or [20_000], options.rounds, options.sources, options.tokenizer, options.seed,
                not options.no_hand, options.workers, options.pipeline, options.work or Path(scratch),
            )  # fmt: skip
            sizes, origin = run(setting, lambda line: print(line, file=sys.stderr, flush=True))
        table = markdown(sizes, origin, ["python", "-m", "prefdata.bench", *given])
        if options.out:
            options.out.write_text(table, encoding="utf-8")
        print(table)
    except (PrefdataError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _labels(options: argparse.Namespace, scratch: Path, told: Callable[[str], None]) -> str:
    """Make the report on wrong labels, and write it where it was asked for."""
    folder, _ = tokenizer.find(options.tokenizer, scratch, sentences.read([]).languages[0].sentences)
    few, sets = min(5, options.seeds), options.sets or tuple(SETS)
    asked = label_report.Asked(options.seeds, few, options.random, options.workers, str(folder), sets, options.kept)

    def tell(what: str, done: int, total: int) -> None:
        if done == total or done % 100 == 0:
            told(f"{what} {done}/{total}")

    found = label_report.measure(options.data, asked, tell)
    if options.records:
        options.records.write_text(json.dumps(found), encoding="utf-8")
    # Where the data lie and what is written beside the report decides no figure.
    some = f" --sets {','.join(options.sets)}" if options.sets else ""
    command = f"python -m prefdata.bench labels --data FOLDER --seeds {options.seeds} --random {options.random}{some}"
    text = "\n".join(label_report.markdown(found, command, asked))
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    return text


def _dpo(options: argparse.Namespace, scratch: Path, told: Callable[[str], None]) -> str:
    """Make the report on training, and write it where it was asked for."""
    o = options
    found = dpo.measure(scratch, o.pairs, o.held, o.flipped, o.seeds, o.model, not o.no_guards, told)
    command = f"python -m prefdata.bench dpo --pairs {o.pairs} --held {o.held} --flipped {o.flipped} --seeds {o.seeds}"
    text = dpo.markdown(found, command)
    if o.out:
        o.out.write_text(dpo.written(o.out, text), encoding="utf-8")
    told(f"{found['seconds']} s without the guards' cost")
    return text


if __name__ == "__main__":
    raise SystemExit(main())
