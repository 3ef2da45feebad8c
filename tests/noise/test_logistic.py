"""Logistic regression with each fold left out, held against scikit-learn's own fits of the rows that are left."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from prefdata.noise.logistic import descent, newton, slope

FOLDS = 5


def made(n=400, k=12, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, k)).astype(np.float32)
    x *= np.sign(x @ rng.normal(size=k) + rng.normal(size=n))[:, None].astype(np.float32)  # chosen minus rejected
    return x, rng.integers(0, FOLDS, n)


def by_sklearn(x, c):
    """The same without an intercept: every row once as it is (1) and once turned round (0), each half as heavy."""
    from sklearn.linear_model import LogisticRegression

    both = np.vstack([x, -x]).astype(np.float64)
    model = LogisticRegression(C=c / 2, fit_intercept=False, tol=1e-10, max_iter=10_000)
    return model.fit(both, np.repeat([1, 0], len(x))).coef_[0]


@pytest.mark.parametrize(("fit", "c", "close"), [(newton, 0.002, 1e-5), (newton, 1.0, 1e-3), (descent, 1.0, 1e-2)])
def test_each_fold_has_the_weights_of_a_fit_to_the_others(fit, c, close):
    x, fold = made()
    given = x if fit is newton else csr_matrix(x)
    found = fit(given, c, fold, FOLDS)
    assert found.shape == (FOLDS, x.shape[1])
    wanted = np.stack([by_sklearn(x[fold != k], c) for k in range(FOLDS)])
    np.testing.assert_allclose(found, wanted, atol=close * np.abs(wanted).max(), rtol=0)
    everything = by_sklearn(x, c)
    assert np.abs(found - everything).max() > 3 * np.abs(found - wanted).max()  # and not of a fit to all rows


@pytest.mark.parametrize("fit", [newton, descent])
def test_a_row_of_the_fold_left_out_has_no_say(fit):
    x, fold = made()
    other = x.copy()
    other[np.flatnonzero(fold == 2)[:5]] *= -1
    one, two = (fit(v if fit is newton else csr_matrix(v), 0.1, fold, FOLDS) for v in (x, other))
    np.testing.assert_allclose(one[2], two[2], atol=1e-3 * np.abs(one).max(), rtol=0)
    assert min(np.abs(one[k] - two[k]).max() for k in range(FOLDS) if k != 2) > 1e-2 * np.abs(one).max()


@pytest.mark.parametrize("fit", [newton, descent])
def test_all_pairs_turned_round_negate_the_weights(fit):
    x, fold = made()
    one, two = (fit(v if fit is newton else csr_matrix(v), 0.1, fold, FOLDS) for v in (x, -x))
    np.testing.assert_allclose(one, -two, atol=1e-9, rtol=0)


@pytest.mark.parametrize("fit", [newton, descent])
def test_columns_of_zeros_and_folds_without_rows_do_no_harm(fit):
    x, _ = made(60, 3)
    x[:, 1] = 0
    found = fit(x if fit is newton else csr_matrix(x), 1.0, np.zeros(60, int), 4)
    assert np.isfinite(found).all() and not found[:, 1].any()
    assert np.abs(found[0]).max() < 1e-5  # all rows are left out: nothing is learnt
    assert np.abs(found[1]).max() > 0.1


def test_the_slope_is_that_of_the_loss():
    m = np.array([-800.0, -2, 0, 2, 800])
    step = 1e-6
    numeric = -(np.logaddexp(0, -(m + step)) - np.logaddexp(0, -(m - step))) / (2 * step)
    np.testing.assert_allclose(slope(m), numeric, atol=1e-6)
