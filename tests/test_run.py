"""``prefdata run`` without training: job files and their mistakes, several jobs, what is skipped, kills, the lock."""

import json
import signal
import subprocess
import sys
import time

import pytest
from written import report_of

ROWS = [
    {"id": f"r{i}", "prompt": f"Question {i} of {i * 7 % 13}?", "chosen": f"Yes, {i} fits.", "rejected": f"No {i}."}
    for i in range(40)
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder with ``in.jsonl``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


def job(folder, name, more="", stages="stages: [exact_duplicate]", output="out"):
    path = folder / f"{name}.yaml"
    path.write_text(f"version: 1\n{stages}\ninput: in.jsonl\noutput: {output}\n{more}")
    return path


def steps(ended):
    return [{s["name"]: s["did"] for s in one["steps"]} for one in json.loads(ended.out)["jobs"]]


DONE = {"clean": "ran", "gate": "ran", "report": "ran"}


def test_paths_are_relative_to_the_job_file_and_options_reach_clean(cli, folder, tmp_path_factory, monkeypatch):
    path = job(folder, "a", "clean: {split: test=25%, seed: 3, columns: {prompt: prompt}}\n")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert steps(cli("--json", "run", path)) == [DONE]
    manifest = json.loads((folder / "out/clean/manifest.json").read_text())
    assert set(manifest["splits"]) == {"train", "test"} and manifest["seed"] == 3
    assert "in.jsonl" in json.dumps(report_of(folder / "out/clean")["source"])


def test_several_jobs_stop_at_a_failing_gate_unless_they_are_to_go_on(cli, folder):
    one = job(folder, "one", 'gate: ["kept>=99%"]\n', output="w1")
    two = job(folder, "two", 'gate: ["kept<=1%"]\n', stages="pipeline: certain", output="w2")
    three = job(folder, "three", output="w3")
    ended = cli("--json", "run", one, two, three)
    assert ended.code == 1 and steps(ended) == [DONE, {"clean": "ran", "gate": "failed"}]
    assert not (folder / "w3").exists()
    ended = cli("--json", "run", one, two, three, "--keep-going")
    assert ended.code == 1 and [s["clean"] for s in steps(ended)] == ["unchanged", "unchanged", "ran"]
    ended = cli("run", one, one)
    assert ended.code == 2 and "two jobs write there" in ended.err


def test_what_was_changed_by_hand_is_made_again(cli, folder):
    path = job(folder, "a")
    assert steps(cli("--json", "run", path)) == [DONE]
    assert steps(cli("--json", "run", path))[0]["clean"] == "unchanged"
    assert steps(cli("--json", "run", path, "--force"))[0]["clean"] == "ran"
    part = next((folder / "out/clean/data/train").glob("*.parquet"))
    held = part.read_bytes()
    part.write_bytes(held[:-1] + b"x")
    assert steps(cli("--json", "run", path))[0]["clean"] == "ran" and part.read_bytes() == held
    job(folder, "a", stages="stages: [{near_duplicate: {threshold: 0.7}}]")
    assert "pipeline changed" in cli("run", path, "--dry-run").out


@pytest.mark.parametrize(("text", "words"), [
    ("version: 1\nstages: [malformed]\ninptu: x\n", ["job.yaml:3", "inptu", "Did you mean input?"]),
    ("stages: [malformed]\n", ["job.yaml", "is a pipeline, not a job", "no input and no output"]),
    ("input: in.jsonl\noutput: out\n", ["names no stages", "pipeline: default"]),
    ("stages: [malformed]\npipeline: default\ninput: in.jsonl\noutput: out\n", ["job.yaml:2", "both"]),
    ("pipeline: certain\ninput: 3\noutput: out\n", ["job.yaml:2", "input"]),
    ("pipeline: certain\ninput: in.jsonl\noutput: out\ngate: [kepd>=5%]\n", ["job.yaml:4", "Did you mean kept?"]),
    ("pipeline: certain\ninput: in.jsonl\noutput: out\nclean:\n  seed: 1\n  spilt: test=1%\n", ["job.yaml:6", "clean.spilt", "Did you mean split?"]),
    ("pipeline: certain\ninput: in.jsonl\noutput: out\nclean: {seed: high}\n", ["job.yaml:4", "clean.seed", "a whole number", "high"]),
    ("pipeline: certain\ninput: in.jsonl\noutput: out\nevaluate: {seeds: 2}\n", ["evaluate without train"]),
    ("pipeline: certain\ninput: in.jsonl\noutput: out\ntrain: none.yaml\n", ["job.yaml:4", "no such recipe: none.yaml"]),
    ("pipeline: certain\ninput: no.jsonl\noutput: out\n", ["no.jsonl", "does not exist"]),
    ("pipeline: certain\ninput: '-'\noutput: out\n", ["cannot read stdin"]),
])  # fmt: skip
def test_mistakes_in_a_job_file_name_file_and_line(cli, folder, text, words):
    (folder / "job.yaml").write_text(text)
    ended = cli("run", folder / "job.yaml")
    assert ended.code == 2 and "Traceback" not in ended.all
    assert not [w for w in words if w not in ended.err], ended.err


def test_clean_takes_the_stages_of_a_job_and_says_what_it_leaves(cli, folder):
    ended = cli("clean", "in.jsonl", "o", "-p", job(folder, "a", "clean: {seed: 1}\n"))
    assert ended.code == 0 and "a job: input, output, clean are for prefdata run" in ended.out
    ended = cli("clean", "in.jsonl", "p", "-p", job(folder, "b", stages="pipeline: strict"))
    assert ended.code == 2 and "b.yaml:2" in ended.err and "strict" in ended.err


def test_places_that_cannot_be_the_output(cli, folder):
    path = job(folder, "a")
    (folder / "file").touch()
    (folder / "mine/clean").mkdir(parents=True)
    (folder / "mine/clean/notes.txt").write_text("mine")
    for place, word in (("file", "cannot be written"), ("file/x", "cannot be written"), ("mine", "no job made it")):
        ended = cli("run", path, "--output", place)
        assert ended.code == 2 and word in ended.err, ended.all
    assert (folder / "mine/clean/notes.txt").read_text() == "mine"
    assert cli("run", path).code == 0
    (folder / "out/job.json").write_text('{"steps": [1], "files": {}}')
    ended = cli("run", path)
    assert ended.code == 2 and "out/job.json" in ended.err and "not the state of a job" in ended.err


def test_an_interrupted_job_goes_on_and_two_at_once_do_not(folder):
    rows = (dict(ROWS[i % 40], prompt=f"Ask {i} of {i * 31 % 8887}?") for i in range(60_000))
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "prefdata", "run", str(job(folder, "a", stages="pipeline: certain"))]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while not (folder / "out/clean/.work").exists() and time.monotonic() < until:
        time.sleep(0.01)
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 2 and f"process {first.pid}" in second.stderr, second
    first.send_signal(signal.SIGINT)
    told = first.communicate()[1]
    assert first.returncode == 130 and "the same command goes on" in told
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.8)
    killed.kill()
    killed.wait()
    last = subprocess.run(command, capture_output=True, text=True)
    assert last.returncode == 0 and "of 60,000 pairs" in last.stdout, last
    whole = subprocess.run([*command, "--output", "whole"], capture_output=True, text=True)
    assert whole.returncode == 0
    files = [json.loads((folder / f"{out}/clean/manifest.json").read_text())["files"] for out in ("out", "whole")]
    assert files[0] == files[1]
