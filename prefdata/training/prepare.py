"""Token ids of pairs, made by TRL's own ``DPOTrainer._prepare_dataset``, and what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prefdata.pairs import SIDES
from prefdata.ragged import Ragged
from prefdata.training.data import EXTRA, Pairs

ROW, WEIGHT, FLIP, PROMPT_TOKENS = "pd_row", "pd_weight", "pd_flip", "pd_prompt_tokens"
Counts = npt.NDArray[np.int64]


@dataclass
class Prepared:
    """``dataset`` has ``prompt_ids``, ``chosen_ids``, ``rejected_ids`` and the pair's row, weight and flip probability; ``left`` are rows of
    ``pairs`` that TRL leaves out because the prompt fills the window; ``cut_prompts`` rows whose prompt does not begin the whole.
    """

    pairs: Pairs
    dataset: Any
    left: Counts
    cut_prompts: Counts
    prompt_tokens: Counts  # of every pair, also of those left out

    @cached_property
    def rows(self) -> Counts:
        """Which pair each entry of ``dataset`` is."""
        return np.asarray(self.dataset[ROW], np.int64)

    @cached_property
    def ids(self) -> dict[str, Ragged]:
        """The ids of each side, of each entry of ``dataset``."""
        return {side: _ragged(self.dataset, f"{side}_ids") for side in SIDES}

    def lengths(self) -> dict[str, Counts]:
        """Tokens of each side of each pair that is trained on."""
        return {side: self.ids[side].lengths for side in SIDES}

    def named(self, entries: Any) -> list[str]:
        """Ids of the pairs at these entries of ``dataset`` (a mask or places)."""
        return [self.pairs.ids[i] for i in self.rows[entries].tolist()]


def _ragged(dataset: Any, name: str) -> Ragged:
    """A column of id lists as one array."""
    column = dataset.with_format("arrow")[:].column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], pa.list_(pa.int64()))
    at = np.asarray(column.offsets, np.int64)
    return Ragged(np.asarray(column.values)[at[0] : at[-1]].astype(np.uint32), at - at[0])


def prepare(pairs: Pairs, tokenizer: Any, max_length: int, name: str) -> Prepared:
    """Make the ids; raises what TRL and the chat template raise."""
    from trl import DPOTrainer
    from trl.data_utils import is_conversational
    from trl.trainer import dpo_trainer

    def whole_prompt(row: dict[str, Any]) -> dict[str, int]:
        options: dict[str, Any] = {}
        if is_conversational(row):
            options = {"add_generation_prompt": True, "tools": row.get("tools"), **row.get("chat_template_kwargs", {})}
        return {PROMPT_TOKENS: len(dpo_trainer._tokenize(tokenizer, row["prompt"], **options)["input_ids"])}

    with quiet():
        given = dataset(pairs).map(whole_prompt)
        args = SimpleNamespace(dataset_num_proc=None, max_length=max_length, truncation_mode="keep_start")
        made = DPOTrainer._prepare_dataset(SimpleNamespace(_tokenizer=tokenizer), given, tokenizer, args, name)
        made = made.remove_columns([c for c in (*SIDES, *EXTRA) if c in made.column_names])
    tokens = np.asarray(given[PROMPT_TOKENS], np.int64)
    out = Prepared(pairs, made, np.empty(0, np.int64), np.empty(0, np.int64), tokens)
    out.left = np.setdiff1d(np.arange(len(pairs)), out.rows)
    out.cut_prompts = out.rows[tokens[out.rows] > out.ids["prompt"].lengths]
    return out


def dataset(pairs: Pairs) -> Any:
    """The pairs as TRL is given them: three columns (and tools), one form, and numbers beside them."""
    from datasets import Dataset, Features, Json, Value

    chat = isinstance(pairs.columns["prompt"][0], list)
    kinds: dict[str, Any] = {n: Json() if chat or n in EXTRA else Value("large_string") for n in pairs.columns}
    numbers = {ROW: np.arange(len(pairs)), WEIGHT: pairs.weight, FLIP: pairs.flip}
    kinds |= {ROW: Value("int64"), WEIGHT: Value("float32"), FLIP: Value("float32")}
    return Dataset.from_dict({**pairs.columns, **numbers}, features=Features(kinds))


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of datasets, and no warning of TRL that pre-flight tells with a count."""
    import datasets
    from trl.trainer.dpo_trainer import logger

    level, bars = logger.logger.level, datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    logger.logger.setLevel("ERROR")
    try:
        yield
    finally:
        logger.logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()
