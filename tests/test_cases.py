"""The hand-over cases: inputs made from public bug reports, with the outcome a user expects (``shared/cases``, read in place)."""

import json
import re
import shutil
from collections import Counter

import pytest
from written import bytes_of, cleaning_again_changes_nothing, dropped, kept, loaded, reasons, report_of

import prefdata
from prefdata.pipeline import load


@pytest.fixture
def case(shared):
    """``case("07")`` is that case's folder."""

    def find(number):
        return next((shared / "cases").glob(f"{number}-*"))

    return find


@pytest.fixture
def cleaned(case, tmp_path):
    """``cleaned("07", "rows.jsonl")``: clean that file of the case into a new folder; the result."""

    def clean(number, name="rows.jsonl", out="out", **options):
        return prefdata.clean(str(case(number) / name), tmp_path / out, **options)

    return clean


def source(path):
    """The rows of a case's JSONL file as Python reads them."""
    return {r["id"]: r for r in map(json.loads, path.read_text("utf-8-sig").splitlines())}


def unchanged(rows, given, *fields):
    """The kept rows have the values they came with."""
    for key, row in rows.items():
        for name in fields or ("prompt", "chosen", "rejected"):
            assert row[name] == given[key][name], (key, name)


def text_of(side):
    """A side's text, in whichever form the set is."""
    return side if isinstance(side, str) else "".join(m["content"] for m in side)


# ------------------------------------------------------------------------------------------------ 01-04: reading


def test_01_byte_order_mark_and_line_ends(cleaned, tmp_path):
    marked, plain = cleaned("01", "rows.jsonl", "a"), cleaned("01", "rows_plain.jsonl", "b")
    assert marked.counts["kept"] == plain.counts["kept"] == 4 and marked.counts["dropped"] == 0
    rows = kept(tmp_path / "a")
    assert list(rows) == ["b1", "b2", "b3", "b4"] and rows == kept(tmp_path / "b")
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    named = {
        (key, side)
        for key, row in rows.items()
        for side in ("prompt", "chosen", "rejected")
        for m in row[side]
        if "name" in m
    }
    assert named == {("b3", "rejected"), ("b4", "prompt")}
    assert rows["b3"]["rejected"] == [{"role": "assistant", "content": "Bonjour!", "name": "helper"}]
    assert not any("\r" in str(v) for row in rows.values() for v in row.values())
    cleaning_again_changes_nothing(tmp_path / "a")


def test_01_csv_with_byte_order_mark(cleaned, case, tmp_path):
    assert cleaned("01", "rows.csv").counts["kept"] == 2
    rows = kept(tmp_path / "out")
    assert list(rows) == ["b5", "b6"]
    assert all(name.isascii() for name in rows["b5"])
    assert not any(v.endswith("\r") for row in rows.values() for v in row.values())
    cleaning_again_changes_nothing(tmp_path / "out")


@pytest.mark.parametrize(
    "name", ["array.json", "pretty.json", "array_named_lines.jsonl", "lines_named_json.json", "wrapped.json"]
)
def test_02_the_content_decides_not_the_name(cleaned, tmp_path, name):
    cleaned("02", name)
    rows = kept(tmp_path / "out")
    assert list(rows) == ["w1", "w2", "w3"]
    assert (
        rows["w3"]["prompt"] == 'Translate "river" into Spanish.'
        and rows["w3"]["chosen"] == "río"
        and rows["w3"]["rejected"] == "montaña"
    )
    cleaning_again_changes_nothing(tmp_path / "out")


def test_02_one_object_is_one_row(cleaned, tmp_path):
    cleaned("02", "one_object.json")
    assert list(kept(tmp_path / "out")) == ["w1"]


def test_02_no_list_of_rows(cli, case, tmp_path):
    ended = cli("clean", case("02") / "not_rows.json", tmp_path / "out")
    assert ended.code == 2 and "not_rows.json" in ended.err and "no list of rows was found" in ended.err
    assert "Traceback" not in ended.err and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "line", "ids"), [("rows.jsonl", 3, ["L1", "L2", "L4", "L5"]), ("two_on_one_line.jsonl", 2, ["L1", "L5"])]
)
def test_03_a_broken_line_is_named(cli, case, tmp_path, name, line, ids):
    ended = cli("clean", case("03") / name, tmp_path / "out")
    assert ended.code == 0 and "parse_error 1" in ended.out
    assert list(kept(tmp_path / "out")) == ids
    (row,) = dropped(tmp_path / "out")
    assert (row["pd_file"], row["pd_line"], row["pd_code"], row["pd_stage"]) == (name, line, "parse_error", "malformed")
    issue = next(i for i in report_of(tmp_path / "out")["issues"] if i["reason"] == "parse_error")
    assert issue["actions"] == {"drop": 1}
    assert "parse_error" in (tmp_path / "out/report.html").read_text()
    cleaning_again_changes_nothing(tmp_path / "out")

    stopped = cli("clean", case("03") / name, tmp_path / "stopped", "--on-bad-row", "stop")
    assert stopped.code == 2 and f"{name}:{line}" in stopped.err and '{"id": "L' in stopped.err
    assert "Traceback" not in stopped.err and not (tmp_path / "stopped").exists()


def test_04_cells_that_are_no_text(cleaned, case, tmp_path):
    cleaned("04")
    rows = kept(tmp_path / "out")
    assert list(rows) == ["n1", "n9", "n10"]
    unchanged(rows, source(case("04") / "rows.jsonl"))
    assert reasons(tmp_path / "out") == {
        "n2": "missing_field", "n3": "missing_field", "n5": "bad_type", "n6": "bad_type", "n7": "bad_type", "n8": "bad_type",
    }  # fmt: skip
    for row in dropped(tmp_path / "out"):
        assert not {"None", "nan", "False", "['red', 'blue']", "30"} & {row["prompt"], row["chosen"], row["rejected"]}
    cleaning_again_changes_nothing(tmp_path / "out")


def test_04_bare_nan(cleaned, tmp_path):
    cleaned("04", "nan.jsonl")
    assert list(kept(tmp_path / "out")) == ["n11"]
    assert Counter(reasons(tmp_path / "out").values()) == {"missing_field": 1}


# ------------------------------------------------------------------------------------------------ 05-09: shapes and labels


def test_05_mixed_shapes_become_one(cleaned, tmp_path):
    cleaned("05")
    rows = kept(tmp_path / "out")
    assert list(rows) == [f"s{i}" for i in range(1, 9)]
    assert {type(row[side]) for row in rows.values() for side in ("prompt", "chosen", "rejected")} == {list}
    assert text_of(rows["s5"]["chosen"]) == "Glad." and text_of(rows["s5"]["rejected"]) == "Gloomy."
    systems = {key: [m["content"] for m in row["prompt"] if m["role"] == "system"] for key, row in rows.items()}
    assert systems == {**{f"s{i}": [] for i in range(1, 9)}, "s7": ["Answer with one word."]}
    assert rows["s8"]["chosen"] == [{"role": "assistant", "content": '{"role": "assistant", "content": "ok"}'}]
    assert rows["s8"]["rejected"] == [{"role": "assistant", "content": "[1, 2, 3]"}]
    assert [row["source"] for row in rows.values()] == [None] * 5 + ["sheet-2"] * 2 + [None]
    cleaning_again_changes_nothing(tmp_path / "out")


def test_06_empty_and_blank_answers(cleaned, case, tmp_path):
    result = cleaned("06")
    rows = kept(tmp_path / "out")
    assert set(rows) - {"e10"} == {"e1", "e8", "e9"}
    assert reasons(tmp_path / "out") == {
        **dict.fromkeys(("e2", "e3", "e4", "e5", "e7", "e11"), "empty_completion"),
        "e6": "empty_prompt",
    }
    given = source(case("06") / "rows.jsonl")
    assert all(
        text_of(row[side]) == given[key][side] for key, row in rows.items() for side in ("prompt", "chosen", "rejected")
    )
    flagged = [d for d in result.decisions.to_pylist() if d["reason"] == "special_token"]
    assert [(d["row"], d["action"]) for d in flagged] == [(9, "flag")]  # e10 stays, and is reported
    scores = [d["score"] for d in result.decisions.to_pylist() if d["stage"] == "similar_responses"]
    assert len(scores) == 4 and all(0 <= s <= 1 for s in scores)
    cleaning_again_changes_nothing(tmp_path / "out")


def test_07_identical_answers(cleaned, case, tmp_path):
    result = cleaned("07")
    rows = kept(tmp_path / "out")
    given = source(case("07") / "rows.jsonl")
    assert set(rows) == {"i6", "i7"}
    assert all(
        text_of(row[side]) == given[key][side] for key, row in rows.items() for side in ("prompt", "chosen", "rejected")
    )
    assert reasons(tmp_path / "out") == dict.fromkeys(("i1", "i2", "i3", "i4", "i5", "i8"), "identical_pair")
    found = {f.name: f.value for f in result.findings}
    assert (found["identical_exact"], found["identical_normalised"]) == (2, 4)  # i1 i8, and i2 i3 i4 i5
    for row in dropped(tmp_path / "out"):  # dropped rows are shown as they came
        assert text_of(row["rejected"]) == text_of(given[row["id"]]["rejected"])
    cleaning_again_changes_nothing(tmp_path / "out")


def test_08_swapped_pairs_and_votes(cleaned, case, tmp_path):
    result = cleaned("08")
    rows = kept(tmp_path / "out")
    assert list(rows) == ["c3", "v1"]
    unchanged(rows, source(case("08") / "rows.jsonl"))
    assert reasons(tmp_path / "out") == {
        "c1": "contradiction", "c2": "contradiction", "v2": "exact_duplicate", "v3": "exact_duplicate", "v4": "contradiction",
    }  # fmt: skip
    peers = {row["id"]: row["pd_peer"] for row in dropped(tmp_path / "out")}
    assert peers == {"c1": "1", "c2": "0", "v2": "3", "v3": "3", "v4": "3"}  # one group: each names the other
    assert result.counts["reasons"] == {"contradiction": 3, "exact_duplicate": 2}
    cleaning_again_changes_nothing(tmp_path / "out")


def test_08_the_order_of_rows_does_not_matter(case, tmp_path):
    lines = (case("08") / "rows.jsonl").read_text("utf-8").splitlines()
    for i, order in enumerate([lines[::-1], lines[3:] + lines[:3], [*lines[6:], *lines[:6]]]):
        (tmp_path / f"{i}.jsonl").write_text("\n".join(order), encoding="utf-8")
        prefdata.clean(str(tmp_path / f"{i}.jsonl"), tmp_path / f"out{i}")
        rows = kept(tmp_path / f"out{i}").values()
        assert sorted((r["prompt"], r["chosen"]) for r in rows) == [
            ('Give me an example of a bad answer to "How do I cook rice?".', "Put the rice in a dry pan and wait."),
            ("How long should green tea steep?", "Two to three minutes."),
        ]


def test_09_preference_cycle(cleaned, case, tmp_path):
    result = cleaned("09")
    rows = kept(tmp_path / "out")
    gone = reasons(tmp_path / "out")
    assert set(gone.values()) == {"cycle"} and set(gone) < {"y1", "y2", "y3"} and {"y4", "y5", "y6"} < set(rows)
    unchanged(rows, source(case("09") / "rows.jsonl"))
    group = [d for d in result.decisions.to_pylist() if d["reason"] == "cycle"]
    assert sorted(d["row"] for d in group) == [0, 1, 2]  # all three are named, dropped or flagged
    assert {d["peer"] for d in group} <= {0, 1, 2} and all(d["peer"] != d["row"] for d in group)
    assert "contradiction" not in result.counts["reasons"]
    cleaning_again_changes_nothing(tmp_path / "out")


# ------------------------------------------------------------------------------------------------ 10-13: duplicates


def test_10_near_duplicates_without_spaces(cleaned, case, tmp_path):
    cleaned("10")
    rows = kept(tmp_path / "out")
    assert list(rows) == ["z1", "z3", "z4", "t1", "t3"]
    unchanged(rows, source(case("10") / "rows.jsonl"))
    ids = list(source(case("10") / "rows.jsonl"))
    found = {row["id"]: (row["pd_code"], ids[int(row["pd_peer"])]) for row in dropped(tmp_path / "out")}
    assert found == {"z2": ("near_duplicate", "z1"), "t2": ("near_duplicate", "t1")}
    cleaning_again_changes_nothing(tmp_path / "out")


def test_11_short_answers_and_emoji(cleaned, case, tmp_path):
    cleaned("11")
    given = source(case("11") / "rows.jsonl")
    rows = kept(tmp_path / "out")
    assert list(rows) == [key for key in given if key != "y5"]
    unchanged(rows, given)
    (gone,) = dropped(tmp_path / "out")
    assert (gone["id"], gone["pd_code"], gone["pd_peer"]) == ("y5", "exact_duplicate", "0")
    cleaning_again_changes_nothing(tmp_path / "out")


def test_12_a_template_is_no_duplicate(cleaned, case, tmp_path):
    assert cleaned("12").counts["dropped"] == 0
    given = source(case("12") / "rows.jsonl")
    rows = kept(tmp_path / "out")
    assert list(rows) == list(given) and len(rows) == 5
    unchanged(rows, given)
    cleaning_again_changes_nothing(tmp_path / "out")


def test_13_a_chain_does_not_collapse(cleaned, case, tmp_path):
    forward, again = cleaned("13", "chain.jsonl", "a"), cleaned("13", "chain.jsonl", "b")
    backward = cleaned("13", "chain_reversed.jsonl", "c")
    assert bytes_of(tmp_path / "a", "data", "audit/dropped") == bytes_of(tmp_path / "b", "data", "audit/dropped")
    for out in ("a", "c"):
        rows = kept(tmp_path / out)
        assert {"r01", "r18"} < set(rows) and len(rows) > 3
        numbers = {row["pd_id"] for row in rows.values()}
        gone = dropped(tmp_path / out)
        assert gone and all(row["pd_code"] == "near_duplicate" for row in gone)
        assert all(row["pd_peer"] in numbers and row["pd_score"] >= row["pd_limit"] for row in gone)
    assert abs(forward.counts["kept"] - backward.counts["kept"]) <= 1 and again.counts == forward.counts
    cleaning_again_changes_nothing(tmp_path / "a")


# ------------------------------------------------------------------------------------------------ 14-19: dialogues


def test_14_dialogues_without_a_prompt_column(cleaned, case, tmp_path):
    cleaned("14")
    given = source(case("14") / "rows.jsonl")
    rows = kept(tmp_path / "out")
    assert list(rows) == ["h1", "h2", "h6", "h8", "h9"]
    for key, row in rows.items():
        assert (
            row["prompt"] + row["chosen"] == given[key]["chosen"]
            and row["prompt"] + row["rejected"] == given[key]["rejected"]
        )
        assert row["prompt"].endswith("\n\nAssistant:")
    answers = {key: (row["chosen"].strip(), row["rejected"].strip()) for key, row in rows.items()}
    assert answers["h8"] == ("42", "48") and answers["h6"] == ("In spring", "In spring and never again")
    assert answers["h9"] == ("It marks what a person typed.", "Nothing.")
    assert reasons(tmp_path / "out") == {
        "h3": "prompt_mismatch",
        "h4": "bad_messages",
        "h5": "identical_pair",
        "h7": "empty_completion",
    }
    cleaning_again_changes_nothing(tmp_path / "out")


def test_15_message_roles(cleaned, tmp_path):
    cleaned("15")
    rows = kept(tmp_path / "out")
    assert list(rows) == ["r1", "r4", "r8", "r9", "r10"]
    assert rows["r8"]["prompt"] == [{"role": "user", "content": "Name a mountain."}]
    assert rows["r8"]["chosen"] == [{"role": "assistant", "content": "Mont Blanc."}]
    assert rows["r9"]["prompt"][0]["role"] == "user" and rows["r9"]["chosen"][0]["role"] == "assistant"
    assert reasons(tmp_path / "out") == {
        "r2": "bad_messages", "r3": "bad_messages", "r5": "empty_completion", "r6": "bad_messages", "r7": "empty_prompt",
    }  # fmt: skip
    cleaning_again_changes_nothing(tmp_path / "out")


def test_16_system_text_and_repeated_prompt(cleaned, tmp_path):
    cleaned("16")
    rows = kept(tmp_path / "out")
    assert list(rows) == ["p1", "p4", "p5", "p6", "p7"]
    assert reasons(tmp_path / "out") == {"p2": "prompt_mismatch", "p3": "prompt_mismatch"}
    system = {"role": "system", "content": "You are a terse clerk."}
    assert rows["p1"]["prompt"] == [system, {"role": "user", "content": "Opening hours?"}]
    assert rows["p4"]["prompt"] == [system, {"role": "user", "content": "Is there a lift?"}]
    assert rows["p5"]["prompt"] == [{"role": "user", "content": "Is there a cafe?"}]
    assert rows["p7"]["prompt"] == [{"role": "user", "content": "Which floor holds the maps?"}]
    assert rows["p6"]["prompt"] == [{"role": "user", "content": "Is there wireless internet?"}]
    assert rows["p6"]["chosen"] == [
        {"role": "assistant", "content": "Yes, ask at the desk for the code, it changes daily."}
    ]
    assert rows["p6"]["rejected"] == [{"role": "assistant", "content": "No."}]
    cleaning_again_changes_nothing(tmp_path / "out")


def test_17_tool_calls_survive(cleaned, case, tmp_path):
    cleaned("17")
    given = source(case("17") / "rows.jsonl")
    rows = kept(tmp_path / "out")
    assert list(rows) == ["x1", "x2", "x3", "x4"]
    unchanged(rows, given)  # every message has exactly the keys it came with
    for key in ("x1", "x2", "x3", "x4"):
        tools = [json.loads(t) if isinstance(t, str) else t for t in (rows[key]["tools"], given[key]["tools"])]
        assert tools[0] == tools[1], key
    cleaning_again_changes_nothing(tmp_path / "out")


def test_17_null_padding_of_a_column_store_is_gone(cleaned, case, tmp_path):
    cleaned("17", "padded.parquet")
    given = source(case("17") / "rows.jsonl")
    rows = kept(tmp_path / "out")
    assert list(rows) == ["x1", "x2"]
    unchanged(rows, given)


def test_18_image_rows(cleaned, tmp_path):
    cleaned("18")
    rows = kept(tmp_path / "out")
    assert {"g3", "g4"} <= set(rows)
    assert reasons(tmp_path / "out")["g2"] == "image_mismatch"
    assert set(rows) == {"g1", "g3", "g4", "g5", "g6"}  # pictures are not looked for, and not taken off
    assert rows["g6"]["prompt"][0]["content"][0] == {"type": "image", "image": "pictures/map.png"}


def fitting(tokenizer):
    return load("default", sets=[f"token_length.tokenizer={tokenizer}", "token_length.max_length=256"])[0]


def test_19_too_long_for_the_window(cleaned, case, tmp_path, tokenizer):
    result = cleaned("19", pipeline=fitting(tokenizer))
    rows = kept(tmp_path / "out")
    assert list(rows) == ["o1", "o3", "o4"]
    unchanged(rows, source(case("19") / "rows.jsonl"))
    (gone,) = dropped(tmp_path / "out")
    assert (gone["id"], gone["pd_code"], gone["pd_limit"]) == ("o2", "too_long", 256) and gone["pd_score"] >= 256
    found = {f.name: f for f in result.findings}
    assert found["truncated"].value == 1 and found["truncated"].rows == (2,)  # o3 is cut, and stays
    assert found["loss_at_256"].value == 0.25  # one row of four
    cleaning_again_changes_nothing(tmp_path / "out", pipeline=fitting(tokenizer))


def test_19_nothing_fits(cli, case, tmp_path, tokenizer):
    sets = ["--set", f"token_length.tokenizer={tokenizer}", "--set", "token_length.max_length=256"]
    ended = cli("clean", case("19") / "all_long.jsonl", tmp_path / "out", *sets)
    assert ended.code == 1 and re.search(r"\b0 of \d+ rows left", ended.err) and "too_long" in ended.err
    assert "256" in ended.err and re.search(r"longest prompt\D*\d+", ended.err)
    assert not (tmp_path / "out/data").exists()


# ------------------------------------------------------------------------------------------------ 20-24: report, CSV, places


def test_20_html_in_the_text_stays_text(cleaned, case, tmp_path):
    assert cleaned("20").counts["kept"] == 4
    unchanged(kept(tmp_path / "out"), source(case("20") / "rows.jsonl"))
    page = (tmp_path / "out/report.html").read_text("utf-8")
    assert (
        "<script>document.title" not in page
        and "<img src=x" not in page
        and "</textarea><" not in page.replace("</textarea></label>", "")
    )
    embedded = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert embedded and all("<" not in block for block in embedded)
    shown = " ".join(json.dumps(json.loads(block), ensure_ascii=False) for block in embedded)
    assert "document.title='owned'" in shown and '"&lt;"' in shown  # as they were in the data
    assert "&lt;script&gt;" in page and "&amp;lt;" in page and "&amp;amp;lt;" not in page
    cleaning_again_changes_nothing(tmp_path / "out")


def test_21_csv(cleaned, tmp_path):
    result = cleaned("21", "rows.csv")
    assert result.counts["pairs"] == 7
    rows = kept(tmp_path / "out")
    assert list(rows) == ["q1", "q2", "q3", "q4", "q5", "q7"]
    assert rows["q1"]["chosen"] == "Step one: open the box.\nStep two: read the sheet."
    assert rows["q2"]["chosen"] == 'It says "Mind the gap, please".'
    assert (rows["q3"]["chosen"], rows["q4"]["chosen"], rows["q5"]["chosen"]) == ("NA", "null", "=A1+A2")
    assert (rows["q7"]["chosen"], rows["q7"]["rejected"]) == ("007", "7")
    (gone,) = dropped(tmp_path / "out")
    assert (gone["id"], gone["pd_code"], gone["pd_line"]) == ("q6", "empty_completion", 8)
    cleaning_again_changes_nothing(tmp_path / "out")


def test_21_rows_with_too_few_or_too_many_cells_are_named(tmp_path):
    (tmp_path / "in.csv").write_text('prompt,chosen,rejected\nA?,"b\nb",c\nD?,e\nF?,g,h\nI?,j,k,l\n')
    prefdata.clean(str(tmp_path / "in.csv"), tmp_path / "out")
    assert [r["prompt"] for r in loaded(tmp_path / "out")] == ["A?", "F?"]
    assert [(r["pd_line"], r["pd_code"]) for r in dropped(tmp_path / "out")] == [(4, "parse_error"), (6, "parse_error")]
    assert "2 cells, the header has 3" in dropped(tmp_path / "out")[0]["pd_reason"]


def test_23_an_existing_folder_is_refused_and_then_only_ours_is_replaced(cli, case, tmp_path):
    out = tmp_path / "existing_out"
    shutil.copytree(case("23") / "existing_out", out)
    out.chmod(0o755)
    before = (out / "keep_me.txt").read_bytes()
    ended = cli("clean", case("23") / "rows.jsonl", out)
    assert ended.code == 2 and "existing_out" in ended.err and "--overwrite" in ended.err
    assert [p.name for p in out.iterdir()] == ["keep_me.txt"]
    assert cli("clean", case("23") / "rows.jsonl", out, "--overwrite").code == 0
    assert cli("clean", case("23") / "rows.jsonl", out, "--overwrite", "--limit", "1").code == 0
    assert (out / "keep_me.txt").read_bytes() == before and list(kept(out)) == ["z1"]


@pytest.mark.parametrize("place", [".", "rows.jsonl", "sub/.."])
def test_23_the_input_is_never_overwritten(cli, case, tmp_path, place):
    shutil.copy(case("23") / "rows.jsonl", tmp_path / "rows.jsonl")
    (tmp_path / "sub").mkdir()
    before = (tmp_path / "rows.jsonl").read_bytes()
    for more in ([], ["--overwrite"]):
        ended = cli("clean", tmp_path / "rows.jsonl", tmp_path / place, *more)
        assert ended.code == 2 and "Traceback" not in ended.err
    assert (tmp_path / "rows.jsonl").read_bytes() == before and sorted(p.name for p in tmp_path.iterdir()) == [
        "rows.jsonl",
        "sub",
    ]


@pytest.mark.parametrize("name", ["../../up", "a/b", "..", "/tmp/x", "C:\\x"])
def test_23_a_split_name_never_leads_outside(cli, case, tmp_path, name):
    ended = cli("clean", case("23") / "rows.jsonl", tmp_path / "deep/er/out", "--split", f"{name}=0.5")
    assert ended.code == 2 and "--split" in ended.err and "Traceback" not in ended.err
    assert [p.name for p in tmp_path.rglob("*")] in ([], ["deep"], ["deep", "er"])


def test_23_a_second_run_after_a_crash_works(cli, case, tmp_path, monkeypatch):
    from prefdata import output

    def crash(*_):
        raise RuntimeError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(output, "write_signals", crash)
        assert cli("clean", case("23") / "rows.jsonl", tmp_path / "out").code == 3
    assert not (tmp_path / "out/manifest.json").exists() and not list((tmp_path / "out").rglob("*.part"))
    assert cli("clean", case("23") / "rows.jsonl", tmp_path / "out", "--resume").code == 0
    assert list(kept(tmp_path / "out")) == ["z1", "z2"] and not (tmp_path / "out/.work").exists()


def test_24_nothing_left(cli, case, tmp_path):
    ended = cli("clean", case("24") / "rows.jsonl", tmp_path / "out")
    assert ended.code == 1 and "0 of 3 rows left" in ended.err
    assert all(word in ended.err for word in ("empty_completion", "identical_pair", "empty_prompt"))
    assert (
        reasons(tmp_path / "out") == {"q1": "empty_completion", "q2": "identical_pair", "q3": "empty_prompt"}
        if (tmp_path / "out/audit/dropped").exists()
        else True
    )
    assert not (tmp_path / "out/data").exists() and (tmp_path / "out/report.html").exists()
    assert json.loads((tmp_path / "out/manifest.json").read_bytes())["status"] == "empty"
    issues = {i["reason"]: i["actions"] for i in report_of(tmp_path / "out")["issues"]}
    assert issues == {word: {"drop": 1} for word in ("empty_completion", "identical_pair", "empty_prompt")}


@pytest.mark.parametrize("name", ["empty.jsonl", "blank_lines.jsonl", "header_only.csv"])
def test_24_no_rows_at_all(cli, case, tmp_path, name):
    ended = cli("clean", case("24") / name, tmp_path / "out")
    assert ended.code == 2 and "no rows" in ended.err and name in ended.err
    assert "Traceback" not in ended.err and not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------------ 27: very similar answers


@pytest.mark.parametrize("mode", ["raw", "order", "smoothing"])
def test_26_reversed_pairs(cleaned, case, tmp_path, mode):
    """No row that reaches DPO has the worse answer under ``chosen``; a mirror is marked and leads to its source."""
    path = tmp_path / "reverse.yaml"
    path.write_text(
        f"stages: [malformed, contradiction, exact_duplicate, reverse_pairs: {{mode: {mode}, fraction: 0.2}}]\n"
    )
    cleaned("26")
    cleaned("26", out=mode, pipeline=str(path))
    assert loaded(tmp_path / mode) == loaded(tmp_path / "out") and bytes_of(tmp_path / mode) == bytes_of(
        tmp_path / "out"
    )
    cleaning_again_changes_nothing(tmp_path / mode, pipeline=str(path))
    given = source(case("26") / "rows.jsonl")
    ids = {r["pd_id"]: key for key, r in kept(tmp_path / mode).items()}
    config = {"raw": "reversed", "order": "ab", "smoothing": None}[mode]
    made = [r for r in loaded(tmp_path / mode, config) if r["pd_reversed"]] if config else []
    assert len(made) == (2 if config else 0)
    for row in made:
        assert ids[row["pd_source_row"]] == row["id"]
        if mode == "raw":
            assert (row["chosen"], row["rejected"]) == (given[row["id"]]["rejected"], given[row["id"]]["chosen"])
        else:
            assert row[f"output_{row['label']}"] == given[row["id"]]["chosen"]
    if mode == "raw":
        parts = [str(tmp_path / mode / home / "train") for home in ("data", "reversed")]
        both = prefdata.clean(parts, tmp_path / "both", str(path), split="test=0.4")
        assert (both.counts["dropped"], both.counts["flagged"], both.counts["added"]) == (0, 0, 0)
        assert all(
            r["chosen"] == given[r["id"]]["chosen"]
            for s in ("train", "test")
            for r in loaded(tmp_path / "both", split=s)
        )
        test = kept(tmp_path / "both", "test")
        for side in (tmp_path / "both/reversed").iterdir():
            mirrors = {r["id"] for r in loaded(tmp_path / "both", "reversed", side.name)}
            assert (mirrors <= test.keys()) if side.name == "test" else not mirrors & test.keys()


@pytest.mark.parametrize(("rule", "most"), [("target: uniform", 1), ("max_share: 0.5", 3)])
def test_26_domains(cleaned, case, tmp_path, rule, most):
    """Nothing is there twice, "law" is not emptied, a row with null for its domain stays, the choice is the seed's."""
    path = tmp_path / "balance.yaml"
    path.write_text(f"stages: [malformed, domain_balance: {{method: cap, {rule}}}]\n")
    result = cleaned("26", pipeline=str(path))
    rows, given = kept(tmp_path / "out"), source(case("26") / "rows.jsonl")
    unchanged(rows, given, "prompt", "chosen", "rejected", "domain")
    left = Counter(r["domain"] for r in loaded(tmp_path / "out"))
    assert left == {"garden": most, "music": min(2, most), "law": 1, None: 1}
    assert reasons(tmp_path / "out") == dict.fromkeys(given.keys() - rows.keys(), "balanced_out")
    assert any("1 of 10 pairs have none" in f.text for f in result.findings)
    cleaned("26", out="same", pipeline=str(path))
    assert bytes_of(tmp_path / "same") == bytes_of(tmp_path / "out")
    cleaning_again_changes_nothing(tmp_path / "out", pipeline=str(path))
    others = [set(kept(cleaned("26", out=f"seed{s}", pipeline=str(path), seed=s).out)) for s in range(1, 6)]
    assert any(ids != rows.keys() for ids in others)


@pytest.mark.parametrize("split", ["test=0.4"])
def test_26_domains_of_the_training_part_alone(cleaned, tmp_path, split):
    path = tmp_path / "balance.yaml"
    path.write_text("stages: [malformed, domain_balance: {method: cap, target: uniform}]\n")
    cleaned("26", "rows.jsonl", "whole", split=split)
    cleaned("26", out="capped", pipeline=str(path), split=split)
    assert kept(tmp_path / "capped", "test").keys() == kept(tmp_path / "whole", "test").keys()
    assert kept(tmp_path / "capped").keys() < kept(tmp_path / "whole").keys()


def test_27_very_similar_answers(cleaned, case, tmp_path):
    result = cleaned("27")
    rows = kept(tmp_path / "out")
    assert list(rows) == ["s1", "s2", "s4", "s5", "s6"]
    unchanged(rows, source(case("27") / "rows.jsonl"))
    (gone,) = dropped(tmp_path / "out")
    assert (gone["id"], gone["pd_code"]) == ("s3", "too_similar") and 0.9 < gone["pd_score"] <= 1
    assert all(0 <= d["score"] <= 1 for d in result.decisions.to_pylist() if d["stage"] == "similar_responses")
    cleaning_again_changes_nothing(tmp_path / "out")


@pytest.mark.parametrize("metric", ["ratio", "rouge_l", "bleu", "cosine"])
def test_27_scores_do_not_depend_on_sides_or_neighbours(case, metric):
    if metric == "cosine":
        pytest.importorskip("wordllama", reason="the extra [embed] is not installed: no encoder")
    rows = list(source(case("27") / "rows.jsonl").values())
    pipeline = load("default", sets=[f"similar_responses.metric={metric}"], only=["similar_responses"])[0]

    def scores(given):
        table = prefdata.audit(given, pipeline=pipeline).decisions.to_pylist()
        return [d["score"] for d in table if d["stage"] == "similar_responses"]

    straight = scores(rows)
    assert all(s is not None and 0 <= s <= 1 for s in straight)
    assert scores([{**r, "chosen": r["rejected"], "rejected": r["chosen"]} for r in rows]) == pytest.approx(
        straight, abs=1e-6
    )
    assert [scores([r])[0] for r in rows] == straight
