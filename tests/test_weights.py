"""``pd_weight`` and ``pd_flip_prob``: numbers that stages give pairs for a trainer, as columns of the written set."""

import json
import math

import pyarrow.parquet as pq
import pytest
from written import bytes_of, loaded, report_of, write_lines

import prefdata

STAGE = '''
"""A weight by the number in the id."""

from typing import ClassVar

import numpy as np
import prefdata
import pyarrow as pa


class {name}(prefdata.Stage):
    """How much is the pair worth?"""

    train_only: ClassVar = {train_only}

    def measure(self, pairs):
        return pa.table({{"n": [float(v[1:]) for v in pairs.columns["id"].to_pylist()]}})

    def decide(self, signals):
        out = prefdata.Decisions(signals.index)
        n = signals.column(f"{{self.name()}}.n")
        {body}
        return out
'''
HALF = "out.weight = np.where(n % 2 == 0, 0.5, 1).astype(np.float32)"
SOFT = """out.weight = np.where(n == 1, np.nan, 0.5 + n / 100).astype(np.float32)
        out.flip_prob = np.where(n == 1, np.nan, n / 100).astype(np.float32)"""
ALONE = "out.flip_prob = (n / 100).astype(np.float32)"


def rows(n=12):
    return [
        {"id": f"r{i}", "prompt": f"Word {i}?", "chosen": f"It is {i}.", "rejected": f"It may be {i}."}
        for i in range(n)
    ]


@pytest.fixture
def clean(tmp_path):
    """``clean(rows, "out", half=HALF)``: the result of a pipeline of stages with these bodies."""

    def run(source, out="out", train_only=False, last="", options=None, **bodies):
        for name, body in bodies.items():
            text = STAGE.format(name=name.capitalize(), body=body, train_only=train_only)
            (tmp_path / f"{name}.py").write_text(text)
        path = tmp_path / f"{'-'.join(bodies)}.yaml"
        path.write_text("stages:\n  - malformed\n" + "".join(f"  - ./{name}.py\n" for name in bodies) + last)
        return prefdata.clean(source, tmp_path / out, str(path), **(options or {}))

    return run


def test_weights_are_the_product_over_stages_and_flip_prob_goes_with_them(clean, tmp_path):
    clean(rows(), half=HALF, soft=SOFT)
    found = loaded(tmp_path / "out")
    assert list(found[0]) == ["prompt", "chosen", "rejected", "id", "pd_weight", "pd_flip_prob", "pd_id"]
    for i, row in enumerate(found):
        soft = 1 if i == 1 else 0.5 + i / 100
        assert row["pd_weight"] == pytest.approx(soft * (0.5 if i % 2 == 0 else 1), abs=1e-6)
        assert row["pd_flip_prob"] is None if i == 1 else row["pd_flip_prob"] == pytest.approx(i / 100, abs=1e-6)
    assert json.loads((tmp_path / "out/manifest.json").read_bytes())["train"]["columns"] == [
        "pd_weight",
        "pd_flip_prob",
    ]
    card = (tmp_path / "out/README.md").read_text()
    assert "`pd_weight`" in card and "`pd_flip_prob`" in card
    for name in ("trl_dpo.yaml", "axolotl_dpo.yaml", "openrlhf_dpo.sh", "llamafactory/dpo.yaml"):
        assert "does not read it: all pairs count alike" in (tmp_path / "out/recipes" / name).read_text()


def test_a_flip_prob_without_weights_stays_with_the_decisions(clean, tmp_path):
    clean(rows(), alone=ALONE)
    assert list(loaded(tmp_path / "out")[0]) == ["prompt", "chosen", "rejected", "id", "pd_id"]
    made = pq.read_table(tmp_path / "out/audit/decisions.parquet").to_pylist()
    assert max(d["flip_prob"] or 0 for d in made) == pytest.approx(0.11)
    assert "pd_weight" not in (tmp_path / "out/recipes/trl_dpo.yaml").read_text()


def test_a_second_run_replaces_the_columns_and_says_so(clean, tmp_path):
    first = clean(rows(), half=HALF, soft=SOFT)
    again = clean(str(tmp_path / "out"), "again", half=HALF, soft=SOFT)
    assert bytes_of(tmp_path / "again") == bytes_of(tmp_path / "out")
    told = [c for c in again.report.source["changes"] if "is replaced" in c]
    assert len(told) == 2 and report_of(tmp_path / "again")["source"]["changes"][told[0]] == 12
    assert not [c for c in first.report.source["changes"] if "is replaced" in c]
    other = clean(
        str(tmp_path / "out"), "other", half=HALF
    )  # it gives no flip_prob: that of the input is carried along
    assert [r["pd_weight"] for r in loaded(tmp_path / "other")] == [0.5, 1] * 6 and len(
        other.report.source["changes"]
    ) == 1
    plain = prefdata.clean(str(tmp_path / "out"), tmp_path / "plain", only=["exact_duplicate"])
    assert plain.counts["kept"] == 12 and bytes_of(tmp_path / "plain") == bytes_of(tmp_path / "out")


@pytest.mark.parametrize("train_only", [True, False])
def test_test_rows_weigh_one(clean, tmp_path, train_only):
    clean(
        rows(80),
        half="out.weight = np.full(len(out), 0.25, np.float32)",
        train_only=train_only,
        options={"split": "test=0.4"},
    )
    weights = {s: {r["pd_weight"] for r in loaded(tmp_path / "out", split=s)} for s in ("train", "test")}
    assert weights == {"train": {0.25}, "test": {1}}


@pytest.mark.parametrize(("mode", "config"), [("raw", "reversed"), ("order", "ab")])
def test_added_rows_have_the_weight_of_their_source_and_the_flip_prob_of_their_label(clean, tmp_path, mode, config):
    clean(rows(), soft=SOFT, last=f"  - reverse_pairs: {{mode: {mode}, fraction: 0.2}}\n")
    source = {r["pd_id"]: r for r in loaded(tmp_path / "out")}
    again = [r for r in loaded(tmp_path / "out", config) if r["pd_reversed"]]
    assert len(again) == 2
    for row in again:
        first = source[row["pd_source_row"]]
        assert row["pd_weight"] == first["pd_weight"]
        wanted = 1 - first["pd_flip_prob"] if mode == "raw" else first["pd_flip_prob"]
        assert math.isclose(row["pd_flip_prob"], wanted, abs_tol=1e-6)


def test_the_same_bytes_for_any_number_of_workers(clean, tmp_path):
    path = str(write_lines(tmp_path / "in.jsonl", rows(60)))
    for workers in (1, 2):
        clean(path, f"out{workers}", half=HALF, options={"chunk_bytes": 800, "workers": workers})
    assert bytes_of(tmp_path / "out1", "data", "audit/decisions.parquet") == bytes_of(
        tmp_path / "out2", "data", "audit/decisions.parquet"
    )
