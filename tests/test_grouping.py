"""Rows that are read in groups, alone and in files that hold several shapes: accounts, identity, the same bytes."""

import datetime
import json
import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from written import bytes_of, dropped, loaded, report_of, write_lines

import prefdata
from prefdata import grouping
from prefdata.errors import InputError

SAME = ("data", "audit/dropped", "audit/decisions.parquet", "audit/signals.parquet", "audit/report.json")


def kto(prompt, answer, label, **more):
    return {"prompt": prompt, "completion": answer, "label": label, **more}


def said(*texts):
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def mixed():
    """Rows of many shapes, each with an ``id``; KTO rows of one prompt stand far apart."""
    rows = []
    for i in range(12):
        # one prompt: two desirable, one undesirable; another: one label only
        rows += [
            kto(f"Where is lake number {i}?", f"In valley {i}.", True),
            {"prompt": f"Name star {i}.", "chosen": f"Star {i}.", "rejected": f"Moon {i}."},
            {"prompt": said(f"Name city {i}."), "chosen": said("", f"City {i}.")[1:], "rejected": f"Town {i}."},
            {
                "conversations": [{"from": "human", "value": f"Sum {i} and 1."}],
                "chosen": {"from": "gpt", "value": f"{i + 1}"},
                "rejected": {"from": "gpt", "value": f"{i + 2} or so"},
            },
            {
                "chosen": f"\n\nHuman: Name bird {i}.\n\nAssistant: Bird {i}.",
                "rejected": f"\n\nHuman: Name bird {i}.\n\nAssistant: Fish {i}.",
            },
            {
                "instruction": f"Translate word {i}.",
                "output_1": f"Mot {i}",
                "output_2": f"Wort {i}",
                "preference": 1 + i % 2,
            },
            kto(f"Who wrote book {i}?", f"Author {i}.", bool(i % 2)),
        ]
    for i in range(12):
        rows += [
            kto(f"Where is lake number {i}?", f"In the hills, {i}.", False),
            kto(f"Where is lake number {i}?", f"By hut {i}.", True),
        ]
    return [{"id": f"m{n}", **row} for n, row in enumerate(rows)]


def orders():
    rows = mixed()
    yield "as built", rows
    yield "kto last", sorted(rows, key=lambda r: "label" in r)
    yield "kto first", sorted(rows, key=lambda r: "label" not in r)
    random.Random(3).shuffle(rows)
    yield "mixed", rows


@pytest.mark.parametrize(("name", "rows"), list(orders()), ids=[n for n, _ in orders()])
def test_a_file_of_many_shapes_is_read_row_by_row_and_each_row_is_accounted_for(tmp_path, name, rows):
    path = write_lines(tmp_path / "in.jsonl", rows)
    with path.open("a") as file:
        file.write('{"prompt": "cut\n')
    result = prefdata.clean(str(path), tmp_path / "out", chunk_bytes=1500, workers=1)
    source = report_of(tmp_path / "out")["source"]
    shapes = {"chat": 12, "explicit": 12, "sharegpt": 12, "transcript": 12, "two_answers": 12, "unpaired": 48}
    assert source["shapes"] == shapes
    assert source["rows"] == len(rows) + 1 == source["files"][0]["rows"]
    # 12 prompts with two desirable and one undesirable answer give two pairs each, 12 rows have no partner
    counts = result.counts
    assert counts["pairs"] == 5 * 12 + 2 * 12 + 12 + 1 == counts["kept"] + counts["dropped"]
    assert counts["reasons"]["unpaired"] == 12 and counts["reasons"]["parse_error"] == 1
    stay, gone = loaded(tmp_path / "out"), dropped(tmp_path / "out")
    ids = [r["pd_id"] for r in stay + gone]
    assert len(ids) == len(set(ids)) == counts["pairs"]
    lines = path.read_text("utf-8").split("\n")
    covered = set()
    for row in stay + gone:
        numbers = row.get("pd_rows") or [int(row["pd_id"].split(".")[0])]
        covered.update(numbers)
        if "pd_line" in row:
            assert row["pd_line"] == numbers[0] + 1
        if row.get("pd_code") == "parse_error":
            assert row["pd_raw"] == lines[row["pd_line"] - 1]
        elif row.get("pd_code") == "unpaired":
            assert json.loads(row["pd_raw"]) == json.loads(lines[row["pd_line"] - 1])
    assert covered == set(range(len(rows) + 1))
    for row in stay:
        if row.get("pd_rows"):
            better, worse = (rows[n] for n in row["pd_rows"])
            assert better["label"] is True and worse["label"] is False
            assert [m["content"] for m in row["prompt"]] == [better["prompt"]] == [worse["prompt"]]
            assert (
                row["chosen"][-1]["content"] == better["completion"]
                and row["rejected"][-1]["content"] == worse["completion"]
            )
            assert row["pd_chosen_info"] == {"id": better["id"]} and row["pd_rejected_info"] == {"id": worse["id"]}


def test_chunks_and_workers_change_no_byte(tmp_path):
    path = write_lines(tmp_path / "in.jsonl", list(orders())[3][1])
    for out, workers in (("one", 1), ("two", 2)):
        prefdata.clean(str(path), tmp_path / out, chunk_bytes=1500, workers=workers)
    assert bytes_of(tmp_path / "one", *SAME) == bytes_of(tmp_path / "two", *SAME)
    whole = prefdata.clean(str(path), tmp_path / "whole", workers=1)
    assert len(list((tmp_path / "one/data/train").iterdir())) > 3
    assert loaded(tmp_path / "whole") == loaded(tmp_path / "one") and whole.counts["pairs"] == 96


def test_an_interrupted_run_of_groups_goes_on_to_the_same_bytes(tmp_path, monkeypatch):
    path = write_lines(tmp_path / "in.jsonl", mixed())
    prefdata.clean(str(path), tmp_path / "whole", chunk_bytes=1500, workers=1)
    made = []

    from prefdata import first_pass

    real = first_pass.measure

    def stops(task):
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(task.chunk.index)
        return real(task)

    monkeypatch.setattr(first_pass, "measure", stops)
    with pytest.raises(KeyboardInterrupt):
        prefdata.clean(str(path), tmp_path / "cut", chunk_bytes=1500, workers=1)
    seen = []
    monkeypatch.setattr(first_pass, "measure", lambda task: (seen.append(task.chunk.index), real(task))[1])
    prefdata.clean(str(path), tmp_path / "cut", chunk_bytes=1500, workers=1, resume=True)
    assert seen and not set(seen) & set(made)  # what was measured is not measured again
    assert bytes_of(tmp_path / "cut", *SAME) == bytes_of(tmp_path / "whole", *SAME)


def test_rows_of_one_prompt_in_two_files_make_a_pair_and_each_file_counts_its_own(tmp_path):
    good = [kto(f"Prompt {i}?", f"Good {i}.", True) for i in range(3)]
    bad = [kto(f"Prompt {i}?", f"Bad {i}.", False) for i in (2, 1)] + [
        kto("Alone?", "Bad.", False),
        kto("Prompt 0?", "", False),
    ]
    first, second = write_lines(tmp_path / "a.jsonl", good), write_lines(tmp_path / "b.jsonl", bad)
    for chunk_bytes in (1 << 20, 100):
        out = tmp_path / f"out{chunk_bytes}"
        prefdata.clean([str(second), str(first)], out, chunk_bytes=chunk_bytes, workers=1)
        assert {f["name"]: f["rows"] for f in report_of(out)["source"]["files"]} == {"b.jsonl": 4, "a.jsonl": 3}
        assert {(r["pd_id"], *r["pd_rows"]) for r in loaded(out)} == {("6", 6, 0), ("5", 5, 1)}
        assert {(r["pd_file"], r["pd_line"], r["pd_code"]) for r in dropped(out)} == {
            ("b.jsonl", 3, "unpaired"), ("b.jsonl", 4, "empty_completion"), ("a.jsonl", 1, "unpaired"),
        }  # fmt: skip
        shown = {r["pd_id"]: (r["file"], r["line"]) for r in report_of(out)["rows"]}
        assert shown["6"] == ("a.jsonl", 3)  # where the chosen answer stands, though its group begins in b.jsonl


def test_a_conflict_of_a_group_over_two_files_names_the_file_of_each_row(tmp_path):
    first = write_lines(tmp_path / "a.jsonl", [kto("Q?", "Same.", True)])
    second = write_lines(
        tmp_path / "b.jsonl", [kto("R?", "Good.", True), kto("Q?", "Same.", False), kto("R?", "Bad.", False)]
    )
    prefdata.clean([str(first), str(second)], tmp_path / "out")
    gone = [(r["pd_file"], r["pd_line"], r["pd_code"]) for r in dropped(tmp_path / "out")]
    assert gone == [("a.jsonl", 1, "label_conflict"), ("b.jsonl", 2, "label_conflict")]


def test_splits_of_a_folder_share_no_pair(tmp_path):
    (tmp_path / "in").mkdir()
    write_lines(
        tmp_path / "in/train.jsonl", [kto("Q?", "Good.", True), kto("R?", "Good.", True), kto("R?", "Bad.", False)]
    )
    write_lines(
        tmp_path / "in/test.jsonl", [kto("Q?", "Bad.", False), kto("S?", "Good.", True), kto("S?", "Bad.", False)]
    )
    prefdata.clean(str(tmp_path / "in"), tmp_path / "out")
    assert [r["prompt"] for r in loaded(tmp_path / "out")] == ["R?"]
    assert [r["prompt"] for r in loaded(tmp_path / "out", split="test")] == ["S?"]
    assert len(dropped(tmp_path / "out")) == 2


def test_explain_row_knows_pairs_by_their_id_and_takes_no_number_for_one(cli, tmp_path):
    rows = [kto("P?", "Alone.", True), kto("Q?", "Good.", True), kto("Q?", "Bad.", False), kto("Q?", "Worse.", False),
            kto("R?", "Good one.", True), kto("R?", "Bad one.", False)]  # fmt: skip
    path = write_lines(tmp_path / "in.jsonl", rows)
    prefdata.clean(str(path), tmp_path / "out")
    prefdata.audit(str(path), tmp_path / "audit")
    for out in ("out", "audit"):
        told = json.loads(cli("explain-row", tmp_path / out, "1.1", "--json").out)
        assert told["state"] == "kept" and told["row"] == 2 and told["signals"]["pd_id"] == "1.1"
        told = json.loads(cli("explain-row", tmp_path / out, "4", "--json").out)
        assert told["row"] == 3  # the fourth pair is that of the fifth row
        wrong = cli("explain-row", tmp_path / out, "1")
        assert wrong.code == 2 and "no row 1. It gave 1.0, 1.1." in " ".join(wrong.err.split())
        assert cli("explain-row", tmp_path / out, "5").code == 2
    signals = pq.read_table(tmp_path / "out/audit/signals.parquet")
    assert signals["pd_id"].to_pylist() == ["0", "1.0", "1.1", "4"] and signals["row"].to_pylist() == [0, 1, 2, 3]
    assert json.loads(cli("explain-row", tmp_path / "out", "1.1", "--json").out)["pair"]["rejected"] == "Worse."
    page = (tmp_path / "out/report.html").read_text("utf-8")
    assert re.search(r'"pd_id": ?"1\.1"', page) and re.search(r'row 0</span>\s*<span class="muted">in\.jsonl:1', page)


def test_signals_of_plain_pairs_have_no_further_column(tmp_path):
    prefdata.audit([{"prompt": "a?", "chosen": "b", "rejected": "c"}], tmp_path / "out")
    assert "pd_id" not in pq.read_schema(tmp_path / "out/audit/signals.parquet").names


def test_rows_with_ids_of_their_own_keep_them_and_pairs_of_one_row_are_told_apart(tmp_path):
    rows = [
        kto("Q?", "Good.", True, pd_id="x"),
        kto("Q?", "Bad.", False, pd_id="y"),
        kto("Q?", "Worse.", False, pd_id="z"),
    ]
    prefdata.clean(rows, tmp_path / "out")
    assert [r["pd_id"] for r in loaded(tmp_path / "out")] == ["x.0", "x.1"]
    assert pq.read_table(tmp_path / "out/audit/signals.parquet")["pd_id"].to_pylist() == ["x.0", "x.1"]


def test_values_that_json_has_not_come_through_groups_unchanged_or_are_told(tmp_path):
    when = datetime.datetime(2024, 5, 1, 12, 30)
    table = pa.table({
        "prompt": ["Q?", "Q?"], "completion": ["Good.", "Bad."], "label": [True, False],
        "weight": [float("nan"), 0.5], "serial": pa.array([2**63, 2**63 + 1], pa.uint64()), "when": [when, when],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "in.parquet")
    prefdata.clean(str(tmp_path / "in.parquet"), tmp_path / "out")
    (row,) = loaded(tmp_path / "out")
    assert row["serial"] is None and row["pd_chosen_info"] == {"weight": None, "serial": 2**63}
    assert row["when"] == "2024-05-01T12:30:00"
    changes = report_of(tmp_path / "out")["source"]["changes"]
    assert changes["NaN or infinity inside column 'pd_chosen_info' written as null"] == 1
    assert any("'when'" in change and "text" in change for change in changes)


def test_equal_values_are_carried_and_others_told_of_each_answer(tmp_path):
    rows = [
        kto("Q?", "Good.", True, source="web", flag=1, model="a"),
        kto("Q?", "Bad.", False, source="web", flag=True, model="b"),
    ]
    prefdata.clean(rows, tmp_path / "out")
    (row,) = loaded(tmp_path / "out")
    assert row["source"] == "web" and row["pd_chosen_info"]["model"] == "a" and row["pd_rejected_info"]["model"] == "b"
    assert row["flag"] == [1, True] and row["flag"][1] is True  # equal numbers, but not the same value


def test_more_rows_than_can_be_grouped_are_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(grouping, "ROWS", 3)
    rows = [kto("Q?", f"Answer {i}.", i % 2 == 0) for i in range(4)]
    with pytest.raises(InputError, match="more than 3 rows that must be read in groups"):
        prefdata.audit(rows)
    prefdata.audit(rows[:3])


def test_on_bad_row_stop_names_the_line_of_the_row(tmp_path):
    path = write_lines(
        tmp_path / "in.jsonl", [kto("Q?", "Good.", True), kto("Q?", "Bad.", False), {"prompt": "Q?", "label": True}]
    )
    with pytest.raises(InputError, match=r"in\.jsonl:3: missing_field"):
        prefdata.audit(str(path), on_bad_row="stop")


def test_limit_counts_rows(tmp_path):
    result = prefdata.audit(mixed(), limit=10)
    assert result.report.source["rows"] == 10 == sum(result.report.source["shapes"].values())
