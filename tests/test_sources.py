"""Inputs that must be refused with a word of advice, or carried without a loss: names, nesting, numbers, maps."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from written import dropped, loaded, report_of, write_lines

import prefdata
from prefdata import schema
from prefdata.errors import ConfigError, InputError
from prefdata.pairs import Fault, dump, read_messages
from prefdata.shapes import Asked, find_reading

SIDES = ("prompt", "chosen", "rejected")


def rows(n=3, **more):
    return [
        {"prompt": f"What is number {i}?", "chosen": f"It is the number {i}.", "rejected": f"Unknown {i}"} | more
        for i in range(n)
    ]


def changes(out):
    return report_of(out)["source"]["changes"]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "arrow"])
def test_names_of_our_own_are_refused(tmp_path, kind):
    path = tmp_path / f"rows.{kind}"
    table = pa.Table.from_pylist(rows(**{"pd$line": "x"}))
    if kind == "jsonl":
        write_lines(path, [*rows(300), *rows(1, **{"pd$line": "x"})])
    elif kind == "csv":
        path.write_text("prompt,chosen,rejected,pd$line\na,b,c,d\n")
    elif kind == "parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(InputError, match=r"pd\$line.*Rename"):
        prefdata.audit(str(path), workers=1, chunk_bytes=4_000)


def test_two_columns_of_one_name(tmp_path):
    text = pa.array(["a"])
    table = pa.Table.from_arrays([text] * 4, names=[*SIDES, "prompt"])
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="two columns named 'prompt'"):
        prefdata.audit(str(tmp_path / "rows.parquet"), workers=1)


@pytest.mark.parametrize("depth", [300, 1000, 5000])
def test_nested_too_deeply(tmp_path, depth):
    deep = json.dumps(rows(1)[0])[:-1] + ', "x": ' + "[" * depth + "1234567890123456789012" + "]" * depth + "}\n"
    path = write_lines(tmp_path / "rows.jsonl", rows())
    path.write_text(path.read_text() + deep)
    prefdata.clean(str(path), tmp_path / "out", workers=1)
    assert [(r["pd_code"], "nested too deeply" in r["pd_reason"]) for r in dropped(tmp_path / "out")] == [
        ("parse_error", True)
    ]


def test_dump_of_deep_values():
    value = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(InputError, match="nested too deeply"):
        dump(value)


def test_unsigned_and_signed_integers(tmp_path):
    assert schema.merge([pa.uint64(), pa.uint8()]) == pa.uint64()
    assert schema.merge([pa.uint32(), pa.int32()]) == pa.int64()
    big = 2**63 + 5
    for name, value, kind in (("a", -1, pa.int64()), ("b", big, pa.uint64())):
        table = pa.Table.from_pylist(rows(1)).append_column("n", pa.array([value], kind))
        table = table.set_column(0, "prompt", pa.array([f"Tell me of {name}"]))
        table = table.set_column(1, "chosen", pa.array([f"The letter {name} is fine and this is {value}"]))
        pq.write_table(table, tmp_path / f"{name}.parquet")
    prefdata.clean([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], tmp_path / "out", workers=1)
    assert [r["n"] for r in loaded(tmp_path / "out")] == [-1, big]


def test_alpaca_input(tmp_path):
    given = [
        {"instruction": f"Do {i}", **r, "input": x}
        for i, (r, x) in enumerate(zip(rows(4), ("text", "", None, 7), strict=False))
    ]
    for row in given:
        del row["prompt"]
    prefdata.clean(given, tmp_path / "out", workers=1)
    assert [r["pd_code"] for r in dropped(tmp_path / "out")] == ["bad_type"]
    assert changes(tmp_path / "out")["input joined to the instruction"] == 1


def test_messages_said_twice():
    def fault(**message):
        got = read_messages([message], "chosen")
        return got.detail if isinstance(got, Fault) else None

    assert "both value and content" in fault(**{"from": "gpt", "value": "a", "content": "b"})
    assert "both role and from" in fault(**{"from": "human", "role": "assistant", "content": "b"})
    assert fault(**{"from": "gpt", "role": "assistant", "content": "b"}) is None
    got, _ = read_messages([{"from": "gpt", "value": "a", "content": None}], "chosen")
    assert got == [{"role": "assistant", "content": "a"}]


def test_numbers_that_json_lacks_are_counted(tmp_path):
    prefdata.clean(
        write_lines(tmp_path / "r.jsonl", rows(2, x={"a": [np.nan]})).as_posix(), tmp_path / "out", workers=1
    )
    assert changes(tmp_path / "out")["NaN or infinity inside column 'x' written as null"] == 2


def test_text_rows_of_a_chat_set_are_counted_once(tmp_path):
    chat = {"prompt": "Hello", "chosen": [{"role": "assistant", "content": "Good day"}], "rejected": "No"}
    prefdata.clean([*rows(), chat], tmp_path / "out", workers=1)
    assert changes(tmp_path / "out")["text to messages"] == 4


def test_transcripts_of_a_chat_set_are_counted_as_such(tmp_path):
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hm?"}]
    chat = {"chosen": [*turns, turns[0], turns[1]], "rejected": [*turns, turns[0], {**turns[1], "content": "No"}]}
    asked = "\n\nHuman: Hello\n\nAssistant:"
    prefdata.clean([{"chosen": f"{asked} Good day", "rejected": f"{asked} No"}, chat], tmp_path / "out", workers=1)
    told = changes(tmp_path / "out")
    assert (told["transcript turns to messages"], told.get("text to messages")) == (1, None)


def test_why_messages_are_unwritten():
    from prefdata.measuring import _unwritten

    assert "64 bits" in _unwritten("Integer exceeds 64-bit range")
    assert _unwritten("Recursion limit reached") == "is nested too deeply"


def test_columns_of_the_verdict_are_carried(tmp_path):
    given = [*rows(2, pd_file="mine"), {"prompt": "", "chosen": "a", "rejected": "b", "pd_file": "mine"}]
    prefdata.clean(given, tmp_path / "out", workers=1)
    assert {r["pd_file"] for r in loaded(tmp_path / "out")} == {"mine"}
    assert [(r["pd_pd_file"], r["pd_file"]) for r in dropped(tmp_path / "out")] == [("mine", "rows.jsonl")]


def test_one_column_for_two_parts():
    with pytest.raises(ConfigError, match="'chosen' cannot be prompt and chosen"):
        find_reading(SIDES, Asked({"prompt": "chosen"}), [], "x")
    found = find_reading(("system", "chosen", "rejected"), Asked({"prompt": "system"}), [], "x")
    assert "system" not in found.named()


def test_maps_are_written_as_json(tmp_path):
    table = pa.Table.from_pylist(rows(2))
    table = table.append_column("m", pa.array([[("a", 1), ("b", 2)], None], pa.map_(pa.string(), pa.int64())))
    pq.write_table(table, tmp_path / "rows.parquet")
    prefdata.clean(str(tmp_path / "rows.parquet"), tmp_path / "out", workers=1)
    assert [r["m"] for r in loaded(tmp_path / "out")] == [[["a", 1], ["b", 2]], None]
