"""The data files of a dataset folder and the split of each: ``save_to_disk``, a card with ``configs``, or files whose
names say the split, as ``datasets`` reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from glob import has_magic
from pathlib import Path
from typing import Any

import orjson

from prefdata.cutting import suffix
from prefdata.data_files import DATA, METADATA, SILENT, Listing, by_name, checked, hidden, pick, told, walk
from prefdata.errors import InputError, first_line

_SAVED = ("dataset_dict.json", "state.json")


def listing(folder: Path, where: str, config: str | None = None, split: str | None = None) -> Listing:
    """What ``folder`` holds; ``where`` is its name in errors. Splits that were not asked for may lack their files.

    Without configurations in a card, those of a folder are its subfolders. Raises InputError where files are missing, where
    the configuration is not clear, and where there are no data files.
    """
    saved = next((name for name in _SAVED if (folder / name).is_file()), None)
    configs = {} if saved else _configs(folder, where)
    if config is not None and not configs:
        inside = [] if saved else sorted(p.name for p in folder.iterdir() if p.is_dir() and not hidden(p.name))
        return listing(folder / pick(inside, config, where, "configuration"), f"{where}/{config}", None, split)
    if saved:
        return _saved(folder, saved, where, split)
    if configs:
        found = _configured(folder, configs[_configuration(configs, config, where)], where, split)
    else:
        inner = sorted({p.parent.name for name in _SAVED for p in folder.glob(f"*/{name}")})
        if inner:
            hint = f"Choose one: --input-config {inner[0]}"
            raise InputError(f"holds saved sets in {', '.join(inner)}", where=where, hint=hint)
        found = by_name(folder, folder, where)
    if not any(found.splits.values()):
        raise _nothing(folder, found.left_out, where)
    for name in found.splits:
        checked(name, where)
    return found


def _saved(folder: Path, kind: str, where: str, split: str | None) -> Listing:
    """What ``save_to_disk`` wrote: one set, or a folder a split."""
    held = _json(folder / kind, where)
    if kind == "state.json":
        return Listing({"train": _shards(folder, held, where)}, named=False)
    names = held.get("splits")
    if not isinstance(names, list) or not names:
        raise InputError("names no splits", where=f"{where}/{kind}", hint="Save the set again.")
    out = Listing({checked(name, where): [] for name in names})
    for name in names if split is None else [pick(names, split, where, "split")]:
        inner = f"{where}/{name}"
        out.splits[name] = _shards(folder / name, _json(folder / name / "state.json", inner), inner)
    return out


def _json(path: Path, where: str) -> Mapping[str, Any]:
    try:
        held = orjson.loads(path.read_bytes())
    except (orjson.JSONDecodeError, FileNotFoundError) as error:
        what = "is not there" if isinstance(error, FileNotFoundError) else "is not what save_to_disk writes"
        raise InputError(what, where=f"{where}/{path.name}", hint="Save the set again.") from error
    return held if isinstance(held, dict) else {}


def _shards(folder: Path, state: Mapping[str, Any], where: str) -> list[Path]:
    """The Arrow files that the state of a saved set names: no others, since a cache may lie beside them."""
    if state.get("_indices_data_files"):
        what = "was saved with an index over its rows"
        raise InputError(what, where=where, hint="Save it again after .flatten_indices().")
    out = [folder / Path(f["filename"]).name for f in state.get("_data_files") or ()]
    if not out:
        raise InputError("names no files", where=f"{where}/state.json", hint="Save the set again.")
    for path in out:
        if not path.is_file():
            raise InputError("is not there", where=f"{where}/{path.name}", hint="Save the set again.")
    return out


def _configs(folder: Path, where: str) -> dict[str, Mapping[str, Any]]:
    """The configurations of the folder's dataset card by name, none where it has no card or the card names none."""
    card = folder / "README.md"
    if not card.is_file():
        return {}
    from huggingface_hub.repocard import metadata_load
    from yaml import YAMLError

    try:
        found = (metadata_load(card) or {}).get("configs") or []
        return {str(c["config_name"]): c for c in found}
    except (ValueError, YAMLError, KeyError, TypeError) as error:
        what = f"has a card whose front matter cannot be read: {first_line(error)}"
        raise InputError(what, where=f"{where}/README.md", hint="Mend it, or give the data files.") from error


def _configuration(configs: Mapping[str, Mapping[str, Any]], wanted: str | None, where: str) -> str:
    if wanted is not None:
        return pick(configs, wanted, where, "configuration")
    default = [name for name, c in configs.items() if name == "default" or c.get("default") or len(configs) == 1]
    if len(default) != 1:
        hint = f"Choose one: --input-config {next(iter(configs))}"
        raise InputError(f"holds the configurations {', '.join(configs)}", where=where, hint=hint)
    return default[0]


def _configured(folder: Path, config: Mapping[str, Any], where: str, split: str | None) -> Listing:
    """The files that a configuration of the card names."""
    entries = config.get("data_files") or []
    if not entries:
        home = folder / str(config.get("data_dir") or "")
        if not home.resolve().is_relative_to(folder.resolve()) or not home.is_dir():
            raise InputError(f"lacks the folder {config['data_dir']} that its card names", where=where)
        return by_name(folder, home, where)
    out = Listing(named=any(isinstance(e, Mapping) for e in [entries, *entries]))
    present = {p.relative_to(folder).as_posix(): p for p in walk(folder)}
    asked = list(_patterns([entries] if isinstance(entries, str | Mapping) else entries, where))
    if split is not None and out.named:
        pick(dict.fromkeys(name for name, _ in asked), split, where, "split")
    for name, patterns in asked:
        if split not in (None, name) and out.named:
            out.splits.setdefault(name, [])  # named in errors, not read: it may not be here
            continue
        files: dict[Path, None] = {}
        for pattern in patterns:
            found = _matching(pattern, present)
            if not found and not has_magic(pattern):
                raise _missing(pattern, name, where)
            for path in found:
                if suffix(path) in DATA or not has_magic(pattern):
                    files[path] = None
                elif suffix(path) not in SILENT:
                    out.left_out[path.relative_to(folder).as_posix()] = "not a data file"
        if not files:
            raise _missing(", ".join(patterns), name, where)
        out.splits.setdefault(name, []).extend(files)
    return out


def _missing(pattern: str, split: str, where: str) -> InputError:
    what = f"lacks {pattern}, which its card names for the split {split}"
    return InputError(what, where=where, hint="Fetch it too, or choose another split: --input-split NAME")


def _patterns(entries: Iterable[Any], where: str) -> Iterator[tuple[str, list[str]]]:
    for entry in entries:
        split, path = (entry.get("split"), entry.get("path")) if isinstance(entry, Mapping) else ("train", entry)
        paths = [path] if isinstance(path, str) else path
        if not isinstance(paths, list) or not all(isinstance(p, str) for p in paths):
            raise InputError(f"names no path for the split {split!r}", where=f"{where}/README.md")
        yield checked(split, where), paths


def _matching(pattern: str, present: Mapping[str, Path]) -> list[Path]:
    """The files that a pattern of the card matches, read as ``datasets`` reads it (``**`` crosses folders)."""
    from fsspec.utils import glob_translate  # type: ignore[import-untyped]

    pattern = pattern.removeprefix("./")
    try:
        fits = re.compile(glob_translate(pattern))
    except ValueError as error:
        raise InputError(f"names the pattern {pattern}: {error}", where="README.md") from error
    named = pattern.rsplit("/", 1)[-1] in METADATA
    return [p for name, p in present.items() if fits.match(name) and (named or p.name not in METADATA)
            and (not hidden(name) or hidden(pattern)) and p.name != "README.md"]  # fmt: skip


def _nothing(folder: Path, left_out: Mapping[str, str], where: str) -> InputError:
    """Why nothing can be read here, as far as the folder tells."""
    if any(folder.glob("*.py")):
        hint = "Scripts are not run. The Hub may hold its rows: hf:NAME@refs/convert/parquet"
        return InputError("holds a loading script and no data files", where=where, hint=hint)
    known = f"Known: {', '.join(DATA)}, save_to_disk folders"
    if not left_out:
        return InputError("holds no data files", where=where, hint=known)
    text = any(n.endswith(".txt") for n in left_out)
    hint = "A text file that holds JSON lines or CSV is read if you name it." if text else known
    return InputError(f"holds no data files, only {told(left_out)}", where=where, hint=hint)
