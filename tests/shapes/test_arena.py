"""Arena rows: whole conversations of two models, and who won."""

import json

import pytest
from shaped import made
from written import write_lines

import prefdata
from prefdata.shapes import arena

ASKED = {"role": "user", "content": "What do bees make?"}
MORE = {"role": "user", "content": "And wasps?"}


def said(text):
    return {"role": "assistant", "content": text}


def row(number, winner, first=None, second=None, **more):
    return {
        "id": number, "model_a": "bee-1", "model_b": "cow-2", "winner": winner, "conversation_a": first or [ASKED, said("Honey.")],
        "conversation_b": second or [ASKED, said("Milk.")], **more,
    }  # fmt: skip


def answers(rows):
    return {r["id"]: (r["chosen"][-1]["content"], r["rejected"][-1]["content"]) for r in rows}


def test_the_winner_is_chosen_and_a_tie_of_either_kind_is_none(tmp_path):
    rows = [row(i, w) for i, w in enumerate(["model_a", "model_b", "tie", "tie (bothbad)", "both_bad", None, "bee-1"])]
    kept, gone, source = made(tmp_path, rows)
    assert answers(kept) == {0: ("Honey.", "Milk."), 1: ("Milk.", "Honey."), 6: ("Honey.", "Milk.")}
    assert {r["id"]: r["pd_code"] for r in gone} == {2: "tie", 3: "tie", 4: "tie", 5: "missing_label"}
    assert source["shapes"] == {"arena": 7} and source["form"] == "chat"
    assert kept[0]["prompt"] == [ASKED] and "conversation_a" not in kept[0]


def test_who_won_stays_known(tmp_path):
    kept, _, _ = made(tmp_path, [row(0, "model_a"), row(1, "model_b")])
    models = [[json.loads(r[f"pd_{side}_info"])["model"] for side in ("chosen", "rejected")] for r in kept]
    assert models == [["bee-1", "cow-2"], ["cow-2", "bee-1"]] and kept[1]["model_a"] == "bee-1"


def test_conversations_that_went_on_are_split_behind_what_they_share(tmp_path):
    first = [ASKED, said("Honey."), MORE, said("Paper.")]
    second = [ASKED, said("Milk."), MORE, said("Cheese.")]
    same = [ASKED, said("Honey."), MORE, said("Nests.")]
    kept, gone, source = made(tmp_path, [row(0, "model_b", first, second), row(1, "model_a", first, same)])
    assert not gone
    assert (kept[0]["prompt"], kept[0]["chosen"], kept[0]["rejected"]) == ([ASKED], second[1:], first[1:])
    assert (kept[1]["prompt"], kept[1]["chosen"]) == ([ASKED, said("Honey."), MORE], [said("Paper.")])
    assert source["changes"]["conversation split behind the turns that both share"] == 1


def test_conversations_of_different_prompts_are_no_pair(tmp_path):
    _, gone, _ = made(tmp_path, [row(0, "model_a", second=[MORE, said("Paper.")]), row(1, "model_a")])
    assert [r["pd_code"] for r in gone] == ["prompt_mismatch"]


def test_a_turn_that_was_judged_ends_the_conversation(tmp_path):
    """MT-Bench: both conversations hold two turns, and each row judges one of them."""
    first, second = [ASKED, said("Honey."), MORE, said("Paper.")], [ASKED, said("Milk."), MORE, said("Cheese.")]
    kept, _, _ = made(tmp_path, [row(i, "model_a", first, second, turn=i) for i in (1, 2)])
    assert (kept[0]["chosen"], kept[0]["rejected"]) == (first[1:2], second[1:2])
    assert (kept[1]["chosen"], kept[1]["rejected"]) == (first[1:], second[1:])
    assert "conversation_a" in kept[0]  # the second turn is nowhere else


def test_turns_as_json_text_and_one_column_for_each_winner(tmp_path):
    """The form of the LMSYS competition on Kaggle."""
    rows = [
        {"id": i, "model_a": "bee-1", "model_b": "cow-2", "prompt": json.dumps(["What do bees make?", "And wasps?"]),
         "response_a": json.dumps(["Honey.", "Paper."]), "response_b": json.dumps(["Milk.", "Cheese."]),
         "winner_model_a": int(w == "a"), "winner_model_b": int(w == "b"), "winner_tie": int(w == "tie")}
        for i, w in enumerate(["a", "b", "tie", "none"])
    ]  # fmt: skip
    kept, gone, source = made(tmp_path, rows)
    assert kept[0]["prompt"] == [ASKED]
    assert [m["content"] for m in kept[0]["chosen"]] == ["Honey.", "And wasps?", "Paper."]
    assert answers(kept) == {0: ("Paper.", "Cheese."), 1: ("Cheese.", "Paper.")}
    assert {r["id"]: r["pd_code"] for r in gone} == {2: "tie", 3: "missing_label"}
    assert json.loads(kept[1]["pd_chosen_info"]) == {"model": "cow-2"}
    assert source["shape"] == "arena" and source["columns"]["prompt"] == "prompt"


def test_lists_of_turns_that_do_not_fit_are_a_fault(tmp_path):
    base = {"prompt": '["a?", "b?"]', "response_a": '["x", "y"]', "winner": "model_a"}
    rows = [base | {"id": 0, "response_b": '["z", "w"]'}, base | {"id": 1, "response_b": '["z"]'}]
    kept, gone, _ = made(tmp_path, rows)
    assert len(kept) == 1 and [r["pd_code"] for r in gone] == ["bad_type"]


def test_a_system_column_goes_before_the_conversation(tmp_path):
    rows = [row(0, "model_a", system="Be brief."), row(1, "model_a", [ASKED, said("Honey."), MORE, said("Paper.")],
            [ASKED, said("Milk."), MORE, said("Cheese.")], system="Be brief.")]  # fmt: skip
    kept, gone, _ = made(tmp_path, rows)
    assert not gone and all(r["prompt"] == [{"role": "system", "content": "Be brief."}, ASKED] for r in kept)


def test_a_system_message_that_is_not_the_columns_is_a_fault(tmp_path):
    head = [{"role": "system", "content": "Be long."}, ASKED]
    went_on = row(
        0, "model_a", [*head, said("Honey."), MORE, said("Paper.")], [*head, said("Milk."), MORE, said("Cheese.")]
    )
    kept, gone, _ = made(tmp_path, [row(1, "model_a"), {**went_on, "system": "Be brief."}])
    assert len(kept) == 1 and [r["pd_code"] for r in gone] == ["prompt_mismatch"]


def test_a_winner_that_is_not_clear_is_refused(tmp_path):
    with pytest.raises(prefdata.PrefdataError, match=r"the column 'winner' has 0, 1.* --labels"):
        made(tmp_path, [row(0, 0), row(1, 1)])


def test_each_example_is_read_as_its_shape(tmp_path):
    for shown in arena.SHOWN:
        kept, _, source = made(tmp_path, shown.example)
        assert source["shape"] == shown.name and kept[0]["chosen"][0]["content"] == "Honey."
        assert prefdata.audit(str(write_lines(tmp_path / "x.jsonl", shown.example)), shape="arena").counts["pairs"] == 1
