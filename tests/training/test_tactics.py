"""Tactics as a user asks for them, each through ``prefdata.train``; and what is saved at the end."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import prefdata
from prefdata.errors import ConfigError
from prefdata.training import attempts, dpo

QUICK = {
    "max_steps": 4,
    "learning_rate": 1e-3,
    "batch_size": 8,
    "method": "full",
    "probes": 0,
    "guards": "off",
    "warmup_ratio": 0.0,
}
TEXT = "The old stone pier is cold and grey.\n\nThe ferry is near the harbour, and the gull is near the water.\n\nA garden bed in spring.\n"  # fmt: skip


@pytest.fixture
def held(monkeypatch):
    """What a run was made of: its case, before and after training."""
    seen = {}
    run = attempts.run

    def kept(case, *rest):
        seen["case"] = case
        ended = run(case, *rest)
        trainer = case.trainer
        names = {id(p): n for n, p in trainer.model.named_parameters()}  # before adapters are merged
        seen["rates"] = {names[id(p)]: g["lr"] for g in trainer.optimizer.param_groups for p in g["params"]}
        seen["trained"] = sum(p.requires_grad for p in trainer.model.parameters())
        return ended

    monkeypatch.setattr(dpo.attempts, "run", kept)
    return seen


def logs(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def trained(cleaned, run, tiny, **more):
    done = prefdata.train(cleaned, run, tiny, **{**QUICK, **more})
    assert done.status == "complete", [c for c in done.checks if c.status == "fail"]
    return done


def test_beta_moves_in_a_line_and_evaluations_keep_theirs(tiny, cleaned, tmp_path):
    done = trained(
        cleaned,
        tmp_path / "run",
        tiny,
        beta=0.2,
        beta_schedule="linear:0.05->0.5",
        max_steps=4,
        logging_steps=1,
        eval_steps=4,
    )
    betas = [line["beta"] for line in logs(tmp_path / "run") if "beta" in line]
    assert betas == pytest.approx([0.05, 0.2, 0.35, 0.5])
    last = next(line for line in logs(tmp_path / "run") if line.get("eval_loss") and line["step"] == 4)
    assert last["eval_rewards/margins"] == pytest.approx(done.after["margin"], abs=1e-5)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_groups_and_layers_have_rates_of_their_own(tiny, cleaned, tmp_path, held, method):
    groups = {"layers.0.*q_proj": 5e-5} if method == "lora" else {"layers.0.*norm": 0.0, "layers.0.*q_proj": 5e-5}
    trained(
        cleaned,
        tmp_path / "run",
        tiny,
        method=method,
        lr_groups=groups,
        layer_decay=0.5,
        lr_scheduler_type="constant",
        max_steps=2,
    )
    rates = held["rates"]
    assert len(rates) == held["trained"]
    for name, rate in rates.items():
        wanted = 1e-3 if "layers.1." in name else 5e-4
        wanted = 5e-5 if "layers.0" in name and "q_proj" in name else wanted
        if "layers." not in name:
            wanted = 2.5e-4 if "embed" in name else 1e-3
        if method == "full" and "layers.0" in name and "norm" in name:
            wanted = 0.0
        assert rate == pytest.approx(wanted), name
    if method == "full":
        still = dict(held["case"].trainer.model.named_parameters())["model.layers.0.input_layernorm.weight"]
        assert bool((still == 1).all())


def test_a_group_that_matches_nothing_is_named(tiny, cleaned, tmp_path):
    with pytest.raises(ConfigError, match=r"lr_groups q_prj.*q_proj"):
        prefdata.train(cleaned, tmp_path / "run", tiny, **QUICK, lr_groups={"q_prj": 1e-4})


def test_an_optimizer_without_its_package_is_refused_before_any_step(tiny, cleaned, tmp_path):
    done = prefdata.train(cleaned, tmp_path / "run", tiny, **QUICK, optim="lion_32bit")
    (found,) = [c for c in done.checks if c.status == "fail"]
    assert done.status == "refused" and found.word == "trainer_refused" and "bitsandbytes" in found.evidence
    trained(cleaned, tmp_path / "other", tiny, optim="adafactor", max_steps=1)


def test_clipping_follows_the_norms_so_far_also_after_a_resume(tiny, cleaned, tmp_path, held):
    more = {"clip_percentile": 50, "max_grad_norm": 0.9, "logging_steps": 1, "eval_steps": 2}
    trained(cleaned, tmp_path / "run", tiny, **more)
    clip = held["case"].trainer.clip
    norms = [line["grad_norm"] for line in logs(tmp_path / "run") if "grad_norm" in line]
    assert clip.norms == pytest.approx(norms, rel=1e-3) and len(norms) == 4
    assert clip.bound == pytest.approx(min(0.9, float(np.percentile(clip.norms[:3], 50))))
    state = json.loads((tmp_path / "run/checkpoints/checkpoint-2/trainer_state.json").read_text())
    assert state["stateful_callbacks"]["Percentile"]["attributes"]["norms"] == clip.norms[:2]
    whole = list(clip.norms)
    shutil.rmtree(tmp_path / "run/checkpoints/checkpoint-4")
    prefdata.train(cleaned, tmp_path / "run", tiny, **{**QUICK, **more}, resume=True)
    assert held["case"].trainer.clip.norms == pytest.approx(whole, rel=1e-5)


def seen_rows(held):
    trainer = held["case"].trainer
    return [int(r) for batch in trainer.get_train_dataloader() for r in batch["pd_row"]]


def test_easy_pairs_come_first_by_a_column(tiny, tmp_path, held):
    words, hard = ["boat", "pier", "gull", "garden", "bed", "spring"], [(7 * i) % 48 for i in range(48)]
    rows = [{"prompt": f"Say {i} of the {words[i % 6]}.\n", "chosen": f"The {words[i % 6]} is old, {i}.", "rejected": f"No, {i}.", "hard": hard[i]} for i in range(48)]  # fmt: skip
    out = tmp_path / "out"
    prefdata.clean(rows, out, "certain")
    run = {**QUICK, "max_steps": 1, "eval_share": 0}
    for order, sign in (("easy_first", 1), ("hard_first", -1)):
        prefdata.train(out, tmp_path / order, tiny, **run, order=order, order_by="hard")
        rows = seen_rows(held)
        assert sorted(rows) == list(range(48))
        assert [sign * hard[r] for r in rows] == sorted(sign * d for d in hard)
    prefdata.train(out, tmp_path / "as_is", tiny, **run, order="as_is")
    assert seen_rows(held) == list(range(48))


@pytest.mark.parametrize("method", ["full", "lora"])
def test_easy_pairs_come_first_by_the_reference_itself(tiny, cleaned, tmp_path, held, method):
    trained(cleaned, tmp_path / "run", tiny, order="easy_first", method=method, max_steps=1)
    case, rows = held["case"], seen_rows(held)
    data = case.trainer.train_dataset
    margin = dict(zip(data["pd_row"], np.subtract(data["ref_chosen_logps"], data["ref_rejected_logps"]), strict=True))
    found = [margin[r] for r in rows]
    assert found == sorted(found, reverse=True) and len(rows) == len(data)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny)
    example = data[0]
    sums = []
    for side in ("chosen", "rejected"):
        ids = torch.tensor([example["prompt_ids"] + example[f"{side}_ids"]])
        with torch.no_grad():
            logs = model(ids).logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
        sums.append(float(logs[len(example["prompt_ids"]) - 1 :].sum()))
    assert margin[example["pd_row"]] == pytest.approx(sums[0] - sums[1], abs=1e-3)


def test_texts_are_replayed_beside_the_pairs(tiny, cleaned, tmp_path, held):
    (tmp_path / "texts.txt").write_text(TEXT)
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXT.split("\n\n")))
    ends = []
    for name in ("texts.txt", "texts.jsonl"):
        more = {
            "replay": str(tmp_path / name),
            "replay_share": 0.25,
            "max_steps": 20,
            "eval_steps": 20,
            "logging_steps": 1,
            "learning_rate": 5e-3,
        }
        trained(cleaned, tmp_path / f"run.{name}", tiny, **more, micro_batch_size=2)
        ends.append([line["replay_loss"] for line in logs(tmp_path / f"run.{name}") if "replay_loss" in line])
        replay = held["case"].trainer.extra_loss
        assert replay.drawn == 40 and len(ends[-1]) == 20  # a quarter of 8 pairs in each of 20 steps
        assert replay.ids("The old pier.")[-1] == held["case"].tokenizer.eos_token_id
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)
    assert ends[0][-1] < 0.7 * ends[0][0]
    trained(cleaned, tmp_path / "without", tiny)
    assert not any("replay_loss" in line for line in logs(tmp_path / "without"))


def test_a_text_counts_the_same_in_large_and_small_micro_batches(tiny, cleaned, tmp_path, held):
    (tmp_path / "texts.txt").write_text("The old stone pier is cold and grey.")
    got = []
    for micro in (8, 2):
        more = {
            "replay": str(tmp_path / "texts.txt"),
            "replay_share": 0.25,
            "micro_batch_size": micro,
            "max_steps": 1,
            "order": "as_is",
        }
        trained(cleaned, tmp_path / f"run{micro}", tiny, **more)
        got.append(float(held["case"].trainer.norm))
    assert got[0] == pytest.approx(got[1], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [("none.txt", None, "no such file"), ("empty.txt", "\n\n \n", "holds no text"), ("rows.jsonl", '{"a": 1}\n', "rows.jsonl:1: has no text"),
     ("broken.jsonl", "{", "is no JSON")],
)  # fmt: skip
def test_a_file_without_texts_is_named(tiny, cleaned, tmp_path, name, content, says):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=says):
        prefdata.train(cleaned, tmp_path / "run", tiny, **QUICK, replay=str(tmp_path / name))


def weights(folder):
    from safetensors.torch import load_file

    (path,) = Path(folder).glob("*.safetensors")
    return load_file(path)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_the_mean_of_checkpoints_is_kept_where_it_is_better(tiny, cleaned, tmp_path, method, monkeypatch):
    from prefdata.training import average

    more = {"average": "last:3", "eval_steps": 1, "save_total_limit": 1, "method": method, "learning_rate": 3e-3}
    monkeypatch.setattr(average, "margin", _turned(average.margin))
    done = trained(cleaned, tmp_path / "kept", tiny, **more)
    assert done.averaged["kept"] and done.averaged["of"] == ["checkpoint-2", "checkpoint-3", "checkpoint-4"]
    parts = [weights(tmp_path / f"kept/checkpoints/{name}") for name in done.averaged["of"]]
    saved = weights(tmp_path / "kept" / ("model" if method == "full" else "adapter"))
    for name, value in saved.items():
        torch.testing.assert_close(value, sum(p[name] for p in parts) / 3, atol=1e-6, rtol=1e-5)
    monkeypatch.undo()
    done = trained(cleaned, tmp_path / "last", tiny, **{**more, "average": "best:2"})
    assert not done.averaged["kept"] and done.averaged["metrics"]["margin"] < done.after["margin"]
    assert done.averaged["of"] == ["checkpoint-3", "checkpoint-4"]
    saved, last = weights(tmp_path / "last" / ("model" if method == "full" else "adapter")), weights(tmp_path / "last/checkpoints/checkpoint-4")  # fmt: skip
    assert all(torch.equal(saved[n], last[n]) for n in saved)


def _turned(margin):
    return lambda metrics: None if margin(metrics) is None else -margin(metrics)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_what_is_saved_is_what_was_trained(tiny, cleaned, tmp_path, method, held, monkeypatch):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from prefdata.training import models

    ids = torch.tensor([[5, 60, 70, 80, 90]])
    save, said = models.save, {}

    def kept(model, *rest):
        model.eval()
        with torch.no_grad():
            said["logits"] = model(ids).logits
        (tmp_path / "run/model.part").mkdir()  # of a run that was killed
        (tmp_path / "run/model.part/model.safetensors").write_bytes(b"half")
        return save(model, *rest)

    monkeypatch.setattr(dpo.models, "save", kept)
    trained(cleaned, tmp_path / "run", tiny, method=method, learning_rate=1e-2)
    with torch.no_grad():
        whole = AutoModelForCausalLM.from_pretrained(tmp_path / "run/model").eval()
        torch.testing.assert_close(whole(ids).logits, said["logits"], atol=1e-5, rtol=1e-4)
        base = AutoModelForCausalLM.from_pretrained(tiny).eval()
        assert float((base(ids).logits - said["logits"]).abs().max()) > 1e-3
        if method == "lora":
            from peft import PeftModel

            adapted = PeftModel.from_pretrained(base, tmp_path / "run/adapter").eval()
            torch.testing.assert_close(adapted(ids).logits, said["logits"], atol=1e-5, rtol=1e-4)
            assert (tmp_path / "run/adapter/prefdata.json").is_file()
    assert AutoTokenizer.from_pretrained(tmp_path / "run/model")("a pier").input_ids
    assert (tmp_path / "run/model/generation_config.json").is_file()
    assert not [*(tmp_path / "run").glob("*.part")]
    assert json.loads((tmp_path / "run/model/prefdata.json").read_text())["data_manifest_sha256"]


def test_a_save_that_is_killed_leaves_nothing_that_looks_finished(tiny, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from prefdata.training import models

    class Killed(Exception):
        pass

    class Dying:
        def save_pretrained(self, folder):
            raise Killed

    (tmp_path / "model").mkdir()
    (tmp_path / "model/old").write_text("")
    with pytest.raises(Killed):
        models.save(AutoModelForCausalLM.from_pretrained(tiny), Dying(), tmp_path, {})
    assert [p.name for p in (tmp_path / "model").iterdir()] == ["old"]
    models.save(AutoModelForCausalLM.from_pretrained(tiny), AutoTokenizer.from_pretrained(tiny), tmp_path, {})
    assert not (tmp_path / "model/old").exists() and (tmp_path / "model/model.safetensors").is_file()


def test_a_model_that_cannot_be_trained_is_named(tiny, cleaned, tmp_path):
    import transformers as t

    def refused(model, match, **more):
        with pytest.raises(ConfigError, match=match):
            prefdata.train(cleaned, tmp_path / "run", str(model), **QUICK, **more)

    refused(tmp_path / "none", "no such model")
    bare = tmp_path / "bare"
    t.AutoModelForCausalLM.from_pretrained(tiny).save_pretrained(bare)
    refused(bare, "tokenizer")
    t.LlavaConfig().save_pretrained(tmp_path / "llava")
    refused(tmp_path / "llava", "pictures")
    t.T5Config().save_pretrained(tmp_path / "t5")
    refused(tmp_path / "t5", "no causal language model")
    other = tmp_path / "other"
    t.AutoModelForCausalLM.from_pretrained(tiny).save_pretrained(other)
    words = t.AutoTokenizer.from_pretrained(tiny)
    words.add_tokens(["<more>"])
    words.save_pretrained(other)
    refused(tiny, "another vocabulary", reference=str(other))


@pytest.mark.parametrize("method", ["full", "lora"])
def test_another_model_as_reference_and_no_warning_of_libraries(tiny, cleaned, tmp_path, recwarn, method):
    done = trained(cleaned, tmp_path / "run", tiny, reference=tiny, method=method, gradient_checkpointing=True)
    assert done.after["margin"] > 0
    assert not [str(w.message) for w in recwarn if issubclass(w.category, FutureWarning)]


def test_weights_of_the_set_decide_what_is_learnt(tiny, tmp_path):
    """All training pairs surely wrong: the model learns the opposite; all of no weight: it learns nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ends = {}
    for name, column, value in (
        ("plain", "pd_weight", 1.0),
        ("nothing", "pd_weight", 0.0),
        ("wrong", "pd_flip_prob", 1.0),
    ):
        rows = [
            {"prompt": f"Say {i}.\n", "chosen": f"It is well known, {i}.", "rejected": f"Ask somebody else, {i}."}
            for i in range(60)
        ]
        out = tmp_path / name
        prefdata.clean(rows, out, "certain", split="test=0.2")
        for path in (out / "data/train").glob("*.parquet"):
            table = pq.read_table(path)
            table = table.drop_columns([c for c in ("pd_weight", "pd_flip_prob") if c in table.column_names])
            pq.write_table(table.append_column(column, pa.array([value] * len(table), pa.float32())), path)
        more = {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.1], "max_steps": 8}
        done = prefdata.train(out, tmp_path / f"run.{name}", tiny, **{**QUICK, **more})
        ends[name] = done.after.get("margin", [c.evidence for c in done.checks if c.status == "fail"])
    assert ends["plain"] > 0.05 and ends["wrong"] < -0.05
    assert ends["nothing"] == 0 or isinstance(ends["nothing"], list), ends["nothing"]
