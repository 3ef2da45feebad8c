"""Training that is tried again: with less memory, after a spike, after a stop; and what a library's error becomes."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch

import prefdata
from prefdata.errors import ConfigError

QUICK = {"max_steps": 8, "learning_rate": 1e-3, "batch_size": 8, "method": "full", "probes": 0, "eval_steps": 2}


@pytest.fixture
def at(monkeypatch):
    """``at(when, act)``: before each forward and backward pass, act where ``when`` says so of the trainer."""
    from prefdata.training.trainer import PreferenceTrainer

    real = PreferenceTrainer.training_step

    def plant(when, act):
        def training_step(self, *args, **kwargs):
            if when(self):
                act(self)
            return real(self, *args, **kwargs)

        monkeypatch.setattr(PreferenceTrainer, "training_step", training_step)

    return plant


def raises(error):
    def act(trainer):
        raise error

    return act


def words(done):
    return [a["word"] for a in done.alarms]


def weights(out):
    from safetensors.torch import load_file

    return load_file(out / "model/model.safetensors")


def same(a, b):
    one, two = weights(a), weights(b)
    return all(torch.allclose(one[k], two[k], atol=1e-6) for k in one)


def logged(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["step"] for line in lines if "loss" in line]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")])  # fmt: skip
def test_less_at_once_when_memory_runs_out(tiny, cleaned, tmp_path, at, error):
    at(lambda t: t.args.per_device_train_batch_size > 2 and t.state.global_step == 5, raises(error))
    done = prefdata.train(cleaned, tmp_path / "run", tiny, **QUICK)
    assert done.status == "complete" and words(done) == ["out_of_memory"] * len(done.alarms)
    assert done.alarms[0]["action"] == "retry" and done.plan["micro_batch_size"] == 2
    assert done.plan["micro_batch_size"] * done.plan["accumulation"] == 8
    assert logged(tmp_path / "run") == sorted(set(logged(tmp_path / "run")))


def test_a_pair_that_does_not_fit_alone_stops(tiny, cleaned, tmp_path, at):
    at(lambda t: True, raises(torch.OutOfMemoryError("out of memory")))
    done = prefdata.train(cleaned, tmp_path / "run", tiny, **{**QUICK, "micro_batch_size": 2})
    assert done.status == "stopped" and words(done) == ["out_of_memory"] * 2
    assert done.alarms[-1]["action"] == "stop" and done.alarms[-1]["remedy"]


def test_what_a_library_raises_is_named_with_its_step(tiny, cleaned, tmp_path, at):
    at(lambda t: t.state.global_step == 3, raises(IndexError("index out of range in self")))
    done = prefdata.train(cleaned, tmp_path / "run", tiny, **QUICK)
    assert done.status == "stopped" and words(done) == ["trainer_error"]
    assert done.alarms[0]["step"] == 4 and "IndexError: index out of range" in done.alarms[0]["evidence"]
    assert not (tmp_path / "run/model").exists()


def test_a_spike_is_rolled_back_once_with_a_tenth_of_the_rate(tiny, cleaned, tmp_path, at):
    asked = {**QUICK, "max_steps": 30, "on_spike": "rollback", "eval_steps": 4}
    jolted = []

    def jolt(trainer):
        jolted.append(1)
        with torch.no_grad():
            for p in trainer.model.parameters():
                p.add_(torch.randn_like(p))

    at(lambda t: t.state.global_step == 20 and not jolted, jolt)
    done = prefdata.train(cleaned, tmp_path / "run", tiny, **asked)
    back = [a for a in done.alarms if a["action"] == "rollback"]
    assert done.status == "complete" and [a["word"] for a in back] == ["loss_spike"] and back[0]["step"] in (21, 22)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    rates = {line["step"]: line["learning_rate"] for line in lines if "learning_rate" in line}
    before, after = max(s for s in rates if s <= 20), max(rates)
    assert rates[after] < 0.15 * rates[before]
    assert done.after["margin"] > 0.1


def test_a_run_that_was_interrupted_ends_as_if_it_had_not_been(tiny, cleaned, tmp_path, at):
    whole = prefdata.train(cleaned, tmp_path / "whole", tiny, **QUICK)
    hit = []

    def once(trainer):
        hit.append(1)
        raise KeyboardInterrupt

    at(lambda t: t.state.global_step == 5 and not hit, once)
    with pytest.raises(KeyboardInterrupt):
        prefdata.train(cleaned, tmp_path / "run", tiny, **QUICK)
    assert json.loads((tmp_path / "run/train.json").read_text())["status"] == "interrupted"
    with pytest.raises(ConfigError, match=r"beta was 0\.1, is 0\.3"):
        prefdata.train(cleaned, tmp_path / "run", tiny, **QUICK, beta=0.3, resume=True)
    said = []
    done = prefdata.train(cleaned, tmp_path / "run", tiny, **QUICK, resume=True, say=said.append)
    assert done.status == "complete" and any("step 4" in s for s in said)
    assert same(tmp_path / "whole", tmp_path / "run")
    assert done.after["margin"] == pytest.approx(whole.after["margin"], rel=1e-5)
    assert logged(tmp_path / "run") == logged(tmp_path / "whole")


def test_going_on_without_a_checkpoint_starts_anew_and_says_so(tiny, cleaned, tmp_path):
    (tmp_path / "run").mkdir()
    said = []
    done = prefdata.train(cleaned, tmp_path / "run", tiny, **QUICK, resume=True, say=said.append)
    assert done.status == "complete" and any("starts anew" in s for s in said)


@pytest.fixture(scope="module")
def whole(tiny, cleaned, tmp_path_factory):
    """A run that nothing interrupts."""
    home = tmp_path_factory.mktemp("whole") / "run"
    done = prefdata.train(cleaned, home, tiny, **QUICK)
    assert done.status == "complete" and not done.alarms
    return home


def test_with_less_at_once_a_step_has_the_same_pairs(tiny, cleaned, whole, tmp_path, at):
    left = [torch.OutOfMemoryError("CUDA out of memory")]
    at(lambda t: t.state.global_step == 5 and left, lambda t: raises(left.pop())(t))
    done = prefdata.train(cleaned, tmp_path / "run", tiny, **QUICK)
    assert [(a["word"], a["step"], a["action"]) for a in done.alarms] == [("out_of_memory", 6, "retry")]
    one, two = weights(tmp_path / "run"), weights(whole)
    assert all(torch.allclose(one[k], two[k], atol=1e-4) for k in one)


def test_a_checkpoint_cut_short_is_passed_over_and_a_complete_run_stays(tiny, cleaned, whole, tmp_path, at):
    left = [ValueError("no")]
    at(lambda t: t.state.global_step == 7 and left, lambda t: raises(left.pop())(t))
    home = tmp_path / "run"
    assert prefdata.train(cleaned, home, tiny, **QUICK).status == "stopped"
    (home / "checkpoints/checkpoint-7").mkdir()  # killed while it was written
    (home / "checkpoints/checkpoint-7/model.safetensors").write_bytes(b"")
    for _ in range(2):  # the second time it is complete
        done = prefdata.train(cleaned, home, tiny, **QUICK, resume=True)
        assert done.status == "complete" and same(home, whole) and logged(home) == logged(whole)


def test_going_on_with_other_pairs_is_refused_and_takes_nothing_away(tiny, whole, tmp_path):
    before = (whole / "metrics.jsonl").read_bytes()
    rows = [
        {"prompt": f"What of {i}?\n", "chosen": f"It is {i}, as is known.", "rejected": f"No idea of {i}."}
        for i in range(96)
    ]
    prefdata.clean(rows, tmp_path / "other", "certain", split="test=0.2")
    with pytest.raises(ConfigError, match="data was"):
        prefdata.train(tmp_path / "other", whole, tiny, **QUICK, resume=True)
    assert (whole / "metrics.jsonl").read_bytes() == before


def test_adapters_are_rolled_back_too(tiny, cleaned, tmp_path, at):
    left = [1]

    def turn(trainer):  # every label of the step is the wrong way round
        left.clear()
        trainer.beta *= -1

    at(lambda t: t.state.global_step == 21 and left, turn)
    asked = {
        **QUICK,
        "max_steps": 28,
        "eval_steps": 4,
        "logging_steps": 1,
        "method": "lora",
        "learning_rate": 1e-2,
        "beta": 0.5,
    }
    done = prefdata.train(cleaned, tmp_path / "run", tiny, **asked, on_spike="rollback")
    assert [(a["word"], a["step"], a["action"]) for a in done.alarms] == [("loss_spike", 22, "rollback")]
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    rates = {line["step"]: line["learning_rate"] for line in lines if "learning_rate" in line}
    assert rates[21] == pytest.approx((2 * rates[20] - rates[19]) / 10, rel=1e-3)
    assert done.status == "complete" and logged(tmp_path / "run") == list(range(1, 29))


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_to_equal_weights(tiny, cleaned, whole, tmp_path):
    home = tmp_path / "run"
    script = (
        "import json, sys, time, prefdata\nfrom prefdata.training.trainer import PreferenceTrainer as P\nreal = P.training_step\n"
        "def step(self, *a, **k):\n    time.sleep(0.4)\n    return real(self, *a, **k)\nP.training_step = step\n"
        "prefdata.train(sys.argv[1], sys.argv[2], sys.argv[3], **json.loads(sys.argv[4]))\n"
    )
    asked = [sys.executable, "-c", script, str(cleaned), str(home), tiny, json.dumps(QUICK)]
    run = subprocess.Popen(asked, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not (home / "checkpoints/checkpoint-6/trainer_state.json").is_file():
        assert run.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    run.kill()  # SIGKILL
    run.wait()
    done = prefdata.train(cleaned, home, tiny, **QUICK, resume=True)
    assert done.status == "complete" and same(home, whole) and logged(home) == logged(whole)
