"""The same bytes: with one worker and two, on a second run, on Ray, and after ``kill -9`` at any moment and ``--resume``."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from written import bytes_of, loaded, write_lines

import prefdata
from prefdata.measuring import measure as measure_chunk
from prefdata.pipeline import load

SAME = ("data", "audit/dropped", "audit/decisions.parquet", "audit/signals.parquet", "audit/report.json")
CHUNK = 6_000

_SAID = (
    "harbour lantern quiet river meadow copper engine garden winter letter market shadow bridge thunder cotton marble orchard pepper "
    "saddle timber velvet walnut anchor barrel candle dagger ember falcon granite hollow island jacket kettle ladder mirror needle"
)
WORDS = _SAID.split()


def made_rows(n=240, seed=0, chat=False):
    """Pairs of invented sentences, with every kind of fault among them and columns that change their type on the way."""
    rnd = random.Random(seed)

    def say(least, most):
        return " ".join(rnd.choice(WORDS) for _ in range(rnd.randint(least, most))).capitalize() + "."

    rows = []
    for i in range(n):
        row = {
            "id": f"r{i}",
            "prompt": say(6, 14),
            "chosen": say(25, 45),
            "rejected": say(25, 45),
            "score": i if i < n // 2 else i + 0.5,
        }
        kind = rnd.random()
        earlier = rnd.choice(rows) if rows else row
        if kind < 0.06:
            row |= {k: earlier[k] for k in ("prompt", "chosen", "rejected")}
        elif kind < 0.12:
            row |= {"prompt": earlier["prompt"], "chosen": earlier["rejected"], "rejected": earlier["chosen"]}
        elif kind < 0.2:
            row |= {
                "prompt": earlier["prompt"],
                "chosen": f"{earlier['chosen']} {rnd.choice(WORDS)}",
                "rejected": earlier["rejected"],
            }
        elif kind < 0.24:
            row["rejected"] = row["chosen"] + " "
        elif kind < 0.28:
            row["chosen"] = rnd.choice(["", None, 7, "\u200b"])
        elif kind < 0.3:
            row["chosen"] += " <|im_end|>"
        if i > n * 0.7:
            row["late"] = {"tags": [rnd.choice(WORDS)], "n": i}
        rows.append(row)
    if chat:
        for row in rows:
            if isinstance(row["chosen"], str):
                row["prompt"] = [{"role": "user", "content": row["prompt"]}]
                row["chosen"], row["rejected"] = (
                    [{"role": "assistant", "content": row[s]}] for s in ("chosen", "rejected")
                )
        rows[n // 3]["chosen"] = [
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}
        ]
    return rows


@pytest.fixture(scope="module", params=["text", "chat"])
def first(request, tmp_path_factory):
    """An input, and the bytes that one worker makes of it: (path, folder)."""
    home = tmp_path_factory.mktemp(request.param)
    path = write_lines(home / "in.jsonl", made_rows(chat=request.param == "chat"))
    with path.open("a") as file:
        file.write('{"id": "cut", "prompt": "x\n\n')
    result = prefdata.clean(str(path), home / "one", chunk_bytes=CHUNK, workers=1, split="test=0.2")
    assert result.counts["dropped"] > 20 and len(result.counts["reasons"]) >= 6
    assert len(list((home / "one/data/train").iterdir())) >= 8  # so there were at least eight chunks
    return path, home / "one"


def test_one_worker_or_two(first, tmp_path):
    path, one = first
    prefdata.clean(str(path), tmp_path / "two", chunk_bytes=CHUNK, workers=2, split="test=0.2")
    assert bytes_of(tmp_path / "two", *SAME) == bytes_of(one, *SAME)


def test_a_second_run(first, tmp_path):
    path, one = first
    prefdata.clean(str(path), tmp_path / "again", chunk_bytes=CHUNK, workers=1, split="test=0.2")
    assert bytes_of(tmp_path / "again", *SAME) == bytes_of(one, *SAME)


def test_other_chunks_change_parts_but_no_decision_and_no_row(first, tmp_path):
    path, one = first
    prefdata.clean(str(path), tmp_path / "whole", workers=1, split="test=0.2")
    for split in ("train", "test"):
        assert loaded(tmp_path / "whole", split=split) == loaded(one, split=split)
    assert loaded(tmp_path / "whole", "dropped") == loaded(one, "dropped")
    assert bytes_of(tmp_path / "whole", "audit/decisions.parquet") == bytes_of(one, "audit/decisions.parquet")


def test_only_the_manifest_and_the_log_tell_of_the_run(first):
    _, one = first
    report = (one / "audit/report.json").read_text()
    assert str(one) not in report and "seconds" not in report and "workers" not in report
    manifest = json.loads((one / "manifest.json").read_bytes())
    assert {"engine", "workers", "wall_seconds", "peak_memory_bytes"} <= set(manifest["run"])
    assert "workers" not in {
        k for key, value in manifest.items() if key != "run" and isinstance(value, dict) for k in value
    }


TWICE = """
import sys, prefdata
path, out = sys.argv[1:]
for workers in (1, 2):
    prefdata.clean(path, f"{out}{workers}", chunk_bytes=2_000, workers=workers)
"""


@pytest.mark.parametrize("threads", [None, "4"])
def test_workers_end_after_a_run_without_them(first, tmp_path, threads):
    """A thread pool that the first run started here is not there in the forked workers of the second: they must not wait for it."""
    path, _ = first
    env = {**os.environ, **({"RAYON_NUM_THREADS": threads} if threads else {})}
    subprocess.run([sys.executable, "-c", TWICE, str(path), str(tmp_path / "out")], check=True, timeout=60, env=env)
    assert bytes_of(tmp_path / "out1", *SAME) == bytes_of(tmp_path / "out2", *SAME)


@pytest.fixture(scope="module")
def ray():
    """One Ray of this session."""
    ray = pytest.importorskip("ray", reason="the extra [ray] is not installed")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield ray
    ray.shutdown()


@pytest.mark.slow
def test_on_ray(first, ray, tmp_path):
    path, one = first
    result = prefdata.clean(str(path), tmp_path / "ray", chunk_bytes=CHUNK, workers=2, split="test=0.2", engine="ray")
    assert bytes_of(tmp_path / "ray", *SAME) == bytes_of(one, *SAME)
    assert json.loads((tmp_path / "ray/manifest.json").read_bytes())["run"]["engine"] == "ray"
    assert result.counts["kept"] and ray.is_initialized()  # a Ray that was there before is left running


RUN = """
import sys, time
import prefdata
from prefdata import cli
path, out, slow = sys.argv[1], sys.argv[2], float(sys.argv[3])
from prefdata.pipeline import load
from prefdata.run import Options, run
from pathlib import Path
def progress(what, done, total):
    print(what, done, total, flush=True)
    time.sleep(slow)
run("clean", path, Path(out), load()[0], Options(chunk_bytes={chunk}, workers={workers}, split="test=0.2", resume=True), progress)
"""


def killed_and_resumed(path, out, moments, workers):
    """Kill the run after each of these numbers of progress events, then let it end."""
    code = RUN.format(chunk=CHUNK, workers=workers)
    for events in moments:
        with subprocess.Popen(
            [sys.executable, "-c", code, str(path), str(out), "0.01"],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as run:
            for _ in range(events):
                if not run.stdout.readline():
                    break
            time.sleep(random.Random(events).random() * 0.02)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
        if (Path(out) / "manifest.json").exists():
            return  # it was faster
        assert not (Path(out) / "manifest.json").exists()
    subprocess.run([sys.executable, "-c", code, str(path), str(out), "0"], check=True, stdout=subprocess.DEVNULL)


def test_killed_twice_and_resumed(first, tmp_path):
    path, one = first
    killed_and_resumed(path, tmp_path / "out", [4, 11], workers=1)
    assert bytes_of(tmp_path / "out", *SAME) == bytes_of(one, *SAME)
    assert not (tmp_path / "out/.work").exists() and not list((tmp_path / "out").rglob("*.part"))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_at_ten_moments_and_resumed(first, tmp_path, workers):
    path, one = first
    for moment in random.Random(workers).sample(range(1, 60), 10):
        out = tmp_path / f"out{moment}"
        killed_and_resumed(path, out, [moment], workers)
        assert bytes_of(out, *SAME) == bytes_of(one, *SAME), moment
        assert not (out / ".work").exists() and not list(out.rglob("*.part"))


@pytest.mark.parametrize("kind", ["json", "pretty", "csv", "parquet", "groups", "saved", "gz"])
def test_every_kind_of_file_may_be_cut(tmp_path, kind):
    """Cut into many chunks or not at all: the same rows, decisions and lines."""
    import gzip

    rows = [
        {k: r[k] if isinstance(r[k], str) else "" for k in ("id", "prompt", "chosen", "rejected")}
        for r in made_rows(120, seed=2)
    ]
    path = tmp_path / f"in.{kind}"
    if kind in ("json", "pretty"):
        path.write_text(json.dumps(rows, indent=2 if kind == "pretty" else None, ensure_ascii=False), encoding="utf-8")
    elif kind == "gz":
        path.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in rows).encode()))
    elif kind == "saved":
        from datasets import Dataset

        Dataset.from_list(rows).save_to_disk(path)
    else:
        import pandas as pd

        frame = pd.DataFrame(rows)
        if kind == "csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path, row_group_size=17 if kind == "groups" else 1000)
    options = {"input_format": "csv" if kind == "csv" else "auto"}
    whole = prefdata.clean(str(path), tmp_path / "whole", **options)
    cut = prefdata.clean(str(path), tmp_path / "cut", chunk_bytes=2_000, workers=2, **options)
    assert len(list((tmp_path / "cut/data/train").iterdir())) >= 7
    assert cut.decisions.equals(whole.decisions) and cut.counts["pairs"] == 120
    for config in (None, "dropped"):
        assert loaded(tmp_path / "cut", config) == loaded(tmp_path / "whole", config)
    if kind in ("json", "pretty", "gz"):
        lines = (
            path.read_text("utf-8").splitlines()
            if kind != "gz"
            else gzip.decompress(path.read_bytes()).decode().splitlines()
        )
        for row in loaded(tmp_path / "cut", "dropped"):
            assert f'"id": "{row["id"]}"' in "".join(lines[row["pd_line"] - 1 : row["pd_line"] + 1])


def plain_rows(n):
    return [
        {"prompt": f"Question {i}?", "chosen": f"Answer {i * 31} of many.", "rejected": f"No {i * 17}."}
        for i in range(n)
    ]


def test_the_first_chat_row_may_come_late(tmp_path):
    """Behind the rows that detection looks at: the whole set is chat."""
    rows = [
        *plain_rows(1200),
        {"prompt": [{"role": "user", "content": "Late?"}], "chosen": "Yes, quite.", "rejected": "No, not at all."},
    ]
    result = prefdata.clean(
        str(write_lines(tmp_path / "in.jsonl", rows)), tmp_path / "out", chunk_bytes=9_000, workers=2
    )
    got = loaded(tmp_path / "out")
    assert result.report.source["form"] == "chat" and len(got) == 1201
    assert got[0]["prompt"] == [{"role": "user", "content": "Question 0?"}] and got[-1]["chosen"] == [
        {"role": "assistant", "content": "Yes, quite."}
    ]


def test_a_system_text_or_a_score_may_come_late(tmp_path):
    """Behind the rows that detection looks at: it reaches the prompt, and the scores are compared."""
    rows = plain_rows(1200)
    rows[1100]["system"] = "Be terse."
    rows[1150] |= {"score_chosen": 3, "score_rejected": 3}
    result = prefdata.clean(str(write_lines(tmp_path / "in.jsonl", rows)), tmp_path / "out", chunk_bytes=9_000)
    assert result.counts["reasons"] == {"tie": 1}
    assert loaded(tmp_path / "out")[1100]["prompt"] == [
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": "Question 1100?"},
    ]


def test_a_prompt_may_come_late(tmp_path):
    """A known name behind the first rows is found, however the file is cut."""
    rows = [
        {k: f"\n\nHuman: {r['prompt']}\n\nAssistant: {r[k]}" for k in ("chosen", "rejected")} for r in plain_rows(1200)
    ]
    rows[1100] = plain_rows(1101)[-1]
    path = write_lines(tmp_path / "in.jsonl", rows)
    for chunk_bytes in (9_000, 1 << 24):
        out = tmp_path / f"out{chunk_bytes}"
        result = prefdata.clean(str(path), out, chunk_bytes=chunk_bytes)
        assert result.counts["kept"] == 1201 - 1 and result.report.source["columns"]["prompt"] == "prompt"
        assert loaded(out)[1100]["prompt"] == "Question 1100?"


def test_an_id_that_only_some_rows_have(tmp_path):
    rows = plain_rows(60)
    rows[3]["pd_id"], rows[40]["pd_id"] = "own-3", "own-40"
    prefdata.clean(str(write_lines(tmp_path / "in.jsonl", rows)), tmp_path / "out", chunk_bytes=600)
    assert [r["pd_id"] for r in loaded(tmp_path / "out")] == [r.get("pd_id", str(i)) for i, r in enumerate(rows)]


@pytest.fixture
def measured(monkeypatch):
    """How many chunks were measured."""
    seen = []

    def counting(task):
        seen.append(task.chunk.index)
        return measure_chunk(task)

    monkeypatch.setattr("prefdata.first_pass.measure", counting)
    return seen


def test_another_limit_measures_nothing_again(first, tmp_path, measured):
    path, _ = first
    options = {"chunk_bytes": CHUNK, "workers": 1}
    result = prefdata.clean(str(path), tmp_path / "out", keep_scratch=True, **options)
    chunks = len(measured)
    assert chunks >= 8 and result.counts["reasons"]["near_duplicate"] > 0
    strict = load(
        "default",
        sets=["near_duplicate.threshold=1.0", "similar_responses.max_similarity=0.99"],
        skip=["contradiction"],
    )[0]
    moved = prefdata.clean(str(path), tmp_path / "out", strict, resume=True, keep_scratch=True, **options)
    assert len(measured) == chunks  # a moved limit and a stage less: nothing is measured
    fresh = prefdata.clean(str(path), tmp_path / "fresh", strict, **options)
    assert len(measured) == 2 * chunks and moved.counts == fresh.counts != result.counts
    assert bytes_of(tmp_path / "out", "data", "audit/dropped", "audit/decisions.parquet") == bytes_of(
        tmp_path / "fresh", "data", "audit/dropped", "audit/decisions.parquet"
    )


def test_a_changed_measure_or_input_measures_again(first, tmp_path, measured):
    path, _ = first
    copy = tmp_path / "in.jsonl"
    copy.write_bytes(path.read_bytes())
    options = {"chunk_bytes": CHUNK, "workers": 1, "keep_scratch": True}
    prefdata.clean(str(copy), tmp_path / "out", **options)
    chunks = len(measured)
    other = load("default", sets=["similar_responses.metric=rouge_l"])[0]
    prefdata.clean(str(copy), tmp_path / "out", other, resume=True, **options)
    assert len(measured) == 2 * chunks
    lines = copy.read_text("utf-8").splitlines(keepends=True)
    copy.write_text("".join(lines[1:]), encoding="utf-8")
    result = prefdata.clean(str(copy), tmp_path / "out", other, resume=True, **options)
    assert len(measured) > 2 * chunks and result.counts["pairs"] == len(lines) - 2  # one less, and the blank line


@pytest.mark.parametrize("text", ["[{0}, {1}] {0}", "[{0}}}, {1}]", "[{0}, {1}]\n[{0}]"])
def test_nothing_behind_an_array_is_lost_in_silence(tmp_path, text):
    rows = [json.dumps(r) for r in plain_rows(2)]
    (tmp_path / "in.json").write_text(text.format(*rows))
    with pytest.raises(prefdata.PrefdataError, match=r"in\.json:[12]: .*behind the end of the array"):
        prefdata.audit(str(tmp_path / "in.json"))


@pytest.mark.parametrize(
    ("head", "oops", "tail"),
    [('{"version": 1, "rows": [', "null", '], "end": [1]}'), ("[", "oops", "]")],
    ids=["wrapped", "array"],
)
@pytest.mark.parametrize("chunk_bytes", [40, 1 << 20])
def test_what_stands_between_the_objects_of_a_list(tmp_path, chunk_bytes, head, oops, tail):
    rows = [json.dumps(r) for r in plain_rows(3)]
    (tmp_path / "in.json").write_text(
        f'{head}\n5,\n{rows[0]},\n"a {{", [1, 2],\n\n{rows[1]}, {oops}\n,{rows[2]},\n7\n{tail}'.replace(
            ", oops\n", " oops\n"
        ).replace("null\n,", "null,\n")
    )
    prefdata.clean(str(tmp_path / "in.json"), tmp_path / "out", chunk_bytes=chunk_bytes)
    assert [(r["pd_line"], r["pd_raw"]) for r in loaded(tmp_path / "out", "dropped")] == [
        (2, "5"),
        (4, '"a {"'),
        (4, "[1, 2]"),
        (6, oops),
        (8, "7"),
    ]
    assert len(loaded(tmp_path / "out")) == 3


def test_a_column_that_the_mapping_displaces_is_carried_and_told(tmp_path):
    rows = [{**r, "ask": r["prompt"], "prompt": f"draft {i}"} for i, r in enumerate(plain_rows(3))]
    path = str(write_lines(tmp_path / "in.jsonl", rows))
    result = prefdata.clean(path, tmp_path / "out", columns={"prompt": "ask"})
    assert [(r["prompt"], r["pd_prompt"]) for r in loaded(tmp_path / "out")] == [(r["ask"], r["prompt"]) for r in rows]
    assert result.report.source["changes"] == {
        "column 'prompt' is carried as 'pd_prompt': the mapping takes its name": 3
    }
