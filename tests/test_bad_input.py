"""Bytes that are not what they seem: read as what they are, or refused in one sentence; bad rows are named, one by one."""

import csv
import gzip
import io
import json
import os
import pickle
import sqlite3
import subprocess
import sys
import tarfile
import zipfile

import pyarrow as pa
import pytest
import zstandard
from written import dropped, kept, loaded, report_of, write_lines

import prefdata


def pairs(n=6, **more):
    return [
        {"id": f"r{i}", "prompt": f"What is number {i}?", "chosen": f"It is {i}, I think.", "rejected": f"Unknown {i}"}
        | more
        for i in range(n)
    ]


GOOD = pairs()
LINES = [json.dumps(r) + "\n" for r in GOOD]
TEXT = "".join(LINES).encode()
HEADER = "id,prompt,chosen,rejected\n"


def zipped(name):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        file.writestr(name, TEXT)
    return held.getvalue()


def tarred():
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as file:
        info = tarfile.TarInfo("rows.jsonl")
        info.size = len(TEXT)
        file.addfile(info, io.BytesIO(TEXT))
    return held.getvalue()


def database():
    held = sqlite3.connect(":memory:")
    held.execute("create table rows (prompt text)")
    return held.serialize()


def in_encoding(name, said):
    return "".join(json.dumps(r | {"chosen": said}, ensure_ascii=False) + "\n" for r in GOOD).encode(name)


CHINESE, CHINESE_OLD, JAPANESE, FRENCH = (
    "这是一个中文的句子。",
    "這是一個中文的句子",
    "これは日本語の文章です",
    "Déjà vu à Orléans",
)
PACKED, ZSTD = gzip.compress(TEXT * 50), zstandard.compress(TEXT * 50)


def called(value):
    """Test ids without the bytes, some of which hold the time of day."""
    return value if isinstance(value, str) else "-"


# ------------------------------------------------------------------------------------------ refused as a whole


@pytest.mark.parametrize(("name", "data", "words"), [
    ("cut.jsonl.gz", PACKED[: len(PACKED) * 6 // 10], ["cut off"]),
    ("cut.jsonl.zst", ZSTD[: len(ZSTD) * 6 // 10], ["cut off"]),
    ("more.jsonl.gz", PACKED + b"and more", ["other bytes behind its compressed data"]),
    ("more.jsonl.zst", ZSTD + b"and more", ["other bytes behind its compressed data"]),
    ("empty.jsonl.gz", gzip.compress(b""), ["no rows"]),
    ("nothing.jsonl.gz", b"", ["no rows"]),
    ("pointer.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", ["Git LFS pointer", "git lfs pull"]),
    ("page.jsonl", b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", ["HTML page"]),
    ("page.csv", b"\n  <html lang='en'>", ["HTML page"]),
    ("gone.jsonl", b"404: Not Found", ["server's answer", "404: Not Found"]),
    ("gone.csv", b"Entry not found\n", ["server's answer", "Entry not found"]),
    ("gated.parquet", b"Access to dataset a/b is restricted. You must be authenticated.", ["server's answer"]),
    ("error.json", b'{"error": "Repository not found"}', ["no list of rows", "error"]),
    ("rows.jsonl", zipped("rows.jsonl"), ["ZIP archive", "Unpack"]),
    ("rows.xlsx", zipped("xl/workbook.xml"), ["Excel workbook", "CSV"]),
    ("rows.json", tarred(), ["tar archive", "Unpack"]),
    ("rows.tar.gz", gzip.compress(tarred()), ["tar archive", "Unpack"]),
    ("pickled.jsonl", pickle.dumps(GOOD), ["pickle", "never loaded"]),
    ("base.jsonl", database(), ["SQLite"]),
    ("packed.jsonl", b"\xfd7zXZ\0\0\4", ["xz", "Unpack"]),
    ("bytes.jsonl", bytes(range(128, 256)) * 4 + b"\0\1\2", ["NUL bytes"]),
    ("wide.jsonl", TEXT.decode().encode("utf-16"), ["UTF-16", "--encoding utf-16 "]),
    ("wide.csv", (HEADER + "a,b,c,d\n").encode("utf-16-le"), ["UTF-16-LE", "--encoding utf-16-le"]),
    ("gbk.jsonl", in_encoding("gbk", CHINESE), ["gbk.jsonl:1", "GBK", "--encoding gb18030"]),
    ("gbk.json", json.dumps([GOOD[0] | {"chosen": CHINESE}], ensure_ascii=False).encode("gbk"), ["GBK", "--encoding gb18030"]),
    ("big5.jsonl", in_encoding("big5", CHINESE_OLD), ["Big5", "--encoding big5"]),
    ("sjis.jsonl", in_encoding("shift_jis", JAPANESE), ["Shift-JIS", "--encoding shift_jis"]),
    ("latin.jsonl", in_encoding("latin-1", FRENCH), ["Latin-1", "--encoding latin-1"]),
    ("latin.csv", (HEADER + f"a,b,{FRENCH},d\n" * 5).encode("latin-1"), ["latin.csv:2", "Latin-1", "--encoding latin-1"]),
    ("gbk.csv", f"问题,好,坏\n{CHINESE},a,b\n".encode("gbk"), ["gbk.csv:1", "GBK"]),
    ("arrays.json", json.dumps(GOOD[:3]).encode() + b"\n" + json.dumps(GOOD[3:]).encode(), ["arrays.json:2", "end of the array"]),
    ("cut.json", json.dumps(GOOD).encode()[:-30], ["ends in the middle"]),
    ("lists.json", json.dumps({"train": GOOD, "test": GOOD}).encode(), ["train, test", "Several lists"]),
    ("python.jsonl", "".join(f"{r!r}\n" for r in GOOD).encode(), ["looks like Python, not JSON"]),
    ("table.jsonl", (HEADER + "a,b,c,d\n").encode(), ["not valid JSON", "begins 'id,prompt"]),
    ("twice.jsonl", TEXT + b'{"prompt":"a","chosen":"b","chosen":"bb","rejected":"c"}\n', ["twice.jsonl:7", "'chosen' stands twice"]),
    ("twice.csv", b"prompt,chosen,chosen,rejected\na,b,c,d\n", ["two columns named 'chosen'"]),
    ("header.csv", HEADER.encode(), ["no rows"]),
    ("quote.csv", (HEADER + 'a,p,b,c\nb,"p" q,b,c\n').encode(), ["quote.csv:3", "not valid CSV", "doubled"]),
    ("open.csv", (HEADER + 'a,p,b,c\nb,"p q,b,c\nc,p,b,c\n').encode(), ["open.csv:3", "not valid CSV"]),
    ("cut.parquet", b"PAR1" + b"\0" * 30, ["cannot be read as Parquet"]),
    ("lines.parquet", TEXT, ["cannot be read as Parquet"]),
], ids=called)  # fmt: skip
def test_refused_in_one_sentence(cli, tmp_path, name, data, words):
    (tmp_path / name).write_bytes(data)
    ended = cli("clean", tmp_path / name, tmp_path / "out")
    assert ended.code == 2 and ended.out == ""
    assert ended.err.count("\n") == 1 and ended.err.startswith(f"error: {name}") and "Traceback" not in ended.err
    for word in words:
        assert word in ended.err
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------------------------------------- read as it is


@pytest.mark.parametrize(("name", "data"), [
    ("plain.jsonl", TEXT),
    ("mark.jsonl", b"\xef\xbb\xbf" + TEXT),
    ("crlf.jsonl", TEXT.replace(b"\n", b"\r\n")),
    ("cr.jsonl", TEXT.replace(b"\n", b"\r")),
    ("joined.jsonl", LINES[0].encode() + b"\xef\xbb\xbf" + "".join(LINES[1:]).encode()),
    ("lines.json", TEXT),
    ("array.jsonl", json.dumps(GOOD).encode()),
    ("trailing.json", json.dumps(GOOD)[:-1].encode() + b",]"),
    ("commas.jsonl", TEXT.replace(b"}\n", b"},\n")),
    ("members.jsonl.gz", b"".join(gzip.compress(x.encode()) for x in LINES)),
    ("frames.jsonl.zst", b"".join(zstandard.compress(x.encode()) for x in LINES)),
    ("packed_twice.jsonl.gz", gzip.compress(gzip.compress(TEXT))),
    ("no_suffix", TEXT),
    ("misnamed.gz", gzip.compress(TEXT)),
], ids=called)  # fmt: skip
def test_read_as_what_it_is(cli, tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    ended = cli("clean", tmp_path / name, tmp_path / "out", "--only", "malformed")
    assert ended.code == 0, ended.err
    assert [{k: r[k] for k in GOOD[0]} for r in loaded(tmp_path / "out")] == GOOD


def test_an_arrow_file(tmp_path):
    table = pa.Table.from_pylist(GOOD)
    with pa.OSFile(str(tmp_path / "in.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    assert prefdata.audit(str(tmp_path / "in.arrow"), workers=1).counts["pairs"] == 6


# ------------------------------------------------------------------------------------------ rows that are bad


def bad_rows(tmp_path, name, data):
    """The ids kept; line, reason and sentence of each dropped row."""
    (tmp_path / name).write_bytes(data)
    prefdata.clean(str(tmp_path / name), tmp_path / "out", only=["malformed"], workers=1)
    return list(kept(tmp_path / "out")), [
        (r["pd_line"], r["pd_code"], r["pd_reason"]) for r in dropped(tmp_path / "out")
    ]


ROW = '{"id": "x", "prompt": "a", "chosen": "%s", "rejected": "c"}\n'


@pytest.mark.parametrize(("line", "reason", "words"), [
    ((ROW % "é").encode("latin-1"), "encoding_error", "byte 0xe9 at 38); looks like Latin-1"),
    ((ROW % CHINESE).encode("gbk"), "encoding_error", "looks like GBK"),
    (ROW.encode() % b"\\ud83d", "encoding_error", "half of a surrogate pair"),
    (ROW.encode() % b"a\0b", "parse_error", "Invalid control character"),
    ((ROW + ROW).replace("\n", "").encode() % (b"a", b"b") + b"\n", "parse_error", "more than one value on the line"),
    (ROW.strip().encode() % b"a" + b",\n", "parse_error", "a comma behind the object"),
    (ROW.encode().replace(b'"c"}', b'"c",}') % b"a", "parse_error", "a comma before the closing bracket"),
    (b'[{"prompt": "a", "chosen": "b", "rejected": "c"}]\n', "parse_error", "is a list, not an object"),
    (b"// a note\n", "parse_error", "looks like a comment"),
    (b"# a note\n", "parse_error", "looks like a comment"),
    (repr(GOOD[0]).encode() + b"\n", "parse_error", "looks like Python, not JSON"),
    (b'{"prompt": "cut\n', "parse_error", "not valid JSON"),
    (b"\0" * 40 + b"\n", "parse_error", "not valid JSON"),
    (ROW.encode().replace(b'"%s"', b"NaN"), "missing_field", "chosen is"),
    (ROW.encode().replace(b'"%s"', b"null"), "missing_field", "chosen is missing"),
    (ROW.encode().replace(b'"%s"', b"30"), "bad_type", "the number 30"),
    (ROW.encode().replace(b'"%s"', b"true"), "bad_type", "the boolean true"),
    (ROW.encode().replace(b'"%s"', b'["a"]'), "bad_type", "text"),
    (ROW.encode() % "\u200b\u2060\u00a0\ufeff".encode(), "empty_completion", "chosen is empty"),
    (ROW.encode().replace(b'"%s"', b"9" * 5000), "parse_error", "4300"),
    (ROW.encode().replace(b'"%s"', b"[" * 400 + b"]" * 400), "parse_error", "nested too deeply"),
], ids=called)  # fmt: skip
def test_a_bad_line_is_named_and_the_others_are_read(tmp_path, line, reason, words):
    ids, (gone,) = bad_rows(tmp_path, "in.jsonl", "".join(LINES[:3]).encode() + line + "".join(LINES[3:]).encode())
    assert ids == [r["id"] for r in GOOD]
    assert gone[:2] == (4, reason) and words in gone[2]


def test_a_file_of_many_bad_lines_is_still_read_line_by_line(tmp_path):
    """Single lines in another encoding do not make the file one: most of its letters are UTF-8."""
    rows = [json.dumps(r | {"chosen": FRENCH}, ensure_ascii=False) + "\n" for r in pairs(30)]
    data = b"".join(r.encode("latin-1" if i % 5 == 0 else "utf-8") for i, r in enumerate(rows))
    ids, gone = bad_rows(tmp_path, "in.jsonl", data)
    assert len(ids) == 24 and [g[:2] for g in gone] == [(i + 1, "encoding_error") for i in range(0, 30, 5)]


def test_huge_integers_keep_their_digits(tmp_path):
    rows = [r | {"n": n} for r, n in zip(GOOD, [2**70, 7, -(2**65)], strict=False)]
    write_lines(tmp_path / "in.jsonl", rows)
    prefdata.clean(str(tmp_path / "in.jsonl"), tmp_path / "out", only=["malformed"], workers=1)
    assert [json.loads(r["n"]) for r in loaded(tmp_path / "out")] == [r["n"] for r in rows]


ODD = [
    "a\u0000b",
    "\u0000",
    "a\u2028b\u2029c\u0085d",
    "\ufeffstart",
    "line\r\nend\r",
    "tab\t|pipe",
    "\u202egnol",
    "🏴\u200d☠️",
]


def test_odd_characters_leave_as_they_came(tmp_path):
    rows = [r | {"chosen": f"{r['chosen']} {odd}", "id": odd} for r, odd in zip(pairs(len(ODD)), ODD, strict=True)]
    text = "".join(json.dumps(r, ensure_ascii=i % 2 == 0 or "\0" in r["id"]) + "\n" for i, r in enumerate(rows))
    (tmp_path / "in.jsonl").write_bytes(text.encode())
    prefdata.clean(str(tmp_path / "in.jsonl"), tmp_path / "out", workers=1, skip=["near_duplicate"])
    assert [{k: r[k] for k in rows[0]} for r in loaded(tmp_path / "out")] == rows
    with (tmp_path / "out/spotcheck.csv").open(encoding="utf-8-sig", newline="") as sheet:
        cells = [{row["left"], row["right"]} for row in csv.DictReader(sheet)]
    assert cells == [{r["chosen"], r["rejected"]} for r in rows]
    assert "\0" not in (tmp_path / "out/report.html").read_text()


def test_ids_that_stand_twice_are_no_fault(tmp_path):
    _, gone = bad_rows(tmp_path, "in.jsonl", TEXT + TEXT.replace(b"number", b"figure").replace(b"Unknown", b"No idea:"))
    assert len(loaded(tmp_path / "out")) == 12 and not gone


def test_control_tokens_of_common_chat_formats_are_flagged(tmp_path):
    marks = [
        "<|eot_id|>", "</s>", "[INST]", "<|endoftext|>", "▁<s>", "<|im_end|>", "<｜end▁of▁sentence｜>", "<end_of_turn>", "[/INST]",
        "<|assistant|>", "<|END_OF_TURN_TOKEN|>", "<<SYS>>", "<pad>", "<｜User｜>", "<|reserved_special_token_0|>",
    ]  # fmt: skip
    fine = ["a <|> b", "f <| x |> g", "if a<b|c>d", "arr[i]", "<div>", "<think>"]
    rows = [{"prompt": f"p{i}", "chosen": f"yes {m}", "rejected": "no"} for i, m in enumerate(marks + fine)]
    result = prefdata.audit(rows, workers=1, only=["malformed"])
    flagged = {d["row"] for d in result.decisions.to_pylist() if d["reason"] == "special_token"}
    assert flagged == set(range(len(marks)))


# ------------------------------------------------------------------------------------------------------- CSV


def test_csv_cells_are_text_as_they_stand(tmp_path):
    cells = [["a", "p\nq", "007", "7"], ["b", "NA", "null", 'say "no", he said'], ["c", "p", "x" * 200_000, "=1+1"],
             ["d", "nan", "1e5", "None"], ["e", "p\0", " b ", "c"]]  # fmt: skip
    with (tmp_path / "in.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, lineterminator="\r\n").writerows([HEADER.strip().split(","), *cells])
    prefdata.clean(str(tmp_path / "in.csv"), tmp_path / "out", only=["malformed"], workers=1)
    assert [[r[k] for k in ("id", "prompt", "chosen", "rejected")] for r in loaded(tmp_path / "out")] == cells


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_csv_delimiters_and_line_ends(tmp_path, delimiter, end):
    with (tmp_path / "in.csv").open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter, lineterminator=end).writerows(
            [["id", "prompt", "chosen", "rejected", "a; note, or | two"], ["x", "a, b; c", "d\te", "f|g", "h"]]
        )
    prefdata.clean(str(tmp_path / "in.csv"), tmp_path / "out", only=["malformed"], workers=1)
    (row,) = loaded(tmp_path / "out")
    assert [row[k] for k in ("id", "prompt", "chosen", "rejected")] == ["x", "a, b; c", "d\te", "f|g"]


def test_bad_csv_rows_are_named_and_lose_no_cell(tmp_path):
    data = (
        HEADER.encode() + b'a,p,b,c\n\nb,p\nc,"p\nq",b,c,d,e\n' + "d,é,b,c\n".encode("latin-1") + "e,ü,b,c\n".encode()
    )
    ids, gone = bad_rows(tmp_path, "in.csv", data)
    assert ids == ["a", "e"]
    assert [g[:2] for g in gone] == [(4, "parse_error"), (5, "parse_error"), (7, "encoding_error")]
    assert "2 cells, the header has 4" in gone[0][2] and "looks like Latin-1" in gone[2][2]
    assert [r["pd_raw"] for r in dropped(tmp_path / "out")] == ["b,p", 'c,"p\nq",b,c,d,e', "d,\\xe9,b,c"]


def test_names_of_columns_with_line_breaks(tmp_path):
    (tmp_path / "in.csv").write_text('id,"a\nname",prompt,chosen,rejected\nx,1,p,b,c\n')
    prefdata.clean(str(tmp_path / "in.csv"), tmp_path / "out", only=["malformed"], workers=1)
    assert loaded(tmp_path / "out")[0]["a\nname"] == "1"


# ------------------------------------------------------------------------------------------------- encodings


@pytest.mark.parametrize(("encoding", "said"), [
    ("gb18030", CHINESE), ("big5", CHINESE_OLD), ("shift_jis", JAPANESE), ("latin-1", FRENCH), ("utf-16", "🏴 " + CHINESE),
    ("utf-16-be", FRENCH), ("UTF-8", CHINESE), ("utf-8-sig", CHINESE), ("cp1252", "“quoted” – 5 €"),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "jsonl.gz"])
def test_the_encoding_option(cli, tmp_path, encoding, said, kind):
    rows = [r | {"chosen": said} for r in GOOD]
    if kind == "csv":
        held = io.StringIO()
        csv.DictWriter(held, list(rows[0])).writerows([dict(zip(rows[0], rows[0], strict=True)), *rows])
        data = held.getvalue().encode(encoding)
    elif kind == "json":
        data = json.dumps(rows, ensure_ascii=False, indent=1).encode(encoding)
    else:
        data = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode(encoding)
    path = tmp_path / f"in.{kind}"
    path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    ended = cli("clean", path, tmp_path / "out", "--encoding", encoding, "--only", "malformed")
    assert ended.code == 0, ended.err
    assert [{k: r[k] for k in rows[0]} for r in loaded(tmp_path / "out")] == rows
    assert report_of(tmp_path / "out")["source"]["files"][0]["bytes"] == path.stat().st_size  # of the file as given


def test_a_byte_that_does_not_decode(cli, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(in_encoding("gb18030", CHINESE) + b'{"prompt": "\xff"}\n')
    size = len(in_encoding("gb18030", CHINESE))
    ended = cli("audit", tmp_path / "in.jsonl", "--encoding", "gb18030")
    assert ended.code == 2 and f"in.jsonl:7: is not gb18030 (byte 0xff at {size + 12})" in ended.err


def test_wrong_encodings(cli, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", GOOD)
    assert "Did you mean gb18030?" in cli("audit", path, "--encoding", "gb1803").err
    for name in ("hex", "rot13", "idna", "klingon"):
        ended = cli("audit", path, "--encoding", name)
        assert ended.code == 2 and f"--encoding {name}: no such encoding" in ended.err
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(GOOD), tmp_path / "in.parquet")
    ended = cli("audit", tmp_path / "in.parquet", "--encoding", "gb18030")
    assert ended.code == 2 and "is Parquet, which says its own encoding" in ended.err
    with pytest.raises(prefdata.errors.InputError, match="Leave it out"):
        prefdata.audit(GOOD, encoding="gb18030")


def test_a_published_set_in_gbk(cli, shared):
    path = shared / "data/jade-db/jade_alignment_medium_zh.csv.gz"
    ended = cli("audit", path)
    assert ended.code == 2 and ended.err.count("\n") == 1
    assert "looks like GBK" in ended.err and "--encoding gb18030" in ended.err
    columns = "prompt=问题,chosen=安全有用回答,rejected=违规回答"
    ended = cli("audit", path, "--encoding", "gb18030", "--columns", columns, "--only", "malformed")
    assert ended.code == 0 and "500 rows" in ended.out and "would keep 500 of 500" in ended.out


# ---------------------------------------------------------------------------------------------------- places


def test_an_output_beside_the_input_is_fine(cli, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", GOOD)
    assert cli("clean", path, tmp_path / "out").code == 0
    assert path.read_bytes() == TEXT


@pytest.mark.parametrize("name", ["../../up", "/etc/passwd", "a/b", "..", "x\0y"])
def test_names_from_the_data_are_never_paths(tmp_path, name):
    """Ids, names of splits in a column, file names in a column: text, nothing else."""
    (tmp_path / "deep").mkdir()
    rows = [r | {"id": name, "split": name, "file": name} for r in GOOD]
    path = write_lines(tmp_path / "deep/in.jsonl", rows)
    prefdata.clean(str(path), tmp_path / "deep/out", workers=1, only=["malformed"])
    assert {p.name for p in tmp_path.iterdir()} == {"deep"} and {p.name for p in (tmp_path / "deep").iterdir()} == {
        "in.jsonl",
        "out",
    }
    assert [r["split"] for r in loaded(tmp_path / "deep/out")] == [name] * 6


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB, and a way to make it larger."""
    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.name != "posix"
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("a tmpfs cannot be mounted here")
    yield place, lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", place], check=True)
    subprocess.run(["umount", place], check=True)


def run(*words, **env):
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "prefdata", *map(str, words)], env=os.environ | env, capture_output=True, text=True, check=False
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk(tmp_path, small_disk, workers):
    place, resize = small_disk
    rows = [r | {"more": f"{i} " + "word " * 100} for i, r in enumerate(pairs(6000))]
    path = write_lines(tmp_path / "in.jsonl", rows)
    words = ("clean", path, place / "out", "--only", "malformed", "--workers", workers, "--no-progress")
    sizes = ["1m", "4m", "5m", "6m"]
    for size in sizes:
        resize(size)
        ended = run(*words, *(["--resume"] if size != sizes[0] else []))
        if ended.returncode == 0:
            break
        assert ended.returncode == 2
        assert ended.stderr.count("\n") == 1 and "No space left" in ended.stderr and "--resume" in ended.stderr
        assert not (place / "out/manifest.json").exists()
    resize("64m")
    ended = run(*words, "--resume")
    assert ended.returncode == 0, ended.stderr
    assert len(loaded(place / "out")) == 6000


@pytest.mark.slow
def test_a_full_disk_while_unpacking(tmp_path, small_disk):
    place, _ = small_disk
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress(TEXT * 5000))
    for words in (("audit", path), ("clean", path, place / "out")):
        ended = run(*words, TMPDIR=str(place))
        assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and "No space left" in ended.stderr


def test_a_place_that_cannot_be_written(cli, tmp_path, small_disk):
    place, _ = small_disk
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    ended = cli("clean", write_lines(tmp_path / "in.jsonl", GOOD), place / "out")
    assert ended.code == 2 and ended.err.count("\n") == 1 and "cannot be written: Read-only file system" in ended.err
