"""``audit`` and ``clean``: from the input to ``out/``. One path for both; clean adds the second pass."""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prefdata import gates, output, recipes, schema, sources, split, words
from prefdata.cutting import Format, Source
from prefdata.decisions import Decisions, Finding, Outcome, Signals, apply
from prefdata.engines import Engine, engine
from prefdata.errors import InputError
from prefdata.passes import Clock, Form, Measured, MeasureTask, PublishTask, measure, publish
from prefdata.pipeline import Pipeline, load
from prefdata.report.model import Report
from prefdata.report.render import render
from prefdata.report.summary import Facts, summarise
from prefdata.shapes import Columns, find_columns
from prefdata.spool import Spool, reusable

Action = Literal["audit", "clean"]
Progress = Callable[[str, int, int], None]
_SCORES = (("score_chosen", "score_rejected"), ("chosen_score", "rejected_score"), ("chosen_rating", "rejected_rating"))
_HEAD = 1000


@dataclass(frozen=True)
class Options:
    """Options of a run; the names are those of the command line."""

    columns: Mapping[str, str] = field(default_factory=dict)
    input_format: Format = "auto"
    input_split: str | None = None
    format: Literal["auto", "text", "chat", "implicit"] = "auto"
    split: str | None = None
    export: str = "all"
    sample: float = 0.05
    limit: int | None = None
    engine: str = "local"
    workers: int | None = None
    seed: int = 0
    resume: bool = False
    overwrite: bool = False
    keep_scratch: bool = False
    on_bad_row: Literal["skip", "stop"] = "skip"
    license: str | None = None
    command: str = ""
    chunk_bytes: int = sources.CHUNK_BYTES  # private: tests cut small files into many chunks


@dataclass
class Result:
    """What a run found; ``decisions`` and ``dataset`` are read from ``out`` when asked for."""

    action: Action
    out: Path | None
    stages: list[str]
    made: list[Decisions]
    outcome: Outcome
    report: Report
    gates: list[dict[str, Any]]
    splits: dict[str, int]

    @property
    def counts(self) -> dict[str, Any]:
        """Pairs in, kept, dropped, flagged, and dropped by reason."""
        kept = int(self.outcome.kept.sum())
        reasons: Counter[str] = Counter()
        for made in self.made:
            reasons.update({r: a["drop"] for r, a in made.by_reason().items() if "drop" in a})
        total = len(self.outcome.stage)
        flagged = int((self.outcome.kept & self.outcome.flagged).sum())
        return {"pairs": total, "kept": kept, "dropped": total - kept, "flagged": flagged, "reasons": dict(reasons)}

    @property
    def ok(self) -> bool:
        """True if every gate holds and something is left."""
        return all(g["ok"] for g in self.gates) and self.counts["kept"] > 0

    @cached_property
    def decisions(self) -> pa.Table:
        """One row a decision: row, stage, action, reason, score, limit, peer."""
        tables = [d.table(n) for n, d in zip(self.stages, self.made, strict=True)]
        return pa.concat_tables(tables, promote_options="default").unify_dictionaries()

    @property
    def findings(self) -> list[Finding]:
        """Statements about the whole set, of all stages."""
        return [f for made in self.made for f in made.findings]

    @cached_property
    def dataset(self) -> Any:
        """The cleaned set as a ``datasets.DatasetDict``; only a finished ``clean`` has one."""
        if self.action != "clean" or self.out is None or not self.counts["kept"]:
            raise InputError("there is no cleaned dataset", hint="Call prefdata.clean(input, out), and see counts.")
        from datasets import load_dataset

        return load_dataset(str(self.out))


def audit(
    source: Any, out: str | os.PathLike[str] | None = None, pipeline: str | Pipeline | None = None, **options: Any
) -> Result:
    """Measure and decide; with ``out``, write a report there. Changes nothing.

    ``source`` is a path, a glob, a list of paths, ``-``, a ``datasets.Dataset``, a DataFrame or a list of dicts;
    ``options`` are the fields of ``Options``. Raises PrefdataError with what is wrong and what to do.
    """
    return run("audit", source, None if out is None else Path(out), _pipeline(pipeline), Options(**options))


def clean(source: Any, out: str | os.PathLike[str], pipeline: str | Pipeline | None = None, **options: Any) -> Result:
    """Audit, then carry the decisions out: writes the dataset, the dropped rows and the report to ``out``."""
    return run("clean", source, Path(out), _pipeline(pipeline), Options(**options))


def _pipeline(given: str | Pipeline | None) -> Pipeline:
    return given if isinstance(given, Pipeline) else load(given)[0]


def run(
    action: Action,
    source: Any,
    out: Path | None,
    pipeline: Pipeline,
    options: Options,
    progress: Progress | None = None,
) -> Result:
    """The whole way; ``progress(what, done, total)`` hears of each chunk and stage."""
    started, cpu = time.time(), _cpu()
    tell = progress or (lambda what, done, total: None)
    with ExitStack() as stack:
        if out is None:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="prefdata-")))
        else:
            work = output.prepare(out, overwrite=options.overwrite, resume=options.resume, inputs=_inputs(source))
            stack.enter_context(output.writing(out))
            stack.enter_context(output.tidying(out, resumable=options.resume or options.keep_scratch))
        shares = split.parse(options.split) if options.split else {}
        exports = recipes.chosen(options.export)
        tell("reading", 0, 0)
        planned = sources.open_source(
            source,
            work,
            fmt=options.input_format,
            split=options.input_split,
            limit=options.limit,
            chunk_bytes=options.chunk_bytes,
        )
        columns, scores, form = _detect(planned, options)
        machine = engine(options.engine, options.workers or default_workers())
        stack.callback(machine.close)
        spool = _measure(machine, planned, columns, scores, form, pipeline, options, work, tell)
        if options.format == "text" and spool.form == "chat":
            raise InputError(
                "--format text: the rows are chat messages", where=planned.title, hint="Use --format chat or auto."
            )
        signals = spool.signals(options.seed)
        divide = (lambda s, near: split.assign(s, shares, near, options.seed)) if shares else None
        clock = Clock()
        made, splits = pipeline.decide(signals, divide, tell, clock)
        outcome = apply(signals.total, made)
        names = [s.name() for s in pipeline.stages]
        kept = {s: int((outcome.kept & (splits == i)).sum()) for i, s in enumerate(("train", *shares))}
        found = gates.counts(names, made, sum(kept.values()), signals.total, _longer(signals, outcome))
        checked = [g.check(found, signals.total) for g in pipeline.gates]
        tell("report", 0, 1)
        facts = Facts(
            signals=signals, stages=pipeline.stages, decisions=made, outcome=outcome, read=spool.rows,
            source=_source(planned, spool, columns, options), pipeline=pipeline.name, config=pipeline.resolved(),
            gates=checked, action=action, seed=options.seed, version=version("prefdata"), splits=kept,
        )  # fmt: skip
        report = summarise(facts)
        clock("report")
        result = Result(action, out, names, made, outcome, report, checked, kept)
        if out is None:
            return result
        output.clear(out)
        files: dict[str, str] = {}
        if action == "clean" and any(kept.values()):
            form_out: Any = "implicit" if options.format == "implicit" else spool.form
            files = _publish(
                machine, spool, signals.total, outcome, made, names, splits, ("train", *shares), out, form_out, tell
            )
            rows = output.spotcheck(np.flatnonzero(outcome.kept), options.sample, options.seed)
            output.write_spotcheck(out / "spotcheck.csv", rows, spool.rows, options.seed)
            recipes.write(out, form_out, [s for s, n in kept.items() if n], _max_length(pipeline), exports)
            funnel = [(n, len(d), d.count("drop")) for n, d in zip(names, made, strict=True)]
            facts_card = output.Card(
                planned.title,
                kept,
                result.counts["dropped"],
                signals.total,
                form_out,
                pipeline.name,
                funnel,
                options.license,
                version("prefdata"),
                files,
            )
            output.put(out / "README.md", output.card(facts_card))
        output.write_decisions(out / "audit/decisions.parquet", names, made)
        output.write_signals(out / "audit/signals.parquet", signals, splits if shares else None)
        output.put(out / "audit/report.json", output.dump(report.model_dump(mode="json")))
        clock("writing")
        facts_of_run = _run_facts(options, machine, spool, clock, started, cpu)
        output.put(out / "report.html", render(report, facts_of_run))
        output.put(out / "audit/run.log.jsonl", _log(facts_of_run))
        status = "empty" if not any(kept.values()) else "complete" if all(g["ok"] for g in checked) else "gate_failed"
        output.finish(out, {
            "schema_version": 1, "prefdata": version("prefdata"), "action": action, "status": status,
            "input": facts.source, "counts": result.counts, "splits": kept, "gates": checked, "seed": options.seed,
            "stages": {n: {"in": len(d), **{a: d.count(a) for a in ("drop", "flag", "swap")}, "reasons": d.by_reason()} for n, d in zip(names, made, strict=True)},
            "config": pipeline.resolved(), "files": files, "run": facts_of_run,
        }, options.keep_scratch)  # fmt: skip
        return result


def default_workers() -> int:
    """As many as ``PREFDATA_WORKERS`` says, else as there are cores for this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(os.environ.get("PREFDATA_WORKERS", cores))


def _inputs(source: Any) -> list[Path]:
    given = source if isinstance(source, list) else [source]
    return [Path(s) for s in given if isinstance(s, str | os.PathLike) and s != "-"]


def _detect(planned: Source, options: Options) -> tuple[Columns, tuple[str, str] | None, Form]:
    """What the first rows say: which columns hold the pair and its scores, and whether the set is text or chat."""
    head = planned.head(_HEAD)
    if not head:
        from prefdata.reading import BadRow, read

        first = next((r for r in read(planned.chunks[0]).rows if isinstance(r, BadRow)), None)
        raise InputError(f"no readable row ({first.fault.detail})" if first else "no rows", where=planned.title)
    names = list(dict.fromkeys(str(n) for row in head for n in row))
    columns = find_columns(names, options.columns, planned.title)
    scores = next((pair for pair in _SCORES if set(pair) <= set(names)), None)
    chat = options.format in ("chat", "implicit") or any(
        isinstance(side := row.get(c), list) and any(isinstance(m, Mapping) for m in side)
        for row in head for c in (columns.prompt, columns.chosen, columns.rejected) if c
    ) or any(isinstance(row.get(columns.system), str) and row[columns.system].strip() for row in head if columns.system)  # fmt: skip
    return columns, scores, "chat" if chat else "text"


def _measure(
    machine: Engine, planned: Source, columns: Columns, scores: tuple[str, str] | None, form: Form,
    pipeline: Pipeline, options: Options, work: Path, tell: Progress,
) -> Spool:  # fmt: skip
    """The first pass, over the chunks that no earlier run has measured; once more if the form turns out to be chat."""
    base = {
        "version": version("prefdata"), "files": [f.sha256 for f in planned.files], "columns": columns.named(), "scores": scores,
        "form": form, "limit": options.limit, "stop": options.on_bad_row, "chunk_bytes": options.chunk_bytes, "split": options.input_split,
    }  # fmt: skip
    stages = {
        n: {f: p for f, p in parameters.items() if f in s.measured}
        for s, (n, parameters) in zip(pipeline.stages, pipeline.specs, strict=True)
    }
    marks = {
        n: f"{type(s).__module__} {json.dumps(stages[n], sort_keys=True)} {s.depends_on()}"
        for n, s in zip(pipeline.names, pipeline.stages, strict=True)
    }
    tasks = [
        MeasureTask(
            chunk, columns, scores, form, tuple(pipeline.specs), options.on_bad_row == "stop", planned.files[chunk.file].name,
            str(work / f"spool-{chunk.index:05d}.arrow"), str(work / f"signals-{chunk.index:05d}.arrow"),
            str(work / f"measured-{chunk.index:05d}.json"), {"base": {**base, "chunk": [chunk.start, chunk.stop, chunk.group]}, "stages": marks},
        )
        for chunk in planned.chunks
    ]  # fmt: skip
    tasks = [MeasureTask(**{**vars(t), "key": json.loads(json.dumps(t.key))}) for t in tasks]
    measured: list[Measured | None] = [reusable(t) for t in tasks]
    todo = [i for i, m in enumerate(measured) if m is None]
    rows = sum(m.rows for m in measured if m is not None)
    tell("reading", rows, 0)

    def done(i: int, got: Measured) -> None:
        nonlocal rows
        measured[todo[i]] = got
        rows += got.rows
        ready = sum(m is not None for m in measured)
        tell("reading", rows, round(rows * len(tasks) / ready))

    machine.map(measure, [tasks[i] for i in todo], done, lambda: _warm(pipeline))
    whole = [m for m in measured if m is not None]
    if form == "text" and any(m.needs_chat for m in whole):
        return _measure(machine, planned, columns, scores, "chat", pipeline, options, work, tell)
    if not sum(m.pairs for m in whole):
        raise InputError("no rows", where=planned.title, hint="The file is empty or holds blank lines only.")
    return Spool(tasks, whole, form)


def _warm(pipeline: Pipeline) -> None:
    pa.array([""])  # the first array of a process makes Arrow import pandas
    words.warm()
    for stage in pipeline.stages:
        stage.warm()


def _publish(
    machine: Engine, spool: Spool, total: int, outcome: Outcome, made: Sequence[Decisions], names: Sequence[str],
    splits: npt.NDArray[np.int8], of: Sequence[str], out: Path, form: Any, tell: Progress,
) -> dict[str, str]:  # fmt: skip
    """The second pass: parts are numbered over the chunks that have rows, so that none is empty."""
    where = np.where(outcome.kept, splits, np.int8(-1)).astype(np.int8)
    verdict = _verdict(total, outcome, made, names)
    tasks: list[PublishTask] = []
    number: Counter[str] = Counter()
    rest = schema.to_text(spool.schema)
    plain = spool.plain(where >= 0), spool.plain(where < 0)
    for task, start, m in zip(spool.tasks, spool.starts, spool.measured, strict=True):
        if not m.pairs:
            continue
        mine = where[start : start + m.pairs]
        paths = []
        for i, name in enumerate((*of, "")):
            folder = out / "data" / name if name else out / "audit" / "dropped"
            if (mine == (i if name else -1)).any():
                folder.mkdir(parents=True, exist_ok=True)
                paths.append(str(folder / f"part-{number[name]:05d}.parquet"))
                number[name] += 1
            else:
                paths.append("")
        gone = np.flatnonzero(mine < 0) + start
        tasks.append(PublishTask(
            task.spool, start, task.file_name, form, plain, rest, tuple(of), tuple(paths[:-1]), paths[-1], mine,
            outcome.swapped[start : start + m.pairs], {k: v(gone) for k, v in verdict.items()},
        ))  # fmt: skip
    tell("writing", 0, len(tasks))
    ready = 0

    def done(i: int, got: list[str]) -> None:
        nonlocal ready
        ready += 1
        tell("writing", ready, len(tasks))

    written = machine.map(publish, tasks, done)
    return output.hashes(out, [str(Path(p).relative_to(out)) for part in written for p in part])


def _verdict(
    total: int, outcome: Outcome, made: Sequence[Decisions], names: Sequence[str]
) -> dict[str, Callable[[npt.NDArray[np.int64]], list[Any]]]:
    """Ways to read why rows were dropped: stage, code, score, limit and peer of the decision that did it."""
    score, limit = np.full(total, np.nan, np.float32), np.full(total, np.nan, np.float32)
    peer, code = np.full(total, -1, np.int64), np.full(total, -1, np.int16)
    words: list[str] = []
    for d in made:
        drop = d.of("drop")
        at = d.rows[drop]
        score[at], limit[at], peer[at] = d.score[drop], d.limit[drop], d.peer[drop]
        code[at] = d.reason[drop] + len(words)
        words += d.reasons
    return {
        "stage": lambda rows: [names[i] for i in outcome.stage[rows]],
        "code": lambda rows: [words[i] for i in code[rows]],
        "score": lambda rows: [None if np.isnan(v) else float(v) for v in score[rows]],
        "limit": lambda rows: [None if np.isnan(v) else float(v) for v in limit[rows]],
        "peer": lambda rows: [None if v < 0 else int(v) for v in peer[rows]],
    }


def _longer(signals: Signals, outcome: Outcome) -> float:
    """Share of kept pairs, ties out, whose chosen answer has more words."""
    kept = signals.living(np.flatnonzero(outcome.kept))
    if not len(kept):
        return 0.0
    chosen, rejected = kept.column("pair.chosen_words"), kept.column("pair.rejected_words")
    longer, shorter = int((chosen > rejected).sum()), int((chosen < rejected).sum())
    return longer / max(1, longer + shorter)


def _max_length(pipeline: Pipeline) -> int:
    return next((int(s.max_length) for s in pipeline.stages if hasattr(s, "max_length")), 1024)


def _source(planned: Source, spool: Spool, columns: Columns, options: Options) -> dict[str, Any]:
    """The input as the report tells it; no path and no time."""
    rows: Counter[int] = Counter()
    for task, m in zip(spool.tasks, spool.measured, strict=True):
        rows[task.chunk.file] += m.rows
    shapes: Counter[str] = Counter()
    changes: Counter[str] = Counter()
    for m in spool.measured:
        shapes.update(m.shapes)
        changes.update(m.changes)
    for name in spool.drifted():
        changes[f"column {name!r} holds values of several types and is written as JSON"] = spool.pairs
    return {
        "files": [{"name": f.name, "bytes": f.bytes, "sha256": f.sha256, "rows": rows[i]} for i, f in enumerate(planned.files)],
        "rows": sum(rows.values()), "pairs": spool.pairs, "shape": shapes.most_common(1)[0][0] if shapes else "",
        "shapes": dict(sorted(shapes.items())), "columns": columns.named(), "form": spool.form,
        "changes": dict(sorted(changes.items())), "partial": options.limit is not None,
    }  # fmt: skip


def _cpu() -> float:
    return sum(
        u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _run_facts(
    options: Options, machine: Engine, spool: Spool, clock: Clock, started: float, cpu: float
) -> dict[str, Any]:
    """What may differ between two runs of the same data: time, memory, engine, command, versions."""
    machine.close()  # workers are counted once they have ended
    seconds: Counter[str] = Counter(clock.spent)
    for m in spool.measured:
        seconds.update(m.seconds)
    unit = 1 if sys.platform == "darwin" else 1024
    peak = [resource.getrusage(who).ru_maxrss * unit for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "command": options.command, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "wall_seconds": round(time.time() - started, 2), "cpu_seconds": round(_cpu() - cpu, 2),
        "peak_memory_bytes": max(peak), "engine": machine.name, "workers": machine.workers,
        "seconds_by_stage": {k: round(v, 3) for k, v in seconds.items()},
        "versions": {"python": platform.python_version(), **{n: version(n) for n in ("prefdata", "pyarrow", "numpy", "rapidfuzz", "rensa", "orjson")}},
    }  # fmt: skip


def _log(facts: Mapping[str, Any]) -> bytes:
    """The run's log, one JSON event a line."""
    import orjson

    events = [{"event": "started", "t": facts["started"], "command": facts["command"]}]
    events += [{"event": "measured", "stage": k, "cpu_seconds": v} for k, v in facts["seconds_by_stage"].items()]
    events += [{"event": "finished", "wall_seconds": facts["wall_seconds"], "cpu_seconds": facts["cpu_seconds"]}]
    return b"".join(orjson.dumps(e, option=orjson.OPT_APPEND_NEWLINE) for e in events)
