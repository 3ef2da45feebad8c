"""What the tests of pre-flight share: sets with faults that ``clean`` would have dropped, and tiny models of many kinds, made once."""

import json
import math
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

_spec = spec_from_file_location(
    "made_for_training", Path(__file__).with_name("conftest.py")
)  # there are several conftests
_made = module_from_spec(_spec)
_spec.loader.exec_module(_made)
TEXTS, pairs, save_tiny, tokenizer_of = _made.TEXTS, _made.pairs, _made.save_tiny, _made.tokenizer_of

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
STRICT = "{% if messages|map(attribute='role')|select('equalto', 'system')|list %}{{ raise_exception('no system turns here') }}{% endif %}"
QUICK = {"max_length": 200, "batch_size": 32, "method": "full", "probes": 0}
NEOX = {"eos": "<|endoftext|>", "bos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
KNOWN = {"unk_token": "<|endoftext|>"}  # of the tokenizers of qwen2: transformers adds it where it is missing
LONG = " ".join(f"the pier and the gull, number {i}, near the harbour." for i in range(60))


def row(r):
    return {"pd_id": r["id"], **{k: r[k] for k in ("prompt", "chosen", "rejected")}}


def said(role, text):
    return [{"role": role, "content": text}]


def chat(rows):
    names = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}
    return [{"pd_id": r["pd_id"], **{k: said(role, r[k]) for k, role in names.items()}} for r in rows]


TRAIN, HELD = [row(r) for r in pairs(60)[:48]], [row(r) for r in pairs(60)[48:]]


def changed(rows, at, **cells):
    """The rows, these cells changed in those at ``at`` (all: None); a cell may be made from its row."""
    at = range(len(rows)) if at is None else at
    return [
        {**r, **{k: v(r) if callable(v) else v for k, v in cells.items()}} if i in at else r for i, r in enumerate(rows)
    ]


def ids(rows, at):
    return {rows[i]["pd_id"] for i in at}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """``folder(train, held)``: a folder as ``clean`` writes it, with faults that ``clean`` would have dropped."""

    def made(train, held=HELD, **manifest):
        out = tmp_path_factory.mktemp("set")
        for name, rows in (("train", train), ("test", held)):
            if rows:
                (out / "data" / name).mkdir(parents=True)
                pq.write_table(pa.Table.from_pylist(rows), out / "data" / name / "part-00000.parquet")
        (out / "manifest.json").write_text(json.dumps({"action": "clean", "counts": {}, **manifest}))
        return out

    return made


def mended(path, change):
    """The model in a folder, its weights changed."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():
        change(model)
    model.save_pretrained(path)
    return str(path)


def bos_tokenizer():
    from tokenizers import processors

    t = tokenizer_of(eos="<|endoftext|>", bos_token="<s>")
    start = [("<s>", t.bos_token_id)]
    t._tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=start)
    return t


def cut_embedding(path):
    def change(model):
        model.resize_token_embeddings(300)

    return mended(path, change)


def unset_padding(path):
    """What padding does to a model without a mask of its own: its row of the embedding was never set."""

    def change(model):
        model.get_input_embeddings().weight[0] = math.inf

    return mended(path, change)


def broken(path):
    def change(model):
        next(iter(model.model.layers[0].parameters()))[0] = math.nan

    return mended(path, change)


MODELS = {
    "qwen": lambda p: save_tiny(p, tokenizer=tokenizer_of(**KNOWN)),
    "chat": lambda p: save_tiny(p, tokenizer=tokenizer_of([*TEXTS, CHATML], eos="<|im_end|>", template=CHATML, mark="<|im_start|>", **KNOWN)),
    "strict": lambda p: save_tiny(p, tokenizer=tokenizer_of(eos="<|im_end|>", template=STRICT + CHATML, **KNOWN)),
    "neox": lambda p: save_tiny(p, "neox", tokenizer_of(pad=None, **NEOX)),
    "neox-fp16": lambda p: save_tiny(p, "neox", tokenizer_of(pad=None, **NEOX), dtype="float16"),
    "neox-padding": lambda p: save_tiny(p, "neox", tokenizer_of(pad="<|padding|>", **NEOX)),
    "gpt2": lambda p: save_tiny(p, "gpt2", tokenizer_of(pad=None, **NEOX)),
    "bos": lambda p: save_tiny(p, "neox", bos_tokenizer()),
    "no-end": lambda p: save_tiny(p, "neox", tokenizer_of(eos=None)),
    "small-embedding": lambda p: cut_embedding(save_tiny(p, tokenizer=tokenizer_of(**KNOWN))),
    "unset-padding": lambda p: unset_padding(save_tiny(p, "neox", tokenizer_of(**KNOWN))),
    "broken": lambda p: broken(save_tiny(p, tokenizer=tokenizer_of(**KNOWN))),
}  # fmt: skip


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """``model(name)``: the folder of a tiny model, made once."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = MODELS[name](tmp_path_factory.mktemp(name))
        return made[name]

    return get
