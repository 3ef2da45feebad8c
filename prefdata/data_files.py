"""The data files below a folder, and the split that their paths say, by the words that ``datasets`` looks for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefdata.cutting import SUFFIXES, Source, suffix
from prefdata.decisions import Finding
from prefdata.errors import InputError, did_you_mean
from prefdata.split import NAME, in_order

DATA = (*SUFFIXES, ".arrow")
METADATA = frozenset({"config.json", "dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json"})
SILENT = ("", ".md", ".py")  # documentation and code: nobody takes them for rows
# The words and the marks around them by which ``datasets`` tells a split from a path.
_WORDS = {
    "train": "train|training", "validation": "validation|valid|dev|val", "test": "test|testing|eval|evaluation",
}  # fmt: skip
_SHARD = re.compile(r"data/([^/]+)-[0-9]{5}-of-[0-9]{5}[^/]*\.[^/]*")


@dataclass
class Listing:
    """The files of each split, in the order of the rows; a folder that names no split has the one called ``train``.

    ``left_out`` tells of each file that is not read why; paths in it are relative to the folder.
    """

    splits: dict[str, list[Path]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    named: bool = True  # whether the folder names its splits

    def chosen(self, split: str | None, where: str) -> dict[str, list[Path]]:
        """All splits, or the one asked for."""
        if split is None:
            return {name: self.splits[name] for name in in_order(self.splits)}
        if not self.named:
            raise InputError("has no splits to choose from", where=where, hint="Leave --input-split out.")
        return {split: self.splits[pick(self.splits, split, where, "split")]}


def checked(name: Any, where: str) -> str:
    """The name of a split, which becomes a folder of the output: words, never a path."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        hint = "Letters, digits and _ make a name: rename it."
        raise InputError(f"has a split named {name!r}", where=where, hint=hint)
    return name


def pick(known: Iterable[str], wanted: str, where: str, what: str) -> str:
    """``wanted``, if it is one of the ``known`` splits or configurations."""
    known = list(known)
    if wanted not in known:
        hint = f"{did_you_mean(wanted, known)} There are: {', '.join(known) or 'none'}".strip()
        raise InputError(f"has no {what} {wanted!r}", where=where, hint=hint)
    return wanted


def hidden(path: str) -> bool:
    """Whether ``datasets`` passes over a path: its name or a folder begins with a dot, or a folder with ``__``."""
    parts = path.split("/")
    return any(p.startswith(".") and p.strip(".") for p in parts) or any(p.startswith("__") for p in parts[:-1])


def walk(home: Path) -> list[Path]:
    """All files below a folder in the order of their names; links to folders are followed, but not round in circles."""
    out, seen = [], {os.path.realpath(home)}
    for here, folders, files in os.walk(home, followlinks=True, onerror=_unreadable):
        entered = {f: os.path.realpath(Path(here, f)) for f in folders if f not in (".git", ".cache")}
        folders[:] = [f for f, real in entered.items() if real not in seen]
        seen.update(entered.values())
        out += [Path(here, f) for f in files]
    return sorted(out)


def _unreadable(error: OSError) -> None:
    raise InputError(f"cannot be read: {error.strerror}", where=str(error.filename)) from error


def by_name(folder: Path, home: Path, where: str) -> Listing:
    """The data files below ``home``; their splits, if names of folders or of files say them."""
    out, data = Listing(named=False), dict[str, Path]()
    for path in walk(home):
        name = path.relative_to(home).as_posix()
        kind = suffix(path)
        if kind not in DATA:
            why = "" if kind in SILENT or hidden(name) else "not a data file"
        else:
            why = "hidden" if hidden(name) else "metadata" if path.name in METADATA else ""
        if why:
            out.left_out[path.relative_to(folder).as_posix()] = why
        elif kind in DATA:
            data[name] = path
    said = _said(data, where)
    for name, path in data.items():
        if said and name not in said:
            out.left_out[path.relative_to(folder).as_posix()] = "its name says no split"
        else:
            out.splits.setdefault(said.get(name, "train"), []).append(path)
    out.named = bool(said)
    return out


def _said(names: Iterable[str], where: str) -> dict[str, str]:
    """The split that each path says: shards in ``data/``, else words in folder names, else words in file names."""
    names = list(names)
    shards = {n: m[1] for n in names if (m := _SHARD.fullmatch(n))}
    if shards:
        return shards
    folders = {n: _words(n.split("/")[:-1]) for n in names}
    files = {n: _words([n.rsplit("/", 1)[-1]]) for n in names}
    first = folders if any(folders.values()) else files
    for name in names:
        both = sorted(folders[name] | files[name])
        if len(both) > 1 and first[name]:
            hint = "Rename it, or give the files of one split."
            raise InputError(f"has a name that says {' and '.join(both)}", where=f"{where}/{name}", hint=hint)
    return {n: next(iter(words)) for n, words in first.items() if words}


def _words(parts: Iterable[str]) -> set[str]:
    return {
        split for split, words in _WORDS.items() for part in parts
        if re.search(rf"(?:^|[-._ 0-9])(?:{words})(?:[-._ 0-9]|$)", part)
    }  # fmt: skip


def told(left_out: Mapping[str, str], most: int = 5) -> str:
    """``a.txt (not a data file), state.json (metadata) and 3 more``."""
    shown = [f"{name} ({why})" for name, why in list(left_out.items())[:most]]
    more = len(left_out) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def not_read(planned: Source) -> list[Finding]:
    """That files of a folder were left out, and why."""
    count = len(planned.left_out)
    text = f"files of the folder that were not read: {told(planned.left_out)}"
    return [Finding("files_not_read", count, count + len(planned.files), text)] if count else []
