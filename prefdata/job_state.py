"""What a job leaves behind to know itself by: the state of its steps, a lock, and the identity of files."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from prefdata.cutting import sha256
from prefdata.errors import InputError, OutputError, did_you_mean
from prefdata.files import put
from prefdata.intake import inputs_of
from prefdata.output import dump, writing

STATE, LOCK = "job.json", ".job.lock"
CHEAP = 64 << 20  # bytes, up to which a file is read again each time, whatever its times say


def digest(value: Any) -> str:
    """A short hash of a JSON value."""
    held = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
    return hashlib.sha256(held).hexdigest()[:16]


class State:
    """``job.json``: of each step the hashes of what it was made from (``made_of``), its status, its seconds; and file hashes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        try:
            held = json.loads((home / STATE).read_bytes())
            self.steps: dict[str, dict[str, Any]] = dict(held["steps"])
            self.files: dict[str, dict[str, Any]] = dict(held["files"])
        except (FileNotFoundError, NotADirectoryError):
            held, self.steps, self.files = {}, {}, {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = "Take it away together with clean and run beside it, or give another --output."
            raise OutputError("is not the state of a job", where=str(home / STATE), hint=hint) from error
        self.job = held.get("job", "")

    def write(self, step: str, status: str, made_of: Mapping[str, str], **more: Any) -> None:
        """Record a step, atomically."""
        self.steps[step] = {"status": status, "made_of": dict(made_of), **more}
        self.home.mkdir(parents=True, exist_ok=True)
        put(self.home / STATE, dump({"schema_version": 1, "job": self.job, "steps": self.steps, "files": self.files}))

    def status(self, step: str, made_of: Mapping[str, str]) -> str:
        """How this step ended when it was made of the same; empty where it was not."""
        held = self.steps.get(step, {})
        return str(held.get("status", "")) if held.get("made_of") == dict(made_of) else ""

    def changed(self, step: str, made_of: Mapping[str, str]) -> str:
        """What differs from the last time, in words; ``new`` for a step that never ran."""
        held = self.steps.get(step, {}).get("made_of")
        if held is None:
            return "new"
        names = [n.replace("_", " ") for n in made_of if held.get(n) != made_of[n]]
        return f"{' and '.join(names)} changed" if names else "unchanged"

    def of_file(self, path: Path) -> str:
        """sha256 of a file. A large one is not read again while size, place and both its times stay."""
        facts = path.stat()
        mark = [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]
        name = str(path.resolve())
        known = self.files.get(name, {})
        if facts.st_size > CHEAP and known.get("mark") == mark:
            return str(known["sha256"])
        found = sha256(path)[0]
        self.remember(path, found)
        return found

    def remember(self, path: Path, held: str) -> None:
        """That this file has this sha256, if it is a large one."""
        facts = path.stat()
        if facts.st_size > CHEAP:
            mark = [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]
            self.files[str(path.resolve())] = {"mark": mark, "sha256": held}

    def of_paths(self, names: Iterable[str]) -> str:
        """A hash of these files, globs and folders; of a hub name the name. InputError for what is not there."""
        found = []
        for name in names:
            for path in [Path(name)] if name.startswith("hf:") else inputs_of([name]):
                if path.is_dir():
                    files = [p for p in sorted(path.rglob("*")) if p.is_file() and ".cache" not in p.parts]
                    found += [[p.relative_to(path).as_posix(), self.of_file(p)] for p in files]
                elif path.is_file():
                    found.append([path.name, self.of_file(path)])
                elif name.startswith("hf:"):
                    found.append([name, ""])
                else:
                    beside = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
                    raise InputError("does not exist", where=str(path), hint=did_you_mean(path.name, beside))
        return digest(found)


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Refuse a second run of the job in ``home``. The system drops the lock when the process ends, however it ends. A folder that
    was made for the lock alone goes again.
    """
    there = home.exists()
    with writing(home, "Choose another folder."):
        home.mkdir(parents=True, exist_ok=True)
        opened = (home / LOCK).open("a+")
    with opened as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            what = f"another prefdata run is at work here (process {file.read().strip() or 'unknown'})"
            raise OutputError(what, where=str(home), hint="Wait for it, or give another --output.") from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
            if not there and [p.name for p in home.iterdir()] == [LOCK]:
                (home / LOCK).unlink()
                home.rmdir()
