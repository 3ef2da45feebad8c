"""Real published data (``shared/data``, read in place): known faults are found, and right pairs are left alone.

No row of these files stands in this repository. Forms that have no shape yet are turned into explicit rows here.
"""

import gzip
import json

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


def from_sharegpt(rows):
    return [{"prompt": r["conversations"], "chosen": [r["chosen"]], "rejected": [r["rejected"]]} for r in rows]


def from_traces(rows):
    """Tool-Augmented-RM: the tool trace and the answer behind it."""
    made = []
    for r in rows:
        sides = [f"{r[side]['actions']}\nAnswer: {r[side]['answer']}" for side in ("pos_answer", "neg_answer")]
        made.append({"prompt": r["question"], "chosen": sides[0], "rejected": sides[1]})
    return made


def from_choices(rows):
    return [
        {
            "prompt": r["instruction"],
            "chosen": r["choices"][r["gt_choice"]],
            "rejected": r["choices"][1 - r["gt_choice"]],
        }
        for r in rows
    ]


def from_two_answers(rows):
    return [
        {"prompt": r["input"], "chosen": r[f"output_{r['label']}"], "rejected": r[f"output_{3 - r['label']}"]}
        for r in rows
    ]


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
    result = prefdata.audit(from_sharegpt(read(published(f"llama-factory/{name}.json.gz"))))
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


def test_tool_traces_that_are_nearly_equal_stay(published):
    """126 of these 144 pairs are more than 95 % the same text, and the label is right."""
    rows = from_traces(read(published("tool-augmented-rm/agent_multi_tools_test_action.json.gz")))
    result = prefdata.audit(rows)
    nearly = [
        d
        for d in result.decisions.to_pylist()
        if d["stage"] == "similar_responses" and d["score"] and d["score"] > 0.95
    ]
    assert len(nearly) > 60
    gone = {d["row"]: d["reason"] for d in result.decisions.to_pylist() if d["action"] == "drop"}
    identical = {i for i, r in enumerate(rows) if r["chosen"] == r["rejected"]}
    assert {i for i, reason in gone.items() if reason in ("identical_pair", "too_similar")} == identical
    assert result.counts["kept"] >= 0.97 * len(rows)


@pytest.mark.parametrize("name", ["correctness", "efficiency"])
def test_code_that_is_nearly_equal_stays(published, name):
    rows = from_choices(read(published(f"codeprefbench/{name}-alignment.jsonl.gz")))
    result = prefdata.audit(rows)
    gone = [d for d in result.decisions.to_pylist() if d["action"] == "drop"]
    assert {d["reason"] for d in gone} <= {"near_duplicate"} and len(gone) <= 0.01 * len(rows)

    def bare(row):
        return ["".join(text.split()) for text in row.values()]

    assert all(bare(rows[d["row"]]) == bare(rows[d["peer"]]) for d in gone)  # the same pair, but for white space


def test_labels_known_right_stay(published):
    for name in ("Natural", "Adversarial-Neighbor"):
        rows = from_two_answers(read(published(f"llmbar/{name}.json")))
        result = prefdata.audit(rows)
        assert result.counts["kept"] >= 0.97 * len(rows), (name, dropped_by(result))
    result = prefdata.audit(str(published("ifbench/data.converted.json.gz")))
    assert result.counts["pairs"] == 444 and result.counts["kept"] >= 0.97 * 444, dropped_by(result)


def test_the_same_set_as_json_and_as_parquet_is_the_same(published):
    """IFBench: the Parquet file has its ``id`` as text and its messages as structs; what is found is the same."""
    found = [prefdata.audit(str(published(f"ifbench/data.converted.{kind}"))) for kind in ("json.gz", "parquet")]
    assert found[0].counts == found[1].counts and found[0].decisions.equals(found[1].decisions)
