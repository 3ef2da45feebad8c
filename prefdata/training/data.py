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

from prefdata.errors import ConfigError, InputError, near_or_all
from prefdata.output import MANIFEST
from prefdata.pairs import SIDES, readable, side_text
from prefdata.reading import values
from prefdata.training.settings import OWN_SMOOTHING, Settings

HELD = ("test", "valid", "eval", "dev")
EXTRA = ("tools", "chat_template_kwargs")  # columns that TRL reads beside the three
_LEAST_TO_CUT = 40  # pairs, below which nothing is held out unasked


@dataclass
class Pairs:
    """The pairs of one split: ``columns`` (lists of n texts or message lists) are what TRL sees; arrays have n entries.

    ``weight`` multiplies a pair's loss; ``flip`` is the probability that its label is the wrong way round.
    """

    columns: dict[str, list[Any]]
    ids: list[str]
    weight: npt.NDArray[np.float32]
    flip: npt.NDArray[np.float32]
    numbers: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)

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
        return Pairs(columns, [self.ids[i] for i in rows.tolist()], self.weight[rows], self.flip[rows], numbers)

    def prompt(self, row: int) -> str:
        """The prompt as text."""
        return self.text("prompt", row)

    def text(self, side: str, row: int) -> str:
        """One side of a pair as text for people."""
        return readable(side_text(self.columns[side][row], "user" if side == "prompt" else "assistant"))


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
    manifest = json.loads(held_bytes)
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
    elif settings.eval_share and len(pairs) >= _LEAST_TO_CUT:
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
    table = pa.concat_tables([pq.read_table(p) for p in sorted(folder.glob("*.parquet"))])
    names = table.column_names
    if "prompt" not in names:
        what = "was written with --format implicit: its prompt stands inside the answers"
        raise InputError(
            what, where=str(folder), hint="Clean with --format auto: the trainer wants an explicit prompt."
        )
    columns = {n: list(values(table.column(n))) for n in (*SIDES, *(e for e in EXTRA if e in names))}
    for name in EXTRA:
        if name in columns:
            columns[name] = [_object(v, {} if name == "chat_template_kwargs" else None) for v in columns[name]]
    n = len(table)
    ids = [str(i) for i in table.column("pd_id").to_pylist()] if "pd_id" in names else [str(i) for i in range(n)]
    weight, flip = np.ones(n, np.float32), np.full(n, smoothing, np.float32)
    if settings.use_weights:
        if "pd_weight" in names:
            weight = np.nan_to_num(_numbers(table, "pd_weight"), nan=1.0).astype(np.float32)
        if "pd_flip_prob" in names:
            found = _numbers(table, "pd_flip_prob")
            flip = np.where(np.isnan(found), flip, found).astype(np.float32)
        if "pd_reversed" in names:
            turned = np.array([bool(v) for v in table.column("pd_reversed").to_pylist()])
            flip = np.where(turned, 1 - flip, flip).astype(np.float32)
    numbers = {}
    if settings.order_by is not None:
        if settings.order_by not in names:
            hint = near_or_all(settings.order_by, names, "Columns")
            raise ConfigError(f"order_by {settings.order_by}: no such column", where=str(folder), hint=hint)
        numbers[settings.order_by] = _numbers(table, settings.order_by)
    return Pairs(columns, ids, weight, flip, numbers)


def _object(value: Any, empty: Any) -> Any:
    """Tools as TRL takes them: a list of objects or nothing; a text of JSON is read."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    return empty if value in (None, []) else value


def _numbers(table: pa.Table, name: str) -> npt.NDArray[np.float64]:
    try:
        column = table.column(name).cast(pa.float64())
    except pa.ArrowInvalid as error:
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
