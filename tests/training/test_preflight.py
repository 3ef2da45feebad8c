"""``prefdata train --check`` on the scripts of the write-ups, on the shared cases, and on each setting that is wrong."""
# ruff: noqa: F811 (fixtures are imported, and are names of arguments)

import json
import math

import pytest
from planted import HELD, NEOX, QUICK, TEXTS, TRAIN, changed, folder, model, save_tiny, tokenizer_of  # noqa: F401 (fixtures)

import prefdata
from prefdata.errors import PrefdataError

INSTRUCT = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}{{ eos_token }}{% elif m.role == 'user' %}{{ m.content }}"
    "{% else %}{{ m.content }}\n{% endif %}{% endfor %}"
)


def script_of_the_first_write_up(home, system):
    """Its data columns, prefixes and options; the model is a tiny one of the same kind with the same tokens. Its set also has a column
    ``system``, which its script does not read and prefdata does: then the prompts are messages, which need a template.
    """
    rows = [{"id": r["pd_id"], "source": "truthy", **{k: r[k] for k in ("prompt", "chosen", "rejected")}} for r in TRAIN + HELD]  # fmt: skip
    for r in rows:
        r |= {"system": "You are honest."} if system else {}
        r["prompt"] = "Instruct: " + r["prompt"] + "\n"
        r["chosen"], r["rejected"] = "Output: " + r["chosen"], "Output: " + r["rejected"]
    rows[5]["chosen"] += " and so on" * 300  # a long sample
    (home / "truthy.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    save_tiny(home / "pythia", "neox", tokenizer_of(pad=None, **NEOX), dtype="float16")
    recipe = "method: full\npad_token: <|endoftext|>\nbeta: 0.1\nmax_length: 512\neval_share: 0.1\nprobes: 0\n"
    if system:
        (home / "instruct.jinja").write_text(INSTRUCT)
        recipe += f"chat_template: {home}/instruct.jinja\n"
    (home / "recipe.yaml").write_text(recipe)
    return [home / "truthy.jsonl", home / "run", "--model", home / "pythia", "--recipe", home / "recipe.yaml"]


def checks_of(ended):
    return {c["word"]: c for c in json.loads(ended.out)["checks"]}


@pytest.mark.parametrize("system", [False, True])
def test_the_first_write_up_fp16_is_the_cause_and_nothing_else(cli, tmp_path, system):
    script = script_of_the_first_write_up(tmp_path, system)
    ended = cli("train", *script, "--check", "--set", "dtype=stored", "--json")
    found = checks_of(ended)
    assert ended.code == 1 and [w for w, c in found.items() if c["status"] == "fail"] == ["fp16_weights"]
    assert "This is the cause" in found["fp16_weights"]["evidence"]
    assert found["bad_pad_token"]["status"] == "ok" and "not the cause of a NaN" in found["bad_pad_token"]["evidence"]
    assert found["implausible_learning_rate"]["status"] == found["implausible_setting"]["status"] == "ok"
    assert found["cut_answers"]["status"] == "ok" or "Not a cause of NaN" in found["cut_answers"]["evidence"]

    remedy = ["--set", "dtype=float32", "--max-steps", "3", "--overwrite", "--json"]
    ended = cli("train", *script, *remedy)
    assert ended.code == 0, ended.all
    after = json.loads(ended.out)["after"]
    assert after and all(math.isfinite(v) for v in after.values() if isinstance(v, float))


def test_the_first_write_up_without_the_check_would_be_nan(tmp_path):
    """The cause is the cause: the same script with float16 weights, by TRL alone."""
    import torch
    from transformers import AutoModelForCausalLM

    save_tiny(tmp_path, "neox", tokenizer_of(pad=None, **NEOX), dtype="float16")
    made = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.arange(20)[None]
    adam = torch.optim.AdamW(made.parameters(), lr=1e-6)
    made(input_ids=ids, labels=ids).loss.backward()
    adam.step()
    assert not all(torch.isfinite(p).all() for p in made.parameters())


SECOND = {
    "rows of characters": ([{"prompt": c, "chosen": c, "rejected": d} for c, d in zip("the boat is near the pier" * 2, "a gull is over the harbour" * 2, strict=False)], ("rows_of_characters", "uncleaned_data")),
    "NaN cells": (changed(TRAIN, (3, 9), chosen=float("nan")), ("uncleaned_data",)),
    "NaN cells that became words": (changed(TRAIN, (3, 9), chosen="nan"), ("null_word",)),
    "nothing to label": (changed(TRAIN, (3, 9), chosen="", rejected=""), ("uncleaned_data",)),
}  # fmt: skip


@pytest.mark.parametrize("fault", SECOND)
def test_the_second_write_up_from_a_table(model, tmp_path, fault):
    import pandas as pd

    rows, words = SECOND[fault]
    done = prefdata.train(pd.DataFrame(rows), tmp_path / "run", model("gpt2"), check=True, **QUICK)
    assert done.status == "refused"
    assert {c.word for c in done.checks if c.status == "fail"} & set(words)
    named = [c for c in done.checks if c.status == "fail" and c.word in words]
    assert all(c.rows or c.word == "rows_of_characters" for c in named)


CALLS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% if m.tool_calls is defined %}{{ m.tool_calls | tojson }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_case_17_tool_calls_reach_the_trainer_as_they_came(shared, tmp_path):
    case = shared / "cases/17-tool-calls-survive"
    tiny = save_tiny(tmp_path / "m", tokenizer=tokenizer_of([*TEXTS, CALLS], eos="<|im_end|>", template=CALLS, a="<|im_start|>", unk_token="<|endoftext|>"))  # fmt: skip
    ids = {}
    for name in ("rows.jsonl", "padded.parquet"):
        done = prefdata.train(str(case / name), tmp_path / name, tiny, check=True, **{**QUICK, "max_length": 512})
        assert done.status == "checked", [(c.word, c.evidence) for c in done.checks if c.status == "fail"]
        ids[name] = lengths(tmp_path / name, tiny)
    assert len(ids["rows.jsonl"]) == 4, "all four rows are kept"
    assert ids["padded.parquet"] == ids["rows.jsonl"][: len(ids["padded.parquet"])], "rendered alike"


def lengths(run, tiny):
    """The ids that the trainer gets of each pair of a run's own cleaned set."""
    from transformers import AutoTokenizer

    from prefdata.training.data import load
    from prefdata.training.prepare import prepare
    from prefdata.training.settings import Settings

    pairs = load(run / "data", Settings(model=tiny, eval_share=0)).train
    made = prepare(pairs, AutoTokenizer.from_pretrained(tiny), 10_000, "train")
    return [[list(made.ids[s][i]) for s in ("prompt", "chosen", "rejected")] for i in range(len(pairs))]


def test_case_19_too_long_for_the_model(shared, cli, tmp_path):
    case = shared / "cases/19-too-long-for-the-model"
    texts = [json.dumps(json.loads(line)) for line in (case / "rows.jsonl").read_text().splitlines()]
    tiny = save_tiny(tmp_path / "m", tokenizer=tokenizer_of(texts, unk_token="<|endoftext|>"))
    given = ["--model", tiny, "--check", "--set", "max_length=256", "--json"]
    ended = cli("train", case / "rows.jsonl", tmp_path / "run", *given)
    found = checks_of(ended)
    assert ended.code == 1 and found["uncleaned_data"]["rows"] == ["1"]  # o2, by its place
    assert "too_long 1" in found["uncleaned_data"]["evidence"] and "1 of 4" in found["uncleaned_data"]["evidence"]
    assert found["cut_answers"]["rows"] == ["2"] and found["no_labels"]["status"] == "ok"  # o3 is kept, and counted
    assert found["rows_lost"]["status"] == "ok"

    ended = cli("train", case / "all_long.jsonl", tmp_path / "long", *given)
    said = checks_of(ended)["uncleaned_data"]["evidence"]
    assert ended.code == 1 and "0 are left" in said and "max_length 256" in said and "longest prompt" in said
    assert not (tmp_path / "long/data").exists()


WRONG = {
    "loss_type": ("sigmod", "sigmoid"), "optim": ("adamw_torc", "adamw_torch"), "lora_targets": ([], "nothing would be trained"),
    "lr_groups": ({"(": 1e-6}, "regular expression"), "early_stop": (["acuracy<0.1"], "accuracy"), "average": ("first:3", "last:3"),
    "beta_schedule": ("cosine:1->2", "linear"), "replay": ("nowhere.txt", "no such file"), "forgetting": ("nowhere.txt", "no such file"),
    "chat_template": ("nowhere.jinja", "no such file"), "report_to": (["tensorbord"], "tensorboard"), "beta": (-1, "beta"), "device": ("tpu", "cpu"),
    "precision": ("fp8", "precision"), "dtype": ("int8", "dtype"), "max_length": (1, "max_length"), "seed": (-1, "seed"), "order": ("random", "order"),
    "eval_share": (1.5, "eval_share"), "label_smoothing": (0.9, "label_smoothing"), "learning_rate": (0, "learning_rate"), "beeta": (0.1, "beta"),
    "reference": ("./nowhere", "no such model folder"), "eval_split": ("tset", "test"), "order_by": ("no_column", "no such column"),
}  # fmt: skip


@pytest.mark.parametrize("key", WRONG)
def test_a_wrong_value_is_told_in_a_sentence(folder, model, tmp_path, key):
    value, words = WRONG[key]
    try:
        done = prefdata.train(folder(TRAIN), tmp_path / "run", model("qwen"), check=True, **{**QUICK, key: value})
    except PrefdataError as error:
        told = str(error)
    else:
        told = " ".join(c.evidence for c in done.checks if c.status == "fail")
    assert words in told and "Traceback" not in told


@pytest.mark.parametrize(
    "given", [{"lora_targets": "no_such_module"}, {"lora_targets": ["("]}, {"optim": "galore_adamw"}, {"optim": "lomo"}]
)
def test_what_a_library_refuses_is_a_check(folder, model, tmp_path, given):
    done = prefdata.train(
        folder(TRAIN), tmp_path / "run", model("qwen"), check=True, **{**QUICK, "method": "lora", **given}
    )
    assert [c.word for c in done.checks if c.status == "fail"] == ["trainer_refused"]
