"""Rows of every shape, broken in every way, in every kind of file: what hypothesis draws inputs from."""

import copy
import csv
import gzip
import io
import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from prefdata.shapes import SHAPES

# Texts that have broken readers: marks of transcripts, JSON in text, control tokens, invisible and broken characters.
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from([
        "", " ", "\u200b", "\n\nHuman: a\n\nAssistant: b", "\n\nAssistant:", "[1, 2]", '{"role": "user"}', "null", "NaN", "<|im_end|>",
        "</s>", "tie", "1", "A", "model_a", "\ud83d", "\x00", "\u2028", "=1+1", "../../up", "a" * 3000, "é", "e\u0301", "好的", "1.5",
    ]),
)  # fmt: skip
CELLS = st.one_of(
    TEXTS,
    st.sampled_from([None, True, False, 0, 1, 2, -1, 1.5, float("nan"), float("inf"), 1 << 70, [], {}, [None], [[]], [{}], [1, 2], {"a": None}]),
    st.lists(TEXTS, max_size=3),
    st.lists(st.dictionaries(st.sampled_from(["role", "content", "from", "value", "type", "text"]), TEXTS, max_size=3), max_size=3),
)  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(sorted({name for s in SHAPES for row in s.example for name in row})),
    st.sampled_from(["id", "pd_id", "pd$x", "system", "input", "label", "score", "images", "tools", "", " ", "a.b", "chosen\n"]),
    st.text(max_size=6),
)  # fmt: skip
ASKED = ("bees", "cows", "ants")  # whose product a prompt asks for: copies of an example make several groups


def _asking(value, animal, name=""):
    """The same value about another animal, so that it belongs to another group."""
    if isinstance(value, dict):
        return {k: _asking(v, animal, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_asking(v, animal, name) for v in value]
    if isinstance(value, str):
        return f"{value}-{animal}" if name.endswith("_id") else value.replace(ASKED[0], animal)
    return value


def _places(value, path=()):
    """The path of every value inside of a row."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from _places(below, (*path, key))


def _parent(row, path):
    for key in path[:-1]:
        row = row[key]
    return row


ODD = (
    5, True, 1.5, "x", None, [], {}, [[]], [5], {"a": []}, float("nan"), 10**30, [None], [{}], {"role": 5}, {"text": []}, "\x00", -1,
)  # fmt: skip


def spoiled(shape):
    """The example's rows, again and again, each time about another animal and with one odd value in one place."""
    number = 0
    for i, row in enumerate(shape.example):
        for place in _places(row):
            for odd in ODD if place else ():
                out = _asking(copy.deepcopy(list(shape.example)), f"animals {(number := number + 1)}")
                _parent(out[i], place)[place[-1]] = odd
                yield out


@st.composite
def rows(draw):
    """Some rows of one shape or several, most of them sound, those of a group together or apart."""
    out = []
    for shape in draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3)):
        for animal in draw(st.lists(st.sampled_from(ASKED), min_size=1, max_size=3)):
            out += _asking(copy.deepcopy(list(shape.example)), animal)
    if draw(st.booleans()):
        out = draw(st.permutations(out))
    for _ in range(draw(st.integers(0, 6))):
        row = draw(st.sampled_from(out))
        place = draw(st.sampled_from(list(_places(row))))
        change = draw(st.sampled_from(["cell", "text", "drop", "add", "again"]))
        if change == "again":
            out.insert(draw(st.integers(0, len(out))), copy.deepcopy(row))
        elif change == "add":
            row[draw(NAMES)] = draw(CELLS)
        elif place and change == "drop":
            del _parent(row, place)[place[-1]]
        elif place:
            _parent(row, place)[place[-1]] = draw(TEXTS if change == "text" else CELLS)
    return out


@dataclass(frozen=True)
class Input:
    """Files by their names, and what they are; one file, or several in a folder."""

    kind: str
    files: dict[str, bytes]

    def write(self, folder):
        """Write the files; returns what to name on the command line."""
        for name, data in self.files.items():
            path = Path(folder, "in", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return Path(folder, "in", *self.files) if len(self.files) == 1 else Path(folder, "in")


def lines(found):
    """Rows as lines of JSON; half a surrogate pair stays an escape, as a writer of ASCII leaves it."""
    return "".join(json.dumps(r) + "\n" for r in found)


def _csv(delimiter):
    def text(found):
        out = io.StringIO()
        names = list(dict.fromkeys(n for r in found for n in r))
        table = csv.DictWriter(out, names, delimiter=delimiter)
        table.writeheader()
        table.writerows(
            {k: v if isinstance(v, str) else json.dumps(v) for k, v in r.items() if v is not None} for r in found
        )
        return out.getvalue()

    return text


def _table(found, as_text=False):
    """Rows as Arrow: columns of mixed types, and those that Arrow has no type for, as JSON text."""
    columns = {}
    for name in dict.fromkeys(n for r in found for n in r):
        values = [r.get(name) for r in found]
        try:
            columns[name] = pa.array(values if not as_text else [json.dumps(v) for v in values])
        except (pa.ArrowException, OverflowError, UnicodeError):
            columns[name] = pa.array([None if v is None else json.dumps(v) for v in values])
    return pa.table(columns)


def _parquet(found):
    out = io.BytesIO()
    try:
        pq.write_table(_table(found), out, row_group_size=3)
    except pa.ArrowException:  # it has no place for structs without fields
        out = io.BytesIO()
        pq.write_table(_table(found, as_text=True), out)
    return out.getvalue()


def _arrow(new):
    def data(found):
        out = io.BytesIO()
        table = _table(found)
        with new(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
        return out.getvalue()

    return data


TEXT_KINDS = {
    "jsonl": lines, "json": json.dumps, "pretty": lambda r: json.dumps(r, indent=1), "one": lambda r: json.dumps(r[0]),
    "wrapped": lambda r: json.dumps({"version": 1, "data": r}), "csv": _csv(","), "tsv": _csv("\t"), "semicolons": _csv(";"), "pipes": _csv("|"),
}  # fmt: skip
TABLE_KINDS = {"parquet": _parquet, "arrow": _arrow(pa.ipc.new_file), "stream": _arrow(pa.ipc.new_stream)}
SUFFIX = {
    "jsonl": ".jsonl", "json": ".json", "pretty": ".json", "one": ".json", "wrapped": ".json", "csv": ".csv", "tsv": ".tsv", "semicolons": ".csv", "pipes": ".csv",
    "parquet": ".parquet", "arrow": ".arrow", "stream": ".arrow",
}  # fmt: skip


@st.composite
def files(draw, broken=True):
    """An input: rows in some kind of file, or in a folder with splits; then perhaps bytes broken."""
    found = draw(rows())
    kind = draw(st.sampled_from([*TEXT_KINDS, *TABLE_KINDS, "splits", "saved"]))
    if kind == "saved":
        state = json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}).encode()
        return Input(kind, {"state.json": state, "data-00000-of-00001.arrow": TABLE_KINDS["stream"](found)})
    if kind == "splits":
        other = draw(st.sampled_from(["test", "validation"]))
        suffix, write = draw(st.sampled_from([("jsonl", lambda r: lines(r).encode()), ("parquet", _parquet)]))
        cut = draw(st.integers(0, len(found)))
        return Input(
            kind, {f"data/train.{suffix}": write(found), f"data/{other}.{suffix}": write(found[cut:] or found)}
        )
    suffix = SUFFIX[kind]
    if kind in TABLE_KINDS:
        data = TABLE_KINDS[kind](found)
    else:
        encoding = (
            draw(st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "gb18030"]))
            if broken
            else "utf-8"
        )
        data = TEXT_KINDS[kind](found).encode(encoding, "backslashreplace")
    for _ in range(draw(st.integers(0, 3)) if broken else 0):
        data = _broken(draw, data)
    packed = draw(st.integers(0, 9))
    if packed == 0 and kind in TEXT_KINDS:
        data, suffix = (
            gzip.compress(data, mtime=0)[: draw(st.sampled_from([None, -8, 20])) if broken else None],
            f"{suffix}.gz",
        )
    elif packed == 1 and broken:  # a name that says something else
        suffix = draw(
            st.sampled_from(
                [".jsonl", ".json", ".csv", ".tsv", "", ".txt", ".parquet", ".arrow", ".jsonl.gz", ".csv.zst"]
            )
        )
    return Input(kind, {f"rows{suffix}": data})


def _broken(draw, data):
    at, end = sorted(draw(st.integers(0, len(data))) for _ in range(2))
    change = draw(st.sampled_from(["cut", "remove", "insert", "crlf", "twice", "byte"]))
    if change == "cut":
        return data[:at]
    if change == "remove":
        return data[:at] + data[min(end, at + 8) :]
    if change == "insert":
        return (
            data[:at]
            + draw(st.one_of(st.binary(max_size=4), st.sampled_from([b'"', b"{", b"]", b"\n", b"\x00", b"\xff", b","])))
            + data[at:]
        )
    if change == "crlf":
        return data.replace(b"\n", draw(st.sampled_from([b"\r\n", b"\r", b"\n\n", b"\xe2\x80\xa8"])))
    if change == "twice":
        return data + data
    return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]


IN = "IN"  # stands for the input itself
OPTIONS = st.just([]) | st.lists(
    st.one_of(
        st.sampled_from([f"--shape={s.name}" for s in SHAPES]),
        st.sampled_from([
            "--pairs=all", "--pairs=adjacent", "--ties=keep", "--on-bad-row=stop", "--limit=2", "--min-margin=1", f"--against={IN}",
            "--columns=prompt=prompt", "--columns=prompt=question,chosen=answer_a,rejected=answer_b",
            "--columns=first=output_1,second=output_2,label=preference", "--labels=first=1,second=2,tie=0", "--labels=first=B,second=A",
            "--input-format=json", "--input-format=csv", "--encoding=utf-16", "--encoding=gb18030", "--encoding=latin-1",
            "--input-split=test", "--input-config=data", "--split=test=0.5", "--skip=contradiction", "--only=near_duplicate", "--pipeline=full",
        ]),
    ),
    min_size=1, max_size=2, unique_by=lambda o: o.split("=")[0],
)  # fmt: skip
