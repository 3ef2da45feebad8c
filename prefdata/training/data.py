"""The pairs of a training run: from a cleaned folder, a dataset or any file, to exactly what TRL is given and what the loss needs beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from prefdata.errors import ConfigError, InputError, first_line, located, near_or_all
from prefdata.output import MANIFEST
from prefdata.pairs import SIDES, dump, kind_of, readable, side_text
from prefdata.reading import values
from prefdata.training.settings import OWN_SMOOTHING, Settings

HELD = ("test", "valid", "eval", "dev")
EXTRA = ("tools", "chat_template_kwargs")  # columns that TRL reads beside the three
LEAST_TO_CUT = 40  # pairs, below which nothing is held out unasked


@dataclass
class Pairs:
    """The pairs of one split: ``columns`` (lists of n texts or message lists) are what TRL sees; arrays have n entries.

    ``weight`` multiplies a pair's loss; ``flip`` is the probability that its label is the wrong way round; both stand as the set
    has them, also where they are no number that a loss could take. ``pictures`` marks pairs that have an image.
    """

    columns: dict[str, list[Any]]
    ids: list[str]
    weight: npt.NDArray[np.float32]
    flip: npt.NDArray[np.float32]
    numbers: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    pictures: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def plain(self) -> bool:
        """True if every pair counts alike and no label is in doubt."""
        return bool((self.weight == 1).all() and (self.flip == 0).all())

    def take(self, rows: npt.NDArray[np.int64]) -> Pairs:
        """These pairs, in this order."""
        columns = {k: [v[i] for i in rows.tolist()] for k, v in self.columns.items()}
        numbers = {k: v[rows] for k, v in self.numbers.items()}
        pictures = None if self.pictures is None else self.pictures[rows]
        return Pairs(
            columns, [self.ids[i] for i in rows.tolist()], self.weight[rows], self.flip[rows], numbers, pictures
        )

    def prompt(self, row: int) -> str:
        """The prompt as text."""
        return self.text("prompt", row)

    def text(self, side: str, row: int) -> str:
        """One side of a pair as text for people, whatever the cell holds."""
        value = self.columns[side][row]
        if isinstance(value, str):
            return value
        if isinstance(value, list) and all(isinstance(m, dict) for m in value):
            return readable(side_text(value, "user" if side == "prompt" else "assistant"))
        return dump(value)


@dataclass
class Data:
    """What is trained on and what is held out, and where both come from."""

    place: str
    train: Pairs
    held: Pairs | None
    held_name: str = ""
    chat: bool = False
    manifest: dict[str, Any] = field(default_factory=dict)
    manifest_hash: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def smoothing(self) -> float:
        """What the cleaning asks the trainer to smooth labels by."""
        return float(self.manifest.get("train", {}).get("label_smoothing") or 0.0)

    @property
    def max_length(self) -> int | None:
        """The window that the cleaning checked with a tokenizer, if it did."""
        for entry in self.manifest.get("config", {}).get("stages", []):
            found = entry.get("token_length")
            if found and found.get("tokenizer"):
                return int(found["max_length"])
        return None


def is_cleaned(place: Any) -> bool:
    """True for a finished output folder of ``clean``."""
    return isinstance(place, str | Path) and (Path(place) / MANIFEST).is_file()


def load(place: str | Path, settings: Settings) -> Data:
    """The pairs of a cleaned folder. Raises InputError where it holds none, ConfigError for a split that is not there."""
    home = Path(place)
    held_bytes = (home / MANIFEST).read_bytes()
    try:
        manifest = json.loads(held_bytes)
    except ValueError as error:
        raise InputError("is no JSON", where=str(home / MANIFEST), hint="Run prefdata clean again.") from error
    if manifest.get("action") != "clean":
        raise InputError(
            "is the folder of an audit, which writes no dataset", where=str(home), hint="Run prefdata clean."
        )
    splits = sorted(p.name for p in (home / "data").glob("*") if any(p.glob("*.parquet")))
    train = next((s for s in splits if s == "train"), next((s for s in splits if s.startswith("train")), None))
    if train is None:
        raise InputError("holds no pairs to train on", where=str(home), hint=_why_empty(manifest))
    name = settings.eval_split
    if name is not None and name not in splits:
        raise ConfigError(
            f"eval_split {name}: no such split", where=str(home), hint=near_or_all(name, splits, "Splits")
        )
    name = name or next((s for word in HELD for s in splits if s.startswith(word)), None)
    smoothing = settings.label_smoothing
    if smoothing is None:
        smoothing = float(manifest.get("train", {}).get("label_smoothing") or 0.0)
    if set(settings.loss_type) & set(OWN_SMOOTHING):
        smoothing = 0.0  # TRL is given it, as label_smoothing
    pairs = _read(home / "data" / train, settings, smoothing)
    data = Data(str(place), pairs, None, manifest=manifest, manifest_hash=hashlib.sha256(held_bytes).hexdigest())
    data.chat = _is_chat(pairs.columns["prompt"])
    if name is not None:
        data.held, data.held_name = _read(home / "data" / name, settings, 0.0), name
    elif settings.eval_share and len(pairs) >= LEAST_TO_CUT:
        data.train, data.held = cut(pairs, settings.eval_share, settings.seed)
        data.held_name = f"{len(data.held):,} pairs cut from {train} by prompt"
        data.notes.append(
            f"no split to evaluate on: {data.held_name}. clean --split test=5% also keeps near prompts together"
        )
    return data


def _why_empty(manifest: Mapping[str, Any]) -> str:
    reasons = manifest.get("counts", {}).get("reasons", {})
    told = ", ".join(f"{k} {n:,}" for k, n in reasons.items())
    return f"Dropped: {told}." if told else "Clean a set with pairs first."


def _read(folder: Path, settings: Settings, smoothing: float) -> Pairs:
    table = _table(folder)
    names, n = table.column_names, len(table)
    if "prompt" not in names:
        what = "was written with --format implicit: its prompt stands inside the answers"
        raise InputError(
            what, where=str(folder), hint="Clean with --format auto: the trainer wants an explicit prompt."
        )
    for side in SIDES:
        if side not in names:
            raise InputError(f"has no column {side}", where=str(folder), hint=f"Columns: {', '.join(names)}.")
    with located(str(folder)):
        columns = {s: _values(table, s) for s in (*SIDES, *(e for e in EXTRA if e in names))}
        for name in EXTRA:
            if name in columns:
                columns[name] = [_object(v, name) for v in columns[name]]
        ids = [str(i) for i in table.column("pd_id").to_pylist()] if "pd_id" in names else [str(i) for i in range(n)]
        weight, flip = np.ones(n, np.float32), np.full(n, smoothing, np.float32)
        if settings.use_weights:
            if "pd_weight" in names:
                weight = _numbers(table, "pd_weight", 1.0).astype(np.float32)
            if "pd_flip_prob" in names:
                flip = _numbers(table, "pd_flip_prob", smoothing).astype(np.float32)
            if "pd_reversed" in names:
                turned = _numbers(table, "pd_reversed", 0.0) != 0
                flip = np.where(turned, 1 - flip, flip).astype(np.float32)
        numbers = {}
        if settings.order_by is not None:
            if settings.order_by not in names:
                hint = near_or_all(settings.order_by, names, "Columns")
                raise ConfigError(f"order_by {settings.order_by}: no such column", hint=hint)
            numbers[settings.order_by] = _numbers(table, settings.order_by, np.nan)
        pictures = np.zeros(n, np.bool_)
        for name in ("images", "image"):
            if name in names:  # a list, a path, bytes: anything but null and an empty list
                pictures |= np.array([v not in (None, [], "") for v in _values(table, name)], np.bool_)
    return Pairs(columns, ids, weight, flip, numbers, pictures)


def _table(folder: Path) -> pa.Table:
    tables = []
    for path in sorted(folder.glob("*.parquet")):
        try:
            tables.append(pq.read_table(path))
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"cannot be read: {first_line(error)}", where=str(path)) from error
    try:
        return pa.concat_tables(tables)
    except pa.ArrowInvalid as error:
        what = f"its files have different columns: {first_line(error)}"
        raise InputError(what, where=str(folder), hint="Clean the set again.") from error


def _values(table: pa.Table, name: str) -> list[Any]:
    try:
        return list(values(table.column(name)))
    except ValueError as error:  # a column of JSON
        raise InputError(f"the column {name} holds text that is no JSON: {first_line(error)}") from error


def _object(value: Any, name: str) -> Any:
    """Tools as TRL takes them, a list of objects or nothing, and template arguments, an object; a text of JSON is read."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InputError(f"the column {name} holds a text that is no JSON: {value[:40]!r}") from error
    empty: dict[str, Any] | None = {} if name == "chat_template_kwargs" else None
    if value not in (None, []) and not isinstance(value, dict if empty is not None else list):
        wanted = "objects" if empty is not None else "lists of tools"
        raise InputError(f"the column {name} holds {kind_of(value)}", hint=f"It is for {wanted}.")
    return empty if value in (None, []) else value


def _numbers(table: pa.Table, name: str, missing: float) -> npt.NDArray[np.float64]:
    """A column of numbers (n,); null is ``missing``, NaN stays."""
    column = table.column(name)
    try:
        column = column.cast(pa.float64()).fill_null(missing)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"the column {name} is not of numbers", hint="Take the column out, or set use_weights: false."
        ) from error
    return np.asarray(column.to_numpy(), np.float64)


def _is_chat(prompts: Sequence[Any]) -> bool:
    return any(isinstance(p, list) for p in prompts[:1])


def cut(pairs: Pairs, share: float, seed: int) -> tuple[Pairs, Pairs]:
    """Training and held-out pairs, so that no prompt is on both sides; the cut depends on prompts and seed alone."""
    hashes = np.array(
        [xxhash.xxh3_64_intdigest(pairs.prompt(i).encode("utf-8", "surrogatepass"), seed) for i in range(len(pairs))],
        np.uint64,
    )
    out = hashes < np.uint64(int(share * (2**64 - 1)))
    if not out.any() or out.all():  # few prompts: the smallest hash decides
        out = hashes == (hashes.min() if not out.any() else hashes.max())
    if out.all():
        return pairs, pairs.take(np.empty(0, np.int64))
    return pairs.take(np.flatnonzero(~out)), pairs.take(np.flatnonzero(out))
