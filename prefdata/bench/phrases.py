"""A learnable set of pairs with planted wrong labels, and a tiny model to train on it: all made here, no file is read."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

_SUBJECTS = (
    "harbour", "orchard", "railway", "library", "kitchen", "workshop", "meadow", "theatre", "bakery", "lighthouse", "school", "forest",
    "market", "garden", "museum", "station", "vineyard", "chapel", "quarry", "bridge",
)  # fmt: skip
_THINGS = (
    "lamps", "benches", "tools", "boats", "apples", "timetables", "shelves", "ovens", "letters", "flowers", "tickets", "windows",
    "barrels", "stones", "maps", "chairs", "ropes", "kettles", "bells", "ladders",
)  # fmt: skip
_TIMES = (
    "in the morning",
    "after dark",
    "in winter",
    "on Sundays",
    "at noon",
    "before the storm",
    "in spring",
    "every evening",
)
_ASKED = (
    "What should a visitor know about the {a} and its {b} {t}?", "Who looks after the {b} of the {a} {t}?",
    "Why do the {b} matter to the {a} {t}?", "How are the {b} of the {a} kept {t}?",
)  # fmt: skip
_RIGHT = ("As the records show,", "According to the keeper,", "Measured with care,", "On good evidence,")
_WRONG = ("Who can say?", "Perhaps, perhaps not:", "I never cared for this:", "Ask somebody else:")
_NEITHER = ("It is said that", "As for this place,", "To begin with,", "In short,", "By and large,")
_ALIKE = 0.25  # of the pairs show nothing by which they could be told: their wrong labels are not to be found
_MIDDLE = (
    "{n} {b} stand near the {a}", "the {a} keeps {n} {b} ready", "there are {n} {b} beside the {a}", "about {n} {b} belong to the {a}",
    "people moved {n} {b} to the {a}",
)  # fmt: skip
_END = (
    "and they are used {t}.",
    "which one sees best {t}.",
    "and nobody touches them {t}.",
    "as it was {t} last year.",
    "{t}, most of all.",
)


def write(folder: Path, pairs: int, held: int, share: float, seed: int) -> list[int]:
    """Write ``train.jsonl`` (so many ``pairs``) and ``test.jsonl`` (``held``); returns which pairs of train are the wrong way round,
    exactly this ``share``. Labels of test are right.

    The better answer begins with a phrase that names a source, the worse one with a phrase that evades, but in a quarter of the pairs,
    which nothing tells apart; all else is drawn by chance.
    """
    draw = random.Random(seed)
    flipped = sorted(draw.sample(range(pairs), round(share * pairs)))
    turned = set(flipped)
    folder.mkdir(parents=True, exist_ok=True)
    for name, numbers in (("train", range(pairs)), ("test", range(pairs, pairs + held))):
        rows = []
        for i in numbers:
            row = _pair(draw, i)
            if i in turned:
                row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
            rows.append(row)
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    return flipped


def _pair(draw: random.Random, number: int) -> dict[str, str]:
    a, b, t = draw.choice(_SUBJECTS), draw.choice(_THINGS), draw.choice(_TIMES)
    row = {"prompt": f"{draw.choice(_ASKED).format(a=a, b=b, t=t)} Case {number}.\n"}
    alike = draw.random() < _ALIKE
    for side, starts in (("chosen", _NEITHER if alike else _RIGHT), ("rejected", _NEITHER if alike else _WRONG)):
        middle = draw.choice(_MIDDLE).format(a=draw.choice(_SUBJECTS), b=b, n=draw.randint(2, 99))
        row[side] = f"{draw.choice(starts)} {middle}, {draw.choice(_END).format(t=draw.choice(_TIMES))}"
    return row


def save_model(folder: Path, texts: Sequence[str], seed: int = 0) -> str:
    """A tiny random model (Qwen2, two layers of 32) and a byte-level BPE of its own in ``folder``; its path as text."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
    from transformers.utils import logging

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    marks = ["<pad>", "<eos>"]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=marks, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token=marks[0], eos_token=marks[1])
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=512,
    )  # fmt: skip
    logging.disable_progress_bar()
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def write_long(folder: Path, pairs: int, sentences: int, seed: int = 0) -> None:
    """Write ``train.jsonl`` with pairs whose answers have so many sentences: more than a window holds."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for i in range(pairs):
        whole = [_pair(draw, i) for _ in range(sentences)]
        rows.append(
            {"prompt": whole[0]["prompt"], **{s: " ".join(r[s] for r in whole) for s in ("chosen", "rejected")}}
        )
    (folder / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
