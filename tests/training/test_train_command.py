"""``prefdata train`` as it is typed: what it prints, what it leaves behind, and its exit codes."""
# ruff: noqa: F811 (fixtures are imported, and are names of arguments)

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from planted import HELD, LONG, TRAIN, changed, chat, folder, model  # noqa: F401 (fixtures)

import prefdata

QUICK = ["--full", "--max-steps", "3", "--set", "batch_size=16", "--set", "probes=0"]
PLAIN = [{k: v for k, v in r.items() if k != "pd_id"} for r in TRAIN + HELD]


@pytest.fixture
def lines(tmp_path):
    """A file of pairs that were not cleaned."""
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in PLAIN))
    return path


def test_a_run_tells_its_plan_its_checks_and_its_end(cli, lines, model, tmp_path):
    ended = cli("train", lines, tmp_path / "run", "--model", model("neox"), *QUICK)
    assert ended.code == 0, ended.all
    for words in (
        "all weights",
        "beta 0.1",
        "16 pairs = 8 x 2",
        "rate      5e-07",
        "512 tokens",
        "memory about",
        "45 ok",
    ):
        assert words in ended.out
    assert "held out" in ended.out and "→" in ended.out and f"{tmp_path}/run/model" in ended.out
    assert "step 3/3  loss 0.69" in ended.err and "lr " in ended.err and "eta 0:00:" in ended.err
    assert "Warning" not in ended.all and "it/s" not in ended.all and "Traceback" not in ended.all
    assert (tmp_path / "run/model/model.safetensors").is_file() and (tmp_path / "run/train.json").is_file()


@pytest.mark.parametrize(("option", "silent"), [("-q", True), ("--no-progress", True), ("--log-format=json", False)])
def test_progress_is_as_the_global_options_say(cli, lines, model, tmp_path, option, silent):
    ended = cli("train", lines, tmp_path / "run", "--model", model("neox"), *QUICK, option)
    assert ended.code == 0 and ("step" in ended.err) != silent
    if not silent:
        events = [json.loads(line) for line in ended.err.splitlines()]
        assert [e["step"] for e in events if e["event"] == "step"] == [1, 2, 3]
        assert {"loss", "margin", "lr", "eta", "steps"} <= set(events[-2])


def test_json_is_one_document(cli, lines, model, tmp_path):
    got = json.loads(cli("train", lines, tmp_path / "run", "--model", model("neox"), *QUICK, "--json").out)
    assert got["status"] == "complete" and got["ok"] and got["plan"]["steps"] == 3 and len(got["checks"]) == 45
    assert got["before"] and got["after"] and got["alarms"] == []


def test_check_shows_every_check_and_trains_nothing(cli, lines, model, tmp_path):
    ended = cli("train", lines, tmp_path / "run", "--model", model("neox"), "--full", "--check")
    assert ended.code == 0 and ended.out.count(" ✓ ok ") == 45
    assert not (tmp_path / "run/model").exists() and (tmp_path / "run/train.json").is_file()
    ended = cli(
        "train", lines, tmp_path / "run2", "--model", model("neox"), "--full", "--check", "--set", "dtype=float16"
    )
    assert ended.code == 1 and "✗ fail    fp16_weights" in ended.out and "→ Train float32 weights" in ended.out


def test_pairs_that_fail_are_refused_and_cleaning_is_named(cli, model, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in changed(PLAIN, (4,), chosen="")))
    ended = cli("train", path, tmp_path / "run", "--model", model("neox"), *QUICK)
    assert ended.code == 1 and "prefdata clean" in ended.out and "pairs: 4" in ended.out
    assert not (tmp_path / "run/model").exists() and not (tmp_path / "run/data").exists()


def test_dry_run_shows_what_the_trainer_will_see_and_leaves_nothing(cli, model, tmp_path):
    rows = changed([dict(r) for r in PLAIN], (0,), chosen="a\x1b[31mb")
    rows[1]["prompt"], rows[2]["rejected"] = LONG, LONG
    (tmp_path / "in").mkdir()
    (tmp_path / "in/p.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    before = sorted(p for p in tmp_path.rglob("*") if "qwen" not in str(p))
    given = [
        "train",
        tmp_path / "in/p.jsonl",
        tmp_path / "run",
        "--model",
        model("qwen"),
        "--lora",
        "--dry-run",
        "--set",
        "max_length=200",
    ]
    ended = cli(*given)
    assert sorted(p for p in tmp_path.rglob("*") if "qwen" not in str(p)) == before, "something was written"
    assert ended.code == 1 and "too_long 1" in ended.out  # the prompt that fills the window
    assert (
        "adapters, rank 8" in ended.out
        and "median" in ended.out
        and "1 cut at 200" in ended.out
        and "optimiser" in ended.out
    )
    assert "⟦a\\x1b[31mb<eos>⟧▒x" in ended.out and "\x1b" not in ended.out and "nothing was written" in ended.out
    got = json.loads(cli(*given, "--json").out)
    assert got["tokens"]["train"]["quantiles"]["prompt"]["most"] < 200 and not got["ok"]
    assert sum(got["memory"].values()) == got["plan"]["memory"]
    first = got["batch"][0]["runs"]
    assert [r["kind"] for r in first] == ["prompt", "answer", "padding"] and first[0]["text"] == rows[0]["prompt"]


def test_a_dry_run_reads_no_weights(cli, folder, model, tmp_path):
    import shutil

    copy = shutil.copytree(model("neox"), tmp_path / "m")
    (copy / "model.safetensors").unlink()
    ended = cli("train", folder(TRAIN), tmp_path / "run", "--model", copy, "--full", "--dry-run")
    assert ended.code == 0, ended.all


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["IN", "RUN"], "no model is named"),
        (["IN", "RUN", "--model", "./nowhere"], "no such model folder"),
        (["nowhere.jsonl", "RUN", "--model", "MODEL"], "nowhere.jsonl"),
        (["IN", "RUN", "--model", "MODEL", "--loss", "sigmod"], "Did you mean sigmoid"),
        (["IN", "RUN", "--model", "MODEL", "--set", "beta"], "not key=value"),
        (["IN", "RUN", "--model", "MODEL", "--set", "beeta=1"], "Did you mean beta"),
        (["IN", "RUN", "--model", "MODEL", "--recipe", "nowhere.yaml"], "nowhere.yaml"),
        (["IN", "RUN", "--model", "MODEL", "--check", "--resume"], "a check trains nothing"),
        (["IN", "RUN", "more", "--model", "MODEL"], "not also more"),
        (["IN", "RUN", "--model", "MODEL", "--", "--no_such_option"], "accelerate launch"),
        (["IN", "IN", "--model", "MODEL"], "is a file, not a folder"),
    ],
)
def test_a_mistake_ends_with_2_and_a_sentence(cli, lines, model, tmp_path, given, words):
    places = {"IN": lines, "RUN": tmp_path / "run", "MODEL": model("neox")}
    ended = cli("train", *(places.get(w, w) for w in given))
    assert ended.code == 2 and words in ended.err and "Traceback" not in ended.all
    assert not (tmp_path / "run").exists()


def test_the_missing_extra_is_named(cli, lines, model, tmp_path, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "trl" else find(name, *a))
    ended = cli("train", lines, tmp_path / "run", "--model", model("neox"))
    assert ended.code == 2 and "pip install 'prefdata[train]'" in ended.err and "trl not found" in ended.err


def test_the_recipe_and_the_options_come_together(cli, folder, model, tmp_path):
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"model: {model('qwen')}\nbeta: 0.3\nlearning_rate: 2e-5\nprobes: 0\nbatch_size: 16\n")
    given = ["--recipe", recipe, "--set", "beta=0.2", "--loss", "sigmoid,sft", "--lora", "--check", "--json"]
    ended = cli("train", folder(TRAIN), tmp_path / "run", *given)
    got = json.loads((tmp_path / "run/train.json").read_text())["settings"]
    assert ended.code == 0 and got["beta"] == 0.2 and got["loss_type"] == ["sigmoid", "sft"]
    assert json.loads(ended.out)["plan"]["learning_rate"] == 2e-5 and json.loads(ended.out)["plan"]["method"] == "lora"


def sources(tmp_path):
    import datasets
    import pandas as pd

    made = datasets.Dataset.from_list(PLAIN)
    made.save_to_disk(str(tmp_path / "saved"))
    made.to_parquet(str(tmp_path / "p.parquet"))
    pd.DataFrame(PLAIN).to_csv(tmp_path / "p.csv", index=False)
    return {
        "list": PLAIN, "frame": pd.DataFrame(PLAIN), "dataset": made, "saved dataset": str(tmp_path / "saved"),
        "parquet": str(tmp_path / "p.parquet"), "csv": str(tmp_path / "p.csv"), "messages": [{k: v for k, v in r.items() if k != "pd_id"} for r in chat(TRAIN)],
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["list", "frame", "dataset", "saved dataset", "parquet", "csv", "messages"])
def test_anything_that_clean_reads_can_be_trained_on(model, tmp_path, kind):
    done = prefdata.train(sources(tmp_path)[kind], tmp_path / "run", model("chat"), check=True, method="full")
    assert done.status == "checked", [(c.word, c.evidence) for c in done.checks if c.status == "fail"]
    assert sum(c.word == "uncleaned_data" and c.status == "ok" for c in done.checks) == 1


def typed(*argv):
    return [sys.executable, "-m", "prefdata", "train", *map(str, argv)]


def test_ctrl_c_ends_with_130_and_the_run_can_go_on(folder, model, tmp_path):
    given = [
        folder(TRAIN),
        tmp_path / "run",
        "--model",
        model("neox"),
        "--full",
        "--set",
        "batch_size=4",
        "--set",
        "probes=0",
    ]
    given += ["--set", "eval_steps=2", "--set", "logging_steps=1", "--max-steps"]
    process = subprocess.Popen(typed(*given, 5000), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    seen = []
    for line in process.stderr:
        seen.append(line)
        if line.startswith("step 6/"):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err, seen)
    assert "--resume goes on" in err and "Traceback" not in err and "Warning" not in err
    assert json.loads((tmp_path / "run/train.json").read_text())["status"] == "interrupted"


@pytest.mark.slow
def test_two_processes_give_what_one_gives(folder, model, tmp_path):
    """The same pairs a step, over two processes on a CPU: the same losses."""
    source = folder(TRAIN)
    given = [
        "--model",
        model("neox"),
        "--full",
        "--max-steps",
        "3",
        "--device",
        "cpu",
        "--set",
        "batch_size=16",
        "--set",
        "probes=0",
    ]
    given += [
        "--set",
        "micro_batch_size=8",
        "--set",
        "learning_rate=1e-3",
        "--set",
        "order=as_is",
        "--set",
        "logging_steps=1",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    losses, margins = {}, {}
    for name, launch in (("one", []), ("two", ["--", "--num_processes", "2", "--cpu", "--main_process_port", "0"])):
        began = time.monotonic()
        ended = subprocess.run(
            typed(source, tmp_path / name, *given, "--json", *launch), capture_output=True, text=True, env=environment
        )
        assert ended.returncode == 0, ended.stderr[-3000:]
        got = json.loads(ended.stdout)
        assert got["plan"]["devices"] == (2 if launch else 1), time.monotonic() - began
        logs = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        losses[name] = [line["loss"] for line in logs if "loss" in line]
        margins[name] = [line["eval_rewards/margins"] for line in logs if "eval_rewards/margins" in line]
    assert losses["two"] == pytest.approx(losses["one"], rel=1e-3) and len(losses["one"]) == 3
    assert margins["two"][-1] == pytest.approx(margins["one"][-1], rel=2e-2)


@pytest.mark.slow
def test_a_refused_run_of_several_processes_ends_with_1_and_no_noise(folder, model, tmp_path):
    given = [
        "--model",
        model("neox"),
        "--full",
        "--set",
        "dtype=float16",
        "--",
        "--num_processes",
        "2",
        "--cpu",
        "--main_process_port",
        "0",
    ]
    ended = subprocess.run(typed(folder(TRAIN), tmp_path / "run", *given), capture_output=True, text=True)
    assert ended.returncode == 1 and ended.stdout.count("fp16_weights") >= 1 and "Traceback" not in ended.stderr
    assert ended.stdout.count("refused   ") == 1


def test_checks_leave_room_for_the_run_and_a_mistake_takes_nothing_from_its_record(cli, lines, model, tmp_path):
    run = tmp_path / "run"
    assert cli("train", lines, run, "--model", model("neox"), *QUICK, "--check").code == 0
    assert cli("train", lines, run, "--model", model("neox"), *QUICK).code == 0  # no --overwrite
    record, page = (run / "train.json").read_text(), (run / "train.html").read_text()
    again = cli("train", lines, run, "--model", model("neox"), *QUICK, "--set", "dtype=float16", "--resume")
    assert again.code == 1 and "fp16_weights" in again.out
    assert (run / "train.json").read_text() == record and (run / "train.html").read_text() == page
    ended = cli("train", lines, run, "--model", model("neox"), *QUICK)
    assert ended.code == 2 and "--resume" in ended.err and "--overwrite" in ended.err
    assert cli("train", lines, run, "--model", model("neox"), *QUICK, "--overwrite").code == 0
