"""The forgetting probe: how well a model still foretells plain text that has nothing to do with the pairs."""

from __future__ import annotations

import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from prefdata.errors import ConfigError
from prefdata.training.checks import Case

_LONGEST = 512  # tokens of a text that are read at once
_MOST = 20_000  # tokens: enough for a probe, and seconds on any machine


def texts(path: str | None) -> list[str]:
    """Plain texts: the shipped ones, or those of a file (.jsonl with ``text``; else a paragraph each).

    Raises ConfigError where the file cannot be read or holds none.
    """
    if path is None:
        return _paragraphs(files("prefdata.training").joinpath("neutral.txt").read_text("utf-8"))
    place = Path(path).expanduser()
    try:
        whole = place.read_text("utf-8")
        if place.suffix == ".jsonl":
            found = [str(json.loads(line)["text"]) for line in whole.splitlines() if line.strip()]
        else:
            found = _paragraphs(whole)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=f"forgetting: {path}") from error
    except (ValueError, KeyError, TypeError) as error:
        hint = "Plain text in UTF-8, or JSON lines with the field text."
        raise ConfigError("holds no plain texts", where=f"forgetting: {path}", hint=hint) from error
    if not any(t.strip() for t in found):
        raise ConfigError("is empty", where=f"forgetting: {path}", hint="Give a few paragraphs of plain text.")
    return [t for t in found if t.strip()]


def _paragraphs(text: str) -> list[str]:
    return [" ".join(p.split()) for p in text.split("\n\n") if p.strip()]


def forgetting(case: Case) -> dict[str, Any]:
    """``perplexity`` a token, and over how many ``tokens``; perplexity is None where it is no finite number."""
    trainer = case.trainer
    model, longest = trainer.model, min(_LONGEST, case.facts.positions or _LONGEST)
    was_training = model.training
    total = torch.zeros((), device=trainer.accelerator.device, dtype=torch.float64)
    tokens = 0
    model.eval()
    try:
        with torch.no_grad(), trainer.compute_loss_context_manager():
            for text in texts(case.settings.forgetting):
                ids = case.tokenizer(text, verbose=False)["input_ids"]
                for part in (ids[i : i + longest] for i in range(0, min(len(ids), _MOST - tokens), longest)):
                    if len(part) < 2:
                        continue
                    given = torch.tensor([part], device=total.device)
                    logits = model(input_ids=given, attention_mask=torch.ones_like(given)).logits[0, :-1].float()
                    total += torch.nn.functional.cross_entropy(logits, given[0, 1:], reduction="sum").double()
                    tokens += len(part) - 1
    finally:
        model.train(was_training)
    mean = float(total) / tokens if tokens else math.nan
    fine = math.isfinite(mean) and mean < 700  # beyond that its exponential is no number
    return {"perplexity": round(math.exp(mean), 4) if fine else None, "tokens": tokens}
