"""Cross-fitting: who is scored by whom, and that turning a pair round turns its score round, exactly."""

import numpy as np
import pytest
from scipy import sparse

from prefdata.noise.crossfit import Scorer, folds_of
from prefdata.noise.evidence import Evidence

FOLDS = 10


def evidence(n=600, strength=1.0, votes=(), seed=0, of_prompt=3):
    """Rows whose features are about as strong as those of texts; each vote is right with that probability."""
    rng = np.random.default_rng(seed)
    k, v = 30, 80
    dense = (rng.normal(size=(n, k)) + strength * rng.normal(size=k) * 0.5).astype(np.float32)
    words = sparse.random(n, v, 0.1, format="csr", dtype=np.float32, random_state=seed)
    words.data *= np.where(words.indices % 2, 0.3, -0.3) * strength + rng.normal(size=len(words.data)) * 0.1
    group = rng.integers(0, 1 << 60, -(-n // of_prompt), np.uint64).repeat(of_prompt)[:n]
    cast = [np.where(rng.random(n) < p, 1, -1) * rng.random(n) for p in votes]
    voted = np.stack(cast, 1).astype(np.float32) if votes else np.empty((n, 0), np.float32)
    side = rng.normal(size=(n, 5)).astype(np.float32)
    return Evidence(dense, words.tocsr().astype(np.float32), side, group, rng.integers(0, 1 << 60, n, np.uint64), voted)


def one(n, at):
    out = np.zeros(n, bool)
    out[at] = True
    return out


@pytest.mark.parametrize("votes", [(), (0.8, 0.6)])
def test_a_pair_turned_round_has_the_negated_score(votes):
    seen = evidence(votes=votes)
    scorer, margin = Scorer.fitted(seen, FOLDS, 0)
    assert np.abs(margin).min() > 0
    some = np.random.default_rng(1).random(len(seen)) < 0.3
    assert np.array_equal(scorer.of(seen.flipped(some)), np.where(some, -margin, margin))
    assert np.array_equal(scorer.of(seen), margin)


def test_turning_round_twice_is_nothing():
    seen = evidence(votes=(0.7,))
    some = one(len(seen), slice(0, 100))
    again = seen.flipped(some).flipped(some)
    assert all(
        np.array_equal(getattr(seen, n), getattr(again, n)) for n in ("dense", "side", "group", "order", "votes")
    )
    assert (seen.sparse != again.sparse).nnz == 0
    assert np.array_equal(seen.flipped(some).side[:100], -seen.side[:100])


def test_a_score_stands_alone():
    """A pair has the same bits whatever is scored beside it, at any place."""
    seen = evidence()
    scorer, margin = Scorer.fitted(seen, FOLDS, 0)
    order = np.random.default_rng(0).permutation(len(seen))
    assert np.array_equal(scorer.of(seen.rows(order)), margin[order])
    assert all(scorer.of(seen.rows(np.array([i])))[0] == margin[i] for i in (0, 17, 599))


def test_no_model_that_scores_a_pair_has_seen_its_label():
    """One label turned round: neither of the two models that score it moves, those of other folds do, and its margin is the
    negated one. How the two are weighed is learnt from scores of other rows, of which its label is a small part.
    """
    seen = evidence()
    scorer, margin = Scorer.fitted(seen, FOLDS, 0)
    fold = folds_of(seen.group, FOLDS, 0)
    for at in (0, 250, 599):
        again, turned = Scorer.fitted(seen.flipped(one(len(seen), at)), FOLDS, 0)
        k, other = fold[at], (fold[at] + 1) % FOLDS
        np.testing.assert_allclose(again.dense[k], scorer.dense[k], atol=1e-6, rtol=0)
        np.testing.assert_allclose(again.sparse[k], scorer.sparse[k], atol=2e-3 * np.abs(scorer.sparse).max(), rtol=0)
        assert np.abs(again.dense[other] - scorer.dense[other]).max() > 1e-4
        assert turned[at] == pytest.approx(-margin[at], abs=0.03 * np.abs(margin).mean())


def test_a_prompt_of_its_own_rule_is_not_learnt_from_its_own_pairs():
    """Each prompt has a column of its own that tells the label: other prompts say nothing of it."""
    rng = np.random.default_rng(0)
    n, of_prompt = 900, 6
    prompts = n // of_prompt
    number = np.repeat(np.arange(prompts), of_prompt)
    words = np.zeros((n, prompts), np.float32)
    words[np.arange(n), number] = 1
    dense = rng.normal(size=(n, 5)).astype(np.float32)
    group = rng.integers(0, 1 << 60, prompts, np.uint64)[number]
    zeros = np.zeros((n, 5), np.float32), np.arange(n, dtype=np.uint64), np.empty((n, 0), np.float32)
    margin = Scorer.fitted(Evidence(dense, sparse.csr_matrix(words), zeros[0], group, *zeros[1:]), FOLDS, 0)[1]
    assert abs(np.sign(margin).mean()) < 0.15
    apart = np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # each pair for itself: now it is given away
    leaky = Scorer.fitted(Evidence(dense, sparse.csr_matrix(words), zeros[0], apart, *zeros[1:]), FOLDS, 0)[1]
    assert np.sign(leaky).mean() > 0.9


def test_folds_go_by_the_prompt_and_the_seed():
    group = np.random.default_rng(0).integers(0, 1 << 63, 5000, np.uint64)
    fold = folds_of(group, FOLDS, 0)
    assert np.array_equal(folds_of(group[::-1], FOLDS, 0), fold[::-1])
    assert set(fold.tolist()) == set(range(FOLDS)) and np.bincount(fold).min() > 400
    assert (folds_of(group, FOLDS, 1) != fold).mean() > 0.8


def test_random_labels_teach_nothing():
    agreement = []
    for seed in range(5):
        seen = evidence(strength=0, seed=seed)
        seen = seen.flipped(np.random.default_rng(seed + 50).random(len(seen)) < 0.5)
        agreement.append((Scorer.fitted(seen, FOLDS, 0)[1] > 0).mean())
    assert 0.45 < np.mean(agreement) < 0.55


def test_a_vote_counts_by_what_it_is_worth_and_no_opinion_is_none():
    seen = evidence(1500, strength=0.05, votes=(0.9, 0.5, 0.1))
    seen.votes[:50] = np.nan
    scorer, margin = Scorer.fitted(seen, FOLDS, 0)
    good, none, contrary = scorer.stack[:, 2:].mean(axis=0)
    assert good > 5 * abs(none) and contrary < -5 * abs(none)
    assert np.isfinite(margin).all()
    assert (scorer.stack[:, :2] >= 0).all()
