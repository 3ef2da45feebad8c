"""Columns that look like a pair and are none, and rows of other shapes that come late: nothing is misread in silence."""

import pytest
from written import dropped, write_lines

import prefdata
from prefdata.shapes import SHAPES

TWO = {"response_a": "The good one.", "response_b": "The bad one."}


def read(rows, **options):
    return prefdata.audit(rows, only=["malformed"], **options)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_rows_of_another_shape_may_come_late(shape):
    """Behind the rows that detection looks at, they are read as they are among the first."""
    plain = [{"prompt": f"What is {i}?", "chosen": f"It is {i}.", "rejected": "No."} for i in range(1200)]
    late, early = read([*plain, *shape.example, *shape.example]), read([*plain[:5], *shape.example, *shape.example])
    shapes = dict(late.report.source["shapes"])
    shapes["explicit"] -= 1195
    assert shapes == early.report.source["shapes"] and late.counts["reasons"] == early.counts["reasons"]


@pytest.mark.parametrize(
    "names",
    [
        {"chosen": "A", "rejected": "B"},
        {"chosen": "response_a", "rejected": "response_b"},
        {"better": "A", "worse": "B"},
    ],
)
def test_names_of_answers_are_no_answers(tmp_path, names):
    rows = [{"prompt": f"Question {i}?", **TWO, **names} for i in range(3)]
    result = prefdata.clean(rows, tmp_path / "out", only=["malformed"])
    assert result.dataset["train"]["chosen"] == ["The good one."] * 3


def test_the_answer_of_a_task_is_no_preference():
    with pytest.raises(prefdata.PrefdataError, match="no columns that say which answer is better"):
        read([{"prompt": "Pick.", **TWO, "answer": "A"}])


def test_labels_that_speak_against_each_other_are_refused():
    rows = [{"prompt": f"Question {i}?", **TWO, "gold": "A", "winner": "model_b"} for i in range(3)]
    with pytest.raises(prefdata.PrefdataError, match="'gold' and 'winner' name different answers"):
        read(rows)
    assert read(rows, columns={"label": "winner"}).counts["kept"] == 3


def test_a_scale_without_a_negative_number_is_not_guessed():
    rows = [{"prompt": "Pick.", "response_1": "x y", "response_2": "z", "overall_preference": v} for v in (0, 1, 3)]
    with pytest.raises(prefdata.PrefdataError, match="--labels"):
        read(rows)


def test_a_zero_that_comes_late_is_not_taken_for_a_tie():
    rows = [
        {"prompt": f"Question {i}?", "output_1": "x y", "output_2": "z", "label": int(i < 1100)} for i in range(1150)
    ]
    with pytest.raises(prefdata.PrefdataError, match="has the value 0, unlike its first rows"):
        read(rows)


def test_one_value_cannot_mean_two_answers():
    with pytest.raises(prefdata.PrefdataError, match="one value is said to mean two things"):
        read([{"prompt": "Pick.", **TWO, "label": 1}], labels={"first": "1", "second": "1"})


def test_a_history_is_asked_too(tmp_path):
    row = {
        "instruction": "And then?",
        "input": "",
        "history": [["What is dew?", "Drops."]],
        "chosen": "It dries.",
        "rejected": "No.",
    }
    result = prefdata.clean([row], tmp_path / "out", only=["malformed"])
    asked = result.dataset["train"][0]["prompt"]
    assert [m["content"] for m in asked] == ["What is dew?", "Drops.", "And then?"]
    assert read([{**row, "history": [["What?"]]}]).counts["reasons"] == {"bad_messages": 1}


def test_a_conversation_beside_its_answers(tmp_path):
    """The chosen answer is not asked as well."""
    talk = [{"role": "user", "content": "What is dew?"}, {"role": "assistant", "content": "Drops."}]
    result = prefdata.clean(
        [{"messages": talk, "chosen": "Drops.", "rejected": "A fish."}], tmp_path / "out", only=["malformed"]
    )
    assert result.dataset["train"][0]["prompt"] == talk[:1]


def test_utf_16_without_its_mark(cli, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes('{"prompt": "a", "chosen": "b", "rejected": "c"}\n'.encode("utf-16-le"))
    ended = cli("audit", path, "--encoding", "utf-16")
    assert ended.code == 2 and "Try utf-16-le" in ended.err
    assert cli("audit", path, "--encoding", "utf-16-le").code == 0


def test_a_name_that_is_too_long(cli, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    ended = cli("clean", path, tmp_path / ("x" * 300))
    assert ended.code == 2 and "File name too long" in ended.err and "Traceback" not in ended.err


# ------------------------------------------------------------------------------------------------ options


@pytest.mark.parametrize("options", [{"labels": {"first": "1", "second": "2"}}, {"pairs": "all"}, {"ties": "keep"}])
def test_options_that_would_do_nothing_are_refused(options):
    with pytest.raises(prefdata.PrefdataError, match=f"--{next(iter(options))}"):
        read([{"prompt": "What is dew?", "chosen": "Drops.", "rejected": "A fish."}], **options)


def test_a_path_that_leads_to_nothing_is_refused():
    with pytest.raises(prefdata.PrefdataError, match="leads to nothing"):
        read([{"m": {"a": "What is dew?"}, "chosen": "Drops.", "rejected": "A fish."}], columns={"prompt": "m.b"})


def test_a_part_that_is_named_twice_is_refused(cli, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [{"q": "a", "prompt": "b", "chosen": "c", "rejected": "d"}])
    ended = cli("audit", path, "--columns", "prompt=q,prompt=prompt")
    assert ended.code == 2 and "prompt=...: is there twice" in ended.err


@pytest.mark.parametrize("shape", ["conversation", "transcript"])
def test_a_shape_is_forced_on_rows_that_have_another(shape):
    result = read([{"prompt": "What is dew?", "chosen": "Drops.", "rejected": "A fish."}], shape=shape)
    assert result.counts["reasons"] == {"bad_type": 1} and result.report.source["shape"] == shape


# ------------------------------------------------------------------------------------------------ ties, ids


def test_equal_scores_that_are_kept_are_flagged_and_have_no_vote():
    """A tie speaks neither for nor against another row of the same two answers."""
    even = {"score_chosen": 5, "score_rejected": 5}
    rows = [
        {
            "prompt": "Which?",
            "chosen": "The tall one.",
            "rejected": "The small one.",
            "score_chosen": 9,
            "score_rejected": 1,
        },
        {"prompt": "Which?", "chosen": "The small one.", "rejected": "The tall one.", **even},
    ]
    assert read(rows).counts["reasons"] == {"tie": 1}
    kept = prefdata.audit(rows, only=["contradiction"], ties="keep")
    found = {(d["stage"], d["row"]): d["reason"] for d in kept.decisions.to_pylist() if d["reason"]}
    assert kept.counts["kept"] == 2 and found == {("malformed", 1): "tie"}


def test_a_label_that_is_a_kept_tie_has_no_vote():
    rows = [{"prompt": "Which?", **TWO, "winner": w} for w in ("model_a", "tie", "tie")]
    swapped = {"prompt": "Which?", "response_a": TWO["response_b"], "response_b": TWO["response_a"], "winner": "tie"}
    kept = prefdata.audit([*rows, swapped], only=["contradiction"], ties="keep")
    assert kept.counts["kept"] == 4
    assert {d["reason"] for d in kept.decisions.to_pylist()} == {None, "tie"}


def test_a_dropped_row_names_its_peer_by_the_id_that_is_published(tmp_path):
    """Pair numbers and ids differ where a row gives several pairs."""
    ranked = {
        "prompt": "Rank them.",
        "completions": [{"response": t, "score": s} for t, s in (("a b", 3), ("c d", 2), ("e f", 1))],
    }
    prefdata.clean(
        [ranked, {**ranked, "prompt": "Again."}, {**ranked, "prompt": "Again."}],
        tmp_path / "out",
        pairs="all",
        only=["exact_duplicate"],
    )
    rows = dropped(tmp_path / "out")
    assert [(r["pd_id"], r["pd_peer"]) for r in rows] == [(f"2.{k}", f"1.{k}") for k in range(3)]
    assert all(f"of row {r['pd_peer']}" in r["pd_reason"] for r in rows)


def test_another_encoding_is_read_anew(tmp_path):
    """What an earlier run measured of the same bytes is of no use, though the places of the lines are the same."""
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"prompt": "Which?", "chosen": "\xe4", "rejected": "a"}\n')
    for encoding, text in (("latin-1", "\u00e4"), ("cp1251", "\u0434")):
        options = {"encoding": encoding, "keep_scratch": True, "resume": encoding != "latin-1"}
        result = prefdata.clean(str(path), tmp_path / "out", only=["malformed"], **options)
        assert result.dataset["train"]["chosen"] == [text]


def test_explain_row_of_a_digit_that_is_no_number(cli, tmp_path):
    prefdata.clean([{"prompt": "Which?", "chosen": "b", "rejected": "a"}], tmp_path / "out", only=["malformed"])
    ended = cli("explain-row", tmp_path / "out", "\u00b2")
    assert ended.code == 2 and "has no row \u00b2" in ended.err
