"""Answers and scores in two lists (``ranked``), and two answers as objects of their own (``pair_columns``)."""

import gzip
import json

import pytest
from written import dropped, loaded, report_of

import prefdata
from prefdata.errors import InputError
from prefdata.shapes import Asked, find_reading, pair_columns, ranked


def cleaned(rows, out, **options):
    """(chosen, rejected) of the kept pairs, in order."""
    prefdata.clean(rows, out, only=["malformed"], **options)
    return [(r["chosen"], r["rejected"]) for r in loaded(out)]


def told(result):
    """(row, reason) of what was found."""
    return [(d["row"], d["reason"]) for d in result.decisions.to_pylist() if d["action"] != "keep"]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "P", "text": ["x", "y"], "score": [0.0, 1.0]},
        {"prompt": "P", "responses": ["x", "y"], "scores": [9, 10]},
        {"prompt": "P", "responses": ["x", "y"], "scores": ["9", "10"]},
        {"instruction": "P", "completions": ["x", "y"], "rewards": [-1.5, -0.5]},
        {"prompt": "P", "completions": ["x", "y"], "rewards": [False, True]},
        {"instruction": "P", "generations": ["x", "y"], "ratings": [1, 5], "rationales": ["r", "s"]},
        {"prompt": "P", "answers": ["x", "y"], "scores": [1, 5]},
        {"prompt": "P", "all_generated_responses": ["x", "y"], "all_rm_scores": [0.1, 0.2]},
        {"prompt": "P", "responses": ["x", "y"], "ranks": [2, 1]},
        {"prompt": "P", "responses": [{"value": "x"}, {"value": "y"}], "ratings": [2, 3]},
    ],
    ids=lambda row: " ".join(row),
)
def test_lists_side_by_side(tmp_path, row):
    assert cleaned([row], tmp_path / "out") == [("y", "x")]
    assert report_of(tmp_path / "out")["source"]["shapes"] == {"score_lists": 1}
    (kept,) = loaded(tmp_path / "out")
    assert kept["prompt"] == "P" and kept["pd_margin"] > 0
    _, answers, order, *others = row
    assert answers not in kept and order not in kept and all(kept[n] == row[n] for n in others)
    assert kept["pd_chosen_info"] == {order: row[order][1]} and kept["pd_rejected_info"] == {order: row[order][0]}


def test_several_answers_and_both_policies(tmp_path):
    row = {"prompt": "P", "responses": ["w", "x", "y", "z"], "scores": [3, None, 1, 3]}
    assert cleaned([row], tmp_path / "a") == [("w", "y")]
    told = report_of(tmp_path / "a")["source"]["changes"]
    assert told == {"answer without a score or rank left out": 1, "answer in no pair: --pairs takes others": 1}
    assert cleaned([row], tmp_path / "b", pairs="all") == [("w", "y"), ("z", "y")]
    assert [r["pd_code"] for r in dropped(tmp_path / "b")] == ["tie"]


def test_lists_of_unequal_length_are_a_missing_label(tmp_path):
    rows = [{"prompt": "P", "responses": ["x", "y"], "scores": s} for s in ([1, 2], [1], None, [None, None])]
    assert cleaned(rows, tmp_path / "out") == [("y", "x")]
    found = [(r["pd_id"], r["pd_code"]) for r in dropped(tmp_path / "out")]
    assert found == [("1", "missing_label"), ("2", "missing_label"), ("3", "missing_label")]
    assert "scores has 1 values, responses has 2 answers" in dropped(tmp_path / "out")[0]["pd_reason"]


def test_a_list_called_ranking_is_not_guessed(tmp_path):
    rows = [{"prompt": "P", "responses": ["x", "y", "z"], "ranking": [2, 3, 1]}]
    with pytest.raises(InputError, match=r"may hold the rank .*--columns answers=responses,rank=ranking"):
        prefdata.audit(rows)
    named = {"answers": "responses", "rank": "ranking"}
    assert cleaned(rows, tmp_path / "out", columns=named) == [("z", "y")]


def test_lists_that_are_no_answers_are_left_alone():
    for row in (
        {"prompt": "P", "completions": ["step", "step"], "labels": [True, False]},
        {"text": "one text", "score": 0.5},
        {"prompt": "P", "responses": ["x", "y"], "scores": ["good", "bad"]},
        {"prompt": "P", "responses": {"one": "x", "two": "y"}, "scores": [1, 2]},
    ):
        with pytest.raises(InputError, match="has no columns of the shape score_lists"):
            prefdata.audit([row], shape="score_lists")


def test_transcripts_in_lists_are_split(tmp_path):
    start = "\n\nHuman: Hi\n\nAssistant: Yes?\n\nHuman: Go on\n\nAssistant:"
    rows = [{"text": [start + " No.", start + " Sure."], "score": [0.0, 1.0]}]
    assert cleaned(rows, tmp_path / "out") == [(" Sure.", " No.")]
    prefdata.clean(rows, tmp_path / "chat", format="chat", only=["malformed"])
    (row,) = loaded(tmp_path / "chat")
    assert [m["role"] for m in row["prompt"]] == ["user", "assistant", "user"]
    assert row["chosen"] == [{"role": "assistant", "content": "Sure."}]


# ---------------------------------------------------------------------------------------------- objects


@pytest.mark.parametrize(
    ("names", "field", "by"),
    [
        (("pos_answer", "neg_answer"), "answer", "score"), (("chosen", "rejected"), "text", "score"),
        (("chosen", "rejected"), "content", "rating"), (("winner", "loser"), "response", "reward"),
        (("positive", "negative"), "output", "score"),
    ],
)  # fmt: skip
def test_answers_as_objects(tmp_path, names, field, by):
    rows = [
        {
            "prompt": f"P{i}",
            names[0]: {field: "Honey.", by: a, "model": "m"},
            names[1]: {field: "Milk.", by: b, "model": "n"},
        }
        for i, (a, b) in enumerate([(2, 1), ("10", "9"), (1, 1), (0, 3)])
    ]
    result = prefdata.clean(rows, tmp_path / "out", only=["malformed", "contradiction"])
    assert result.report.source["shapes"] == {"answer_objects": 4}
    assert [(r["prompt"], r["chosen"], r["rejected"]) for r in loaded(tmp_path / "out")] == [
        (p, "Honey.", "Milk.") for p in ("P0", "P1", "P3")
    ]
    assert told(result) == [(2, "tie"), (3, "score_inverted")]
    info = loaded(tmp_path / "out")[0]
    assert info["pd_chosen_info"] == {by: 2, "model": "m"} and info["pd_rejected_info"] == {by: 1, "model": "n"}
    assert not set(names) & {"pos_answer", "winner"} & info.keys()


def test_ranks_in_objects_count_downwards():
    rows = [{"prompt": "P", "chosen": {"text": "x", "rank": 2}, "rejected": {"text": "y", "rank": 1}}]
    assert told(prefdata.audit(rows, only=["malformed", "contradiction"])) == [(0, "score_inverted")]


def test_each_row_by_its_own_form(tmp_path):
    rows = [
        {"prompt": "P", "chosen": {"text": "a", "score": 2}, "rejected": {"text": "b", "score": 1}},
        {"prompt": "P", "chosen": "c", "rejected": "d"},
        {"prompt": "P", "chosen": {"text": "e", "score": 2}, "rejected": "f"},
        {"prompt": "P", "chosen": {"note": "no text"}, "rejected": {"text": "h", "score": 2}},
    ]
    assert cleaned(rows, tmp_path / "out") == [("a", "b"), ("c", "d"), ("e", "f")]
    assert report_of(tmp_path / "out")["source"]["shapes"] == {"answer_objects": 3, "explicit": 1}
    (row,) = dropped(tmp_path / "out")
    assert row["pd_code"] == "missing_field" and "chosen is missing" in row["pd_reason"]


def test_messages_are_no_such_objects(tmp_path):
    sides = {"chosen": {"role": "assistant", "content": "x"}, "rejected": {"from": "gpt", "value": "y"}}
    result = prefdata.audit([{"prompt": "P", **sides}])
    assert "answer_objects" not in result.report.source["shapes"] and result.counts["kept"] == 1


def test_objects_below_a_named_path(tmp_path):
    rows = [{"q": "P", "data": {"good": {"text": "x"}, "bad": {"text": "y"}}}]
    assert cleaned(rows, tmp_path / "out", columns={"prompt": "q", "chosen": "data.good", "rejected": "data.bad"}) == [
        ("x", "y")
    ]
    assert "pd_chosen_info" not in loaded(tmp_path / "out")[0]  # nothing else is known of the answers


def test_min_margin_speaks_of_both(tmp_path):
    rows = [{"prompt": "P", "responses": ["x", "y"], "scores": s} for s in ([1, 2], [1, 4])]
    assert prefdata.audit(rows, only=["malformed", "contradiction"], min_margin=2).counts["kept"] == 1


def test_examples_read_as_what_they_are_called():
    for shown in (*ranked.SHOWN, *(s for s in pair_columns.SHOWN if s.name == "answer_objects")):
        name, made = find_reading(list(shown.example[0]), Asked(), shown.example, "example").read(shown.example[0])
        pair = made[0] if isinstance(made, list) else made
        assert name == shown.name and (pair.chosen, pair.rejected) == ("Honey.", "Milk.")


# ---------------------------------------------------------------------------------------------- published files


def published(shared, name):
    path = shared / "data" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    text = gzip.decompress(path.read_bytes()).decode()
    return str(path), json.loads(text) if text.lstrip().startswith("[") else [json.loads(t) for t in text.splitlines()]


def test_dsp_helpful(shared):
    """1400 rows of two transcripts with the scores 1 and 0, of which 3 rejected answers are empty."""
    path, rows = published(shared, "dsp/hh-helpful-base.test.part1.json.gz")
    assert len(rows) == 1400 and all(r["score"] == [1.0, 0.0] for r in rows)
    blank = {i for i, r in enumerate(rows) if any(not t.rpartition("Assistant:")[2].strip() for t in r["text"])}
    result = prefdata.audit(path)
    assert result.counts["pairs"] == 1400 and result.report.source["shapes"] == {"score_lists": 1400}
    assert result.counts["reasons"]["empty_completion"] == len(blank) == 3 and "tie" not in result.counts["reasons"]
    assert {d["row"] for d in result.decisions.to_pylist() if d["reason"] == "empty_completion"} == blank


@pytest.mark.parametrize(
    ("name", "size", "same"),
    [("calculator_test", 154, 0), ("multi_tools_test_action", 144, 1), ("translator_test", 300, 7)],
)
def test_tool_augmented_answers(shared, tmp_path, name, size, same):
    """The answer is the text. ``actions`` and ``score_agent`` are what the reward model did to judge it (the thought of
    every trace of ``calculator`` is to verify the answer), and would give the label away; they stand beside the pair.
    """
    path, rows = published(shared, f"tool-augmented-rm/agent_{name}.json.gz")
    assert len(rows) == size
    both = [(r["pos_answer"], r["neg_answer"]) for r in rows]
    identical = {i for i, (a, b) in enumerate(both) if a["answer"] == b["answer"]}
    assert identical == {
        i for i, (a, b) in enumerate(both) if (a["answer"], a["actions"]) == (b["answer"], b["actions"])
    }
    assert len(identical) == same and all(a["score"] > b["score"] for a, b in both)  # no tie, none inverted
    assert sum(a["score"] == 0 for a, _ in both) == (8 if name == "calculator_test" else 0)
    result = prefdata.clean(path, tmp_path / "out")
    assert result.counts["pairs"] == size and result.report.source["shapes"] == {"answer_objects": size}
    assert result.counts["reasons"] == ({"identical_pair": same} if same else {})
    kept = loaded(tmp_path / "out")
    assert [(r["chosen"], r["rejected"]) for r in kept] == [
        (a["answer"], b["answer"]) for i, (a, b) in enumerate(both) if i not in identical
    ]
    assert all(r["pd_chosen_info"].keys() == {"score", "actions", "score_agent"} for r in kept)
    assert ("context" in kept[0]) == (name == "translator_test")


def test_context_is_asked_too_when_it_is_named(shared, tmp_path):
    path, rows = published(shared, "tool-augmented-rm/agent_translator_test.json.gz")
    prefdata.clean(path, tmp_path / "out", columns={"context": "context"}, only=["malformed"])
    assert [r["prompt"] for r in loaded(tmp_path / "out")] == [f"{r['question']}\n\n{r['context']}" for r in rows]
