"""The bench: planted faults are what their truth says, the measuring measures, and the whole thing runs. No test of speed."""

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prefdata.bench import measure, run, tokenizer, vocabulary
from prefdata.bench.corpus import Shares, make_corpus
from prefdata.bench.sentences import edit, editable, jaccard, read, words

SAMPLES = Path(run.__file__).parents[1] / "samples"
SIDES = ("prompt", "chosen", "rejected")
MANY = Shares(exact=0.1, near=0.15, contradiction=0.1, cycle=0.05, identical=0.03, format_only=0.03, light_edit=0.1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """600 rows, many of them planted: rows, truth by row, summary."""
    home = tmp_path_factory.mktemp("corpus")
    told = make_corpus([], 600, home / "c.jsonl", home / "c.truth.jsonl", seed=3, shares=MANY)
    rows = [json.loads(line) for line in (home / "c.jsonl").read_text("utf-8").split("\n")[:-1]]
    truth = [json.loads(line) for line in (home / "c.truth.jsonl").read_text().splitlines()]
    return home, rows, {t["row"]: t for t in truth}, told


def of_kind(made, kind):
    return [
        (made[1][t["row"]], made[1][t["peer"]] if t["peer"] is not None else None, t)
        for t in made[2].values()
        if t["kind"] == kind
    ]


def test_the_corpus_has_the_rows_and_shares_asked_for(made):
    _, rows, truth, told = made
    assert len(rows) == told["rows"] == 600
    assert sum(told["kinds"].values()) == 600 and all(list(r) == list(SIDES) for r in rows)
    kinds = Counter(t["kind"] for t in truth.values())
    assert kinds["exact"] + kinds["near"] == 150 and kinds["contradiction"] == 48 and kinds["contradiction_vote"] == 12
    assert kinds["vote"] == 24 and kinds["cycle"] == 30
    assert 1400 < told["bytes"] / 600 < 2500


def test_every_planted_row_is_what_the_truth_says(made):
    for row, peer, t in of_kind(made, "exact") + of_kind(made, "vote"):
        assert row == peer and t["peer"] < t["row"]
    for row, peer, _ in of_kind(made, "contradiction") + of_kind(made, "contradiction_vote"):
        assert row == {"prompt": peer["prompt"], "chosen": peer["rejected"], "rejected": peer["chosen"]}
    for row, _, _ in of_kind(made, "identical"):
        assert row["chosen"].strip() == row["rejected"].replace("\u200b", "").strip()
    for row, _, _ in of_kind(made, "format_only"):
        assert words(row["chosen"]) == words(row["rejected"]) and row["chosen"] != row["rejected"]
        assert not re.search(r"\d", row["chosen"])
    for row, _, _ in of_kind(made, "light_edit"):
        assert row["chosen"] != row["rejected"] and jaccard(row["chosen"], row["rejected"], 1) > 0.7


def test_each_cycle_closes(made):
    cycles = {}
    for row, _, t in of_kind(made, "cycle"):
        cycles.setdefault(t["peer"], []).append(row)
    assert cycles
    for rows in cycles.values():
        assert len(rows) >= 3 and len({r["prompt"] for r in rows}) == 1
        assert sorted(r["chosen"] for r in rows) == sorted(r["rejected"] for r in rows)
        assert all(a["rejected"] == b["chosen"] for a, b in zip(rows, rows[1:] + rows[:1], strict=True))


def test_near_duplicates_differ_in_words_but_not_in_numbers_negation_or_code(made):
    near = of_kind(made, "near")
    assert len(near) > 60
    kept = re.compile(r"\d+|\b(?:not?|never|nor|none|without|nobody)\b|```.*?```|不|没|ไม่", re.DOTALL | re.IGNORECASE)
    for row, peer, t in near:
        assert row != peer and t["peer"] < t["row"]
        for n, name in ((2, "j2"), (5, "j5")):
            assert t[name] == pytest.approx(min(jaccard(row[s], peer[s], n) for s in SIDES), abs=1e-4)
        assert all(kept.findall(row[s]) == kept.findall(peer[s]) for s in SIDES)
    assert sum(t["j2"] >= 0.8 for *_, t in near) > len(near) * 0.7


def test_the_same_arguments_give_the_same_bytes(made, tmp_path):
    make_corpus([], 600, tmp_path / "again", tmp_path / "truth", seed=3, shares=MANY)
    assert (tmp_path / "again").read_bytes() == (made[0] / "c.jsonl").read_bytes()
    make_corpus([], 50, tmp_path / "other", tmp_path / "truth", seed=4)
    assert (tmp_path / "other").read_bytes()[:500] != (tmp_path / "again").read_bytes()[:500]


def test_words_and_jaccard():
    assert words("It's 3 m, 好的 ไม่") == ["it", "s", "3", "m", "好", "的", "ไ", "ม", "่"]
    assert jaccard("a b c d", "a b c x", 2) == pytest.approx(2 / 4)
    assert jaccard("one", "one", 5) == 1 and jaccard("", "", 2) == 1 and jaccard("", "x", 2) == 0


def test_edits_leave_alone_what_decides():
    from random import Random

    text = "We did not pay 12 euros or seven pounds to Anna; x = 3\n```\nreturn value or nothing\n```\nNever walk alone here"
    assert {w for *_, w in editable(text)} <= {"walk", "alone", "here"}
    assert {w for *_, w in editable("ไม่ดี")} == {"ด"} and {w for *_, w in editable("不要三个")} == {"要", "个"}
    for seed in range(20):
        out = edit([text, "short words only"], 0.3, ["apple", "pear"], Random(seed))
        assert out[0].startswith(text.removesuffix("walk alone here")) and out != [text, "short words only"]


def test_sentences_are_read_from_any_json_and_missing_files_are_named(tmp_path):
    from prefdata.errors import InputError

    source = tmp_path / "x.json"
    source.write_text(
        json.dumps([{"a": [{"value": f"Here is sentence number {i} of the file."}]} for i in range(1500)])
    )
    pool = read([source])
    assert pool.size == 1500 and all(s.startswith("Here is") for x in pool.languages for s in x.sentences)
    with pytest.raises(InputError, match=r"nowhere\.jsonl"):
        read([tmp_path / "nowhere.jsonl"])


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_measuring_counts_orphans_and_memory(tmp_path):
    # The grandchild is never waited for by its parent, and does the work.
    work = "import time\nx=bytearray(80_000_000)\nx[::4096]=b'1'*len(x[::4096])\nt=time.process_time()\nwhile time.process_time()-t<0.5: pass"
    (tmp_path / "work.py").write_text(work)
    script = (
        f"import subprocess,sys,time; subprocess.Popen([sys.executable, {str(tmp_path / 'work.py')!r}]); time.sleep(.1)"
    )
    command = [sys.executable, str(measure.__file__), str(tmp_path / "r.json"), sys.executable, "-c", script]
    subprocess.run(command, check=True, timeout=60)
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["code"] == 0 and found["cpu"] >= 0.5
    assert found["peak"] > 70_000_000


def test_quality_counts_recall_and_precision(tmp_path):
    truth = [
        {"row": 3, "kind": "exact", "peer": 0},
        {"row": 4, "kind": "near", "peer": 1, "j2": 0.9, "j5": 0.7},
        {"row": 5, "kind": "contradiction", "peer": 2},
        {"row": 9, "kind": "near", "peer": 6, "j2": 0.5, "j5": 0.2},
    ]
    (tmp_path / "t").write_text("\n".join(map(json.dumps, truth)))
    acts = [(3, "exact_duplicate"), (4, "near_duplicate"), (7, "near_duplicate"), (5, "contradiction")]
    columns = {
        "row": [a for a, _ in acts] + [0, 4],
        "action": ["drop"] * 4 + ["keep"] * 2,
        "reason": [b for _, b in acts] + [None] * 2,
    }
    table = pa.table({k: pa.array(v) if k == "row" else pa.array(v).dictionary_encode() for k, v in columns.items()})
    pq.write_table(table, tmp_path / "d.parquet")
    found, kept = run.quality(tmp_path / "d.parquet", tmp_path / "t", 10)
    assert kept == 6
    assert found["exact"] == {"planted": 1, "recall": 1.0, "false": 0, "precision": 1.0}
    assert found["near, 2-gram J >= 0.8"] == {"planted": 1, "recall": 1.0, "false": 1, "precision": 0.5}
    assert found["near, 5-gram J >= 0.8"]["planted"] == 0 and found["near, all planted"]["recall"] == 0.5
    assert found["contradiction"] == {"planted": 2, "recall": 0.5, "false": 0, "precision": 1.0}


def test_the_table_has_ratios_and_growth():
    def cost(cpu, peak):
        return {"cpu": cpu, "wall": cpu, "peak": peak}

    small = run.Size(100, 0.2, [{"prefdata": cost(2.0, 100), "by hand": cost(10.0, 300)}] * 2, {"near_duplicate": 1.0})
    text = run.markdown(
        [small, run.Size(500, 1.0, [{"prefdata": cost(8.0, 100)}])], "x", ["python", "-m", "prefdata.bench"]
    )
    assert (
        "by hand / prefdata, 100 rows: 5.0, 5.0 (median 5.0)" in text and "CPU(500) / CPU(100): 4.00, rows x5" in text
    )
    assert "$ python -m prefdata.bench" in text and "| near_duplicate | 1.00 |" in text


def test_a_tokenizer_is_trained_where_none_is_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer, "_package", lambda name: None)
    sentences = vocabulary.sentences(300, 100, 100)
    folder, origin = tokenizer.find(None, tmp_path, sentences)
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(str(folder))
    ids = loaded("The old gardener, 修好了 ไม้", add_special_tokens=False)["input_ids"]
    assert "trained" in origin and loaded.decode(ids) == "The old gardener, 修好了 ไม้"


def load_script():
    spec = importlib.util.spec_from_file_location("make_planted", SAMPLES / "make_planted.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_sample_is_what_its_script_makes(tmp_path, monkeypatch):
    script = load_script()
    monkeypatch.setattr(script, "HERE", tmp_path)
    script.main()
    for name in ("planted.jsonl", "planted.truth.json"):
        assert (tmp_path / name).read_bytes() == (SAMPLES / name).read_bytes()


def test_the_sample_s_truth_fits_its_rows():
    lines = (SAMPLES / "planted.jsonl").read_text("utf-8").split("\n")[:-1]
    truth = json.loads((SAMPLES / "planted.truth.json").read_text("utf-8"))
    assert 40 <= len(lines) <= 70 and sorted(t["row"] for t in truth.values()) == list(range(len(lines)))
    with pytest.raises(json.JSONDecodeError):
        json.loads(lines[truth["parse-error"]["row"]])
    rows = {}
    for name, told in truth.items():
        if name != "parse-error":
            rows[name] = json.loads(lines[told["row"]])
            assert rows[name]["id"] == name and rows[name]["source"]
        if told.get("peer") and "duplicate" in told["reason"]:
            assert truth[told["peer"]]["row"] < told["row"] and truth[told["peer"]]["kept"]
    for name in ("near-en-2-of-near-en-1", "near-zh-2-of-near-zh-1"):
        a, b = rows[name], rows[truth[name]["peer"]]
        assert all(len(words(a[s])) >= 25 and jaccard(a[s], b[s], 5) > 0.85 for s in SIDES)
    reasons = {t.get("reason") for t in truth.values()}
    assert reasons >= {
        "parse_error",
        "missing_field",
        "bad_type",
        "empty_prompt",
        "empty_completion",
        "special_token",
    }
    assert reasons >= {
        "contradiction",
        "cycle",
        "exact_duplicate",
        "near_duplicate",
        "identical_pair",
        "too_similar",
    }


@pytest.mark.slow
def test_the_script_by_hand_runs(tmp_path):
    pytest.importorskip("datasketch")
    make_corpus([], 300, tmp_path / "c.jsonl", tmp_path / "t.jsonl", seed=1)
    folder = tokenizer.train(vocabulary.sentences(300, 100, 100), tmp_path / "tokenizer")
    found = run.process(run.hand_command(tmp_path / "c.jsonl", tmp_path / "o.parquet", folder), tmp_path, "hand")
    assert found["cpu"] > 0 and 100 < pq.read_metadata(tmp_path / "o.parquet").num_rows < 290


@pytest.mark.slow
def test_the_bench_runs(tmp_path):
    pytest.importorskip("datasketch")
    folder = tokenizer.train(vocabulary.sentences(300, 100, 100), tmp_path / "tokenizer")
    out = tmp_path / "benchmark.md"
    command = ["-m", "prefdata.bench", "speed", "--rows", "300", "--rounds", "1", "--tokenizer", str(folder)]
    command += ["--work", str(tmp_path / "w"), "--out", str(out)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    text = out.read_text("utf-8")
    assert re.search(r"\| 300 \| 0\.\d \| 1 \| prefdata \| [\d.]+ \| [\d.]+ \| \d+ \| \d+ \|", text)
    assert "CPU, by hand / prefdata, 300 rows" in text and re.search(r"\| exact \| \d+ \| 1\.000 \| 0 \|", text)
