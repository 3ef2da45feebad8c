"""Whatever comes in, an audit ends in 0, 1 or 2, never in a traceback, and loses no pair.

``make fuzz`` runs 10,000 inputs; here are a few hundred, the same ones each time.
"""

import json
import os
import tempfile

from fuzzing import OPTIONS, files, rows, write
from hypothesis import HealthCheck, given, settings

from prefdata.shapes import SHAPES

LONG = int(os.environ.get("PREFDATA_FUZZ", 0))  # inputs in all; a short run otherwise
FEW = settings(
    max_examples=max(LONG // 2, 1) if LONG else 120, derandomize=not LONG, deadline=None, print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


def check(cli, path, options):
    """Run the command, and hold it to what every input is promised."""
    words = [w for option in options for w in option]
    ended = cli("audit", path, "--json", "--no-progress", "--workers", "1", *words)
    assert ended.code in (0, 1, 2) and "Traceback" not in ended.all, ended.all
    if ended.code == 2:
        assert ended.err.startswith("error: ") and len(ended.err) < 3000 and not ended.out, ended.all
        return
    found = json.loads(ended.out)
    counts, source = found["counts"], found["source"]
    assert counts["pairs"] == counts["kept"] + counts["dropped"] == source["pairs"]
    assert counts["dropped"] == sum(counts["reasons"].values())
    grouped = {s.name for s in SHAPES if len(s.example) > 1} & set(source["shapes"])
    assert source["pairs"] >= source["rows"] or grouped, source
    assert sum(f["rows"] for f in source["files"]) == source["rows"]


@FEW
@given(file=files(), options=OPTIONS)
def test_an_audit_of_any_file_ends_well(cli, file, options):
    with tempfile.TemporaryDirectory() as folder:
        check(cli, write(folder, *file), options)


@FEW
@given(found=rows(), options=OPTIONS)
def test_an_audit_of_any_rows_ends_well(cli, found, options):
    text = "".join(json.dumps(r) + "\n" for r in found)
    with tempfile.TemporaryDirectory() as folder:
        check(cli, write(folder, "in.jsonl", text.encode("utf-8", "backslashreplace")), options)


@settings(FEW, max_examples=max(LONG // 20, 1) if LONG else 15)
@given(found=rows())
def test_what_was_cleaned_reads_again(cli, found):
    """Nothing is lost on disk either: kept and dropped rows are the pairs, and the output is an input in which all is kept."""
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, "in.jsonl", "".join(json.dumps(r) + "\n" for r in found).encode())
        ended = cli("clean", path, f"{folder}/out", "--json", "--no-progress", "--only", "malformed")
        assert ended.code in (0, 1, 2) and "Traceback" not in ended.all, ended.all
        if ended.code == 2:
            return
        counts = json.loads(ended.out)["counts"]
        held = {
            part: sum(pq.read_metadata(p).num_rows for p in sorted((path.parent / "out").glob(f"{part}/*.parquet")))
            for part in ("data/train", "audit/dropped")
        }
        assert (held["data/train"], held["audit/dropped"]) == (counts["kept"], counts["dropped"])
        if counts["kept"]:
            again = cli("audit", f"{folder}/out", "--json", "--no-progress", "--only", "malformed")
            found = json.loads(again.out)["counts"]
            assert (found["kept"], found["dropped"]) == (counts["kept"], 0), again.all

