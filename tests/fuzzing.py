"""Rows of every shape, broken in every way, in every kind of file: what hypothesis draws inputs from."""

import copy
import gzip
import io
import json
from pathlib import Path

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


def _places(value, path=()):
    """The path of every value inside of a row."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from _places(below, (*path, key))


def _set(row, path, value):
    at = row
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value


@st.composite
def rows(draw):
    """A few rows of one shape or several, most of them sound."""
    out = []
    for _ in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from(SHAPES))
        for _ in range(draw(st.integers(1, 3))):
            out += copy.deepcopy(list(shape.example))
    for _ in range(draw(st.integers(0, 6))):
        row = draw(st.sampled_from(out))
        place = draw(st.sampled_from(list(_places(row))))
        change = draw(st.sampled_from(["cell", "text", "drop", "add", "again"]))
        if change == "again":
            out.insert(draw(st.integers(0, len(out))), copy.deepcopy(row))
        elif change == "add":
            row[draw(NAMES)] = draw(CELLS)
        elif place and change == "drop":
            at = row
            for key in place[:-1]:
                at = at[key]
            del at[place[-1]]
        elif place:
            _set(row, place, draw(TEXTS if change == "text" else CELLS))
    return out


def _lines(found):
    return "\n".join(json.dumps(r) for r in found) + "\n"


def _csv(found):
    import pandas as pd

    out = io.StringIO()
    pd.DataFrame(found).to_csv(out, index=False)
    return out.getvalue()


@st.composite
def files(draw):
    """``(name, bytes)`` of an input: rows in some kind of file, and then perhaps bytes broken."""
    found = draw(rows())
    kind = draw(st.sampled_from(["jsonl", "jsonl", "jsonl", "json", "wrapped", "pretty", "csv", "one"]))
    text = {
        "jsonl": _lines, "json": json.dumps, "pretty": lambda r: json.dumps(r, indent=1), "csv": _csv,
        "wrapped": lambda r: json.dumps({"version": 1, "data": r}), "one": lambda r: json.dumps(r[0]),
    }[kind](found)  # fmt: skip
    data = text.encode(draw(st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "gb18030"])), "backslashreplace")
    for _ in range(draw(st.integers(0, 3))):
        data = _broken(draw, data)
    if draw(st.integers(0, 9)) == 0:
        data = gzip.compress(data)[: draw(st.sampled_from([None, -8, 20]))]
    suffix = draw(st.sampled_from([".jsonl", ".json", ".csv", "", ".txt", ".parquet", ".jsonl.gz"]))
    return f"in{suffix if draw(st.booleans()) else '.csv' if kind == 'csv' else '.jsonl'}", data


def _broken(draw, data):
    at, end = sorted(draw(st.integers(0, len(data))) for _ in range(2))
    change = draw(st.sampled_from(["cut", "remove", "insert", "crlf", "twice", "byte"]))
    if change == "cut":
        return data[:at]
    if change == "remove":
        return data[:at] + data[min(end, at + 8) :]
    if change == "insert":
        return data[:at] + draw(st.one_of(st.binary(max_size=4), st.sampled_from([b'"', b"{", b"]", b"\n", b"\x00", b"\xff", b","]))) + data[at:]
    if change == "crlf":
        return data.replace(b"\n", draw(st.sampled_from([b"\r\n", b"\r", b"\n\n", b"\xe2\x80\xa8"])))
    if change == "twice":
        return data + data
    return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]


OPTIONS = st.lists(
    st.sampled_from([
        ("--pairs", "all"), ("--pairs", "adjacent"), ("--ties", "keep"), ("--on-bad-row", "stop"), ("--limit", "2"),
        ("--columns", "prompt=prompt"), ("--labels", "first=1,second=2,tie=0"), ("--input-format", "json"), ("--min-margin", "1"),
        *(("--shape", s.name) for s in SHAPES),
    ]),
    max_size=2,
)  # fmt: skip


def write(folder, name, data):
    """The input as a file."""
    path = Path(folder) / name
    path.write_bytes(data)
    return path
