"""Several annotators of one pair: the majority decides, and how clear it was stays known."""

import csv
import gzip
import io
import json
from collections import Counter, defaultdict

import pyarrow.parquet as pq
import pytest
from shaped import made, published_rows

import prefdata
from prefdata.shapes import comparisons, votes


def asked(number, *given, stem="annotator", first="response1", second="response2"):
    held = {f"{stem}{i}": g for i, g in enumerate(given, 1)}
    return {"id": number, "instruction": f"Question {number}?", first: "one", second: "two", **held}


def told(rows):
    return {
        r["id"]: (r["chosen"], r["pd_votes"], round(r["pd_agreement"], 3), round(r["pd_strength"], 3)) for r in rows
    }


def test_the_majority_of_columns(tmp_path):
    rows = [asked(0, 1, 1, 1), asked(1, 2, 1, 2), asked(2, 1, 0, 1), asked(3, None, 2, "garbage")]
    kept, gone, source = made(tmp_path, rows)
    assert not gone and source["shape"] == "votes"
    assert told(kept) == {
        0: ("one", 3, 1.0, 1.0),
        1: ("two", 3, 0.667, 0.333),
        2: ("one", 3, 0.667, 0.667),
        3: ("two", 1, 1.0, 1.0),
    }
    assert kept[1]["annotator1"] == 2  # carried as it came


def test_no_majority_is_a_tie_and_no_vote_a_missing_label(tmp_path):
    rows = [asked(0, 1, 2, 0), asked(1, 1, 2, None), asked(2, 0, 0, 1), asked(3, None, None, None), asked(4, 1, 1, 2)]
    _, gone, _ = made(tmp_path, rows)
    assert {r["id"]: (r["pd_code"], r["pd_reason"], r["pd_votes"]) for r in gone} == {
        0: ("tie", "1 of 3 votes for each", 3), 1: ("tie", "1 of 2 votes for each", 2),
        2: ("tie", "2 of 3 votes for a tie", 3), 3: ("missing_label", "annotator1, annotator2, annotator3 is null", 0),
    }  # fmt: skip
    kept, gone, _ = made(tmp_path, rows, ties="keep")
    assert {r["id"]: r["pd_strength"] for r in kept} == {0: 0.0, 1: 0.0, 2: 0.0, 4: pytest.approx(1 / 3)}
    assert [r["pd_code"] for r in gone] == ["missing_label"]


@pytest.mark.parametrize("stem", ["annotator_", "rater", "vote_", "label_", "judge_"])
def test_names_of_annotators(tmp_path, stem):
    kept, _, source = made(tmp_path, [asked(0, "A", "B", "B", stem=stem), asked(1, "A", "A", "tie", stem=stem)])
    assert {r["id"]: r["chosen"] for r in kept} == {0: "two", 1: "one"} and source["shape"] == "votes"


def test_two_labels_of_two_answers_are_not_votes(tmp_path):
    with pytest.raises(prefdata.PrefdataError, match="no columns that say which answer is better"):
        made(tmp_path, [asked(0, 1, 2, stem="label_", first="output_1", second="output_2")])


def test_a_list_of_votes(tmp_path):
    rows = [
        {"id": i, "prompt": "?", "output_1": "one", "output_2": "two", "votes": v}
        for i, v in enumerate([[1, 2, 1], [2, 2, 0], []])
    ]
    kept, gone, _ = made(tmp_path, rows)
    assert {r["id"]: (r["chosen"], r["pd_votes"]) for r in kept} == {0: ("one", 3), 1: ("two", 3)}
    assert [(r["id"], r["pd_code"]) for r in gone] == [(2, "missing_label")]
    judged = [{**r, "votes": [{"judge": f"j{i}", "vote": v} for i, v in enumerate(r["votes"])]} for r in rows]
    kept, _, _ = made(tmp_path, judged)
    assert {r["id"]: r["chosen"] for r in kept} == {0: "one", 1: "two"}


def test_a_gold_label_counts_before_votes_which_are_carried(tmp_path):
    rows = [
        {"id": i, "input": "?", "output_1": "one", "output_2": "two", "votes": [{"vote": 1}], "gold": 2} for i in (0, 1)
    ]
    kept, _, source = made(tmp_path, rows)
    assert [r["chosen"] for r in kept] == ["two", "two"] and source["shape"] == "two_answers" and kept[0]["votes"]


def cast(rows):
    return {r["id"]: (r["pd_annotations"], r.get("pd_annotators")) for r in rows}


def test_single_votes_and_whose_they_are(tmp_path):
    """1 for the answer that is called chosen, -1 for the other, 0 for a tie; a missing vote is left out."""
    rows = [
        asked(0, 1, 1, 2),
        asked(1, 2, 0, 2),
        asked(2, None, 2, "garbage"),
        asked(3, 1, 2, None),
        asked(4, None, None, None),
    ]
    kept, gone, _ = made(tmp_path, rows)
    names = ["annotator1", "annotator2", "annotator3"]
    assert cast(kept) == {0: ([1, 1, -1], names), 1: ([1, 0, 1], names), 2: ([1], names[1:2])}
    assert cast(gone) == {3: ([1, -1], names[:2]), 4: (None, None)}  # a tie: in the order of the source


def test_names_in_a_list_of_votes_and_none(tmp_path):
    rows = [
        {"id": i, "prompt": "?", "output_1": "one", "output_2": "two", "votes": v}
        for i, v in enumerate([[1, 2, 2], [2, 0, 2]])
    ]
    kept, _, _ = made(tmp_path, rows)
    assert cast(kept) == {0: ([-1, 1, 1], None), 1: ([1, 0, 1], None)} and "pd_annotators" not in kept[0]
    judged = [{**r, "votes": [{"judge": f"j{k}", "vote": v} for k, v in enumerate(r["votes"])]} for r in rows]
    del judged[1]["votes"][0]["judge"]
    kept, _, _ = made(tmp_path, judged)
    assert cast(kept) == {0: ([-1, 1, 1], ["j0", "j1", "j2"]), 1: ([1, 0, 1], ["", "j1", "j2"])}


def test_single_votes_of_rows_are_turned_with_their_answers(tmp_path):
    rows = [
        {**judgement("p1", "a-is-better"), "id": 0}, {**judgement("p2", "a-is-slightly-better", turned=True), "id": 0},
        {**judgement(7, "b-is-better"), "id": 0}, {**judgement("p3", None), "id": 0},
    ]  # fmt: skip
    kept, _, _ = made(tmp_path, rows)
    assert [(r["chosen"], r["pd_annotations"], r["pd_annotators"]) for r in kept] == [
        ("two", [-1, 1, 1], ["p1", "p2", "7"])
    ]


def test_a_pair_that_is_turned_round_takes_its_votes_along(tmp_path):
    (tmp_path / "turns.py").write_text(
        "from typing import ClassVar\nimport prefdata\n\nclass Turns(prefdata.Stage):\n"
        '    """Turns."""\n    reasons: ClassVar = {"wrong": "x"}\n    def decide(self, signals):\n'
        "        out = prefdata.Decisions(signals.index)\n        out.mark(signals.index == 0, 'swap', 'wrong')\n        return out\n"
    )
    (tmp_path / "p.yaml").write_text("version: 1\nstages:\n  - malformed\n  - ./turns.py\n")
    prefdata.clean([asked(0, 1, 1, 2), asked(1, 2, 0, 2)], tmp_path / "out", pipeline=str(tmp_path / "p.yaml"))
    kept = pq.read_table(tmp_path / "out/data/train").to_pylist()
    assert [(r["chosen"], r["pd_annotations"]) for r in kept] == [("two", [-1, -1, 1]), ("two", [1, 0, 1])]


def judgement(who, label, prompt="Question?", turned=False, **more):
    answers = ("two", "one") if turned else ("one", "two")
    return {
        "prompt": prompt,
        "completion_a": answers[0],
        "completion_b": answers[1],
        "preference": label,
        "evaluator": who,
        **more,
    }


def test_rows_of_one_vote_each_become_one_pair(tmp_path):
    rows = [
        judgement("p1", "a-is-better"),
        judgement("p1", "b-is-better", prompt="Another?"),
        judgement("p2", "b-is-slightly-better", turned=True),  # the columns are swapped: also for "one"
        judgement("p3", "b-is-better"),
    ]
    kept, gone, source = made(tmp_path, rows)
    assert not gone and source["shapes"] == {"votes_in_rows": 4} and source["rows"] == 4
    found = {r["prompt"]: r for r in kept}
    assert (found["Question?"]["chosen"], found["Another?"]["chosen"]) == ("one", "two")
    assert found["Question?"]["pd_votes"] == 3 and found["Question?"]["pd_agreement"] == pytest.approx(2 / 3)
    assert found["Question?"]["pd_strength"] == pytest.approx((1 + 0.5 - 1) / 3)
    assert found["Question?"]["pd_rows"] == [0, 2, 3] and found["Another?"]["pd_votes"] == 1


def test_rows_without_a_vote_do_not_count(tmp_path):
    rows = [
        judgement("p1", None),
        judgement("p2", "b-is-better"),
        judgement("p1", "", prompt="None?"),
        judgement("p2", None, prompt="None?"),
    ]
    kept, gone, _ = made(tmp_path, rows)
    assert [(r["chosen"], r["pd_votes"]) for r in kept] == [("two", 1)]
    assert [(r["prompt"], r["pd_code"]) for r in gone] == [("None?", "missing_label")]


def test_people_who_disagree_are_a_tie(tmp_path):
    rows = [
        judgement("p1", "a-is-better"),
        judgement("p2", "a-is-better", turned=True),
        judgement("p1", "a-is-better", prompt="x?"),
    ]
    kept, gone, _ = made(tmp_path, rows)
    assert [r["prompt"] for r in kept] == ["x?"]
    assert [(r["pd_code"], r["pd_reason"]) for r in gone] == [("tie", "1 of 2 votes for each")]


def test_one_judge_or_no_pair_twice_is_read_row_by_row(tmp_path):
    same = [judgement("p1", "a-is-better"), judgement("p1", "b-is-better")]
    assert made(tmp_path, same)[2]["shapes"] == {"two_answers": 2}
    other = [judgement("p1", "a-is-better"), judgement("p2", "b-is-better", prompt="x?")]
    assert made(tmp_path, other)[2]["shapes"] == {"two_answers": 2}
    named = {"annotator": "evaluator"}
    assert made(tmp_path, other, columns=named)[2]["shapes"] == {"votes_in_rows": 2}


def test_judges_of_conversations(tmp_path):
    """MT-Bench: several judges a pair and turn, the models in either order."""
    one, two = ([{"role": "user", "content": "?"}, {"role": "assistant", "content": t}] for t in ("one", "two"))
    rows = [
        {"question_id": 1, "model_a": "m1", "model_b": "m2", "winner": "model_a", "judge": "j1", "conversation_a": one, "conversation_b": two, "turn": 1},
        {"question_id": 1, "model_a": "m2", "model_b": "m1", "winner": "model_b", "judge": "j2", "conversation_a": two, "conversation_b": one, "turn": 1},
    ]  # fmt: skip
    kept, _, source = made(tmp_path, rows)
    assert len(kept) == 1 and kept[0]["chosen"] == one[1:] and kept[0]["pd_votes"] == 2
    assert json.loads(kept[0]["pd_chosen_info"]) == {"model": "m1"} and source["shapes"] == {"votes_in_rows": 2}


def test_several_answers_each_compared_with_each(tmp_path):
    row = {"question": "?", "prediction 1": "one", "prediction 2": "two", "prediction 3": "three"}
    rows = [
        {**row, "id": 0, "preference": [1, 0, 2]},
        {**row, "id": 1, "preference": None},
        {**row, "id": 2, "preference": [2, 2]},
    ]
    kept, gone, source = made(tmp_path, rows[:2] * 1)
    assert [(r["pd_id"], r["chosen"], r["rejected"]) for r in kept] == [("0.0", "one", "two"), ("0.2", "three", "two")]
    assert [(r["pd_id"], r["pd_code"], r["pd_reason"]) for r in gone] == [
        ("0.1", "tie", "preference[1] is 0"), *((f"1.{i}", "missing_label", "preference is null") for i in range(3)),
    ]  # fmt: skip
    assert source["shapes"] == {"comparisons": 2}
    gone = made(tmp_path, [rows[0]] * 1000 + [rows[2]])[1]
    assert (gone[-1]["pd_code"], gone[-1]["id"]) == ("bad_type", 2)


def test_each_example_is_read_as_its_shape(tmp_path):
    for shown in (*votes.SHOWN, *comparisons.SHOWN):
        kept, _, source = made(tmp_path, shown.example)
        assert set(source["shapes"]) == {shown.name} and kept[0]["chosen"] == "Honey."


# ------------------------------------------------------------------------------------------------ published sets


def majority(given):
    """The side with strictly the most votes, 0 where there is none."""
    most = Counter(given).most_common()
    return 0 if len(most) > 1 and most[0][1] == most[1][1] else most[0][0]


def test_pandalm(shared, tmp_path):
    rows = published_rows(shared, "pandalm/testset-v1.json.gz")
    path = shared / "data/pandalm/testset-v1.json.gz"
    winners = [majority([r[f"annotator{i}"] for i in (1, 2, 3)]) for r in rows]
    texts = [all(isinstance(r[f"response{i}"], str) for i in (1, 2)) for r in rows]
    result = prefdata.clean(str(path), tmp_path / "out", only=["malformed"])
    found = result.counts["reasons"]
    assert result.counts["pairs"] == len(rows) == 999
    assert found["bad_type"] == texts.count(False) == 6
    assert found["tie"] == sum(w == 0 for w, t in zip(winners, texts, strict=True) if t)
    assert "missing_label" not in found
    kept = {int(r["pd_id"]): r for r in pq.read_table(tmp_path / "out/data/train").to_pylist()}
    for number, row in kept.items():
        assert row["chosen"] == rows[number][f"response{winners[number]}"]
        counted = Counter(rows[number][f"annotator{i}"] for i in (1, 2, 3))
        assert row["pd_agreement"] == pytest.approx(counted[winners[number]] / 3)
    assert sum(r["pd_agreement"] == 1 for r in kept.values()) > 0.8 * len(kept)


def test_open_instruct(shared, tmp_path):
    path = shared / "data/open-instruct-human-eval/eval_annotations.part1.csv.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode("utf-8-sig"), newline="")))
    groups = defaultdict(list)
    for row in rows:
        one, two = row["completion_a"], row["completion_b"]
        better = one if row["preference"].startswith("a-") else two if row["preference"].startswith("b-") else "tie"
        groups[row["prompt"], *sorted((one, two))].append((better, row["preference"]))
    winners = {k: majority([b for b, _ in v]) for k, v in groups.items()}
    result = prefdata.clean(str(path), tmp_path / "out", only=["malformed"])
    assert len(rows) == 481 == result.report.source["rows"]
    assert result.counts["pairs"] == len(groups) == 403
    ties = sum(w in (0, "tie") for w in winners.values())
    assert result.counts["reasons"]["tie"] == ties and "missing_label" not in result.counts["reasons"]
    for row in pq.read_table(tmp_path / "out/data/train").to_pylist():
        key = (row["prompt"], *sorted((row["chosen"], row["rejected"])))
        assert row["chosen"] == winners[key] and row["pd_votes"] == len(groups[key])


def test_fine_grained_rlhf(shared, tmp_path):
    """Six comparisons a row, 1v2 1v3 1v4 2v3 2v4 3v4: 0 equal, 1 the first, 2 the second is better."""
    rows = published_rows(shared, "fine-grained-rlhf/qa_feedback.dev_feedback.json.gz")
    expected, ties = [], 0
    for number, row in enumerate(rows):
        places = [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]
        for k, (places_of, label) in enumerate(zip(places, row["preference"], strict=True)):
            ties += label == 0
            if label:
                better, worse = places_of if label == 1 else places_of[::-1]
                expected.append((f"{number}.{k}", row[f"prediction {better}"], row[f"prediction {worse}"]))
    result = prefdata.clean(
        str(shared / "data/fine-grained-rlhf/qa_feedback.dev_feedback.json.gz"), tmp_path / "out", only=["malformed"]
    )
    assert result.counts["pairs"] == 3000 and result.report.source["rows"] == 500
    assert result.counts["reasons"] == {"tie": ties} and ties == 384
    kept = pq.read_table(tmp_path / "out/data/train").to_pylist()
    assert [(r["pd_id"], r["chosen"], r["rejected"]) for r in kept] == expected
