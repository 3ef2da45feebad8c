"""Rows in KTO form: which are paired, what an audit says of the rest, and what is refused."""

import gzip
import json
from collections import defaultdict

import pytest
from written import dropped, loaded, write_lines

import prefdata
from prefdata.errors import InputError
from prefdata.shapes import unpaired


def kto(prompt, answer, label, **more):
    return {"prompt": prompt, "completion": answer, "label": label, **more}


def pairs_of(rows, tmp_path, **options):
    """``(prompt, chosen, rejected)`` of the sound pairs, text or messages."""
    prefdata.clean(rows, tmp_path / "out", only=["malformed"], **options)
    return [(r["prompt"], r["chosen"], r["rejected"]) for r in loaded(tmp_path / "out")]


def reasons_of(rows, **options):
    return prefdata.audit(rows, **options).counts["reasons"]


def findings_of(result):
    return {f.name: f.value for f in result.findings}


@pytest.mark.parametrize("shown", unpaired.SHOWN, ids=lambda s: s.name)
def test_the_example_is_of_the_shape(shown):
    result = prefdata.audit(list(shown.example))
    assert result.report.source["shape"] == shown.name and result.counts["kept"] == 1


def test_desirable_and_undesirable_answers_to_one_prompt_make_pairs_wherever_they_stand(tmp_path):
    rows = [
        kto("Q?", "good 1", True),
        kto("Other?", "lonely", True),
        kto("Q?", "bad 1", False),
        kto("Q?", "good 2", True),
    ]
    assert pairs_of(rows, tmp_path) == [("Q?", "good 1", "bad 1"), ("Q?", "good 2", "bad 1")]
    assert [(r["pd_code"], r["pd_line"], json.loads(r["pd_raw"])["completion"]) for r in dropped(tmp_path / "out")] == [
        ("unpaired", 2, "lonely")
    ]
    assert [r["pd_rows"] for r in loaded(tmp_path / "out")] == [[0, 2], [3, 2]]


@pytest.mark.parametrize(("policy", "expected"), [
    ("best-worst", [("g1", "b1"), ("g2", "b2"), ("g1", "b3")]),
    ("adjacent", [("g1", "b1"), ("g2", "b2"), ("g1", "b3")]),
    ("all", [("g1", "b1"), ("g1", "b2"), ("g1", "b3"), ("g2", "b1"), ("g2", "b2"), ("g2", "b3")]),
])  # fmt: skip
def test_each_row_is_used_at_least_once_or_each_with_each(tmp_path, policy, expected):
    rows = [kto("Q?", a, a[0] == "g") for a in ("g1", "g2", "b1", "b2", "b3")]
    made = pairs_of(rows, tmp_path, pairs=policy)
    assert sorted((c, r) for _, c, r in made) == sorted(expected)
    ids = [r["pd_id"] for r in loaded(tmp_path / "out")]
    assert len(set(ids)) == len(ids) and {i.split(".")[0] for i in ids} == {"0", "1"}


@pytest.mark.parametrize("values", [
    (True, False), (1, 0), (1, -1), (1.0, 0.0), ("true", "false"), ("True", "FALSE "), ("1", "0"), ("+1", "-1"),
    ("good", "bad"), ("desirable", "undesirable"), ("thumbs_up", "thumbs_down"), ("👍", "👎"), ("chosen", "rejected"),
])  # fmt: skip
@pytest.mark.parametrize("column", ["label", "kto_tag"])
def test_labels_that_say_it_themselves(tmp_path, values, column):
    rows = [{"prompt": "Q?", "completion": text, column: values[text == "bad"]} for text in ("bad", "good")]
    assert pairs_of(rows, tmp_path) == [("Q?", "good", "bad")]


FORMS = {
    "TRL text": lambda good: {"prompt": "Q?", "completion": good, "label": good == "yes"},
    "TRL messages": lambda good: {"prompt": [{"role": "user", "content": "Q?"}],
                                  "completion": [{"role": "assistant", "content": good}], "label": good == "yes"},
    "Alpaca": lambda good: {"instruction": "Q?", "input": "", "output": good, "kto_tag": good == "yes"},
    "ShareGPT": lambda good: {"conversations": [{"from": "human", "value": "Q?"}, {"from": "gpt", "value": good}], "kto_tag": good == "yes"},
    "messages": lambda good: {"messages": [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": good}], "label": good == "yes"},
    "response": lambda good: {"question": "Q?", "response": good, "feedback": "thumbs_up" if good == "yes" else "thumbs_down"},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_published_forms(tmp_path, form):
    ((prompt, chosen, rejected),) = pairs_of([FORMS[form]("no"), FORMS[form]("yes")], tmp_path)
    if isinstance(prompt, str):
        assert (prompt, chosen, rejected) == ("Q?", "yes", "no")
    else:
        assert [m["content"] for m in (*prompt, *chosen, *rejected)] == ["Q?", "yes", "no"]


def test_alpaca_input_and_system_text_belong_to_the_prompt(tmp_path):
    def row(more, answer, good, system="Be brief."):
        return {"instruction": "Translate.", "input": more, "output": answer, "kto_tag": good, "system": system}

    rows = [
        row("cat", "Katze", True),
        row("dog", "Katze", False),
        row("cat", "Hund", False),
        row("cat", "Maus", False, "Be long."),
    ]
    ((prompt, chosen, rejected),) = pairs_of(rows, tmp_path)
    assert [m["content"] for m in prompt] == ["Be brief.", "Translate.\n\ncat"]
    assert (chosen[0]["content"], rejected[0]["content"]) == ("Katze", "Hund")
    assert reasons_of(rows) == {"unpaired": 2}


def test_the_prompt_of_a_conversation_is_all_before_its_last_turn(tmp_path):
    def talk(*texts, good):
        return {
            "messages": [{"role": ("user", "assistant")[i % 2], "content": t} for i, t in enumerate(texts)],
            "label": good,
        }

    rows = [
        talk("a", "b", "c", "good", good=True),
        talk("a", "x", "c", "bad", good=False),
        talk("a", "b", "c", "bad", good=False),
    ]
    ((prompt, _, rejected),) = pairs_of(rows, tmp_path)
    assert [m["content"] for m in prompt] == ["a", "b", "c"] and rejected[0]["content"] == "bad"
    assert reasons_of(rows) == {"unpaired": 1}


def test_transcripts_become_turns_where_the_set_is_chat(tmp_path):
    rows = [{"text": f"\n\nHuman: Q?\n\nAssistant: {a}", "label": a == "yes"} for a in ("yes", "no")]
    assert pairs_of(rows, tmp_path) == [("\n\nHuman: Q?\n\nAssistant:", " yes", " no")]
    ((prompt, chosen, _),) = pairs_of(rows, tmp_path, format="chat", overwrite=True)
    assert prompt == [{"role": "user", "content": "Q?"}] and chosen == [{"role": "assistant", "content": "yes"}]
    assert loaded(tmp_path / "out")[0]["pd_rows"] == [0, 1]


def test_the_same_text_with_other_tools_or_images_is_another_prompt():
    tool = [{"type": "function", "function": {"name": "sum", "parameters": {}}}]
    rows = [FORMS["messages"]("yes") | {"tools": tool}, FORMS["messages"]("no")]
    assert reasons_of(rows) == {"unpaired": 2}
    assert reasons_of([rows[0], rows[1] | {"tools": tool}]) == {}


def test_prompts_are_compared_character_by_character():
    assert reasons_of([kto("Q?", "a", True), kto("Q? ", "b", False)]) == {"unpaired": 2}


def test_an_answer_labelled_both_ways_is_in_no_pair():
    rows = [kto("Q?", "same", True), kto("Q?", "same", False), kto("Q?", "other", False), kto("Q?", "good", True)]
    result = prefdata.audit(rows)
    assert result.counts["reasons"] == {"label_conflict": 2} and result.counts["kept"] == 1
    rows = rows[:3]
    assert reasons_of(rows) == {"label_conflict": 2, "unpaired": 1}


def test_a_repeated_row_is_counted_and_its_second_pair_is_a_duplicate():
    result = prefdata.audit([kto("Q?", "good", True), kto("Q?", "good", True), kto("Q?", "bad", False)])
    assert result.counts["reasons"] == {"exact_duplicate": 1} and findings_of(result)["repeated_rows"] == 1


def test_broken_rows_keep_the_words_of_their_own_fault_each_once(tmp_path):
    rows = [
        kto("Q?", "good", True), kto("Q?", "bad", False), kto("Q?", "​ ", True), kto("Q?", None, False), kto(None, "x", True),
        kto("", "x", True), kto("Q?", 7, False), kto("Q?", "no label", None), kto("Q?", "odd label", "so-so"), kto("Q?", "odd", float("nan")),
        kto([{"content": "no role"}], "x", True), kto([{"role": "user", "content": "Q?"}], [{"role": "user", "content": "x"}], True),
    ]  # fmt: skip
    path = write_lines(tmp_path / "in.jsonl", rows)
    result = prefdata.clean(str(path), tmp_path / "out")
    found = {(r["pd_line"], r["pd_code"]) for r in dropped(tmp_path / "out")}
    assert found == {
        (3, "empty_completion"), (4, "missing_field"), (5, "missing_field"), (6, "empty_prompt"), (7, "bad_type"),
        (8, "missing_label"), (9, "missing_label"), (10, "missing_label"), (11, "bad_messages"), (12, "bad_messages"),
    }  # fmt: skip
    assert result.counts["pairs"] == 11 and result.counts["kept"] == 1
    told = {r["pd_line"]: r["pd_reason"] for r in dropped(tmp_path / "out")}
    assert told[3] == "completion is empty" and told[4] == "completion is missing" and told[8] == "label is null"
    assert told[12].startswith("completion ends with a user turn") and told[9] == 'label is "so-so"'


def test_labels_that_do_not_say_it_are_asked_for(tmp_path):
    rows = [kto("Q?", "fine", "keep"), kto("Q?", "poor", "bin")]
    with pytest.raises(InputError, match=r"not clear.*--labels desirable="):
        prefdata.audit(rows)
    assert pairs_of(rows, tmp_path, labels={"desirable": "keep", "undesirable": "bin"}) == [("Q?", "fine", "poor")]
    with pytest.raises(InputError, match="not clear"):
        prefdata.audit([kto("Q?", "fine", 1), kto("Q?", "poor", 2)])


def test_ratings_are_not_this_form():
    with pytest.raises(InputError, match="no columns that say which answer is better"):
        prefdata.audit([kto("Q?", f"answer {i}", i) for i in range(5)])


def test_columns_of_other_names_are_named(tmp_path):
    rows = [{"frage": "Q?", "antwort": a, "ok": a == "yes"} for a in ("yes", "no")]
    made = pairs_of(rows, tmp_path, columns={"prompt": "frage", "completion": "antwort", "label": "ok"})
    assert made == [("Q?", "yes", "no")]


def test_a_pair_with_a_label_beside_it_is_a_pair():
    rows = [{"prompt": f"Q{i}?", "chosen": "a", "rejected": "b", "label": True, "output": "a"} for i in range(3)]
    assert prefdata.audit(rows).report.source["shapes"] == {"explicit": 3}


def test_an_audit_tells_what_the_rows_hold_and_is_no_error(cli, tmp_path):
    rows = [kto(f"Q{i}?", f"a {i}", i % 3 > 0) for i in range(9)]
    path = write_lines(tmp_path / "kto.json", rows)
    ended = cli("audit", path)
    text = " ".join(ended.out.split())
    assert ended.code == 0, ended.all
    assert (
        "note: 9 rows in KTO form (6 desirable, 3 undesirable); prompts with both labels: 0 of 9, pairs made: 0" in text
    )
    assert "unpaired 9" in text
    with_report = cli("audit", path, tmp_path / "report")
    assert with_report.code == 0 and "error" not in with_report.all
    assert "9 rows in KTO form" in (tmp_path / "report/report.html").read_text("utf-8")
    document = json.loads(cli("audit", path, "--json").out)
    assert document["source"]["shape"] == "unpaired"
    found = {f["name"]: f["value"] for f in document["findings"]}
    assert (found["desirable_rows"], found["undesirable_rows"], found["unlabelled_rows"]) == (6, 3, 0)


def test_cleaning_rows_that_make_no_pair_fails_and_says_what_to_do(cli, tmp_path):
    path = write_lines(tmp_path / "kto.json", [kto(f"Q{i}?", "a", True) for i in range(3)])
    ended = cli("clean", path, tmp_path / "out")
    assert ended.code == 1 and "0 of 3 rows left (unpaired 3). Rows in KTO form need no pairs" in " ".join(
        ended.err.split()
    )


def test_llama_factory_kto_demo(shared):
    """300 rows of one conversation each. By hand: the prompt is what stands before the last turn."""
    path = shared / "data/llama-factory/kto_en_demo.json.gz"
    rows = json.loads(gzip.decompress(path.read_bytes()))
    by_prompt = defaultdict(list)
    for row in rows:
        by_prompt[json.dumps([(m["role"], m["content"]) for m in row["messages"][:-1]])].append(row["label"])
    # 297 prompts; three stand twice: (true, true), (true, false), (true, true). So one pair, and 298 rows without one.
    assert len(by_prompt) == 297 and sorted(v for v in by_prompt.values() if len(v) > 1) == [
        [True, False],
        [True, True],
        [True, True],
    ]
    result = prefdata.audit(str(path))
    assert (
        result.counts["pairs"] == 299 and result.counts["reasons"] == {"unpaired": 298} and result.counts["kept"] == 1
    )
    found = findings_of(result)
    assert (found["desirable_rows"], found["undesirable_rows"], found["prompts_with_both_labels"]) == (150, 150, 1)
    assert sum(r["label"] for r in rows) == 150
    assert result.report.source["rows"] == 300 and result.report.source["shapes"] == {"unpaired": 300} and result.ok
