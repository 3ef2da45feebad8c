"""What cleaning is worth: the raw pairs rebuilt, equal training, the verdict, and going on after a kill."""

import json

import pyarrow.parquet as pq
import pytest

import prefdata
from prefdata.errors import ConfigError
from prefdata.training import raw, settings, worth


def run(margin, status="complete"):
    return {"status": status, "margin": margin, "accuracy": 0.5}


@pytest.mark.parametrize(
    ("cleaned", "raw_runs", "verdict"),
    [
        ([1.0, 1.1], [0.5, 0.6], "cleaned_better"),
        ([0.5, 0.6], [1.0, 1.1], "raw_better"),
        ([1.0, 1.6], [0.9, 1.0], "no_difference"),  # 0.35 more, and 0.6 between two seeds of the same kind
        ([1.0, 1.0], [1.0, 1.0], "no_difference"),
        ([1.0], [0.5], "one_seed"),
        ([1.0, None], [0.5, 0.6], "not_trained"),
    ],
)
def test_a_difference_counts_above_that_between_two_seeds_of_one_kind(cleaned, raw_runs, verdict):
    got = worth.summary({"cleaned": [run(m) for m in cleaned], "raw": [run(m) for m in raw_runs]})
    assert got["verdict"] == verdict


def test_a_run_that_was_stopped_or_a_missing_kind_gives_no_verdict():
    assert worth.summary({"cleaned": [run(1.0, "refused")], "raw": [run(0.5)]})["verdict"] == "not_trained"
    assert worth.summary({"cleaned": [run(1.0), run(1.1)]})["verdict"] == "not_compared"


def faulty():
    """Pairs with labels turned round, repeated pairs and broken rows."""
    rows = []
    for i in range(150):
        good, bad = f"As the records show, {i} boats lie at the pier.", f"Who can say? I never cared for boat {i}."
        good, bad = good + " They stay." * (i * 7 % 5), bad + " It sails." * (i * 3 % 5)  # length tells nothing
        wrong = i % 8 == 0
        rows.append(
            {
                "prompt": f"What of case {i}, please?",
                "chosen": bad if wrong else good,
                "rejected": good if wrong else bad,
                "score_chosen": (i * 13 % 7 + 1.0) * (-1 if wrong != (i % 11 == 0) else 1),
                "score_rejected": 0.0,  # a second opinion, mostly right: without one no label is turned round
            }
        )
    rows.insert(20, rows[3])
    rows.insert(40, {**rows[5], "prompt": "And this?", "chosen": ""})
    return rows


def key(row):
    return tuple(row[side] for side in ("prompt", "chosen", "rejected"))


@pytest.fixture(scope="module")
def swapped(tmp_path_factory):
    """A set cleaned with labels turned round, a test split cut from it."""
    home = tmp_path_factory.mktemp("swapped")
    (home / "in.jsonl").write_text("".join(json.dumps(r) + "\n" for r in faulty()))
    sets = ["label_noise.action=swap", "label_noise.rate=0.125", "near_duplicate.threshold=0.999"]
    prefdata.clean(home / "in.jsonl", home / "out", "default", set=sets, split="test=0.1")
    return home / "out"


def test_the_raw_pairs_are_those_of_the_input_in_its_order(swapped, tmp_path):
    decisions = pq.read_table(swapped / "audit/decisions.parquet").to_pylist()
    assert sum(d["action"] == "swap" for d in decisions) > 5 and any(d["action"] == "drop" for d in decisions)
    found = raw.rebuild(swapped, tmp_path / "raw")
    test = {r["prompt"] for r in pq.read_table(swapped / "data/test").to_pylist()}
    wanted = [key(r) for r in faulty() if r["prompt"] not in test and r["chosen"]]
    assert [key(r) for r in pq.read_table(tmp_path / "raw/data/train").to_pylist()] == wanted
    assert found["left_out"]["malformed"] == 1 and found["rows"] == len(wanted)
    assert pq.read_table(tmp_path / "raw/data/test").equals(pq.read_table(swapped / "data/test"))


def test_messages_come_back_too(tmp_path):
    def said(role, text):
        return [{"role": role, "content": text}]

    rows = [
        {"prompt": said("user", r["prompt"]), **{s: said("assistant", r[s]) for s in ("chosen", "rejected")}} for r in faulty() if r["chosen"]
    ]  # fmt: skip
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    prefdata.clean(tmp_path / "in.jsonl", tmp_path / "out", "default", set=["label_noise.rate=0.125"])
    raw.rebuild(tmp_path / "out", tmp_path / "raw")
    got = pq.read_table(tmp_path / "raw/data/train").to_pylist()
    assert [{k: r[k] for k in ("prompt", "chosen", "rejected")} for r in got] == rows


def test_splits_of_the_input_stay_apart(tmp_path):
    rows = [r for r in faulty() if r["chosen"]]
    (tmp_path / "in").mkdir()
    for name, part in (("train", rows[:120]), ("test", [*rows[120:], rows[130]])):
        (tmp_path / f"in/{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in part))
    prefdata.clean(tmp_path / "in", tmp_path / "out", "default")
    found = raw.rebuild(tmp_path / "out", tmp_path / "raw")
    got = pq.read_table(tmp_path / "raw/data/train").to_pylist()
    assert [key(r) for r in got] == [key(r) for r in rows[:120]]
    assert sum(found["left_out"].values()) == 1  # the pair that the test split holds twice


def asked(tiny, **more):
    return settings.make(
        {"model": tiny, "method": "full", "learning_rate": 1e-3, "batch_size": 8, "micro_batch_size": 8, **more}
    )


def test_both_kinds_are_trained_alike_and_finished_runs_are_not_made_again(swapped, tiny, tmp_path):
    said = []
    got = worth.measure(swapped, tmp_path, asked(tiny, max_steps=3), [0, 1], True, said.append)
    runs = [r for some in got["runs"].values() for r in some]
    assert {r["steps"] for r in runs} == {3} and {r["status"] for r in runs} == {"complete"}
    assert {r["pairs"] for r in runs} == {got["pairs"]["held"]}
    assert got["runs"]["raw"][0]["margin"] != got["runs"]["cleaned"][0]["margin"]
    assert json.loads((tmp_path / "evaluation.json").read_text()) == got
    assert not list(tmp_path.rglob("*.safetensors"))  # of runs that are only measured
    (tmp_path / "worth/raw-1/train.json").write_text('{"status": "comp')  # killed while it was written
    said.clear()
    again = worth.measure(swapped, tmp_path, asked(tiny, max_steps=3), [0, 1], True, said.append)
    assert [s for s in said if s.startswith("training")] == ["training raw-1"]
    assert again["margin"] == got["margin"]


def test_a_pass_over_the_cleaned_pairs_sets_the_steps_of_all(swapped, tiny):
    fixed = worth._fixed(swapped, asked(tiny, batch_size=16))
    rows = pq.read_table(swapped / "data/train").num_rows
    assert fixed.max_steps == -(-rows // 16)


def test_without_a_held_out_split_nothing_is_trained(tmp_path, tiny):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(r) + "\n" for r in faulty()))
    prefdata.clean(tmp_path / "in.jsonl", tmp_path / "out", "certain")
    with pytest.raises(ConfigError, match="no split is held out"):
        worth.measure(tmp_path / "out", tmp_path / "home", asked(tiny), [0], True)


def test_held_out_prompts_that_are_trained_on_are_refused(tmp_path, tiny):
    rows = [r for r in faulty() if r["chosen"]]
    (tmp_path / "in").mkdir()
    for name, part in (("train", rows[:120]), ("test", [*rows[120:], {**rows[5], "chosen": "Some other answer."}])):
        (tmp_path / f"in/{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in part))
    prefdata.clean(
        tmp_path / "in", tmp_path / "out", "certain", skip=["near_duplicate", "contradiction", "exact_duplicate"]
    )
    with pytest.raises(ConfigError, match="1 held-out pairs have a prompt"):
        worth.measure(tmp_path / "out", tmp_path / "home", asked(tiny), [0], True)
