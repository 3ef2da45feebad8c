"""From margins to probabilities and rates, on margins drawn from the model itself, of which the truth is known."""

import numpy as np
import pytest

from prefdata.noise.probability import (
    AGREEMENT,
    ENOUGH,
    POINT_FROM,
    Rate,
    Signal,
    fitted,
    flip_probability,
    follows,
    residual,
    sigmoid,
    upper,
)  # fmt: skip
from prefdata.noise.ruling import Ruling

SIDE = np.zeros((2000, 5), np.float32)


def drawn(n=2000, rate=0.2, steep=1.0, spread=3.0, seed=0):
    """Margins as they come out: the model's opinion, negated where the label was turned round; and which were."""
    rng = np.random.default_rng(seed)
    size = np.abs(rng.normal(size=n)) * spread
    right = rng.random(n) < sigmoid(steep * size)
    wrong = rng.random(n) < rate
    return size * np.where(right ^ wrong, 1, -1), wrong


def groups(n):
    return np.arange(n, dtype=np.uint64)


def ece(said, wrong, bins=10):
    """Expected calibration error, bins of equal count."""
    parts = np.array_split(np.argsort(said, kind="stable"), bins)
    return sum(len(p) * abs(said[p].mean() - wrong[p].mean()) for p in parts) / len(said)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.3])
@pytest.mark.parametrize("steep", [0.5, 2.0])
def test_with_the_rate_the_probability_is_calibrated_at_any_scale_of_the_margins(rate, steep):
    margin, wrong = drawn(8000, rate, steep)
    a, e = fitted(margin, rate)
    assert e == rate and a == pytest.approx(steep, rel=0.25)
    said = flip_probability(margin, a, rate)
    assert ece(said, wrong) < 0.03
    assert said.mean() == pytest.approx(rate, abs=0.02)
    assert np.allclose(flip_probability(10 * margin, fitted(10 * margin, rate)[0], rate), said, atol=0.01)


def test_the_probability_is_bayes_rule():
    for m, a, e in [(0.0, 1.0, 0.2), (-3.0, 0.5, 0.1), (2.0, 2.0, 0.4)]:
        p = 1 / (1 + np.exp(-a * m))
        assert flip_probability(np.array([m]), a, e)[0] == pytest.approx(e * (1 - p) / (e * (1 - p) + (1 - e) * p))
    extreme = flip_probability(np.array([-1e6, 1e6]), 1.0, 0.2)
    assert extreme[0] == pytest.approx(1) and extreme[1] == pytest.approx(0)
    said = flip_probability(np.linspace(-9, 9, 50), 1.0, 0.2)
    assert (np.diff(said) < 0).all()


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2, 0.3])
def test_where_the_rate_can_be_told_it_is_near_and_the_interval_covers(rate):
    hits = 0
    for seed in range(10):
        margin, wrong = drawn(1500, rate, steep=10.0, seed=seed)
        found = Rate.of(margin, groups(1500))
        assert found.value == pytest.approx(wrong.mean(), abs=0.05)
        assert found.low <= found.value <= found.high and found.upper >= found.value
        hits += found.low <= wrong.mean() <= found.high
    assert hits >= 9


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.3])
@pytest.mark.parametrize("steep", [0.2, 0.5, 3.0])
def test_the_upper_bound_holds(rate, steep):
    for seed in range(10):
        margin, wrong = drawn(1000, rate, steep, seed=seed)
        assert upper(margin) >= wrong.mean()
        assert Rate.of(margin, groups(1000)).upper >= wrong.mean()


def test_where_the_model_is_weak_or_pairs_are_few_no_rate_is_told():
    assert Rate.of(drawn(1500, 0.2, steep=0.3)[0], groups(1500)).value is None
    n = POINT_FROM - 1
    assert Rate.of(drawn(n, 0.1, steep=5.0)[0], groups(n)).value is None
    assert Rate.of(drawn(POINT_FROM + 200, 0.1, steep=5.0)[0], groups(POINT_FROM + 200)).value is not None


def test_the_gate_is_shut_on_chance_and_on_few_pairs_and_open_on_signal():
    rng = np.random.default_rng(0)
    opened = [Signal.of(rng.normal(size=1000), groups(1000)).there for _ in range(200)]
    assert sum(opened) <= 2
    margin = drawn(1000)[0]
    assert Signal.of(margin, groups(1000)).there
    few = np.abs(margin[: ENOUGH - 1])
    assert not Signal.of(few, groups(ENOUGH - 1)).there
    assert Signal.of(np.abs(margin[:ENOUGH]), groups(ENOUGH)).there
    assert not Signal.of(np.zeros(500), groups(500)).there
    assert not Signal.of(np.empty(0), groups(0)).there


def test_a_small_edge_on_many_pairs_is_no_signal():
    """Sure to be there, and too little to speak of single labels."""
    n = 40_000
    margin = np.where(np.random.default_rng(0).random(n) < 0.52, 1.0, -1.0)
    found = Signal.of(margin, groups(n))
    assert found.z > 5 and found.agreement < AGREEMENT and not found.there


def test_a_prompt_counts_once_and_no_few_pairs_decide():
    margin = np.where(np.random.default_rng(0).random(200) < 0.65, 1.0, -1.0)
    once = Signal.of(margin, groups(200))
    again = Signal.of(np.repeat(margin, 50), np.repeat(groups(200), 50))
    assert again.z == pytest.approx(once.z) and again.n == 10_000
    rng = np.random.default_rng(1)
    chance = rng.normal(size=1000)
    few = chance.copy()
    few[:30] = 12.0
    assert Signal.of(few, groups(1000)).z < 3


def test_what_length_explains_is_taken_out_and_told():
    rng = np.random.default_rng(0)
    length = rng.normal(size=2000)
    side = np.stack([length, np.tanh(length), np.sign(length), np.zeros(2000), np.zeros(2000)], 1).astype(np.float32)
    rest, share = residual(2 * length, side)
    assert share > 0.999 and np.abs(rest).max() < 1e-3
    own = rng.normal(size=2000)
    rest, share = residual(own, side)
    assert share < 0.01 and np.corrcoef(rest, own)[0, 1] > 0.99
    rest, share = residual(own + 2 * length, side)
    assert share == pytest.approx(0.8, abs=0.03) and np.corrcoef(rest, own)[0, 1] > 0.99
    refusing = np.zeros((2000, 5), np.float32)
    refusing[:, 3] = rng.integers(-1, 2, 2000)
    rest, share = residual(3.0 * refusing[:, 3], refusing)
    assert share == 0 and np.abs(rest).max() < 1e-3  # refusing is taken out, and is not length
    assert residual(np.zeros(10), side[:10])[1] == 0


def test_what_turns_margins_round_turns_their_residuals_round():
    rng = np.random.default_rng(0)
    margin, side = rng.normal(size=500), rng.normal(size=(500, 5)).astype(np.float32)
    turned = np.where(rng.random(500) < 0.5, -1, 1)
    one, two = residual(margin, side)[0], residual(margin * turned, side * turned[:, None].astype(np.float32))[0]
    np.testing.assert_allclose(two, one * turned, atol=1e-9)


def test_margins_of_the_annotators_common_taste_are_known_from_those_of_the_truth():
    """Of what half of the annotators call wrong, the truth agrees with half; their taste with as many as elsewhere."""
    rng = np.random.default_rng(0)
    n = 3000
    wrong = rng.uniform(0, 0.5, n)
    truth = np.where(rng.random(n) < wrong, -1, 1) * np.abs(rng.normal(size=n))
    taste = np.where(rng.random(n) < 0.8, 1, -1) * np.abs(rng.normal(size=n))
    assert follows(truth, wrong) > 5 and abs(follows(taste, wrong)) < 3
    assert follows(truth, np.full(n, 0.2)) == 0 and follows(truth, np.full(n, np.nan)) == 0
    assert Ruling.of(truth + 0.3, SIDE[:1].repeat(n, 0), groups(n), wrong=wrong).heard
    kept = Ruling.of(taste, SIDE[:1].repeat(n, 0), groups(n), wrong=wrong)
    assert not kept.heard and np.array_equal(kept.flip, wrong)


def test_a_ruling_without_a_signal_says_nothing_even_with_a_rate():
    margin = np.random.default_rng(0).normal(size=2000)
    for rate in (None, 0.3):
        found = Ruling.of(margin, SIDE, groups(2000), rate)
        assert np.isnan(found.flip).all() and not found.heard and found.margin_at(0.8) is None


def test_the_limit_in_margins_is_that_in_probabilities():
    margin, _ = drawn()
    found = Ruling.of(margin, SIDE, groups(2000), 0.2)
    for limit in (0.5, 0.8, 0.95):
        assert np.array_equal(found.flip >= limit, margin <= found.margin_at(limit))


def test_the_top_is_the_share_that_is_contradicted_most_and_by_both_votes():
    margin, _ = drawn()
    side = SIDE.copy()
    side[:, 0] = np.where(margin < -3, -1, 0.0)  # those that are doubted most are so by length
    found = Ruling.of(margin, side, groups(2000), 0.2)
    top = found.top(0.1)
    assert 0 < top.sum() < 200 and margin[top].max() <= np.sort(margin)[199]
    assert (found.residual[top] < 0).all()
    assert (found.residual[np.argsort(margin)[:200]] >= 0).any()
