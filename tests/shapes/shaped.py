"""What tests of shapes share: a few rows cleaned by the first stage alone, and published rows."""

import gzip
import json

import pyarrow.parquet as pq
import pytest
from written import write_lines

import prefdata


def made(tmp_path, rows, **options):
    """``(kept rows, dropped rows, what the report says of the input)``."""
    path, out = write_lines(tmp_path / "in.jsonl", rows), tmp_path / "out"
    result = prefdata.clean(str(path), out, only=["malformed"], overwrite=True, **options)
    folders = out / "data/train", out / "audit/dropped"
    kept, gone = (
        [_plain(r) for f in sorted(p.glob("*.parquet")) for r in pq.read_table(f).to_pylist()] for p in folders
    )
    assert len(kept) + len(gone) == result.counts["pairs"]
    return kept, gone, result.report.source


def _plain(row):
    """Messages as they are read by ``datasets``: from JSON where they are kept so."""
    sides = {
        s: json.loads(v) if isinstance(v := row[s], str) and v.startswith("[{") else v
        for s in ("prompt", "chosen", "rejected")
    }
    return row | sides


def published_rows(shared, name):
    """The rows of a published file (a JSON array, or JSON lines; gzipped or not), read by the standard library."""
    path = shared / "data" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    return json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
