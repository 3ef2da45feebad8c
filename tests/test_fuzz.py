"""Whatever comes in, an audit ends in 0, 1 or 2, never in a traceback, and loses no pair.

``make fuzz`` runs 10,000 inputs, other ones each time; here are a few hundred, the same ones each time. With
``--hypothesis-show-statistics`` pytest tells which kinds of files, shapes and options they reached.
"""

import contextlib
import json
import os
import tempfile
from pathlib import Path

import pytest
from fuzzing import IN, OPTIONS, Input, files, lines, rows, spoiled
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from written import loaded

import prefdata
from prefdata.converting import FORMS
from prefdata.making import read_heads
from prefdata.shapes import SHAPES, Asked, find_reading

GROUPED = {s.name for s in SHAPES if len(s.example) > 1}
LONG = int(os.environ.get("PREFDATA_FUZZ", 0))  # inputs in all; a short run otherwise
FEW = settings(
    derandomize=not LONG, deadline=None, print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


def share(of_all, short):
    """How many inputs: a share of a long run's, else a few."""
    return settings(FEW, max_examples=max(1, int(LONG * of_all)) if LONG else short)


def written(folder, found):
    """Rows as a file of JSON lines."""
    return Input("jsonl", {"rows.jsonl": lines(found).encode()}).write(folder)


def accounts(counts, source):
    """Hold a finished run to what is promised of every input: rows in are pairs out, kept or dropped for a reason."""
    assert counts["pairs"] == counts["kept"] + counts["dropped"] == source["pairs"]
    assert counts["dropped"] == sum(counts["reasons"].values())
    assert source["pairs"] >= source["rows"] or GROUPED & set(source["shapes"]), source
    assert sum(f["rows"] for f in source["files"]) == source["rows"]


def reached(source):
    """Tell hypothesis what this input was."""
    for shape in source["shapes"]:
        event("read as", shape)
    event(
        "pairs",
        "fewer" if source["pairs"] < source["rows"] else "more" if source["pairs"] > source["rows"] else "as rows",
    )
    event("shapes in one input", len(source["shapes"]))


def check(cli, path, options):
    """Run the command, and hold it to how every run ends."""
    words = [o.replace(f"={IN}", f"={path}") for o in options]
    ended = cli("audit", path, "--json", "--no-progress", "--workers", "1", *words)
    assert ended.code in (0, 1, 2) and "Traceback" not in ended.all, ended.all
    for option in options:
        event(option, "refused" if ended.code == 2 else "done")
    if ended.code == 2:
        assert ended.err.startswith("error: ") and len(ended.err) < 3000 and not ended.out, ended.all
    else:
        found = json.loads(ended.out)
        accounts(found["counts"], found["source"])
        reached(found["source"])
    return ended.code


@share(0.45, 250)
@given(given=files(), options=OPTIONS)
def test_an_audit_of_any_file_ends_well(cli, given, options):
    with tempfile.TemporaryDirectory() as folder:
        code = check(cli, given.write(folder), options)
    event(given.kind, "refused" if code == 2 else "done")


@share(0.25, 150)
@given(found=rows(), options=OPTIONS)
def test_an_audit_of_any_rows_ends_well(cli, found, options):
    with tempfile.TemporaryDirectory() as folder:
        check(cli, written(folder, found), options)


@share(0.15, 80)
@given(given=files(broken=False), chunk_bytes=st.sampled_from([1, 100, 1000]), workers=st.sampled_from([1, 1, 1, 2]))
def test_the_cut_into_chunks_changes_nothing(given, chunk_bytes, workers):
    def told(**how):
        """The report without its example rows and counted changes of form; of an input that is refused, why."""
        try:
            found = prefdata.audit(path, **how)
        except prefdata.PrefdataError as error:
            return str(error)
        accounts(found.counts, found.report.source)
        reached(found.report.source)
        report = found.report.model_dump(exclude={"rows"})
        report["source"].pop("changes")
        return report

    with tempfile.TemporaryDirectory() as folder:
        path = given.write(folder)
        whole = told(workers=1)
        event(given.kind, "refused" if isinstance(whole, str) else "done")
        assert told(chunk_bytes=chunk_bytes, workers=workers) == whole


@share(0.05, 20)
@given(given=files(broken=False))
def test_what_was_cleaned_reads_again(cli, given):
    """Nothing is lost on disk either: kept and dropped rows are the pairs, and the output is an input in which all is kept."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        ended = cli("clean", given.write(folder), out, "--json", "--no-progress", "--only", "malformed")
        assert ended.code in (0, 1, 2) and "Traceback" not in ended.all, ended.all
        if ended.code == 2:
            return
        found = json.loads(ended.out)
        counts = found["counts"]
        accounts(counts, found["source"])
        reached(found["source"])
        kept = sum(len(loaded(out, split=name)) for name, n in found["splits"].items() if n)
        assert (kept, len(loaded(out, "dropped")) if counts["dropped"] else 0) == (counts["kept"], counts["dropped"])
        if counts["kept"]:
            again = cli("audit", out, "--json", "--no-progress", "--only", "malformed")
            found = json.loads(again.out)["counts"]
            assert (found["kept"], found["dropped"]) == (counts["kept"], 0), again.all


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_an_odd_value_in_any_place_of_an_example_is_read_or_refused(shape):
    """Each value of the example replaced by each odd one, in rows that are read as the example is."""
    names = list(dict.fromkeys(n for row in shape.example for n in row))
    reading = find_reading(names, Asked(), shape.example, "the example")
    for found in spoiled(shape):
        with contextlib.suppress(prefdata.PrefdataError):
            read_heads(found, reading)


@pytest.mark.parametrize("to", FORMS)
@share(0.1 / len(FORMS), 4)
@given(found=rows())
def test_what_was_converted_reads_again(cli, to, found):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.jsonl" if to in ("jsonl", "kto", "ab") else "out")
        ended = cli(
            "convert", written(folder, found), out, "--to", to, "--json", "--no-progress", "--on-bad-row", "skip"
        )
        assert ended.code in (0, 2) and "Traceback" not in ended.all, ended.all
        event(to, "refused" if ended.code == 2 else "done")
        if ended.code == 2:
            return
        told = json.loads(ended.out)
        assert told["read"] == told["pairs"] + sum(told["skipped"].values())
        again = cli("audit", out, "--json", "--no-progress", "--only", "malformed")
        assert again.code in (0, 1), again.all
        counts = json.loads(again.out)["counts"]
        if to != "kto":  # pairs of one prompt are paired anew there
            assert (counts["pairs"], counts["dropped"]) == (told["pairs"], 0), again.all
