"""``prefdata run``: a job as a user sees it: what runs, what is skipped, what stops it, what a kill leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import pairs

QUICK = ("train.method=full", "train.max_steps=6", "train.learning_rate=1e-3", "train.batch_size=8", "train.probes=0")


@pytest.fixture
def given(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in pairs()))
    return path


@pytest.fixture
def job(cli, given, tiny, tmp_path):
    """``job(*more)``: run the shipped job on 120 pairs; the result with ``steps``, what each step did."""

    def go(*more, code=0, place=given):
        sets = [x for s in (f"train.model={tiny}", *QUICK) for x in ("--set", s)]
        command = ["--json", "run", "clean_then_train", "--input", str(place), "--output", str(tmp_path / "work"), *sets, *more]  # fmt: skip
        got = cli(*command)
        assert got.code == code, got.all
        if code == 2:
            return got.err
        one = json.loads(got.out)["jobs"][0]
        return {s["name"]: (s["did"], s["text"]) for s in one["steps"]}

    return go


def did(steps):
    return {name: what for name, (what, _) in steps.items()}


def test_a_job_runs_once_and_then_only_what_changed(job, given, tmp_path):
    plan = job("--dry-run")
    assert did(plan)["clean"] == "run" and not (tmp_path / "work/clean").exists()
    first = job()
    assert did(first) == dict.fromkeys(("clean", "gate", "train", "evaluate", "report"), "ran")
    record = json.loads((tmp_path / "work/run/train.json").read_text())
    assert record["status"] == "complete" and (tmp_path / "work/run/train.html").is_file()
    found = json.loads((tmp_path / "work/evaluation.json").read_text())
    assert found["after"]["pairs"] > 0 and "margin" in first["evaluate"][1]
    assert "run/train.html" in (tmp_path / "work/summary.md").read_text()

    again = job()
    assert [did(again)[s] for s in ("clean", "train", "evaluate")] == ["unchanged"] * 3
    other = job("--set", "train.beta=0.2")
    assert did(other)["clean"] == "unchanged" and did(other)["train"] == "ran"
    assert "settings changed" in other["train"][1]
    assert did(job("--set", "train.beta=0.2", "--from", "train"))["train"] == "ran"

    with given.open("a") as file:
        file.write(json.dumps({**pairs(121)[-1], "id": "new"}) + "\n")
    changed = job("--set", "train.beta=0.2")
    assert did(changed)["clean"] == did(changed)["train"] == did(changed)["evaluate"] == "ran"


def test_a_failing_gate_stops_before_training(job, given, tmp_path):
    rows = pairs(40)
    given.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *rows, *rows]))
    steps = job(code=1)
    assert did(steps) == {"clean": "ran", "gate": "failed"} and "kept>=50%" in steps["gate"][1]
    assert not (tmp_path / "work/run").exists()


def test_a_refused_training_fails_the_job_and_is_tried_again(job):
    steps = job("--set", "train.dtype=float16", code=1)
    assert did(steps)["train"] == "failed" and "fp16_weights" in steps["train"][1] and "evaluate" not in steps
    assert did(job())["train"] == "ran"


def test_mistakes_are_told_before_anything_is_done(cli, job, tmp_path):
    assert "learning_rate" in job("--set", "train.lerning_rate=1", code=2)
    assert "Steps" in job("--from", "cleen", code=2)
    assert "does not exist" in job(place=tmp_path / "no.jsonl", code=2)
    path = tmp_path / "job.yaml"
    path.write_text("version: 1\npipeline: default\ninput: in.jsonl\noutput: work\ntrian: {model: x}\n")
    got = cli("run", path)
    assert got.code == 2 and "job.yaml:5" in got.err and "train" in got.err
    assert not (tmp_path / "work").exists()


def test_cleaned_and_raw_are_compared_on_the_same_pairs(job, tmp_path):
    steps = job("--set", "evaluate.against_raw=true", "--set", "evaluate.seeds=2")
    worth = json.loads((tmp_path / "work/evaluation.json").read_text())["worth"]
    assert {len(worth["runs"][arm]) for arm in ("cleaned", "raw")} == {2}
    assert worth["verdict"] in steps["evaluate"][1]
    assert len({r["pairs"] for some in worth["runs"].values() for r in some}) == 1


@pytest.mark.slow
def test_a_job_that_is_killed_goes_on_to_the_same_end(given, tiny, tmp_path):
    sets = [x for s in (f"train.model={tiny}", *QUICK, "train.max_steps=20", "train.eval_steps=2") for x in ("--set", s)]  # fmt: skip

    def command(out):
        return [sys.executable, "-m", "prefdata", "run", "clean_then_train", "--input", str(given), "--output", str(out), *sets]  # fmt: skip

    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    whole = subprocess.run(command(tmp_path / "whole"), env=env, capture_output=True, text=True)
    assert whole.returncode == 0, whole.stderr
    out, kills = tmp_path / "work", 0
    marks = ("clean/.work", "clean/manifest.json", "run/metrics.jsonl", "run/checkpoints/checkpoint-4", "run/checkpoints/checkpoint-12")  # fmt: skip
    for mark in marks:
        process = subprocess.Popen(command(out), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 120
        while process.poll() is None and not (out / mark).exists() and time.monotonic() < until:
            time.sleep(0.02)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 3
    done = subprocess.run(command(out), env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ends = [json.loads((home / "evaluation.json").read_text())["after"]["margin"] for home in (tmp_path / "whole", out)]
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)
    steps = [json.loads(line).get("step") for line in (out / "run/metrics.jsonl").read_text().splitlines() if "learning_rate" in line]  # fmt: skip
    assert steps == sorted(set(steps))
