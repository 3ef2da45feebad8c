"""Token ids of pairs, made by TRL's own ``DPOTrainer._prepare_dataset``, and what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata.pairs import SIDES
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

    def lengths(self) -> dict[str, Counts]:
        """Tokens of each side of each pair that is trained on."""
        return {
            side: np.fromiter((len(i) for i in self.dataset[f"{side}_ids"]), np.int64, len(self.dataset))
            for side in SIDES
        }


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
    rows = np.asarray(made[ROW], np.int64)
    left = np.setdiff1d(np.arange(len(pairs)), rows)
    tokens = np.asarray(made[PROMPT_TOKENS], np.int64)
    shorter = tokens > np.fromiter((len(i) for i in made["prompt_ids"]), np.int64, len(made))
    return Prepared(pairs, made, left, rows[shorter])


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
