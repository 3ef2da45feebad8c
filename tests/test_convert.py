"""``convert``: every form, read again with prefdata and with its trainer's own loader; what it refuses and what it leaves out."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from written import bytes_of, loaded, write_lines

import prefdata
from prefdata.errors import ConfigError, InputError, OutputError


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def call(name, call_id, **arguments):
    made = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [made]}


TEXT = [
    {"id": "a", "prompt": "Name a tree.", "chosen": "Oak.", "rejected": "Rock.", "n": 1, "note": None},
    {"id": "b", "prompt": "Two\u2028lines,\x00 a\u0301 and 👩\u200d🚀\r\n", "chosen": "\u200fyes\u2029\t", "rejected": " no\x85", "n": 2, "note": ""},
    {"id": "c", "prompt": '"quoted" \\ back', "chosen": "<b>&amp;", "rejected": "\ufeffBOM", "n": None, "note": "x", "more": {"k": [1, None]}},
    {"id": "d", "prompt": "Name a tree.", "chosen": "Elm.", "rejected": "Rock.", "n": 12345678901234567, "note": None},
]  # fmt: skip
SINGLE = [
    {"id": "a", "prompt": [user("Name a tree.")], "chosen": [assistant("Oak.")], "rejected": [assistant("Rock.")]},
    {"id": "b", "prompt": [user("A\u2028b\x00")], "chosen": [assistant("yes")], "rejected": [assistant("no")]},
]
MULTI = [
    *SINGLE,
    {
        "id": "m", "prompt": [{"role": "system", "content": "Be brief."}, user("Hi."), assistant("Hello."), user("Name a fish.")],
        "chosen": [assistant("Cod.")], "rejected": [assistant("Bird.")],
    },
]  # fmt: skip
TOOLS = [
    *MULTI,
    {
        "id": "t", "chosen": [assistant("Take one.")], "rejected": [assistant("I cannot know.")],
        "prompt": [user("Umbrella?"), call("weather", "k1", city="Oslo"), {"role": "tool", "tool_call_id": "k1", "name": "weather", "content": "rain"}],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}],
    },
    {"id": "u", "prompt": [user("Time?")], "chosen": [call("clock", "k2", zone="B", seconds=False)], "rejected": [assistant("Noon.")], "tools": []},
]  # fmt: skip
TRANSCRIPT = [
    {"id": "a", "chosen": "\n\nHuman: Hi.\n\nAssistant: Hello.\n\nHuman: A fish?\n\nAssistant: Cod.", "rejected": "\n\nHuman: Hi.\n\nAssistant: Hello.\n\nHuman: A fish?\n\nAssistant: Bird."},
    {"id": "b", "chosen": "\n\nHuman: A tree?\n\nAssistant: Oak.", "rejected": "\n\nHuman: A tree?\n\nAssistant: Rock."},
]  # fmt: skip
SETS = {"text": TEXT, "single": SINGLE, "multi": MULTI, "tools": TOOLS, "transcript": TRANSCRIPT}
CHAT = {
    "text": TEXT,
    "single": SINGLE,
    "multi": MULTI,
    "tools": TOOLS,
}  # transcripts have no turns before they are split


def messages(side, role):
    return [{"role": role, "content": side}] if isinstance(side, str) else side


def as_chat(rows):
    return [
        {
            **r, "prompt": messages(r["prompt"], "user"), "chosen": messages(r["chosen"], "assistant"),
            "rejected": messages(r["rejected"], "assistant"),
        }
        for r in rows
    ]  # fmt: skip


def sides(rows):
    return [(r["prompt"], r["chosen"], r["rejected"]) for r in rows]


def written(tmp_path, rows, to, name="out", **options):
    """A set in another form; lines go to a file."""
    source = write_lines(tmp_path / f"{name}-in.jsonl", rows)
    out = tmp_path / (f"{name}.jsonl" if to in ("jsonl", "kto", "ab") else name)
    return out, prefdata.convert(source, out, to, **options)


def read_again(out, tmp_path, **options):
    """The pairs that prefdata reads out of a set, in their order."""
    result = prefdata.clean(str(out), tmp_path / "again", only=["malformed"], export="none", **options)
    assert result.counts["dropped"] == 0, result.counts
    return loaded(tmp_path / "again")


def lines(path):
    return [json.loads(line) for line in Path(path).read_bytes().split(b"\n") if line]


# ---------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("name", SETS)
def test_jsonl_is_read_again_as_it_was(tmp_path, name):
    out, done = written(tmp_path, SETS[name], "jsonl")
    assert done.pairs == len(SETS[name]) == len(lines(out)) and not done.skipped
    first = prefdata.clean(SETS[name], tmp_path / "first", only=["malformed"], export="none")
    assert first.counts["kept"] == len(SETS[name])
    assert read_again(out, tmp_path) == loaded(tmp_path / "first")


def test_jsonl_holds_the_values_that_came(tmp_path):
    out, _ = written(tmp_path, TEXT, "jsonl")
    every = [{"note": None, "more": None, **row, "pd_id": str(i)} for i, row in enumerate(TEXT)]
    assert lines(out) == every
    assert list(lines(out)[0]) == ["prompt", "chosen", "rejected", "id", "n", "note", "more", "pd_id"]
    out, _ = written(tmp_path, TOOLS, "jsonl", "tools")
    assert [r["chosen"] for r in lines(out)] == [r["chosen"] for r in TOOLS]
    assert [r["tools"] for r in lines(out)] == [r.get("tools") for r in TOOLS]


@pytest.mark.parametrize("name", CHAT)
def test_hf_chat(tmp_path, name):
    out, _ = written(tmp_path, CHAT[name], "hf-chat")
    assert sides(loaded(out)) == sides(as_chat(CHAT[name]))
    assert [r["id"] for r in loaded(out)] == [r["id"] for r in CHAT[name]]
    assert sides(read_again(out, tmp_path)) == sides(loaded(out))


def test_hf_chat_of_transcripts_has_turns(tmp_path):
    out, done = written(tmp_path, TRANSCRIPT, "hf-chat")
    first = loaded(out)[0]
    assert first["prompt"] == [user("Hi."), assistant("Hello."), user("A fish?")]
    assert (first["chosen"], first["rejected"]) == ([assistant("Cod.")], [assistant("Bird.")])
    assert done.changes["transcript split into prompt and answer"] == 2


@pytest.mark.parametrize("name", CHAT)
def test_hf_implicit(tmp_path, name):
    out, _ = written(tmp_path, CHAT[name], "hf-implicit")
    assert set(loaded(out)[0]) >= {"chosen", "rejected", "pd_id"} and "prompt" not in loaded(out)[0]
    assert sides(read_again(out, tmp_path)) == sides(as_chat(CHAT[name]))


def test_hf_text_of_text_and_of_single_turns(tmp_path):
    for rows in (TEXT, SINGLE, [*TEXT, *SINGLE]):
        out, _ = written(tmp_path, rows, "hf-text", f"out{len(rows)}")
        texts = [tuple(s if isinstance(s, str) else s[0]["content"] for s in pair) for pair in sides(rows)]
        assert sides(loaded(out)) == texts
    out, _ = written(tmp_path, TRANSCRIPT, "hf-text", "transcripts")
    assert [r["prompt"] + r["chosen"] for r in loaded(out)] == [r["chosen"] for r in TRANSCRIPT]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (MULTI[2], "a system message"),
        ({**MULTI[2], "prompt": MULTI[2]["prompt"][1:]}, "several turns"),
        (TOOLS[4], "tool calls"),
        ({**SINGLE[0], "chosen": [{**assistant("Oak."), "weight": 0}]}, "message keys beside role and content"),
    ],
)
def test_what_no_text_can_hold_is_refused(tmp_path, row, told):
    source = write_lines(tmp_path / "in.jsonl", [*SINGLE, row, SINGLE[0]])
    with pytest.raises(InputError) as error:
        prefdata.convert(source, tmp_path / "out", "hf-text")
    for part in ("1 of 4 pairs", f"{told} 1", "in.jsonl:3", "--to hf-chat"):
        assert part in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]
    done = prefdata.convert(source, tmp_path / "out", "hf-text", on_bad_row="skip")
    assert (done.pairs, done.skipped) == (3, {told: 1})
    (listed,) = lines(tmp_path / "out.skipped.jsonl")
    assert listed["prompt"] == row["prompt"] and listed["chosen"] == row["chosen"]
    assert (listed["pd_line"], listed["pd_code"], listed["pd_file"]) == (3, told, "in.jsonl")


@pytest.mark.parametrize("name", CHAT)
def test_kto_is_paired_again(tmp_path, name):
    out, _ = written(tmp_path, CHAT[name], "kto")
    found = lines(out)
    assert [r["label"] for r in found] == [True, False] * len(CHAT[name])
    assert [(r["prompt"], r["completion"]) for r in found[::2]] == [p[:2] for p in sides(CHAT[name])]
    assert all(r["id"] == CHAT[name][i // 2]["id"] and r["pd_id"] == str(i // 2) for i, r in enumerate(found))
    again = read_again(out, tmp_path)
    assert {json.dumps(p) for p in sides(again)} == {
        json.dumps(p) for p in sides(CHAT[name] if name == "text" else as_chat(CHAT[name]))
    }


def test_kto_tells_of_repeated_and_contradicting_answers(tmp_path):
    rows = [
        {"prompt": "Name a tree.", "chosen": "Oak.", "rejected": "Rock."},
        {"prompt": "Name a tree.", "chosen": "Oak.", "rejected": "Fish."},
        {"prompt": "Name a tree.", "chosen": "Elm.", "rejected": "Oak."},
    ]
    out, done = written(tmp_path, rows, "kto")
    assert len(lines(out)) == 6
    assert done.changes == {
        "rows that repeat an earlier one": 1,
        "answers that one pair chooses and another rejects": 1,
    }


@pytest.mark.parametrize("name", CHAT)
def test_ab_says_by_its_label_what_was_chosen(tmp_path, name):
    out, _ = written(tmp_path, CHAT[name], "ab", seed=3)
    for row, (prompt, chosen, rejected) in zip(lines(out), sides(CHAT[name]), strict=True):
        both = [row["output_1"], row["output_2"]]
        assert (row["prompt"], both.pop(row["label"] - 1), both) == (prompt, chosen, [rejected])
    expected = sides(CHAT[name] if name == "text" else as_chat(CHAT[name]))
    assert sides(read_again(out, tmp_path)) == expected


def test_ab_shows_no_order_and_keeps_to_its_seed(tmp_path):
    rows = [{"prompt": f"Q{i}", "chosen": "yes", "rejected": "no"} for i in range(400)]
    labels = {}
    for seed in (0, 1):
        out, _ = written(tmp_path, rows, "ab", f"seed{seed}", seed=seed)
        labels[seed] = [r["label"] for r in lines(out)]
        assert 160 < labels[seed].count(1) < 240
    assert labels[0] != labels[1]
    assert labels[0] == [r["label"] for r in lines(written(tmp_path, rows, "ab", "once-more", chunk_bytes=700)[0])]


# ---------------------------------------------------------------------------------------------- LLaMA-Factory


def test_llamafactory_of_chat(tmp_path):
    out, done = written(tmp_path, TOOLS, "llamafactory")
    rows = lines(out / "data/train.jsonl")
    assert rows[0]["conversations"] == [{"from": "human", "value": "Name a tree."}]
    assert (rows[0]["chosen"], rows[0]["rejected"]) == (
        {"from": "gpt", "value": "Oak."},
        {"from": "gpt", "value": "Rock."},
    )
    assert [r["system"] for r in rows] == ["", "", "Be brief.", "", ""]
    assert [t["from"] for t in rows[2]["conversations"]] == ["human", "gpt", "human"]
    asked = rows[3]["conversations"][1:]
    assert [t["from"] for t in asked] == ["function_call", "observation"]
    assert json.loads(asked[0]["value"]) == {"name": "weather", "arguments": {"city": "Oslo"}}
    assert asked[1]["value"] == "rain"
    assert json.loads(rows[3]["tools"]) == TOOLS[3]["tools"] and [r["tools"] for r in rows[:3]] == [""] * 3
    (entry,) = json.loads((out / "dataset_info.json").read_bytes()).values()
    assert entry == {
        "file_name": "data/train.jsonl", "formatting": "sharegpt", "ranking": True,
        "columns": {c: c for c in ("chosen", "rejected", "tools", "system")} | {"messages": "conversations"},
    }  # fmt: skip
    assert done.changes["tool calls written as LLaMA-Factory's function_call, without their ids"] == 2


@pytest.mark.parametrize("name", ["text", "single", "multi", "transcript"])
def test_llamafactory_is_read_again(tmp_path, name):
    out, _ = written(tmp_path, SETS[name], "llamafactory")
    again = read_again(out, tmp_path)
    if name == "transcript":
        assert again[0]["prompt"] == [user("Hi."), assistant("Hello."), user("A fish?")]
    else:
        assert sides(again) == sides(SETS[name])
    assert [r["id"] for r in again] == [r["id"] for r in SETS[name]]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"prompt": [user("A."), user("B.")]}, "turns that do not alternate"),
        ({"prompt": [user("A."), assistant("B")]}, "a prompt that does not end with a question"),
        (
            {"chosen": [call("f", "k"), {"role": "tool", "content": "1"}, assistant("One.")]},
            "an answer of several messages",
        ),
        ({"chosen": [{**call("f", "k"), "content": "Let me see."}]}, "text beside a tool call"),
        (
            {"prompt": [user("A."), assistant("B."), {"role": "system", "content": "C."}]},
            "a system message behind the first",
        ),
        ({"chosen": [{**assistant("Oak."), "weight": 0}]}, "the message key 'weight'"),
    ],
)
def test_llamafactory_would_skip_it_in_silence(tmp_path, change, told):
    with pytest.raises(InputError, match="1 of 2 pairs cannot be written as llamafactory") as error:
        written(tmp_path, [SINGLE[1], {**SINGLE[0], **change}], "llamafactory")
    assert told in str(error.value)


def test_llamafactory_splits_and_other_sets_of_the_folder(tmp_path):
    for split in ("train", "test"):
        (tmp_path / "in" / split).mkdir(parents=True)
        write_lines(tmp_path / "in" / split / "a.jsonl", TEXT[:2] if split == "train" else TEXT[2:])
    out = tmp_path / "out"
    done = prefdata.convert(str(tmp_path / "in"), out, "llamafactory")
    assert done.splits == {"train": 2, "test": 2}
    known = json.loads((out / "dataset_info.json").read_bytes())
    assert {k: v["file_name"] for k, v in known.items()} == {
        "prefs": "data/train.jsonl",
        "prefs_test": "data/test.jsonl",
    }
    prefdata.clean(str(out), tmp_path / "again", only=["malformed"], export="none")
    assert sides(loaded(tmp_path / "again", split="test")) == sides(TEXT[2:])
    prefdata.convert(str(tmp_path / "in"), out, "llamafactory", input_split="test", overwrite=True)
    assert not (out / "data/test.jsonl").exists()
    (out / "dataset_info.json").write_text('{"mine": {"file_name": "mine.json"}}')
    with pytest.raises(OutputError, match="tells of other sets too"):
        prefdata.convert(str(tmp_path / "in"), out, "llamafactory", overwrite=True)
    assert "mine" in (out / "dataset_info.json").read_text() and (out / "data/train.jsonl").exists()


# ---------------------------------------------------------------------------------------------- TRL


def test_trl_takes_every_form_for_what_it_is(tmp_path):
    pytest.importorskip("trl")
    from datasets import Dataset, load_dataset
    from trl import unpair_preference_dataset
    from trl.data_utils import is_conversational, maybe_extract_prompt

    for to in ("hf-chat", "hf-implicit"):
        out, _ = written(tmp_path, MULTI, to, to)
        rows = loaded(out)
        assert all(map(is_conversational, rows))
        asked = [maybe_extract_prompt(r) for r in rows]
        assert sides(asked) == sides(MULTI)
    out, _ = written(tmp_path, SINGLE, "hf-text", "hf-text")
    assert not any(map(is_conversational, loaded(out)))
    for name, rows in (("text", TEXT), ("multi", MULTI)):
        out, _ = written(tmp_path, rows, "kto", f"kto-{name}")
        held = load_dataset("json", data_files=str(out), split="train")
        assert {"prompt", "completion", "label"} <= set(held.column_names) and held.features["label"].dtype == "bool"
        assert {is_conversational(r) for r in held} == {name == "multi"}
        # what TRL makes of pairs itself: the same rows
        pairs = Dataset.from_list([dict(zip(("prompt", "chosen", "rejected"), p, strict=True)) for p in sides(rows)])
        theirs = unpair_preference_dataset(pairs)
        assert sorted(json.dumps([r["prompt"], r["completion"], r["label"]]) for r in held) == sorted(
            json.dumps([r["prompt"], r["completion"], r["label"]]) for r in theirs
        )


# ---------------------------------------------------------------------------------------------- columns


def test_margins_scores_and_info_survive(tmp_path):
    rows = [
        {"prompt": f"Q{i}", "chosen": "yes", "rejected": "no", "score_chosen": 2.5, "score_rejected": i, "pd_id": f"own-{i}", "pd_margin": 2.5 - i, "pd_strength": 0.5}
        for i in range(3)
    ]  # fmt: skip
    for to in ("jsonl", "hf-text", "hf-chat", "llamafactory", "ab", "kto"):
        out, _ = written(tmp_path, rows, to, to)
        if to == "llamafactory":
            out = out / "data/train.jsonl"
        found = lines(out) if Path(out).is_file() else loaded(out)
        found = found[::2] if to == "kto" else found
        for row, source in zip(found, rows, strict=True):
            for name in ("score_chosen", "score_rejected", "pd_id", "pd_margin", "pd_strength"):
                assert row[name] == source[name], (to, name)


def test_columns_whose_names_a_form_needs_are_renamed_and_told(tmp_path):
    rows = [
        {
            "prompt": "Q",
            "chosen": "yes",
            "rejected": "no",
            "label": "hard",
            "question": "another",
            "system_prompt": None,
        }
    ]
    rows.append({**rows[0], "prompt": "R"})
    out, done = written(tmp_path, rows, "ab")
    assert [r["pd_label"] for r in lines(out)] == ["hard", "hard"] and {r["label"] for r in lines(out)} <= {1, 2}
    assert done.changes["column 'label' is carried as 'pd_label': its name says something else there"] == 2
    out, _ = written(tmp_path, rows, "llamafactory", "lf")
    assert lines(out / "data/train.jsonl")[0]["pd_question"] == "another"
    assert sides(read_again(out, tmp_path)) == sides(rows)
    with pytest.raises(InputError, match="has the columns 'label' and 'pd_label'"):
        written(tmp_path, [{**r, "pd_label": 1} for r in rows], "ab", "both")


@pytest.mark.parametrize("to", ["kto", "ab", "jsonl", "llamafactory"])
def test_labels_of_the_source_are_not_taken_for_those_of_the_form(tmp_path, to):
    rows = [
        {"prompt": f"Q{i}", "response_a": f"first {i}", "response_b": f"second {i}", "winner": "ab"[i % 3 == 0], "model_a": "x", "model_b": "y"}
        for i in range(12)
    ]  # fmt: skip
    pairs = [
        (r["prompt"], r[f"response_{r['winner']}"], r["response_b" if r["winner"] == "a" else "response_a"])
        for r in rows
    ]
    out, done = written(tmp_path, rows, to)
    again = read_again(out, tmp_path)
    assert sides(again) == pairs
    kept = "winner" if to in ("jsonl", "llamafactory") else "pd_winner"
    assert [r[kept] for r in again] == [r["winner"] for r in rows]
    if to == "ab":
        assert "column 'winner' is carried as 'pd_winner': its name says something else there" in done.changes
        assert all("model_a" not in r and r["pd_model_a"] == "x" for r in again)


def test_columns_that_would_be_read_as_a_label_are_renamed(tmp_path):
    rows = [{"prompt": f"Q{i}", "chosen": "yes", "rejected": "no", "preference": 1, "thumbs": "up"} for i in range(9)]
    for to in ("ab", "kto"):
        out, _ = written(tmp_path, rows, to, to)
        assert sides(read_again(out, tmp_path / to)) == sides(rows), to


def test_numbers_that_json_or_arrow_have_no_place_for(tmp_path):
    rows = [
        {**TEXT[0], "big": 2**70, "x": 1},
        {**TEXT[3], "big": -1, "x": 0.5},
        {**TEXT[1], "big": None, "x": float("inf")},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in rows))
    done = prefdata.convert(source, tmp_path / "out.jsonl", "jsonl")
    assert [r["big"] for r in lines(tmp_path / "out.jsonl")] == [2**70, -1, None]
    assert [r["x"] for r in lines(tmp_path / "out.jsonl")] == [1, 0.5, None]
    assert done.changes["NaN or infinity in column 'x' written as null"] == 1


def test_bytes_have_no_place_in_lines(tmp_path):
    import datetime

    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {**{k: [r[k] for r in SINGLE] for k in ("prompt", "chosen", "rejected")}, "image": [b"\xff", b"\x00"]}
    )
    pq.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(InputError, match=r"the column 'image' holds bytes, which JSON cannot. Write Parquet"):
        prefdata.convert(tmp_path / "in.parquet", tmp_path / "out.jsonl", "jsonl")
    prefdata.convert(tmp_path / "in.parquet", tmp_path / "out", "hf-chat")
    assert [r["image"] for r in loaded(tmp_path / "out")] == [b"\xff", b"\x00"]
    when = table.drop_columns("image").append_column("at", pa.array([datetime.datetime(2026, 1, 2)] * 2))
    pq.write_table(when, tmp_path / "in.parquet")
    done = prefdata.convert(tmp_path / "in.parquet", tmp_path / "out.jsonl", "jsonl")
    assert [r["at"] for r in lines(tmp_path / "out.jsonl")] == ["2026-01-02T00:00:00"] * 2
    assert done.changes["column 'at' (timestamp[us]) is written as text"] == 2


# ---------------------------------------------------------------------------------------------- rows that are no pair

BAD = [TEXT[0], {"prompt": "Q", "chosen": "yes"}, {"prompt": "Q", "chosen": " ", "rejected": "no"}, TEXT[1]]


@pytest.mark.parametrize("to", ["hf-text", "hf-chat", "llamafactory", "kto", "jsonl", "ab"])
def test_rows_that_are_no_pair_stop_it_or_are_listed(tmp_path, cli, to):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in BAD) + "{broken\n")
    out = tmp_path / ("out.jsonl" if to in ("kto", "jsonl", "ab") else "out")
    ended = cli("convert", source, out, "--to", to)
    assert ended.code == 2 and ended.out == ""
    for part in (
        "in.jsonl: 3 of 5 pairs",
        "missing_field 1",
        "empty_completion 1",
        "parse_error 1",
        "in.jsonl:2",
        "--on-bad-row skip",
    ):
        assert part in ended.err
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]
    ended = cli("convert", source, out, "--to", to, "--on-bad-row", "skip")
    assert ended.code == 0
    assert "left out 3 of 5: " in ended.err and f"{out}.skipped.jsonl" in ended.err
    listed = lines(f"{out}.skipped.jsonl")
    assert [(r["pd_line"], r["pd_code"]) for r in listed] == [
        (2, "missing_field"),
        (3, "empty_completion"),
        (5, "parse_error"),
    ]
    assert json.loads(listed[0]["pd_raw"]) == BAD[1] and listed[2]["pd_raw"] == "{broken"
    written = out / "data/train.jsonl" if to == "llamafactory" else out
    assert len(lines(written) if written.is_file() else loaded(out)) == (4 if to == "kto" else 2)


def test_nothing_left_is_an_error_that_leaves_nothing(tmp_path, cli):
    source = write_lines(tmp_path / "in.jsonl", BAD[1:3])
    ended = cli("convert", source, tmp_path / "out", "--to", "hf-text", "--on-bad-row", "skip")
    assert ended.code == 2 and "2 of 2 pairs" in ended.err and "Nothing is left to write" in ended.err
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]


def test_the_list_goes_when_nothing_is_left_out_any_more(tmp_path):
    source = write_lines(tmp_path / "in.jsonl", BAD)
    prefdata.convert(source, tmp_path / "out.jsonl", "jsonl", on_bad_row="skip")
    assert (tmp_path / "out.jsonl.skipped.jsonl").exists()
    write_lines(source, [BAD[0], BAD[3]])
    done = prefdata.convert(source, tmp_path / "out.jsonl", "jsonl", overwrite=True)
    assert done.listed is None and not (tmp_path / "out.jsonl.skipped.jsonl").exists()


# ---------------------------------------------------------------------------------------------- places, pipes, bytes


def test_places_that_are_refused(tmp_path):
    source = write_lines(tmp_path / "in.jsonl", TEXT)
    before = source.read_bytes()
    (tmp_path / "folder").mkdir()
    inside = write_lines(tmp_path / "folder/a.jsonl", TEXT)
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    (tmp_path / "hard.jsonl").hardlink_to(source)
    list_as_input = write_lines(tmp_path / "o.jsonl.skipped.jsonl", TEXT)
    refused = [
        (source, source, "jsonl", "is the input"),
        (str(tmp_path / "i*.jsonl"), source, "jsonl", "is the input"),
        (source, tmp_path / "hard.jsonl", "kto", "is the input"),
        (tmp_path / "folder", tmp_path / "folder/b.jsonl", "ab", "lies inside the input"),
        (tmp_path / "folder", tmp_path / "folder/b", "hf-text", "lies inside the input"),
        (inside, tmp_path / "folder", "hf-chat", "holds the input"),
        (source, tmp_path / "link.jsonl", "jsonl", "is a link"),
        (source, tmp_path / "out.csv", "jsonl", "is no name of a file of JSON lines"),
        (source, tmp_path / "out", "kto", "is no name of a file of JSON lines"),
        (list_as_input, tmp_path / "o.jsonl", "jsonl", "is the input"),
    ]
    for given, out, to, told in refused:
        with pytest.raises(OutputError, match=told):
            prefdata.convert(given, out, to, overwrite=True)
    assert source.read_bytes() == before and list_as_input.read_bytes() == before and inside.read_bytes() == before
    assert not list(tmp_path.glob(".*")) and not (tmp_path / "folder/b").exists()


def test_what_is_there_is_replaced_only_if_asked(tmp_path):
    source = write_lines(tmp_path / "in.jsonl", TEXT)
    for out, to in (
        (tmp_path / "out.jsonl", "jsonl"),
        (tmp_path / "out", "hf-text"),
        (tmp_path / "lf", "llamafactory"),
    ):
        prefdata.convert(source, out, to)
        with pytest.raises(OutputError, match=r"exists.*--overwrite"):
            prefdata.convert(source, out, to)
        (tmp_path / "lf/mine.txt").parent.mkdir(exist_ok=True)
        (tmp_path / "lf/mine.txt").write_text("stays") if to == "llamafactory" else None
        assert prefdata.convert(source, out, to, overwrite=True).pairs == 4
    assert (tmp_path / "lf/mine.txt").read_text() == "stays"
    assert not (tmp_path / "out/.work").exists()


@pytest.mark.parametrize("to", ["hf-text", "hf-implicit", "llamafactory", "kto", "jsonl", "ab"])
def test_the_same_bytes_with_any_number_of_workers(tmp_path, to):
    rows = [{"prompt": f"Question {i % 97}", "chosen": f"yes {i}", "rejected": f"no {i}", "n": i} for i in range(500)]
    source = write_lines(tmp_path / "in.jsonl", rows)
    found = []
    for workers in (1, 2):
        out = tmp_path / f"w{workers}" / ("out.jsonl" if to in ("kto", "jsonl", "ab") else "out")
        prefdata.convert(source, out, to, workers=workers, chunk_bytes=4000)
        found.append(bytes_of(out.parent, "."))
    assert found[0] == found[1] and len(found[0]) >= 1


def test_packed_output(tmp_path):
    source = write_lines(tmp_path / "in.jsonl", TEXT)
    prefdata.convert(source, tmp_path / "plain.jsonl", "jsonl")
    for name in ("out.jsonl.gz", "out.jsonl.zst"):
        prefdata.convert(source, tmp_path / name, "jsonl")
        assert sides(read_again(tmp_path / name, tmp_path / name[-2:])) == sides(TEXT)
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()) == (tmp_path / "plain.jsonl").read_bytes()


def test_pipes(tmp_path):
    source = write_lines(tmp_path / "in.jsonl", [*TEXT, BAD[1]])
    run = [sys.executable, "-m", "prefdata", "convert", "-", "-", "--on-bad-row", "skip", "--to"]
    done = subprocess.run([*run, "jsonl"], stdin=source.open(), capture_output=True, cwd=tmp_path)
    assert done.returncode == 0
    assert sides([json.loads(line) for line in done.stdout.split(b"\n") if line]) == sides(TEXT)
    assert b"left out 1 of 5: missing_field 1" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]
    closed = subprocess.run(
        f"{' '.join(run)} kto < in.jsonl | head -c 1", shell=True, capture_output=True, cwd=tmp_path, text=True
    )
    assert "Traceback" not in closed.stderr
    folder = subprocess.run([*run, "hf-text"], stdin=source.open(), capture_output=True, cwd=tmp_path)
    assert folder.returncode == 2 and b"writes a folder, not to stdout" in folder.stderr


def test_the_summary(tmp_path, cli):
    source = write_lines(tmp_path / "in.jsonl", [*SINGLE, *TEXT])
    ended = cli("--json", "convert", source, tmp_path / "out", "--to", "hf-text")
    told = json.loads(ended.out)
    assert (told["pairs"], told["read"], told["splits"], told["to"]) == (6, 6, {"train": 6}, "hf-text")
    assert told["changes"]["text to messages"] == 4
    ended = cli("convert", source, tmp_path / "o.jsonl", "--to", "jsonl")
    assert ended.out.splitlines()[-1] == f"wrote 6 pairs as jsonl → {tmp_path}/o.jsonl"
    ended = cli("--json", "convert", source, "-", "--to", "jsonl")
    assert ended.code == 2 and "cannot both go to stdout" in ended.err


def test_options_that_make_no_sense(tmp_path):
    for options, told in (
        ({"to": "hf-txt"}, "Did you mean hf-text"),
        ({"to": "kto", "ties": "keep"}, "has no label for a tie"),
        ({"to": "jsonl", "on_bad_row": "drop"}, "not one of stop, skip"),
        ({"to": "jsonl", "gate": "kept>=1"}, "no such option: gate"),
    ):
        with pytest.raises(ConfigError, match=told):
            prefdata.convert(TEXT, tmp_path / "out.jsonl", **options)
    for split in ("train", "test"):
        write_lines(tmp_path / f"{split}.jsonl", TEXT)
    with pytest.raises(
        InputError, match=r"has the splits train, test, and jsonl is one file. Choose one: --input-split NAME"
    ):
        prefdata.convert(str(tmp_path), tmp_path.parent / f"{tmp_path.name}.jsonl", "jsonl")


def test_splits_stay_apart(tmp_path):
    for split in ("train", "test"):
        (tmp_path / "in").mkdir(exist_ok=True)
        write_lines(tmp_path / f"in/{split}.jsonl", TEXT[:1] if split == "test" else TEXT[1:])
    done = prefdata.convert(str(tmp_path / "in"), tmp_path / "out", "hf-chat", license="cc-by-4.0")
    assert done.splits == {"train": 3, "test": 1}
    assert loaded(tmp_path / "out", split="test")[0]["id"] == "a"
    assert "license: cc-by-4.0" in (tmp_path / "out/README.md").read_text()
