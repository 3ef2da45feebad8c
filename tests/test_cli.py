"""The command line: commands, options, exit codes, what is printed where, and the places it refuses to write to."""

import gzip
import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest
from written import bytes_of, dropped, loaded, report_of, write_lines

import prefdata
from prefdata.pipeline import load
from prefdata.stage import shipped

SAMPLE = Path(prefdata.__file__).parent / "samples/planted.jsonl"
GOOD = [
    {"id": "a", "prompt": "What do bees make?", "chosen": "Honey, which they store in wax cells.", "rejected": "Milk."},
    {
        "id": "b",
        "prompt": "Where do owls sleep?",
        "chosen": "In hollow trees, mostly by day.",
        "rejected": "Under the sea.",
    },
    {"id": "c", "prompt": "What is rain?", "chosen": "Water that falls from clouds.", "rejected": "A kind of bread."},
    {"id": "d", "prompt": "What is rain?", "chosen": "", "rejected": "A kind of bread."},
]


@pytest.fixture
def rows(tmp_path):
    """A file of four rows; the last has an empty answer."""
    return write_lines(tmp_path / "in.jsonl", GOOD)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run on the planted sample. Read only."""
    out = tmp_path_factory.mktemp("finished") / "out"
    prefdata.clean(str(SAMPLE), out)
    return out


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    """The test's folder is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(ended, *words):
    """Exit 2, said in one error on stderr, without a traceback."""
    assert ended.code == 2, ended
    assert ended.err.startswith("error: ") and "Traceback" not in ended.all
    for word in words:
        assert word in ended.err, (word, ended.err)


def ids(out, split="train"):
    return [r["id"] for r in loaded(out, split=split)]


# ------------------------------------------------------------------------------------------------ every command, plain and --json


def test_audit(cli, rows):
    ended = cli("audit", rows)
    assert ended.code == 0
    assert "pipeline: default (shipped)" in ended.out and "in.jsonl, 4 rows" in ended.out
    assert re.search(r"malformed\s+4\s+1\s+25\.00\s+drop\s+empty_completion 1", ended.out)
    assert "would keep 3 of 4 (75.0 %)" in ended.out
    assert [p.name for p in rows.parent.iterdir()] == ["in.jsonl"]


def test_audit_with_a_folder_writes_a_report_and_no_data(cli, rows, tmp_path):
    assert cli("audit", rows, tmp_path / "out").code == 0
    names = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert names == {
        "report.html",
        "manifest.json",
        "audit/decisions.parquet",
        "audit/signals.parquet",
        "audit/report.json",
        "audit/run.log.jsonl",
    }


def test_clean(cli, rows, tmp_path):
    ended = cli("clean", rows, tmp_path / "out")
    assert (
        ended.code == 0 and "kept 3 (75.0 %)" in ended.out and "dropped 1" in ended.out and "load_dataset" in ended.out
    )
    assert ids(tmp_path / "out") == ["a", "b", "c"] and dropped(tmp_path / "out")[0]["id"] == "d"
    names = {
        str(p.relative_to(tmp_path / "out"))
        for p in (tmp_path / "out").rglob("*")
        if p.is_file() and "recipes" not in p.parts
    }
    assert names == {
        "README.md", "data/train/part-00000.parquet", "report.html", "manifest.json", "spotcheck.csv", "audit/dropped/part-00000.parquet",
        "audit/decisions.parquet", "audit/signals.parquet", "audit/report.json", "audit/run.log.jsonl",
    }  # fmt: skip


COMMANDS = {
    "audit": ["audit", "IN"],
    "audit-out": ["audit", "IN", "OUT"],
    "clean": ["clean", "IN", "OUT"],
    "dry-run": ["clean", "IN", "OUT", "--dry-run"],
    "report": ["report", "COPY"],
    "stages": ["stages"],
    "stages-one": ["stages", "near_duplicate"],
    "explain": ["explain", "too_similar"],
    "explain-row": ["explain-row", "DONE", "0"],
    "schema": ["schema"],
    "init": ["init", "DIR"],
    "doctor": ["doctor"],
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("place", ["before", "behind"])
def test_json_is_one_document_and_nothing_else(cli, rows, tmp_path, finished, name, place):
    if "COPY" in COMMANDS[name]:
        shutil.copytree(finished, tmp_path / "copy")
    places = {
        "IN": rows,
        "OUT": tmp_path / "out",
        "DONE": finished,
        "COPY": tmp_path / "copy",
        "DIR": tmp_path / "made",
    }
    words = [places.get(w, w) for w in COMMANDS[name]]
    ended = cli("--json", *words) if place == "before" else cli(*words, "--json")
    assert ended.code == 0
    assert isinstance(json.loads(ended.out), dict)
    plain = (
        cli(*words, *(["--overwrite"] if "OUT" in COMMANDS[name] else []))
        if name != "init"
        else cli("init", tmp_path / "again")
    )
    assert plain.code == 0 and plain.out.strip() and (name == "schema" or not plain.out.lstrip().startswith("{"))


def test_json_of_a_run_has_its_numbers(cli, rows, tmp_path):
    document = json.loads(cli("clean", rows, tmp_path / "out", "--json", "--gate", "kept>=50%").out)
    assert document["counts"] == {
        "pairs": 4,
        "kept": 3,
        "dropped": 1,
        "flagged": 0,
        "added": 0,
        "reasons": {"empty_completion": 1},
    }
    assert document["ok"] is True and document["splits"] == {"train": 3} and document["out"] == str(tmp_path / "out")
    assert document["gates"][0]["gate"] == "kept>=50%" and document["gates"][0]["ok"] is True
    assert [s["stage"] for s in document["stages"]][:2] == ["malformed", "contradiction"]
    assert document["stages"][0] == {
        "stage": "malformed",
        "in": 4,
        "drop": 1,
        "flag": 0,
        "swap": 0,
        "add": 0,
        "reasons": {"empty_completion": {"drop": 1}},
    }


def test_json_of_an_error_leaves_stdout_empty(cli, tmp_path):
    ended = cli("audit", tmp_path / "none.jsonl", "--json")
    refused(ended, "does not exist")
    assert ended.out == ""


# ------------------------------------------------------------------------------------------------ exit codes


def test_a_gate_that_fails_ends_with_1_and_the_output_is_there(cli, rows, tmp_path):
    ended = cli("clean", rows, tmp_path / "out", "--gate", "empty_completion<=10%")
    assert ended.code == 1 and re.search(r"✗ gate\s+empty_completion<=10%\s+25 %", ended.out)
    assert json.loads((tmp_path / "out/manifest.json").read_bytes())["status"] == "gate_failed"
    assert ids(tmp_path / "out") == ["a", "b", "c"]
    assert "Gate failed" in (tmp_path / "out/report.html").read_text("utf-8")
    assert (
        cli("clean", rows, tmp_path / "out", "--overwrite", "--gate", "empty_completion<=10%", "--exit-zero").code == 0
    )
    assert cli("audit", rows, "--gate", "kept>=3").code == 0
    assert cli("audit", rows, "--gate", "kept>3").code == 1
    assert cli("audit", rows, "--gate", "kept>=3", "--gate", "malformed<1").code == 1


@pytest.mark.parametrize(("gate", "holds"), [
    ("dropped<=1", True), ("dropped<1", False), ("flagged<=0", True), ("longer_chosen<=60%", False), ("longer_chosen>99%", True),
    ("contradictions<=0", True), ("malformed<=25%", True), ("malformed<25%", False), (" kept >= 75 % ", True),
])  # fmt: skip
def test_what_gates_can_say(cli, rows, gate, holds):
    assert cli("audit", rows, "--gate", gate).code == (0 if holds else 1)


@pytest.mark.parametrize(
    ("gate", "hint"),
    [
        ("empty_completio<=5%", "empty_completion"),
        ("kept=5", "comparison"),
        ("longer_chosen<5", "%"),
        ("kept<=x%", "number"),
    ],
)
def test_a_gate_that_says_nothing_known(cli, rows, gate, hint):
    refused(cli("audit", rows, "--gate", gate), hint)


def test_nothing_left_ends_with_1(cli, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", GOOD[3:])
    assert cli("clean", path, tmp_path / "out").code == 1
    assert cli("audit", path).code == 1


@pytest.mark.parametrize("words", [
    ["clean"], ["clean", "x.jsonl"], ["nothing"], ["audit", "IN", "--no-such-option"], ["audit", "IN", "--workers", "0"], ["audit", "IN", "--limit", "none"],
    ["audit", "IN", "--engine", "spark"], ["audit", "IN", "--input-format", "xml"], ["audit", "IN", "--on-bad-row", "guess"], ["audit", "IN", "--color", "pink"],
    ["audit", "IN", "--log-format", "xml"], ["clean", "IN", "OUT", "--format", "html"], ["clean", "IN", "OUT", "--sample", "many"], ["clean", "IN", "OUT", "--sample", "200%"],
    ["clean", "IN", "OUT", "--export", "trll"], ["clean", "IN", "OUT", "--split", "test=2"], ["clean", "IN", "OUT", "--split", "test"], ["clean", "IN", "OUT", "--split", "train=0.5"], ["clean", "IN", "OUT", "--seed", "-1"],
    ["audit", "IN", "-p", "defualt"], ["audit", "IN", "--skip", "near_dup"], ["audit", "IN", "--only", "nothing"], ["audit", "IN", "--skip", "malformed"],
    ["audit", "IN", "--columns", "prompt"], ["audit", "IN", "--columns", "prompt=nothing"], ["audit", "IN", "--columns", "answer=chosen"],
    ["explain", "too_similr"], ["stages", "near_dup"], ["report", "nowhere"], ["explain-row", "nowhere", "1"],
], ids=" ".join)  # fmt: skip
def test_mistakes_end_with_2(cli, rows, tmp_path, words):
    refused(cli(*({"IN": rows, "OUT": tmp_path / "out"}.get(w, w) for w in words)))
    assert not (tmp_path / "out").exists()


def test_help_for_a_wrong_word(cli, rows):
    refused(cli("audit", rows, "-p", "defualt"), "Did you mean default?")
    refused(cli("audit", rows, "--skip", "near_dup"), "Did you mean near_duplicate?")
    refused(cli("explain", "too_similr"), "Did you mean too_similar?")
    refused(cli("audit", rows.with_name("in.josnl")), "in.josnl: does not exist", "Did you mean in.jsonl?")


def test_input_that_cannot_be_read(cli, tmp_path):
    for name, data, words in [
        ("cut.json", b'[{"prompt": "a", "chosen": "b"', ["cut.json", "ends in the middle"]),
        ("bad.jsonl.gz", gzip.compress(b"{}" * 5000)[:-20], ["bad.jsonl.gz", "broken or cut off"]),
        ("bad.parquet", b"PAR1 and nothing else", ["bad.parquet", "Parquet"]),
        ("wide.jsonl", '{"prompt": "a"}'.encode("utf-16"), ["wide.jsonl", "UTF-16"]),
        ("lfs.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ["lfs.jsonl", "git lfs pull"]),
        (
            "other.jsonl",
            b'{"question": "a", "response_a": "b", "response_b": "c"}\n',
            ["question, response_a, response_b", "--columns"],
        ),
        ("latin.csv", "prompt,chosen,rejected\né,à,ü\n".encode("latin-1"), ["latin.csv", "not UTF-8"]),
        ("twice.csv", b"prompt,chosen,chosen\na,b,c\n", ["twice.csv", "two columns named 'chosen'"]),
    ]:
        (tmp_path / name).write_bytes(data)
        refused(cli("audit", tmp_path / name), *words)
    refused(cli("audit", tmp_path / "*.none"), "matches no file")
    (tmp_path / "empty").mkdir()
    refused(cli("clean", tmp_path / "empty", tmp_path / "out"), "holds no data files")


def test_a_bug_ends_with_3_and_says_so(cli, rows, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr("prefdata.run.summarise", broken)
    ended = cli("audit", rows)
    assert (
        ended.code == 3
        and "ZeroDivisionError: deep inside" in ended.err
        and "Please report it" in ended.err
        and ended.out == ""
    )


def test_debug_shows_where_an_error_comes_from(cli, tmp_path):
    ended = cli("audit", tmp_path / "none.jsonl", "--debug")
    assert ended.code == 2 and "Traceback" in ended.err and "error: " in ended.err


def spawn(*words, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "prefdata", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted(tmp_path, number, code):
    with spawn("clean", "-", tmp_path / "out", stdin=subprocess.PIPE) as run:
        for _ in range(600):  # it waits for its input once this is there
            if (tmp_path / "out/.work/stdin.part").exists():
                break
            time.sleep(0.05)
        run.send_signal(number)
        out, err = run.communicate(timeout=30)
    assert run.returncode == code and b"--resume" in err and b"Traceback" not in err and out == b""
    assert not (tmp_path / "out/manifest.json").exists()


MANY_CHUNKS = """
import prefdata.result as r
Options = r.Options
r.Options = lambda **given: Options(**given, chunk_bytes=3000)
from prefdata.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_interrupted_in_the_middle_and_resumed(tmp_path, workers):
    path = write_lines(
        tmp_path / "in.jsonl",
        [{"prompt": f"Question {i}?", "chosen": f"Answer {i} " * 40, "rejected": f"No {i}"} for i in range(4000)],
    )
    words = ["clean", str(path), str(tmp_path / "out"), "--workers", str(workers)]
    with subprocess.Popen(
        [sys.executable, "-c", MANY_CHUNKS, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as run:
        for _ in range(600):
            if len(list((tmp_path / "out/.work").glob("measured-*.json"))) > 5:
                break
            time.sleep(0.02)
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does it: to the workers too
        _, err = run.communicate(timeout=60)
    assert run.returncode == 130 and b"Traceback" not in err
    assert (
        subprocess.run(
            [sys.executable, "-c", MANY_CHUNKS, *words, "--resume"], capture_output=True, timeout=300
        ).returncode
        == 0
    )
    assert len(loaded(tmp_path / "out")) == 4000


@pytest.mark.parametrize("words", [["stages"], ["--help"], ["schema"], ["doctor", "--json"]], ids=" ".join)
def test_a_closed_pipe_ends_quietly(words):
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([sys.executable, "-m", "prefdata", *words], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert run.returncode == 141 and run.stderr == b""


# ------------------------------------------------------------------------------------------------ global options, help


def test_global_options_stand_anywhere(cli, rows):
    assert (
        cli("-q", "audit", rows).out == ""
        and cli("audit", rows, "-q").out == ""
        and cli("audit", "--quiet", rows).out == ""
    )
    refused(cli("audit", rows, "--color=pink"), "--color")
    assert cli("audit", rows, "--color", "never").code == 0
    quiet = cli("audit", rows, "-qq", "--gate", "kept>3")
    assert (quiet.code, quiet.all) == (1, "")
    assert cli("audit", rows.with_name("none"), "-qq").err.startswith("error: ")


def test_progress_as_json_events(cli, rows):
    ended = cli("audit", rows, "--log-format", "json")
    events = [json.loads(line) for line in ended.err.splitlines()]
    assert events and all(set(e) == {"t", "event", "stage", "done", "total"} for e in events)
    assert {"reading", "near_duplicate", "report"} <= {e["stage"] for e in events}
    assert cli("audit", rows, "--log-format", "json", "--no-progress").err == ""


def test_version(cli):
    ended = cli("--version")
    assert (ended.code, ended.out) == (0, f"prefdata {version('prefdata')}\n")


@pytest.mark.parametrize(
    "command", ["", "audit", "clean", "report", "stages", "explain", "explain-row", "schema", "init", "doctor"]
)
def test_help(cli, command):
    ended = cli(*([command] if command else []), "--help")
    assert ended.code == 0 and ended.out.startswith("Usage: ") and "--help" in ended.out


HEAVY = ("torch", "transformers", "datasets", "pandas", "pyarrow", "numpy", "ray", "numba", "sentence_transformers")


@pytest.mark.parametrize("words", [["--help"], ["clean", "--help"], ["--version"]], ids=" ".join)
def test_help_is_quick_and_imports_nothing_heavy(words):
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr))\n"
        f"sys.argv[1:] = {words!r}\nfrom prefdata.cli import main\nmain()"
    )
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert run.returncode == 0 and run.stderr == "HEAVY []\n"
    assert min(spent) < 0.5, spent


# ------------------------------------------------------------------------------------------------ pipelines


def yaml(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_numbers_and_words_of_yaml(cli, rows, tmp_path):
    cli("audit", rows, tmp_path / "out", "-p", yaml(tmp_path, "stages:\n  - near_duplicate: {threshold: 5e-7}\n"))
    assert report_of(tmp_path / "out")["config"]["stages"][1] == {
        "near_duplicate": {"threshold": 5e-7, "action": "drop"}
    }
    ended = cli("audit", rows, "-p", yaml(tmp_path, "stages:\n  - near_duplicate: {action: no}\n"))
    refused(ended, "mine.yaml:2: near_duplicate.action", "'no'")  # the word, not False


@pytest.mark.parametrize(("text", "words"), [
    ("stages:\n  - near_duplicate:\n      threshold: 0.7\n      threshold: 0.8\n", ["mine.yaml:4", "duplicate key"]),
    ("stages: [malformed]\nstages: [malformed]\n", ["mine.yaml:2", "duplicate key"]),
    ("version: 1\nstges: [malformed]\n", ["mine.yaml:2", "unknown key 'stges'", "Did you mean stages?"]),
    ("stages:\n  - exact_duplicate\n  - near_duplicate:\n      treshold: 0.7\n", ["mine.yaml:4", "near_duplicate.treshold", "Did you mean threshold", "0-1", "default 0.8"]),
    ("stages:\n  - near_duplicate:\n      threshold: high\n", ["mine.yaml:3", "near_duplicate.threshold", "'high'"]),
    ("stages:\n  - near_duplicate:\n      threshold: 7\n", ["mine.yaml:3", "near_duplicate.threshold", "less than or equal to 1"]),
    ("stages:\n  - near_duplicate: 0.7\n", ["mine.yaml:2", "parameters are a mapping"]),
    ("stages:\n  - near_duplicat\n", ["mine.yaml:2", "no such stage", "Did you mean near_duplicate?"]),
    ("stages:\n  - exact_duplicate\n  - malformed\n", ["mine.yaml", "malformed comes first"]),
    ("stages:\n  - exact_duplicate\n  - exact_duplicate\n", ["mine.yaml", "exact_duplicate stands there twice"]),
    ("stages: malformed\n", ["mine.yaml:1", "not a list"]),
    ("- malformed\n", ["mine.yaml:1", "not a mapping"]),
    ("stages: [malformed\n", ["mine.yaml:"]),
    ("version: 2\nstages: [malformed]\n", ["mine.yaml:1", "version 2"]),
    ("stages: [malformed]\ngate: [kepd>=5%]\n", ["mine.yaml", "kepd", "Did you mean kept?"]),
    ("stages:\n  - ./none.py\n", ["none.py", "does not exist"]),
    ("", ["mine.yaml"]),
])  # fmt: skip
def test_mistakes_in_a_pipeline_name_file_and_line(cli, rows, tmp_path, text, words):
    refused(cli("audit", rows, "-p", yaml(tmp_path, text)), *words)


def test_set(cli, rows, tmp_path):
    cli(
        "audit",
        rows,
        tmp_path / "out",
        "--set",
        "near_duplicate.threshold=0.75",
        "--set",
        "similar_responses.max_similarity=null",
    )
    stages = {name: given for stage in report_of(tmp_path / "out")["config"]["stages"] for name, given in stage.items()}
    assert stages["near_duplicate"]["threshold"] == 0.75 and stages["similar_responses"]["max_similarity"] is None
    refused(
        cli("audit", rows, "--set", "near_duplicate.treshold=0.7"),
        "--set near_duplicate.treshold",
        "no such parameter",
        "Did you mean threshold (number, 0-1, default 0.8)?",
    )
    refused(
        cli("audit", rows, "--set", "near_dup.threshold=0.7"),
        "--set near_dup.threshold",
        "Did you mean near_duplicate?",
    )
    refused(cli("audit", rows, "--set", "near_duplicate.threshold=hot"), "--set near_duplicate.threshold", "'hot'")
    refused(cli("audit", rows, "--set", "threshold=0.7"), "not stage.parameter=value")
    refused(cli("audit", rows, "--set", "near_duplicate.threshold"), "not stage.parameter=value")
    refused(cli("audit", rows, "--set", "near_duplicate.threshold="), "--set near_duplicate.threshold")
    refused(cli("audit", rows, "--set", "near_duplicate.threshold=[1"), "--set near_duplicate.threshold")


def stages_of(ended):
    return [s["stage"] for s in json.loads(ended.out)["stages"]]


def test_only_and_skip(cli, rows):
    assert stages_of(cli("audit", rows, "--json", "--only", "exact_duplicate,near_duplicate")) == [
        "malformed",
        "exact_duplicate",
        "near_duplicate",
    ]
    skipped = stages_of(cli("audit", rows, "--json", "--skip", "near_duplicate,contradiction"))
    assert skipped == [n for n in load("default")[0].names if n not in ("near_duplicate", "contradiction")]


@pytest.mark.parametrize("name", ["certain", "default", "strict", "full"])
def test_shipped_pipelines(cli, rows, tmp_path, name):
    assert cli("audit", rows, tmp_path / "out", "-p", name).code == 0
    config = report_of(tmp_path / "out")["config"]
    path = yaml(tmp_path, json.dumps(config))  # the resolved pipeline is a pipeline file
    assert cli("audit", rows, tmp_path / "again", "-p", path).code == 0
    assert report_of(tmp_path / "again")["config"] == config


def test_prefdata_yaml_here_is_the_default_and_no_other(cli, rows, at_home):
    (at_home / "prefdata.yaml").write_text("stages: [exact_duplicate]\n")
    ended = cli("audit", rows)
    assert "pipeline: prefdata.yaml" in ended.out and "near_duplicate" not in ended.out
    (at_home / "below").mkdir()
    os.chdir(at_home / "below")
    assert "pipeline: default (shipped)" in cli("audit", rows).out


def test_the_schema_accepts_what_is_shipped_and_refuses_what_is_not(cli):
    jsonschema = pytest.importorskip("jsonschema")
    from ruamel.yaml import YAML

    from prefdata.pipeline import find

    schema = json.loads(cli("schema").out)
    for name in ("certain", "default", "strict", "full"):
        jsonschema.validate(YAML(typ="safe").load(find(name)[1]), schema)
    for wrong in (
        {"stages": ["near_dup"]},
        {"stages": [{"near_duplicate": {"treshold": 0.7}}]},
        {"stages": [{"near_duplicate": {"threshold": 7}}]},
        {"stage": []},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


# ------------------------------------------------------------------------------------------------ options of a run


def test_columns(cli, tmp_path):
    path = write_lines(
        tmp_path / "in.jsonl",
        [{"ask": r["prompt"], "good": r["chosen"], "bad": r["rejected"], "id": r["id"]} for r in GOOD],
    )
    refused(cli("audit", path), "ask, good, bad, id", "--columns")
    ended = cli("clean", path, tmp_path / "out", "--columns", "prompt=ask,chosen=good,rejected=bad")
    assert ended.code == 0 and "prompt = ask, chosen = good, rejected = bad" in ended.out
    assert list(loaded(tmp_path / "out")[0]) == ["prompt", "chosen", "rejected", "id", "pd_id"]
    assert [r["prompt"] for r in loaded(tmp_path / "out")] == [r["prompt"] for r in GOOD[:3]]
    assert report_of(tmp_path / "out")["source"]["columns"] == {"prompt": "ask", "chosen": "good", "rejected": "bad"}
    refused(cli("audit", path, "--columns", "prompt=aks,chosen=good,rejected=bad"), "Did you mean ask?")


def test_a_column_whose_name_the_mapping_takes_is_not_lost(cli, tmp_path):
    path = write_lines(
        tmp_path / "in.jsonl",
        [
            {"prompt": "the first draft", "ask": r["prompt"], "chosen": r["chosen"], "rejected": r["rejected"]}
            for r in GOOD
        ],
    )
    ended = cli("clean", path, tmp_path / "out", "--columns", "prompt=ask")
    if ended.code == 2:
        assert "prompt" in ended.err  # to refuse is fine
    else:
        first = loaded(tmp_path / "out")[0]
        assert first["prompt"] == GOOD[0]["prompt"] and "the first draft" in first.values()


def test_detected_columns_are_told(cli, tmp_path):
    path = write_lines(
        tmp_path / "in.jsonl",
        [{"question": r["prompt"], "response_j": r["chosen"], "response_k": r["rejected"]} for r in GOOD],
    )
    assert "prompt = question, chosen = response_j, rejected = response_k" in cli("audit", path).out


def test_limit_reads_the_first_rows_and_says_partial(cli, rows, tmp_path):
    ended = cli("clean", rows, tmp_path / "out", "--limit", "2")
    assert "partial" in ended.out and ids(tmp_path / "out") == ["a", "b"]
    assert report_of(tmp_path / "out")["verdict"]["partial"] is True
    assert "Partial" in (tmp_path / "out/report.html").read_text("utf-8")
    assert "partial" not in cli("audit", rows).out


def test_dry_run_writes_nothing(cli, rows, at_home):
    before = sorted(str(p) for p in at_home.rglob("*"))
    ended = cli("clean", rows, at_home / "out", "--dry-run", "--split", "test=0.3")
    assert (
        ended.code == 0
        and "nothing was written" in ended.out
        and "prompt = prompt" in ended.out
        and "would keep 3" in ended.out
    )
    assert sorted(str(p) for p in at_home.rglob("*")) == before
    document = json.loads(cli("clean", rows, at_home / "out", "--dry-run", "--json").out)
    assert (
        document["read"] == 4 and document["would_keep_of_read"] == 3 and document["input_bytes"] == rows.stat().st_size
    )
    refused(cli("clean", "-", at_home / "out", "--dry-run"), "stdin")


def test_a_bad_row_stops_when_asked(cli, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in GOOD[:2]) + '\n{"id": "x", "prompt": "p", "chosen": "c"}\n')
    refused(
        cli("clean", path, tmp_path / "out", "--on-bad-row", "stop"),
        "in.jsonl:4",
        "missing_field",
        "rejected",
        "--on-bad-row skip",
    )
    assert not (tmp_path / "out").exists()
    assert cli("clean", path, tmp_path / "out", "--on-bad-row", "skip").code == 0
    assert (dropped(tmp_path / "out")[0]["pd_line"], dropped(tmp_path / "out")[0]["pd_code"]) == (4, "missing_field")


def many(n=60):
    """Rows in which three share each prompt, some near copies under a prompt that differs in a word, and one duplicate."""
    said = "harbour lantern quiet river meadow copper engine garden winter letter market shadow bridge thunder cotton marble"
    words = said.split()
    out = []
    for i in range(n):
        k = i // 3
        topic = f"{words[k % 16]} and the {words[k // 16 + 3]} of the {words[(k * 5 + 7) % 16]} with {words[(k * 3 + 1) % 16]} near {words[(k * 11 + 2) % 16]}"
        out.append(
            {
                "id": f"r{i}",
                "prompt": f"Tell me of the {topic}?",
                "chosen": f"Tale {i} of the {topic}.",
                "rejected": f"No tale {i}.",
            }
        )
    out[10] |= {"prompt": out[1]["prompt"], "chosen": out[1]["chosen"], "rejected": out[1]["rejected"]}
    long = " ".join(words * 3)
    out += [
        {"id": f"n{i}", "prompt": f"{long} {ending}", "chosen": f"{long} chosen", "rejected": f"{long[::-1]} rejected"}
        for i, ending in enumerate(("first", "other", "third"))
    ]
    return out


def test_split_by_prompt(cli, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", many())
    ended = cli("clean", path, tmp_path / "out", "--split", "test=0.3")
    assert ended.code == 0 and re.search(r"splits train \d+, test \d+", ended.out)
    train, test, gone = loaded(tmp_path / "out"), loaded(tmp_path / "out", split="test"), dropped(tmp_path / "out")
    assert not {r["prompt"] for r in train} & {r["prompt"] for r in test}
    assert sorted(r["id"] for r in [*train, *test, *gone]) == sorted(r["id"] for r in many())
    assert 6 <= len(test) <= 36 and {"r10", "n1", "n2"} == {r["id"] for r in gone}
    manifest = json.loads((tmp_path / "out/manifest.json").read_bytes())
    assert manifest["splits"] == {"train": len(train), "test": len(test)}
    again = cli("clean", path, tmp_path / "same", "--split", "test=0.3")
    assert again.code == 0 and bytes_of(tmp_path / "same") == bytes_of(tmp_path / "out")
    cli("clean", path, tmp_path / "seed", "--split", "test=0.3", "--seed", "1")
    assert {r["id"] for r in loaded(tmp_path / "seed", split="test")} != {r["id"] for r in test}


def test_three_splits_and_no_empty_one(cli, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", many())
    cli("clean", path, tmp_path / "out", "--split", "test=0.3,validation=0.3")
    parts = {s: {r["prompt"] for r in loaded(tmp_path / "out", split=s)} for s in ("train", "test", "validation")}
    assert (
        not parts["train"] & parts["test"]
        and not parts["train"] & parts["validation"]
        and not parts["test"] & parts["validation"]
    )
    one = write_lines(tmp_path / "one.jsonl", GOOD[:1])
    assert cli("clean", one, tmp_path / "small", "--split", "test=0.5").code == 0
    from datasets import load_dataset

    assert {k: len(v) for k, v in load_dataset(str(tmp_path / "small")).items()} in ({"train": 1}, {"test": 1})


def test_format(cli, rows, tmp_path):
    assert cli("clean", rows, tmp_path / "chat", "--format", "chat").code == 0
    first = loaded(tmp_path / "chat")[0]
    assert first["prompt"] == [{"role": "user", "content": GOOD[0]["prompt"]}] and first["rejected"] == [
        {"role": "assistant", "content": "Milk."}
    ]
    assert cli("clean", rows, tmp_path / "implicit", "--format", "implicit").code == 0
    first = loaded(tmp_path / "implicit")[0]
    assert "prompt" not in first
    assert first["chosen"] == [
        {"role": "user", "content": GOOD[0]["prompt"]},
        {"role": "assistant", "content": GOOD[0]["chosen"]},
    ]
    assert cli("clean", rows, tmp_path / "text", "--format", "text").code == 0
    assert loaded(tmp_path / "text")[0]["prompt"] == GOOD[0]["prompt"]
    assert cli("clean", tmp_path / "implicit", tmp_path / "back").code == 0
    assert loaded(tmp_path / "back") == [
        {k: r[k] for k in ("prompt", "chosen", "rejected", "id", "pd_id")} for r in loaded(tmp_path / "chat")
    ]
    refused(cli("clean", tmp_path / "chat", tmp_path / "no", "--format", "text"), "--format text")
    assert not (tmp_path / "no").exists()


def test_export(cli, rows, tmp_path):
    cli("clean", rows, tmp_path / "all")
    assert {p.name for p in (tmp_path / "all/recipes").iterdir()} == {
        "trl_dpo.yaml",
        "axolotl_dpo.yaml",
        "openrlhf_dpo.sh",
        "llamafactory",
    }
    cli("clean", rows, tmp_path / "one", "--export", "trl,axolotl")
    assert {p.name for p in (tmp_path / "one/recipes").iterdir()} == {"trl_dpo.yaml", "axolotl_dpo.yaml"}
    cli("clean", rows, tmp_path / "none", "--export", "none")
    assert not (tmp_path / "none/recipes").exists()
    refused(cli("clean", rows, tmp_path / "bad", "--export", "axolot"), "Did you mean axolotl?")


def sheet(out):
    import csv

    text = (out / "spotcheck.csv").read_bytes()
    assert text.startswith(b"\xef\xbb\xbf")
    return list(csv.DictReader(io.StringIO(text.decode("utf-8-sig"))))


def test_spot_check_sheet(cli, tmp_path):
    path = write_lines(
        tmp_path / "in.jsonl",
        [
            {"prompt": f"Question {i} of many?", "chosen": f"=Sum {i}", "rejected": f"Number {i * 7}."}
            for i in range(300)
        ],
    )
    for share, expected in (("5%", 50), ("50%", 150), ("0.4", 120), ("100%", 300)):
        out = tmp_path / share
        assert cli("clean", path, out, "--sample", share).code == 0
        lines = sheet(out)
        assert len(lines) == expected and list(lines[0]) == ["pd_id", "prompt", "left", "right", "verdict", "note"]
    by_id = {r["pd_id"]: r for r in loaded(tmp_path / "100%")}
    left = Counter()
    for line in lines:
        row = by_id[line["pd_id"]]
        assert {line["left"], line["right"]} == {"'" + row["chosen"], row["rejected"]}  # no formula for a spreadsheet
        left[line["left"].startswith("'=")] += 1
    assert min(left.values()) > 90  # blind: which side is which is a coin toss


def test_license(cli, rows, tmp_path):
    cli("clean", rows, tmp_path / "given", "--license", "cc-by-4.0")
    assert "license: cc-by-4.0" in (tmp_path / "given/README.md").read_text("utf-8")
    cli("clean", rows, tmp_path / "not")
    text = (tmp_path / "not/README.md").read_text("utf-8")
    assert "license: other" in text and "not guessed" in text


def test_the_card_says_how_to_load_and_what_to_hold_back(cli, rows, tmp_path):
    cli("clean", rows, tmp_path / "out")
    text = (tmp_path / "out/README.md").read_text("utf-8")
    assert (
        "3 preference pairs" in text
        and "load_dataset" in text
        and '--exclude "audit/*" "spotcheck.csv" "report.html" "review.html"' in text
    )


def test_workers_from_the_environment(cli, rows, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFDATA_WORKERS", "3")
    cli("audit", rows, tmp_path / "a")
    cli("audit", rows, tmp_path / "b", "--workers", "1")
    assert [json.loads((tmp_path / n / "manifest.json").read_bytes())["run"]["workers"] for n in "ab"] == [3, 1]


# ------------------------------------------------------------------------------------------------ inputs


def test_stdin(cli, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows.read_bytes())))
    assert cli("clean", "-", tmp_path / "out").code == 0
    assert (
        ids(tmp_path / "out") == ["a", "b", "c"]
        and report_of(tmp_path / "out")["source"]["files"][0]["name"] == "stdin"
    )
    assert not (tmp_path / "out/.work").exists()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows.read_bytes())))
    assert "would keep 3 of 4" in cli("audit", "-").out


def test_stdin_can_be_resumed(cli, rows, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows.read_bytes())))
        patch.setattr("prefdata.run.summarise", lambda *_: 1 / 0)
        assert cli("clean", "-", tmp_path / "out").code == 3
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert cli("clean", "-", tmp_path / "out", "--resume").code == 0
    assert ids(tmp_path / "out") == ["a", "b", "c"]


def test_several_files_and_globs(cli, tmp_path, at_home):
    write_lines(tmp_path / "b.jsonl", GOOD[:2])
    write_lines(tmp_path / "a.jsonl", GOOD[2:])
    cli("clean", "b.jsonl", "a.jsonl", "named")
    assert ids("named") == ["a", "b", "c"]  # in the order given
    cli("clean", "*.jsonl", "globbed")
    assert ids("globbed") == ["c", "a", "b"]  # in the order of the names
    (row,) = dropped("globbed")
    assert (row["pd_file"], row["pd_line"], row["pd_id"]) == ("a.jsonl", 2, "1")
    assert [f["rows"] for f in report_of("globbed")["source"]["files"]] == [2, 2]
    assert "would keep 3 of 4" in cli("audit", "a.jsonl", "b.jsonl").out


def as_file(kind, tmp_path):
    """The good rows as a file or folder of that kind."""
    text = "".join(json.dumps(r) + "\n" for r in GOOD).encode()
    path = tmp_path / f"in.{kind}"
    if kind == "jsonl.gz":
        path.write_bytes(gzip.compress(text))
    elif kind == "jsonl.zst":
        import zstandard

        path.write_bytes(zstandard.compress(text))
    elif kind == "txt":
        path.write_bytes(text)
    elif kind == "json":
        path.write_text(json.dumps(GOOD))
    elif kind in ("csv", "tsv", "csv.gz", "parquet"):
        import pandas as pd

        frame = pd.DataFrame(GOOD)
        frame.to_parquet(path) if kind == "parquet" else frame.to_csv(
            path, index=False, sep="\t" if kind == "tsv" else ","
        )
    else:
        from datasets import Dataset, DatasetDict

        set_ = Dataset.from_list(GOOD)
        if kind == "saved":
            set_.save_to_disk(path)
        elif kind == "saved-splits":
            DatasetDict({"train": set_}).save_to_disk(path)
        elif kind == "saved-shards":
            set_.save_to_disk(path, num_shards=2)
        elif kind == "folder":
            (path / "data").mkdir(parents=True)
            set_.select([0, 1]).to_parquet(path / "data/train-00000-of-00002.parquet")
            set_.select([2, 3]).to_parquet(path / "data/train-00001-of-00002.parquet")
    return path


@pytest.mark.parametrize(
    "kind",
    [
        "jsonl.gz",
        "jsonl.zst",
        "txt",
        "json",
        "csv",
        "tsv",
        "csv.gz",
        "parquet",
        "saved",
        "saved-splits",
        "saved-shards",
        "folder",
    ],
)
def test_kinds_of_input(cli, tmp_path, kind):
    ended = cli("clean", as_file(kind, tmp_path), tmp_path / "out")
    assert ended.code == 0, ended.err
    rows = loaded(tmp_path / "out")
    assert [{k: r[k] for k in GOOD[0]} for r in rows] == GOOD[:3]
    assert dropped(tmp_path / "out")[0]["pd_code"] in ("empty_completion", "missing_field")


@pytest.mark.parametrize(("text", "lines"), [
    ('[\n{GOOD},\n5,\nnull,\n"text",\n{GOOD}\n]', [3, 4, 5]), ('[\n{GOOD}\nrubbish\n,{GOOD}]', [3]), ('{GOOD}\n[1]\n7\nnull\n{GOOD}\n', [2, 3, 4]),
])  # fmt: skip
def test_what_is_no_row_is_named(cli, tmp_path, text, lines):
    """Whatever stands between the rows of an array, or on a line of its own, is dropped with its line, never in silence."""
    for i in range(2):
        text = text.replace("{GOOD}", json.dumps(GOOD[i]), 1)
    (tmp_path / "in.json").write_text(text)
    ended = cli("clean", tmp_path / "in.json", tmp_path / "out")
    if ended.code == 2:
        assert f"in.json:{lines[0]}" in ended.err  # refused as a whole is fine too
    else:
        assert ids(tmp_path / "out") == ["a", "b"]
        assert [(r["pd_line"], r["pd_code"]) for r in dropped(tmp_path / "out")] == [(n, "parse_error") for n in lines]


def test_kind_by_option(cli, tmp_path):
    path = as_file("csv", tmp_path).rename(tmp_path / "in.data")
    assert cli("clean", path, tmp_path / "out", "--input-format", "csv").code == 0
    assert ids(tmp_path / "out") == ["a", "b", "c"]


def test_our_own_output_is_an_input(cli, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", many())
    cli("clean", path, tmp_path / "out", "--split", "test=0.3")
    assert cli("clean", tmp_path / "out", tmp_path / "two").code == 0
    for split in ("train", "test"):
        assert loaded(tmp_path / "two", split=split) == loaded(tmp_path / "out", split=split)
        assert cli("clean", tmp_path / "out", tmp_path / split, "--input-split", split).code == 0
        assert loaded(tmp_path / split) == loaded(tmp_path / "out", split=split)  # pd_id too
    refused(cli("audit", tmp_path / "out", "--input-split", "none"), "no split 'none'")


# ------------------------------------------------------------------------------------------------ looking things up


def test_report_again(cli, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "out")
    (tmp_path / "out/report.html").unlink()
    assert cli("report", tmp_path / "out").code == 0
    assert (tmp_path / "out/report.html").read_bytes() == (finished / "report.html").read_bytes()


def test_report_without_rows_tells_no_text(cli, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "out")
    ended = cli("report", tmp_path / "out", "--no-rows")
    assert ended.code == 0
    page = (tmp_path / "out/report-no-rows.html").read_text("utf-8")
    full = (tmp_path / "out/report.html").read_text("utf-8")
    texts = {
        t
        for r in [*loaded(finished), *dropped(finished)]
        for t in (r["prompt"], r["chosen"], r["rejected"])
        if isinstance(t, str) and len(t) > 25 and t.isascii() and not set(t) & set("\"'<>&\\\n")
    }
    assert sum(t in full for t in texts) > 10 and not any(t in page for t in texts)


def test_report_of_an_unfinished_run(cli, tmp_path):
    (tmp_path / "out/.work").mkdir(parents=True)
    refused(cli("report", tmp_path / "out"), "holds no finished run", "--resume")


def test_stages(cli):
    text = cli("stages").out
    document = json.loads(cli("stages", "--json").out)
    assert {s["stage"] for s in document["stages"]} == set(shipped()) and all(
        s["asks"] in text for s in document["stages"]
    )
    assert {"explicit", "conversation", "transcript"} <= {s["shape"] for s in document["shapes"]}
    assert "threshold: number, 0-1, default 0.8" in text
    one = cli("stages", "near_duplicate").out
    assert all(
        label in one
        for label in (
            "Why it matters:",
            "How it decides:",
            "What it misses:",
            "References:",
            "Score:",
            "threshold",
            "near_duplicate:",
        )
    )


def test_explain_every_reason_word(cli):
    for kind in shipped().values():
        for word, text in kind.reasons.items():
            ended = cli("explain", word)
            assert ended.code == 0 and " ".join(text.split()) in ended.out and f"(stage {kind.name()})" in ended.out
            assert json.loads(cli("explain", word, "--json").out)["stage"] == kind.name()


def test_explain_row(cli, finished):
    gone = next(r for r in dropped(finished) if r["pd_code"] == "exact_duplicate")
    document = json.loads(cli("explain-row", finished, gone["pd_id"], "--json").out)
    assert document["state"] == "dropped" and document["row"] == int(gone["pd_id"])
    assert [d["stage"] for d in document["decisions"]] == ["malformed", "contradiction", "exact_duplicate"]
    last = document["decisions"][-1]
    assert (last["action"], last["reason"], str(last["peer"])) == ("drop", "exact_duplicate", gone["pd_peer"])
    assert document["pair"]["prompt"] == gone["prompt"]
    stays = loaded(finished)[0]
    text = cli("explain-row", finished, stays["pd_id"]).out
    assert f"row {stays['pd_id']}: kept" in text and all(
        s in text for s in ("malformed", "near_duplicate", "token_length")
    )
    refused(cli("explain-row", finished, "99999"), "no row 99999")


def test_explain_row_by_the_id_that_a_row_came_with(cli, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [{**r, "pd_id": f"src-{i + 7}"} for i, r in enumerate(GOOD)])
    cli("clean", path, tmp_path / "out")
    assert [r["pd_id"] for r in loaded(tmp_path / "out")] == ["src-7", "src-8", "src-9"]
    document = json.loads(cli("explain-row", tmp_path / "out", "src-10", "--json").out)
    assert (document["row"], document["state"], document["decisions"][0]["reason"]) == (
        3,
        "dropped",
        "empty_completion",
    )


def test_explain_row_of_a_run_over_our_own_output(cli, finished, tmp_path):
    """There ``pd_id`` is a number too, but not the row's number."""
    cli("clean", finished, tmp_path / "two", "--set", "near_duplicate.threshold=0.5")
    for at, row in enumerate(loaded(finished)):
        document = json.loads(cli("explain-row", tmp_path / "two", row["pd_id"], "--json").out)
        assert document["row"] == at and document["pair"]["prompt"] == row["prompt"]
        gone = {r["pd_id"]: r["pd_stage"] for r in dropped(tmp_path / "two")}
        assert (document["state"], document["decisions"][-1]["stage"]) == (
            ("dropped", gone[row["pd_id"]]) if row["pd_id"] in gone else ("kept", load("default")[0].names[-1])
        )


def test_explain_row_by_number_in_splits_and_parts(cli, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [{**r, "pd_id": f"own-{r['id']}"} for r in many()])
    prefdata.clean(str(path), tmp_path / "out", split="test=0.3", chunk_bytes=2000)
    for at, row in enumerate(many()):
        for asked in (f"own-{row['id']}", str(at)):
            document = json.loads(cli("explain-row", tmp_path / "out", asked, "--json").out)
            assert document["row"] == at and document["pair"]["id"] == row["id"]
    next((tmp_path / "out/data/train").glob("*.parquet")).unlink()
    refused(cli("explain-row", tmp_path / "out", "0"), "was changed after the run")


def test_explain_row_of_an_audit(cli, rows, tmp_path):
    cli("audit", rows, tmp_path / "out")
    document = json.loads(cli("explain-row", tmp_path / "out", "3", "--json").out)
    assert (document["state"], document["pair"], document["decisions"][0]["reason"]) == (
        "dropped",
        None,
        "empty_completion",
    )


def test_init_makes_a_folder_to_begin_with(cli, tmp_path, monkeypatch):
    ended = cli("init", tmp_path / "demo")
    assert ended.code == 0 and "prefdata clean sample.jsonl out/" in ended.out
    assert {"prefdata.yaml", "sample.jsonl", ".gitignore", "pipelines"} <= {
        p.name for p in (tmp_path / "demo").iterdir()
    }
    monkeypatch.chdir(tmp_path / "demo")
    cleaned = cli("clean", "sample.jsonl", "out/")
    assert (
        cleaned.code == 0 and "pipeline: prefdata.yaml" in cleaned.out and (tmp_path / "demo/out/report.html").exists()
    )
    before = bytes_of(tmp_path / "demo", "prefdata.yaml", "sample.jsonl")
    refused(cli("init"), "exists already")
    assert bytes_of(tmp_path / "demo", "prefdata.yaml", "sample.jsonl") == before


def test_doctor(cli):
    document = json.loads(cli("doctor", "--json").out)
    assert document["prefdata"] == version("prefdata") and document["online"] is False and document["broken"] == []
    assert {"fast", "embed", "models", "ray"} <= set(document["extras"])
    text = cli("doctor").out
    assert f"prefdata {version('prefdata')}" in text and "offline" in text and "[ray]" in text


def test_doctor_says_what_is_broken(cli, monkeypatch):
    from importlib.metadata import PackageNotFoundError

    from prefdata import lookup

    def gone(name):
        if name == "rensa":
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(lookup, "version", gone)
    ended = cli("doctor")
    assert ended.code == 2 and "rensa MISSING" in ended.out and "required and missing: rensa" in ended.err


# ------------------------------------------------------------------------------------------------ offline


def test_the_hub_is_told_nothing_of_this_machine():
    code = "from prefdata.cli import app; app(['--online', 'explain', 'tie'], standalone_mode=False)"
    code += "; from huggingface_hub import constants; print(constants.HF_HUB_DISABLE_TELEMETRY)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ended.stdout.splitlines()[-1] == "True", ended.stderr


def test_nothing_goes_online(cli, rows, tmp_path, monkeypatch):
    import socket

    tried = []

    def no(*given, **_):
        tried.append(given)
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", no)
    monkeypatch.setattr(socket, "getaddrinfo", no)
    assert cli("clean", rows, tmp_path / "out", "--workers", "2").code == 0
    assert (
        cli("report", tmp_path / "out").code == 0
        and cli("doctor").code == 0
        and cli("init", tmp_path / "demo").code == 0
    )
    assert ids(tmp_path / "out") == ["a", "b", "c"]
    for name in ("gpt2", "someone/some-model"):
        refused(cli("audit", rows, "--set", f"token_length.tokenizer={name}"), name, "--online")
    assert tried == []


# ------------------------------------------------------------------------------------------------ places


def test_places_that_are_refused(cli, rows, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("keep")
    (tmp_path / "link").symlink_to(full)
    (tmp_path / "file").write_text("keep")
    for place, words in [
        (full, ["exists and is not empty", "--overwrite"]), (tmp_path / "link", ["link"]), (tmp_path / "file", ["is a file"]), (tmp_path, ["holds the input in.jsonl"]),
        (rows, ["in.jsonl"]), (tmp_path / "file/out", ["cannot be written"]), (Path("/proc/prefdata-out"), ["cannot be written"]),
    ]:  # fmt: skip
        for command in (
            ("clean", "audit") if place not in (rows, tmp_path, tmp_path / "file") else ("clean",)
        ):  # audit would read those too
            refused(cli(command, rows, place), *words)
    refused(cli("clean", rows, full, "--resume"), "no run that can go on")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "full", "in.jsonl", "link"]
    assert (tmp_path / "file").read_text() == "keep" and [p.name for p in full.iterdir()] == ["mine.txt"]
    assert rows.read_text() == "".join(json.dumps(r) + "\n" for r in GOOD)


def test_the_input_folder_is_never_the_output(cli, tmp_path):
    saved = as_file("saved", tmp_path)
    before = bytes_of(saved, ".")
    for place in (saved, saved / "out"):
        refused(cli("clean", saved, place, "--overwrite"), "input")
    assert bytes_of(saved, ".") == before


def test_the_output_does_not_lie_inside_an_input_folder(cli, rows, at_home):
    """The next run over that folder would read it; a file's own folder is no input."""
    (at_home / "data").mkdir()
    shutil.copy(rows, at_home / "data/in.jsonl")
    for command in ("clean", "audit"):
        refused(cli(command, "data", "data/out"), "lies inside the input")
    assert [p.name for p in (at_home / "data").iterdir()] == ["in.jsonl"]
    assert cli("clean", "data/in.jsonl", "data/out").code == 0


def test_one_row_is_no_rows(cli, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", GOOD[3:])
    assert "in.jsonl, 1 row, " in cli("audit", path).out
    assert "0 of 1 row left" in cli("clean", path, tmp_path / "out").err


def test_documentation_for_people_has_no_markup(cli):
    text = "".join(
        cli("stages", name).out + "".join(cli("explain", w).out for w in kind.reasons)
        for name, kind in shipped().items()
    )
    assert (
        "``" not in text and "IN... OUT" in cli("clean", "--help").out and "IN... [OUT]" in cli("audit", "--help").out
    )


def test_a_misspelt_second_file_is_not_taken_for_the_output(cli, rows, tmp_path):
    for words in (["audit", rows, tmp_path / "mroe.jsonl"], ["clean", rows, tmp_path / "more.csv"]):
        refused(cli(*words), Path(words[-1]).name)
        assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]


def test_overwrite_replaces_ours_and_keeps_what_is_not(cli, rows, tmp_path):
    out = tmp_path / "out"
    cli("clean", SAMPLE, out, "--split", "test=0.3")
    (out / "notes.txt").write_text("mine")
    (out / "plots").mkdir()
    (out / "plots/a.png").write_bytes(b"mine")
    assert (out / "data/test").exists()
    assert cli("clean", rows, out, "--overwrite", "--export", "trl").code == 0
    assert (out / "notes.txt").read_text() == "mine" and (out / "plots/a.png").read_bytes() == b"mine"
    assert ids(out) == ["a", "b", "c"] and not (out / "data/test").exists()
    assert [p.name for p in (out / "recipes").iterdir()] == ["trl_dpo.yaml"]


def test_an_audit_over_a_cleaned_folder_leaves_no_stale_data(cli, rows, tmp_path):
    cli("clean", rows, tmp_path / "out")
    assert cli("audit", rows, tmp_path / "out", "--overwrite").code == 0
    assert not (tmp_path / "out/data").exists() and not (tmp_path / "out/README.md").exists()


def test_what_is_published_keeps_its_bytes_until_the_new_run_is_sure(cli, rows, tmp_path):
    """An input that cannot be read does not take the old output away."""
    cli("clean", rows, tmp_path / "out")
    before = bytes_of(tmp_path / "out", ".")
    (tmp_path / "bad.json").write_text("[1, 2")
    refused(cli("clean", tmp_path / "bad.json", tmp_path / "out", "--overwrite"), "bad.json")
    assert bytes_of(tmp_path / "out", ".") == before


def test_the_disk_is_full(cli, rows, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", str(tmp_path / "out/x"))

    monkeypatch.setattr("prefdata.output.write_decisions", full)
    refused(cli("clean", rows, tmp_path / "out"), "No space left on device", "--resume")
    assert not (tmp_path / "out/manifest.json").exists()
