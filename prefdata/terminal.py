"""What the commands print about a run: its table, its document for programs, its plan, its progress."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefdata.checks_out import Check
from prefdata.errors import InputError
from prefdata.intake import detect, expected, opened
from prefdata.pipeline import Pipeline, load
from prefdata.report.verdict import gate_told, is_note
from prefdata.result import Options, Result
from prefdata.run import default_workers, run
from prefdata.say import Say, rows, table
from prefdata.stage import Amount


class Progress:
    """Progress of a run on stderr: a bar on a terminal, else a line every ten seconds, or JSON events."""

    def __init__(self) -> None:
        self.bars: Any = None
        self.tasks: dict[str, Any] = {}
        self.last = self.begun = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __call__(self, what: str, done: int, total: int) -> None:
        """See ``run.run``."""
        if not Say.progress:
            return
        now = time.monotonic()
        if Say.log_format == "json":
            event = {"t": round(time.time(), 3), "event": "stage", "stage": what, "done": done, "total": total}
            print(json.dumps(event), file=sys.stderr)
        elif sys.stderr.isatty():
            self._bar(what, done, total)
        elif now - self.last >= 10:
            self.last = now
            spent = now - self.begun
            eta = f" eta {spent / done * (total - done):.0f} s" if done and total > done else ""
            print(f"{what} {done:,}/{total:,} {spent:.0f} s{eta}", file=sys.stderr)

    def _bar(self, what: str, done: int, total: int) -> None:
        # Not before the second call: the pool of workers is forked meanwhile, and a fork with a live thread is unsafe.
        if self.bars is None:
            if not done:
                return
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars

            always, never = (Say.color == word or None for word in ("always", "never"))
            console = Console(stderr=True, force_terminal=always, no_color=never)
            columns = TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
            self.bars = Bars(*columns, console=console, transient=True)
            self.bars.start()
        if what not in self.tasks:
            for task in self.tasks.values():
                self.bars.stop_task(task)
            self.tasks[what] = self.bars.add_task(what, total=total or None)
        self.bars.update(self.tasks[what], completed=done, total=total or None)

    def __exit__(self, *error: object) -> None:
        if self.bars is not None:
            self.bars.stop()


def forms(changes: Mapping[str, int], most: int = 5) -> Iterator[str]:
    """The changes of form, the most frequent first."""
    found = sorted(changes.items(), key=lambda c: -c[1])
    shown = found if len(found) <= most else found[: most - 1]
    yield from (f" form: {change} ({rows(n)})" for change, n in shown)
    if len(shown) < len(found):
        yield f" form: {len(found) - len(shown)} more changes"


def measured(parts: Mapping[str, Any]) -> Iterator[str]:
    """What a run that went on did not have to do again."""
    n, reused = parts["measured"], parts["reused"]
    if reused or parts["why"]:
        why = f": {parts['why']}" if n and parts["why"] else ""
        yield f" measured {n:,} of {n + reused:,} part{'s' if n + reused > 1 else ''}, {reused:,} from an earlier run{why}"


def table_of(result: Result, title: str, inputs: Sequence[str]) -> Iterator[str]:
    """A finished run for people."""
    source, counts, audit = result.report.source, result.counts, result.action == "audit"
    files = ", ".join(f["name"] for f in source["files"][:3]) + (" ..." if len(source["files"]) > 3 else "")
    columns = "".join(f", {k} = {v}" for k, v in source["columns"].items() if k != v)
    partial = ", partial (--limit)" if source["partial"] else ""
    yield f"pipeline: {title}   input: {files}, {rows(source['rows'])}, {source['shape']} ({source['form']} form){columns}{partial}"
    yield from forms(source["changes"])
    yield from measured(result.parts)
    shown = ("drop", "flag", "swap", *(["add"] if audit or counts["added"] else []))
    lines: list[tuple[str, ...]] = [
        ("stage", "asked", "found", "%", "would", "") if audit else ("stage", "in", *shown, "kept", "")
    ]
    for name, made in result.by_stage.items():
        asked, actions = made["in"], {a: made[a] for a in shown}
        found = sum(actions.values())
        words = ", ".join(f"{r} {sum(a.values()):,}" for r, a in made["reasons"].items())
        if audit:
            would = " ".join(a for a, n in actions.items() if n)
            lines.append((name, f"{asked:,}", f"{found:,}", f"{100 * found / max(1, asked):.2f}", would, words))
        else:
            numbers = (asked, *actions.values(), asked - actions["drop"])
            lines.append((name, *(f"{n:,}" for n in numbers), words))
    yield from table(lines, right=range(1, 4 if audit else len(shown) + 3))
    yield from (f" note: {f.text}" for f in result.findings if is_note(f))
    for gate in result.gates:
        yield f"{'✓' if gate['ok'] else '✗'} gate  {gate['gate']}   {gate['text']}   {'ok' if gate['ok'] else 'failed'}"
    share = f"{100 * counts['kept'] / max(1, counts['pairs']):.1f} %"
    if audit:
        write = f"Write a report: prefdata audit {' '.join(inputs)} out/"
        report = f"report  {result.out}/report.html" if result.out else write
        yield f" would keep {counts['kept']:,} of {counts['pairs']:,} ({share}).  {report}"
        return
    where = f" → {result.out}/audit/dropped/" if counts["dropped"] else ""
    more = f"   added {counts['added']:,} beside them" if counts["added"] else ""
    yield f" kept {counts['kept']:,} ({share})   dropped {counts['dropped']:,}{where}{more}"
    if len(result.splits) > 1:
        yield " splits " + ", ".join(f"{s} {n:,}" for s, n in result.splits.items())
    data = f'     dataset  load_dataset("{result.out}")' if any(result.splits.values()) else ""
    yield f"report  {result.out}/report.html{data}"


def checks_of(result: Result) -> list[Check]:
    """What had to hold: every gate, and that something is left."""
    kept, pairs = result.counts["kept"], result.counts["pairs"]
    found = f"{kept:,} of {pairs:,} pairs"
    checks = [Check(g["gate"], g["text"], g["ok"], gate_told(g)) for g in result.gates]
    return [*checks, Check("pairs are left", found, result.something_left, f"{found} are left")]


def document_of(result: Result) -> dict[str, Any]:
    """A finished run for programs."""
    return {
        "action": result.action, "ok": result.ok, "out": None if result.out is None else str(result.out), "counts": result.counts,
        "splits": result.splits, "gates": result.gates, "source": result.report.source, "parts": result.parts,
        "stages": [{"stage": name, **found} for name, found in result.by_stage.items()],
        "findings": [{**vars(f), "rows": list(f.rows)} for f in result.findings],
    }  # fmt: skip


def plan(inputs: Sequence[str], pipeline: Pipeline, title: str, options: Options) -> tuple[list[str], dict[str, Any]]:
    """``--dry-run``: run on the first rows in memory, and say what the whole would be; writes nothing."""
    if "-" in inputs:
        raise InputError("--dry-run cannot look at stdin without using it up", hint="Give a file.")
    begun = time.process_time()
    first = min(options.limit or 1000, 1000)
    head = replace(options, limit=first, workers=1, resume=False, overwrite=False, keep_scratch=False)
    asked = _costs(inputs, pipeline, options)
    trial = run("audit", list(inputs), None, _without(pipeline, asked), head)
    spent = time.process_time() - begun
    source, kept = trial.report.source, trial.counts["kept"]
    size = sum(f["bytes"] for f in source["files"])
    texts = sum(f.stat().st_size for i in inputs if (f := Path(i)).is_file())
    # An upper estimate: each worker holds about ten times a chunk, the main process about as much as two workers.
    memory = int(((options.workers or default_workers()) + 2) * (150e6 + 10 * options.chunk_bytes))
    stages = {s.name(): s.model_dump(mode="json") for s in pipeline.stages}
    document = {
        "pipeline": title, "stages": [{n: p} for n, p in stages.items()], "read": source["rows"],
        "shape": source["shape"], "form": source["form"], "columns": source["columns"], "input_bytes": max(size, texts),
        "would_keep_of_read": kept, "not_tried": asked, "estimate": {"cpu_seconds_for_1000_rows": round(spent, 2), "memory_bytes": memory},
    }  # fmt: skip
    columns = ", ".join(f"{k} = {v}" for k, v in source["columns"].items())
    return [
        f"pipeline: {title}",
        *(f"  {name:<20} {', '.join(f'{k}={v}' for k, v in given.items())}".rstrip() for name, given in stages.items()),
        f"input: {rows(source['rows'])} read, {source['shape']} ({source['form']} form), {columns}",
        *(f"{name} is not tried here: it {text}" for name, text in asked.items()),
        f"of these it would keep {kept:,}; {spent:.1f} CPU s with start-up; memory at most about {memory / 1e9:.1f} GB",
        "nothing was written (--dry-run)",
    ], document  # fmt: skip


def _costs(inputs: Sequence[str], pipeline: Pipeline, options: Options) -> dict[str, str]:
    """What stages say that ask for something (see ``Stage.notice``): of the whole input, which is not measured for it."""
    if not pipeline.notices(Amount(1, 1)):
        return {}
    with tempfile.TemporaryDirectory(prefix="prefdata-") as work:
        planned = opened(list(inputs), Path(work), options)
        head, reading, _ = detect(planned, options)
        return pipeline.notices(expected(planned, head, reading, options.limit))


def _without(pipeline: Pipeline, names: Mapping[str, str]) -> Pipeline:
    """The pipeline without these stages; at least what says whether a row is a pair."""
    left = [i for i, stage in enumerate(pipeline.stages) if stage.name() not in names]
    if not left:
        return load("certain", only=("malformed",))[0]
    return replace(pipeline, stages=[pipeline.stages[i] for i in left], names=[pipeline.names[i] for i in left])
