"""``prefdata diff`` and ``report --against``: made sets whose differences are known by hand."""

import json
import re
import resource
import shutil
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from written import write_lines

import prefdata
from prefdata import intervals
from prefdata.diff_match import Keys, match

WORDS = ["amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "kiosk", "larch", "maple", "nylon", "ocean", "pearl", "quilt", "ridge", "spruce", "topaz"]  # fmt: skip
STAGES = ("malformed", "contradiction", "exact_duplicate", "near_duplicate", "similar_responses")


def pair(i, **changed):
    """A pair of its own words."""
    a, b, c = (WORDS[(i * k + 3 * k) % 20] for k in (1, 7, 9))
    row = {
        "prompt": f"What is the {a} {i} for, and where is it kept?", "chosen": f"Number {i} keeps the {b} dry in winter, under the roof.",
        "rejected": f"Nobody at all can say, but {c} has {i * 7} legs.",
    }  # fmt: skip
    return {**row, **changed}


def turned(row):
    return {**row, "chosen": row["rejected"], "rejected": row["chosen"]}


BROKEN = {"prompt": "What is this?", "chosen": "", "rejected": "Nothing."}
SAME = [pair(i) for i in range(10)]
A = [*SAME, pair(20), pair(21), pair(30), pair(31), pair(32), pair(33), pair(34), SAME[0], BROKEN]
B = [
    pair(40), *SAME[:5], *SAME[5:], turned(pair(30)), pair(31, chosen="It is for the garden, and stands behind the shed."),
    pair(32, prompt="Why would anyone want one of these?"), pair(33, chosen="Left in the rain.", rejected="Somewhere else, I believe."),
    pair(34, rejected="No."), BROKEN, BROKEN,
]  # fmt: skip


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Two files and the cleaned run of each. Read only."""
    home = tmp_path_factory.mktemp("sets")
    for name, rows in (("a", A), ("b", B)):
        prefdata.clean(str(write_lines(home / f"{name}.jsonl", rows)), home / name, only=STAGES, workers=1)
    return home


def told(ended):
    """The document of ``--json``."""
    assert ended.code in (0, 1), ended.all
    return json.loads(ended.out)


def kinds(document):
    return {k["kind"]: (k["all"], k["kept"]) for k in document["kinds"]}


KNOWN = {
    "only_in_a": (3, 2), "only_in_b": (1, 1), "swapped": (1, 1), "changed": (4, 4), "kept_to_dropped": (0, None), "dropped_to_kept": (0, None),
}  # fmt: skip


def test_each_kind_of_difference_is_counted_once(cli, sets):
    found = told(cli("diff", sets / "a", sets / "b", "--json"))
    assert kinds(found) == KNOWN
    assert (found["same"], found["same_kept"]) == (10, 10)
    assert {c["name"]: (c["a"], c["b"], c["change"]) for c in found["counts"]} == {
        "pairs": (19, 18, -1), "kept": (17, 16, -1), "dropped": (2, 2, 0), "broken": (1, 2, 1),
    }  # fmt: skip
    assert found["sentence"].startswith(
        "10 of 16 sound pairs of b are in a as they are. Only in a: 3; only in b: 1; label swapped: 1;"
    )


def test_the_accounts_of_both_sides_add_up(cli, sets):
    found = told(cli("diff", sets / "a", sets / "b", "--json"))
    both = found["same_kept"] + sum(kinds(found)[k][1] for k in ("swapped", "changed"))
    assert found["a"]["kept"] == both + kinds(found)["only_in_a"][1] + kinds(found)["kept_to_dropped"][0]
    assert found["b"]["kept"] == both + kinds(found)["only_in_b"][1] + kinds(found)["dropped_to_kept"][0]


def test_the_pairs_are_shown_with_what_changed_in_them(cli, sets):
    rows = told(cli("diff", sets / "a", sets / "b", "--json"))["rows"]
    changed = {r["a"]["row"]: r["differs"] for r in rows if r["kind"] == "changed"}
    assert changed == {13: ["chosen"], 14: ["prompt"], 15: ["chosen", "rejected"], 16: ["rejected"]}
    swapped = next(r for r in rows if r["kind"] == "swapped")
    assert swapped["a"]["chosen"] == swapped["b"]["rejected"] == pair(30)["chosen"]
    assert [(r["a"]["row"], r["a"]["state"], r["a"]["reason"]) for r in rows if r["kind"] == "only_in_a"] == [
        (10, "kept", ""), (11, "kept", ""), (17, "dropped", "exact_duplicate"),
    ]  # fmt: skip
    assert next(r for r in rows if r["kind"] == "only_in_b")["b"]["prompt"] == pair(40)["prompt"]


def test_files_give_what_runs_give_and_both_are_audited_alike(cli, sets):
    found = told(cli("diff", sets / "a", sets / "b.jsonl", "--json", "--workers", 1))
    assert kinds(found) == KNOWN and found["b"]["audited_here"] and not found["a"]["audited_here"]
    assert "b.jsonl: audited for this comparison" in found["notes"][0]
    assert not [n for n in found["notes"] if "Other pipelines" in n]
    assert {r["stage"] for r in found["rates"]} <= {"", *STAGES}


def test_a_run_against_itself_is_all_zeros(cli, sets):
    ended = cli("diff", sets / "a", sets / "a", "--json")
    found = told(ended)
    assert all(k == (0, None if "_to_" in kind else 0) for kind, k in kinds(found).items())
    assert all(c["change"] == 0 for c in found["counts"]) and found["rows"] == []
    assert all(r["change"] in (0, None) and not r["beyond"] for r in found["rates"])
    assert all(
        d["ks"] == 0 and d["a"] == d["b"] and all(q["change"] == 0 for q in d["quantiles"])
        for d in found["distributions"]
    )
    assert found["sentence"].startswith("No pair differs: all 18 are in both")
    assert found["a"]["name"] == "a (A)" and found["b"]["name"] == "a (B)"


def test_pairs_that_another_pipeline_keeps_have_moved_with_their_reason(cli, sets, tmp_path):
    prefdata.clean(str(sets / "a.jsonl"), tmp_path / "loose", only=STAGES[:2], workers=1)
    found = told(cli("diff", sets / "a", tmp_path / "loose", "--json"))
    assert kinds(found)["dropped_to_kept"] == (1, None) and found["same"] == 18
    moved = next(k for k in found["kinds"] if k["kind"] == "dropped_to_kept")
    assert moved["reasons"] == {"exact_duplicate": 1}
    assert any(n.startswith("Other pipelines") and "exact_duplicate ran in the first only" in n for n in found["notes"])
    assert "Both read the same files, byte for byte: no change is chance." in found["notes"]
    assert all(r["low"] is None and not r["beyond"] for r in found["rates"])  # the same pairs are no two samples
    gone = next(r for r in found["rates"] if r["name"] == "exact_duplicate")
    assert gone["b"] is None and gone["change"] is None  # not 0: nobody looked
    back = told(cli("diff", tmp_path / "loose", sets / "a", "--json"))
    assert kinds(back)["kept_to_dropped"] == (1, None)


OWN_STAGE = '''
from prefdata.stage import Decisions, Pairs, Signals, Stage
import pyarrow as pa
import numpy as np

class {name}(Stage):
    """Marks rows by number.

    Why it matters: a test. How it decides: by number. What it misses: all else.
    """

    reasons = {{"marked": "By number."}}

    def measure(self, pairs: Pairs) -> pa.Table:
        return pa.table({{"one": np.ones(len(pairs), np.int8)}})

    def decide(self, signals: Signals) -> Decisions:
        made = Decisions(signals.index)
        made.mark(np.isin(signals.index, {rows}), "{action}", "marked")
        return made
'''


def test_a_label_that_a_stage_turned_round_is_a_swapped_label(cli, tmp_path):
    """Row 3 leaves turned round; row 4 was turned round and then dropped: dropped rows stay as they were read."""
    for name, rows, action in (("turn", [3, 4], "swap"), ("take", [4], "drop")):
        (tmp_path / f"{name}.py").write_text(OWN_STAGE.format(name=name.capitalize(), rows=rows, action=action))
    (tmp_path / "turn.yaml").write_text("stages:\n  - malformed\n  - ./turn.py\n  - ./take.py\n")
    (tmp_path / "plain.yaml").write_text("stages:\n  - malformed\n")
    source = write_lines(tmp_path / "in.jsonl", SAME)
    for name in ("plain", "turn"):
        prefdata.clean(str(source), tmp_path / name, pipeline=str(tmp_path / f"{name}.yaml"), workers=1)
    prefdata.audit(str(source), tmp_path / "audit", pipeline=str(tmp_path / "turn.yaml"), workers=1)
    for other in ("turn", "audit"):
        found = told(cli("diff", tmp_path / "plain", tmp_path / other, "--json"))
        assert kinds(found)["swapped"] == (1, 1) and kinds(found)["kept_to_dropped"] == (1, None) and found["same"] == 9
        turned = {r["b"]["row"]: r for r in found["rows"] if r["kind"] == "swapped"}
        assert set(turned) == {3}
        for i, row in turned.items():
            assert row["b"]["chosen"] == SAME[i]["rejected"] == row["a"]["rejected"]
            assert row["b"]["rejected"] == SAME[i]["chosen"] == row["a"]["chosen"]
    dropped = pq.read_table(next((tmp_path / "turn/audit/dropped").glob("*.parquet"))).to_pylist()
    assert [(r["chosen"], r["rejected"]) for r in dropped] == [(SAME[4]["chosen"], SAME[4]["rejected"])]


def test_a_side_without_a_sound_pair(cli, sets, tmp_path):
    prefdata.audit(str(write_lines(tmp_path / "in.jsonl", [BROKEN, BROKEN])), tmp_path / "none", only=STAGES, workers=1)
    for one, other, kind in (
        (sets / "a", tmp_path / "none", "only_in_a"),
        (tmp_path / "none", sets / "a", "only_in_b"),
    ):
        page = tmp_path / "page.html"
        found = told(cli("diff", one, other, "--json", "--html", page, "--rows", 0))
        assert kinds(found)[kind] == (18, 17) and found["same"] == 0 and found["distributions"] == [] == found["rows"]
        assert page.is_file() and cli("diff", one, other).code == 0


def test_a_folder_of_another_version_or_changed_by_hand_is_refused(cli, sets, tmp_path):
    shutil.copytree(sets / "a", tmp_path / "old")
    signals = pq.read_table(tmp_path / "old/audit/signals.parquet")
    pq.write_table(signals.drop_columns(["pair.prompt_key"]), tmp_path / "old/audit/signals.parquet")
    ended = cli("diff", tmp_path / "old", sets / "b")
    assert ended.code == 2 and "pair.prompt_key" in ended.err and "--overwrite" in ended.err
    pq.write_table(signals.slice(0, 5), tmp_path / "old/audit/signals.parquet")
    ended = cli("diff", tmp_path / "old", sets / "b", "--html", tmp_path / "page.html")
    assert ended.code == 2 and "was not left so by prefdata" in ended.err and not (tmp_path / "page.html").exists()


def keys(*rows):
    """Rows of (prompt, chosen, rejected, kept) as keys; None: broken."""
    held = np.array([(0, 0, 0) if r is None else r[:3] for r in rows], np.uint64).reshape(-1, 3)
    sound = np.array([r is not None for r in rows], bool)
    return Keys(*held.T, sound, np.array([r is not None and r[3] for r in rows], bool))


def test_of_several_alike_each_is_matched_once_and_kept_ones_first():
    a = keys((1, 2, 3, False), (1, 2, 3, True), (1, 2, 3, False), None)
    b = keys((1, 2, 3, True), None, (1, 2, 3, False), (1, 3, 2, True), (1, 3, 2, True))
    found = match(a, b)
    assert list(zip(*(p.tolist() for p in found.same), strict=True)) == [(1, 0), (0, 2)]
    assert list(zip(*(p.tolist() for p in found.swapped), strict=True)) == [(2, 3)]
    assert found.only_a.tolist() == [] and found.only_b.tolist() == [4]


def test_other_answers_to_a_common_prompt_are_no_change_of_text():
    a, b = keys((1, 2, 3, True), (1, 4, 5, True)), keys((1, 6, 7, True))
    found = match(a, b)
    assert len(found.changed[0]) == 0 and found.only_a.tolist() == [0, 1] and found.only_b.tolist() == [0]
    alone = match(keys((1, 2, 3, True)), b)
    assert alone.changed[0].tolist() == [0] and len(alone.only_b) == 0


def test_every_row_is_counted_once_whatever_the_sets():
    random = np.random.default_rng(0)
    for _ in range(50):
        a, b = (
            keys(*[None if r[3] == 0 else (*r[:3], r[3] > 2) for r in random.integers(0, 5, (30, 4)).tolist()])
            for _ in "ab"
        )
        found = match(a, b)
        for i, (side, only) in enumerate(((a, found.only_a), (b, found.only_b))):
            rows = np.concatenate([found.same[i], found.swapped[i], found.changed[i], only])
            assert sorted(rows.tolist()) == np.flatnonzero(side.sound).tolist()
        for x, y in zip(*found.swapped, strict=True):
            assert (a.prompt[x], a.chosen[x], a.rejected[x]) == (b.prompt[y], b.rejected[y], b.chosen[y])


def test_chance_and_more_than_chance(cli, tmp_path):
    """Duplicates in 2 of 100 and in 5 of 100 may be chance; in 40 of 100 they are not."""
    for name, n in (("two", 2), ("five", 5), ("many", 40)):
        rows = [pair(i) for i in range(100 - n)] + [pair(i) for i in range(n)]
        prefdata.audit(
            str(write_lines(tmp_path / f"{name}.jsonl", rows)),
            tmp_path / name,
            only=("malformed", "exact_duplicate"),
            workers=1,
        )
    near, far = (
        next(
            r
            for r in told(cli("diff", tmp_path / "two", tmp_path / x, "--json"))["rates"]
            if r["name"] == "exact_duplicate"
        )
        for x in ("five", "many")
    )
    assert near["change"] == pytest.approx(0.03) and not near["beyond"] and near["low"] < 0 < near["high"]
    assert far["change"] == pytest.approx(0.38) and far["beyond"] and far["low"] > 0.2


def test_the_interval_of_a_change_is_newcombes():
    """The worked examples of Newcombe (1998), table II, method 10."""
    assert intervals.difference(56, 70, 48, 80) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert intervals.difference(9, 10, 3, 10) == pytest.approx((0.1705, 0.8090), abs=5e-5)


def kept_words(out, side):
    """Words of one text of the kept pairs of a run, in which no pair is turned round."""
    decided = pq.read_table(out / "audit/decisions.parquet").to_pylist()
    gone = {d["row"] for d in decided if d["action"] == "drop"}
    return [
        s[f"pair.{side}_words"]
        for s in pq.read_table(out / "audit/signals.parquet").to_pylist()
        if s["row"] not in gone
    ]


def test_quantiles_and_distance_are_numpys_and_scipys(cli, sets):
    stats = pytest.importorskip("scipy.stats")
    found = told(cli("diff", sets / "a", sets / "b", "--json"))
    for side in ("prompt", "chosen", "rejected"):
        held = next(d for d in found["distributions"] if d["key"] == f"words_{side}")
        a, b = (kept_words(sets / name, side) for name in "ab")
        assert held["ks"] == pytest.approx(stats.ks_2samp(a, b).statistic, abs=1e-6)
        for key, values in (("a", a), ("b", b)):
            expected = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist()
            assert [q[key] for q in held["quantiles"]] == pytest.approx(expected)
        assert (sum(held["a"]), sum(held["b"]), held["of"]) == (17, 16, "kept")
    assert next(d for d in found["distributions"] if d["key"] == "words_chosen")["ks"] > 0


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("only_in_b>0", 1), ("only_in_b>1", 0), ("swapped>=1", 1), ("changed>30%", 0), ("changed>20%", 1), ("exact_duplicate<-5%", 1),
        ("exact_duplicate>+0.5%", 0), ("exact_duplicate>=1", 0), ("kept<-1", 0), ("kept<+0", 1), ("kept<=16", 1), ("longer_chosen>+90%", 0), ("cycle>0", 0),
    ],
)  # fmt: skip
def test_a_condition_that_holds_fails(cli, sets, condition, code):
    ended = cli("diff", sets / "a", sets / "b", "--fail-on", condition)
    assert ended.code == code, ended.all
    assert f"{'✗' if code else '✓'} fail on  {condition}" in ended.out


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("only_in_c>0", "Did you mean only_in_a"), ("near_duplicat>+1%", "Did you mean near_duplicate?"), ("swapped", "name, comparison, number"),
        ("swapped>+1", "a change already"), ("longer_chosen>5", "is a share"),
    ],
)  # fmt: skip
def test_a_condition_that_means_nothing_is_refused(cli, sets, condition, hint):
    ended = cli("diff", sets / "a", sets / "b", "--fail-on", condition)
    assert ended.code == 2 and hint in ended.err and ended.out == ""


def test_what_is_no_run_and_no_data_is_refused(cli, sets, tmp_path):
    (tmp_path / "half/.work").mkdir(parents=True)
    for place, words in ((tmp_path / "half", "holds no finished run"), (tmp_path / "nowhere.jsonl", "does not exist")):
        ended = cli("diff", sets / "a", place)
        assert ended.code == 2 and words in ended.err and "Traceback" not in ended.err


def test_an_audit_shows_the_texts_that_it_has_and_says_so(cli, sets, tmp_path):
    prefdata.audit(str(sets / "b.jsonl"), tmp_path / "audit", only=STAGES, workers=1)
    found = told(cli("diff", sets / "a", tmp_path / "audit", "--json"))
    assert kinds(found) == KNOWN and "is an audit" in found["b"]["no_texts"] and found["a"]["no_texts"] == ""
    assert any(r["b"] and r["b"]["known"] for r in found["rows"])


def test_the_terminal_says_what_the_document_says(cli, sets):
    out = cli("diff", sets / "a", sets / "b").out
    assert re.search(r"pairs kept +17 +16 +-1\b", out) and re.search(
        r"exact_duplicate +5\.26 % +0\.00 % +-5\.26  within chance", out
    )
    assert re.search(r"label swapped +1 +1\n", out) and re.search(r"only in a +3 +2\n", out)
    assert cli("diff", sets / "a", sets / "b", "-q").out == ""


def test_the_page_is_written_whole_and_for_a_gate_that_fails_too(cli, sets, tmp_path):
    page = tmp_path / "new/page.html"
    assert cli("diff", sets / "a", sets / "b", "--html", page, "--fail-on", "swapped>0").code == 1
    text = page.read_text("utf-8")
    assert text.endswith(("</html>", "</html>\n"))
    assert [p.name for p in page.parent.iterdir()] == ["page.html"]
    assert "Somewhere else, I believe." in text and "http-equiv" in text


def test_fewer_rows_when_asked(cli, sets):
    rows = told(cli("diff", sets / "a", sets / "b", "--json", "--rows", 1))["rows"]
    assert sorted(r["kind"] for r in rows) == ["changed", "only_in_a", "only_in_b", "swapped"]


def test_the_report_keeps_a_comparison_until_it_is_taken_away(cli, sets, tmp_path):
    out = tmp_path / "b"
    prefdata.clean(str(sets / "b.jsonl"), out, only=STAGES, workers=1)
    page = out / "report.html"
    assert 'id="compare"' not in page.read_text("utf-8")
    assert cli("report", out, "--against", sets / "a").code == 0
    held = json.loads((out / "audit/compare.json").read_bytes())
    assert (
        kinds(held) == KNOWN
        and 'id="compare"' in page.read_text("utf-8")
        and "Somewhere else" in page.read_text("utf-8")
    )
    page.unlink()
    assert cli("report", out).code == 0 and 'id="compare"' in page.read_text("utf-8")
    assert cli("report", out, "--no-rows").code == 0
    bare = (out / "report-no-rows.html").read_text("utf-8")
    assert 'id="compare"' in bare and "Somewhere else" not in bare and pair(40)["prompt"] not in bare
    assert cli("report", out, "--against", sets / "a", "--no-against").code == 2
    assert cli("report", out, "--no-against").code == 0
    assert 'id="compare"' not in page.read_text("utf-8") and not (out / "audit/compare.json").exists()


def test_every_number_of_the_section_stands_in_compare_json(cli, sets, tmp_path):
    out = tmp_path / "b"
    prefdata.clean(str(sets / "b.jsonl"), out, only=STAGES, workers=1)
    cli("report", out, "--against", sets / "a")
    held = json.loads((out / "audit/compare.json").read_bytes())
    held["sentence"], held["kinds"][0]["all"] = "Made by hand.", 4711
    (out / "audit/compare.json").write_text(json.dumps(held))
    cli("report", out)
    section = (out / "report.html").read_text("utf-8").split('<section id="compare"')[1]
    assert "Made by hand." in section and "4,711" in section


def test_a_new_run_forgets_the_comparison_of_the_old_one(cli, sets, tmp_path):
    out = tmp_path / "b"
    prefdata.audit(str(sets / "b.jsonl"), out, only=STAGES, workers=1)
    cli("report", out, "--against", sets / "a")
    prefdata.audit(str(sets / "b.jsonl"), out, only=STAGES, workers=1, overwrite=True)
    assert not (out / "audit/compare.json").exists()


def test_chat_and_text_of_the_same_words(cli, tmp_path):
    """Messages are read as texts with roles, so a chat set matches itself and is shown with its roles."""
    chat = [{"prompt": [{"role": "user", "content": r["prompt"]}], "chosen": [{"role": "assistant", "content": r["chosen"]}],
             "rejected": [{"role": "assistant", "content": r["rejected"]}]} for r in SAME]  # fmt: skip
    other = [*chat[1:], {**chat[0], "chosen": [{"role": "assistant", "content": "Quite another answer."}]}]
    for name, rows in (("one", chat), ("two", other)):
        prefdata.clean(str(write_lines(tmp_path / f"{name}.jsonl", rows)), tmp_path / name, only=STAGES, workers=1)
    found = told(cli("diff", tmp_path / "one", tmp_path / "two", "--json"))
    assert found["same"] == 9 and kinds(found)["changed"] == (1, 1)
    row = next(r for r in found["rows"] if r["kind"] == "changed")
    assert "assistant: Quite another answer." in row["b"]["chosen"] and "user: " in row["b"]["prompt"]


def test_published_sets(cli, shared):
    data = shared / "data/llmbar"
    if not data.is_dir():
        pytest.skip("the published sets are not there")
    found = told(
        cli(
            "diff", data / "Natural.json", data / "Adversarial-Neighbor.json", "--json", "-p", "certain", "--workers", 1
        )
    )
    assert found["a"]["pairs"] == 100 and found["b"]["pairs"] == 134
    assert found["same"] == 0 and kinds(found)["swapped"][0] == 0
    again = told(cli("diff", data / "Natural.json", data / "Natural.json", "--json", "-p", "certain", "--workers", 1))
    assert again["same"] == 100 and again["rows"] == []


@pytest.mark.slow
def test_a_million_rows_on_each_side_in_four_gigabytes(tmp_path):
    script = """
import numpy as np
from prefdata.diff_match import Keys, match
n = 1_000_000
r = np.random.default_rng(0)
p, c, j = (r.integers(0, 2**64, n, np.uint64) for _ in range(3))
one = np.ones(n, bool)
a = Keys(p, c, j, one, one)
c2, j2 = c.copy(), j.copy()
c2[:1000], j2[:1000] = j[:1000], c[:1000]
c2[2000:5000] += np.uint64(1)
b = Keys(p, c2, j2, one, one)
m = match(a, b)
print(len(m.same[0]), len(m.swapped[0]), len(m.changed[0]), len(m.only_a), len(m.only_b))
"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["996000", "1000", "3000", "0", "0"]
    assert max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) < 4_000_000
