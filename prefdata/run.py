"""``audit`` and ``clean``: from the input to ``out/``. One path for both; clean adds the second pass."""

from __future__ import annotations

import json
import logging
import os
import platform
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from prefdata import baseline, data_files, gates, output, recipes, review_file, spelling, split
from prefdata.beside import Beside
from prefdata.cutting import Source
from prefdata.decisions import Outcome, Signals, apply
from prefdata.engines import Engine, engine
from prefdata.errors import ConfigError, InputError, OutputError, near_or_all
from prefdata.files import put
from prefdata.first_pass import measure_all
from prefdata.grouping import kto_findings
from prefdata.intake import detect, expected, inputs_of, opened
from prefdata.measuring import Clock
from prefdata.pipeline import Pipeline, load
from prefdata.publishing import publish_all
from prefdata.report import sheet
from prefdata.report.render import render
from prefdata.report.summary import Facts, summarise
from prefdata.result import Action, Options, Progress, Result
from prefdata.shapes import Reading
from prefdata.spool import Spool
from prefdata.stage import Amount

_LOG = logging.getLogger("prefdata")


def audit(
    source: Any, out: str | os.PathLike[str] | None = None, pipeline: str | Pipeline | None = None, **options: Any
) -> Result:
    """Measure and decide; with ``out``, write a report there. Changes nothing.

    ``source`` is a path, a glob, a list of paths, ``-``, a ``datasets.Dataset``, a DataFrame or a list of dicts;
    ``pipeline`` a name or path as for ``-p``. ``options`` are the fields of ``Options``, and lists of what the command
    line takes as ``gate``, ``set``, ``only`` and ``skip``. Raises PrefdataError with what is wrong and what to do.
    """
    ready, rest = _ready(pipeline, options)
    return run("audit", source, None if out is None else Path(out), ready, rest)


def clean(source: Any, out: str | os.PathLike[str], pipeline: str | Pipeline | None = None, **options: Any) -> Result:
    """Audit, then carry the decisions out: writes the dataset, the dropped rows and the report to ``out``."""
    ready, rest = _ready(pipeline, options)
    return run("clean", source, Path(out), ready, rest)


def _ready(given: str | Pipeline | None, options: Mapping[str, Any]) -> tuple[Pipeline, Options]:
    """The pipeline and the options of a call from Python."""
    words = {
        "gate": "gates",
        "set": "sets",
        "only": "only",
        "skip": "skip",
        "against": "against",
        "verdicts": "verdicts",
    }
    known = [*words, "min_margin", *(f.name for f in fields(Options))]
    for name in options:
        if name not in known:
            raise ConfigError(f"no such option: {name}", hint=near_or_all(name, known))
    rest = dict(options)
    of_pipeline = {words.get(k, k): rest.pop(k) for k in (*words, "min_margin") if k in rest}
    for name, value in of_pipeline.items():
        if name != "min_margin":
            of_pipeline[name] = (value,) if isinstance(value, str | os.PathLike) else tuple(value)
    if isinstance(given, Pipeline) and of_pipeline:
        what = f"{', '.join(of_pipeline)}: the pipeline is ready made"
        raise ConfigError(what, hint="Give its name or path instead.")
    pipeline = given if isinstance(given, Pipeline) else load(given, **of_pipeline)[0]
    return pipeline, Options(**rest)


def run(
    action: Action, source: Any, out: Path | None, pipeline: Pipeline, options: Options, progress: Progress | None = None,
    say: Callable[[str], None] = _LOG.warning,
) -> Result:  # fmt: skip
    """The whole way; ``progress(what, done, total)`` hears of each chunk and stage, ``say`` what a stage will cost."""
    started, cpu = time.time(), _cpu()
    tell = progress or (lambda what, done, total: None)
    with ExitStack() as stack:
        before, tolerance = baseline.asked(options.baseline, options.tolerance, pipeline, out)
        work = _work(stack, action, source, out, pipeline, options)
        shares = split.parse(options.split) if options.split else {}
        recipes.chosen(options.export)  # a wrong name is told before the work
        tell("reading", 0, 0)
        planned = opened(source, work, options)
        split.only_once(shares, planned.splits)
        head, reading, form = detect(planned, options)
        if pipeline.notices(Amount(1, 1)):
            for name, text in pipeline.notices(expected(planned, head, reading, options.limit)).items():
                say(f"{name}: {text}")
        machine = engine(options.engine, options.workers or default_workers())
        stack.callback(machine.close)
        spool, reading = measure_all(machine, planned, head, reading, form, pipeline, options, work, tell)
        if options.format == "text" and spool.form == "chat":
            hint = "Use --format chat or auto."
            raise InputError("--format text: the rows are chat messages", where=planned.title, hint=hint)
        signals = spool.signals(options.seed)
        divide = (lambda s, near: split.assign(s, shares, near, options.seed)) if shares else None
        clock = Clock()
        given = None if shares else spool.splits(planned)
        made, splits = pipeline.decide(signals, divide, given, tell, clock)
        outcome = apply(signals.total, made)
        beside = Beside.of(signals, pipeline.stages, made, splits)
        of = ("train", *shares) if shares else planned.splits
        made[0].findings += split.shared_prompts(signals, made[0], outcome.kept if shares else None, splits, of)
        made[0].findings += [*data_files.not_read(planned), *kto_findings([m.tally for m in spool.measured])]
        spelling.spell(made, spool.rows)
        names = [s.name() for s in pipeline.stages]
        stay, flagged = int(outcome.kept.sum()), int((outcome.kept & outcome.flagged).sum())
        kept = {s: int((outcome.kept & ~beside.marked & (splits == i)).sum()) for i, s in enumerate(of)}
        found = gates.counts(pipeline.stages, made, stay, flagged, signals.total, _longer(signals, outcome))
        checked = baseline.check(before, tolerance, pipeline, found, list(gates.reasons(made)), signals.total)
        made[0].findings += before.notes(pipeline) if before else []
        tell("report", 0, 1)
        facts = Facts(
            signals=signals, stages=pipeline.stages, decisions=made, outcome=outcome, read=spool.rows,
            source=_source(planned, spool, reading, options, beside.told(spool.schema.names, outcome.kept)), pipeline=pipeline.name, config=pipeline.resolved(),
            gates=checked, action=action, seed=options.seed, version=version("prefdata"), splits=kept,
            sample=options.sample, marked=beside.marked,
        )  # fmt: skip
        result = Result(action, out, names, made, outcome, summarise(facts), checked, kept)
        result.rates, result.parts = gates.rates(found, signals.total), spool.parts
        clock("report")
        if out is None:
            return result
        output.clear(out)
        files = {}
        if action == "clean":
            files = _write_dataset(out, result, pipeline, spool, machine, splits, beside, planned.title, options, tell)
        output.write_decisions(out / "audit/decisions.parquet", result.stages, made)
        shown = splits if len(of) > 1 else None
        output.write_signals(out / "audit/signals.parquet", signals, names, shown, spool.all_ids())
        put(out / "audit/report.json", output.dump(result.report.model_dump(mode="json")))
        clock("writing")
        about = _run_facts(options, machine, spool, clock, started, cpu)
        put(out / "report.html", render(result.report, about, review=review_file.shown(out)))
        put(out / "audit/run.log.jsonl", _log(about))
        hints = {"label_smoothing": result.label_smoothing, "columns": list(beside.columns)}
        output.finish(out, _manifest(result, pipeline, options, files, hints, about), options.keep_scratch)
        return result


def _work(
    stack: ExitStack, action: Action, source: Any, out: Path | None, pipeline: Pipeline, options: Options
) -> Path:  # fmt: skip
    """The folder for the parts of the run, which ``stack`` tidies away: one that is thrown away where there is no ``out``."""
    if out is None:
        idle = [n for n in ("resume", "overwrite", "keep_scratch") if getattr(options, n)]
        if idle:
            raise ConfigError(f"--{idle[0].replace('_', '-')} needs an output folder", hint="prefdata audit IN OUT")
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="prefdata-")))
        stack.enter_context(output.writing(work, "Make room, or set TMPDIR to another place."))
        return work
    if options.resume:
        _same_run(out, action, pipeline, options)
    work = output.prepare(out, overwrite=options.overwrite, resume=options.resume, inputs=inputs_of(source))
    stack.enter_context(output.writing(out))
    stack.enter_context(output.tidying(out, resumable=options.resume or options.keep_scratch))
    return work


def _write_dataset(
    out: Path, result: Result, pipeline: Pipeline, spool: Spool, machine: Engine, splits: npt.NDArray[np.int8],
    beside: Beside, title: str, options: Options, tell: Progress,
) -> dict[str, str]:  # fmt: skip
    """The kept and the dropped rows, and what goes with a dataset: its card, recipes, a sheet to check it by."""
    form: Any = "implicit" if options.format == "implicit" else spool.form
    where = np.where(result.outcome.kept, splits, np.int8(-1)).astype(np.int8)
    files = publish_all(machine, spool, result, where, tuple(result.splits), out, form, tell, beside)
    if any(result.splits.values()):
        kept = np.flatnonzero(result.outcome.kept & ~beside.marked)
        rows = sheet.base(
            kept,
            sheet.strata([d.reasons for d in result.made], pipeline.stages, result.made, result.outcome),
            options.sample,
            options.seed,
        )
        output.write_spotcheck(out / "spotcheck.csv", rows, spool.rows, options.seed)
        longest = next((int(s.max_length) for s in pipeline.stages if hasattr(s, "max_length")), 1024)
        filled = [s for s, n in result.splits.items() if n]
        recipes.write(out, form, filled, longest, recipes.chosen(options.export), result.label_smoothing)
    put(out / "README.md", output.card(result.report, title, form, options.license, files, list(beside.columns)))
    return files


def _manifest(
    result: Result,
    pipeline: Pipeline,
    options: Options,
    files: dict[str, str],
    hints: dict[str, Any],
    about: dict[str, Any],
) -> dict[str, Any]:
    """What ``manifest.json`` holds; ``train`` are hints for a trainer; ``run`` alone may differ between two runs of the same data."""
    report = result.report
    applied = [s.record() for s in pipeline.stages if hasattr(s, "record")]
    status = "empty" if not result.counts["kept"] else "complete" if result.ok else "gate_failed"
    return {
        "schema_version": 1, "prefdata": report.prefdata, "action": result.action, "status": status, "input": report.source,
        "counts": result.counts, "splits": result.splits, "gates": result.gates, "rates": result.rates, "seed": report.seed,
        "stages": result.by_stage, "config": report.config, "options": options.settings(), "train": hints, "files": files, **({"verdicts": applied[0]} if applied else {}), "run": about,
    }  # fmt: skip


def _same_run(out: Path, action: Action, pipeline: Pipeline, options: Options) -> None:
    """Refuse to go on, with other settings, with a run that is finished and has left no parts: it would be replaced."""
    if (out / output.MANIFEST).is_file() and not (out / ".work").is_dir():
        found = json.loads((out / output.MANIFEST).read_bytes())
        asked = json.loads(json.dumps({"action": action, "config": pipeline.resolved(), "options": options.settings()}))
        other = [k for k, v in asked.items() if found.get(k) != v]
        if other:
            what = f"holds a finished run with another {' and '.join(other)}"
            raise OutputError(what, where=str(out), hint="Use --overwrite, or --keep-scratch the first time.")


def default_workers() -> int:
    """As many as ``PREFDATA_WORKERS`` says, else as there are cores for this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(os.environ.get("PREFDATA_WORKERS", cores))


def _longer(signals: Signals, outcome: Outcome) -> float | None:
    """Share of kept pairs, ties out, whose chosen answer has more words; None where there are none."""
    kept = signals.living(np.flatnonzero(outcome.kept))
    if not len(kept):
        return None
    chosen, rejected = (kept.column(f"pair.{side}_words").astype(np.float32) for side in ("chosen", "rejected"))
    gap = np.where(outcome.swapped[kept.index], rejected - chosen, chosen - rejected)
    longer, shorter = int((gap > 0).sum()), int((gap < 0).sum())
    return longer / (longer + shorter) if longer + shorter else None


def _source(
    planned: Source, spool: Spool, reading: Reading, options: Options, told: Mapping[str, int]
) -> dict[str, Any]:
    """The input as the report tells it; no path and no time."""
    rows, shapes, changes = (spool.sums(name) for name in ("files", "shapes", "changes"))
    changes.update({**spool.drifted(), **told})
    return {
        "files": [{"name": f.name, "bytes": f.bytes, "sha256": f.sha256, "rows": rows[str(i)]} | ({"split": f.split} if len(planned.splits) > 1 else {})
                  for i, f in enumerate(planned.files)],
        "rows": sum(rows.values()), "pairs": spool.pairs, "shape": shapes.most_common(1)[0][0] if shapes else "",
        "shapes": dict(sorted(shapes.items())), "columns": reading.named(), "form": spool.form,
        "changes": dict(sorted(changes.items())), "partial": options.limit is not None, **planned.fetched(),
    }  # fmt: skip


def _cpu() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)


def _run_facts(
    options: Options, machine: Engine, spool: Spool, clock: Clock, started: float, cpu: float
) -> dict[str, Any]:  # fmt: skip
    """What may differ between two runs of the same data: time, memory, engine, command, versions."""
    machine.close()  # workers are counted once they have ended
    seconds = Counter(clock.spent)
    seconds.update(spool.sums("seconds"))
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
    events = [{"event": "started", "t": facts["started"], "command": facts["command"]}]
    events += [{"event": "measured", "stage": k, "cpu_seconds": v} for k, v in facts["seconds_by_stage"].items()]
    events += [{"event": "finished", "wall_seconds": facts["wall_seconds"], "cpu_seconds": facts["cpu_seconds"]}]
    return b"".join(orjson.dumps(e, option=orjson.OPT_APPEND_NEWLINE) for e in events)
