"""Columns that change their type on the way: one type for the whole set, values unchanged, however the file is cut."""

import datetime
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from written import loaded, report_of

import prefdata

NAN = float("nan")
MANY = 40  # rows of each kind, so that small chunks hold one kind only
ABSENT = object()


def pairs(n):
    return [
        {"prompt": f"What is number {i}?", "chosen": f"It is {i}, I think.", "rejected": f"Nobody knows {i}."}
        for i in range(n)
    ]


def cleaned(path, out, chunk_bytes):
    prefdata.clean(str(path), out, only=["malformed"], workers=1, chunk_bytes=chunk_bytes)
    parts = sorted((out / "data/train").glob("*.parquet"))
    schemas = {pq.read_schema(p).remove_metadata().field("x") for p in parts}
    assert len(schemas) == 1, schemas  # one type for all parts
    changes = {k: v for k, v in report_of(out)["source"]["changes"].items() if "'x'" in k}
    return schemas.pop(), [r["x"] for r in loaded(out)], changes, len(parts)


def both_ways(path, tmp_path, small=1500):
    """The file in many chunks and in one: type, values and changes told are the same; returns them."""
    kind, values, changes, parts = cleaned(path, tmp_path / "many", small)
    kind_of_one, values_of_one, changes_of_one, _ = cleaned(path, tmp_path / "one", 1 << 24)
    assert parts > 1
    assert kind == kind_of_one
    assert repr(values) == repr(values_of_one)
    assert changes == changes_of_one
    return kind.type, values, changes


def lines(path, values):
    rows = [r | ({} if v is ABSENT else {"x": v}) for r, v in zip(pairs(len(values)), values, strict=True)]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


BIG = 2**53 + 1
SEVERAL = "column 'x' holds values of several types and is written as JSON"
LOST = "NaN or infinity inside column 'x' written as null"
JSON = "extension<arrow.json>"


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        pytest.param([1480, 2.5], "double", {}, id="int then float"),
        pytest.param([1480, 2.5, "a"], JSON, {SEVERAL: 120}, id="int then float then string"),
        pytest.param(["a", 1480, 2.5], JSON, {SEVERAL: 120}, id="string then int then float"),
        pytest.param([BIG, 2.5], JSON, {SEVERAL: 80}, id="an int that a float cannot hold"),
        pytest.param([2.5, NAN], "double", {}, id="NaN among floats"),
        pytest.param([7, NAN, 2.5], "double", {}, id="NaN among numbers"),
        pytest.param([2.5, NAN, "a"], JSON, {SEVERAL: 120, LOST: 40}, id="NaN, then strings"),
        pytest.param([7, float("inf"), "a"], JSON, {SEVERAL: 120, LOST: 40}, id="infinity, then strings"),
        pytest.param([[1.5], [NAN], "a"], JSON, {SEVERAL: 120, LOST: 40}, id="NaN in lists, then strings"),
        pytest.param([None, "a"], "string", {}, id="null then string"),
        pytest.param([ABSENT, 3], "int64", {}, id="late"),
        pytest.param([None, None], "string", {}, id="null only"),
        pytest.param([True, 1], JSON, {SEVERAL: 80}, id="bool then int"),
        pytest.param([[], ["a"]], "list<element: string>", {}, id="empty lists, then lists of strings"),
        pytest.param([[], []], JSON, {}, id="empty lists only"),
        pytest.param([["a"], ["a", None]], JSON, {SEVERAL: 80}, id="null in a list"),
        pytest.param([["a"], "a"], JSON, {SEVERAL: 80}, id="list then scalar"),
        pytest.param([[1], [1.5]], JSON, {SEVERAL: 80}, id="lists of ints, then of floats"),
        pytest.param([{"a": 1}, {"b": [1, None]}, {"a": "x"}], JSON, {}, id="objects of changing keys"),
        pytest.param([{"a": 1}, "a"], JSON, {SEVERAL: 80}, id="object then string"),
        pytest.param([1, 2**63 + 5], JSON, {SEVERAL: 80}, id="beyond signed 64 bits"),
    ],
)
def test_json_lines(tmp_path, given, kind, told):
    values = [v for v in given for _ in range(MANY)]
    got_kind, got, changes = both_ways(lines(tmp_path / "in.jsonl", values), tmp_path)
    assert str(got_kind) == kind and changes == told
    wanted = [None if v is ABSENT else v for v in values]
    if LOST in told:
        wanted = json.loads(json.dumps(wanted).replace("NaN", "null").replace("Infinity", "null"))
    # A column of floats holds its integers as floats; everywhere else the type is the one that came.
    wanted = [float(v) if kind == "double" else v for v in wanted]
    assert repr(got) == repr(wanted)


def test_kinds_that_alternate_in_every_chunk(tmp_path):
    """A part that holds integers and floats keeps their spelling until it is known that the set does not need it."""
    values = [[1480, 2.5, NAN][i % 3] for i in range(60)] + ["text"] * 60
    _, got, changes = both_ways(lines(tmp_path / "in.jsonl", values), tmp_path)
    assert [type(v) for v in got[:3]] == [int, float, type(None)] and got[:2] == [1480, 2.5]
    assert changes == {SEVERAL: 120, LOST: 20}


def files(tmp_path, *columns):
    """A folder of Parquet files, one a column; each gives the rows of the set a column ``x`` of its type."""
    folder = tmp_path / "in"
    folder.mkdir()
    done = 0
    for i, column in enumerate(columns):
        rows = pairs(done + len(column))[done:]
        done += len(column)
        table = pa.Table.from_pylist(rows).append_column("x", column)
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=20)
    return folder


UTC = datetime.UTC
DAY = datetime.datetime(2024, 2, 29, 12, 30)


@pytest.mark.parametrize(
    ("columns", "kind", "told"),
    [
        pytest.param([([5], pa.uint64()), ([-1], pa.int64())], "int64", [], id="uint64 that fits"),
        pytest.param([([2**63 + 5], pa.uint64()), ([-1], pa.int64())], JSON, [SEVERAL], id="uint64 that does not"),
        pytest.param([([5], pa.uint8()), ([2**63 + 5], pa.uint64())], "uint64", [], id="unsigned"),
        pytest.param([([5], pa.int32()), ([0.5], pa.float32())], "double", [], id="int32 and float32"),
        pytest.param([(["a"], pa.string()), (["b"], pa.large_string())], "string", [], id="large_string"),
        pytest.param([(["a"], pa.dictionary(pa.int8(), pa.string())), (["b"], pa.string())], "string", [], id="dictionary"),
        pytest.param([([b"\0a"], pa.binary()), ([b"\xff"], pa.large_binary())], "binary", [], id="binary"),
        pytest.param([([Decimal("1.5")], pa.decimal128(5, 1)), ([Decimal("1.25")], pa.decimal128(9, 2))], "decimal128(9, 2)", [], id="decimal"),
        pytest.param([([DAY.replace(tzinfo=UTC)], pa.timestamp("s", "UTC")), ([DAY.replace(tzinfo=UTC)], pa.timestamp("us", "UTC"))], "timestamp[us, tz=UTC]", [], id="timestamps"),
        pytest.param([([DAY.date()], pa.date32())], "date32[day]", [], id="date"),
        pytest.param([([[1, 2]], pa.list_(pa.int64(), 2)), ([[1]], pa.list_(pa.int64()))], "list<element: int64>", [], id="fixed-size list"),
        pytest.param([([["a"]], pa.list_(pa.large_string())), ([["b"]], pa.large_list(pa.string()))], "list<element: string>", [], id="large_list"),
        pytest.param([([{"a": 1}], pa.struct([("a", pa.int64())])), ([{"b": "x"}], pa.struct([("b", pa.string())]))], JSON, [SEVERAL], id="structs"),
        pytest.param([([NAN], pa.float64()), (["a"], pa.string())], JSON, [SEVERAL, LOST], id="NaN and strings"),
    ],
)  # fmt: skip
def test_parquet_files_of_several_types(tmp_path, columns, kind, told):
    folder = files(tmp_path, *[pa.array(v * MANY, t) for v, t in columns])
    got_kind, got, changes = both_ways(folder, tmp_path)
    assert str(got_kind) == kind and sorted(changes) == sorted(told)
    wanted = [v for values, _ in columns for v in values * MANY]
    assert got == [None if v != v else v for v in wanted]


def test_maps_are_written_as_json(tmp_path):
    column = pa.array([[("k", 1)]] * MANY, pa.map_(pa.string(), pa.int64()))
    kind, got, changes = both_ways(files(tmp_path, column), tmp_path)
    assert str(kind) == JSON and got == [[["k", 1]]] * MANY and "holds maps" in next(iter(changes))


def test_dates_in_csv_stay_text(tmp_path):
    path = tmp_path / "in.csv"
    cells = ["2024-02-29", "29.02.24", "007", "", "1e5", "True"] * 10
    rows = [",".join((*r.values(), x)) for r, x in zip(pairs(60), cells, strict=True)]
    path.write_text(
        "prompt,chosen,rejected,x\n" + "\n".join(r.replace("It is ", "").replace(", I", " I") for r in rows)
    )
    kind, got, changes = both_ways(path, tmp_path)
    assert (str(kind), got, changes) == ("string", cells, {})
