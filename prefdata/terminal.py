"""What the commands print: tables for people, documents for programs, progress. Called by ``cli`` alone."""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from prefdata.errors import InputError, OutputError
from prefdata.pipeline import Pipeline, describe
from prefdata.stage import Stage

EXTRAS = {
    "fast": ("numba", "splintr"), "embed": ("wordllama", "sacrebleu"), "models": ("sentence_transformers", "torch"), "ray": ("ray",),
}  # fmt: skip
_BASE = ("datasets", "pandas", "pyarrow", "numpy", "rapidfuzz", "transformers", "orjson", "pydantic", "rensa", "scipy")


class Progress:
    """Progress of a run on stderr: a bar on a terminal, else a line every ten seconds, or JSON events."""

    def __init__(self, console: Console, log_format: str, wanted: bool) -> None:
        self.console, self.json, self.wanted = console, log_format == "json", wanted
        self.bars: Any = None
        self.tasks: dict[str, Any] = {}
        self.last = self.begun = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __call__(self, what: str, done: int, total: int) -> None:
        """See ``run.run``."""
        if not self.wanted:
            return
        now = time.monotonic()
        if self.json:
            event = {"t": round(time.time(), 3), "event": "stage", "stage": what, "done": done, "total": total}
            self.console.file.write(json.dumps(event) + "\n")
        elif self.console.is_terminal:
            self._bar(what, done, total)
        elif now - self.last >= 10:
            self.last = now
            spent = now - self.begun
            eta = f" eta {spent / done * (total - done):.0f} s" if done and total > done else ""
            self.console.file.write(f"{what} {done:,}/{total:,} {spent:.0f} s{eta}\n")

    def _bar(self, what: str, done: int, total: int) -> None:
        # Not before the second call: the pool of workers is forked meanwhile, and a fork with a live thread is unsafe.
        if self.bars is None:
            if not done:
                return
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars

            self.bars = Bars(
                TextColumn("{task.description:<18}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=self.console,
                transient=True,
            )
            self.bars.start()
        if what not in self.tasks:
            for task in self.tasks.values():
                self.bars.stop_task(task)
            self.tasks[what] = self.bars.add_task(what, total=total or None)
        self.bars.update(self.tasks[what], completed=done, total=total or None)

    def __exit__(self, *error: object) -> None:
        if self.bars is not None:
            self.bars.stop()


# ---------------------------------------------------------------------------------------------- a run


def show(console: Console, result: Any, title: str, inputs: Sequence[str]) -> None:
    """The table of a finished run."""
    source = result.report.source
    audit = result.action == "audit"
    counts = result.counts
    files = ", ".join(f["name"] for f in source["files"][:3]) + (" ..." if len(source["files"]) > 3 else "")
    columns = ", ".join(f"{k} = {v}" for k, v in source["columns"].items() if k != v)
    note = f", {columns}" if columns else ""
    partial = ", partial (--limit)" if source["partial"] else ""
    print_(
        console,
        f"pipeline: {title}   input: {files}, {source['rows']:,} rows, {source['shape']} ({source['form']} form){note}{partial}",
    )
    table = Table(box=None, pad_edge=True, header_style="")
    head = (
        ("stage", "asked", "found", "%", "would", "") if audit else ("stage", "in", "drop", "flag", "swap", "kept", "")
    )
    for i, name in enumerate(head):
        table.add_column(name, justify="left" if i == 0 or name in ("would", "") else "right")
    for name, made in zip(result.stages, result.made, strict=True):
        actions = {a: made.count(a) for a in ("drop", "flag", "swap")}
        found = sum(actions.values())
        words = ", ".join(f"{r} {sum(a.values()):,}" for r, a in made.by_reason().items())
        if audit:
            would = " ".join(a for a, n in actions.items() if n)
            table.add_row(name, f"{len(made):,}", f"{found:,}", f"{100 * found / max(1, len(made)):.2f}", would, words)
        else:
            numbers = [f"{n:,}" for n in actions.values()]
            table.add_row(name, f"{len(made):,}", *numbers, f"{len(made) - actions['drop']:,}", words)
    print_table(console, table)
    for finding in result.findings:
        if finding.name == "length_not_checked":
            print_(console, f" note: {finding.text}")
    share = f"{100 * counts['kept'] / max(1, counts['pairs']):.1f} %"
    for gate in result.gates:
        print_(
            console,
            f"{'✓' if gate['ok'] else '✗'} gate  {gate['gate']}   {gate['text']}   {'ok' if gate['ok'] else 'failed'}",
        )
    if audit:
        hint = (
            f"report  {result.out}/report.html"
            if result.out
            else f"Write a report: prefdata audit {' '.join(inputs)} out/"
        )
        print_(console, f" would keep {counts['kept']:,} of {counts['pairs']:,} ({share}).  {hint}")
        return
    where = f" → {result.out}/audit/dropped/" if counts["dropped"] else ""
    print_(console, f" kept {counts['kept']:,} ({share})   dropped {counts['dropped']:,}{where}")
    if len(result.splits) > 1:
        print_(console, " splits " + ", ".join(f"{s} {n:,}" for s, n in result.splits.items()))
    data = f'     dataset  load_dataset("{result.out}")' if counts["kept"] else ""
    print_(console, f"report  {result.out}/report.html{data}")


def print_(console: Console, text: str) -> None:
    """A line as it is: no markup, no wrapping."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_table(console: Console, table: Table) -> None:
    """A table without the blanks that would fill each line."""
    with console.capture() as held:
        console.print(table, width=max(console.width, 200), no_wrap=True)
    for line in held.get().splitlines():
        print_(console, line.rstrip())


def document_of(result: Any) -> dict[str, Any]:
    """A finished run for programs."""
    return {
        "action": result.action, "ok": result.ok, "out": None if result.out is None else str(result.out), "counts": result.counts,
        "splits": result.splits, "gates": result.gates, "source": result.report.source,
        "stages": [
            {"stage": n, "in": len(d), **{a: d.count(a) for a in ("drop", "flag", "swap")}, "reasons": d.by_reason()}
            for n, d in zip(result.stages, result.made, strict=True)
        ],
        "findings": [{"name": f.name, "value": f.value, "n": f.n, "text": f.text, "low": f.low, "high": f.high, "when": f.when, "rows": list(f.rows)} for f in result.findings],
    }  # fmt: skip


def plan(
    inputs: Sequence[str], pipeline: Pipeline, title: str, options: Any, say: Callable[[str], None]
) -> dict[str, Any]:
    """``--dry-run``: run on the first rows in memory, and say what the whole would be; writes nothing."""
    from dataclasses import replace

    from prefdata.run import run

    if list(inputs) == ["-"]:
        raise InputError("--dry-run cannot look at stdin without using it up", hint="Give a file.")
    begun = time.process_time()
    trial = run(
        "audit",
        list(inputs),
        None,
        pipeline,
        replace(options, limit=min(options.limit or 1000, 1000), workers=1, resume=False, overwrite=False),
    )
    spent = time.process_time() - begun
    source = trial.report.source
    size = sum(f["bytes"] for f in source["files"])
    texts = sum(f.stat().st_size for i in inputs if (f := Path(i)).is_file())
    document = {
        "pipeline": title, "stages": [{s.name(): s.model_dump(mode="json")} for s in pipeline.stages], "read": source["rows"],
        "shape": source["shape"], "form": source["form"], "columns": source["columns"], "input_bytes": max(size, texts),
        "would_keep_of_read": trial.counts["kept"], "estimate": {"cpu_seconds_for_1000_rows": round(spent, 2), "memory_bytes": _memory(options)},
    }  # fmt: skip
    say(f"pipeline: {title}")
    for stage in pipeline.stages:
        parameters = ", ".join(f"{k}={v}" for k, v in stage.model_dump(mode="json").items())
        say(f"  {stage.name():<20} {parameters}")
    say(
        f"input: {source['rows']:,} rows read, {source['shape']} ({source['form']} form), {', '.join(f'{k} = {v}' for k, v in source['columns'].items())}"
    )
    say(
        f"of these it would keep {trial.counts['kept']:,}; {spent:.1f} CPU s with start-up; memory at most about {_memory(options) / 1e9:.1f} GB"
    )
    say("nothing was written (--dry-run)")
    return document


def _memory(options: Any) -> int:
    """An upper estimate: each worker holds about ten times a chunk, the main process about as much as two workers."""
    from prefdata.run import default_workers

    return int(((options.workers or default_workers()) + 2) * (150e6 + 10 * options.chunk_bytes))


# ---------------------------------------------------------------------------------------------- stages and rows


def stages_document(known: Mapping[str, type[Stage]]) -> dict[str, Any]:
    """All stages and shapes for programs."""
    from prefdata.shapes import SHAPES

    shapes = [{"shape": s.NAME, "title": s.TITLE, "example": s.EXAMPLE} for s in SHAPES]
    return {"stages": [stage_document(k) for k in known.values()], "shapes": shapes}


def stage_document(kind: type[Stage]) -> dict[str, Any]:
    """One stage for programs."""
    parameters = {n: describe(kind, n) for n in kind.model_fields}
    return {
        "stage": kind.name(),
        **kind.documentation(),
        "scale": kind.scale,
        "drops": kind.drops,
        "parameters": parameters,
        "reasons": dict(kind.reasons),
    }


def show_stages(console: Console, known: Mapping[str, type[Stage]]) -> None:
    """All stages in the order of the full pipeline, and the input shapes."""
    from prefdata.pipeline import load
    from prefdata.shapes import SHAPES

    order = [n for n in load("full")[0].names if n in known]
    for name in [*order, *sorted(set(known) - set(order))]:
        print_(console, f"{name:<20} {known[name].documentation()['asks']}")
        for parameter in known[name].model_fields:
            print_(console, f"{'':<20}   {parameter}: {describe(known[name], parameter)}")
    print_(console, "\ninput shapes")
    for shape in SHAPES:
        print_(console, f"{shape.NAME:<20} {shape.TITLE}\n{'':<20}   {json.dumps(shape.EXAMPLE, ensure_ascii=False)}")


def show_stage(console: Console, kind: type[Stage]) -> None:
    """One stage's documentation."""
    notes = kind.documentation()
    print_(console, f"{kind.name()}: {notes['asks']}")
    for label, key in (
        ("Why it matters", "why"),
        ("How it decides", "how"),
        ("What it misses", "misses"),
        ("References", "references"),
    ):
        if notes[key]:
            print_(console, f"\n{label}: {notes[key]}")
    if kind.scale:
        print_(console, f"\nScore: {kind.scale}" + (f"; drops {kind.drops} the limit" if kind.drops else ""))
    print_(console, "\nparameters")
    for name in kind.model_fields:
        print_(console, f"  {name}: {describe(kind, name)}")
    print_(console, "\nreason words")
    for word, text in kind.reasons.items():
        print_(console, f"  {word}: {' '.join(text.split())}")


def row_document(out: Path, asked: str) -> dict[str, Any]:
    """Every decision about one row, and where it is now."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = out / "audit/decisions.parquet"
    decisions = pq.read_table(path)
    held = _find(out, asked)
    number = int(held["row"]) if held and held["row"] is not None else int(asked) if asked.isdigit() else -1
    mine = decisions.filter(pc.equal(decisions["row"], number)).to_pylist()
    if not mine:
        last = pc.max(decisions["row"]).as_py()
        raise InputError(f"has no row {asked}", where=str(out), hint=f"Rows go from 0 to {last}; a pd_id works too.")
    signals = pq.read_table(out / "audit/signals.parquet")
    measured = signals.filter(pc.equal(signals["row"], number)).to_pylist()
    return {
        "row": number,
        "state": held["state"] if held else "kept",
        "decisions": mine,
        "signals": measured[0] if measured else {},
        "pair": held["pair"] if held else None,
    }


def _find(out: Path, asked: str) -> dict[str, Any] | None:
    """The published row with this pd_id, kept or dropped."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for folder, state in ((out / "data", "kept"), (out / "audit/dropped", "dropped")):
        for path in sorted(folder.rglob("*.parquet")):
            ids = pq.read_table(path, columns=["pd_id"])["pd_id"]
            at = pc.index(ids, asked).as_py()
            if at >= 0:
                pair = pq.read_table(path).slice(at, 1).to_pylist()[0]
                return {"state": state, "row": int(asked) if asked.isdigit() else None, "pair": pair}
    return None


def show_row(console: Console, document: Mapping[str, Any]) -> None:
    """One row's history as a table."""
    table = Table(box=None, header_style="")
    for name in ("stage", "action", "reason", "score", "limit", "peer"):
        table.add_column(name)
    for made in document["decisions"]:
        values = [made[k] for k in ("stage", "action", "reason", "score", "limit", "peer")]
        table.add_row(*("" if v is None else f"{v:.4g}" if isinstance(v, float) else str(v) for v in values))
    print_(console, f"row {document['row']}: {document['state']}")
    print_table(console, table)
    for key, value in (document["pair"] or {}).items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            print_(console, f" {key:<10} {text[:200]!r}{'...' if len(text) > 200 else ''}")


# ---------------------------------------------------------------------------------------------- init and doctor


def start_folder(folder: Path) -> list[str]:
    """The files of ``prefdata init``; refuses to replace any."""
    from prefdata.pipeline import find, json_schema

    home = Path(__file__).parent
    text = find("default")[1].read_text(encoding="utf-8")
    files = {
        "prefdata.yaml": "# yaml-language-server: $schema=./prefdata.schema.json\n" + text,
        "prefdata.schema.json": json.dumps(json_schema(), indent=1),
        "pipelines/strict.yaml": find("strict")[1].read_text(encoding="utf-8"),
        "sample.jsonl": (home / "samples/planted.jsonl").read_text(encoding="utf-8"),
        ".gitignore": "out/\nruns/\n.work/\n",
    }  # fmt: skip
    there = next((n for n in files if (folder / n).exists()), None)
    if there is not None:
        raise OutputError(
            f"{there} exists already", where=str(folder), hint="Nothing was written; choose another folder."
        )
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return list(files)


def doctor_document() -> dict[str, Any]:
    """Versions, machine and extras."""
    versions: dict[str, str | None] = {}
    for name in _BASE:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    extras = {extra: [m for m in modules if find_spec(m) is None] for extra, modules in EXTRAS.items()}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    return {
        "prefdata": version("prefdata"), "python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(), "memory_bytes": memory, "disk_free_bytes": shutil.disk_usage(".").free,
        "online": os.environ.get("PREFDATA_ONLINE") == "1", "versions": versions,
        "extras": {e: {"works": not lacking, "lacks": lacking} for e, lacking in extras.items()},
        "broken": [n for n, v in versions.items() if v is None],
    }  # fmt: skip


def show_doctor(console: Console, found: Mapping[str, Any]) -> None:
    """The block to paste into an issue."""
    print_(console, f"prefdata {found['prefdata']}, Python {found['python']}, {found['system']}, {found['cores']} cores, "
           f"{found['memory_bytes'] / 1e9:.1f} GB memory, {found['disk_free_bytes'] / 1e9:.0f} GB disk free, {'online' if found['online'] else 'offline'}")  # fmt: skip
    print_(console, "  " + ", ".join(f"{n} {v or 'MISSING'}" for n, v in found["versions"].items()))
    for extra, state in found["extras"].items():
        hint = "works" if state["works"] else f"lacks {', '.join(state['lacks'])}: pip install 'prefdata[{extra}]'"
        print_(console, f"  [{extra}] {hint}")
    for name in found["broken"]:
        print_(console, f"  broken: {name} is required and missing")
