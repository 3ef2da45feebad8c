"""A mistake in a user's stage or pipeline file is told by file and line, with exit code 2 and no traceback."""

import subprocess
import sys

import pytest

import prefdata
from prefdata import commands, split
from prefdata.errors import ConfigError, InputError
from prefdata.pipeline import load
from prefdata.pipeline_file import value_of
from tests.written import write_lines

ROWS = [{"prompt": f"Question {i}?", "chosen": f"Yes, number {i}.", "rejected": f"No {i}, never."} for i in range(4)]
STAGE = '''
import sys
import numpy as np
import pyarrow as pa
from prefdata import Decisions, Stage

class Mine(Stage):
    """Is it mine?"""
    reasons = {"mine": "It is."}

    def measure(self, pairs):
        MEASURE
        return pa.table({})

    def decide(self, signals):
        out = Decisions(signals.index)
        DECIDE
        return out
'''
FAULTS = [
    ("1 / 0", "pass", ":12: ZeroDivisionError: division by zero"),
    ("sys.exit(0)", "pass", ":12: SystemExit: 0"),
    ("return None", "pass", ": TypeError: measure must return a pyarrow.Table, not NoneType"),
    ("return pa.table({'a': [1]})", "pass", ": ValueError: measure must return one row a pair: 1 rows for 4 pairs"),
    ("pass", "{}['no']", ":17: KeyError: 'no'"),
    ("pass", "return None", ": TypeError: decide must return Decisions, not NoneType"),
    ("pass", "out.mark([99], 'drop', 'mine')", ":17: IndexError:"),
    ("pass", "out.mark([0], 'drop', 'mine', peer=99)", ": ValueError: Decisions.peer holds a number outside -1 to 3"),
    ("pass", "out.mark([0], 'drop', 'yours')", ": ValueError: the reason word 'yours' is not in the stage's reasons"),
    ("pass", "out.action[:] = 2", ": ValueError: every flag, drop, swap and add needs a reason"),
    ("pass", "out.rows = out.rows[1:]", ": ValueError: a stage must give one decision for each living row"),
    ("pass", "out.score = None", ": ValueError: Decisions.score must be an array of one number"),
]


def stage(folder, measure="pass", decide="pass", more=""):
    path = folder / "mine.py"
    path.write_text(STAGE.replace("MEASURE", measure).replace("DECIDE", decide) + more)
    (folder / "mine.yaml").write_text("stages:\n- ./mine.py\n")
    return path


@pytest.mark.parametrize(("measure", "decide", "told"), FAULTS)
def test_a_stage_that_fails_is_told_by_file_and_line(tmp_path, measure, decide, told):
    path = stage(tmp_path, measure, decide)
    source = write_lines(tmp_path / "in.jsonl", ROWS)
    with pytest.raises(ConfigError) as error:
        prefdata.audit(str(source), pipeline=str(tmp_path / "mine.yaml"), workers=1)
    assert f"{path}{told}" in str(error.value)


def test_warm_and_depends_on_are_told_too(tmp_path):
    stage(tmp_path, more="\n    def warm(self):\n        1 / 0\n\n    def depends_on(self):\n        {}['no']\n")
    mine = load(str(tmp_path / "mine.yaml"))[0].stages[-1]
    with pytest.raises(ConfigError, match=r"mine\.py:21: ZeroDivisionError"):
        mine.warm()
    with pytest.raises(ConfigError, match=r"mine\.py:24: KeyError"):
        mine.depends_on()


def test_the_command_line_says_one_line(tmp_path):
    stage(tmp_path, "sys.exit(0)")
    source = write_lines(tmp_path / "in.jsonl", ROWS)
    got = subprocess.run(
        [sys.executable, "-m", "prefdata", "audit", "-p", str(tmp_path / "mine.yaml"), str(source)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert got.returncode == 2 and "Traceback" not in got.stderr and "mine.py:12: SystemExit: 0" in got.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"gate: 5\n", ":1: 'gate' is not a list"),
        (b"gate: kept>=1\n", ":1: 'gate' is not a list"),
        (b"gate:\n- kept>=1\n- 5\n", ":3: gate 5 is not text"),
        (b"gate:\n- a: b\n", ":2: gate {'a': 'b'} is not text"),
        (b"gate:\n- kept>=1\n- kept>=101%\n", ":3: gate 'kept>=101%': a share is at most 100%"),
        (b"stages: !!python/object:os.system x\n", ":1: 'stages' is not a list"),
        (b"stages: !!python/object:os.system {}\n", ":1: 'stages' is not a list"),
        (b"stages:\n- !!python/object:os.system {}\n", ":2: stages[0] is neither"),
        (b"version: 1\n# caf\xe9\n", ":2: is not UTF-8"),
        (b"version: 1\n\x07\n", ":2: "),
    ],
)
def test_a_pipeline_file_that_is_wrong_is_told_by_line(tmp_path, text, told):
    path = tmp_path / "p.yaml"
    path.write_bytes(text)
    with pytest.raises(ConfigError) as error:
        load(str(path))
    assert f"{path}{told}" in str(error.value)


@pytest.mark.parametrize("gate", ["what", "nobody<=5%", "kept<=101%"])
def test_a_gate_of_the_command_line_is_its_own_place(gate):
    with pytest.raises(ConfigError, match=r"^--gate: gate "):
        load("default", gates=[gate])


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.7", 0.7), ("true", True), ("", ""), (" ", " "), (" a b ", " a b "), ("#x", "#x"), ("'1'", "1"), ("a #b", "a #b"), ("null", None), ("[1, 2]", [1, 2])],
)  # fmt: skip
def test_set_keeps_text_as_given(text, value):
    assert value_of(text) == value


def test_a_split_named_twice_is_refused():
    with pytest.raises(ConfigError, match="test stands there twice"):
        split.parse("test=0.2,test=0.1")


@pytest.mark.parametrize(
    ("name", "content"),
    [("manifest.json", b"{"), ("manifest.json", b"[]"), ("audit/report.json", b"{}"),
     ("audit/report.json", None), ("audit/decisions.parquet", None), ("audit/decisions.parquet", b"x"), ("data/train", None)],
)  # fmt: skip
def test_a_broken_output_folder_is_told(tmp_path, name, content):
    prefdata.clean(ROWS, tmp_path / "out")
    at = tmp_path / "out" / name
    if at.is_dir():
        next(at.glob("*.parquet")).write_bytes(b"x")
    elif content is None:
        at.unlink()
    else:
        at.write_bytes(content)
    of_row = "parquet" in name or "data" in name
    with pytest.raises(InputError, match=str(tmp_path)):
        commands.explain_row(tmp_path / "out", "0") if of_row else commands.report(tmp_path / "out")
