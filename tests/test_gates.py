"""Gates: what they can say, at the bound, against a baseline, and as a CI reads them. Every test goes through the command line."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as Tree

import pytest
from written import report_of, write_lines

from prefdata import checks_out
from prefdata.checks_out import Check

HOW_TO = Path(__file__).parents[1] / "docs/how-to/ci-gate.md"


def pair(i, longer=True, **more):
    """A pair that no stage finds fault with; ``longer`` says which answer is."""
    long, short = f"Cats number {i} sleep on the warm stone wall until evening comes.", f"Number {i} barks."
    return {
        "prompt": f"Name animal {i}.",
        "chosen": long if longer else short,
        "rejected": short if longer else long,
        **more,
    }


def rows(n=20, doubled=0, tied=0, shorter=0):
    """n pairs, so many of them copies of the first ones, without a winner, or with the shorter answer chosen."""
    own = n - doubled - tied
    out = [pair(i, longer=i >= shorter) for i in range(own)]
    return [
        *out,
        *out[:doubled],
        *({"prompt": f"Tie {i}?", "chosen": f"Same {i}.", "rejected": f"Same {i}."} for i in range(tied)),
    ]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to run in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    write_lines("in.jsonl", rows(doubled=1))
    return tmp_path


def gates(ended):
    return {g["gate"]: g for g in json.loads(ended.out)["gates"]}


@pytest.mark.parametrize(
    ("gate", "value", "ok"),
    [
        ("exact_duplicate<=5%", 5, True), ("exact_duplicate<5%", 5, False), ("exact_duplicate>=5%", 5, True), ("exact_duplicate>5%", 5, False),
        ("exact_duplicate<=1", 1, True), ("exact_duplicate<1", 1, False), ("exact_duplicate>0", 1, True), ("exact_duplicate>=1.5", 1, False),
        ("kept>=95%", 95, True), ("kept>95%", 95, False), ("kept>=20", 19, False), ("dropped<=5%", 5, True), ("flagged<=0", 0, True),
        ("near_duplicate<=0", 0, True), ("contradictions<=0%", 0, True), ("malformed<1%", 0, True), ("longer_chosen>=100%", 100, True),
        ("length_bias<=49.9%", 50, False), (" kept >= 19 ", 19, True), ("identical_pair<=0", 0, True), ("similar_responses<=0", 0, True),
    ],
)  # fmt: skip
def test_a_gate_at_its_bound(cli, place, gate, value, ok):
    ended = cli("--json", "audit", "in.jsonl", "-p", "certain", "--gate", gate)
    found = json.loads(ended.out)["gates"][0]
    assert (found["value"], found["ok"], found["baseline"], ended.code) == (value, ok, None, 0 if ok else 1)


def test_a_share_is_no_hair_off_its_bound(cli, place):
    write_lines("in.jsonl", rows(100, shorter=42))  # 100 * 0.58 is 57.99999999999999
    ended = cli(
        "--json", "audit", "in.jsonl", "-p", "certain", "--gate", "longer_chosen>=58%", "--gate", "length_bias<=8%"
    )
    assert ended.code == 0 and [g["value"] for g in gates(ended).values()] == [58, 8]
    ended = cli("audit", "in.jsonl", "-p", "certain", "--gate", "longer_chosen<=57.9999%")
    assert ended.code == 1 and "longer_chosen<=57.9999%   58 %   failed" in ended.out
    write_lines("in.jsonl", rows(3, doubled=1))
    ended = cli("audit", "in.jsonl", "-p", "certain", "--gate", "exact_duplicate<=33.33%")
    assert ended.code == 1 and "33.3333333 %   failed" in ended.out  # not "33.33 %", which would be within the bound


def test_a_stage_counts_all_its_words_and_a_word_its_own(cli, place):
    write_lines(
        "in.jsonl", [*rows(18), {"prompt": "", "chosen": "a", "rejected": "b"}, {"prompt": "a?", "chosen": "b"}]
    )
    ended = cli(
        "--json", "audit", "in.jsonl", "-p", "certain", "--gate", "malformed<=10%", "--gate", "empty_prompt<=5%"
    )
    assert {g: v["value"] for g, v in gates(ended).items()} == {
        "malformed<=10%": 10,
        "empty_prompt<=5%": 5,
    } and ended.code == 0


def test_a_word_that_is_a_stage_too_counts_the_word(cli, place):
    write_lines("in.jsonl", [pair(0), pair(1, score_chosen=3, score_rejected=3)])  # a tie is no contradiction
    ended = cli(
        "--json",
        "audit",
        "in.jsonl",
        "-p",
        "certain",
        *(w for g in ("tie", "contradiction", "contradictions") for w in ("--gate", f"{g}<=0")),
    )
    assert [g["value"] for g in gates(ended).values()] == [1, 0, 0]


def test_where_no_answer_is_the_longer_one_length_is_not_judged(cli, place):
    write_lines(
        "in.jsonl", [{"prompt": f"Name {i}.", "chosen": f"Cat {i}.", "rejected": f"Stone {i}."} for i in range(5)]
    )
    for gate in ("longer_chosen<=60%", "longer_chosen>=40%", "length_bias<=5%"):
        ended = cli("--json", "audit", "in.jsonl", "-p", "certain", "--gate", gate)
        assert ended.code == 0 and gates(ended)[gate]["value"] is None and "not known" in gates(ended)[gate]["text"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gate", "near_dup<=5%"], "Did you mean near_duplicate"), (["--gate", "kept"], "name, comparison, number"),
        (["--gate", "kept>=120%"], "at most 100%"), (["--gate", "longer_chosen<=5"], "is a share"), (["--gate", "kept>=-1"], "comparison"),
        (["--gate", "kept>=baseline"], "--baseline OUT"), (["--gate", "kept>=baseline-1"], "comparison"),
        (["--tolerance", "1%"], "without --baseline"), (["--baseline", "nowhere"], "does not exist"), (["--baseline", "."], "no finished run"),
        (["--baseline", "in.jsonl"], "no manifest"), (["--output-format", "xml"], "not one of text, junit, github"),
        (["--output-file", "a.xml"], "junit"), (["--json", "--output-format", "junit"], "stdout"), (["--json", "--output-format", "github"], "stdout"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_the_work(cli, place, words, says):
    ended = cli("audit", "in.jsonl", "out", *words)
    assert ended.code == 2 and says in ended.err and ended.out == "" and not Path("out").exists()


def test_mistakes_with_a_baseline(cli, place):
    cli("audit", "in.jsonl", "last", "-p", "certain")
    both = cli("audit", "in.jsonl", "--baseline", "last", "--tolerance", "1%", "--gate", "kept>=baseline")
    assert both.code == 2 and '"kept>=baseline+0.5%"' in both.err
    assert "number of points" in cli("audit", "in.jsonl", "--baseline", "last", "--tolerance", "1").err
    itself = cli("audit", "in.jsonl", "last", "--overwrite", "--baseline", "last")
    assert itself.code == 2 and "output folder itself" in itself.err and Path("last/manifest.json").is_file()
    held = json.loads(Path("last/manifest.json").read_text())
    del held["rates"]
    Path("last/manifest.json").write_text(json.dumps(held))
    old = cli("audit", "in.jsonl", "--baseline", "last")
    assert old.code == 2 and "Run it again with this version" in old.err


def test_no_worse_than_last_time(cli, place):
    """Rates count, not rows: twice the set with twice the copies is as good."""
    cli("clean", "in.jsonl", "last", "-p", "certain")
    write_lines("next.jsonl", rows(40, doubled=2))
    same = cli("audit", "next.jsonl", "-p", "certain", "--baseline", "last")
    assert same.code == 0 and "✓ gate  exact_duplicate<=baseline   5 % (baseline 5 %)   ok" in same.out
    assert "made in another way" not in same.out
    write_lines("next.jsonl", rows(40, doubled=3, tied=1))
    worse = cli("--json", "clean", "next.jsonl", "out", "-p", "certain", "--baseline", "last/manifest.json")
    found = gates(worse)
    assert worse.code == 1 and {g for g, v in found.items() if not v["ok"]} == {
        "exact_duplicate<=baseline", "identical_pair<=baseline", "kept>=baseline"
    }  # fmt: skip
    new = found["identical_pair<=baseline"]
    assert (new["value"], new["baseline"], new["text"]) == (2.5, 0, "2.5 % (baseline 0 %)")
    assert (
        report_of("out")["gates"] == json.loads(Path("out/manifest.json").read_text())["gates"] == list(found.values())
    )
    assert report_of("out")["verdict"]["sentence"].startswith(
        "3 gates failed: exact_duplicate is 7.5 % (baseline 5 %), wanted at most baseline"
    )
    assert "7.5 % (baseline 5 %)" in Path("out/report.html").read_text()
    allowed = cli("audit", "next.jsonl", "-p", "certain", "--baseline", "last", "--tolerance", "5%")
    assert allowed.code == 0 and "exact_duplicate<=baseline+5%" in allowed.out and "kept>=baseline-5%" in allowed.out
    assert cli("audit", "next.jsonl", "-p", "certain", "--baseline", "last", "--exit-zero").code == 0


def test_length_may_say_no_more_than_last_time(cli, place):
    write_lines("in.jsonl", rows(20, shorter=8))
    cli("audit", "in.jsonl", "last", "-p", "certain")
    for shorter, ok in (
        (12, True),
        (8, True),
        (7, False),
        (13, False),
    ):  # as far from one half on the other side is as good
        write_lines("next.jsonl", rows(20, shorter=shorter))
        ended = cli("--json", "audit", "next.jsonl", "-p", "certain", "--baseline", "last")
        assert gates(ended)["length_bias<=baseline"]["ok"] is ok and ended.code == (0 if ok else 1), shorter


@pytest.mark.parametrize(
    ("gate", "ok"),
    [
        ("exact_duplicate<=baseline", False), ("exact_duplicate<=baseline+5%", True), ("exact_duplicate<=baseline + 4.9%", False),
        ("kept>=baseline-5%", True), ("kept>=baseline", False), ("kept<baseline", True), ("longer_chosen<=baseline", True),
    ],
)  # fmt: skip
def test_a_gate_that_names_the_baseline(cli, place, gate, ok):
    cli("audit", "in.jsonl", "last", "-p", "certain")
    write_lines("next.jsonl", rows(20, doubled=2))
    ended = cli("--json", "audit", "next.jsonl", "-p", "certain", "--baseline", "last", "--gate", gate)
    assert list(gates(ended)) == [gate.replace(" ", "")] and ended.code == (0 if ok else 1)


def test_a_baseline_made_in_another_way_is_told(cli, place):
    cli(
        "audit",
        "in.jsonl",
        "last",
        "-p",
        "certain",
        "--skip",
        "exact_duplicate",
        "--set",
        "near_duplicate.threshold=0.9",
    )
    held = json.loads(Path("last/manifest.json").read_text())
    Path("last/manifest.json").write_text(json.dumps({**held, "prefdata": "0.0.1"}))
    ended = cli("audit", "in.jsonl", "out", "-p", "certain", "--baseline", "last")
    note = next(line for line in ended.out.splitlines() if "made in another way" in line)
    assert (
        "prefdata 0.0.1, here" in note
        and "only here: exact_duplicate" in note
        and "near_duplicate.threshold 0.9 there, 0.8 here" in note
    )
    assert (
        "exact_duplicate<=baseline   5 % (baseline 0 %: not looked for there)   failed" in ended.out and ended.code == 1
    )
    assert any("made in another way" in text for text in report_of("out")["verdict"]["notes"])


def test_a_gate_of_the_pipeline_file_may_name_the_baseline(cli, place):
    Path("own.yaml").write_text('stages: [malformed, exact_duplicate]\ngate:\n  - "exact_duplicate<=baseline"\n')
    assert "own.yaml:3" in (lacking := cli("audit", "in.jsonl", "-p", "own.yaml").err) or "--baseline OUT" in lacking
    cli("audit", "in.jsonl", "last", "-p", "certain")
    assert cli("audit", "in.jsonl", "-p", "own.yaml", "--baseline", "last").code == 0


def test_a_job_is_held_against_a_baseline(cli, place):
    cli("clean", "in.jsonl", "last", "-p", "certain")
    Path("job.yaml").write_text(
        "pipeline: certain\ninput: in.jsonl\noutput: job\nclean: {baseline: last, tolerance: 0.5%}\n"
    )
    good = cli("run", "job.yaml")
    assert good.code == 0 and "exact_duplicate<=baseline+0.5%" in good.out, good.all
    assert "= clean" in cli("run", "job.yaml").out
    write_lines("other.jsonl", rows(20))
    cli(
        "clean", "other.jsonl", "last", "-p", "certain", "--overwrite"
    )  # a better baseline: the gate is looked at again
    worse = cli("run", "job.yaml")
    assert worse.code == 1 and "exact_duplicate<=baseline+0.5% does not hold: 5 % (baseline 0 %)" in worse.out, (
        worse.all
    )


# --------------------------------------------------------------------------------------------------- as a CI reads them


def test_junit(cli, place):
    ended = cli(
        "audit",
        "in.jsonl",
        "-p",
        "certain",
        "--gate",
        "kept>=99%",
        "--gate",
        "exact_duplicate<=5%",
        "--output-format",
        "junit",
    )
    top = Tree.fromstring(ended.out.encode())
    suite = top.find("testsuite")
    cases = suite.findall("testcase")
    assert ended.code == 1 and top.tag == "testsuites" and (suite.get("tests"), suite.get("failures")) == ("3", "1")
    assert [c.get("name") for c in cases] == ["kept>=99%", "exact_duplicate<=5%", "pairs are left"]
    assert [c.find("failure") is not None for c in cases] == [True, False, False]
    assert cases[0].find("failure").get("message") == "kept is 95 %, wanted at least 99 %"


def test_junit_in_a_file_leaves_stdout_as_it_is(cli, place):
    plain = cli("audit", "in.jsonl", "-p", "certain", "--gate", "kept>=99%")
    ended = cli(
        "audit",
        "in.jsonl",
        "-p",
        "certain",
        "--gate",
        "kept>=99%",
        "--output-format",
        "junit",
        "--output-file",
        "ci/gates.xml",
    )
    assert (ended.code, ended.out) == (1, plain.out) and Tree.parse("ci/gates.xml").getroot().get("failures") == "1"
    beside = cli("--json", "audit", "in.jsonl", "--output-format", "junit", "--output-file", "ci/gates.xml")
    assert beside.code == 0 and json.loads(beside.out)["ok"] is True


def test_nothing_left_is_a_failed_check(cli, place):
    write_lines("in.jsonl", [{"prompt": "", "chosen": "a", "rejected": "b"}] * 3)
    ended = cli("clean", "in.jsonl", "out", "--output-format", "junit")
    assert ended.code == 1 and Tree.fromstring(ended.out.encode()).get("failures") == "1"
    assert "0 of 3 pairs are left" in ended.out


def test_github(cli, place, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place / "summary.md"))
    Path("summary.md").write_text("before\n")
    ended = cli(
        "audit",
        "in.jsonl",
        "-p",
        "certain",
        "--gate",
        "kept>=99%",
        "--gate",
        "exact_duplicate<=5%",
        "--output-format",
        "github",
    )
    assert ended.code == 1 and "✗ gate  kept>=99%" in ended.out  # the log is for people too
    commands = [line for line in ended.out.splitlines() if line.startswith("::")]
    assert commands[0] == "::error title=prefdata%3A kept>=99%25::kept is 95 %25, wanted at least 99 %25"
    assert commands[1] == "::notice title=prefdata::2 of 3 checks hold (audit in.jsonl)"
    summary = Path("summary.md").read_text()
    assert summary.startswith("before\n### prefdata: audit in.jsonl\n") and "| ❌ | kept&gt;=99% | 95 % |" in summary
    quiet = cli("-q", "audit", "in.jsonl", "-p", "certain", "--output-format", "github")
    assert quiet.code == 0 and quiet.out.splitlines() == [
        "::notice title=prefdata::1 of 1 checks hold (audit in.jsonl)"
    ]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place))  # no file: the gates still stand
    assert cli("audit", "in.jsonl", "-p", "certain", "--output-format", "github").code == 0


HOSTILE = 'a,b: 100%\r\n::error::x|y <b>&"\x00\x1b[31m`*_[z](u)'


def test_hostile_names_stay_text():
    checks = [Check(HOSTILE, HOSTILE, False, HOSTILE), Check("fine", "1", True, "fine")]
    line, notice = checks_out.github(HOSTILE, checks)
    title, text = re.fullmatch(r"::error title=([^:,\r\n]*)::([^\r\n]*)", line).groups()
    for sign, code in (("\r", "%0D"), ("\n", "%0A"), (":", "%3A"), (",", "%2C"), ("%25", "%25")):
        title = title.replace(code, sign) if code != "%25" else title
    assert title.replace("%25", "%") == f"prefdata: {HOSTILE}"
    assert text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%") == HOSTILE and "\n" not in notice
    suite = Tree.fromstring(checks_out.junit(HOSTILE, checks).encode()).find("testsuite")
    assert (
        suite.find("testcase").get("name")
        == suite.get("name")
        == HOSTILE.replace("\x00", "\ufffd").replace("\x1b", "\ufffd")
    )
    table = checks_out.markdown(HOSTILE, checks)
    assert table.count("\n") == 7 and "<b>" not in table and "x\\|y" in table


def test_the_workflow_of_the_guide_is_yaml_and_runs_prefdata():
    from ruamel.yaml import YAML

    blocks = re.findall(r"```yaml\n(.*?)```", HOW_TO.read_text("utf-8"), re.DOTALL)
    jobs = [job for text in blocks for job in (YAML(typ="safe").load(text).get("jobs") or {}).values()]
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert any("prefdata audit" in c and "--baseline" in c and "--output-format github" in c for c in commands)
