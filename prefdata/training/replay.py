"""Plain texts trained on beside the pairs, so that the model keeps what it knew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from prefdata.errors import ConfigError
from prefdata.training.checks import Case
from prefdata.training.kept import Kept


class Replay(Kept):
    """The language-model loss of some texts: ``replay_weight`` times the mean over the texts of a step of their mean over tokens.

    A step has ``replay_share`` as many texts as pairs; shares of a text are carried over to the next micro-batch. Texts come in
    passes, each pass shuffled anew by seed and process.
    """

    kept = ("drawn", "owed")

    def __init__(self, case: Case, trainer: Any) -> None:
        s = case.settings
        self.share, self.weight, self.longest = s.replay_share, s.replay_weight, case.plan.max_length
        self.seed = (s.seed, trainer.accelerator.process_index)
        self.trainer, self.tokenizer = trainer, case.tokenizer
        self.texts = texts(str(s.replay), "replay")
        self.drawn, self.owed = 0, 0.0
        self._pass: tuple[int, Any] = (-1, None)

    def __call__(self, model: Any, pairs: int) -> Any:
        """Loss to add to that of a micro-batch of so many pairs; None where no text falls to it."""
        self.owed += self.share * pairs
        n = int(self.owed + 1e-6)
        self.owed -= n
        if not n:
            return None
        ids = [torch.tensor(self.ids(self._next())) for _ in range(n)]
        given = pad_sequence(ids, batch_first=True, padding_value=self.tokenizer.pad_token_id)
        mask = pad_sequence([torch.ones_like(i) for i in ids], batch_first=True)
        device = self.trainer.accelerator.device
        given, mask = given.to(device), mask.to(device)
        labels = given.masked_fill(mask == 0, -100)
        found = model(input_ids=given, attention_mask=mask, labels=labels, use_cache=False, fused_lm_head=True)
        losses = -found.log_probs.float().sum(1) / mask[:, 1:].sum(1).clamp(min=1)
        self.trainer._metrics["train"]["replay_loss"].append(float(losses.mean()))
        return self.weight * losses.sum() / (self.share * pairs)

    def ids(self, text: str) -> list[int]:
        """Ids of a text, its end token last."""
        end = self.tokenizer.eos_token_id
        ids: list[int] = self.tokenizer(text, truncation=True, max_length=self.longest - 1)["input_ids"]
        return ids if ids[-1:] == [end] else [*ids, end]

    def _next(self) -> str:
        number, place = divmod(self.drawn, len(self.texts))
        if self._pass[0] != number:
            self._pass = number, np.random.default_rng((*self.seed, number)).permutation(len(self.texts))
        self.drawn += 1
        return self.texts[int(self._pass[1][place])]


def texts(place: str, key: str) -> list[str]:
    """The texts of a file: paragraphs of a .txt, ``text`` of each line of a .jsonl. ConfigError, naming the setting, where there are none."""
    path = Path(place).expanduser()
    try:
        whole = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=f"{key}: {place}") from error
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8", where=f"{key}: {place}") from error
    if path.suffix == ".jsonl":
        found = [_text(line, f"{key}: {place}:{i}") for i, line in enumerate(whole.split("\n"), 1) if line.strip()]
    else:
        found = whole.replace("\r\n", "\n").split("\n\n")
    found = [t.strip() for t in found if t.strip()]
    if not found:
        raise ConfigError("holds no text", where=f"{key}: {place}", hint="Paragraphs in a .txt, or .jsonl with text.")
    return found


def _text(line: str, where: str) -> str:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError("is no JSON", where=where) from error
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise ConfigError("has no text", where=where, hint='A line is {"text": "..."}.')
    return str(row["text"])
