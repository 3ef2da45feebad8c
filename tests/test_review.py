"""People judge pairs: verdicts in, decisions and figures out, and a cleaning that holds to them."""

import csv
import fcntl
import io
import json
import math
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios
import time as clock
from pathlib import Path

import pytest
from sklearn.metrics import cohen_kappa_score
from written import bytes_of, dropped, loaded, report_of, write_lines

import prefdata

PLANTED = Path(prefdata.__file__).parent / "samples/planted.jsonl"


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run of the planted sample; copy it before it is changed."""
    out = tmp_path_factory.mktemp("finished") / "out"
    prefdata.clean(PLANTED, out, workers=1)
    return out


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the finished run."""
    return Path(shutil.copytree(finished, tmp_path / "out"))


class Sheet:
    """The sheet of a run, and verdicts on it."""

    def __init__(self, out):
        self.report = report_of(out)
        self.spot = self.report["spotcheck"]
        self.rows = [
            {**r, "issue": (s := self.spot["strata"][r["stratum"]])["issue"], "state": s["state"]}
            for r in self.spot["rows"]
        ]
        self.kept = [r for r in self.rows if r["base"]]
        self.dropped = [r for r in self.rows if r["state"] == "dropped"]

    def verdict(self, row, verdict, reviewer="anna", mode="open", time="2026-12-07T12:00:00Z", **more):
        return {
            "sheet": self.spot["id"], "row": row["row"], "pd_id": row["pd_id"], "key": row["key"], "mode": mode,
            "verdict": verdict, "reviewer": reviewer, "note": "", "time": time, **more,
        }  # fmt: skip

    def write(self, path, made, reviewer="anna", **more):
        return write_lines(path, [self.verdict(r, v, reviewer, **more) for r, v in made])


def review_of(out):
    return json.loads((out / "audit/review.json").read_bytes())


def decided(out):
    return {r["row"]: (r["decision"], r["apply"]) for r in review_of(out)["rows"]}


def wilson(hits, n, z=1.959963984540054):
    p = hits / n
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [(p + z * z / (2 * n) + s * half) / (1 + z * z / n) for s in (-1, 1)]


# ---------------------------------------------------------------------- the page


@pytest.mark.parametrize("option", [[], ["--labels"]])
def test_the_page_is_written_and_what_to_do_next_is_said(cli, run, option):
    done = cli("review", run, *option)
    assert done.code == 0 and (run / "review.html").is_file()
    assert "sides hidden" in done.out if not option else "labels shown" in done.out
    assert f"prefdata review {run} --import" in done.out


def test_the_page_and_the_verdicts_outlive_nothing_and_everything(cli, run, tmp_path):
    """``--overwrite`` takes the page, which it can make again, and leaves the work of people."""
    sheet = Sheet(run)
    cli("review", run)
    cli("review", run, "--import", sheet.write(tmp_path / "anna.jsonl", [(sheet.kept[0], "reject")]))
    before = bytes_of(run, "audit/review.json", "audit/verdicts")
    assert len(before) == 2
    assert cli("clean", PLANTED, run, "--overwrite", "--workers", 1).code == 0
    assert bytes_of(run, "audit/review.json", "audit/verdicts") == before
    assert not (run / "review.html").exists()


def test_a_sheet_that_is_being_filled_in_place_outlives_the_run(cli, run):
    sheet = run / "spotcheck.csv"
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    rows[3]["verdict"] = "left"
    with sheet.open("w", encoding="utf-8-sig", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    filled = sheet.read_bytes()
    assert cli("clean", PLANTED, run, "--overwrite", "--workers", 1).code == 0
    (saved,) = (run / "audit/verdicts").glob("spotcheck-*.csv")
    assert saved.read_bytes() == filled != sheet.read_bytes()
    assert cli("clean", PLANTED, run, "--overwrite", "--workers", 1).code == 0
    assert [p.name for p in (run / "audit/verdicts").iterdir()] == [saved.name]  # an empty sheet is nobody's work


# ---------------------------------------------------------------------- verdicts read back


def test_figures_are_those_of_a_hand_count(cli, run, tmp_path):
    sheet = Sheet(run)
    anna = [(r, "reject" if i < 5 else "unsure" if i == 5 else "accept") for i, r in enumerate(sheet.kept[:30])]
    li = [(r, "reject" if 3 <= i < 8 else "accept") for i, r in enumerate(sheet.kept[:20])]
    files = [sheet.write(tmp_path / "anna.jsonl", anna), sheet.write(tmp_path / "li.jsonl", li, "li")]
    done = cli("review", run, "--import", files[0], "--import", files[1])
    assert done.code == 0, done.all
    found = review_of(run)
    # rows 0-2: anna no, li yes; 3-4: both no; 5: anna unsure, li no; 6-7: anna yes, li no
    assert found["decisions"] == {"disputed": 5, "reject": 3, "accept": 22} and found["judged"] == 30
    low, high = wilson(3, 25)
    assert found["rejected"] == {
        "hits": 3, "n": 25, "value": pytest.approx(3 / 25), "low": pytest.approx(low), "high": pytest.approx(high),
    }  # fmt: skip
    ours = ["bad"] * 5 + ["unsure"] + ["good"] * 14
    theirs = ["good"] * 3 + ["bad"] * 5 + ["good"] * 12
    same = sum(a == b for a, b in zip(ours, theirs, strict=True)) / 20
    expected = sum(ours.count(w) / 20 * theirs.count(w) / 20 for w in ("good", "bad", "unsure"))
    kappa = (same - expected) / (1 - expected)
    assert found["agreement"]["value"] == pytest.approx(same)
    assert found["agreement"]["kappa"] == pytest.approx(kappa) == pytest.approx(cohen_kappa_score(ours, theirs))
    assert {r["name"]: (r["judged"], r["counts"]) for r in found["reviewers"]} == {
        "anna": (30, {"accept": 24, "reject": 5, "unsure": 1}), "li": (20, {"accept": 15, "reject": 5}),
    }  # fmt: skip
    assert f"rejected 3 of 25 = 12.0 % ({100 * low:.1f}-{100 * high:.1f})" in done.out
    assert f"agreement {same:.2f}, kappa {kappa:.2f}" in done.out and "disputed 5" in done.out


def test_three_reviewers_have_the_mean_of_three_kappas(cli, run, tmp_path):
    sheet = Sheet(run)
    said = {"a": "rraaaaaaaa", "b": "rarauaaaaa", "c": "aarraaaaar"}
    words = {"r": "reject", "a": "accept", "u": "unsure"}
    args = []
    for name, letters in said.items():
        made = [(r, words[x]) for r, x in zip(sheet.kept, letters, strict=False)]
        args += ["--import", sheet.write(tmp_path / f"{name}.jsonl", made, name)]
    cli("review", run, *args)
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    kappas = [cohen_kappa_score(list(said[x]), list(said[y])) for x, y in pairs]
    found = review_of(run)["agreement"]
    assert found["kappa"] == pytest.approx(sum(kappas) / 3) and len(found["pairs"]) == 3
    assert decided(run)[sheet.kept[0]["row"]][0] == "reject"  # two of three
    assert decided(run)[sheet.kept[1]["row"]][0] == "accept"


def test_kappa_of_people_who_say_the_same_of_all_is_not_defined(cli, run, tmp_path):
    sheet = Sheet(run)
    files = [sheet.write(tmp_path / f"{n}.jsonl", [(r, "accept") for r in sheet.kept[:5]], n) for n in "ab"]
    done = cli("review", run, "--import", files[0], "--import", files[1])
    assert review_of(run)["agreement"]["value"] == 1 and review_of(run)["agreement"]["kappa"] is None
    assert "kappa not defined" in done.out


def test_what_each_verdict_makes_of_a_pair(cli, run, tmp_path):
    sheet = Sheet(run)
    one, two, three, four, five = sheet.kept[:5]
    away, right = sheet.dropped[:2]

    def side(row, wanted):
        return "left" if row["left"] == wanted else "right"

    lines = [
        sheet.verdict(one, "reject"),
        sheet.verdict(two, side(two, "rejected"), mode="blind"),
        sheet.verdict(three, side(three, "chosen"), mode="blind"),
        sheet.verdict(four, "same", mode="blind"),
        sheet.verdict(five, "both_bad", mode="blind"),
        sheet.verdict(away, "reject"),
        sheet.verdict(right, "accept"),
    ]
    cli("review", run, "--import", write_lines(tmp_path / "anna.jsonl", lines))
    assert decided(run) == {
        one["row"]: ("reject", "drop"), two["row"]: ("wrong_label", "wrong_label"), three["row"]: ("accept", None),
        four["row"]: ("unsure", None), five["row"]: ("reject", "drop"), away["row"]: ("reject", "keep"),
        right["row"]: ("accept", None),
    }  # fmt: skip
    found = review_of(run)
    assert (found["rejected"]["hits"], found["rejected"]["n"]) == (3, 4)  # dropped rows are no part of it
    assert (found["label_agreement"]["hits"], found["label_agreement"]["n"]) == (1, 2)
    assert (found["same"], found["both_bad"]) == (1, 1)
    by = {(s["issue"], s["state"]): (s["hits"], s["n"]) for s in found["by_reason"]}
    assert sum(hits for (_, state), (hits, _) in by.items() if state == "dropped") == 1
    assert sum(n for (_, state), (_, n) in by.items() if state == "dropped") == 2


def test_importing_again_adds_and_the_later_verdict_counts(cli, run, tmp_path):
    sheet = Sheet(run)
    a, b, c = sheet.kept[:3]
    cli("review", run, "--import", sheet.write(tmp_path / "anna.jsonl", [(a, "accept"), (b, "accept")]))
    later = [
        sheet.verdict(a, "reject", time="2026-12-08T12:00:00Z"),
        sheet.verdict(b, "reject", time="2026-12-06T12:00:00Z"),
        sheet.verdict(c, "reject", time=""),
        sheet.verdict(c, "accept", time=""),
    ]
    done = cli("review", run, "--import", write_lines(tmp_path / "again.jsonl", later))
    assert {row: d for row, (d, _) in decided(run).items()} == {
        a["row"]: "reject", b["row"]: "accept", c["row"]: "accept",
    }  # fmt: skip
    assert "anna judged 3 pairs more than once" in done.out
    once = (run / "audit/review.json").read_bytes()
    assert "anna judged 1 pair more than once" in cli("review", run, "--import", tmp_path / "anna.jsonl").out
    assert (
        "more than once" not in cli("review", run, "--import", sheet.write(tmp_path / "b.jsonl", [(b, "accept")])).out
    )
    assert {row: d for row, (d, _) in decided(run).items()} == {
        a["row"]: "reject", b["row"]: "accept", c["row"]: "accept",
    }  # fmt: skip
    cli("review", run, "--import", tmp_path / "again.jsonl")
    assert json.loads(once)["rows"] == review_of(run)["rows"]


def test_files_are_kept_and_two_of_one_name_stay_two(cli, run, tmp_path):
    sheet = Sheet(run)
    for name, verdict in (("x", "accept"), ("y", "reject")):
        (tmp_path / name).mkdir()
        file = sheet.write(tmp_path / name / "verdicts.jsonl", [(sheet.kept[0], verdict)], name)
        cli("review", run, "--import", file)
    kept = sorted((run / "audit/verdicts").iterdir())
    assert [p.read_bytes() for p in kept] == [(tmp_path / p / "verdicts.jsonl").read_bytes() for p in "yx"]
    assert [r["name"] for r in review_of(run)["reviewers"]] == ["x", "y"]


def test_the_csv_of_the_page_is_read_too(cli, run, tmp_path):
    sheet = Sheet(run)
    lines = [sheet.verdict(r, "reject", note="'=1+1") for r in sheet.kept[:3]]
    lines.append(sheet.verdict(sheet.kept[3], "", note="later"))
    for mark in ",;":
        with (tmp_path / "li.csv").open("w", newline="", encoding="utf-8-sig") as file:
            table = csv.DictWriter(file, list(lines[0]), delimiter=mark)
            table.writeheader()
            table.writerows(lines)
        assert cli("review", run, "--import", tmp_path / "li.csv").code == 0
        assert [r["verdicts"][0]["note"] for r in review_of(run)["rows"]] == ["=1+1"] * 3


def test_the_filled_spotcheck_is_read_with_its_hidden_sides(cli, run, tmp_path):
    """Filled by someone who always prefers the answer that the label prefers, then by one who never does."""
    pairs = {r["pd_id"]: r for r in loaded(run)}
    with (run / "spotcheck.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))

    def fill(name, left, right, last=""):
        with (tmp_path / name).open("w", encoding="utf-8-sig", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            for row in rows[:-1]:
                on_left = pairs[row["pd_id"]]["chosen"].lstrip("'") == row["left"].lstrip("'")
                table.writerow({**row, "verdict": left if on_left else right})
            table.writerow({**rows[-1], "verdict": last})
        return tmp_path / name

    done = cli("review", run, "--import", fill("li.csv", "L", "right"))
    assert done.code == 0, done.all
    found = review_of(run)
    assert found["reviewers"][0]["name"] == "li" and found["reviewers"][0]["counts"] == {"accept": len(rows) - 1}
    assert cli("review", run, "--import", fill("no.csv", "right", "left", "both bad"), "--reviewer", "no").code == 0
    counts = {r["name"]: r["counts"] for r in review_of(run)["reviewers"]}
    assert counts["no"] == {"reject": 1, "wrong_label": len(rows) - 1}
    bad = fill("bad.csv", "left", "leftish")
    done = cli("review", run, "--import", bad)
    assert done.code == 2 and re.search(r"bad\.csv:\d+: no such verdict: 'leftish'\. Did you mean left\?", done.err)


@pytest.mark.slow
def test_rows_of_the_spotcheck_that_the_page_has_no_room_for(cli, tmp_path):
    """The page holds at most 400 pairs; the sheet for a spreadsheet holds all that were asked for."""
    rows = [
        {
            "prompt": f"Question {i} about {i * 7919 % 1009}?",
            "chosen": f"Yes, {i} it is so.",
            "rejected": f"No, never {i}.",
        }
        for i in range(500)
    ]
    out = tmp_path / "out"
    cli("clean", write_lines(tmp_path / "in.jsonl", rows), out, "--only", "exact_duplicate", "--sample", "100%")
    with (out / "spotcheck.csv").open(encoding="utf-8-sig", newline="") as file:
        sheet = list(csv.DictReader(file))
    assert len(sheet) == 500
    with (tmp_path / "li.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(sheet[0]))
        table.writeheader()
        for i, row in enumerate(sheet):
            side = "left" if row["left"].startswith("Yes") else "right"
            table.writerow({**row, "verdict": "both bad" if i % 10 == 0 else side})
    done = cli("review", out, "--import", tmp_path / "li.csv")
    assert done.code == 0 and "judged 500 by 1 reviewer   rejected 50 of 500" in done.out, done.all
    assert "label preferred 450 of 450" in done.out
    again = cli("clean", tmp_path / "in.jsonl", tmp_path / "two", "--only", "exact_duplicate", "--verdicts", out)
    assert "rejected_by_review 50" in again.out


def test_the_report_shows_the_review_of_its_own_sheet_only(cli, run, tmp_path):
    sheet = Sheet(run)
    cli("review", run, "--import", sheet.write(tmp_path / "a.jsonl", [(r, "reject") for r in sheet.kept[:7]]))
    page = (run / "report.html").read_text("utf-8")
    assert "7 of 7" in page and "not judged yet" not in page
    (run / "report.html").unlink()
    cli("report", run)
    assert "7 of 7" in (run / "report.html").read_text("utf-8")
    cli("clean", PLANTED, run, "--overwrite", "--seed", 9)
    assert "not judged yet" in (run / "report.html").read_text("utf-8")
    sheet = Sheet(run)
    cli("review", run, "--import", sheet.write(tmp_path / "b.jsonl", [(sheet.kept[0], "accept")]))
    assert review_of(run)["judged"] == 1
    assert len(list((run / "audit").glob("review-*.json"))) == 1  # the earlier one is put aside


def test_an_issue_that_is_clearly_worse_is_pointed_out(cli, run, tmp_path):
    sheet = Sheet(run)
    dropped_rightly = {r["row"] for r in sheet.dropped if r["issue"] != "exact_duplicate"}
    made = [(r, "accept" if r["base"] or r["row"] in dropped_rightly else "reject") for r in sheet.rows]
    done = cli("review", run, "--import", sheet.write(tmp_path / "a.jsonl", made))
    pointed = [line for line in done.out.splitlines() if "look here" in line]
    assert len(pointed) == 1 and "exact_duplicate, dropped: 0 of 4 dropped rightly (0 %)" in pointed[0]


# ---------------------------------------------------------------------- the bound


@pytest.mark.parametrize(("bound", "code"), [("10%", 1), ("0.5", 0), ("100%", 0)])
def test_the_bound_is_held_against_the_upper_end(cli, run, tmp_path, bound, code):
    sheet = Sheet(run)
    file = sheet.write(
        tmp_path / "a.jsonl", [(r, "reject" if i < 2 else "accept") for i, r in enumerate(sheet.kept[:30])]
    )
    done = cli("review", run, "--import", file, "--max-rejected", bound)  # 6.7 %, upper end 21 %
    assert done.code == code and ("✓" if code == 0 else "✗") + " upper bound 21.3 %" in done.out
    assert cli("review", run, "--max-rejected", bound).code == code  # of what was imported before
    assert (run / "audit/review.json").is_file()


def test_a_bound_on_nothing_does_not_hold(cli, run, tmp_path):
    sheet = Sheet(run)
    done = cli("review", run, "--max-rejected", "10%")
    assert done.code == 2 and "no pair of this sheet was judged" in done.err
    file = sheet.write(tmp_path / "a.jsonl", [(sheet.kept[0], "unsure")])
    assert cli("review", run, "--import", file, "--max-rejected", "10%").code == 1


@pytest.mark.parametrize("bound", ["nan%", "-1", "11", "much", ""])
def test_a_bound_that_is_no_share(cli, run, bound):
    assert cli("review", run, "--max-rejected", bound).code == 2


@pytest.mark.parametrize("options", [
    ["--tty", "--import", "x"], ["--tty", "--labels"], ["--import", "x", "--open"], ["--blind"], ["--reviewer", "li"],
    ["--import", "x", "--import", "y", "--reviewer", "li"], ["--import", "x", "--blind"], ["--tty", "--reviewer", "../li"],
    ["--import", "not-there.jsonl"],
])  # fmt: skip
def test_options_that_do_not_go_together(cli, run, options):
    done = cli("review", run, *options)
    assert done.code == 2 and done.err.startswith("error: ") and not (run / "audit/review.json").exists()


def test_json_is_one_document(cli, run, tmp_path):
    sheet = Sheet(run)
    assert json.loads(cli("--json", "review", run).out)["pairs"] == len(sheet.kept)
    done = cli("--json", "review", run, "--import", sheet.write(tmp_path / "a.jsonl", [(sheet.kept[0], "reject")]))
    assert json.loads(done.out)["rejected"]["value"] == 1
    assert cli("-q", "review", run, "--import", tmp_path / "a.jsonl").out == ""
    assert cli("review", tmp_path).code == 2


# ---------------------------------------------------------------------- files that are not what they should be


def test_every_bad_line_is_named_and_nothing_is_imported(cli, run, tmp_path):
    sheet = Sheet(run)
    one, away = sheet.kept[0], sheet.dropped[0]
    good = json.dumps(sheet.verdict(one, "accept"))

    def line(row=one, verdict="accept", **more):
        mode = more.pop("mode", "open")
        return json.dumps({**sheet.verdict(row, verdict, mode=mode), **more})

    deep = "[" * 100_000
    bad = [
        ("{not json", "is not JSON"), (good.replace('"row": ', '"row": NaN, "x": '), "is not JSON"), ("[1, 2]", "is not a JSON object"),
        (line(verdict="maybe"), "no such verdict: 'maybe'"), (line(verdict="left"), "no such verdict: 'left'"),
        (line(row={**one, "row": 10**30}), "has no row 1"), (line(row={**one, "row": 999}), "has no row 999"), (line(row={**one, "row": "\x1b[31m"}), "has no row ⟨U+001B⟩[31m"),
        (line(row={**one, "row": True}), "has no row True"), (line(row={**one, "row": 1.5}), "has no row 1.5"),
        (line(key="0" * 16), "are not those that were judged"), (line(sheet="b" * 12), "on another sheet"), (line(mode="shut"), "neither open nor blind"),
        (line(row=away, verdict="left", mode="blind"), "cannot be judged blind"), (line(note="x" * 20_000), "note is too long"),
        (line(reviewer=["li"]), "reviewer is not text"), (line(reviewer="l" * 200), "name of the reviewer is too long"),
        ("{}", "has no sheet and no row"), ('{"a": ' + deep, "is not JSON"),
    ]  # fmt: skip
    file = tmp_path / "anna.jsonl"
    file.write_text("\n".join([good, *(text for text, _ in bad), ""]), "utf-8")
    done = cli("review", run, "--import", file)
    assert done.code == 2 and "Nothing was imported" in done.err and "Traceback" not in done.err
    said = done.err.splitlines()
    for number, (_, what) in enumerate(bad, 2):
        assert any(f"anna.jsonl:{number}: " in text and what in text for text in said), (number, what, done.err)
    assert not (run / "audit/review.json").exists() and not (run / "audit/verdicts").exists()
    file.write_text("{bad\n" * 500, "utf-8")
    assert "and 480 more" in cli("review", run, "--import", file).err


@pytest.mark.parametrize(("content", "what"), [
    (b"", "has no columns"), (b"\x00\x01\x02", "has no columns"), (b"a,b\n1,2\n", "has no columns of a verdict file"), (b'"pd_id,left', "CSV"),
    (b"[{}]", "has no columns"), (b"\xff\xfe{", "is not UTF-8"), (b"pd_id,left,right,prompt,verdict\n99999,a,b,c,left\n", ":2: this run kept no pair '99999'"),
    (b"pd_id,left,right,prompt,verdict\n1,a,b,c,\n", "holds no verdict"), (b"pd_id,left,right,prompt,verdict\n1,a,b,c,left,d\n", "more cells"),
    (b'pd_id,left,right,prompt,verdict\n1,"a,b,c,left\n', "is not CSV"),
])  # fmt: skip
def test_files_that_are_no_verdicts(cli, run, tmp_path, content, what):
    (tmp_path / "x.csv").write_bytes(content)
    done = cli("review", run, "--import", tmp_path / "x.csv")
    assert done.code == 2 and what in done.err and "Traceback" not in done.err, done.err
    assert not (run / "audit/review.json").exists()


def test_a_spotcheck_of_another_run_is_refused(cli, run, tmp_path):
    rows = [{"prompt": f"Q{i}?", "chosen": f"Yes {i}", "rejected": f"No {i}"} for i in range(60)]
    cli("clean", write_lines(tmp_path / "in.jsonl", rows), tmp_path / "other")
    text = (tmp_path / "other/spotcheck.csv").read_text("utf-8-sig").splitlines()
    (tmp_path / "x.csv").write_text("\n".join([text[0], *(line[:-1] + "left," for line in text[1:])]), "utf-8")
    done = cli("review", run, "--import", tmp_path / "x.csv")
    assert done.code == 2 and "are not those of this run" in done.err


def test_a_review_that_was_changed_by_hand_is_named_and_not_replaced(cli, run, tmp_path):
    sheet = Sheet(run)
    (run / "audit/review.json").write_text('{"rows": 1}')
    done = cli("review", run, "--import", sheet.write(tmp_path / "a.jsonl", [(sheet.kept[0], "accept")]))
    assert done.code == 2 and "review.json: is no review" in done.err
    assert (run / "audit/review.json").read_text() == '{"rows": 1}'


# ---------------------------------------------------------------------- in the terminal


@pytest.fixture
def keys(cli, monkeypatch):
    """``keys(run, "aar q", "--blind")``: the command with these keys on stdin."""

    def call(run, typed, *options):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        return cli("review", run, "--tty", *options)

    return call


def saved(run, name="me"):
    return [json.loads(line) for line in (run / f"audit/verdicts/{name}.jsonl").read_text("utf-8").splitlines()]


def test_one_key_a_pair_and_the_summary_at_the_end(keys, run):
    sheet = Sheet(run)
    done = keys(run, "arunnot sure\nq", "--reviewer", "Li")
    assert done.code == 0, done.all
    got = saved(run, "Li")
    assert [(v["row"], v["verdict"]) for v in got] == [
        (r["row"], v) for r, v in zip(sheet.rows, ("accept", "reject", "unsure"), strict=False)
    ]
    assert all(v["sheet"] == sheet.spot["id"] and v["mode"] == "open" and v["reviewer"] == "Li" for v in got)
    assert "rejected 1 of 2" in done.out and review_of(run)["judged"] == 3
    assert "Was it right" not in done.err and "Is the chosen answer really the better one" in done.err
    assert "3 of 58 pairs judged" in done.err


def test_going_on_starts_at_the_first_pair_that_is_not_judged(keys, run):
    sheet = Sheet(run)
    keys(run, "aasa")  # two, one passed over, one more; stdin ends
    assert [v["row"] for v in saved(run)] == [sheet.rows[i]["row"] for i in (0, 1, 3)]
    keys(run, "rrq")
    assert [v["row"] for v in saved(run)[3:]] == [sheet.rows[i]["row"] for i in (2, 4)]
    assert review_of(run)["judged"] == 5


def test_back_changes_a_verdict_and_a_note_joins_it(keys, run):
    sheet = Sheet(run)
    done = keys(run, "aa\x1b[Dn  the answer is cut \nprq")
    first, second = sheet.rows[0]["row"], sheet.rows[1]["row"]
    rows = {r["row"]: r["verdicts"][0] for r in review_of(run)["rows"]}
    assert (rows[first]["verdict"], rows[second]["verdict"], rows[second]["note"]) == (
        "reject",
        "accept",
        "the answer is cut",
    )
    assert "judged before: accept" in done.err
    assert done.out.count("more than once") <= 1


def test_blind_hides_what_was_chosen_and_asks_of_dropped_pairs_openly(keys, run):
    sheet = Sheet(run)
    n = len(sheet.kept)
    done = keys(run, "1" * n + "r", "--blind")
    assert done.code == 0, done.all
    head = done.err.split("Was it right to drop this pair?")[0]
    asked = [part for part in head.split("── ") if "Which answer is the better one?" in part]
    assert len(asked) == n and not any(w in p for p in asked for w in ("CHOSEN", "REJECTED", "flagged"))
    got = {v["row"]: v for v in saved(run)}
    assert all(got[r["row"]]["mode"] == "blind" and got[r["row"]]["verdict"] == "left" for r in sheet.kept)
    assert [v["mode"] for v in got.values()].count("open") == 1
    left = sum(r["left"] == "chosen" for r in sheet.kept)
    counts = review_of(run)["reviewers"][0]["counts"]
    assert (counts["accept"], counts["wrong_label"], counts["reject"]) == (left, n - left, 1)
    first = next(r for r in sheet.report["rows"] if r["row"] == sheet.rows[0]["row"])
    assert asked[0].index(first[sheet.rows[0]["left"]]) < asked[0].index("2 RIGHT")


def test_a_text_cannot_speak_to_the_terminal(keys, cli, tmp_path):
    bad = "\x1b]0;title\x07\x1b[2J\u202eabc\u200b\x9b31m\rover"
    rows = [
        {"prompt": f"{bad} {i}?", "chosen": f"Yes {bad} {i}", "rejected": f"No {bad} {i}", "id": bad} for i in range(3)
    ]
    out = tmp_path / "out"
    cli("clean", write_lines(tmp_path / "in.jsonl", rows), out, "--only", "malformed")
    done = keys(out, "nbad \x1b[31m note\na")
    assert done.code == 0 and "⟨U+001B⟩" in done.err and "⟨U+202E⟩" in done.err
    assert not set(done.all) & set("\x1b\x07\u202e\u200b\x9b\r")


def test_the_sheet_of_an_earlier_run_is_put_aside(keys, cli, run):
    keys(run, "aa")
    cli("clean", PLANTED, run, "--overwrite", "--seed", 9, "--only", "exact_duplicate")
    done = keys(run, "r")
    assert done.code == 0 and [v["verdict"] for v in saved(run)] == ["reject"]
    assert len(list((run / "audit/verdicts").glob("me-*.jsonl"))) == 1


def test_half_a_line_is_left_out(keys, run):
    keys(run, "aa")
    with (run / "audit/verdicts/me.jsonl").open("a") as file:
        file.write('{"sheet": "half')
    assert keys(run, "a").code == 0 and len(saved(run)) == 3


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, *argv):
        self.main, other = pty.openpty()
        env = {**os.environ, "PYTHONPATH": str(Path(prefdata.__file__).parents[1]), "TERM": "xterm"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "prefdata", "review", *map(str, argv)], stdin=other, stdout=other, stderr=other,
            env=env, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(other)
        self.seen = ""

    def until(self, text, seconds=30):
        ends = clock.monotonic() + seconds
        while text not in self.seen:
            assert clock.monotonic() < ends, self.seen
            if select.select([self.main], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.main, 65536).decode("utf-8", "replace")
                except OSError:
                    break
        assert text in self.seen, self.seen
        self.seen = self.seen.split(text, 1)[1]

    def type(self, keys):
        """Once the command waits for a key: what is typed before is thrown away."""
        ends = clock.monotonic() + 30
        while termios.tcgetattr(self.main)[3] & termios.ICANON:
            assert clock.monotonic() < ends
            clock.sleep(0.02)
        os.write(self.main, keys.encode())

    def end(self):
        self.process.wait(30)
        os.close(self.main)
        return self.process.returncode


def test_in_a_real_terminal_ctrl_c_loses_nothing(run):
    sheet = Sheet(run)
    terminal = Terminal(run, "--tty", "--reviewer", "anna")
    for i, key in enumerate("ar"):
        terminal.until(f"{i + 1} of 58")
        terminal.until("q quit")
        terminal.type(key)
    terminal.until("3 of 58")
    terminal.until("q quit")
    terminal.type("\x1b[D")
    terminal.until("2 of 58")
    terminal.until("judged before: reject")
    terminal.until("q quit")
    terminal.type("\x03")
    terminal.until("every verdict is saved")
    assert terminal.end() == 130
    assert [(v["row"], v["verdict"]) for v in saved(run, "anna")] == [
        (sheet.rows[0]["row"], "accept"), (sheet.rows[1]["row"], "reject"),
    ]  # fmt: skip
    terminal = Terminal(run, "--tty", "--reviewer", "anna")
    terminal.until("3 of 58")
    terminal.until("q quit")
    terminal.type("a")
    terminal.until("4 of 58")
    terminal.until("q quit")
    terminal.type("q")
    terminal.until("judged 3 by 1 reviewer")
    assert terminal.end() == 0


# ---------------------------------------------------------------------- cleaning with verdicts


def judged(cli, run, tmp_path):
    """Verdicts that drop a pair, find a label wrong, and want a near duplicate and an identical pair back."""
    sheet = Sheet(run)
    short = {r["row"] for r in sheet.report["rows"] if not r["lengths"]}
    rejected, wrong = [r for r in sheet.kept if r["row"] in short and r["state"] == "kept"][:2]
    back = [next(r for r in sheet.dropped if r["issue"] == issue) for issue in ("near_duplicate", "identical_pair")]
    lines = [sheet.verdict(r, "reject") for r in (rejected, *back)]
    lines.append(sheet.verdict(wrong, "left" if wrong["left"] == "rejected" else "right", mode="blind"))
    assert cli("review", run, "--import", write_lines(tmp_path / "anna.jsonl", lines)).code == 0
    return rejected, wrong, back


def texts(row):
    return row["prompt"], row["chosen"], row["rejected"]


def sides_of(run, *rows):
    """The texts of these rows as read."""
    shown = {r["row"]: texts(r) for r in Sheet(run).report["rows"]}
    return [shown[r["row"]] for r in rows]


@pytest.mark.parametrize("shuffled", [False, True], ids=["as they were", "shuffled"])
def test_verdicts_are_applied_when_the_set_is_cleaned_again(cli, run, tmp_path, shuffled):
    rejected, wrong, back = judged(cli, run, tmp_path)
    source = PLANTED
    if shuffled:
        lines = PLANTED.read_text("utf-8").splitlines()
        order = [*range(7, len(lines)), *range(7)]
        more = json.dumps({"prompt": "A new one?", "chosen": "Yes, quite new.", "rejected": "No, it is old."})
        source = tmp_path / "moved.jsonl"
        source.write_text("\n".join([more, *(lines[i] for i in order)]) + "\n", "utf-8")
    out = tmp_path / "again"
    done = cli("clean", source, out, "--verdicts", run, "--set", "reviewed.wrong_label=swap")
    assert done.code == 0, done.all
    kept = {texts(r): r for r in loaded(out)}
    gone, turned, *wanted = sides_of(run, rejected, wrong, *back)
    assert gone not in kept and {texts(r): r["pd_code"] for r in dropped(out)}[gone] == "rejected_by_review"
    assert turned not in kept and (turned[0], turned[2], turned[1]) in kept
    assert set(wanted) <= set(kept) or shuffled  # of near duplicates another one comes first now
    assert wanted[1] in kept and sum(w in kept for w in wanted) == 2
    manifest = json.loads((out / "manifest.json").read_bytes())
    assert manifest["verdicts"] == [{
        "file": "review.json", "sha256": bytes_of(run, "audit/review.json")["audit/review.json"],
        "sheet": Sheet(run).spot["id"], "reviewers": ["anna"], "judged": 4, "apply": {"drop": 1, "keep": 2, "wrong_label": 1},
    }]  # fmt: skip
    assert "reviewed" in done.out and "rejected_by_review 1" in done.out
    assert (
        "note: 4 of 4 verdicts of people are applied: 2 pairs by their reason, 2 spared from later stages" in done.out
    )


def test_without_verdicts_the_bytes_are_what_they_were(cli, run, tmp_path):
    judged(cli, run, tmp_path)
    cli("clean", PLANTED, tmp_path / "plain")
    parts = ("data", "audit/dropped", "audit/decisions.parquet", "audit/signals.parquet", "audit/report.json")
    assert bytes_of(run, *parts) == bytes_of(tmp_path / "plain", *parts)
    assert "verdicts" not in json.loads((tmp_path / "plain/manifest.json").read_bytes())


def test_verdicts_of_the_folder_itself_and_a_second_thought_without_measuring(cli, run, tmp_path):
    _, wrong, _ = judged(cli, run, tmp_path)
    out = Path(shutil.copytree(run, tmp_path / "own"))
    assert cli("clean", PLANTED, out, "--overwrite", "--verdicts", out).code == 0
    fresh = tmp_path / "fresh"
    assert cli("clean", PLANTED, fresh, "--verdicts", out / "audit/review.json", "--keep-scratch").code == 0
    assert bytes_of(out, "data", "audit/dropped") == bytes_of(fresh, "data", "audit/dropped")
    before = {p: p.stat().st_mtime_ns for p in (fresh / ".work").rglob("*.arrow")}
    again = (
        "clean",
        PLANTED,
        fresh,
        "--resume",
        "--keep-scratch",
        "--verdicts",
        run,
        "--set",
        "reviewed.wrong_label=swap",
    )
    assert before and cli(*again).code == 0
    assert {p: p.stat().st_mtime_ns for p in (fresh / ".work").rglob("*.arrow")} == before
    rows = {texts(r) for r in loaded(fresh)}
    (turned,) = sides_of(run, wrong)
    assert (turned[0], turned[2], turned[1]) in rows


@pytest.mark.slow
def test_audit_python_and_jobs_take_verdicts_too(cli, run, tmp_path):
    judged(cli, run, tmp_path)
    assert "rejected_by_review 1" in cli("audit", PLANTED, "--verdicts", run).out
    result = prefdata.audit(PLANTED, verdicts=run)
    assert result.by_stage["reviewed"]["drop"] == 2
    job = tmp_path / "job.yaml"
    job.write_text(
        f"version: 1\ninput: {PLANTED}\noutput: {tmp_path / 'job'}\npipeline: certain\nclean: {{verdicts: out}}\n",
        "utf-8",
    )
    assert cli("run", job).code == 0
    assert json.loads((tmp_path / "job/clean/manifest.json").read_bytes())["stages"]["reviewed"]["drop"] == 2
    assert "unchanged" in cli("run", job).out
    sheet = Sheet(run)
    cli("review", run, "--import", sheet.write(tmp_path / "li.jsonl", [(sheet.kept[5], "reject")], "li"))
    assert "files it names changed" in cli("run", job).out
    assert json.loads((tmp_path / "job/clean/manifest.json").read_bytes())["stages"]["reviewed"]["drop"] == 3


@pytest.mark.parametrize(("options", "what"), [
    (["--verdicts", "nowhere"], "nowhere: does not exist"), (["--verdicts", PLANTED], "is no review"),
    (["--verdicts", "x", "--skip", "reviewed"], "one undoes the other"), (["--verdicts", "."], "audit/review.json: does not exist"),
])  # fmt: skip
def test_verdicts_that_cannot_be_used(cli, tmp_path, options, what):
    done = cli("clean", PLANTED, tmp_path / "out", *options)
    assert done.code == 2 and what in done.err and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_swapped_pair_is_judged_as_it_leaves_and_can_be_turned_back(cli, run, tmp_path):
    _, wrong, _ = judged(cli, run, tmp_path)
    two = tmp_path / "two"
    swap = ("--set", "reviewed.wrong_label=swap")
    assert cli("clean", PLANTED, two, "--verdicts", run, *swap).code == 0
    sheet = Sheet(two)
    row = next(r for r in sheet.kept if r["row"] == wrong["row"])
    assert (row["state"], row["issue"]) == ("swapped", "wrong_label_by_review")
    prompt, chosen, rejected = sides_of(run, wrong)[0]  # as read: it leaves the other way round
    with (two / "spotcheck.csv").open(encoding="utf-8-sig", newline="") as file:
        line = next(r for r in csv.DictReader(file) if r["pd_id"] == row["pd_id"])
    with (tmp_path / "li.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(line))
        table.writeheader()
        table.writerow({**line, "verdict": "left" if line["left"] == rejected else "right"})
    cli("review", two, "--import", tmp_path / "li.csv")
    assert decided(two) == {row["row"]: ("accept", None)}
    back = "right" if row["left"] == "chosen" else "left"  # on the page: sides as the pair leaves
    cli("review", two, "--import", sheet.write(tmp_path / "li.jsonl", [(row, back)], "li", mode="blind"))
    assert decided(two) == {row["row"]: ("wrong_label", "keep")}
    done = cli("clean", PLANTED, tmp_path / "three", "--verdicts", run, "--verdicts", two, *swap)
    assert done.code == 0 and (prompt, chosen, rejected) in {texts(r) for r in loaded(tmp_path / "three")}
