"""A tiny random model with a tokenizer of its own, made on the spot: ``python -m prefdata.samples.tiny FOLDER``.

It says nothing of use; it shows the way of a training run in seconds, on a CPU, without a download.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).parent / "planted.jsonl"
WINDOW = 256  # tokens


def tokenizer(text: str) -> Any:
    """A byte-level BPE tokenizer of about 2,000 tokens, trained on this text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<pad>", "<eos>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator(text.splitlines(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>")


def save(folder: Path) -> None:
    """Write model (about 300,000 weights) and tokenizer."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    words = tokenizer(SAMPLE.read_text("utf-8"))
    words.save_pretrained(folder)
    torch.manual_seed(0)
    # more rows than tokens, as most models have: reading a tokenizer of this kind again may add some
    config = Qwen2Config(
        vocab_size=len(words) + 48, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=WINDOW, eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id,
        bos_token_id=None,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m prefdata.samples.tiny FOLDER")
    save(Path(sys.argv[1]))
