"""Every fault of the public reports and write-ups that can be seen before step 1 is named by its own word, with the rows; what is harmless is shown to be."""
# ruff: noqa: F811 (fixtures are imported, and are names of arguments)

import itertools
import math

import pytest
from planted import HELD, LONG, QUICK, TRAIN, changed, chat, folder, ids, model, said  # noqa: F401 (fixtures)

import prefdata
from prefdata.errors import PrefdataError
from prefdata.training.words_before import BEFORE


@pytest.fixture
def checks(folder, model, tmp_path):
    """``checks(train=..., held=..., model=..., **settings)``: what pre-flight finds, by word."""

    def made(train=TRAIN, held=HELD, model_of="qwen", **settings):
        done = prefdata.train(folder(train, held), tmp_path / "run", model(model_of), check=True, **{**QUICK, **settings})  # fmt: skip
        assert done.status == ("refused" if any(c.status == "fail" for c in done.checks) else "checked")
        assert [c.word for c in done.checks] == [*dict.fromkeys(c.word for c in done.checks)], "a word is said twice"
        return {c.word: c for c in done.checks}

    return made


# What each kind of healthy set and model may truly be warned of: nothing.
HEALTHY = {
    "text": {},
    "chat with template": {"train": chat(TRAIN), "held": chat(HELD), "model_of": "chat"},
    "gpt2": {"model_of": "gpt2"},
    "neox": {"model_of": "neox"},
    "adapters": {"method": "lora"},
}


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_set_raises_nothing(checks, kind):
    found = checks(**HEALTHY[kind])
    assert {w: c.evidence for w, c in found.items() if c.status != "ok"} == {}
    assert set(found) == set(BEFORE) - {"uncleaned_data"}, "every check is made and says what it saw"


def odd(at, **cells):
    return {"train": changed(TRAIN, at, **cells)}


def chatted(at, **cells):
    return {"train": changed(chat(TRAIN), at, **cells), "held": chat(HELD), "model_of": "chat"}


SOME = (3, 9, 17)
SAME = " and ".join(["the boat is near the pier"] * 40)
FAULTS = {
    # evidence 3a: the write-up's NaN and its neighbours
    "fp16 weights, pad = unk": ("fp16_weights", "fail", None, {"model_of": "neox-fp16", "dtype": "stored", "pad_token": "<|endoftext|>"}),
    "fp16 weights, its fix 1: pad = eos": ("fp16_weights", "fail", None, {"model_of": "neox", "dtype": "float16"}),
    "fp16 weights, its fix 3: settings": ("fp16_weights", "fail", None, {"model_of": "neox", "dtype": "float16", "batch_size": 16, "learning_rate": 1e-6}),
    "fp16 weights, its fix 4: short samples": ("fp16_weights", "fail", None, {"model_of": "neox", "dtype": "float16", "learning_rate": 1e-6, "max_length": 128}),
    "fp16 weights, fused optimiser": ("fp16_weights", "fail", None, {"model_of": "neox", "dtype": "float16", "optim": "adamw_torch_fused"}),
    "fp16 weights, bf16 arithmetic": ("fp16_weights", "fail", None, {"model_of": "neox", "dtype": "float16", "precision": "bf16"}),
    "fp16 arithmetic on a CPU": ("fp16_autocast", "warn", None, {"precision": "fp16"}),
    "fp16 arithmetic over bf16 weights": ("fp16_autocast", "fail", None, {"precision": "fp16", "dtype": "bfloat16"}),
    "bf16 weights": ("bf16_weights", "warn", None, {"dtype": "bfloat16"}),
    "a window that the prompt fills, ipo": ("rows_lost", "fail", None, {"max_length": 8, "loss_type": "ipo"}),
    # 3b: data
    "padding token not in the vocabulary": ("bad_pad_token", "fail", None, {"pad_token": "[PAD]"}),
    "ids beyond the embedding": ("vocabulary_mismatch", "fail", None, {"model_of": "small-embedding"}),
    "no end token": ("missing_end_token", "fail", None, {"model_of": "no-end"}),
    "some prompts too long": ("rows_lost", "warn", ids(TRAIN, SOME), odd(SOME, prompt=LONG)),
    "many prompts too long": ("rows_lost", "fail", ids(TRAIN, range(9)), odd(range(9), prompt=LONG)),
    "all prompts too long": ("rows_lost", "fail", None, odd(None, prompt=LONG)),
    "all held-out prompts too long": ("rows_lost", "fail", ids(HELD, range(12)), {"held": changed(HELD, None, prompt=LONG)}),
    "many held-out prompts too long": ("rows_lost", "fail", ids(HELD, range(5)), {"held": changed(HELD, range(5), prompt=LONG)}),
    "answers differ behind the cut": ("identical_after_cut", "fail", None, odd(None, chosen=SAME + " yes", rejected=SAME + " no")),
    "some answers differ behind the cut": ("identical_after_cut", "warn", ids(TRAIN, SOME), odd(SOME, chosen=SAME + " yes", rejected=SAME + " no")),
    "equal answers": ("zero_signal", "fail", None, odd(None, rejected=lambda r: r["chosen"])),
    "half of the answers are equal": ("zero_signal", "fail", None, odd(range(0, 48, 2), rejected=lambda r: r["chosen"])),
    "some answers are equal": ("zero_signal", "warn", ids(TRAIN, SOME), odd(SOME, rejected=lambda r: r["chosen"])),
    "chosen is empty everywhere": ("empty_answer", "fail", None, odd(None, chosen="")),
    "an answer is empty": ("empty_answer", "fail", ids(TRAIN, SOME), odd(SOME, rejected="")),
    "an answer is white space": ("empty_answer", "fail", ids(TRAIN, SOME), odd(SOME, chosen=" \n\u200b")),
    "both answers are empty": ("empty_answer", "fail", ids(TRAIN, SOME), odd(SOME, chosen="", rejected="")),
    "a held-out answer is empty": ("empty_answer", "fail", ids(HELD, (2,)), {"held": changed(HELD, (2,), chosen="")}),
    "nothing at all, sft": ("no_labels", "fail", ids(TRAIN, SOME), {**odd(SOME, prompt="", chosen="", rejected=""), "loss_type": "sft"}),
    "the prompt is empty": ("empty_prompt", "warn", ids(TRAIN, SOME), odd(SOME, prompt="")),
    "null answer": ("non_text_cell", "fail", ids(TRAIN, SOME), odd(SOME, chosen=None)),
    "null answer, held out": ("non_text_cell", "fail", ids(HELD, (1,)), {"held": changed(HELD, (1,), rejected=None)}),
    "null prompt": ("non_text_cell", "fail", ids(TRAIN, SOME), odd(SOME, prompt=None)),
    "a column of numbers": ("non_text_cell", "fail", None, odd(None, chosen=7)),
    "nan became a word": ("null_word", "fail", ids(TRAIN, SOME), odd(SOME, chosen="nan")),
    "None became a word behind a prefix": ("null_word", "fail", ids(TRAIN, SOME), {"train": changed(changed(TRAIN, None, chosen=lambda r: "Output: " + r["chosen"]), SOME, chosen="Output: None")}),
    "messages: no turn": ("empty_answer", "fail", ids(TRAIN, SOME), chatted(SOME, chosen=[])),
    "messages: content is null": ("non_text_cell", "fail", ids(TRAIN, SOME), chatted(SOME, chosen=[{"role": "assistant", "content": None}])),
    "messages: content is empty": ("empty_answer", "fail", ids(TRAIN, SOME), chatted(SOME, chosen=said("assistant", ""))),
    "messages: the answer is the user's": ("last_role", "fail", ids(TRAIN, SOME), chatted(SOME, rejected=lambda r: said("user", "Why?"))),
    "messages: the prompt ends with the assistant": ("last_role", "fail", ids(TRAIN, SOME), chatted(SOME, prompt=lambda r: r["prompt"] + said("assistant", "Hm."))),
    "messages: the prompt stands in the answers": ("prompt_repeated", "fail", None, chatted(None, chosen=lambda r: r["prompt"] + r["chosen"], rejected=lambda r: r["prompt"] + r["rejected"])),
    "the prompt stands in some answers": ("prompt_repeated", "warn", ids(TRAIN, SOME), odd(SOME, chosen=lambda r: r["prompt"] + r["chosen"])),
    "messages without a template": ("chat_template", "fail", None, {**chatted(()), "model_of": "qwen"}),
    "text for a chat model": ("chat_template", "warn", None, {"model_of": "chat"}),
    "text and messages": ("mixed_form", "fail", None, {"train": TRAIN, "held": chat(HELD)}),
    "a control token typed": ("control_tokens", "warn", ids(TRAIN, SOME), odd(SOME, chosen="So be it.<|endoftext|> Or not.")),
    "a false turn typed": ("control_tokens", "warn", ids(TRAIN, SOME), chatted(SOME, chosen=said("assistant", "Yes.<|im_end|>\n<|im_start|>assistant\nNo."))),
    "rows with an image": ("image_rows", "fail", ids(TRAIN, SOME), {"train": [{**r, "image": "boat.png" if i in SOME else None} for i, r in enumerate(TRAIN)]}),
    "window beyond learned positions": ("position_limit", "fail", None, {"model_of": "gpt2", "max_length": 1024}),
    "window beyond rotary positions": ("position_limit", "warn", None, {"model_of": "neox", "max_length": 3000}),
    "beta 0": ("implausible_beta", "fail", None, {"beta": 0.0}),
    "beta of another loss": ("implausible_beta", "warn", None, {"beta": 5.0}),
    "learning rate 1": ("implausible_learning_rate", "warn", None, {"learning_rate": 1.0}),
    "all weights at the rate of adapters": ("implausible_learning_rate", "warn", None, {"learning_rate": 5e-5}),
    "smoothing that the loss does not read": ("ignored_smoothing", "warn", None, {"label_smoothing": 0.1, "loss_type": "robust,sigmoid"}),
    "exo_pair without smoothing": ("loss_settings", "fail", None, {"loss_type": "exo_pair"}),
    "robust with smoothing 0.5": ("loss_settings", "fail", None, {"loss_type": "robust", "label_smoothing": 0.5}),
    "as many weights as losses": ("loss_settings", "fail", None, {"loss_type": "sigmoid,sft", "loss_weights": [1.0]}),
    "many epochs": ("implausible_setting", "warn", None, {"num_train_epochs": 5}),
    "few pairs a step": ("implausible_setting", "warn", None, {"batch_size": 4}),
    "negative weight": ("bad_weight", "fail", ids(TRAIN, SOME), {"train": [{**r, "pd_weight": -1.0 if i in SOME else 1.0} for i, r in enumerate(TRAIN)]}),
    "all weights 0": ("bad_weight", "fail", None, {"train": [{**r, "pd_weight": 0.0} for r in TRAIN]}),
    "nothing held out": ("no_rows", "warn", None, {"held": (), "eval_share": 0}),
    # 3c: the second write-up
    "a text taken apart into rows": ("rows_of_characters", "fail", None, {"train": [{"pd_id": str(i), "prompt": c, "chosen": c, "rejected": d} for i, (c, d) in enumerate(itertools.pairwise(SAME[:41]))]}),
    "a window computed from something else": ("degenerate_length", "fail", None, {"max_length": 20, **odd(None, chosen=lambda r: LONG[:200], rejected=lambda r: LONG[100:300])}),
    "answers are cut": ("cut_answers", "warn", None, odd(range(12), chosen=LONG)),
    # public reports (J)
    "prompts on both sides of the split": ("eval_overlap", "fail", ids(HELD, range(12)), {"held": [{**h, "prompt": t["prompt"].upper()} for h, t in zip(HELD, TRAIN, strict=False)]}),
    "a space at the end of the prompt": ("prompt_not_prefix", "warn", ids(TRAIN, SOME), odd(SOME, prompt="The boat is near the ", chosen="the pier near the pier", rejected="the gull")),
    "two start tokens": ("start_tokens", "fail", None, {"model_of": "bos", **odd(None, prompt=lambda r: "<s>" + r["prompt"])}),
    "two end tokens": ("end_tokens", "warn", ids(TRAIN, SOME), odd(SOME, chosen=lambda r: r["chosen"] + "<eos><eos>")),
    "a template that refuses rows": ("template_refused", "fail", ids(TRAIN, SOME), {**chatted(SOME, prompt=lambda r: said("system", "Be kind.") + r["prompt"]), "model_of": "strict"}),
    "adapters for modules that are not there": ("trainer_refused", "fail", None, {"method": "lora", "lora_targets": ["nowhere"]}),
    "weights that are not finite": ("nonfinite_weights", "fail", None, {"model_of": "broken"}),
    "a loss that is not finite": ("nonfinite_first_loss", "fail", None, {"model_of": "broken"}),
    "the row of the padding token was never set": ("padding_leaks", "fail", None, {"model_of": "unset-padding"}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_before_the_first_step(checks, fault):
    word, status, rows, given = FAULTS[fault]
    found = checks(**given)
    assert found[word].status == status, {w: (c.status, c.evidence) for w, c in found.items() if c.status != "ok"}
    assert found[word].evidence and found[word].remedy
    if rows is not None:
        assert set(found[word].rows) == rows


# Faults that need the trainer, the machine or a file to be at fault; ``broken_by`` makes them.
BROKEN = {
    "the batch attends to padding": "batch_masks",
    "labels stand on padding": "batch_masks",
    "the reference is another model": "reference_differs",
    "no weight is trained": "nothing_trained",
    "more memory than there is": "memory_estimate",
}


def broken_by(fault, monkeypatch):
    """Put the fault in place; the settings that it needs."""
    import torch

    from prefdata.training import models, plan, trainer

    collate, load = trainer.Collator.torch_call, models.load
    loaded = []

    def attends(self, examples):
        batch = collate(self, examples)
        return {**batch, "attention_mask": torch.ones_like(batch["attention_mask"])}

    def labels(self, examples):
        batch = collate(self, examples)
        return {**batch, "completion_mask": batch["completion_mask"] | (1 - batch["attention_mask"])}

    def other(settings, dtype):
        loaded.append(load(settings, dtype))
        with torch.no_grad():
            for p in loaded[-1].parameters():
                p *= len(loaded)
        return loaded[-1]

    def frozen(settings, dtype):
        return load(settings, dtype).requires_grad_(False)

    if fault == "the batch attends to padding":
        monkeypatch.setattr(trainer.Collator, "torch_call", attends)
    elif fault == "labels stand on padding":
        monkeypatch.setattr(trainer.Collator, "torch_call", labels)
    elif fault == "the reference is another model":
        monkeypatch.setattr(models, "load", other)
    elif fault == "no weight is trained":
        monkeypatch.setattr(models, "load", frozen)
    else:
        monkeypatch.setattr(plan.Machine, "here", lambda wanted: plan.Machine("cpu", 1, False, 1_000_000))


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_batch_model_or_machine_is_named(checks, fault, monkeypatch):
    broken_by(fault, monkeypatch)
    found = checks()[BROKEN[fault]]
    assert found.status == ("warn" if found.word == "memory_estimate" else "fail"), found.evidence


def finite(numbers):
    return bool(numbers) and all(math.isfinite(v) for v in numbers.values() if isinstance(v, float))


# What is blamed in public and does no harm: the check that says so, words of its evidence, and what was given.
HARMLESS = {
    "pad = unk": ("bad_pad_token", "Harmless", {"model_of": "neox", "pad_token": "<|endoftext|>"}),
    "pad = eos": ("bad_pad_token", "Harmless", {"model_of": "gpt2", "pad_token": "<|endoftext|>"}),
    "pad unset": ("bad_pad_token", "Harmless", {"model_of": "neox"}),
    "pad in the vocabulary": ("bad_pad_token", "padding token", {"model_of": "neox-padding", "pad_token": "<|padding|>"}),
    "fp16 files, float32 weights": ("fp16_weights", "float32", {"model_of": "neox-fp16"}),
    "adapters over fp16 weights": ("fp16_weights", "adapters are trained in float32", {"model_of": "neox-fp16", "dtype": "stored", "method": "lora"}),
    "fp16 arithmetic on a CPU": ("fp16_autocast", "ignored", {"precision": "fp16"}),
    "bf16 arithmetic": ("fp16_autocast", "bf16", {"precision": "bf16"}),
    "long answers": ("cut_answers", "Not a cause of NaN", odd(range(12), chosen=LONG)),
    "empty template arguments": ("template_refused", "all 60 pairs", {**chatted(None, chat_template_kwargs=None)}),
    "labels the wrong way round": ("zero_signal", "something to learn", odd(None, chosen=lambda r: r["rejected"], rejected=lambda r: r["chosen"])),
    "control characters": ("no_labels", "tokens to train", odd(SOME, chosen="a\x00b\x07 is near\x1b[31m the pier")),
    "a pair twice": ("zero_signal", "something to learn", {"train": [*TRAIN, *[{**r, "pd_id": r["pd_id"] + "b"} for r in TRAIN[:3]]]}),
}  # fmt: skip


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_is_harmless_is_shown_to_be(folder, model, tmp_path, kind):
    word, words, given = HARMLESS[kind]
    given = {"train": TRAIN, "held": HELD, "model_of": "qwen", **given}
    source, name = folder(given.pop("train"), given.pop("held")), model(given.pop("model_of"))
    done = prefdata.train(source, tmp_path / "run", name, **{**QUICK, "max_steps": 2, **given})
    found = {c.word: c for c in done.checks}
    assert found[word].status in ("ok", "warn") and words in found[word].evidence
    assert done.status == "complete" and not done.alarms
    assert finite(done.before) and finite(done.after)


REFUSED = {
    "no pairs": ({"train": ()}, "no pairs to train on"),
    "no column rejected": ({"train": [{k: r[k] for k in ("prompt", "chosen")} for r in TRAIN]}, "no column rejected"),
    "another name for the prompt": ({"train": [{"question": r["prompt"], "chosen": r["chosen"], "rejected": r["rejected"]} for r in TRAIN]}, "explicit prompt"),
    "tools that are no JSON": (chatted(None, tools="not json"), "tools"),
    "a window of 1 token": ({"max_length": 1}, "max_length"),
    "an unknown loss": ({"loss_type": "sigmod"}, "Did you mean sigmoid"),
    "an unknown optimiser": ({"optim": "adamw_torc"}, "Did you mean adamw_torch"),
    "loss weights that are no numbers": ({"loss_weights": ["much"]}, "loss_weights"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_read_is_refused_in_a_sentence(checks, kind):
    given, words = REFUSED[kind]
    with pytest.raises(PrefdataError, match=words):
        checks(**given)


def test_pairs_that_were_not_cleaned_are_refused_by_their_ids(model, tmp_path):
    rows = [{k: v for k, v in r.items() if k != "pd_id"} for r in changed(TRAIN, SOME, chosen=None)]
    done = prefdata.train(rows, tmp_path / "run", model("qwen"), check=True, **QUICK)
    found = done.checks[0]
    assert (done.status, found.word, found.status, found.rows) == (
        "refused",
        "uncleaned_data",
        "fail",
        ("3", "9", "17"),
    )
    assert "prefdata clean" in found.remedy and "3 of 48" in found.evidence


def test_every_word_of_a_check_is_tripped_here():
    assert {word for word, *_ in FAULTS.values()} | set(BROKEN.values()) | {"uncleaned_data"} == set(BEFORE)
