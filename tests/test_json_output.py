"""``--json`` and ``-q`` of every command there is: one document on stdout and nothing else, or next to nothing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from written import write_lines

import prefdata
from prefdata.cli import app

SAMPLE = Path(prefdata.__file__).parent / "samples/planted.jsonl"
JOB = "version: 1\ninput: sample.jsonl\noutput: job-out\nstages: [exact_duplicate]\n"
# Of each command at least one call, in a folder that holds sample.jsonl, done/ and other/ (finished runs), job.yaml and
# verdicts.jsonl; and its exit code. A new command needs one here.
CALLS = {
    "audit": [("audit sample.jsonl", 0), ("audit sample.jsonl out", 0), ("audit sample.jsonl --gate kept>=99%", 1)],
    "clean": [
        ("clean sample.jsonl out", 0),
        ("clean sample.jsonl out --dry-run", 0),
        ("clean sample.jsonl out -p full --split test=0.1", 0),
    ],
    "train": [("train done run --set betta=1", 2)],  # and one that trains, below
    "run": [("run job.yaml --dry-run", 0), ("run job.yaml", 0)],
    "convert": [("convert sample.jsonl out.jsonl --to jsonl --on-bad-row skip", 0)],
    "report": [("report done", 0), ("report done --no-rows", 0)],
    "diff": [("diff done other", 0)],
    "review": [("review done", 0), ("review done --import verdicts.jsonl", 0)],
    "bench": [("bench pairs.jsonl --faults exact --rates 10 --seeds 1 --no-worth", 0)],
    "stages": [("stages", 0), ("stages near_duplicate", 0)],
    "explain": [("explain too_similar", 0)],
    "explain-row": [("explain-row done 0", 0)],
    "schema": [("schema", 0)],
    "init": [("init made", 0)],
    "doctor": [("doctor", 0)],
}
EVERY = [(call, code) for calls in CALLS.values() for call, code in calls]


def commands():
    """The names of the commands, as a user types them."""
    return {c.name or c.callback.__name__.replace("_", "-") for c in app.registered_commands}


def test_every_command_is_tried_here():
    assert commands() == set(CALLS)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with two finished runs, a job and verdicts. Read only."""
    home = tmp_path_factory.mktemp("made")
    shutil.copy(SAMPLE, home / "sample.jsonl")
    prefdata.clean(SAMPLE, home / "done", workers=1)
    prefdata.clean(SAMPLE, home / "other", workers=1, skip=["similar_responses"])
    sheet = json.loads((home / "done/audit/report.json").read_bytes())["spotcheck"]
    verdicts = [
        {"sheet": sheet["id"], "row": r["row"], "pd_id": r["pd_id"], "key": r["key"], "mode": "open", "reviewer": "anna",
         "verdict": ("accept", "reject", "unsure")[i % 3], "note": "", "time": "2026-12-07T12:00:00Z"}
        for i, r in enumerate(sheet["rows"])
    ]  # fmt: skip
    write_lines(home / "verdicts.jsonl", verdicts)
    pairs = [
        {"prompt": f"What is number {i}?", "chosen": f"It is {i} apples in a basket.", "rejected": f"No idea {i * i}."}
        for i in range(60)
    ]
    write_lines(home / "pairs.jsonl", pairs)
    (home / "job.yaml").write_text(JOB, "utf-8")
    return home


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    home = tmp_path / "here"
    shutil.copytree(made, home)
    monkeypatch.chdir(home)
    return home


@pytest.mark.parametrize(("call", "code"), EVERY, ids=[call for call, _ in EVERY])
def test_json_is_one_document_on_stdout_and_nothing_else(cli, here, call, code):
    ended = cli(*call.split(), "--json")
    assert ended.code == code, ended
    if code == 2:
        assert ended.out == "" and ended.err.startswith("error: ")
        return
    document = json.loads(ended.out)
    assert isinstance(document, dict) and document
    assert "Traceback" not in ended.err and "{" not in ended.err


@pytest.mark.parametrize(("call", "code"), [calls[0] for calls in CALLS.values()], ids=list(CALLS))
def test_quiet_says_nothing_on_stdout_and_twice_quiet_nothing_at_all(cli, here, call, code):
    if call == "schema":
        pytest.skip("the schema is the document itself")
    ended = cli("-qq", *call.split())
    assert ended.code == code and ended.out == ""
    assert ended.err == "" if code != 2 else ended.err.startswith("error: ")


@pytest.mark.slow
def test_json_of_training(cli, here):
    subprocess.run([sys.executable, "-m", "prefdata.samples.tiny", "model"], check=True, capture_output=True)
    words = [
        "train",
        "done",
        "run",
        "--model",
        "model",
        "--full",
        "--max-steps",
        "2",
        "--set",
        "batch_size=4",
        "--device",
        "cpu",
    ]
    for more in (["--dry-run"], ["--check"], []):
        ended = cli(*words, *more, "--json")
        assert ended.code in (0, 1) and "Traceback" not in ended.err, ended
        assert isinstance(json.loads(ended.out), dict)
    assert cli("-qq", *words, "--dry-run").out == ""
