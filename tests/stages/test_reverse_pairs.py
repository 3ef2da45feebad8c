"""``reverse_pairs``: what is written beside the set in each mode, and that nothing of it ever gets into the set."""

import json
import math
import random
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from frame import decide, signals
from pydantic import ValidationError
from written import bytes_of, cleaning_again_changes_nothing, loaded, report_of, write_lines

import prefdata
from prefdata.decisions import Decisions
from prefdata.stages.reverse_pairs import ReversePairs

NOUNS = "harbour lantern river meadow copper engine garden winter letter market shadow bridge thunder cotton marble"
BEFORE = "  - malformed\n  - contradiction\n  - exact_duplicate\n  - near_duplicate\n"


def triples(n):
    rnd, nouns = random.Random(7), NOUNS.split()
    said = [" ".join(rnd.choice(nouns) for _ in range(9)) for _ in range(3 * n)]
    return list(zip(said[:n], said[n : 2 * n], said[2 * n :], strict=True))


def made_rows(n=60, chat=False):
    rows = [
        {"id": f"r{i}", "prompt": f"{p}?", "chosen": f"{c}.", "rejected": f"{r}."}
        for i, (p, c, r) in enumerate(triples(n))
    ]
    if chat:
        for row in rows:
            for side, role in (("prompt", "user"), ("chosen", "assistant"), ("rejected", "assistant")):
                row[side] = [{"role": role, "content": row[side]}]
    return rows


def pipeline(folder, mode, fraction=0.1, before=BEFORE):
    path = Path(folder) / f"{mode}-{fraction}.yaml"
    path.write_text(f"stages:\n{before}  - reverse_pairs: {{mode: {mode}, fraction: {fraction}}}\n")
    return str(path)


@pytest.fixture
def clean(tmp_path):
    """``clean(rows, "raw", out="a")``: the result of a pipeline that ends with the stage in that mode."""

    def run(source, mode, fraction=0.1, out="out", before=BEFORE, **options):
        return prefdata.clean(source, tmp_path / out, pipeline(tmp_path, mode, fraction, before), **options)

    return run


def both(out, split="train"):
    return [str(Path(out) / home / split) for home in ("data", "reversed")]


# ------------------------------------------------------------------------------------------------ which rows


@pytest.mark.parametrize(("n", "fraction", "added"), [(10, 0.1, 1), (9, 0.1, 0), (50, 0.14, 7), (101, 0.2, 20)])
def test_a_fraction_of_the_rows_and_never_more(n, fraction, added):
    made = decide(triples(n), ReversePairs(mode="raw", fraction=fraction))
    assert made.by_reason() == ({"reversed": {"add": added}} if added else {})
    assert [(f.name, f.value, f.n) for f in made.findings] == [("reversed_pairs", added, n)]


def test_the_order_of_rows_and_the_cut_into_batches_do_not_matter_but_the_seed_does():
    rows, stage = triples(80), ReversePairs(mode="raw", fraction=0.2)

    def picked(rows, batch=1000, seed=0):
        seen = signals(rows, stage, batch=batch)
        seen.seed = seed
        return {rows[i] for i in np.flatnonzero(stage.decide(seen).of("add"))}

    assert picked(rows) == picked(rows[::-1]) == picked(rows, 7) and len(picked(rows)) == 16
    assert picked(rows) != picked(rows, seed=1)


def test_ties_marked_rows_and_their_sources_are_not_reversed():
    rows = triples(10)
    stage = ReversePairs(mode="raw", fraction=0.2)
    first = [rows[i] for i in np.flatnonzero(decide(rows, stage).of("add"))]
    mirrors = [(p, r, c) for p, c, r in first]
    again = decide(rows + mirrors, stage, reversed=[False] * 10 + [True] * 2)
    assert again.count("add") == 0 and again.findings[0].n == 10
    half = decide(rows + mirrors[:1], stage, reversed=[False] * 10 + [True])
    assert [rows[i] for i in np.flatnonzero(half.of("add"))] == [first[1]]
    assert decide(rows, stage, tie=[True] * 10).count("add") == 0


def test_a_swapped_pair_is_known_as_it_leaves():
    """A pair that an earlier stage turned round, and the mirror of what it became, are source and mirror."""
    rows = triples(10)
    turned = [(p, r, c) for p, c, r in rows]
    swap = Decisions(np.arange(10))
    swap.mark(np.ones(10, bool), "swap", "likely_flipped")
    stage = ReversePairs(mode="raw", fraction=0.2)
    seen = stage.decide(signals(turned, stage).without(swap))
    assert seen.of("add").tolist() == decide(rows, stage).of("add").tolist()


@pytest.mark.parametrize("fraction", [0, 0.21, -0.1])
def test_the_fraction_has_bounds(fraction):
    with pytest.raises(ValidationError):
        ReversePairs(fraction=fraction)


# ------------------------------------------------------------------------------------------------ raw


@pytest.mark.parametrize("chat", [False, True], ids=["text", "chat"])
def test_raw_rows_are_a_configuration_of_their_own(clean, tmp_path, chat):
    rows = made_rows(chat=chat)
    result = clean(rows, "raw")
    plain = prefdata.clean(rows, tmp_path / "plain", only=["exact_duplicate"])
    assert result.counts == plain.counts | {"added": 6} and result.splits == {"train": 60}
    assert loaded(tmp_path / "out") == loaded(tmp_path / "plain")  # data/ knows nothing of them
    given = {r["id"]: r for r in rows}
    found = loaded(tmp_path / "out", "reversed")
    assert len(found) == len({r["pd_source_row"] for r in found}) == 6
    for row in found:
        source = given[row["id"]]
        assert (row["prompt"], row["chosen"], row["rejected"]) == (
            source["prompt"],
            source["rejected"],
            source["chosen"],
        )
        assert row["pd_reversed"] is True and row["pd_source_row"] == row["id"][1:]
        assert row["pd_id"] == f"{row['pd_source_row']}.reversed"
    report, manifest = report_of(tmp_path / "out"), json.loads((tmp_path / "out/manifest.json").read_bytes())
    assert report["totals"]["added"] == report["funnel"][-1]["added"] == manifest["counts"]["added"] == 6
    assert report["totals"]["pairs"] == report["totals"]["kept"] + report["totals"]["dropped"] == 60
    card = (tmp_path / "out/README.md").read_text()
    assert "Plain DPO must not see them" in card and 'load_dataset("path/to/this/folder", "reversed")' in card


def test_decisions_and_source_reproduce_the_added_rows(clean, tmp_path):
    rows = made_rows(80) + made_rows(80)[:20]  # the last are duplicates
    clean(rows, "raw", 0.2)
    made = pq.read_table(tmp_path / "out/audit/decisions.parquet").to_pylist()
    added = sorted(d["row"] for d in made if d["action"] == "add")
    expected = [(f"{i}.reversed", str(i), rows[i]["rejected"], rows[i]["chosen"]) for i in added]
    found = [(r["pd_id"], r["pd_source_row"], r["chosen"], r["rejected"]) for r in loaded(tmp_path / "out", "reversed")]
    assert (
        found == expected and len(added) == 16 and all(d["reason"] == "reversed" for d in made if d["action"] == "add")
    )


def test_data_and_reversed_put_together_add_nothing_and_fall_into_the_same_two_again(clean, tmp_path):
    clean(made_rows(), "raw")
    again = clean(both(tmp_path / "out"), "raw", out="again")
    assert (again.counts["pairs"], again.counts["dropped"], again.counts["flagged"], again.counts["added"]) == (
        66,
        0,
        0,
        0,
    )
    assert again.splits == {"train": 60}
    assert [n for change, n in again.report.source["changes"].items() if "'reversed'" in change] == [6]
    sides = ("prompt", "chosen", "rejected", "id", "pd_id")
    for config in (None, "reversed"):
        first, then = (loaded(tmp_path / out, config) for out in ("out", "again"))
        assert [[r[s] for s in sides] for r in then] == [[r[s] for s in sides] for r in first]
    assert loaded(tmp_path / "again", "reversed") == loaded(tmp_path / "out", "reversed")
    assert not any(r["pd_reversed"] for r in loaded(tmp_path / "again"))
    third = clean(both(tmp_path / "again"), "raw", out="third")
    assert third.counts == again.counts
    assert bytes_of(tmp_path / "third", "data", "reversed") == bytes_of(tmp_path / "again", "data", "reversed")


def test_the_output_alone_gives_the_same_again(clean, tmp_path):
    clean(made_rows(), "raw")
    cleaning_again_changes_nothing(tmp_path / "out")
    clean(str(tmp_path / "out"), "raw", out="again")
    assert bytes_of(tmp_path / "again", "data", "reversed") == bytes_of(tmp_path / "out", "data", "reversed")


def test_marked_rows_are_no_contradictions_and_unmarked_ones_are(tmp_path):
    rows = made_rows(12)
    mirrors = [
        {**r, "chosen": r["rejected"], "rejected": r["chosen"], "score_chosen": 1, "score_rejected": 2} for r in rows
    ]
    for mark, gone in ((True, 0), ("true", 0), (False, 24), (None, 24)):
        marked = [{**m, "pd_reversed": mark} for m in mirrors]
        result = prefdata.audit([*rows, *marked], pipeline="certain")
        assert result.counts["dropped"] == gone, mark
        assert result.counts["flagged"] == 0 or not mark, mark


def test_a_mirror_in_a_later_chunk_is_known_too(clean, tmp_path):
    """The mark is a column that the first rows do not have."""
    rows = made_rows()
    mirrors = [{**r, "chosen": r["rejected"], "rejected": r["chosen"], "pd_reversed": True} for r in rows[:3]]
    path = write_lines(tmp_path / "in.jsonl", rows + mirrors)
    result = clean(str(path), "raw", chunk_bytes=2000)
    assert result.counts["dropped"] == 0 and result.splits == {"train": 60}
    assert len(loaded(tmp_path / "out", "reversed")) == max(3, 6)


def test_explain_row_finds_rows_of_both_kinds(cli, clean, tmp_path):
    clean(made_rows(), "raw")
    row = loaded(tmp_path / "out", "reversed")[0]
    told = cli("explain-row", tmp_path / "out", row["pd_source_row"])
    assert told.code == 0 and "reversed" in told.out and repr(row["rejected"]) in told.out
    clean(both(tmp_path / "out"), "raw", out="again")
    told = cli("explain-row", tmp_path / "again", row["pd_id"])
    assert told.code == 0 and "pd_reversed" in told.out and row["chosen"] in told.out


def test_a_set_of_mirrors_alone_is_never_the_set(clean, tmp_path):
    from datasets import load_dataset

    clean(made_rows(), "raw")
    result = clean(str(tmp_path / "out/reversed/train"), "raw", out="alone")
    assert result.counts["kept"] == 6 and result.splits == {"train": 0} and result.counts["added"] == 0
    assert not (tmp_path / "alone/data").exists() and len(loaded(tmp_path / "alone", "reversed")) == 6
    with pytest.raises(ValueError, match="reversed"):  # which configuration?
        load_dataset(str(tmp_path / "alone"))


# ------------------------------------------------------------------------------------------------ splits, bytes


@pytest.mark.parametrize("mode", ["raw", "order"])
def test_only_the_training_split_and_never_both_sides(clean, tmp_path, mode):
    result = clean(made_rows(120), mode, 0.2, split="test=0.3")
    held = {r["prompt"] for r in loaded(tmp_path / "out", split="test")}
    home = {"raw": "reversed", "order": "ab"}[mode]
    assert result.counts["added"] == int(0.2 * result.splits["train"] + 1e-9) > 10 and held
    assert [p.name for p in (tmp_path / "out" / home).iterdir()] == ["train"]
    assert not held & {r["prompt"] for r in loaded(tmp_path / "out", home)}


def test_marked_rows_are_split_with_their_sources(clean, tmp_path):
    clean(made_rows(120), "raw", 0.2)
    clean(both(tmp_path / "out"), "raw", 0.2, out="again", split="test=0.5")
    sides = {
        s: {r["prompt"] for c in (None, "reversed") for r in loaded(tmp_path / "again", c, s)}
        for s in ("train", "test")
    }
    assert not sides["train"] & sides["test"] and min(map(len, sides.values())) > 20


@pytest.mark.parametrize("chat", [False, True], ids=["text", "chat"])
@pytest.mark.parametrize("mode", ["raw", "order"])
def test_the_same_bytes_for_any_number_of_workers(clean, tmp_path, mode, chat):
    path = str(write_lines(tmp_path / "in.jsonl", made_rows(chat=chat)))
    for workers in (1, 2):
        clean(path, mode, 0.2, out=f"out{workers}", chunk_bytes=2000, workers=workers)
    parts = ("data", "reversed" if mode == "raw" else "ab", "audit/decisions.parquet", "audit/report.json")
    assert bytes_of(tmp_path / "out1", *parts) == bytes_of(tmp_path / "out2", *parts)
    clean(path, mode, 0.2, out="whole")
    assert loaded(tmp_path / "whole", parts[1]) == loaded(tmp_path / "out1", parts[1])
    turned = str(write_lines(tmp_path / "turned.jsonl", made_rows(chat=chat)[::-1]))
    clean(turned, mode, 0.2, out="turned")
    names = ("pd_id", "pd_source_row")
    first, then = (
        sorted(json.dumps({k: v for k, v in r.items() if k not in names}) for r in loaded(tmp_path / out, parts[1]))
        for out in ("whole", "turned")
    )
    assert first == then


# ------------------------------------------------------------------------------------------------ order


@pytest.mark.parametrize("form", ["text", "chat", "implicit"])
def test_order_shows_every_pair_once_and_some_the_other_way_round(clean, tmp_path, form):
    rows = made_rows(chat=form != "text")
    for i, row in enumerate(rows):
        row |= {"label": i, "score_chosen": 3, "score_rejected": 1}
    clean(rows, "order", **({"format": "implicit"} if form == "implicit" else {}))
    found = loaded(tmp_path / "out", "ab")
    once, again = ([r for r in found if r["pd_reversed"] is mark] for mark in (False, True))
    assert [r["id"] for r in once] == [r["id"] for r in rows] and len(again) == 6
    given = {r["id"]: r for r in rows}
    for row in found:
        source = given[row["id"]]
        better, worse = row[f"output_{row['label']}"], row[f"output_{3 - row['label']}"]
        assert (row["prompt"], better, worse) == (source["prompt"], source["chosen"], source["rejected"])
        assert row["pd_label"] == source["label"]  # a column of the input, whose name says something else here
    first = {r["pd_id"]: r for r in once}
    for row in again:
        assert (
            row["output_1"] == first[row["pd_source_row"]]["output_2"]
            and row["pd_id"] == f"{row['pd_source_row']}.reversed"
        )
    assert 15 < sum(r["label"] == 1 for r in once) < 45  # no position is right
    assert len(loaded(tmp_path / "out")) == 60 and not (tmp_path / "out/reversed").exists()


def test_pairs_in_both_orders_are_read_again_as_the_pairs_that_they_show(clean, tmp_path):
    """There the mark speaks of the order alone: the pair is as good as its source, and so its duplicate."""
    clean(made_rows(), "order")
    again = prefdata.clean(str(tmp_path / "out/ab/train"), tmp_path / "again")
    assert again.counts["reasons"] == {"exact_duplicate": 6} and again.splits == {"train": 60}
    sides = ("prompt", "chosen", "rejected")
    assert [[r[s] for s in sides] for r in loaded(tmp_path / "again")] == [[r[s] for s in sides] for r in made_rows()]


def test_ties_have_no_order(clean, tmp_path):
    rows = [r | {"score_chosen": 1, "score_rejected": int(i % 2 == 0)} for i, r in enumerate(made_rows())]
    clean(rows, "order", 0.2, ties="keep")
    assert len(loaded(tmp_path / "out")) == 60 and len(loaded(tmp_path / "out", "ab")) == 36


# ------------------------------------------------------------------------------------------------ smoothing


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.2])
def test_smoothing_is_what_reversed_rows_would_be(fraction):
    """The loss of n rows and f n reversed ones, per row, is the smoothed loss: at any margin."""
    made = decide(triples(40), ReversePairs(fraction=fraction))
    (found,) = made.findings
    assert found.name == "label_smoothing" and made.count("keep") == 40
    for margin in (-2.0, 0.3, 4.0):
        loss, mirrored = (math.log1p(math.exp(-s * margin)) for s in (1, -1))
        wanted = (loss + fraction * mirrored) / (1 + fraction)
        assert (1 - found.value) * loss + found.value * mirrored == pytest.approx(wanted, abs=1e-5)


def test_smoothing_adds_nothing_and_is_told_where_trainers_look(cli, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", made_rows())
    ended = cli("clean", path, tmp_path / "out", "-p", "full")
    assert ended.code == 0 and "label smoothing 0.09091" in ended.out
    plain = cli("clean", path, tmp_path / "plain", "-p", "full", "--skip", "reverse_pairs")
    assert plain.code == 0 and bytes_of(tmp_path / "out") == bytes_of(tmp_path / "plain")
    assert not (tmp_path / "out/reversed").exists() and not (tmp_path / "out/ab").exists()
    assert json.loads((tmp_path / "out/manifest.json").read_bytes())["train"]["label_smoothing"] == 0.090909
    assert json.loads((tmp_path / "plain/manifest.json").read_bytes())["train"]["label_smoothing"] == 0
    assert "label smoothing 0.09091" in (tmp_path / "out/README.md").read_text()
    home = tmp_path / "out/recipes"
    trl = (home / "trl_dpo.yaml").read_text()
    asked = yaml.safe_load(trl)
    assert (asked["loss_type"], asked["label_smoothing"], asked["per_device_train_batch_size"]) == (
        ["aot"],
        0.090909,
        1,
    )
    assert "sigmoid loss of TRL ignores it" in trl
    axolotl = yaml.safe_load((home / "axolotl_dpo.yaml").read_text())
    assert (axolotl["dpo_loss_type"], axolotl["dpo_label_smoothing"], axolotl["micro_batch_size"]) == (
        ["aot"],
        0.090909,
        1,
    )
    assert "--model.label_smoothing 0.090909" in (home / "openrlhf_dpo.sh").read_text()
    factory = yaml.safe_load((home / "llamafactory/dpo.yaml").read_text())
    assert (factory["pref_loss"], factory["dpo_label_smoothing"]) == ("sigmoid", 0.090909)
    for file in (p for p in (tmp_path / "plain/recipes").rglob("*") if p.is_file()):
        assert "label_smoothing" not in file.read_text()


def test_it_must_come_last(tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text("stages: [reverse_pairs, exact_duplicate]\n")
    with pytest.raises(prefdata.PrefdataError, match=r"wrong\.yaml: reverse_pairs adds rows and so must come last"):
        prefdata.audit(made_rows(), None, str(path))


def test_added_rows_stand_in_the_table(cli, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", made_rows())
    ended = cli("clean", path, tmp_path / "out", "-p", pipeline(tmp_path, "raw"))
    assert "added 6 beside them" in ended.out and "  add " in ended.out and "kept 60 (100.0 %)" in ended.out
    assert "6 rows added beside them" in (tmp_path / "out/report.html").read_text()
    audit = cli("audit", path, "-p", pipeline(tmp_path, "raw"))
    assert "reversed 6" in audit.out and "would keep 60 of 60" in audit.out
