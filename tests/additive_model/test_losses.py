"""Bounds of the rows through which records enter releases, on fine grids, and the derivatives."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import logsumexp

from skprivacy.additive_model.losses import LogisticLoss, SoftmaxLoss, SquaredLoss

LOG_ODDS = np.concatenate([np.linspace(-40, 40, 200_001), [-1e3, 1e3]])


def norms(rows):
    return np.linalg.norm(rows, axis=1)


@pytest.mark.parametrize("label", [0, 1])
def test_a_row_of_the_logistic_loss_has_norm_one_at_most(label):
    rows = LogisticLoss().derivative_row(LOG_ODDS[:, None], np.full(len(LOG_ODDS), label))
    assert 1 - 1e-9 < norms(rows).max() <= 1 + 1e-15
    # a record whose class has probability 1/3 is near the bound: a larger weight would exceed it
    assert norms(rows * [1, 4 / 3]).max() > 1.05


def simplex(n_classes):
    """Probabilities: many at random, with some near corners and edges."""
    rng = np.random.default_rng(0)
    concentration = 10.0 ** rng.uniform(-2, 1, (50_000, 1))
    drawn = rng.gamma(concentration, size=(50_000, n_classes)) + 1e-12
    return np.vstack([drawn, np.eye(n_classes) + 1e-12])


@pytest.mark.parametrize("n_classes", [3, 4, 10])
def test_a_row_of_the_softmax_loss_has_norm_one_at_most(n_classes):
    scores = np.log(simplex(n_classes))
    rows = SoftmaxLoss(n_classes).derivative_row(scores, np.zeros(len(scores), int))
    assert 0.999 < norms(rows).max() <= 1 + 1e-12


def test_three_as_the_weight_of_the_softmax_hessian_would_exceed_the_bound():
    class Heavier(SoftmaxLoss):
        hessian_weight = 3.0

    scores = np.log(np.array([[1e-9, 1, 1, 1]]))
    assert norms(Heavier(4).derivative_row(scores, np.array([0])))[0] > 1.15


@pytest.mark.parametrize("clip", [0.05, 1.0])
def test_a_row_of_the_squared_loss_has_norm_one_at_most(clip):
    residuals = np.linspace(-1e3, 1e3, 100_001)
    rows = SquaredLoss(clip**2 / 4).derivative_row(residuals[:, None], np.zeros(len(residuals)))
    assert 1 - 1e-12 < norms(rows).max() <= 1 + 1e-15


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        (LogisticLoss(), np.array([0, 1])),
        (SoftmaxLoss(4), np.arange(4)),
        (SquaredLoss(), np.linspace(-1, 1, 401)),
    ],
    ids=["logistic", "softmax", "squared"],
)
def test_start_rows_have_norm_one_at_most_and_no_negative_products(loss, targets):
    rows = loss.start_row(targets)
    assert 1 - 1e-12 < norms(rows).max() <= 1 + 1e-15
    assert (rows @ rows.T).min() >= -1e-15


def test_rows_of_totals_have_norm_one_at_most_and_no_negative_products():
    rows = SquaredLoss().total_row(np.linspace(-1, 1, 401))
    assert 1 - 1e-12 < norms(rows).max() <= 1 + 1e-15
    assert (rows @ rows.T).min() >= 0.25 - 1e-12


def log_loss(scores, label):
    return logsumexp(scores) - scores[label]


def slope_of_log_loss(scores, label):
    return approx_fprime(scores, log_loss, 1e-5, label)


def binary_loss(odds, label):
    return log_loss(np.append(0, odds), label)


@pytest.mark.parametrize("seed", range(10))
def test_rows_hold_the_derivatives_of_the_loss(seed):
    rng = np.random.default_rng(seed)
    scores, label = rng.normal(size=3), int(rng.integers(3))
    loss = SoftmaxLoss(3)
    sums = loss.sums(loss.derivative_row(scores[None], np.array([label])), 1.0)
    gradient = approx_fprime(scores, log_loss, 1e-7, label)
    np.testing.assert_allclose(sums.gradient[0], gradient, atol=1e-6)
    hessian = approx_fprime(scores, slope_of_log_loss, 1e-5, label)
    np.testing.assert_allclose(sums.hessian[0], np.diag(hessian), atol=1e-4)
    odds, label = scores[:1], label % 2
    sums = LogisticLoss().sums(LogisticLoss().derivative_row(odds[None], np.array([label])), 1.0)
    gradient = approx_fprime(odds, binary_loss, 1e-7, label)
    np.testing.assert_allclose(sums.gradient[0], gradient, atol=1e-6)
    p = 1 / (1 + np.exp(-odds))
    np.testing.assert_allclose(sums.hessian[0], p * (1 - p))


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        (LogisticLoss(), np.array([0, 1, 1, 0, 1])),
        (SoftmaxLoss(3), np.array([0, 1, 2, 2, 1])),
        (SquaredLoss(0.25**2 / 4, mean=0.1), np.array([0.1, -0.3, 0.05, 0.0, 0.2])),
    ],
    ids=["logistic", "softmax", "squared"],
)
def test_start_sums_are_the_derivatives_at_the_constant(loss, targets):
    constant = np.linspace(0.1, 0.2, loss.n_outputs)
    table = loss.start_row(targets).sum(axis=0, keepdims=True)
    start = loss.start_sums(table, constant, 2.0)
    rows = loss.derivative_row(np.tile(constant, (len(targets), 1)), targets)
    later = loss.sums(rows.sum(axis=0, keepdims=True), 2.0)
    np.testing.assert_allclose(start.gradient, later.gradient, atol=1e-12)
    np.testing.assert_allclose(start.hessian, later.hessian)
    np.testing.assert_allclose(loss.counts(table), len(targets))


@pytest.mark.parametrize("loss", [LogisticLoss(), SoftmaxLoss(3), SquaredLoss(0.5**2 / 4)])
def test_the_noise_of_gradients_has_the_stated_scale(loss):
    rng = np.random.default_rng(2)
    constant, target = np.full(loss.n_outputs, 0.3), np.zeros(1, int)
    noise = rng.normal(size=(40_000, loss.start_row(target).shape[1])) * 5
    start = loss.start_sums(noise, constant, 5.0)
    np.testing.assert_allclose(start.gradient.std(axis=0), start.std, rtol=0.02)
    width = loss.derivative_row(constant[None], target).shape[1]
    later = loss.sums(rng.normal(size=(40_000, width)) * 5, 5.0)
    np.testing.assert_allclose(later.gradient.std(axis=0), later.std, rtol=0.02)
