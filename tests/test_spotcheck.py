"""The spot-check: a fair sample in a fair order, enough of each reason, and a blind page that knows no label."""

import csv
import json
import re

import numpy as np
import pytest

import prefdata
from prefdata.decisions import Decisions, apply
from prefdata.report import review_page, sheet
from prefdata.report.model import Example, Report
from prefdata.stage import shipped

WORDS = "tea water boil kettle cup leaf green black milk sugar lemon honey spoon table chair window garden morning"
WORDS = WORDS.split()


def pairs(n, seed=0):
    """Invented pairs: each 50th row is empty, each 25th a copy of the row before, two in three are of one domain."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        chosen, rejected = (" ".join(WORDS[w] for w in rng.integers(0, len(WORDS), 14)) for _ in range(2))
        row = {"prompt": f"Question {i}: {WORDS[i % 18]} or {WORDS[i % 17]}?", "chosen": chosen, "rejected": rejected}
        if i % 25 == 3:
            row = {k: rows[-1][k] for k in row}
        if i % 50 == 9:
            row["rejected"] = ""
        if i % 40 == 11:
            row["rejected"] = row["chosen"][:-1]
        rows.append(row | {"domain": "tea" if i % 3 else "law"})
    return rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A cleaned set of 1,500 rows, half of the kept ones in the CSV."""
    folder = tmp_path_factory.mktemp("sheet")
    (folder / "cap.yaml").write_text(
        "version: 1\nstages:\n- exact_duplicate\n- similar_responses: {max_similarity: 0.9}\n"
        "- domain_balance: {by: column, column: domain, method: cap, max_share: 0.6, max_dropped: 0.5}\n"
    )
    prefdata.clean(pairs(1500), folder / "out", str(folder / "cap.yaml"), sample=0.5, seed=3)
    return folder / "out"


@pytest.fixture(scope="module")
def report(run):
    return Report.model_validate_json((run / "audit/report.json").read_bytes())


def of(*sizes):
    """Strata of these sizes, all kept, and their rows."""
    names = [(None, "kept"), *((f"issue{i}", "flagged") for i in range(1, len(sizes)))]
    return sheet.Strata(np.repeat(np.arange(len(sizes)), sizes).astype(np.int16), names), np.arange(sum(sizes))


def test_the_sample_is_in_proportion_whatever_the_seed():
    strata, kept = of(9000, 900, 100)
    for seed in range(20):
        got = strata.sizes(sheet.base(kept, strata, 0.05, seed))
        assert got.sum() == 500 and abs(got - [450, 45, 5]).max() <= 1
        page = strata.sizes(np.array(sheet.pick(strata, kept, 0.05, seed).rows[:400]))
        assert abs(page - [360, 36, 4]).max() <= 2


@pytest.mark.parametrize(("kept", "share", "wanted"), [(30, 0.05, 30), (600, 0.05, 50), (4000, 0.05, 200), (20_000, 0.05, 400), (0, 0.05, 0), (90, 1.0, 90)])  # fmt: skip
def test_at_least_50_and_at_most_400_are_asked(kept, share, wanted):
    strata, rows = of(kept)
    picked = sheet.pick(strata, rows, share, 1)
    assert picked.base == wanted == len(set(picked.rows))


def test_the_same_seed_gives_the_same_sheet_and_another_seed_another():
    strata, kept = of(3000, 300)
    assert sheet.pick(strata, kept, 0.05, 1) == sheet.pick(strata, kept, 0.05, 1)
    assert sheet.pick(strata, kept, 0.05, 1).rows != sheet.pick(strata, kept, 0.05, 2).rows


def test_whoever_stops_early_has_judged_a_random_sample():
    strata, kept = of(700, 300)
    early = np.concatenate([sheet.pick(strata, kept, 0.1, seed).rows[:20] for seed in range(100)])
    assert abs((early >= 700).mean() - 0.3) < 0.04 and abs(early.mean() - 499.5) < 25


def test_each_reason_is_asked_up_to_20_times_and_the_reasons_take_turns():
    strata, kept = of(5000, 200, 4, 200)
    picked = sheet.pick(strata, kept, 0.05, 1)
    assert strata.sizes(np.array(picked.rows)).tolist()[1:] == [20, 4, 20]
    assert len(set(picked.rows)) == len(picked.rows)
    first = strata.of[picked.rows[picked.base : picked.base + 3]]
    assert sorted(first) == [1, 2, 3]


def test_a_swapped_pair_is_counted_with_the_stage_that_swapped_it():
    rows = np.arange(6)
    first, doubt, swap = Decisions(rows), Decisions(rows), Decisions(rows)
    doubt.mark([1, 2], "flag", "doubtful")
    swap.mark([2, 3], "swap", "flipped")
    made = [first, doubt, swap]
    stages = [shipped()[n]() for n in ("malformed", "similar_responses", "label_noise")]
    got = sheet.strata([d.reasons for d in made], stages, made, apply(6, made))
    names = [got.names[i] for i in got.of]
    assert names[1:4] == [("doubtful", "flagged"), ("flipped", "swapped"), ("flipped", "swapped")]
    assert names[0] == (None, "kept")


def shown(row, state="kept"):
    return Example.model_construct(row=row, pd_id=f"id{row}", file="f", line=None, prompt="p", chosen="good", rejected="bad", lengths={"chosen": 9}, columns={}, raw=None,
                   detail=None, state=state, marks=[], findings=[], listed=False)  # fmt: skip


def test_a_sheet_ends_where_the_page_has_no_more_room():
    strata, kept = of(100)
    picked = sheet.pick(strata, kept, 0.1, 1)
    keys = dict.fromkeys(range(100), 7)
    lacking = picked.rows[30]
    got = sheet.sheet(strata, picked, [shown(r) for r in range(100) if r != lacking], keys, kept, 0.1, 1)
    assert [r.row for r in got.rows] == picked.rows[:30] and got.base == 30 and got.rows[0].key == f"{7:016x}"


def test_a_swapped_pair_stands_as_it_leaves_with_the_texts_on_the_same_sides():
    strata, kept = of(40)
    picked = sheet.pick(strata, kept, 1.0, 1)
    asked = [sheet.sheet(strata, picked, [shown(r, state) for r in range(40)], dict.fromkeys(range(40), 1), kept, 1.0, 1).rows
             for state in ("kept", "swapped")]  # fmt: skip
    for plain, turned in zip(*asked, strict=True):
        assert plain.left != turned.left
        left = [getattr(sheet.as_it_leaves(shown(r.row, s)), r.left) for r, s in ((plain, "kept"), (turned, "swapped"))]
        assert left[0] == left[1]
    assert sheet.as_it_leaves(shown(1, "swapped")).lengths == {"rejected": 9}
    assert {r.left for r in asked[0]} == {"chosen", "rejected"}


def test_what_is_no_pair_and_what_was_dropped_for_balance_is_not_asked(report):
    reasons = {s.issue for s in report.spotcheck.strata}
    assert {"exact_duplicate", "too_similar"} <= reasons
    assert {i.key for i in report.issues} - reasons == {"empty_completion", "balanced_out"}
    dropped = {r.row for r in report.rows if any(m.issue in ("empty_completion", "balanced_out") for m in r.marks)}
    assert dropped and not dropped & {r.row for r in report.spotcheck.rows}


def test_the_sheet_says_how_many_there_are_of_each_group(report):
    s = report.spotcheck
    kept = [g for g in s.strata if g.state != "dropped"]
    assert sum(g.population for g in kept) == s.kept == report.totals.kept
    assert sum(g.base for g in s.strata) == s.base == 400 and all(g.base == 0 for g in s.strata if g.state == "dropped")
    assert [g.extra for g in s.strata if g.issue == "exact_duplicate"] == [20]
    by_key = {i.key: i for i in report.issues}
    assert all(g.population == by_key[g.issue].actions["drop"] for g in s.strata if g.state == "dropped")
    assert {r.row for r in s.rows} <= {r.row for r in report.rows}


def test_the_sample_in_the_page_is_part_of_the_one_in_the_csv(run, report):
    with (run / "spotcheck.csv").open(encoding="utf-8-sig", newline="") as file:
        lines = {line["pd_id"]: line for line in csv.DictReader(file)}
    assert len(lines) == round(report.totals.kept / 2) > 400
    base = [r for r in report.spotcheck.rows if r.base]
    assert {r.pd_id for r in base} <= set(lines)
    texts = {r.row: r for r in report.rows}
    assert all(lines[r.pd_id]["left"] == getattr(texts[r.row], r.left) for r in base)


def in_page(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_the_blind_page_holds_no_label_and_no_word_on_a_pair(report):
    page = review_page.render(report)
    data = in_page(page)
    assert (
        set(data) == {"sealed", "rows", "issues", "sheet"}
        and set(data["sheet"]) == {"id", "rows"}
        and not data["issues"]
    )
    assert all(set(r) == {"row", "pd_id", "key"} for r in data["sheet"]["rows"])
    assert all(set(r) <= {"row", "prompt", "left", "right", "lengths"} for r in data["rows"])
    assert all(set(r["lengths"]) <= {"prompt", "left", "right"} for r in data["rows"])
    asked = [r for r in report.spotcheck.rows if report.spotcheck.strata[r.stratum].state != "dropped"]
    assert [r["row"] for r in data["rows"]] == [r.row for r in asked]
    texts = {r.row: r for r in report.rows}
    assert all(r["left"] == getattr(texts[r["row"]], a.left) for r, a in zip(data["rows"], asked, strict=True))
    said = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.S)
    for word in ("hosen", "ejected", "likely_flipped", "kept", "dropped", "seed", *(i.reason for i in report.issues)):
        assert word not in said, word


def swapped(report):
    """The same report, as if the first pair of the sheet had been swapped by a stage."""
    raw = report.model_dump(mode="json")
    own = raw["spotcheck"]["rows"][0]
    own["left"] = "rejected" if own["left"] == "chosen" else "chosen"
    own["stratum"] = len(raw["spotcheck"]["strata"])
    raw["spotcheck"]["strata"].append(
        {"issue": "too_similar", "state": "swapped", "population": 1, "base": 1, "extra": 0}
    )
    next(r for r in raw["rows"] if r["row"] == own["row"])["state"] = "swapped"
    return Report.model_validate(raw)


def test_the_blind_page_shows_a_swapped_pair_on_the_same_sides(report):
    plain, turned = (in_page(review_page.render(r))["rows"][0] for r in (report, swapped(report)))
    assert plain["left"] == turned["left"] and plain["right"] == turned["right"]


def test_the_open_page_holds_the_sheet_alone(report):
    data = in_page(review_page.render(report, blind=False))
    own = {r.row for r in report.spotcheck.rows}
    assert own <= {r["row"] for r in data["rows"]} and data["sheet"]["id"] == report.spotcheck.id
    assert len(data["rows"]) < len(report.rows)


def test_a_set_of_which_nothing_is_left_has_an_empty_sheet():
    made = prefdata.audit([{"prompt": "a", "chosen": "", "rejected": "b"}] * 3).report
    assert made.spotcheck.rows == [] and made.spotcheck.base == 0
    assert "There is no pair to judge" in review_page.render(made)


def test_long_texts_still_leave_50_pairs_to_judge():
    rng = np.random.default_rng(1)
    rows = [
        {k: "".join(map(chr, rng.integers(0x4E00, 0x9FA5, 4000))) for k in ("prompt", "chosen", "rejected")}
        for _ in range(90)
    ]
    found = prefdata.audit(rows, only=["exact_duplicate"]).report
    assert found.spotcheck.base == 50 and {r.row for r in found.spotcheck.rows} <= {r.row for r in found.rows}
