"""Lists of answers with scores or ranks, as objects (``ranked``): which pairs they give, and what is told of the rest."""

import pytest
from written import dropped, loaded, report_of, write_lines

import prefdata
from prefdata.errors import ConfigError, InputError
from prefdata.shapes import Asked, find_reading, ranked
from prefdata.shapes.answers import picked


def cleaned(rows, out, **options):
    """(chosen, rejected, margin) of the kept pairs, in order."""
    prefdata.clean(rows, out, only=["malformed"], **options)
    return [(r["chosen"], r["rejected"], r["pd_margin"]) for r in loaded(out)]


def item(text, **more):
    return {"response": text, **more}


FEEDBACK = {
    "instruction": "Name a bird.",
    "completions": [
        item("An owl.", overall_score=10, model="a", **{"fine-grained_score": 2.0}),
        item("A wren.", overall_score=4, model="b", **{"fine-grained_score": 4.5}),
        item("A brick.", overall_score=7, model="c", **{"fine-grained_score": 1.0}),
        item("A kite.", overall_score=7, model="d", **{"fine-grained_score": 3.0}),
    ],
}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("best-worst", [("A wren.", "A brick.", 3.5)]),
        ("adjacent", [("A wren.", "A kite.", 1.5), ("A kite.", "An owl.", 1.0), ("An owl.", "A brick.", 1.0)]),
        (
            "all",
            [
                ("A wren.", "An owl.", 2.5), ("An owl.", "A brick.", 1.0), ("A kite.", "An owl.", 1.0),
                ("A wren.", "A brick.", 3.5), ("A wren.", "A kite.", 1.5), ("A kite.", "A brick.", 2.0),
            ],
        ),
    ],
)  # fmt: skip
def test_each_policy_gives_its_pairs_with_margin_and_origin(tmp_path, policy, expected):
    assert cleaned([FEEDBACK], tmp_path / "out", pairs=policy) == expected
    rows = loaded(tmp_path / "out")
    assert [r["prompt"] for r in rows] == ["Name a bird."] * len(expected)
    assert [r["pd_id"] for r in rows] == ([f"0.{i}" for i in range(len(expected))] if len(expected) > 1 else ["0"])
    assert "completions" not in rows[0] and rows[0]["pd_chosen_info"]["model"] == "b"
    source = report_of(tmp_path / "out")["source"]
    assert source["rows"] == 1 and source["pairs"] == len(expected) and source["shape"] == "ranked"
    assert source["columns"]["score"] == "completions.fine-grained_score"
    unused = source["changes"].get("answer in no pair: --pairs takes others")
    assert unused == (2 if policy == "best-worst" else None)


def test_the_user_names_the_rating(tmp_path):
    named = {"score": "completions.overall_score"}
    assert cleaned([FEEDBACK], tmp_path / "out", columns=named) == [("An owl.", "A wren.", 6.0)]
    with pytest.raises(ConfigError, match="by score or by rank"):
        prefdata.audit([FEEDBACK], columns={**named, "rank": "completions.overall_score"})


def test_the_user_names_list_text_and_order(tmp_path):
    rows = [
        {"q": "Go?", "options": [{"body": "No.", "stars": 1, "text": "x"}, {"body": "Yes.", "stars": 5, "text": "x"}]}
    ]
    with pytest.raises(InputError, match="no columns that say which answer is better"):
        prefdata.audit(rows)
    named = {"prompt": "q", "answers": "options.body", "score": "options.stars"}
    assert cleaned(rows, tmp_path / "out", columns=named) == [("Yes.", "No.", 4.0)]
    named = {"prompt": "q", "answers": "options.body", "rank": "options.stars"}
    assert cleaned(rows, tmp_path / "ranks", columns=named) == [("No.", "Yes.", 4.0)]


@pytest.mark.parametrize(
    ("row", "pair"),
    [
        ({"prompt": "P", "answers": [{"answer": "x", "rank": 3.0}, {"answer": "y", "rank": 1.0}]}, ("y", "x", 2.0)),
        ({"question": "P", "answers": [{"text": "x", "pm_score": 0, "selected": True}, {"text": "y", "pm_score": 3}]}, ("y", "x", 3.0)),
        ({"prompt": "P", "responses": [{"value": "x", "rating": "4"}, {"value": "y", "rating": "10"}]}, ("y", "x", 6.0)),
        ({"prompt": "P", "candidates": [{"content": "x", "ranking": 2}, {"content": "y", "ranking": 0}]}, ("y", "x", 2.0)),
        ({"question": "P", "answers": {"a_id": ["1", "2"], "text": ["x", "y"], "score": [5, 12]}}, ("y", "x", 7.0)),
        (
            {
                "prompt": "P",
                "completions": [
                    item("x", annotations={"honesty": {"Rating": "2"}, "helpfulness": {"Rating": "3"}}),
                    item("y", annotations={"honesty": {"Rating": "5"}, "helpfulness": {"Rating": "4"}}),
                    item("z", annotations={"honesty": {"Rating": "5"}, "helpfulness": {"Rating": "N/A"}}),
                ],
            },
            ("y", "x", 2.0),
        ),
    ],
    ids=["nectar", "stack-exchange", "argilla", "ranking", "lists-in-an-object", "aspects"],
)  # fmt: skip
def test_published_namings(tmp_path, row, pair):
    assert cleaned([row], tmp_path / "out") == [pair]
    assert report_of(tmp_path / "out")["source"]["shapes"] == {"ranked": 1}


def test_a_rank_counts_before_a_score(tmp_path):
    row = {"prompt": "P", "answers": [{"text": "x", "rank": 1, "score": 0.1}, {"text": "y", "rank": 2, "score": 0.9}]}
    assert cleaned([row], tmp_path / "out") == [("x", "y", 1.0)]


def ties():
    return {"prompt": "P", "answers": [{"text": t, "score": s} for t, s in (("a", 3), ("b", 5), ("c", 5), ("d", 3))]}


def test_ties_are_dropped_and_named(tmp_path):
    assert cleaned([ties()], tmp_path / "out", pairs="adjacent") == [("c", "a", 2.0)]
    found = [(r["chosen"], r["rejected"], r["pd_id"], r["pd_code"]) for r in dropped(tmp_path / "out")]
    assert found == [("b", "c", "0.0", "tie"), ("a", "d", "0.2", "tie")]
    assert "answers[1] and answers[2]" in dropped(tmp_path / "out")[0]["pd_reason"]
    assert cleaned([ties()], tmp_path / "best") == [("b", "a", 2.0)]  # the first of the best, the first of the worst


def test_ties_are_kept_when_asked(tmp_path):
    asked = {"pairs": "adjacent", "ties": "keep", "only": ["malformed", "contradiction"]}
    result = prefdata.clean([ties()], tmp_path / "out", **asked)
    found = [(r["chosen"], r["rejected"], r["pd_margin"], r["pd_strength"]) for r in loaded(tmp_path / "out")]
    assert found == [("b", "c", 0.0, 0.0), ("c", "a", 2.0, 1.0), ("a", "d", 0.0, 0.0)]
    assert [(d["row"], d["reason"]) for d in result.decisions.to_pylist() if d["action"] == "flag"] == [
        (0, "tie"),
        (2, "tie"),
    ]


def test_all_equal_answers_are_one_tie():
    row = {"prompt": "P", "answers": [{"text": t, "score": 1} for t in "abc"]}
    assert prefdata.audit([row]).counts["reasons"] == {"tie": 1}


def test_answers_without_a_score_are_left_out_and_counted(tmp_path):
    marks = [None, 1, "n/a", 3, float("nan")]
    rows = [{"prompt": "P", "answers": [{"text": f"t{i}", "score": m} for i, m in enumerate(marks)]}]
    assert cleaned(rows, tmp_path / "out", pairs="all") == [("t3", "t1", 2.0)]
    assert report_of(tmp_path / "out")["source"]["changes"]["answer without a score or rank left out"] == 3


def test_rows_without_a_pair_have_one_fault_that_says_why(tmp_path):
    def row(*answers):
        return {"prompt": "P", "answers": [{"text": t, "score": s} for t, s in answers]}

    rows = [row(("a", 1), ("b", 2)), row(("a", 1), ("b", None)), row(("a", 1)), row(), {"prompt": "P", "answers": None},
            {"prompt": "P", "answers": "a"}, row((None, 1), ("b", 2))]  # fmt: skip
    assert cleaned(rows, tmp_path / "out") == [("b", "a", 1.0)]
    found = [(r["pd_id"], r["pd_code"]) for r in dropped(tmp_path / "out")]
    assert found == [("1", "missing_label"), ("2", "missing_field"), ("3", "missing_field"), ("4", "missing_field"),
                     ("5", "bad_type"), ("6", "missing_field")]  # fmt: skip
    told = [r["pd_reason"] for r in dropped(tmp_path / "out")]
    assert "1 of 2 answers" in told[0] and "1 answers" in told[1] and "answers[0]" in told[5]


def test_the_same_text_twice_is_an_identical_pair():
    rows = [{"prompt": "P", "answers": [{"text": "a b c", "score": 1}, {"text": "a b c", "score": 2}]}]
    assert prefdata.audit(rows).counts["reasons"] == {"identical_pair": 1}


def test_prompts_of_messages_and_answers_of_messages(tmp_path):
    said = [{"role": "user", "content": "Hi"}]
    rows = [{"prompt": said, "completions": [
        {"messages": [{"role": "assistant", "content": "Hello."}], "score": 1}, {"messages": [{"role": "assistant", "content": "Go."}], "score": 0},
    ]}]  # fmt: skip
    prefdata.clean(rows, tmp_path / "out", only=["malformed"])
    (row,) = loaded(tmp_path / "out")
    assert row["prompt"] == said and row["chosen"] == [{"role": "assistant", "content": "Hello."}]


def test_lists_without_an_order_are_refused():
    for answers in ([{"text": "a"}, {"text": "b"}], [{"text": "a", "score": None}, {"text": "b"}], ["a", "b"]):
        with pytest.raises(InputError, match="no columns that say which answer is better"):
            prefdata.audit([{"prompt": "P", "answers": answers}])


def test_parquet_reads_as_json_does(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([FEEDBACK, FEEDBACK | {"instruction": "Again."}]), tmp_path / "rows.parquet")
    path = write_lines(tmp_path / "rows.jsonl", [FEEDBACK, FEEDBACK | {"instruction": "Again."}])
    for policy in ("adjacent", "all"):
        one = cleaned(str(path), tmp_path / f"json-{policy}", pairs=policy)
        assert one == cleaned(str(tmp_path / "rows.parquet"), tmp_path / f"parquet-{policy}", pairs=policy)
        ids = [[r["pd_id"] for r in loaded(tmp_path / f"{kind}-{policy}")] for kind in ("json", "parquet")]
        assert ids[0] == ids[1] and ids[0][-1].startswith("1.")


@pytest.mark.parametrize("name", ["one.jsonl", "one.json"])
def test_a_file_of_one_row_is_not_taken_for_a_list_of_rows(tmp_path, name):
    row = {"prompt": "P", "answers": [{"text": "a", "score": 1}, {"text": "b", "score": 2}]}
    assert cleaned(str(write_lines(tmp_path / name, [row])), tmp_path / "out") == [("b", "a", 1.0)]


def test_policies_over_scores():
    assert picked([1.0, 3.0, 2.0], "best-worst") == [(1, 0)]
    assert picked([2.0, 2.0, 2.0], "best-worst") == [(0, 1)]
    assert picked([1.0, 3.0, 1.0, 3.0], "best-worst") == [(1, 0)]
    assert picked([1.0, 3.0, 1.0, 3.0], "adjacent") == [(1, 3), (3, 0), (0, 2)]
    assert picked([1.0, 3.0, 1.0], "all") == [(1, 0), (0, 2), (1, 2)]


def test_examples_read_as_what_they_are_called():
    for shown in ranked.SHOWN:
        reading = find_reading(list(shown.example[0]), Asked(), shown.example, "example")
        name, made = reading.read(shown.example[0])
        assert name == shown.name and (made[0].chosen, made[0].rejected) == ("Honey.", "Milk.")


def test_dsp_domains_have_no_order_and_two_named_ones_make_pairs(shared):
    """661 rows, each with five answers by domain: no order of their own, so any two must be named."""
    path = shared / "data/dsp/domain_specific_preference.test.json.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with pytest.raises(InputError, match="no columns that say which answer is better"):
        prefdata.audit(str(path))
    named = {"chosen": "responses.academy", "rejected": "responses.normal"}
    result = prefdata.audit(str(path), columns=named)
    assert result.counts["pairs"] == 661 and result.report.source["columns"]["prompt"] == "query"
