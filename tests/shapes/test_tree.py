"""Message trees with ranked replies (``tree``), one tree a row or one message a row."""

import gzip
import json
from itertools import combinations, pairwise

import pytest
from written import dropped, loaded, report_of, write_lines

import prefdata
from prefdata.shapes import Asked, find_reading, tree


def say(name, role="assistant", rank=None, replies=(), **more):
    made = {"message_id": name, "text": f"text of {name}", "role": role, "replies": list(replies), "lang": "en", **more}
    return made if rank is None else {**made, "rank": rank}


def a_tree():
    """Three ranked answers to the root, two to a later turn of the second one, and one ranked turn of the user."""
    later = say("u2", "prompter", rank=1, replies=[say("c1", rank=1), say("c0", rank=0)])
    return {"message_tree_id": "u1", "tree_state": "ready", "prompt": say("u1", "prompter", replies=[
        say("a2", rank=2), say("a0", rank=0, replies=[say("u3", "prompter", rank=0), later]), say("a1", rank=1),
    ])}  # fmt: skip


def flat(row):
    """The rows of a tree in the order of a message table."""
    out, todo = [], [(row["prompt"], None)]
    while todo:
        message, parent = todo.pop(0)
        out.append({
            "message_tree_id": row["message_tree_id"], "parent_id": parent, "rank": None,
            **{k: v for k, v in message.items() if k != "replies"},
        })  # fmt: skip
        todo += [(reply, message["message_id"]) for reply in message["replies"]]
    return out


def names(messages):
    return [m["content"].removeprefix("text of ") for m in messages]


def cleaned(rows, out, **options):
    """(prompt, chosen, rejected, margin) of the kept pairs by the names of messages."""
    prefdata.clean(rows, out, only=["malformed"], **options)
    return [(names(r["prompt"]), names(r["chosen"])[0], names(r["rejected"])[0], r["pd_margin"]) for r in loaded(out)]


LATER = (["u1", "a0", "u2"], "c0", "c1", 1.0)
EXPECTED = {
    "best-worst": [(["u1"], "a0", "a2", 2.0), LATER],
    "adjacent": [(["u1"], "a0", "a1", 1.0), (["u1"], "a1", "a2", 1.0), LATER],
    "all": [(["u1"], "a0", "a2", 2.0), (["u1"], "a1", "a2", 1.0), (["u1"], "a0", "a1", 1.0), LATER],
}


@pytest.mark.parametrize("policy", EXPECTED)
@pytest.mark.parametrize("form", ["tree", "tree_rows"])
def test_a_tree_and_its_messages_give_the_same_pairs(tmp_path, policy, form):
    rows = [a_tree()] if form == "tree" else flat(a_tree())
    assert cleaned(rows, tmp_path / "out", pairs=policy) == EXPECTED[policy]
    kept = loaded(tmp_path / "out")
    assert [m["role"] for m in kept[-1]["prompt"]] == ["user", "assistant", "user"]
    assert kept[0]["pd_chosen_info"]["message_id"] == "a0" and kept[0]["pd_chosen_info"]["lang"] == "en"
    assert kept[0]["message_tree_id"] == "u1" and not {"text", "role", "rank"} & kept[0].keys()
    source = report_of(tmp_path / "out")["source"]
    assert source["shapes"] == {form: len(rows)} and source["rows"] == len(rows)
    assert source["changes"]["role 'prompter' renamed to 'user'"] == len(EXPECTED[policy])


def test_pairs_of_message_rows_name_the_rows_of_their_answers(tmp_path):
    other = {**a_tree(), "message_tree_id": "v1"}
    rows = [r for pair in zip(flat(a_tree()), flat(other), strict=True) for r in pair]  # two trees, shuffled together
    path = write_lines(tmp_path / "rows.jsonl", rows)
    assert cleaned(str(path), tmp_path / "out") == EXPECTED["best-worst"] * 2
    for row in loaded(tmp_path / "out"):
        two = [rows[i] for i in row["pd_rows"]]
        assert [[t["text"]] for t in two] == [[row[side][0]["content"]] for side in ("chosen", "rejected")]
        assert {t["message_tree_id"] for t in two} == {row["message_tree_id"]}
        assert row["pd_id"] == str(row["pd_rows"][0])


def test_deleted_messages_and_what_stands_below_them_are_left_out(tmp_path):
    row = a_tree()
    row["prompt"]["replies"][0]["deleted"] = True  # a2
    row["prompt"]["replies"][1]["replies"][1]["review_result"] = False  # u2, with c0 and c1
    left = "message left out: deleted, failed review, or below one that is or is not there"
    for form, rows in (("tree", [row]), ("rows", flat(row))):
        assert cleaned(rows, tmp_path / form) == [(["u1"], "a0", "a1", 1.0)]
        assert report_of(tmp_path / form)["source"]["changes"][left] == 4


def test_messages_whose_parent_is_not_there_are_left_out(tmp_path):
    rows = [r for r in flat(a_tree()) if r["message_id"] != "u2"]
    assert cleaned(rows, tmp_path / "out") == EXPECTED["best-worst"][:1]
    left = [n for what, n in report_of(tmp_path / "out")["source"]["changes"].items() if "not there" in what]
    assert left == [2]


def test_replies_without_a_rank(tmp_path):
    row = a_tree()
    del row["prompt"]["replies"][2]["rank"]  # a1
    del row["prompt"]["replies"][1]["replies"][1]["replies"][0]["rank"]  # c1: c0 alone has one
    assert cleaned([row], tmp_path / "out") == [(["u1"], "a0", "a2", 2.0)]
    assert report_of(tmp_path / "out")["source"]["changes"]["answer without a score or rank left out"] == 3


def test_a_tree_without_a_ranking_is_one_missing_label(tmp_path):
    lone = {"message_tree_id": "x", "prompt": say("x", "prompter", replies=[say("y"), say("z")])}
    gone = {"message_tree_id": "w", "prompt": {**a_tree()["prompt"], "deleted": True}}
    cleaned([a_tree(), lone, gone, {"message_tree_id": "v", "prompt": None}], tmp_path / "out")
    found = [(r["pd_id"], r["pd_code"]) for r in dropped(tmp_path / "out")]
    assert found == [("1", "missing_label"), ("2", "missing_label"), ("3", "missing_field")]
    told = [r["pd_reason"] for r in dropped(tmp_path / "out")]
    assert "2 that could be compared have no rank" in told[0] and "8 messages are deleted" in told[1]
    cleaned([*flat(a_tree()), *flat(lone)], tmp_path / "rows")
    (row,) = dropped(tmp_path / "rows")
    assert row["pd_code"] == "missing_label" and row["message_tree_id"] == "x"


def test_equal_ranks_are_a_tie(tmp_path):
    row = a_tree()
    for reply in row["prompt"]["replies"]:
        reply["rank"] = 1
    assert cleaned([row], tmp_path / "out") == [LATER]
    (tie,) = dropped(tmp_path / "out")
    assert (tie["pd_id"], tie["pd_code"]) == ("0.0", "tie") and "reply a2 and reply a0" in tie["pd_reason"]


def test_a_prompt_with_a_hole_is_a_fault(tmp_path):
    row = a_tree()
    row["prompt"]["replies"][1]["text"] = None  # a0: an answer of the first pair, and in the prompt of the second
    row["prompt"]["replies"].append(say("a3", rank=3))
    prefdata.clean([a_tree(), row], tmp_path / "out", only=["malformed"])
    assert [(r["pd_id"], r["pd_code"]) for r in dropped(tmp_path / "out")] == [
        ("1.0", "empty_completion"), ("1.1", "missing_field"),
    ]  # fmt: skip


@pytest.mark.parametrize("found", [["x"], {"x": 1}, [1, 2]])
def test_ids_and_replies_of_another_kind_are_no_end(tmp_path, found):
    """What is no id joins nothing, what is no list of messages holds none: the pairs beside it stay."""
    odd = {"message_tree_id": "u1", "text": "x", "role": "assistant", "rank": None}
    rows = [
        *flat(a_tree()),
        {**odd, "message_id": found, "parent_id": "u1"},
        {**odd, "message_id": "z", "parent_id": found},
    ]
    assert cleaned(rows, tmp_path / "rows") == EXPECTED["best-worst"]
    bad = a_tree()
    bad["prompt"]["replies"][0]["replies"] = 1.5
    assert cleaned([bad], tmp_path / "bad") == EXPECTED["best-worst"]


def test_examples_read_as_what_they_are_called():
    for shown in tree.SHOWN:
        reading = find_reading(list(shown.example[0]), Asked(), shown.example, "example")
        name, made = reading.read_group(shown.example) if reading.grouped else reading.read(shown.example[0])
        assert name == shown.name and len(made) == 1
        assert (made[0].chosen[0]["content"], made[0].rejected[0]["content"]) == ("Honey.", "Milk.")


def pairs_by_hand(message, path=()):
    """Every set of ranked assistant replies, as ranks to texts, with the texts of the conversation before them."""
    path = (*path, message["text"])
    mine = {r["rank"]: r["text"] for r in message["replies"] if r["role"] == "assistant" and r.get("rank") is not None}
    if len(mine) > 1:
        yield path, [mine[rank] for rank in sorted(mine)]
    for reply in message["replies"]:
        yield from pairs_by_hand(reply, path)


@pytest.mark.parametrize(("policy", "size"), [("best-worst", 212), ("adjacent", 429), ("all", 754)])
def test_open_assistant(shared, tmp_path, policy, size):
    """212 messages have ranked replies: 57 have 2, 117 3, 27 4, 3 5, 6 6, 1 8, 1 9, which are 641 in all. So 212 pairs of
    best and worst, 641 - 212 = 429 neighbours, 57 + 117*3 + 27*6 + 3*10 + 6*15 + 28 + 36 = 754 in all; ranks never tie.
    """
    path = shared / "data/open-assistant/en_100_tree.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    how = {
        "best-worst": lambda best: [(best[0], best[-1])],
        "adjacent": pairwise,
        "all": lambda best: combinations(best, 2),
    }
    expected = sorted(
        (list(asked), *two) for r in rows for asked, best in pairs_by_hand(r["prompt"]) for two in how[policy](best)
    )
    assert len(rows) == 100 and len(expected) == size
    result = prefdata.clean(str(path), tmp_path / "out", pairs=policy, only=["malformed"])
    assert result.counts == {"pairs": size, "kept": size, "dropped": 0, "flagged": 0, "added": 0, "reasons": {}}
    kept = loaded(tmp_path / "out")
    found = [
        ([m["content"] for m in r["prompt"]], r["chosen"][0]["content"], r["rejected"][0]["content"]) for r in kept
    ]
    assert sorted(found) == expected
    assert {r["pd_id"].split(".")[0] for r in kept} == {str(i) for i in range(100)}
    messages = [m for r in rows for m in flat(r)]
    prefdata.clean(messages, tmp_path / "rows", pairs=policy, only=["malformed"])
    again = [
        ([m["content"] for m in r["prompt"]], r["chosen"][0]["content"], r["rejected"][0]["content"])
        for r in loaded(tmp_path / "rows")
    ]
    assert again == found
