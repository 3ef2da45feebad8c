"""Runs that are finished and need not be done again: a file of JSON lines beside a long report."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import xxhash

from prefdata.bench import flips
from prefdata.bench.flips import Gain, Noise
from prefdata.engines import engine

Tell = Callable[[str, int, int], None]
_RUN_BY = ("detector", "flips", "peers", "planting", "quality", "worth")


def run_all(tasks: Sequence[Noise | Gain], workers: int, tell: Tell, kept: Path | None = None) -> list[Any]:
    """What each task found, in their order, by so many processes. With ``kept``, what is finished is written there at once and
    taken from there the next time: by what the task is, the bytes of its set, and the code that ran it.
    """
    keys = [_key(task) for task in tasks] if kept else []
    held = _read(kept) if kept else {}
    todo = [i for i in range(len(tasks)) if not kept or keys[i] not in held]
    found: dict[int, Any] = {i: held[keys[i]] for i in range(len(tasks)) if kept and keys[i] in held}

    def done(k: int, got: Any) -> None:
        found[todo[k]] = got
        if kept:
            with kept.open("a", encoding="utf-8") as file:
                # The line is begun here, not ended: a kill may have left half of the last one.
                file.write("\n" + json.dumps([keys[todo[k]], got]))
        tell("planting", len(found), len(tasks))

    machine = engine("local", workers)
    try:
        machine.map(flips.do, [tasks[i] for i in todo], done)
    finally:
        machine.close()
    return [found[i] for i in range(len(tasks))]


def _read(path: Path) -> dict[str, Any]:
    """The lines of the file; one that was cut off by a kill is done again."""
    out = {}
    for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
        try:
            key, got = json.loads(line)
        except ValueError:
            continue
        out[key] = got
    return out


def _key(task: Noise | Gain) -> str:
    return json.dumps([type(task).__name__, asdict(task) | {"path": _bytes(task.path), "code": _code()}])


@cache
def _bytes(path: str) -> str:
    return xxhash.xxh3_64_hexdigest(Path(path).read_bytes())


@cache
def _code() -> str:
    here = Path(__file__).parent
    files = [*sorted(here.parent.glob("noise/*.py")), *(here / f"{name}.py" for name in _RUN_BY)]
    return xxhash.xxh3_64_hexdigest(b"".join(path.read_bytes() for path in files))
