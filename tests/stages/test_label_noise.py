"""``label_noise``: what a user may rely on, on pairs whose wrong labels are known."""

import importlib.util
import math
import random
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest
from frame import decide, signals
from labelled import CURT, dicts, pairs, prompt, said
from pydantic import ValidationError
from written import bytes_of, loaded, reasons, write_lines

import prefdata
from prefdata import encoders
from prefdata.decisions import Decisions
from prefdata.errors import ConfigError, MissingExtra
from prefdata.noise.annotators import Votes, dawid_skene
from prefdata.noise.crossfit import folds_of
from prefdata.noise.evidence import pair_hash, prompt_groups
from prefdata.pairs import Pair, Pairs
from prefdata.pipeline import load
from prefdata.stages import label_noise
from prefdata.stages.label_noise import LabelNoise

Noise = partial(LabelNoise, vectors="no", self_check=False)
SURE = math.inf  # the kinder answer always wins: only planted labels are wrong
SAME = ("data", "audit/dropped", "audit/decisions.parquet", "audit/signals.parquet", "audit/report.json")
SET = ("label_noise.vectors=no",)


@pytest.fixture(scope="module")
def weak():
    """2,000 pairs, some of them between answers that are much alike; a fifth of the labels is wrong."""
    rows, wrong = pairs(2000, 2.0, 0.2, seed=1)
    return rows, np.array(wrong)


@pytest.fixture(scope="module")
def strong():
    """600 pairs of which everyone can say who should win; a fifth of the labels is wrong."""
    rows, wrong = pairs(600, SURE, 0.2, seed=2)
    return rows, np.array(wrong)


def told(made):
    return {f.name: f for f in made.findings}


def auroc(score, true):
    one, two = score[true], score[~true]
    return float(((one[:, None] > two).mean() + (one[:, None] >= two).mean()) / 2)


def turned(row):
    p, c, r = row
    return p, r, c


# ----------------------------------------------------------------------------------------- exact, and the same each time


def test_a_pair_turned_round_has_the_negated_score():
    """Pairs outside the sample that the models are fitted on: nothing but the pair changes."""
    rows = pairs(1000, seed=3)[0]
    stage = Noise(sample=300)
    hashes = [pair_hash(signals(r, stage)) for r in (rows, [turned(r) for r in rows])]
    last = np.sort(hashes[0])[299]
    some = np.flatnonzero((hashes[0] > last) & (hashes[1] > last))[:40]
    changed = [turned(r) if i in set(some.tolist()) else r for i, r in enumerate(rows)]
    one, two = decide(rows, stage).score, decide(changed, stage).score
    np.testing.assert_allclose(two[some], -one[some], atol=1e-6, rtol=0)
    rest = np.setdiff1d(np.arange(1000), some)
    assert np.array_equal(one[rest], two[rest]) and np.abs(one[some]).min() > 1e-3


def test_a_set_turned_round_as_a_whole_is_the_same_set(weak):
    rows, wrong = weak[0][:600], weak[1][:600]
    one, two = decide(rows, Noise(rate=0.2)), decide([turned(r) for r in rows], Noise(rate=0.2))
    np.testing.assert_allclose(one.score, two.score, atol=1e-4)  # sums run in another order
    assert np.array_equal(one.of("drop"), two.of("drop"))
    assert auroc(-one.score, wrong) > 0.75


def test_neither_the_order_of_rows_nor_batches_change_a_bit(weak):
    rows = weak[0][:600]
    order = np.random.default_rng(0).permutation(600)
    for stage in (Noise(rate=0.2), Noise(rate=0.2, sample=200)):
        made, again = decide(rows, stage), decide([rows[i] for i in order], stage)
        small = decide(rows, stage, batch=37)
        for name in ("score", "flip_prob", "action"):
            assert getattr(made, name)[order].tobytes() == getattr(again, name).tobytes()
            assert getattr(made, name).tobytes() == getattr(small, name).tobytes()
        assert made.count("drop") > 5


def test_the_same_bytes_with_one_worker_and_two_and_in_other_chunks(weak, tmp_path):
    path = str(write_lines(tmp_path / "in.jsonl", dicts(weak[0][:500])))
    options = {"only": ["label_noise"], "set": [*SET, "label_noise.rate=0.2", "label_noise.action=weight"]}
    for name, more in {"one": 1, "again": 1, "two": 2}.items():
        prefdata.clean(path, tmp_path / name, chunk_bytes=30_000, workers=more, **options)
    prefdata.clean(path, tmp_path / "whole", workers=1, **options)
    assert len(list((tmp_path / "one/data/train").iterdir())) > 3
    assert bytes_of(tmp_path / "one", *SAME) == bytes_of(tmp_path / "again", *SAME)
    assert bytes_of(tmp_path / "one", *SAME) == bytes_of(tmp_path / "two", *SAME)
    part = "audit/decisions.parquet"
    assert bytes_of(tmp_path / "one", part) == bytes_of(tmp_path / "whole", part)
    assert loaded(tmp_path / "one") == loaded(tmp_path / "whole")


# ------------------------------------------------------------------------------------------------------- who scores whom


def test_one_label_turned_round_turns_its_own_score_round_and_hardly_moves_others(weak):
    rows = weak[0][:900]
    first = decide(rows, Noise(rate=0.2)).score
    for at in (0, 450, 899):
        again = decide([turned(r) if i == at else r for i, r in enumerate(rows)], Noise(rate=0.2)).score
        assert again[at] == pytest.approx(-first[at], abs=0.05 * float(np.abs(first).mean()))
        assert np.abs(np.delete(again - first, at)).mean() < 0.05 * np.abs(first).mean()


def test_a_label_is_not_learnt_from_its_prompt():
    """Each prompt has two words of its own, of which one wins: its own pairs would give it away."""
    rng = random.Random(0)
    rows = []
    for i in range(120):
        asked, two = f"{prompt(rng)} {i}", [f"mark{i}", f"sign{i}"]
        rng.shuffle(two)
        rows += [(asked, f"{said(rng)} {two[0]}", f"{said(rng)} {two[1]}") for _ in range(5)]
    assert told(decide(rows, Noise()))["label_signal"].value == "no_signal"
    apart = [(f"{said(rng)} {i}", *r[1:]) for i, r in enumerate(rows)]  # the same answers, each to a prompt of its own
    assert told(decide(apart, Noise()))["label_signal"].value == "signal"


def test_prompts_that_are_equal_or_nearly_so_share_a_fold():
    rng = random.Random(0)
    others = [(prompt(rng) + f" {i} {said(rng)}", "a b", "c d") for i in range(60)]
    long = " ".join(rng.choices([f"word{i}" for i in range(400)], k=60))
    near = [(long, "x", "y"), (long, "z", "w"), (f"{long} please", "x", "z"), (f"Hello, {long}", "q", "y")]
    group = prompt_groups(signals(near + others))
    assert len(set(group[:4].tolist())) == 1
    assert len(set(group.tolist())) == 61 and len(set(folds_of(group[:4], 20, 0).tolist())) == 1
    order = np.random.default_rng(0).permutation(64)
    assert np.array_equal(prompt_groups(signals([(near + others)[i] for i in order])), group[order])


def test_a_pair_outside_the_sample_is_scored_by_models_that_saw_no_pair_of_its_prompt(monkeypatch):
    """Also where its prompt is nearly equal to another one, whose fold its pairs in the sample are in."""
    rng = random.Random(0)
    long = [said(rng, 60, 60) for _ in range(100)]
    rows = [(f"{long[i % 100]} please{' now' * (i // 100 % 2)}", *r[1:]) for i, r in enumerate(pairs(1200)[0])]
    seen, group = signals(rows, Noise()), []
    fitted = label_noise.Ruling.of
    monkeypatch.setattr(label_noise.Ruling, "of", lambda m, s, g, *a: group.append(g) or fitted(m, s, g, *a))
    Noise(sample=300).decide(seen)
    prompts = signals(rows).column("pair.prompt_key")
    joined = {}
    for key, of in zip(prompts.tolist(), group[0].tolist(), strict=True):
        joined.setdefault(key, set()).add(of)
    assert all(len(g) == 1 for g in joined.values())
    assert len({g for (g,) in joined.values()}) < len(joined)  # some are joined


def test_a_large_set_is_scored_by_a_sample_as_well():
    rows, wrong = pairs(1000, SURE, 0.2, seed=5)
    found = {n: decide(rows, Noise(sample=n)).score for n in (300, 1000)}
    assert np.isfinite(found[300]).all() and not np.array_equal(found[300], found[1000])
    assert auroc(-found[300], np.array(wrong)) > auroc(-found[1000], np.array(wrong)) - 0.05 > 0.9


# --------------------------------------------------------------------------------------------- the gate, rates, calibration


@pytest.mark.parametrize("options", [{}, {"rate": 0.3}, {"rate": 0.3, "action": "drop_top"}, {"action": "weight"}])
def test_random_labels_are_left_alone(options):
    for seed in range(4):
        made = decide(pairs(500, 0.0, seed=seed)[0], Noise(**options))
        assert told(made)["label_signal"].value == "no_signal" and len(made.findings) == 1
        assert made.count("keep") == 500 and np.isnan(made.flip_prob).all() and np.isfinite(made.score).all()
        assert made.weight is None or (made.weight == 1).all()


def test_fewer_than_a_hundred_pairs_say_nothing():
    rows = pairs(100, SURE, seed=6)[0]
    few = decide(rows[:99], Noise(rate=0.1))
    assert told(few)["label_signal"].value == "no_signal" and few.count("keep") == 99
    assert "99 pairs are fewer than 100" in told(few)["label_signal"].text
    assert told(decide(rows, Noise(rate=0.1)))["label_signal"].value == "signal"


def test_with_the_rate_given_probabilities_are_calibrated_and_what_is_dropped_is_mostly_wrong(weak):
    rows, wrong = weak
    made = decide(rows, Noise(rate=0.2))
    assert told(made)["label_signal"].value == "signal"
    bins = np.array_split(np.argsort(made.flip_prob, kind="stable"), 10)
    ece = sum(len(b) * abs(made.flip_prob[b].mean() - wrong[b].mean()) for b in bins) / len(wrong)
    assert ece < 0.06
    assert made.count("drop") > 30 and wrong[made.of("drop")].mean() > 0.6
    assert (made.flip_prob[made.of("drop")] >= 0.8).all()
    assert np.array_equal(made.of("drop") | made.of("flag"), made.flip_prob >= 0.5)
    limit = made.limit[0]
    assert (made.limit == limit).all() and (made.score[made.of("drop")] <= limit).all()


def test_without_a_rate_a_weak_set_is_ranked_and_not_acted_upon():
    rows, wrong = pairs(1000, 0.7, 0.2, seed=7)
    made = decide(rows, Noise())
    found = told(made)
    assert found["label_signal"].value == "signal" and "noise_rate" not in found
    assert "label_noise.rate" in found["noise_rate_unknown"].text
    assert found["noise_rate_upper"].value >= np.mean(wrong)
    assert made.count("keep") == 1000 and np.isnan(made.flip_prob).all() and np.isnan(made.limit).all()
    first = list(found["review_first"].rows)
    assert len(first) == 50 and made.score[first].max() <= np.sort(made.score)[49]
    assert np.array(wrong)[first].mean() > 1.5 * np.mean(wrong)


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_on_a_clear_set_the_rate_is_told_and_right(rate):
    rows, wrong = pairs(1000, SURE, rate, seed=8)
    made = decide(rows, Noise())
    found = told(made)
    assert found["noise_rate"].value == pytest.approx(np.mean(wrong), abs=0.03)
    assert found["noise_rate"].low <= np.mean(wrong) <= found["noise_rate"].high <= 0.5
    assert found["noise_rate_upper"].value >= np.mean(wrong)
    gone = made.of("drop")
    assert np.array(wrong)[gone].mean() > 0.95 and gone.sum() > 0.8 * sum(wrong)
    assert found["flip_prob_reached"].value >= gone.sum()
    assert found["flip_prob_reached"].rows == tuple(np.flatnonzero(made.flip_prob >= 0.8)[:50])


def test_the_self_check_tells_how_well_planted_flips_are_found(strong):
    rows, wrong = strong
    found = told(decide(rows, Noise(self_check=True)))["self_check"]
    assert found.n == 60 and found.value == pytest.approx(
        0.5 + 0.6 * (auroc(-decide(rows, Noise()).score, wrong) - 0.5), abs=0.12
    )
    assert "self_check" not in told(decide(rows, Noise()))


# ---------------------------------------------------------------------------------------------------------------- actions


def test_drop_top_drops_as_many_as_are_wrong(weak):
    rows, wrong = weak
    made = decide(rows, Noise(rate=0.2, action="drop_top"))
    assert 300 < made.count("drop") <= 400 and wrong[made.of("drop")].mean() > 0.6
    assert made.score[made.of("drop")].max() <= np.sort(made.score)[399]


def test_drop_top_needs_a_rate():
    rows = pairs(1000, 0.7, 0.2, seed=7)[0]
    with pytest.raises(
        ConfigError, match=r"rate of wrong labels is not identified.*Give rate, or a column of verified"
    ):
        decide(rows, Noise(action="drop_top"))


def test_flag_drops_nothing(strong):
    made, dropping = (decide(strong[0], Noise(action=a)) for a in ("flag", "drop"))
    assert made.count("drop") == 0 and dropping.count("drop") > 80
    assert np.array_equal(made.of("flag"), dropping.of("drop") | dropping.of("flag"))


def scores_of(wrong, right=0.9, seed=0):
    """Scores of somebody who knows the truth so often, as columns."""
    rng = np.random.default_rng(seed)
    truth = np.where(wrong, -1.0, 1.0) * np.where(rng.random(len(wrong)) < right, 1, -1)
    return {"score_chosen": (truth * rng.uniform(0.5, 1.5, len(wrong))).tolist(), "score_rejected": [0.0] * len(wrong)}


def test_swap_needs_a_second_signal(strong):
    rows, wrong = strong
    alone = decide(rows, Noise(action="swap"))
    assert alone.count("swap") == 0 and alone.count("flag") > 80
    votes = scores_of(wrong, 0.8)
    made = decide(rows, Noise(action="swap"), **votes)
    against = np.array(votes["score_chosen"]) < 0
    assert made.count("swap") > 50 and against[made.of("swap")].all() and (made.score[made.of("swap")] < 0).all()
    assert wrong[made.of("swap")].mean() > 0.9
    assert (made.of("flag") & ~against).any() and made.count("drop") == 0


def test_a_vote_is_not_counted_again_as_what_the_set_shows(weak):
    """Votes of somebody who is nearly always right move the score; what the set shows by itself is the other signal."""
    rows, wrong = weak
    votes = scores_of(wrong, 0.97)
    alone, made = decide(rows, Noise()).score, decide(rows, Noise(action="swap", rate=0.2), **votes)
    moved = (made.flip_prob > 0.9) & (alone > 0.2)
    assert moved.sum() > 5 and not made.of("swap")[moved].any() and made.count("swap") > 50


def test_pairs_that_an_earlier_stage_turned_are_scored_as_they_are_now(strong):
    rows, wrong = strong[0][:400], strong[1][:400]
    votes, half = {n: v[:400] for n, v in scores_of(wrong).items()}, np.arange(400) % 2 == 0
    now = decide(rows, Noise(), **votes).score
    read = [turned(r) if h else r for r, h in zip(rows, half, strict=True)]
    other = {
        "score_chosen": np.where(half, 0.0, votes["score_chosen"]), "score_rejected": np.where(half, votes["score_chosen"], 0.0),
    }  # fmt: skip
    seen = signals(read, Noise(), **other)
    swaps = Decisions(seen.index)
    swaps.mark(half, "swap", "turned")
    np.testing.assert_allclose(Noise().decide(seen.without(swaps)).score, now, atol=1e-3)


def test_a_swap_alone_changes_what_is_told_after_cleaning(strong):
    rows, wrong = strong
    result = prefdata.audit(
        dicts(rows, **scores_of(wrong)), only=["label_noise", "label_shortcut"],
        set=[*SET, "label_noise.action=swap", "label_noise.rate=0.2"],
    )  # fmt: skip
    assert result.counts["dropped"] == 0 and result.report.totals.swapped > 50
    before, after = (
        next(f.value for f in result.findings if (f.name, f.when) == ("ngrams", w)) for w in ("all", "kept")
    )
    assert after > before + 0.05


def test_what_is_swapped_is_written_the_other_way_round(strong, tmp_path):
    rows, wrong = strong[0][:300], strong[1][:300]
    columns = {n: v[:300] for n, v in scores_of(strong[1]).items()}
    beside = {
        "chosen_model": [r[1] for r in rows],
        "rejected_model": [r[2] for r in rows],
        "chosen_alone": [*range(300)],
    }
    options = {"only": ["label_noise"], "set": [*SET, "label_noise.action=swap", "label_noise.rate=0.2"]}
    result = prefdata.clean(dicts(rows, **columns, **beside), tmp_path / "out", **options)
    assert result.counts["kept"] == 300
    now = {r["id"]: r for r in loaded(tmp_path / "out")}
    swapped = np.array([now[f"r{i}"]["chosen"] == r[2] for i, r in enumerate(rows)])
    assert swapped.sum() > 20 and wrong[swapped].mean() > 0.9
    for i, turned in enumerate(
        swapped
    ):  # what stands beside an answer goes with it, and a column without a partner stays
        row = now[f"r{i}"]
        assert (row["chosen_model"], row["rejected_model"]) == (row["chosen"], row["rejected"])
        assert row["score_rejected"] == (columns["score_chosen"][i] if turned else 0)
        assert row["chosen_alone"] == i


def test_a_column_that_says_the_opposite_is_not_believed():
    rows = dicts(pairs(300)[0], checked=[False] * 200 + [True] * 100)
    with pytest.raises(ConfigError, match="the opposite"):
        prefdata.audit(rows, only=["label_noise"], set=["label_noise.verified=checked"])


def test_a_rate_that_the_set_rules_out_is_told():
    rows = pairs(600, SURE)[0]
    assert told(decide(rows, Noise(rate=0.3)))["noise_rate_above"].value == 0.3
    assert "noise_rate_above" not in told(decide(rows, Noise(rate=0.01)))


def test_weight_and_soft_write_columns_for_the_trainer(strong, tmp_path):
    rows, wrong = strong
    for action in ("weight", "soft"):
        options = {"only": ["label_noise"], "set": [*SET, f"label_noise.action={action}", "label_noise.rate=0.2"]}
        result = prefdata.clean(dicts(rows), tmp_path / action, **options)
        assert result.counts["dropped"] == 0 and result.counts["flagged"] > 80
    by_weight, by_soft = loaded(tmp_path / "weight"), loaded(tmp_path / "soft")
    weights, soft = (np.array([r[n] for r in rs]) for n, rs in (("pd_weight", by_weight), ("pd_flip_prob", by_soft)))
    assert ((weights >= 0) & (weights <= 1)).all() and ((soft >= 0) & (soft <= 1)).all()
    np.testing.assert_allclose(weights, np.clip(1 - 2 * soft, 0, 1), atol=1e-6)
    assert weights[wrong].mean() < 0.1 and weights[~wrong].mean() > 0.9
    assert np.median(weights[~wrong]) > 0.95
    assert {r["pd_weight"] for r in by_soft} == {1}


def lengths(n, share, seed=0):
    """Long answers win this often, and nothing else tells."""
    rng = random.Random(seed)
    rows = [(prompt(rng), said(rng, 60, 90), said(rng, 20, 40)) for _ in range(n)]
    short = np.array([rng.random() >= share for _ in range(n)])
    return [turned(r) if s else r for r, s in zip(rows, short, strict=True)], short


@pytest.mark.parametrize("options", [{}, {"rate": 0.1}, {"rate": 0.1, "action": "drop_top"}])
def test_length_is_told(options):
    rows, short = lengths(1000, 0.9)
    made = decide(rows, Noise(**options))
    found = told(made)
    assert found["length_share"].value > 0.9
    assert 0 < found["length_alone"].value <= short.sum()
    assert short[list(found["length_alone"].rows)].all()
    assert not made.of("drop")[list(found["length_alone"].rows)].any()


@pytest.mark.parametrize("options", [{}, {"rate": 0.1}, {"rate": 0.1, "action": "drop_top"}])
def test_no_answer_is_called_wrong_for_being_short(options):
    rows, short = lengths(1000, 0.9)
    made = decide(rows, Noise(**options))
    assert made.count("drop") <= 0.02 * short.sum()


REFUSALS = ("I'm sorry, but I cannot help with that.", "I cannot assist with this request.", "Sorry, I can't do that.")


def refusals(n=1000, share=0.1, seed=0):
    """Refusals are chosen for harmful prompts, and never elsewhere; all labels are right."""
    rng = random.Random(seed)
    rows, harmful = [], np.array([rng.random() < share for _ in range(n)])
    for harm in harmful:
        no, yes = f"{rng.choice(REFUSALS)} {said(rng, 8, 20)}", said(rng, 14, 30)
        if harm:
            rows.append((f"How do I {rng.choice(('poison', 'hack', 'forge'))} {prompt(rng)}", no, yes))
        else:
            rows.append((prompt(rng), yes, no if rng.random() < 0.5 else said(rng, marks=rng.sample(CURT, 3))))
    return rows, harmful


@pytest.mark.parametrize("options", [{}, {"rate": 0.1}])
def test_refusing_to_do_harm_is_not_called_wrong(options):
    rows, harmful = refusals()
    made = decide(rows, Noise(**options))
    assert told(made)["label_signal"].value == "signal"
    assert made.of("drop")[harmful].sum() <= 0.02 * harmful.sum()


# ----------------------------------------------------------------------------------------------------------- further votes


def test_scores_that_contradict_labels_join_the_probability(weak):
    rows, wrong = weak
    alone = decide(rows, Noise(rate=0.2))
    made = decide(rows, Noise(rate=0.2), **scores_of(wrong, 0.85))
    assert told(made)["vote_agreement"].value == pytest.approx(0.8 * 0.85 + 0.2 * 0.15, abs=0.03)
    assert auroc(-made.score, wrong) > auroc(-alone.score, wrong) + 0.03


def test_a_vote_that_agrees_with_all_labels_is_left_out_and_told(weak):
    rows = weak[0][:600]
    made = decide(rows, Noise(rate=0.2), score_chosen=[5.0] * 600, score_rejected=[1.0] * 600)
    assert told(made)["vote_left_out"].value == 1.0 and "vote_agreement" not in told(made)
    assert made.score.tobytes() == decide(rows, Noise(rate=0.2)).score.tobytes()
    with pytest.raises(ConfigError, match=r"label_noise.rule=all: there are no further votes\. Give reward_models"):
        decide(rows, Noise(rule="all"), score_chosen=[5.0] * 600, score_rejected=[1.0] * 600)


def three_votes(monkeypatch, first, second, third):
    """The stage's votes are these, as if three reward models had been asked."""
    votes = np.array([first, second, third], np.float32).T
    monkeypatch.setattr(label_noise.opinions, "gathered", lambda living, stage, out: votes)


NAN = float("nan")
#        none against; one of three; two of three; all; the only opinion; one of two; nobody speaks; a tie and one against
CAST = ([1, 1, 1, -1, -1, -1, NAN, 0.0], [2, 2, -2, -2, NAN, 2, NAN, NAN], [3, -3, -3, -3, NAN, NAN, NAN, -1.0])


@pytest.mark.parametrize(("rule", "gone"), [("all", [3, 4, 7]), ("majority", [2, 3, 4, 7]), ("lowest", [3, 4])])
def test_rules_over_votes(monkeypatch, rule, gone):
    three_votes(monkeypatch, *CAST)
    rows = pairs(8, seed=9)[0]
    rate = {"rate": 0.25} if rule == "lowest" else {}
    made = decide(rows, Noise(rule=rule, **rate))
    assert np.flatnonzero(made.of("drop")).tolist() == gone
    assert decide(rows, Noise(rule=rule, action="flag", **rate)).count("flag") == len(gone)


def test_a_rule_over_votes_is_not_said_to_call_no_label_wrong(weak):
    rows, wrong = weak[0][:600], weak[1][:600]
    assert "noise_rate_unknown" in told(decide(rows, Noise()))
    assert "noise_rate_unknown" not in told(decide(rows, Noise(rule="all"), **scores_of(wrong, 0.6)))


def test_rules_turn_round_what_two_votes_contradict(monkeypatch):
    three_votes(monkeypatch, *CAST)
    made = decide(pairs(8, seed=9)[0], Noise(rule="majority", action="swap"))
    assert np.flatnonzero(made.of("swap")).tolist() == [2, 3] and np.flatnonzero(made.of("flag")).tolist() == [4, 7]


def test_the_lowest_are_counted_by_a_rate():
    columns = {"score_chosen": [2.0, 0, 1], "score_rejected": [1.0, 2, 1]}
    with pytest.raises(ConfigError, match=r"label_noise.rule=lowest needs a rate\. For example"):
        decide(pairs(3)[0], Noise(rule="lowest"), **columns)
    assert decide(pairs(3)[0], Noise(rule="lowest", rate=0.4), **columns).of("drop").tolist() == [False, True, False]


def annotated(rows, truth_of, accuracy=(0.95, 0.75, 0.6), seed=0):
    """Rows of three annotators each, who are right so often; ``truth_of[i]``: whether the first answer is better."""
    rng = random.Random(seed)
    out, cast = [], []
    for i, (p, one, two) in enumerate(rows):
        right, other = (1, 2) if truth_of[i] else (2, 1)
        votes = [right if rng.random() < a else other for a in accuracy]
        cast.append(votes)
        out.append({"id": i, "instruction": p, "response1": one, "response2": two}
                   | {f"annotator{k}": v for k, v in enumerate(votes, 1)})  # fmt: skip
    return out, cast


def by_row(out):
    return {
        r["row"]: r for r in pq.read_table(out / "audit/decisions.parquet").to_pylist() if r["stage"] == "label_noise"
    }


def test_annotators_are_weighed_by_who_is_right_and_the_classifier_abstains(tmp_path):
    """The answers say nothing: the probability is Dawid and Skene's, of the majority's labels."""
    n = 600
    rows = pairs(n, 0.0, seed=10)[0]
    given, cast = annotated(rows, [random.Random(i).random() < 0.5 for i in range(n)], (0.98, 0.7, 0.65))
    result = prefdata.clean(given, tmp_path / "out", only=["label_noise"], set=list(SET))
    found = {f.name: f for f in result.findings}
    assert found["label_signal"].value == "no_signal"
    assert 0.6 < found["annotator_accuracy"].value < 0.95 and found["annotator_accuracy"].n == 3 * n
    label = [1 if v.count(1) > 1 else 2 for v in cast]
    said_so = [{f"a{k}": 1 if v == own else -1 for k, v in enumerate(vs)} for own, vs in zip(label, cast, strict=True)]
    wanted = 1 - dawid_skene(Votes.of(said_so)).right
    got = by_row(tmp_path / "out")
    np.testing.assert_allclose([got[i]["flip_prob"] for i in range(n)], wanted, atol=1e-3)
    doubted = [i for i in range(n) if got[i]["flip_prob"] >= 0.5]
    assert doubted and all(cast[i][0] != label[i] for i in doubted)  # the best one was outvoted
    assert {got[i]["action"] for i in doubted} <= {"flag", "drop"}
    assert {i for i in range(n) if got[i]["action"] == "drop"} == {i for i in range(n) if got[i]["flip_prob"] >= 0.8}


def test_the_set_and_its_annotators_together_know_more_than_either(tmp_path):
    rows, _ = pairs(900, 2.0, seed=11)
    first = [random.Random(i).random() < 0.5 for i in range(900)]
    shown = [r if f else turned(r) for r, f in zip(rows, first, strict=True)]
    given, cast = annotated(shown, first, (0.75, 0.7, 0.65))
    result = prefdata.clean(given, tmp_path / "out", only=["label_noise"], set=list(SET))
    names = {f.name for f in result.findings}
    assert "annotator_accuracy" in names and "classifier_not_heard" not in names
    got = by_row(tmp_path / "out")
    wrong = np.array([(v.count(1) > 1) != f for v, f in zip(cast, first, strict=True)])
    said_so = np.array([got[i]["flip_prob"] for i in range(900)])
    alone = -np.array([got[i]["score"] for i in range(900)])
    assert auroc(said_so, wrong) > auroc(alone, wrong) + 0.01
    gone = np.array([got[i]["action"] == "drop" for i in range(900)])
    assert gone.sum() > 50 and wrong[gone].mean() > 0.9


# ----------------------------------------------------------------------------------------------------------- verified rows


def test_verified_rows_give_the_rate(tmp_path):
    """A few rows have the column, and other chunks do not know of it."""
    rows, wrong = pairs(600, 2.0, 0.2, seed=12)
    given = dicts(rows)
    for row, bad in zip(given[:80], wrong, strict=False):
        row["checked"] = "wrong" if bad else "right"
    path = str(write_lines(tmp_path / "in.jsonl", given))
    options = {
        "only": ["label_noise"],
        "set": [*SET, "label_noise.verified=checked"],
        "chunk_bytes": 40_000,
        "workers": 1,
    }
    result = prefdata.clean(path, tmp_path / "out", **options)
    found = {f.name: f for f in result.findings}
    share = np.mean(wrong[:80])
    assert found["noise_rate_verified"].value == pytest.approx(share) and found["noise_rate_verified"].n == 80
    assert found["noise_rate_verified"].low < share < found["noise_rate_verified"].high
    flip = [r["flip_prob"] for r in by_row(tmp_path / "out").values()]
    assert np.mean(flip) == pytest.approx(share, abs=0.04)
    assert result.counts["dropped"] > 5
    given_too = prefdata.audit(path, **{**options, "set": [*options["set"], "label_noise.rate=0.1"]})
    assert "noise_rate_verified" not in {f.name for f in given_too.findings}  # who gives a rate has the last word


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [
        ("cheked", True, r"label_noise.verified: no row has a column 'cheked'\. Did you mean checked\?"),
        ("checked", "perhaps", r"the column 'checked' holds 'perhaps'\. True or false"),
        ("checked", None, r"no row of the column 'checked' says whether its label is right"),
    ],
)
def test_a_column_of_verified_rows_that_cannot_be_used_is_an_error(column, value, error):
    given = dicts(pairs(120, SURE)[0], checked=[value] * 120, other=["x"] * 120)
    with pytest.raises(ConfigError, match=error):
        prefdata.audit(given, only=["label_noise"], set=[*SET, f"label_noise.verified={column}"])


# -------------------------------------------------------------------------------------------------- what is left alone


def test_test_rows_are_left_alone(strong, tmp_path):
    rows, wrong = strong
    result = prefdata.clean(
        dicts(rows), tmp_path / "out", only=["label_noise"], set=[*SET, "label_noise.rate=0.2"], split="test=0.4"
    )
    tests = {r["id"] for r in loaded(tmp_path / "out", split="test")}
    gone = reasons(tmp_path / "out")
    assert len(gone) > 30 and set(gone.values()) == {"likely_flipped"} and not tests & set(gone)
    assert sum(wrong[int(i[1:])] for i in tests) > 20  # though some are wrong
    got = by_row(tmp_path / "out")
    assert all(
        got[int(i[1:])]["score"] is None and got[int(i[1:])]["action"] == "keep" for i in tests if int(i[1:]) in got
    )
    assert result.counts["kept"] == 600 - len(gone)


@pytest.mark.parametrize("column", ["reversed", "tie"])
def test_mirrors_and_ties_are_neither_fitted_nor_flagged(strong, column):
    rows, _ = strong
    marked = [i % 4 == 0 for i in range(600)]
    odd = [turned(r) if m else r for r, m in zip(rows, marked, strict=True)]
    made = decide(odd, Noise(), **{column: marked})
    there = np.array(marked)
    assert (
        (made.action[there] == 0).all() and np.isnan(made.score[there]).all() and np.isnan(made.flip_prob[there]).all()
    )
    rest = decide([r for r, m in zip(rows, marked, strict=True) if not m], Noise())
    assert made.score[~there].tobytes() == rest.score.tobytes() and made.count("drop") == rest.count("drop") > 50


def test_marked_rows_of_an_input_are_left_alone(strong, tmp_path):
    rows, _ = strong
    given = dicts(rows, pd_reversed=[i % 4 == 0 for i in range(600)])
    result = prefdata.clean(given, tmp_path / "out", only=["label_noise"], set=list(SET))
    assert result.counts["dropped"] > 50
    assert not [i for i in reasons(tmp_path / "out") if int(i[1:]) % 4 == 0]


def chat(rows):
    def turn(role, text):
        return [{"role": role, "content": text}]

    return [
        {"prompt": turn("user", p), "chosen": turn("assistant", c), "rejected": turn("assistant", r)}
        for p, c, r in rows
    ]


def test_chat_is_read_as_text_is(strong):
    one, two = (
        prefdata.audit(given, only=["label_noise"], set=list(SET)).decisions.to_pylist()
        for given in (dicts(strong[0]), chat(strong[0]))
    )
    scores = [
        [d["score"] for d in made if d["stage"] == "label_noise" and d["action"] == "drop"] for made in (one, two)
    ]
    assert len(scores[0]) > 80 and len(scores[0]) == len(scores[1])
    np.testing.assert_allclose(*scores, atol=1e-5)


def chinese(n=400, flips=0.1, seed=0):
    rng = random.Random(seed)
    fill = "河边的老房子里人们常常谈起天气和收成也说到远方的朋友与孩子"
    rows, wrong = [], []
    for i in range(n):
        good, bad = (
            "".join(rng.choices(fill, k=30)) + mark for mark in ("非常乐意为您详细说明。", "懒得理你自己去查。")
        )
        wrong.append(rng.random() < flips)
        asked = f"请介绍{''.join(rng.choices(fill, k=12))}第{i}次"
        rows.append((asked, *((bad, good) if wrong[-1] else (good, bad))))
    return rows, np.array(wrong)


def test_chinese_is_read():
    rows, wrong = chinese()
    made = decide(rows, Noise())
    assert told(made)["label_signal"].value == "signal" and auroc(-made.score, wrong) > 0.98
    doubted = made.action != 0
    assert wrong[doubted].mean() > 0.95 and doubted.sum() > 20


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"rate": 0.2, "action": "drop_top"}, {"action": "weight"}])
def test_sets_of_hardly_a_pair(n, options):
    made = decide(pairs(n)[0], Noise(self_check=True, **options))
    assert len(made) == n and made.count("keep") == n


def test_one_prompt_for_all_pairs_teaches_nothing():
    made = decide([("Say it.", *r[1:]) for r in pairs(300, SURE)[0]], Noise(self_check=True, rate=0.2))
    assert made.count("keep") == 300 and told(made)["label_signal"].value == "no_signal"


def test_equal_pairs_and_answers_without_a_word():
    rows = [*[("What?", "Yes, gladly.", "No.")] * 150, *[(f"Why {i}?", "...", "!!!") for i in range(150)]]
    made = decide(rows, Noise(rate=0.1))
    assert np.isfinite(made.score).all() and len(set(made.score[:150].tolist())) == 1


# ---------------------------------------------------------------------------------------------------------------- scorers


def test_parameters_that_do_not_go_together():
    for given, words in [
        ({"policy": "x"}, "policy and reference go together"),
        ({"judge": "http://127.0.0.1:1"}, "judge .* and judge_model .* go together"),
        ({"scorer": "strong"}, "scorer strong needs sentences"),
        ({"lm": "x"}, "are for the scorer strong"),
        ({"rule": "majority", "action": "drop_top"}, "action drop_top goes by probability"),
        ({"policy": ""}, "at least 1 character"),
        ({"judge": "http://127.0.0.1:1", "judge_model": ""}, "at least 1 character"),
    ]:
        with pytest.raises((ConfigError, ValidationError), match=words):
            LabelNoise(**given)
    with pytest.raises(ValidationError):
        LabelNoise(scorer="bert")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["epochs=3"], "epochs: does nothing: it needs scorer encoder:NAME"),
        (["max_length=99"], "max_length: does nothing: it needs scorer encoder:NAME"),
        (["beta=1"], "beta: does nothing: it needs policy and reference"),
        (["judge_key=KEY"], "judge_key: does nothing: it needs judge"),
        (["scorer=encoder:x", "vectors=yes"], "vectors: does nothing: it needs another scorer"),
        (["rule=all", "min_flip_prob=0.9"], "min_flip_prob: does nothing: it needs rule probability"),
    ],
)
def test_a_parameter_that_would_do_nothing_is_refused(given, words):
    with pytest.raises(ConfigError, match=f"--set label_noise.{words}"):
        load("default", sets=[f"label_noise.{g}" for g in given])


def test_vectors_need_wordllama(monkeypatch, strong):
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "wordllama" else found(name, *a))
    encoders.load.cache_clear()
    with pytest.raises(MissingExtra, match=r"wordllama needs the extra \[embed\]"):
        LabelNoise(vectors="yes").warm()
    with pytest.raises(MissingExtra):
        decide(strong[0][:5], LabelNoise(vectors="yes"))
    rows = strong[0][:200]
    assert (
        decide(rows, LabelNoise(vectors="auto")).score.tobytes()
        == decide(rows, LabelNoise(vectors="no")).score.tobytes()
    )


def test_vectors_are_used_where_wordllama_is(strong):
    pytest.importorskip("wordllama")
    rows, wrong = strong
    some = [decide(rows, Noise(vectors=v)).score for v in ("yes", "auto", "no")]
    assert some[0].tobytes() == some[1].tobytes() and not np.array_equal(some[1], some[2])
    assert min(auroc(-s, wrong) for s in some) > 0.95


@pytest.fixture(scope="module")
def models(tmp_path_factory, tokenizer):
    """``models[kind]``: folders of tiny random models: an encoder, a causal language model, sentence vectors, a reward model."""
    torch = pytest.importorskip("torch")
    import transformers

    words = transformers.AutoTokenizer.from_pretrained(tokenizer)
    sizes = {
        "vocab_size": len(words), "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "max_position_embeddings": 512, "initializer_range": 0.5, "pad_token_id": 0,
    }  # fmt: skip
    out = {}
    for kind in ("BertModel", "LlamaForCausalLM", "BertForSequenceClassification"):
        folder = tmp_path_factory.mktemp(kind)
        words.model_max_length = 512
        words.save_pretrained(folder)
        torch.manual_seed(0)
        one = {"num_labels": 1} if kind.endswith("Classification") else {}
        config = getattr(transformers, "LlamaConfig" if kind.startswith("Llama") else "BertConfig")(**sizes, **one)
        getattr(transformers, kind)(config).save_pretrained(folder)
        out[kind] = str(folder)
    return out


def test_an_encoder_is_a_scorer(models, strong, tmp_path):
    rows = strong[0][:100]
    given = [
        *SET,
        f"label_noise.scorer=encoder:{models['BertModel']}",
        "label_noise.max_length=24",
        "label_noise.epochs=1",
    ]
    result = prefdata.clean(dicts(rows), tmp_path / "out", set=given, only=["label_noise"], workers=1)
    got = by_row(tmp_path / "out")
    scores = np.array([got[i]["score"] for i in range(100)])
    assert np.isfinite(scores).all() and len(set(scores.tolist())) > 90
    assert not np.allclose(scores, decide(rows, Noise()).score, atol=1e-3)
    found = {f.name: f for f in result.findings}
    assert found["label_signal"].n == 100 and "self_check" not in found  # it would have to be trained once more
    stage, longer = (LabelNoise(scorer=f"encoder:{models['BertModel']}", max_length=n) for n in (24, 48))
    some = Pairs.of([Pair(*r) for r in rows])
    assert not stage.measure(some).equals(longer.measure(some)) and "max_length" in LabelNoise.measured
    voted = dicts(rows, **{n: v[:100] for n, v in scores_of(strong[1]).items()})
    prefdata.clean(voted, tmp_path / "voted", set=given, only=["label_noise"], workers=1)
    got = by_row(tmp_path / "voted")
    with_votes = np.array([got[i]["score"] for i in range(100)])
    assert auroc(-with_votes, strong[1][:100]) > 0.75 > auroc(-scores, strong[1][:100])  # a further vote joins it


def test_a_language_model_adds_what_it_knows(models, strong, tmp_path):
    n = 120
    rows, wrong = strong[0][:n], strong[1][:n]
    both = [f"label_noise.lm={models['LlamaForCausalLM']}", f"label_noise.sentences={models['BertModel']}"]
    scores = [decide(rows, Noise(rate=0.2)).score]
    for some in ([both[0]], both):
        given = [*SET, "label_noise.scorer=strong", "label_noise.rate=0.2", *some]
        out = tmp_path / str(len(some))
        prefdata.clean(dicts(rows), out, set=given, only=["label_noise"], workers=1)
        got = by_row(out)
        scores.append(np.array([got[i]["score"] for i in range(n)]))
        assert auroc(-scores[-1], wrong) > 0.7
    assert not np.allclose(scores[0], scores[1], atol=1e-3) and not np.allclose(scores[1], scores[2], atol=1e-3)


def test_a_reward_model_is_a_vote(models, strong):
    given = [*SET, f"label_noise.reward_models=[{models['BertForSequenceClassification']}]", "label_noise.rule=all"]
    rows = strong[0][:120]
    result = prefdata.audit(dicts(rows), set=given, only=["label_noise"], workers=1)
    vote = next(f for f in result.findings if f.name == "vote_agreement")
    assert vote.n == 120 and result.counts["dropped"] == 120 - round(vote.value * 120)


def test_models_that_are_not_there_are_said():
    for given in ("scorer=encoder:/no/such", "reward_models=[/no/such]"):
        with pytest.raises(ConfigError, match="/no/such: no such model folder"):
            prefdata.audit(dicts(pairs(3)[0]), only=["label_noise"], set=[f"label_noise.{given}"])


# ---------------------------------------------------------------------------------------------------------- published data

GB18030 = {"encoding": "gb18030", "columns": {"prompt": "问题", "chosen": "安全有用回答", "rejected": "违规回答"}}
RIGHT = [
    ("llmbar/Natural.json", {}), ("llmbar/Adversarial-Neighbor.json", {}), ("ifbench/data.converted.json.gz", {}),
    ("codeprefbench/correctness-alignment.jsonl.gz", {}), ("jade-db/jade_alignment_medium_zh.csv.gz", GB18030),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), RIGHT)
@pytest.mark.parametrize("vectors", ["auto", "no"])
def test_of_labels_known_right_hardly_any_is_dropped(shared, name, options, vectors):
    path = shared / "data" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    given = [f"label_noise.vectors={vectors}", "label_noise.self_check=false"]
    result = prefdata.audit(str(path), only=["label_noise"], set=given, workers=1, **options)
    assert result.counts["reasons"].get("likely_flipped", 0) <= 0.02 * result.counts["pairs"]
