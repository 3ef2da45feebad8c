"""Who is right how often, told by votes alone: planted annotators, and published judges of known truth."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from written import write_lines

import prefdata
from prefdata.decisions import Part, Signals
from prefdata.frame import measure_pairs
from prefdata.noise import annotators
from prefdata.noise.annotators import PRIOR, Votes, dawid_skene, gathered, majority
from prefdata.pairs import Pair, Pairs


def planted(accuracy, items=600, share=0.7, ties=0.0, seed=0):
    """Votes of annotators of known accuracy on items of known truth."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(items) < 0.5, 1, -1)
    rows = []
    for z in truth:
        row = {}
        for k, right in enumerate(accuracy):
            if rng.random() < share:
                row[f"p{k}"] = 0 if rng.random() < ties else int(z if rng.random() < right else -z)
        rows.append(row)
    return Votes.of(rows), truth


def auroc(score, true):
    one, two = score[true], score[~true]
    return float(((one[:, None] > two).mean() + (one[:, None] >= two).mean()) / 2)


def plainly(rows, steps):
    """Dawid and Skene for two truths, told apart by no side, item by item in plain Python: the probability of the chosen one."""
    right = []
    for row in rows:
        up, down = (
            sum(v == s for v in row.values()) + sum(v == 0 for v in row.values()) / 2 + 1e-3 + 5e-4 for s in (1, -1)
        )
        right.append(up / (up + down))
    names = sorted({who for row in rows for who in row})
    for _ in range(steps):
        said = {who: dict(zip("rtw", PRIOR, strict=True)) for who in names}
        for row, p in zip(rows, right, strict=True):
            for who, v in row.items():
                if v == 0:
                    said[who]["t"] += 0.5
                else:
                    said[who]["r"] += (p if v > 0 else 1 - p) / 2
                    said[who]["w"] += (1 - p if v > 0 else p) / 2
        new = []
        for row in rows:
            up = down = 1.0
            for who, v in row.items():
                if v:
                    up *= said[who]["r" if v > 0 else "w"]
                    down *= said[who]["w" if v > 0 else "r"]
            new.append(up / (up + down))
        right = new
    return right


def test_the_same_as_item_by_item():
    votes, _ = planted((0.9, 0.6, 0.7), items=40, ties=0.1)
    rows = [{} for _ in range(40)]
    for i, who, v in zip(votes.item, votes.annotator, votes.vote, strict=True):
        rows[i][who] = v
    found = dawid_skene(votes)
    expected = np.array(plainly(rows, len(found.objective)))
    voted = votes.counts > 0
    np.testing.assert_allclose(found.right[voted], expected[voted], atol=1e-9)


def test_planted_accuracies_are_found_and_better_than_the_majority():
    accuracy = (0.95, 0.9, 0.55, 0.6, 0.65, 0.4)
    votes, truth = planted(accuracy, items=1500)
    found = dawid_skene(votes)
    by_name = dict(zip(found.annotators.tolist(), found.accuracy, strict=True))
    for k, right in enumerate(accuracy):
        assert by_name[annotators._number(f"p{k}")] == pytest.approx(right, abs=0.04)
    assert found.n.sum() == len(votes.vote)
    voted = votes.counts > 0
    ours, theirs = auroc(found.right[voted], truth[voted] > 0), auroc(majority(votes)[voted], truth[voted] > 0)
    assert ours > theirs + 0.05
    assert np.isnan(found.right[~voted]).all() and np.isnan(majority(votes)[~voted]).all()


def test_each_step_makes_the_votes_more_likely():
    votes, _ = planted((0.9, 0.7, 0.6), ties=0.2, items=200)
    found = dawid_skene(votes)
    assert len(found.objective) > 3 and (np.diff(found.objective) >= -1e-9).all()


def test_turned_items_have_one_minus_their_probability_and_reruns_the_same_bits():
    votes, _ = planted((0.9, 0.7, 0.6, 0.6), ties=0.1)
    where = np.random.default_rng(1).random(votes.items) < 0.5
    found, turned = dawid_skene(votes), dawid_skene(votes.turned(where))
    expected = np.where(where, 1 - found.right, found.right)
    np.testing.assert_allclose(turned.right, expected, atol=1e-9)
    np.testing.assert_allclose(turned.accuracy, found.accuracy, atol=1e-9)
    assert dawid_skene(votes).right.tobytes() == found.right.tobytes()
    np.testing.assert_allclose(majority(votes.turned(where)), np.where(where, 1 - majority(votes), majority(votes)))


def test_one_vote_and_none():
    found = dawid_skene(Votes.of([{"a": 1}, {}, {"a": -1}]))
    assert (
        found.right[0] == pytest.approx(1 - found.right[2]) and 0.5 < found.right[0] < 0.8 and np.isnan(found.right[1])
    )
    assert len(dawid_skene(Votes.of([])).right) == 0


def votes_of(rows, key):
    return Votes.of([{key(v): 1 if v["vote"] == 1 else -1 for v in r["votes"] if v["vote"]} for r in rows])


def test_published_judges(shared, capsys):
    """Judges that are right 52 to 81 times in 100, asked in both orders: better than counting heads."""
    path = shared / "data/llmbar/judge_votes_with_gold.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    gold = np.array([r["gold"] == 1 for r in rows])
    subset = np.array([r["subset"] for r in rows])
    votes = votes_of(rows, lambda v: f"{v['judge']} {v['order']}")
    ours, heads = dawid_skene(votes).right, majority(votes)

    def figures(score, where):
        s, g = score[where], gold[where]
        return float(np.where(s == 0.5, 0.5, (s > 0.5) == g).mean()), auroc(s, g)

    with capsys.disabled():
        for name in ("all", *dict.fromkeys(subset.tolist())):
            where = np.ones(len(rows), bool) if name == "all" else subset == name
            (a, b), (c, d) = figures(heads, where), figures(ours, where)
            print(f"\n{name:22} n {where.sum():3}  majority {a:.3f} / {b:.3f}  Dawid-Skene {c:.3f} / {d:.3f}", end="")
    whole = np.ones(len(rows), bool)
    (a, b), (c, d) = figures(heads, whole), figures(ours, whole)
    assert c > a + 0.02 and d > b + 0.01


def test_votes_come_from_the_rows_to_the_stage(tmp_path):
    """Read from a file, written out, read again: the same single votes, and those of one annotator together."""
    rows = [
        {"id": i, "prompt": f"Q{i}?", "output_1": "one", "output_2": "two", "votes": [{"judge": f"j{k}", "vote": v} for k, v in enumerate(cast)]}
        for i, cast in enumerate([(1, 2, 1), (2, 2, 0), (2, 1, 2)])
    ]  # fmt: skip
    prefdata.clean(str(write_lines(tmp_path / "in.jsonl", rows)), tmp_path / "out", only=["malformed"])
    table = pq.read_table(tmp_path / "out/data/train")
    pairs = Pairs.of(
        [Pair(r["prompt"], r["chosen"], r["rejected"]) for r in table.to_pylist()],
        {n: table.column(n).combine_chunks() for n in table.column_names if n.startswith("pd_a")},
    )
    seen = annotators.measured(pairs)
    assert seen["votes"].to_pylist() == [[1, -1, 1], [1, 1, 0], [1, -1, 1]]
    assert len({w for row in seen["voters"].to_pylist() for w in row}) == 3
    path = tmp_path / "signals.arrow"
    whole = measure_pairs(pairs, [])
    for name, column in seen.items():
        whole = whole.append_column(f"x.{name}", column)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
        writer.write_table(whole)
    signals = Signals([Part(str(path), 0, 3)])
    votes = gathered(signals, "x")
    assert votes.items == 3 and votes.vote.tolist() == [1, -1, 1, 1, 1, 0, 1, -1, 1]
    fewer = gathered(signals.living(np.array([1, 2])), "x")
    assert fewer.item.tolist() == [0, 0, 0, 1, 1, 1] and fewer.vote.tolist() == [1, 1, 0, 1, -1, 1]
    assert gathered(signals, "other") is None
    assert annotators.measured(Pairs.of([Pair("a", "b", "c")])) == {}
