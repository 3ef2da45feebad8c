"""Real published data (``shared/data``, read in place): known faults are found, and right pairs are left alone.

No row of these files stands in this repository.
"""

import csv
import gzip
import io
import json
from collections import Counter, defaultdict

import pytest

import prefdata


@pytest.fixture
def published(shared):
    """``published("llmbar/Natural.json")``: the path of that file."""

    def find(name):
        path = shared / "data" / name
        if not path.exists():
            pytest.skip(f"{path} is not there")
        return path

    return find


def read(path):
    """The rows of a JSON array or of JSON lines, gzipped or not."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    return json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]


def dropped_by(result):
    return result.counts["reasons"]


def test_hh_rlhf_has_four_blank_answers_and_no_duplicate(published):
    result = prefdata.audit(str(published("hh-rlhf/harmless-base.test.jsonl.gz")))
    assert result.counts["pairs"] == 2312 and result.report.source["shape"] == "transcript"
    found = dropped_by(result)
    assert found["empty_completion"] == 4 and "exact_duplicate" not in found
    assert not set(found) & {
        "bad_messages",
        "prompt_mismatch",
        "parse_error",
        "missing_field",
        "bad_type",
        "empty_prompt",
    }
    assert result.counts["kept"] >= 0.97 * 2312
    details = [e for e in result.decisions.to_pylist() if e["reason"] == "empty_completion"]
    rows = read(published("hh-rlhf/harmless-base.test.jsonl.gz"))
    assert all(rows[d["row"]]["chosen"].rsplit("Assistant:", 1)[1].strip() == "" for d in details)


@pytest.mark.parametrize(("name", "twice"), [("dpo_en_demo", 5), ("dpo_zh_demo", 11)])
def test_llama_factory_has_exact_duplicates(published, name, twice):
    result = prefdata.audit(str(published(f"llama-factory/{name}.json.gz")))
    assert result.counts["pairs"] == 300 and dropped_by(result)["exact_duplicate"] == twice
    assert set(dropped_by(result)) <= {"exact_duplicate", "near_duplicate"} and result.counts["kept"] >= 300 - twice - 6


def test_llms_from_scratch_has_six_identical_pairs(published):
    result = prefdata.audit(str(published("llms-from-scratch/instruction-data-with-preference.json.gz")))
    assert result.counts["pairs"] == 1100 and dropped_by(result)["identical_pair"] == 6
    same = {
        i
        for i, r in enumerate(read(published("llms-from-scratch/instruction-data-with-preference.json.gz")))
        if r["chosen"] == r["rejected"]
    }
    assert {d["row"] for d in result.decisions.to_pylist() if d["reason"] == "identical_pair"} == same


def test_answers_that_are_nearly_equal_stay(published):
    """Most of these 144 pairs differ in a number or a name, and the label is right."""
    path = published("tool-augmented-rm/agent_multi_tools_test_action.json.gz")
    rows, result = read(path), prefdata.audit(str(path))
    scored = [d for d in result.decisions.to_pylist() if d["stage"] == "similar_responses" and d["score"]]
    assert sum(d["score"] > 0.9 for d in scored) > 60
    gone = {d["row"]: d["reason"] for d in result.decisions.to_pylist() if d["action"] == "drop"}
    identical = {i for i, r in enumerate(rows) if r["pos_answer"]["answer"] == r["neg_answer"]["answer"]}
    assert {i for i, reason in gone.items() if reason in ("identical_pair", "too_similar")} == identical
    assert result.counts["kept"] >= 0.97 * len(rows)


@pytest.mark.parametrize("name", ["correctness", "efficiency"])
def test_code_that_is_nearly_equal_stays(published, name):
    path = published(f"codeprefbench/{name}-alignment.jsonl.gz")
    rows, result = read(path), prefdata.audit(str(path))
    gone = [d for d in result.decisions.to_pylist() if d["action"] == "drop"]
    assert {d["reason"] for d in gone} <= {"near_duplicate"} and len(gone) <= 0.01 * len(rows)

    def bare(row):
        texts = [row["instruction"], row["choices"][row["gt_choice"]], row["choices"][1 - row["gt_choice"]]]
        return ["".join(text.split()) for text in texts]

    assert all(bare(rows[d["row"]]) == bare(rows[d["peer"]]) for d in gone)  # the same pair, but for white space


def test_labels_known_right_stay(published):
    for name, size in (
        ("llmbar/Natural.json", 100),
        ("llmbar/Adversarial-Neighbor.json", 134),
        ("ifbench/data.converted.json.gz", 444),
    ):
        result = prefdata.audit(str(published(name)))
        assert result.counts["pairs"] == size and result.counts["kept"] >= 0.97 * size, (name, dropped_by(result))


def test_the_same_set_as_json_and_as_parquet_is_the_same(published):
    """IFBench: the Parquet file has its ``id`` as text and its messages as structs; what is found is the same."""
    found = [prefdata.audit(str(published(f"ifbench/data.converted.{kind}"))) for kind in ("json.gz", "parquet")]
    assert found[0].counts == found[1].counts and found[0].decisions.equals(found[1].decisions)


# ------------------------------------------------------------------------------------------------ every file, read right

# File, options, shape, pairs, and what the first stage drops. Rows, ties and missing labels are those that the data's README
# names, or were counted with the standard library as the comment says; `recount` below does some of it again.
GB18030 = {"encoding": "gb18030", "columns": {"prompt": "问题", "chosen": "安全有用回答", "rejected": "违规回答"}}
ACADEMY = {"columns": {"chosen": "responses.academy", "rejected": "responses.normal"}}
READ = [
    ("hh-rlhf/harmless-base.test.jsonl.gz", {}, "transcript", 2312, {"empty_completion": 4}),  # four single spaces
    ("dsp/hh-helpful-base.test.part1.json.gz", {}, "score_lists", 1400, {"empty_completion": 3}),
    ("dsp/domain_specific_preference.test.json.gz", ACADEMY, "explicit", 661, {"empty_completion": 1}),
    ("llama-factory/dpo_en_demo.json.gz", {}, "sharegpt", 300, {}),
    ("llama-factory/dpo_zh_demo.json.gz", {}, "sharegpt", 300, {}),
    # Of 297 prompts one has an answer of each label: 1 pair, and 298 rows that stand alone.
    ("llama-factory/kto_en_demo.json.gz", {}, "unpaired", 299, {"unpaired": 298}),
    ("llama-factory/v1_dpo_demo.jsonl", {}, "conversation", 10, {}),
    ("ifbench/data.converted.json.gz", {}, "conversation", 444, {}),
    ("ifbench/data.converted.parquet", {}, "conversation", 444, {}),
    ("llms-from-scratch/instruction-data-with-preference.json.gz", {}, "alpaca", 1100, {}),
    # Six comparisons a question; 384 of the 3,000 labels are 0.
    ("fine-grained-rlhf/qa_feedback.dev_feedback.json.gz", {}, "comparisons", 3000, {"tie": 384}),
    # 212 messages have two ranked answers or more: the best and the worst of each; neighbours; all combinations.
    ("open-assistant/en_100_tree.jsonl.gz", {}, "tree", 212, {}),
    ("open-assistant/en_100_tree.jsonl.gz", {"pairs": "adjacent"}, "tree", 429, {}),
    ("open-assistant/en_100_tree.jsonl.gz", {"pairs": "all"}, "tree", 754, {}),
    # In 78 of the 80 questions each model was asked after its own first answer, so that the four prompts differ; two
    # questions of one turn give a pair of the best and the worst answer each, and use four of their eight rows.
    ("prometheus-eval/mt_bench_eval.json.gz", {}, "prometheus", 318, {"unpaired": 316}),
    ("alpaca-eval/text_davinci_001.alpaca_eval_gpt4.annotations.json.gz", {}, "two_answers", 805, {"tie": 20, "missing_label": 1, "empty_completion": 2}),
    ("alpaca-eval/alpaca-7b.alpaca_eval_cot_gpt4_turbo_fn.annotations.json.gz", {}, "two_answers", 805, {"tie": 3}),
    ("alpaca-eval/alpaca-7b.weighted_alpaca_eval_gpt4_turbo.annotations.json.gz", {}, "two_answers", 805, {"tie": 3}),
    ("llmbar/Natural.json", {}, "two_answers", 100, {}),
    ("llmbar/Adversarial-Neighbor.json", {}, "two_answers", 134, {}),
    ("llmbar/Processed-LLMEval2.json", {}, "two_answers", 200, {"empty_completion": 1}),
    ("llmbar/Processed-FairEval.json", {}, "two_answers", 66, {}),
    ("llmbar/judge_votes_with_gold.jsonl.gz", {}, "two_answers", 500, {"empty_completion": 1}),
    # The label that most of three annotators gave; 105 ties or no majority, six answers that are `true`, 52 empty ones left.
    ("pandalm/testset-v1.json.gz", {}, "votes", 999, {"tie": 105, "bad_type": 6, "empty_completion": 52}),
    # 481 votes on 403 pairs of answers.
    ("open-instruct-human-eval/eval_annotations.part1.csv.gz", {}, "votes_in_rows", 403, {"tie": 146, "empty_completion": 3}),
    ("codeprefbench/correctness-alignment.jsonl.gz", {}, "two_answers", 660, {}),
    ("codeprefbench/efficiency-alignment.jsonl.gz", {}, "two_answers", 352, {}),
    ("tool-augmented-rm/agent_calculator_test.json.gz", {}, "answer_objects", 154, {}),
    ("tool-augmented-rm/agent_multi_tools_test_action.json.gz", {}, "answer_objects", 144, {}),
    ("tool-augmented-rm/agent_translator_test.json.gz", {}, "answer_objects", 300, {}),
    ("medicalgpt/toolcall_dpo_zh_demo.jsonl", {}, "sharegpt", 11, {}),
    ("jade-db/jade_alignment_medium_zh.csv.gz", GB18030, "explicit", 500, {}),
    ("torchtune/stack_exchange_paired_tiny.json", {}, "explicit", 25, {}),
]  # fmt: skip
REFUSED = {
    "dsp/domain_specific_preference.test.json.gz": "no columns that say which answer is better",
    "pandalm/gpt-3.5-turbo-testset-v1.json.gz": "no columns that say which answer is better",
    "pandalm/pandalm-7b-testset-v1.json.gz": "no columns that say which answer is better",
    "jade-db/jade_alignment_medium_zh.csv.gz": "looks like GBK/GB18030. --encoding gb18030 reads it.",
}


@pytest.mark.parametrize(("name", "options", "shape", "pairs", "found"), READ)
def test_every_file_gives_the_right_pairs(published, name, options, shape, pairs, found):
    result = prefdata.audit(str(published(name)), only=["malformed"], **options)
    assert (result.report.source["shape"], result.counts["pairs"], dropped_by(result)) == (shape, pairs, found)


@pytest.mark.parametrize("name", REFUSED)
def test_files_that_say_no_preference_are_refused_in_one_sentence(cli, published, name):
    ended = cli("audit", published(name))
    assert ended.code == 2 and REFUSED[name] in ended.err and ended.err.count("\n") == 1


def test_no_published_file_is_left_out(shared):
    kinds = (".json", ".jsonl", ".csv", ".parquet", ".gz")
    there = {str(p.relative_to(shared / "data")) for p in (shared / "data").rglob("*") if p.suffix in kinds}
    assert there == {name for name, *_ in READ} | set(REFUSED)


def test_labels_counted_by_hand(published):
    """The numbers of the table that are labels, counted with the standard library."""
    text = read(published("alpaca-eval/text_davinci_001.alpaca_eval_gpt4.annotations.json.gz"))
    assert Counter(r["preference"] for r in text)[0] == 20 and sum(r["preference"] is None for r in text) == 1
    soft = read(published("alpaca-eval/alpaca-7b.weighted_alpaca_eval_gpt4_turbo.annotations.json.gz"))
    assert sum(r["preference"] == 1.5 for r in soft) == 3
    fine = read(published("fine-grained-rlhf/qa_feedback.dev_feedback.json.gz"))
    assert sum(len(r["preference"]) for r in fine) == 3000 and sum(r["preference"].count(0) for r in fine) == 384
    panda = read(published("pandalm/testset-v1.json.gz"))
    votes = [Counter(r[f"annotator{k}"] for k in (1, 2, 3)).most_common(1)[0] for r in panda]
    answers = [all(isinstance(r[f"response{k}"], str) for k in (1, 2)) for r in panda]
    assert sum(good and (label == 0 or n == 1) for good, (label, n) in zip(answers, votes, strict=True)) == 105
    kto = read(published("llama-factory/kto_en_demo.json.gz"))
    labels = defaultdict(list)
    for r in kto:
        labels[json.dumps(r["messages"][:-1], sort_keys=True)].append(r["label"])
    assert len(labels) == 297 and [sorted(v) for v in labels.values() if len(set(v)) == 2] == [[False, True]]
    rows = list(
        csv.DictReader(
            io.StringIO(
                gzip.decompress(
                    published("open-instruct-human-eval/eval_annotations.part1.csv.gz").read_bytes()
                ).decode()
            )
        )
    )
    assert (
        len(rows) == 481
        and len({(r["prompt"], frozenset((r["completion_a"], r["completion_b"]))) for r in rows}) == 403
    )
