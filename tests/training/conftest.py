"""What the tests of training share: tiny random models with tokenizers of their own, and cleaned folders to train on."""

import itertools
import os

import pytest

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

WORDS = (
    "boat",
    "pier",
    "gull",
    "garden",
    "bed",
    "spring",
    "train",
    "ferry",
    "harbour",
    "scene",
    "water",
    "stone",
    "cold",
    "grey",
)
TEXTS = [
    "What can be said of the old stone pier and the cold grey water? It is well known, of course, and easy to see.",
    "I would not know what to say of that. Please ask somebody else, thank you.",
    *(
        f"Tell me about the {a} and the {b} in {n} words. Sure: the {b} is near the {a}."
        for n, (a, b) in enumerate(itertools.pairwise(WORDS))
    ),
]


def tokenizer_of(texts=TEXTS, vocab=500, pad="<pad>", eos="<eos>", template=None, **more):
    """A byte-level BPE tokenizer, trained here."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    marks = [m for m in dict.fromkeys((pad, eos, *more.values())) if isinstance(m, str)]
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=marks, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)  # fmt: skip
    made.train_from_iterator(texts, trainer)
    named = {k: v for k, v in (("pad_token", pad), ("eos_token", eos), *more.items()) if v is not None}
    return PreTrainedTokenizerFast(tokenizer_object=made, chat_template=template, **named)


def save_tiny(folder, kind="qwen2", tokenizer=None, seed=0, dtype=None, **config):
    """A tiny random model (qwen2, neox or gpt2) with its tokenizer in ``folder``; its path as text."""
    import torch
    import transformers as t

    tokenizer = tokenizer or tokenizer_of()
    torch.manual_seed(seed)
    if kind == "qwen2":
        given = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 512}  # fmt: skip
        model = t.Qwen2ForCausalLM(t.Qwen2Config(vocab_size=len(tokenizer), **{**given, **config}))
    elif kind == "neox":
        given = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 512}  # fmt: skip
        model = t.GPTNeoXForCausalLM(t.GPTNeoXConfig(vocab_size=len(tokenizer), **{**given, **config}))
    else:
        given = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 256}
        model = t.GPT2LMHeadModel(t.GPT2Config(vocab_size=len(tokenizer), **{**given, **config}))
    model = model if dtype is None else model.to(getattr(torch, dtype))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The folder of a tiny random model."""
    return save_tiny(tmp_path_factory.mktemp("tiny"))


def pairs(n=120, flipped=0):
    """Pairs with something to learn: the chosen answer says what is so, the rejected one evades. The first ``flipped`` are turned round."""
    rows = []
    for i in range(n):
        a, b = WORDS[i % 14], WORDS[(i // 14 + i) % 14]
        good, bad = f"It is well known: the {a} is near the {b}, {i}.", f"I would not know what to say of the {a}, {i}."
        if i < flipped:
            good, bad = bad, good
        rows.append(
            {
                "id": f"r{i}",
                "prompt": f"Tell me about the {a} and the {b} in {i} words.\n",
                "chosen": good,
                "rejected": bad,
            }
        )
    return rows


@pytest.fixture(scope="session")
def cleaned(tmp_path_factory):
    """A cleaned folder of 120 pairs, 24 of them held out."""
    import prefdata

    out = tmp_path_factory.mktemp("cleaned") / "out"
    got = prefdata.clean(pairs(), out, "certain", split="test=0.2")
    assert got.counts["kept"] == 120
    return out
