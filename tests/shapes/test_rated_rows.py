"""One rated answer a row: rows of one prompt make pairs by their scores."""

import gzip
import json
import re
from collections import defaultdict

import pytest
from written import dropped, loaded, write_lines

import prefdata
from prefdata.errors import InputError
from prefdata.shapes import rated_rows


def rated(prompt, answer, score, **more):
    return {"prompt": prompt, "response": answer, "score": score, **more}


def cleaned(rows, tmp_path, **options):
    prefdata.clean(rows, tmp_path / "out", only=["malformed"], **options)
    return loaded(tmp_path / "out")


@pytest.mark.parametrize("shown", rated_rows.SHOWN, ids=lambda s: s.name)
def test_the_example_is_of_the_shape(shown):
    result = prefdata.audit(list(shown.example))
    assert result.report.source["shape"] == shown.name and result.counts["kept"] == 1


ROWS = [rated("Q?", "middle", 3, model="m"), rated("R?", "right", 5, model="a"), rated("Q?", "worst", "1.5", model="w"),
        rated("Q?", "best", [4, 5, 4], model="b"), rated("R?", "left", 2, model="a")]  # fmt: skip


def test_pairs_by_score_with_margin_and_what_is_known_of_each_answer(tmp_path):
    made = {r["prompt"]: r for r in cleaned(ROWS, tmp_path)}
    assert {p: (r["chosen"], r["rejected"]) for p, r in made.items()} == {
        "Q?": ("best", "worst"),
        "R?": ("right", "left"),
    }
    assert made["Q?"]["pd_margin"] == pytest.approx(13 / 3 - 1.5) and made["R?"]["pd_margin"] == 3
    assert made["Q?"]["pd_chosen_info"] == {"score": [4, 5, 4], "model": "b"}
    assert made["Q?"]["pd_rejected_info"] == {"score": "1.5", "model": "w"}
    assert made["R?"]["model"] == "a"  # of both answers
    assert made["Q?"]["pd_rows"] == [3, 2] and made["Q?"]["pd_id"] == "3"


@pytest.mark.parametrize(("policy", "expected"), [
    ("adjacent", {("best", "middle"), ("middle", "worst"), ("right", "left")}),
    ("all", {("best", "middle"), ("middle", "worst"), ("best", "worst"), ("right", "left")}),
])  # fmt: skip
def test_policies(tmp_path, policy, expected):
    made = cleaned(ROWS, tmp_path, pairs=policy)
    assert {(r["chosen"], r["rejected"]) for r in made} == expected
    assert len({r["pd_id"] for r in made}) == len(expected)


def test_an_answer_in_no_pair_is_counted():
    changes = prefdata.audit(ROWS).report.source["changes"]
    assert [n for change, n in changes.items() if "in no pair" in change] == [1]


def test_equal_scores_are_a_tie(tmp_path):
    rows = [rated("Q?", "one", 3), rated("Q?", "two", 3.0), rated("R?", "right", 5), rated("R?", "left", 2)]
    assert prefdata.audit(rows).counts["reasons"] == {"tie": 1}
    made = cleaned(rows, tmp_path, ties="keep")
    assert [(r["chosen"], r["pd_strength"]) for r in made] == [("one", 0.0), ("right", 1.0)]


def test_broken_rows_and_lone_answers_have_a_reason_each(tmp_path):
    rows = [*ROWS, rated("Q?", "none", None), rated("Q?", "words", "good"), rated("Q?", "", 9), rated("S?", "alone", 4),
            rated(None, "x", 3), rated("R?", "gap", [3, None])]  # fmt: skip
    path = write_lines(tmp_path / "in.jsonl", rows)
    result = prefdata.clean(str(path), tmp_path / "out", only=["malformed"])
    assert {(r["pd_line"], r["pd_code"]) for r in dropped(tmp_path / "out")} == {
        (6, "missing_label"), (7, "missing_label"), (8, "empty_completion"), (9, "unpaired"), (10, "missing_field"), (11, "missing_label"),
    }  # fmt: skip
    assert result.counts["pairs"] == 8 and result.counts["kept"] == 2


def test_one_answer_a_prompt_is_refused_in_one_sentence(cli, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [rated(f"Q{i}?", "a", i % 5) for i in range(30)])
    ended = cli("audit", path)
    assert ended.code == 2 and "has one rated answer (response, score) for each prompt" in " ".join(ended.err.split())


def test_a_prompt_may_stand_again_beyond_the_first_rows():
    rows = [rated(f"Q{i}?", f"answer {half}", half) for half in (0, 1) for i in range(1200)]
    result = prefdata.audit(rows, only=["malformed"])
    assert result.counts == {"pairs": 1200, "kept": 1200, "dropped": 0, "flagged": 0, "added": 0, "reasons": {}}


def test_helpsteer_counts_by_helpfulness(tmp_path):
    def row(answer, helpfulness, verbosity):
        aspects = {
            "helpfulness": helpfulness,
            "correctness": 4,
            "coherence": 4,
            "complexity": 2,
            "verbosity": verbosity,
        }
        return {"prompt": "Q?", "response": answer, **aspects}

    (made,) = cleaned([row("wordy", 1, 4), row("brief", 4, 1)], tmp_path)
    assert made["chosen"] == "brief" and made["pd_margin"] == 3 and made["correctness"] == 4
    (made,) = cleaned(
        [row("wordy", 1, 4), row("brief", 4, 1)], tmp_path, columns={"score": "verbosity"}, overwrite=True
    )
    assert made["chosen"] == "wordy"


def test_ratings_by_aspect_alone_are_not_guessed():
    rows = [{"prompt": "Q?", "response": a, "verbosity": n, "coherence": n} for n, a in enumerate("ab")]
    with pytest.raises(InputError, match=r"not clear.*--columns score="):
        prefdata.audit(rows)


def test_whole_conversations_with_a_score(tmp_path):
    rows = [
        {"messages": [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": a}], "reward": n}
        for n, a in enumerate("ab")
    ]
    (made,) = cleaned(rows, tmp_path)
    assert made["chosen"][0]["content"] == "b" and made["prompt"][0]["content"] == "Q?"


def test_answers_are_compared_under_one_rubric_only():
    def row(answer, rubric, score):
        return {
            "orig_instruction": "Q?",
            "orig_response": answer,
            "orig_criteria": rubric,
            "orig_score": score,
            "instruction": f"x {answer}",
            "output": "fine",
        }

    rows = [row("a", "Is it kind?", "1"), row("b", "Is it kind?", "5"), row("c", "Is it short?", "3")]
    result = prefdata.audit(rows)
    assert result.counts["reasons"] == {"unpaired": 1} and result.counts["kept"] == 1


def test_prometheus_mt_bench(shared):
    """320 rows, 80 ids with one answer of four models each. By hand: in nearly all, the instruction holds the model's own
    earlier turn, so that the four answers were given to four prompts; two prompts stand twice."""
    path = shared / "data/prometheus-eval/mt_bench_eval.json.gz"
    template = re.compile(
        r"###The instruction to evaluate:\n(.*)\n\n###Response to evaluate:\n(.*)\n\n###Reference Answer", re.DOTALL
    )
    scores = defaultdict(list)
    for row in json.loads(gzip.decompress(path.read_bytes())):
        prompt, answer = template.search(row["instruction"]).groups()
        scores[prompt].append((sum(row["gpt4_score"]) / 3, answer, row["response_source"]))
    twice = {p: sorted(s) for p, s in scores.items() if len(s) > 1}
    assert len(scores) == 318 and [len(s) for s in twice.values()] == [2, 2]
    result = prefdata.audit(str(path))
    ties = sum(s[0][0] == s[1][0] for s in twice.values())
    assert result.counts["pairs"] == 318 and result.report.source["shapes"] == {"prometheus": 320}
    assert result.counts["kept"] == 2 - ties and result.counts["reasons"]["unpaired"] == 316


def test_prometheus_pairs_are_those_of_the_template(shared, tmp_path):
    path = shared / "data/prometheus-eval/mt_bench_eval.json.gz"
    prefdata.clean(str(path), tmp_path / "out", only=["malformed"])
    rows = json.loads(gzip.decompress(path.read_bytes()))
    for row in loaded(tmp_path / "out"):
        better, worse = (rows[n] for n in row["pd_rows"])
        assert sum(better["gpt4_score"]) > sum(worse["gpt4_score"])
        for side, source in ((row["chosen"], better), (row["rejected"], worse)):
            held = f"###The instruction to evaluate:\n{row['prompt']}\n\n###Response to evaluate:\n{side}\n\n###Reference Answer"
            assert held in source["instruction"]
        assert row["pd_margin"] == pytest.approx((sum(better["gpt4_score"]) - sum(worse["gpt4_score"])) / 3)
        assert (
            row["pd_chosen_info"]["response_source"] == better["response_source"]
            and row["category"] == better["category"]
        )
