"""``prefdata doctor RUN``: runs that were really made, whole, stopped, refused and killed, of prefdata and of plain TRL; and logs of known faults."""

import json
import math
import os
import shutil
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prefdata.training import diagnose
from prefdata.training.words import WORDS

NAN = math.nan


@pytest.fixture(scope="module")
def runs(tmp_path_factory, tiny, cleaned):
    """Real runs by name."""
    import prefdata

    home = tmp_path_factory.mktemp("runs")
    given = {"method": "full", "batch_size": 8, "device": "cpu", "max_steps": 20, "probes": 0, "forgetting": None}
    for name, more in {
        "healthy": {"learning_rate": 1e-3},
        "hot": {"learning_rate": 0.5},
        "unguarded": {"learning_rate": 0.5, "guards": "off"},
        "refused": {"dtype": "float16"},
    }.items():
        prefdata.train(cleaned, home / name, tiny, **{**given, **more})
    shutil.copytree(home / "healthy", home / "killed")
    (home / "killed/train.json").unlink()
    with (home / "killed/metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "lo')
    old = time.time() - 3600
    os.utime(home / "killed/metrics.jsonl", (old, old))
    return home


@pytest.fixture(scope="module")
def plain(tmp_path_factory, tiny):
    """Real runs of TRL's own trainer by name, as people write them."""
    import torch
    from conftest import pairs
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    home = tmp_path_factory.mktemp("plain")
    rows = [{k: r[k] for k in ("prompt", "chosen", "rejected")} for r in pairs(60)]
    long = [{**r, "prompt": r["prompt"] * 40} for r in rows[48:]]
    sets = {"short": Dataset.from_list(rows[48:]), "long": Dataset.from_list(long)}
    for name, dtype, held, more in (
        ("fp16", torch.float16, "short", {}),
        ("nothing", torch.float32, "long", {"max_length": 128}),
        ("blind", torch.float32, None, {"eval_strategy": "no"}),
    ):
        model, ref = (AutoModelForCausalLM.from_pretrained(tiny, dtype=dtype) for _ in range(2))
        args = DPOConfig(**{
            "output_dir": str(home / name), "bf16": False, "use_cpu": True, "optim": "adamw_torch", "max_steps": 12, "learning_rate": 1e-6,
            "logging_steps": 2, "eval_strategy": "steps", "eval_steps": 6, "save_steps": 6, "report_to": [], "disable_tqdm": True, **more,
        })  # fmt: skip
        trainer = DPOTrainer(
            model, ref, args=args, train_dataset=Dataset.from_list(rows[:48]), eval_dataset=sets.get(held),
            processing_class=AutoTokenizer.from_pretrained(tiny),
        )  # fmt: skip
        trainer.train()
    return home


def verdicts(found):
    return {p["part"]: p["verdict"] for p in found["parts"]}


def words(found, verdict=None):
    return {f["word"] for p in found["parts"] for f in p["findings"] if verdict in (None, f["verdict"])}


def cli(*given):
    from prefdata import cli

    return CliRunner().invoke(cli.app, [str(g) for g in given])


def test_a_healthy_run_has_no_cause(runs):
    found = diagnose.doctor(runs / "healthy")
    assert found["status"] == "complete" and found["headline"] is None and not words(found, "cause")
    assert verdicts(found)["gradients"] == verdicts(found)["overfitting"] == verdicts(found)["hardware"] == "ok"
    ended = cli("doctor", runs / "healthy")
    assert ended.exit_code == 0 and "no cause found" in ended.output and "20 of 20 steps" in ended.output


@pytest.mark.parametrize("name", ["hot", "unguarded"])
def test_a_rate_far_too_high_is_the_cause_with_guards_and_without(runs, name):
    found = diagnose.doctor(runs / name)
    assert found["headline"]["word"] == "implausible_learning_rate" and "0.5" in found["headline"]["evidence"]
    assert "likelihood_lost" in words(found, "cause")


def test_a_refused_run_names_its_check(runs):
    ended = cli("doctor", runs / "refused")
    lines = ended.output.splitlines()
    assert ended.exit_code == 1 and "refused" in lines[0] and lines[1].startswith("cause: fp16_weights: ")
    assert "float32" in lines[3]
    assert verdicts(diagnose.doctor(runs / "refused"))["overfitting"] == "unknown"


def test_a_killed_run_is_read_up_to_its_last_whole_line(runs):
    found = diagnose.doctor(runs / "killed")
    assert found["status"] == "killed" and found["step"] == 20 and found["steps"] == 20
    assert words(found) >= {"killed"} and verdicts(found)["hardware"] == "suspect" and found["headline"] is None


def test_a_run_killed_in_its_warm_up_is_not_called_stuck(tmp_path):
    home = tmp_path / "run"
    home.mkdir()
    (home / "started.json").write_text(
        json.dumps({"steps": 1000, "learning_rate": 5e-7, "beta": 0.1, "loss_type": ["sigmoid"]})
    )
    lines = [
        {
            "step": s,
            "loss": 0.6931,
            "grad_norm": 2.0,
            "rewards/margins": 1e-6 * s,
            "rewards/chosen": 0.0,
            "rewards/rejected": 0.0,
        }
        for s in (20, 40, 60)
    ]
    (home / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    found = diagnose.doctor(home)
    assert words(found) == {"killed"} and found["status"] == "running" and found["step"] == 60


def test_checkpoints_alone_are_enough(runs, tmp_path):
    shutil.copytree(runs / "healthy/checkpoints", tmp_path / "left/checkpoints")
    found = diagnose.doctor(tmp_path / "left")
    assert found["kind"] == "trainer" and found["step"] == 20


def test_plain_trl_with_fp16_weights(plain):
    found = diagnose.doctor(plain / "fp16")
    assert found["headline"]["word"] == "fp16_weights" and found["kind"] == "trainer"
    assert words(found, "cause") >= {"fp16_weights", "nan_hidden", "evaluation_nonfinite"}
    assert verdicts(found)["learning rate and batch"] == "ok"
    hidden = next(f for p in found["parts"] for f in p["findings"] if f["word"] == "nan_hidden")
    assert "loss 0.0 in" in hidden["evidence"]


def test_plain_trl_that_evaluates_nothing(plain):
    found = diagnose.doctor(plain / "nothing")
    assert found["headline"]["word"] == "evaluation_empty" and "max_length" in found["headline"]["remedy"]
    assert words(diagnose.doctor(plain / "blind"), "suspect") >= {"no_evaluation"}


def test_a_pickle_is_never_read(plain, tmp_path):
    import pickle

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "boom",))

    shutil.copytree(plain / "blind", tmp_path / "run")
    for path in (tmp_path / "run").rglob("training_args.bin"):
        path.write_bytes(pickle.dumps(Bomb()))
    diagnose.doctor(tmp_path / "run")
    assert not (tmp_path / "boom").exists()


# ------------------------------------------------------------------------------------------------ logs of known faults


def state(home, history, steps=100, **files):
    """A folder of Trainer with this log."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {"global_step": steps, "max_steps": steps, "train_batch_size": 8, "log_history": history}
    (home / "trainer_state.json").write_text(json.dumps(kept))
    for name, content in files.items():
        (home / f"{name}.json").write_text(json.dumps(content))
    return home


def log(n=20, every=5, rate=5e-7, evals=(), **given):
    """Lines of a healthy run, but for what is ``given``: a function of the share of the run that is done."""
    usual = {
        "loss": lambda x: 0.69 - 0.2 * x, "grad_norm": lambda x: 5 - x, "rewards/margins": lambda x: 0.5 * x,
        "rewards/chosen": lambda x: 0.2 * x, "rewards/rejected": lambda x: -0.3 * x, "rewards/accuracies": lambda x: 0.5 + 0.2 * x,
        "logps/chosen": lambda x: -100 + 2 * x, "logps/rejected": lambda x: -100 - 3 * x, "learning_rate": lambda x: rate * (1 - x),
    }  # fmt: skip
    got = usual | {k.replace("__", "/"): v for k, v in given.items()}
    lines = [{"step": (i + 1) * every, **{k: float(f(i / (n - 1))) for k, f in got.items()}} for i in range(n)]
    held = [{"step": 20 * (i + 1), "eval_loss": loss, "eval_rewards/accuracies": 0.7} for i, loss in enumerate(evals)]
    return sorted([*lines, *held], key=lambda line: line["step"])


FINE = (0.66, 0.62, 0.58, 0.55)
FAULTS = {
    "loss_stuck": log(evals=FINE, rewards__margins=lambda x: 1e-5, rewards__chosen=lambda x: 1e-5, rewards__rejected=lambda x: 0, loss=lambda x: math.log(2)),
    "no_signal": log(evals=FINE, rewards__margins=lambda x: 0, rewards__chosen=lambda x: 0, rewards__rejected=lambda x: 0, grad_norm=lambda x: 0),
    "accuracy_at_once": log(evals=FINE, rewards__accuracies=lambda x: 1.0),
    "likelihood_falls": log(evals=FINE, rewards__chosen=lambda x: -4 * x - 0.01, rewards__rejected=lambda x: -5 * x - 0.01, logps__chosen=lambda x: -100 - 40 * x),
    "loss_spike": log(evals=FINE, loss=lambda x: 4.0 if 0.6 < x < 0.65 else 0.69 - 0.2 * x),
    "loss_diverges": log(evals=FINE, loss=lambda x: 0.69 + 9 * x),
    "gradient_vanishes": log(evals=FINE, grad_norm=lambda x: 0 if x > 0.8 else 5),
    "gradient_grows": log(evals=FINE, grad_norm=lambda x: 5 if x < 0.8 else 5000),
    "overfitted": log(evals=(0.6, 0.55, 0.7, 0.9), rewards__margins=lambda x: 4 * x, rewards__accuracies=lambda x: 0.5 + 0.5 * x),
    "no_evaluation": log(),
    "implausible_learning_rate": log(rate=5e-5, evals=FINE),
    "loss_oscillates": log(n=40, evals=FINE, loss=lambda x: 0.69 if x == 0 else 0.1 if round(x * 39) % 2 else 1.9),
}  # fmt: skip


@pytest.mark.parametrize("word", FAULTS)
def test_a_fault_in_a_log_is_named_and_nothing_else_is(word, tmp_path):
    found = diagnose.doctor(state(tmp_path / "run", FAULTS[word]))
    assert words(found) == {word}
    hint = {"accuracy_at_once", "likelihood_falls", "loss_spike", "loss_oscillates", "gradient_grows", "no_evaluation", "implausible_learning_rate"}  # fmt: skip
    assert words(found, "suspect") == ({word} & hint)
    assert cli("doctor", tmp_path / "run").exit_code == (0 if word in hint else 1)


def test_a_healthy_log_is_healthy(tmp_path):
    found = diagnose.doctor(state(tmp_path / "run", log(evals=FINE)))
    assert found["verdict"] == "ok" and not words(found)
    assert cli("doctor", tmp_path / "run").output.splitlines()[1].startswith("healthy")


WRITE_UP = {"eval_loss": NAN, "eval_runtime": 0.5616, "eval_samples_per_second": 181.61, "eval_steps_per_second": 12.463, "eval_rewards/chosen": NAN,
    "eval_rewards/rejected": NAN, "eval_rewards/accuracies": 0.0, "eval_rewards/margins": NAN, "eval_logps/rejected": NAN, "eval_logps/chosen": NAN,
    "eval_logits/rejected": NAN, "eval_logits/chosen": NAN, "epoch": 3.0, "step": 345}  # fmt: skip


def test_the_first_write_up(tmp_path):
    """Its log holds one line, of the evaluation: NaN everywhere but an accuracy of 0.0."""
    found = diagnose.doctor(state(tmp_path / "a", [WRITE_UP], 345))
    assert found["headline"]["word"] == "evaluation_nonfinite" and "float16" in found["headline"]["remedy"]
    assert "accuracy 0.0" in found["headline"]["evidence"]
    with_config = diagnose.doctor(state(tmp_path / "b", [WRITE_UP], 345, config={"torch_dtype": "float16"}))
    assert with_config["headline"]["word"] == "fp16_weights"
    adapters = diagnose.doctor(
        state(tmp_path / "c", [WRITE_UP], 345, config={"dtype": "float16"}, adapter_config={"r": 8})
    )
    assert adapters["headline"]["word"] == "evaluation_nonfinite"


def test_the_document_is_json_also_with_nan(tmp_path):
    state(tmp_path / "run", [WRITE_UP], 345)
    ended = cli("--json", "doctor", tmp_path / "run")
    document = json.loads(ended.stdout, parse_constant=lambda name: pytest.fail(name))
    assert ended.exit_code == 1 and [p["part"] for p in document["parts"]] == [
        "data",
        "learning rate and batch",
        "gradients",
        "overfitting",
        "hardware",
    ]


def test_the_first_cause_of_the_flow_is_the_headline(tmp_path):
    lines = log(evals=(0.6, 0.5, 0.7, 0.9), rewards__margins=lambda x: 90 * x, grad_norm=lambda x: 0 if x > 0.8 else 5)
    found = diagnose.doctor(state(tmp_path / "run", lines))
    assert (
        words(found, "cause") == {"margin_explodes", "gradient_vanishes", "overfitted"}
        and found["headline"]["word"] == "margin_explodes"
    )


def test_what_is_no_run(tmp_path, cleaned):
    from prefdata.errors import InputError

    for place, said in (
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path, "is no training run"),
        (cleaned, "cleaned set"),
    ):
        with pytest.raises(InputError, match=said):
            diagnose.doctor(place)
    (tmp_path / "set").mkdir()
    (tmp_path / "set/train.json").write_text('[{"prompt": "a"}]')
    with pytest.raises(InputError, match="is no training run"):
        diagnose.doctor(tmp_path / "set")
    (state(tmp_path / "half", log()) / "trainer_state.json").write_text('{"log_hist')
    with pytest.raises(InputError, match="cannot be read"):
        diagnose.doctor(tmp_path / "half")
    state(tmp_path / "job/run", log())
    with pytest.raises(InputError, match=r"prefdata doctor .*job/run"):
        diagnose.doctor(tmp_path / "job")


def test_every_word_has_a_part_and_is_explained(tmp_path):
    assert {w for part in diagnose._PARTS.values() for w in part} <= set(WORDS)
    for word, told in WORDS.items():
        ended = cli("explain", word)
        assert (
            ended.exit_code == 0
            and told.means in ended.output
            and told.remedy in ended.output
            and f"({told.when} training)" in ended.output
        )


def test_a_word_that_is_not_known_is_guessed_among_all_words():
    assert "Did you mean fp16_weights?" in str(cli("explain", "fp16_wieghts").exception)
    assert "Did you mean too_similar?" in str(cli("explain", "too_similr").exception)


def test_doctor_and_explain_need_no_torch(tmp_path):
    import subprocess
    import sys

    state(tmp_path / "run", log())
    for given in (["doctor", str(tmp_path / "run")], ["explain", "fp16_weights"]):
        code = f"import sys; from prefdata import cli; cli.app({given!r}, standalone_mode=False); assert not {{'torch', 'transformers', 'trl'}} & set(sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
