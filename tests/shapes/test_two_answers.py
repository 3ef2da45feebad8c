"""Two answers and a label: which answer becomes chosen, for every way in which published sets say it."""

import csv
import io
import json

import pyarrow.parquet as pq
import pytest
from shaped import made, published_rows
from written import write_lines

import prefdata
from prefdata.shapes import two_answers


def won(tmp_path, rows, **options):
    """What became of each row, by ``id``: the text of the better answer, or the reason why it was dropped."""
    kept, gone, _ = made(tmp_path, rows, **options)
    return {r["id"]: r["chosen"] for r in kept} | {r["id"]: r["pd_code"] for r in gone}


def rows_with(label, values, first="output_1", second="output_2"):
    """A row a value; the first answer is ``one``, the second ``two``."""
    return [{"id": i, "prompt": f"Question {i}?", first: "one", second: "two", label: v} for i, v in enumerate(values)]


def outcome(tmp_path, label, values, first="output_1", second="output_2", **options):
    found = won(tmp_path, rows_with(label, values, first, second), **options)
    short = {"one": "1", "two": "2", "tie": "=", "missing_label": "-"}
    return "".join(short[found[i]] for i in range(len(values)))


@pytest.mark.parametrize(
    ("label", "values", "expected"),
    [
        ("preference", [1, 2, 2, 1], "1221"),
        ("preference", [1, 2, 0, None], "12=-"),
        ("preference", [1.0, 2.0, 0.0, float("nan")], "12=-"),
        ("preference", ["1", "2", "Tie", "garbage", ""], "12=--"),
        ("preference", [1.0, 1.5, 2.0], "1=2"),
        ("label", ["A", "B", "tie", "C"], "12=-"),
        ("winner", ["model_a", "model_b", "tie", "tie (bothbad)", "both_bad"], "12==="),
        ("winner", ["a", "b", "same", "neither", "equal"], "12==="),
        ("preferred", ["output_1", "output_2", "unknown"], "12-"),
        ("preferred", ["response_2", "Response 1", "Response 2 is better.", "Response 1 is worse"], "2122"),
        ("verdict", ["[[A]]", "[[B]]", "[[C]]"], "12="),
        ("verdict", ["A>B", "B>A", "A<B", "A=B", "[[A>>B]]"], "122=1"),
        ("choice", ["first", "second", "left", "right"], "1212"),
        ("preference", ["a-is-better", "b-is-slightly-better", "tie"], "12="),
        ("output_1_is_better", [True, False, None], "12-"),
        ("p_1", [0.9, 0.2, 0.5], "12="),
        ("prob_output_2", [0.9, 0.2], "21"),
        ("winner", ["A", "B", "A", "The first answer is right, but the second one shows its work and so " * 3], "121-"),
        ("overall_preference", [-3, 3, 0, -1, 1], "12=12"),
        ("preference_strength", [-2, 1, 0], "12="),
    ],
)
def test_what_labels_say(tmp_path, label, values, expected):
    assert outcome(tmp_path, label, values) == expected


def test_numbers_count_from_where_the_columns_do(tmp_path):
    assert outcome(tmp_path, "better_response_id", [0, 1], "response_0", "response_1") == "12"
    assert outcome(tmp_path, "label", [1, 1], "answer_0", "answer_1") == "22"
    assert outcome(tmp_path, "preferred", ["answer_0", "answer_1"], "answer_0", "answer_1") == "12"
    assert outcome(tmp_path, "label", [1, 1], "answer1", "answer2") == "11"
    assert outcome(tmp_path, "label", [2, 1], "text_a", "text_b") == "21"
    assert outcome(tmp_path, "labels", [1, 0], "human_ref_A", "human_ref_B") == "12"  # SHP: 1 is A
    assert outcome(tmp_path, "label", [0, 1, 2], "response 1", "response 2") == "12="  # Auto-J
    assert outcome(tmp_path, "a_is_better", [1, 0], "answer_a", "answer_b") == "12"
    assert outcome(tmp_path, "label_2_is_better", [True, False], "answer_1", "answer_2") == "21"
    rows = [{"id": i, "instruction": "?", "choices": ["one", "two"], "gt_choice": i} for i in range(2)]
    assert won(tmp_path, rows) == {0: "one", 1: "two"}
    assert won(tmp_path, rows[1:]) == {1: "two"}


@pytest.mark.parametrize(
    ("label", "values", "first", "second", "shown"),
    [
        ("label", [0, 1, 1], "output_1", "output_2", "0, 1"),
        ("label", [0, 1, 2], "answer_a", "answer_b", "0, 1, 2"),
        ("label", [0, 1, 2], "answer_0", "answer_1", "0, 1, 2"),
        ("label", [-1, 1], "output_1", "output_2", "-1, 1"),
        ("label", [True, False], "output_1", "output_2", "True, False"),
        ("label", [0.3, 0.8], "output_1", "output_2", "0.3, 0.8"),
        ("label", ["maths", "code", "maths"], "output_1", "output_2", '"maths", "code"'),
        ("label", [1, 2, 3], "output_1", "output_2", "1, 2, 3"),
    ],
)
def test_labels_that_are_not_clear_are_never_guessed(tmp_path, cli, label, values, first, second, shown):
    path = write_lines(tmp_path / "in.jsonl", rows_with(label, values, first, second))
    ended = cli("audit", path)
    assert ended.code == 2 and "Traceback" not in ended.all
    told = " ".join(ended.err.split())
    assert f"in.jsonl: the column '{label}' has {shown}" in told
    assert "--labels first=..,second=..,tie=.." in told


def test_the_user_says_what_labels_mean(tmp_path, cli):
    assert outcome(tmp_path, "label", [0, 1, 2, 7], labels={"first": "0", "second": "1", "tie": "2"}) == "12=-"
    assert outcome(tmp_path, "label", [1, 2], labels={"first": "2", "second": "1"}) == "21"
    assert outcome(tmp_path, "label", ["good", "poor", "meh"], labels={"first": "good", "second": "poor"}) == "12-"
    assert outcome(tmp_path, "label", [1, 2, 3], labels={"tie": "3"}) == "12="
    path = write_lines(tmp_path / "in.jsonl", rows_with("label", [0, 1]))
    assert cli("audit", path, "--labels", "first=0,second=1", "--exit-zero").code == 0
    ended = cli("audit", path, "--labels", "frist=0,second=1")
    assert ended.code == 2 and "Did you mean first?" in ended.err


def test_a_number_that_contradicts_the_first_rows_stops_the_run(tmp_path, cli):
    rows = rows_with("label", [0, 1] * 600 + [2], "answer_0", "answer_1")
    ended = cli("audit", write_lines(tmp_path / "in.jsonl", rows))
    told = " ".join(ended.err.split())
    assert ended.code == 2 and "in.jsonl: the column 'label' has the value 2, unlike its first rows" in told
    assert "--labels" in told and "Traceback" not in ended.all


def test_an_unknown_word_in_a_later_row_is_a_missing_label(tmp_path):
    values = ["A", "B"] * 600 + ["perhaps A", "b-is-slightly-better", None]
    assert outcome(tmp_path, "label", values)[1200:] == "-2-"
    with pytest.raises(prefdata.PrefdataError, match="has the value 1, unlike its first rows"):
        outcome(tmp_path, "label", [*values, 1])


def test_a_late_list_that_holds_three_answers_is_a_fault(tmp_path):
    rows = [{"prompt": "?", "choices": ["one", "two"], "gt_choice": 0}] * 1000
    _, gone, _ = made(tmp_path, [*rows, {"prompt": "?", "choices": ["one", "two", "three"], "gt_choice": 2}])
    assert [(r["pd_code"], r["pd_reason"]) for r in gone] == [("bad_type", "choices holds 3 answers, not two")]


def test_one_column_for_each_outcome(tmp_path):
    rows = [
        {
            "id": i,
            "prompt": "?",
            "response_a": "one",
            "response_b": "two",
            "winner_model_a": a,
            "winner_model_b": b,
            "winner_tie": t,
        }
        for i, (a, b, t) in enumerate([(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)])
    ]
    assert won(tmp_path, rows) == {0: "one", 1: "two", 2: "tie", 3: "missing_label"}


def test_a_tie_and_a_missing_label_tell_their_value_and_keep_both_answers(tmp_path):
    _, gone, _ = made(tmp_path, rows_with("preference", [0, None, 1, 2, "garbage"]))
    assert [(r["pd_code"], r["pd_reason"]) for r in gone] == [
        ("tie", "preference is 0"), ("missing_label", "preference is null"), ("missing_label", 'preference is "garbage"'),
    ]  # fmt: skip
    assert [(r["chosen"], r["rejected"]) for r in gone] == [("one", "two")] * 3


def test_ties_can_be_kept(tmp_path):
    kept, gone, _ = made(tmp_path, rows_with("preference", [1, 0, 2]), ties="keep")
    assert not gone and [(r["chosen"], r["pd_strength"]) for r in kept] == [("one", 1.0), ("one", 0.0), ("two", 1.0)]


@pytest.mark.parametrize(
    ("label", "values", "strengths"),
    [
        ("preference", [1.0, 1.25, 1.9, 1.5], [1.0, 0.5, 0.8, 0.0]),
        ("overall_preference", [-3, 1, 2, 0], [1.0, 1 / 3, 2 / 3, 0.0]),
        ("prob_1", [1, 0.75, 0.1], [1.0, 0.5, 0.8]),
        ("preference", ["a-is-better", "b-is-slightly-better", "tie"], [1.0, 0.5, 0.0]),
        ("verdict", ["A>>B", "B>A", "A=B"], [1.0, 0.5, 0.0]),
        ("preference", ["A is much better", "B is better", "A is slightly better"], [1.0, 2 / 3, 1 / 3]),
    ],
)
def test_labels_with_degrees_leave_a_strength(tmp_path, label, values, strengths):
    kept, gone, source = made(tmp_path, rows_with(label, values))
    found = {r["id"]: r["pd_strength"] for r in [*kept, *gone]}
    assert [found[i] for i in range(len(values))] == pytest.approx(strengths)
    assert "scale" in source["columns"]


def test_a_plain_label_leaves_no_strength(tmp_path):
    kept, _, source = made(tmp_path, rows_with("preference", [1, 2, 1.5, 0]))
    assert "pd_strength" not in kept[0] and "scale" not in source["columns"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("output_1", "output_2"), ("response1", "response2"), ("answer_a", "answer_b"), ("completion_a", "completion_b"),
        ("Response A", "Response B"), ("summary1", "summary2"), ("text_a", "text_b"), ("human_ref_A", "human_ref_B"),
        ("first_response", "second_response"), ("response 1", "response 2"), ("assistant_a", "assistant_b"),
    ],
)  # fmt: skip
def test_names_of_two_answers(tmp_path, first, second):
    rows = [
        {"id": 0, "prompt": "?", first: "one", second: "two", "winner": "A"},
        {"id": 1, "prompt": "?", first: "one", second: "two", "winner": "B"},
    ]
    assert won(tmp_path, rows) == {0: "one", 1: "two"}


def test_three_numbered_answers_are_not_two(tmp_path):
    row = {"prompt": "?", "output_1": "a", "output_2": "b", "output_3": "c", "label": 1}
    with pytest.raises(prefdata.PrefdataError, match="no columns that say which answer is better"):
        made(tmp_path, [row, row])


@pytest.mark.parametrize("name", ["choices", "responses", "completions", "answers", "outputs", "candidates"])
def test_a_list_of_two_and_the_place_of_the_better(tmp_path, name):
    kept, _, source = made(tmp_path, [{"question": "?", name: ["one", "two"], "label": i} for i in (0, 1)])
    assert [(r["chosen"], r["rejected"]) for r in kept] == [("one", "two"), ("two", "one")]
    assert source["columns"]["first"] == f"{name}.0" and name not in kept[0]


def test_answers_that_are_objects_or_messages(tmp_path):
    summaries = [{"text": "one", "policy": "sup4"}, {"text": "two", "policy": "ref"}]
    rows = [{"info": {"id": "t1", "post": "Long."}, "summaries": summaries, "choice": i} for i in (1, 0)]
    kept, _, _ = made(tmp_path, rows)
    assert [(r["prompt"], r["chosen"], json.loads(r["pd_chosen_info"])["policy"]) for r in kept] == [
        ("Long.", "two", "ref"), ("Long.", "one", "sup4"),
    ]  # fmt: skip
    assert json.loads(kept[0]["info"]) == {"id": "t1", "post": "Long."}
    assert json.loads(kept[0]["pd_rejected_info"]) == {"policy": "sup4"}
    turns = [[{"role": "assistant", "content": c}] for c in ("one", "two")]
    asked = [{"role": "user", "content": "?"}]
    kept, _, source = made(
        tmp_path, [{"context": asked, "response1": turns[0], "response2": turns[1], "overall_preference": 2}]
    )
    assert (kept[0]["prompt"], kept[0]["chosen"]) == (asked, turns[1]) and source["form"] == "chat"


def test_scores_decide_where_there_is_no_label(tmp_path):
    rows = [
        {"question": {"full_text": "Q?", "id": i}, "answer_0": "one", "score_0": a, "answer_1": "two", "score_1": b}
        for i, (a, b) in enumerate([(1.0, -1.0), (-0.5, 0.5), (0.0, 0.0), (None, 1.0)])
    ]
    kept, gone, _ = made(tmp_path, rows)
    assert [(r["prompt"], r["chosen"], r["pd_margin"]) for r in kept] == [("Q?", "one", 2.0), ("Q?", "two", 1.0)]
    assert [(r["pd_code"], r["pd_reason"]) for r in gone] == [
        ("tie", "score_0 is 0.0, score_1 is 0.0"), ("missing_label", "score_0 is null, score_1 is 1.0"),
    ]  # fmt: skip


def test_a_label_counts_before_scores_and_scores_against_it_are_found(tmp_path):
    rows = [
        {
            "id": i,
            "history": f"Q{i}?",
            "human_ref_A": "one thing",
            "human_ref_B": "two things",
            "score_A": a,
            "score_B": 5,
            "labels": 1,
        }
        for i, a in enumerate([9, 2])
    ]
    result = prefdata.audit(str(write_lines(tmp_path / "in.jsonl", rows)))
    assert result.counts["pairs"] == result.counts["kept"] == 2
    assert [d["row"] for d in result.decisions.to_pylist() if d["reason"] == "score_inverted"] == [1]


def test_who_wrote_the_answers_stays_known(tmp_path):
    rows = [{**r, "generator_1": "m1", "generator_2": "m2"} for r in rows_with("preference", [1, 2])]
    kept, _, _ = made(tmp_path, rows)
    assert [(json.loads(r["pd_chosen_info"]), json.loads(r["pd_rejected_info"])) for r in kept] == [
        ({"model": "m1"}, {"model": "m2"}), ({"model": "m2"}, {"model": "m1"}),
    ]  # fmt: skip
    assert kept[1]["generator_1"] == "m1"
    rows = [
        {
            "id": i,
            "prompt": "?",
            "response_a": "one",
            "response_b": "two",
            "model_a": "bee",
            "model_b": "cow",
            "winner": w,
        }
        for i, w in enumerate(["bee", "cow", "tie", "hen"])
    ]
    assert won(tmp_path, rows) == {0: "one", 1: "two", 2: "tie", 3: "missing_label"}


def test_the_better_response_counts_before_the_safer_one_which_is_told(tmp_path):
    rows = [
        {
            "id": i,
            "prompt": "?",
            "response_0": "one",
            "response_1": "two",
            "better_response_id": i,
            "safer_response_id": 1 - i,
        }
        for i in (0, 1)
    ]
    assert won(tmp_path, rows) == {0: "one", 1: "two"}
    columns = made(tmp_path, rows)[2]["columns"]
    assert columns["label"] == "better_response_id" and columns["unused labels"] == "safer_response_id"


def test_a_label_that_is_clear_counts_before_one_that_is_not(tmp_path):
    rows = [{**r, "label": "maths"} for r in rows_with("vote", ["A", "B"])]
    assert won(tmp_path, rows) == {0: "one", 1: "two"}


def test_columns_named_by_the_user(tmp_path):
    rows = [{"id": i, "ask": "?", "u": "one", "v": "two", "w": w} for i, w in enumerate(["u", "v", "tie"])]
    named = {"prompt": "ask", "first": "u", "second": "v", "label": "w"}
    assert won(tmp_path, rows, columns=named) == {0: "one", 1: "two", 2: "tie"}
    rows = rows_with("label", ["A", "B"], "answer_a", "answer_b")
    turned = {"first": "answer_b", "second": "answer_a"}
    assert won(tmp_path, rows, columns=turned) == {0: "one", 1: "two"}
    assert won(tmp_path, rows, columns=turned, labels={"first": "B", "second": "A"}) == {0: "one", 1: "two"}
    with pytest.raises(prefdata.PrefdataError, match="Name both"):
        won(tmp_path, rows, columns={"first": "answer_b"})


def test_no_label_column_is_refused(shared, cli):
    ended = cli("audit", shared / "cases/22-column-names/f_unknown.jsonl")
    assert ended.code == 2
    for word in ("question", "response_a", "response_b", "--columns"):
        assert word in ended.err


def test_exact_names_count_before_other_pairs_of_columns(shared):
    result = prefdata.audit(str(shared / "cases/22-column-names/g_two_candidates.jsonl"))
    assert result.counts["pairs"] == result.counts["kept"] == 1
    assert result.report.source["columns"] == {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"}


def test_each_example_is_read_as_its_shape(tmp_path):
    for shown in two_answers.SHOWN:
        kept, gone, source = made(tmp_path, shown.example)
        assert not gone and source["shape"] == shown.name
        assert [r["chosen"] for r in kept] == ["Honey."]


def test_a_spreadsheet_of_numbers_as_text(tmp_path):
    path, text = tmp_path / "in.csv", io.StringIO()
    csv.writer(text).writerows(
        [
            ["prompt", "output_1", "output_2", "label"],
            ["?", "one", "two", "1"],
            ["?", "one", "two", "2"],
            ["?", "one", "two", ""],
        ]
    )
    path.write_text(text.getvalue(), encoding="utf-8")
    prefdata.clean(str(path), tmp_path / "out", only=["malformed"])
    kept = pq.read_table(tmp_path / "out/data/train").to_pylist()
    assert [r["chosen"] for r in kept] == ["one", "two"]


# ------------------------------------------------------------------------------------------------ published sets


@pytest.mark.parametrize(
    "name",
    [
        "alpaca-7b.alpaca_eval_cot_gpt4_turbo_fn",
        "alpaca-7b.weighted_alpaca_eval_gpt4_turbo",
        "text_davinci_001.alpaca_eval_gpt4",
    ],
)
def test_alpaca_eval(shared, name):
    """Published rule: 1 the first, 2 the second, between them a weight with 1.5 the tie; 0 is a tie too, null no answer."""
    rows = published_rows(shared, f"alpaca-eval/{name}.annotations.json.gz")
    values = [r["preference"] for r in rows]
    result = prefdata.audit(str(shared / f"data/alpaca-eval/{name}.annotations.json.gz"), only=["malformed"])
    found = result.counts["reasons"]
    assert result.counts["pairs"] == len(values) == 805
    assert found.get("tie", 0) == sum(v in (0, 1.5) for v in values) and found.get("missing_label", 0) == values.count(
        None
    )
    assert found["tie"] == (20 if "davinci" in name else 3)


@pytest.mark.parametrize(
    ("name", "label", "rows"),
    [
        ("llmbar/Natural.json", "label", 100), ("llmbar/Adversarial-Neighbor.json", "label", 134),
        ("llmbar/Processed-LLMEval2.json", "label", 200), ("llmbar/Processed-FairEval.json", "label", 66),
        ("llmbar/judge_votes_with_gold.jsonl.gz", "gold", 500),
    ],
)  # fmt: skip
def test_llmbar(shared, tmp_path, name, label, rows):
    source = published_rows(shared, name)
    expected = [(r["input"], r[f"output_{r[label]}"], r[f"output_{3 - r[label]}"]) for r in source]
    result = prefdata.clean(str(shared / "data" / name), tmp_path / "out", only=["malformed"])
    kept = pq.read_table(tmp_path / "out/data/train").to_pylist()
    assert result.counts["pairs"] == len(source) == rows
    assert set(result.counts["reasons"]) <= {"empty_completion", "special_token"}
    assert [(r["prompt"], r["chosen"], r["rejected"]) for r in kept] == [
        e for e in expected if all(t.strip() for t in e)
    ]
    assert result.report.source["columns"]["label"] == label


@pytest.mark.parametrize(("name", "rows"), [("correctness", 660), ("efficiency", 352)])
def test_code_preferences(shared, tmp_path, name, rows):
    source = published_rows(shared, f"codeprefbench/{name}-alignment.jsonl.gz")
    prefdata.clean(str(shared / f"data/codeprefbench/{name}-alignment.jsonl.gz"), tmp_path / "out", only=["malformed"])
    kept = pq.read_table(tmp_path / "out/data/train").to_pylist()
    assert len(kept) == len(source) == rows
    assert [r["chosen"] for r in kept] == [r["choices"][r["gt_choice"]] for r in source]
    assert [r["rejected"] for r in kept] == [r["choices"][1 - r["gt_choice"]] for r in source]


@pytest.mark.parametrize("name", ["gpt-3.5-turbo", "pandalm-7b"])
def test_verdicts_without_answers_are_refused_in_one_sentence(shared, cli, name):
    ended = cli("audit", shared / f"data/pandalm/{name}-testset-v1.json.gz")
    assert ended.code == 2 and "no columns that say which answer is better (columns: idx, " in " ".join(
        ended.err.split()
    )
