"""What a run writes down while it goes on: numbers of steps and evaluations, answers to probes, how far layers move."""

import json

import pytest
import torch
from safetensors.torch import load_file

import prefdata
from prefdata.errors import ConfigError

GIVEN = {"max_steps": 12, "learning_rate": 1e-3, "batch_size": 8, "eval_steps": 4, "logging_steps": 3, "probe_tokens": 12}  # fmt: skip


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def runs(tiny, cleaned, tmp_path_factory):
    """The same training with probes, without, and with adapters."""
    home = tmp_path_factory.mktemp("runs")
    kinds = {"full": {"method": "full", "probes": 12}, "bare": {"method": "full", "probes": 0}, "lora": {"method": "lora", "probes": 12, "gradient_checkpointing": True}}  # fmt: skip
    for name, more in kinds.items():
        assert prefdata.train(cleaned, home / name, tiny, **GIVEN, **more).status == "complete"
    return home


def test_a_line_of_training_has_each_number(runs):
    found = [m for m in lines(runs / "full/metrics.jsonl") if "loss" in m]
    assert found[-1]["step"] == 12 and len(found) == 5
    names = {
        "loss", "rewards/margins", "rewards/accuracies", "ties", "logps/chosen", "logps/rejected", "log_ratio/chosen",
        "log_ratio/rejected", "grad_norm", "clipped", "learning_rate", "beta", "entropy", "tokens_per_second", "memory", "nonfinite_pairs",
    }  # fmt: skip
    assert all(names <= set(m) for m in found)
    assert found[0]["ties"] == 1 and found[0]["loss"] == pytest.approx(0.6931, abs=1e-3) and found[-1]["ties"] == 0
    assert found[-1]["tokens_per_second"] > 0 and found[-1]["nonfinite_pairs"] == 0
    for m in found:
        assert m["rewards/margins"] == pytest.approx(m["rewards/chosen"] - m["rewards/rejected"], abs=1e-5)
        assert m["clipped"] == 1 if m["grad_norm"] > 1.5 else 0 <= m["clipped"] <= 1


def test_an_evaluation_counts_every_pair_once(runs):
    found = [m for m in lines(runs / "full/metrics.jsonl") if "eval_loss" in m]
    assert [m["step"] for m in found] == [4, 8, 12] and all(m["eval_pairs"] == 24 for m in found)
    after = json.loads((runs / "full/train.json").read_text())["after"]
    assert found[-1]["eval_rewards/margins"] == pytest.approx(after["margin"], abs=1e-4)
    assert found[-1]["eval_rewards/accuracies"] == pytest.approx(after["accuracy"], abs=1e-6)


def test_probes_leave_the_weights_as_they_are(runs):
    a, b = (load_file(runs / n / "model/model.safetensors") for n in ("full", "bare"))
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not (runs / "bare/generations.jsonl").exists()


@pytest.mark.parametrize("name", ["full", "lora"])
def test_the_same_prompts_are_answered_at_the_start_and_at_each_evaluation(runs, name):
    found = lines(runs / name / "generations.jsonl")
    asked = {s: [m["id"] for m in found if m["step"] == s] for s in (0, 4, 8, 12)}
    assert len(asked[0]) == 12 and all(ids == asked[0] for ids in asked.values()) and len(found) == 48
    assert all(0 <= m["tokens"] <= 12 and m["prompt"].startswith("Tell me about") for m in found)
    said = [[m["text"] for m in found if m["step"] == s] for s in (0, 12)]
    assert said[0] != said[1]
    rounds = [m for m in lines(runs / name / "metrics.jsonl") if "probes/distinct" in m]
    assert rounds[0]["probes/length_ratio"] == 1 and [m["step"] for m in rounds] == [0, 4, 8, 12]


def test_an_answer_is_what_the_model_says_alone(runs, tiny, cleaned):
    """Batched with longer prompts, padded on the left, it is the answer that each prompt gets by itself."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(tiny).eval(), AutoTokenizer.from_pretrained(tiny)
    lengths = set()
    for m in lines(runs / "full/generations.jsonl")[:12]:
        ids = tokenizer(m["prompt"], return_tensors="pt").input_ids
        lengths.add(ids.shape[1])
        got = model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
        assert tokenizer.decode(got).removesuffix("<eos>") == m["text"]
    assert len(lengths) > 1


def test_layers_that_are_trained_move(runs):
    for name, layers in (("full", {"embed_tokens", "layer 0", "layer 1", "norm", "lm_head"}), ("lora", {"layer 0", "layer 1"})):  # fmt: skip
        found = [m for m in lines(runs / name / "metrics.jsonl") if "update_ratio" in m]
        assert [m["step"] for m in found] == [4, 8, 12]
        assert set(found[0]["update_ratio"]) == layers
        assert all(0 < v < 0.5 for m in found for v in m["update_ratio"].values())


def test_the_movement_of_an_adapter_is_that_of_the_weights(tiny):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from prefdata.training.probes import Movement

    class Lines(list):
        def write(self, line, main=True):
            self.append(line)

    model = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny), LoraConfig(r=4, lora_alpha=8, target_modules=["o_proj"]))  # fmt: skip
    state = type("State", (), {"global_step": 0, "is_world_process_zero": True})()
    heard = Lines()
    moving = Movement(heard)
    moving.look(state, model)
    assert heard == []
    torch.manual_seed(1)
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "lora" in n:
                p.add_(torch.randn_like(p))
    moving.look(state, model)
    layer = model.base_model.model.model.layers[1].self_attn.o_proj
    true = layer.get_delta_weight("default").detach().norm() / layer.base_layer.weight.detach().norm()
    assert heard[0]["update_ratio"]["layer 1"] == pytest.approx(float(true), rel=1e-4)


@pytest.mark.parametrize(("name", "says"), [("wandb", "not installed"), ("wandbb", "wandbb")])
def test_a_tracker_that_is_not_there_is_named_before_anything_starts(tiny, cleaned, tmp_path, name, says, monkeypatch):
    monkeypatch.setattr("prefdata.training.monitors.find_spec", lambda module: None)
    with pytest.raises(ConfigError, match=says):
        prefdata.train(cleaned, tmp_path / "run", tiny, report_to=[name])
    assert not (tmp_path / "run").exists()
