"""The bench of wrong labels: what is planted is exact, figures are what they are called, and the command tells them."""

import json
from random import Random

import numpy as np
import pytest
from written import write_lines

from prefdata.bench import (
    bounds,
    faults,
    flips,
    kept,
    label_report,
    peers,
    planting,
    public_sets,
    quality,
    tables,
    worth,
)
from prefdata.bench.detector import Detector
from prefdata.bench.sentences import jaccard
from prefdata.decisions import Decisions
from prefdata.stage import stage_class

# ------------------------------------------------------------------------------------------------ planting


def test_flips_are_as_many_as_asked_for_and_the_same_for_a_seed():
    for rate, wanted in ((0.05, 10), (0.2, 40), (0.4, 80)):
        made = planting.uniform(200, rate, 3)
        assert made.sum() == wanted and (made == planting.uniform(200, rate, 3)).all()
        assert (made != planting.uniform(200, rate, 4)).any()


def test_uniform_flips_fall_everywhere():
    counts = sum(planting.uniform(50, 0.2, seed).astype(int) for seed in range(400))
    assert counts.min() > 40 and counts.max() < 125  # 80 expected, sd 8


def test_flips_by_length_hit_longer_chosen_answers_only():
    gap = np.array([5, -1, 3, 0, 7, 2, -4, 1, 9, -2])
    made = planting.by_length(gap, 0.3, 1)
    assert made.sum() == 3 and (gap[made] > 0).all()
    assert (planting.by_length(gap, 0.9, 1) == (gap > 0)).all()  # no more than there are


def test_annotators_err_from_not_at_all_to_twice_the_rate():
    who = np.repeat(np.arange(5), 100)
    made = planting.by_annotator(who, 0.2, 8)
    assert sorted(int(made[who == a].sum()) for a in range(5)) == [0, 10, 20, 30, 40]
    assert planting.by_annotator(who, 0.4, 8).sum() == 20 + 40 + 50 + 50  # nobody errs in more than half
    assert planting.by_annotator(np.zeros(50), 0.2, 1).sum() == 10


def test_pairs_of_one_prompt_go_to_one_annotator():
    groups = np.repeat(np.arange(60), 3)
    who = planting.annotators(groups, 2)
    assert (who.reshape(60, 3) == who.reshape(60, 3)[:, :1]).all() and len(np.unique(who)) == planting.ANNOTATORS


def rows(n, seed=0):
    """Pairs of made-up words: every text is its own, and long enough for one changed word to be a small change."""
    rng = Random(seed)
    words = [f"{a}{b}" for a in ("mor", "tel", "van", "sul", "pir", "kon", "del", "fas") for b in ("ander", "imel", "oston", "urin", "ekas")]  # fmt: skip

    def text(least):
        return " ".join(rng.choice(words) for _ in range(rng.randint(least, least + 30)))

    return [{"prompt": text(30), "chosen": text(40), "rejected": text(40)} for _ in range(n)]


def test_planted_rows_are_what_they_are_called():
    base = rows(60)
    copied = planting.exact(base, 9, Random(1))
    assert copied.bad == set(range(60, 69)) and all(copied.rows[i] in base for i in copied.bad)
    near = planting.near(base, 9, Random(1))
    assert len(near.bad) == 9 and not any(near.rows[i] in base for i in near.bad)
    for i in near.bad:
        assert max(min(jaccard(near.rows[i][s], b[s], 2) for s in b) for b in base) >= 0.8
    turned = planting.contradiction(base, 9, Random(1))
    back = [
        {**r, "chosen": r["rejected"], "rejected": r["chosen"]} for r in (turned.rows[i] for i in sorted(turned.bad))
    ]
    assert {base.index(row) for row in back} == turned.partners and len(turned.partners) == 9
    same = planting.identical(base, 9, Random(1))
    assert {i for i, r in enumerate(same.rows) if r["chosen"].strip() == r["rejected"].strip()} == same.bad
    assert base == rows(60), "planting must not change the rows it was given"


def test_a_short_text_has_no_near_copy():
    short = [{"prompt": f"say {i}", "chosen": "yes indeed", "rejected": "no never"} for i in range(20)]
    made = planting.near(short, 5, Random(1))
    assert made.bad == set() and made.rows == short


def test_a_shortcut_of_a_given_strength():
    made = planting.shortcut(rows(100), 0.7, Random(1))
    chosen, rejected = ([r[s].startswith(planting.LEAD) for r in made] for s in ("chosen", "rejected"))
    assert sum(chosen) == 70 and sum(rejected) == 30 and not any(a and b for a, b in zip(chosen, rejected, strict=True))


# ------------------------------------------------------------------------------------------------ figures


def test_ranking_by_hand():
    wrong = np.array([True, False, True, False, False])
    got = quality.ranking(wrong, np.array([0.9, 0.8, 0.7, 0.6, 0.5]))
    assert got["auroc"] == pytest.approx(5 / 6)  # of 2 x 3 pairs one is the wrong way round
    assert got["ap"] == pytest.approx((1 / 1 + 2 / 3) / 2)
    assert got["pk"] == 0.5 and got["p10"] == 1.0
    late = quality.ranking(wrong, np.array([0.8, 0.9, 0.7, 0.6, 0.5]))
    assert late["p10"] == 0.5  # the first wrong row comes second
    assert np.isnan(quality.ranking(np.zeros(4, bool), np.arange(4.0))["auroc"])


def test_precision_at_ten_percent_recall_counts_a_tenth_of_the_wrong_rows():
    wrong = np.zeros(100, bool)
    wrong[[1, 3, 20, *range(40, 57)]] = True  # 20 wrong: the tenth is two, reached at the fourth row
    assert quality.ranking(wrong, -np.arange(100.0))["p10"] == 2 / 4


def test_calibration_error_by_hand():
    wrong = np.array([False] * 9 + [True] + [True] * 5 + [False] * 5)
    told = np.array([0.1] * 10 + [0.8] * 10)
    assert quality.calibration_error(wrong, told, bins=2) == pytest.approx((0 * 10 + 0.3 * 10) / 20)
    assert quality.calibration_error(wrong, wrong.astype(float), bins=4) == 0


def test_flagging_and_spreads():
    wrong, flagged = np.array([1, 1, 0, 0], bool), np.array([1, 0, 1, 0], bool)
    assert quality.flagging(wrong, flagged) == {"share": 0.5, "precision": 0.5, "recall": 0.5}
    assert quality.mean_sd([1.0, 3.0, None, float("nan")]) == (2.0, pytest.approx(2**0.5), 2)
    assert quality.a_a_interval([[0.5, 0.5], [0.6, 0.6]]) == 0
    # variance within the seeds 0.0002 and 0.0008: pooled 0.0005, of a difference 0.001, of a mean of two 0.0005
    assert quality.a_a_interval([[0.5, 0.52], [0.6, 0.64]]) == pytest.approx(1.96 * 0.0005**0.5)


def test_no_winner_is_named_inside_the_a_a_interval():
    seeds = [
        {"noisy": 0.60, "oracle": 0.70, "cleaned": 0.68, "likely": 0.61, "random": 0.60, "a_a": [0.59, 0.61]},
        {"noisy": 0.62, "oracle": 0.72, "cleaned": 0.70, "likely": 0.63, "random": 0.62, "a_a": [0.61, 0.63]},
    ]
    got = worth.summary(seeds)
    assert got["a_a"] == pytest.approx(1.96 * (2 * 0.0002 / 2) ** 0.5)  # 0.028
    assert got["cleaned"]["verdict"] == "better" and got["cleaned"]["recovery"] == pytest.approx(0.8)
    assert got["likely"]["gain"] == pytest.approx(0.01) and got["likely"]["verdict"] == "no difference"
    nothing = worth.summary([s | {"oracle": s["noisy"] + 0.01} for s in seeds])
    assert nothing["cleaned"]["recovery"] is None  # a loss that noise explains cannot be recovered
    worse = worth.summary([s | {"cleaned": s["noisy"] - 0.05} for s in seeds])
    assert worse["cleaned"]["verdict"] == "worse"


def test_tables():
    records = [{"set": "a", "auroc": 0.7, "covers": True}, {"set": "a", "auroc": 0.8, "covers": None}, {"set": "b", "auroc": 0.5, "covers": False}]  # fmt: skip
    a, b = tables.over_seeds(records, ["set"], ["auroc", "covers"])
    assert a["runs"] == 2 and tables.spread(a["auroc"]) == "0.750 ± 0.071" and tables.of(a["covers"]) == "1/1"
    assert tables.of(b["covers"]) == "0/1" and tables.spread(None) == "-"


def test_bounds_say_what_is_reached():
    some = [bounds.Bound("x", 0.71, 0.69), bounds.Bound("y", 0.06, 0.05, least=False), bounds.Bound("z", None, 0.5)]
    assert [b.holds for b in some] == [True, False, False]
    assert bounds.table(some)[2:] == ["| x | 0.710 | ≥ 0.69 | yes | +0.020 |", "| y | 0.060 | ≤ 0.05 | **no** | +0.010 |", "| z | - | ≥ 0.5 | **no** | - |"]  # fmt: skip


# ------------------------------------------------------------------------------------------------ learners and peers


def test_a_learner_learns_from_true_labels_and_is_hurt_by_wrong_ones():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 30)) + np.r_[np.full(3, 0.5), np.zeros(27)]
    groups = np.arange(400) // 2
    test = worth.held_out(groups, 1)
    assert 110 <= test.sum() <= 130 and not set(groups[test]) & set(groups[~test])
    flipped, train = planting.uniform(400, 0.3, 1), np.flatnonzero(~test)
    true = worth.accuracy(x, np.zeros(400, bool), train, test, 10.0)
    noisy = worth.accuracy(x, flipped, train, test, 10.0)
    assert true > 0.75 and noisy < true - 0.02
    assert worth.accuracy(x, ~np.zeros(400, bool), train, test, 10.0) == pytest.approx(1 - true)
    got = worth.arms(x, flipped, test, {"cleaned": flipped, "likely": np.zeros(400, bool)}, 10.0, 1)
    assert got["likely"] == got["noisy"] < got["cleaned"] and len(set(got["a_a"])) > 1


def test_characters_are_antisymmetric_and_know_no_label():
    texts = [[r[side] for r in rows(40)] for side in ("chosen", "rejected")]
    there, back = worth.characters(*texts), worth.characters(*reversed(texts))
    assert there.shape[0] == 40 and abs(there + back).max() < 1e-6


def test_neighbours_vote_whatever_the_order_of_the_answers():
    rng = np.random.default_rng(0)
    x = rng.normal(scale=0.3, size=(200, 5)) + np.array([2, 0, 0, 0, 0])
    flipped = planting.uniform(200, 0.1, 1)
    x[flipped] *= -1
    flagged, suspicion = peers.neighbours(x, np.arange(200))
    assert (flagged == flipped).mean() > 0.97 and quality.ranking(flipped, suspicion)["auroc"] > 0.97
    # Pairs of one prompt were judged together and are no witnesses for each other: a wrong prompt stands alone.
    prompts = np.repeat(rng.normal(scale=0.3, size=(10, 5)) + np.array([2, 0, 0, 0, 0]), 20, axis=0)
    prompts[:20] *= -1
    _, alone = peers.neighbours(prompts, np.repeat(np.arange(10), 20))
    assert (alone[:20] == 1).all()


def test_cleanlab_ranks_as_the_probabilities_do():
    if not peers.has_cleanlab():
        pytest.skip(peers.NO_CLEANLAB)
    rng = np.random.default_rng(0)
    flipped = planting.uniform(300, 0.2, 1)
    margins = np.where(flipped, -1, 1) * rng.normal(1.5, 1, 300)
    flagged, suspicion = peers.cleanlab(margins, 1)
    assert quality.ranking(flipped, suspicion) == pytest.approx(quality.ranking(flipped, -margins))
    assert quality.flagging(flipped, flagged)["precision"] > 0.5


# ------------------------------------------------------------------------------------------------ rows through the pipeline


def test_planted_rows_are_found_by_their_stage(tokenizer):
    found = {r["fault"]: r for r in faults.measure(rows(80), list(faults.STAGES), 0.1, 1, str(tokenizer))}
    assert set(found) == {"exact", "near", "contradiction", "identical", "cut"}
    for kind, record in found.items():
        assert record["planted"] == 8 and record["precision"] == 1.0, record
        assert record["recall"] >= (0.75 if kind == "near" else 1.0), record
    assert found["contradiction"]["named"] == 16  # the row and its mirror


def test_without_a_tokenizer_nothing_is_cut():
    assert [r["fault"] for r in faults.measure(rows(40), ["exact", "cut"], 0.1, 1, None)] == ["exact"]


# ------------------------------------------------------------------------------------------------ sets


def test_a_set_has_neither_equal_answers_nor_a_pair_twice(tmp_path):
    base = rows(12)
    turned = {"prompt": base[0]["prompt"], "chosen": base[0]["rejected"], "rejected": base[0]["chosen"]}
    same = {**base[1], "rejected": base[1]["chosen"]}
    blank = {**base[2], "rejected": " "}
    made = public_sets.read_set("mine", [*base, base[3], turned, same, blank], tmp_path / "work")
    assert made.left_out == {"malformed": 1, "equal": 1, "repeated": 2}
    assert made.rows() == base


def test_every_published_set_is_read(shared, tmp_path):
    sizes = {s.name: len(s) for s in public_sets.published(shared / "data", tmp_path)}
    assert sizes["davinci001"] == 782 and sizes["llmbar"] == 498 and sizes["tone"] == 1094 and sizes["jade"] == 500
    assert sizes["oasst"] == 429 and sizes["ifbench"] == 444 and len(sizes) == 13
    json.dumps(sizes)


# ------------------------------------------------------------------------------------------------ the detector


def styled(n, seed=0):
    """Pairs of which a list mostly wins: something to learn, and a few labels of their own that say otherwise."""
    rng, out = Random(seed), rows(n, seed)
    for row in out:
        side = "chosen" if rng.random() < 0.9 else "rejected"
        row[side] = "- " + row[side].replace(" ", "\n- ", 4)
    return out


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """150 pairs, measured with the stage."""
    return public_sets.read_set("mine", styled(150), tmp_path_factory.mktemp("set"), faults.pipeline("label_noise"))


def test_the_detector_is_the_stage(measured):
    """Flips planted in the evidence and rows turned round for the stage are the same: same score, same rows dropped."""
    wrong = planting.uniform(150, 0.2, 1)
    turned = Decisions(measured.signals.index)
    turned.mark(wrong, "swap", "x")
    signals = measured.signals.without(turned)
    found = Detector.of(measured).detect(wrong, signals.seed)
    stage = stage_class("label_noise")
    for action, mask in (
        ("drop_top", found.ruling(0.2).top(0.2)),
        ("drop", (found.ruling(0.2).flip >= flips.LIKELY) & found.ruling(0.2).both),
    ):
        made = stage(action=action, rate=0.2, self_check=False).decide(signals)
        assert found.signal and np.allclose(made.score, found.margins, atol=1e-5)
        assert np.allclose(made.flip_prob, found.probability(0.2), atol=1e-5)
        assert (made.of("drop") == mask).all() and mask.any()
    assert quality.ranking(wrong, -found.margins)["auroc"] > 0.75


def test_a_run_says_what_its_figures_are(measured, tmp_path):
    path = str(flips.prepared(measured, tmp_path / "set"))
    got = flips.do(flips.Noise(path, "flips", 0.2, 1, peers=True))
    wrong = planting.uniform(150, 0.2, 1)
    found = Detector.of(measured).detect(wrong, 1)
    assert got["auroc"] == quality.ranking(wrong, -found.margins)["auroc"] and got["planted"] == 0.2
    assert got["ece_given"] == quality.calibration_error(wrong, found.probability(0.2))
    assert got["holds"] == (found.ruling().estimate.upper >= 0.2) and set(got["peers"]) >= {"ours", "neighbours"}
    assert got == flips.do(flips.Noise(path, "flips", 0.2, 1, peers=True))
    some = flips.do(flips.Noise(path, "random", 0.5, 1, rows=120))
    assert some["n"] == 120 and "ece_given" not in some and not some["signal"]
    bare = flips.do(flips.Noise(path, "flips", 0.2, 1, vectors=False))
    assert bare["auroc"] > 0.75 and bare["auroc"] != got["auroc"]
    learners = flips.do(flips.Gain(path, 0.3, 1))
    assert [r["learner"] for r in learners] == ["overfits", "regularised"]
    assert all(r["oracle"] >= r["noisy"] - 0.15 and len(r["a_a"]) == worth.RANDOM_ARMS for r in learners)


def test_finished_runs_are_not_done_again(measured, tmp_path, monkeypatch):
    path, file = str(flips.prepared(measured, tmp_path / "set", learners=False)), tmp_path / "kept.jsonl"
    tasks = [flips.Noise(path, "random", 0.5, seed) for seed in range(3)]
    first = kept.run_all(tasks[:2], 1, lambda *of: None, file)
    with file.open("a") as more:
        more.write('\n["cut off')
    asked = []
    monkeypatch.setattr(flips, "do", lambda task: asked.append(task.seed) or {"seed": task.seed})
    assert kept.run_all(tasks[1:] + tasks[:1], 1, lambda *of: None, file) == [first[1], {"seed": 2}, first[0]]
    assert asked == [2]
    assert kept.run_all(tasks, 1, lambda *of: None, file)[2] == {"seed": 2} and asked == [2]


# ------------------------------------------------------------------------------------------------ the command


def test_the_command_prints_and_writes_what_the_records_say(cli, tmp_path):
    path = write_lines(tmp_path / "pairs.jsonl", styled(120))
    ended = cli(
        "--json", "bench", path, "--rates", "20", "--seeds", "3", "--workers", "1", "--out", tmp_path / "report.md"
    )
    assert ended.code == 0, ended.err
    told, report = json.loads(ended.out), (tmp_path / "report.md").read_text("utf-8")
    assert told["sets"] == [{"set": "pairs.jsonl", "n": 120, "left_out": {"malformed": 0, "equal": 0, "repeated": 0}}]
    assert [(r["fault"], r["seed"]) for r in told["flips"]] == [(f, s) for f in ("flips", "length", "annotators", "random") for s in range(3)]  # fmt: skip
    auroc = [r["auroc"] for r in told["flips"] if r["fault"] == "flips"]
    mean, sd = np.mean(auroc), np.std(auroc, ddof=1)
    line = next(x for x in report.splitlines() if x.startswith("| pairs.jsonl | 120 | flips | 20 % | 3 |"))
    assert line.split(" | ")[5] == f"{mean:.3f} ± {sd:.3f}"
    gains = [r for r in told["worth"] if r["learner"] == "overfits"]
    noisy, cleaned, oracle = (np.mean([r[k] for r in gains]) for k in ("noisy", "cleaned", "oracle"))
    line = next(x for x in report.splitlines() if "overfits | 3 | `drop_top`" in x).split(" | ")
    assert line[5:8] == [f"{noisy:.3f}", f"{cleaned:.3f}", f"{oracle:.3f}"]
    assert {r["fault"] for r in told["rows"]} == {"exact", "near", "contradiction", "identical"} and len(
        told["shortcuts"]
    ) == 9
    assert "Answers cut by the window were not planted" in report


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--rates", "60"), "--rates 60: not between 0 and 50 %"),
        (("--rates", "x"), "--rates x: not numbers"),
        (("--faults", "flip"), "--faults flip: no such fault. Did you mean flips?"),
        (("--faults", "cut"), "--faults cut needs --tokenizer FOLDER"),
        (("--faults", "exact", "--tokenizer", "x"), "--tokenizer does nothing here"),
        (("--encoder", "x", "--no-worth"), "--encoder does nothing beside --no-worth"),
        (("--seeds", "2"), "--seeds 2: what cleaning is worth needs three"),
    ],
)
def test_what_cannot_be_planted_is_told(cli, tmp_path, given, said):
    ended = cli("bench", write_lines(tmp_path / "pairs.jsonl", rows(30)), *given)
    assert ended.code == 2 and said in ended.err and "Traceback" not in ended.err


def test_two_sets_of_one_name_stay_two(cli, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_lines(tmp_path / folder / "x.jsonl", rows(40, seed=ord(folder)))
    ended = cli(
        "--json",
        "bench",
        tmp_path / "a/x.jsonl",
        tmp_path / "b/x.jsonl",
        "--faults",
        "exact",
        "--no-worth",
        "--seeds",
        "1",
    )
    assert [(r["set"], r["recall"]) for r in json.loads(ended.out)["rows"]] == [
        (str(tmp_path / f / "x.jsonl"), 1) for f in "ab"
    ]


def test_a_set_too_small_to_plant_in_is_told(cli, tmp_path):
    ended = cli("bench", write_lines(tmp_path / "pairs.jsonl", rows(4)), "--faults", "exact", "--no-worth")
    assert ended.code == 2 and "is not one row: nothing can be planted" in ended.err


@pytest.mark.slow
def test_the_report_on_published_sets(shared, tmp_path):
    """The whole way on one small set; what was not measured is not called reached."""
    asked = label_report.Asked(seeds=2, few=2, random=2, workers=1, names=("dpo_en",))
    found = label_report.measure(shared / "data", asked, lambda what, done, total: None)
    text = "\n".join(label_report.markdown(found, "the command", asked))
    assert "| AUROC at 20 %, hh_harmless | - | ≥ 0.69 | **no** | - |" in text
    known = [r["auroc"] for r in found["flips"] if r["fault"] == "flips" and r["rate"] == 0.2 and r["vectors"]]
    assert f"| AUROC at 20 %, dpo_en | {np.mean(known):.3f} | ≥ 0.66 |" in text and len(known) == 2
    wanted = bounds.all_of(found)
    assert f"{sum(b.holds for b in wanted)} of {len(wanted)} figures are reached." in text
