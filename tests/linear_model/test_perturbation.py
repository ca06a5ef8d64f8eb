"""Objective and output perturbation: the proof, checked by integration; the minimiser; the path."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize as scipy_minimize
from scipy.special import expit, logsumexp, softmax

from skprivacy.linear_model import ObjectivePerturbationClassifier
from skprivacy.linear_model.logistic_regression import LogisticLoss, minimize
from skprivacy.linear_model.perturbation import ObjectivePerturbation
from skprivacy.mechanisms import SecureRandom

pytestmark = pytest.mark.heavy


def gradient_and_hessian(W, rows, labels, n_classes, ridge):
    """Of the loss without its random term, at points W of shape (n, size * outputs)."""
    n, p = len(W), rows.shape[1]
    if n_classes == 2:
        t = W @ rows.T
        slope = expit(t) - labels
        gradient = slope @ rows + ridge * W
        curvature = expit(t) * expit(-t)
        hessian = np.einsum("nr,ri,rj->nij", curvature, rows, rows) + ridge * np.eye(p)
        return gradient, hessian
    t = np.einsum("npk,rp->nrk", W.reshape(n, p, n_classes), rows)
    q = softmax(t, axis=2)
    slope = q - (labels[:, None] == np.arange(n_classes))
    gradient = np.einsum("nrk,rp->npk", slope, rows).reshape(n, -1) + ridge * W
    inner = np.einsum("nrk,kl->nrkl", q, np.eye(n_classes)) - np.einsum("nrk,nrl->nrkl", q, q)
    hessian = np.einsum("nrkl,ri,rj->nikjl", inner, rows, rows)
    size = p * n_classes
    return gradient, hessian.reshape(n, size, size) + ridge * np.eye(size)


def density(mechanism, W, rows, labels, noise_scale):
    """The exact density of the released minimiser: noise density times the Jacobian."""
    ridge = mechanism.ridge(rows.shape[1])
    gradient, hessian = gradient_and_hessian(W, rows, labels, mechanism.n_classes, ridge)
    size = gradient.shape[1]
    if mechanism.delta:
        log_noise = stats.norm.logpdf(gradient, scale=noise_scale).sum(axis=1)
    else:
        sphere = math.log(2) + size / 2 * math.log(math.pi) - math.lgamma(size / 2)
        log_noise = -np.linalg.norm(gradient, axis=1) / noise_scale
        log_noise -= sphere + math.lgamma(size) + size * math.log(noise_scale)
    return np.exp(log_noise + np.linalg.slogdet(hessian)[1])


def worst_delta(mechanism, scale, size, points):
    """Hockey-stick divergence at epsilon, by a grid, over neighbours and directions."""
    k = mechanism.n_classes
    rng = np.random.default_rng(0)
    outputs = size if k == 2 else size * k
    reach = (2.0 + 7.0 * scale * (1 if mechanism.delta else 2.5)) / mechanism.ridge(size)
    axis = np.linspace(-reach, reach, points)
    W = np.stack(np.meshgrid(*[axis] * outputs, indexing="ij"), -1).reshape(-1, outputs)
    cell = (axis[1] - axis[0]) ** outputs
    worst = 0.0
    for others in range(3):
        rows = rng.normal(size=(others, size))
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
        labels = rng.integers(k, size=others)
        extra = np.eye(size)[:1] if others else np.full((1, size), size**-0.5)
        p = density(mechanism, W, rows, labels, scale)
        assert p.sum() * cell == pytest.approx(1.0, abs=0.01)
        q = density(mechanism, W, np.vstack([rows, extra]), np.append(labels, 0), scale)
        for a, b in ((p, q), (q, p)):
            worst = max(worst, np.maximum(a - math.exp(mechanism.epsilon) * b, 0).sum() * cell)
    return worst


CASES = [
    (2, 1, 4001), (2, 2, 301), (3, 1, 61),
]  # fmt: skip


@pytest.mark.everyday(1)
@pytest.mark.parametrize(("k", "size", "points"), CASES)
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_gaussian_privacy_by_integration(k, size, points, epsilon):
    mechanism = ObjectivePerturbation(epsilon, 0.02, k, alpha=0.0)
    delta = worst_delta(mechanism, mechanism.scale(size), size, points)
    assert delta <= 0.02
    # Near tight for two classes. For more, the union over k - 1 rivals and the sup over the
    # simplex are not, so that only a quarter of the noise is sure to show.
    assert delta > 0.02 / (6 if k == 2 else 25)
    less = mechanism.scale(size) / (2 if k == 2 else 4)
    assert worst_delta(mechanism, less, size, points) > 0.02


@pytest.mark.everyday(1)
@pytest.mark.parametrize(("k", "size", "points"), CASES)
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_pure_privacy_by_integration(k, size, points, epsilon):
    mechanism = ObjectivePerturbation(epsilon, 0.0, k, alpha=0.0)
    assert worst_delta(mechanism, mechanism.scale(size), size, points) <= 1e-9
    assert worst_delta(mechanism, mechanism.scale(size) / 2, size, points) > 1e-3


@pytest.mark.parametrize(("k", "size", "points"), CASES[:2])
@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_privacy_where_the_ridge_leaves_more_for_the_noise(k, size, points, delta):
    """A large ridge needs less than a tenth of epsilon for the Jacobian; the claim still holds."""
    mechanism = ObjectivePerturbation(2.0, delta, k, alpha=10.0)
    plain = ObjectivePerturbation(2.0, delta, k, alpha=0.0)
    assert mechanism.scale(size) < plain.scale(size)
    assert worst_delta(mechanism, mechanism.scale(size), size, points) <= max(delta, 1e-9)


@pytest.mark.parametrize("epsilon", [1e4, 1460.0])  # e^(-730) times delta is no normal number
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_huge_epsilon_does_not_overflow(delta, epsilon):
    """A sweep may end there; half of it under "replace_one" is no finite power of e."""
    X, y = np.linspace(-1, 1, 40)[:, None], np.arange(40) >= 20
    model = ObjectivePerturbationClassifier(
        epsilon=epsilon, delta=delta, bounds=(-1, 1), classes=[False, True], relation="replace_one"
    )
    assert model.fit(X, y).score(X, y) > 0.9


def test_a_ridge_below_the_needed_one_breaks_the_claim():
    """The planted bug: without the Jacobian's share the claim does not hold."""

    class NoRidge(ObjectivePerturbation):
        def _jacobian_epsilon(self, size):
            return 1e-9

        def ridge(self, size):
            return 0.02

    mechanism = NoRidge(0.5, 0.02, 2, alpha=0.0)
    assert worst_delta(mechanism, mechanism.scale(1), 1, 4001) > 0.02


@pytest.mark.slow
def test_release_has_the_density_that_was_integrated():
    """Samples of the mechanism against its density, in one dimension."""
    rows, labels = np.array([[1.0], [-0.7], [0.4]]), np.array([0, 1, 1])
    for delta in (0.0, 1e-3):
        mechanism = ObjectivePerturbation(1.0, delta, 2, alpha=0.0)
        random, targets = SecureRandom(seed=1), labels[:, None].astype(float)
        drawn = np.array(
            [mechanism.release((rows, targets, np.ones(3)), random)[0, 0] for _ in range(1500)]
        )
        axis = np.linspace(-60, 60, 40_001)[:, None]
        law = density(mechanism, axis, rows, labels, mechanism.scale(1))
        cdf = np.cumsum(law) * (axis[1, 0] - axis[0, 0])
        assert stats.kstest(drawn, lambda w, a=axis[:, 0], c=cdf: np.interp(w, a, c)).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 4])
def test_pure_noise_has_the_right_norm(k):
    """With nothing but noise and ridge, the minimiser is noise / -ridge: norm of Gamma(size)."""
    mechanism = ObjectivePerturbation(1.0, 0.0, k)
    outputs = 1 if k == 2 else k
    random = SecureRandom(seed=2)
    empty = (np.zeros((1, 5)), np.zeros((1, outputs)), np.zeros(1))
    noise = np.array([mechanism.release(empty, random).ravel() for _ in range(2000)])
    noise *= mechanism.ridge(5)
    norms = np.linalg.norm(noise, axis=1)
    law = stats.gamma(5 * outputs, scale=mechanism.scale(5))
    assert stats.kstest(norms, law.cdf).pvalue > 1e-4
    cosine = noise[:, 0] / norms
    half = (5 * outputs - 1) / 2
    assert stats.kstest((cosine + 1) / 2, stats.beta(half, half).cdf).pvalue > 1e-4


# ---------------------------------------------------------------- the minimiser


def problem(k, n=200, p=4, ridge=0.3, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, p))
    rows /= np.linalg.norm(rows, axis=1)[:, None] * 1.01
    labels = rng.integers(k, size=n)
    targets = (labels[:, None] == ([1] if k == 2 else np.arange(k))).astype(float)
    weights = rng.uniform(0.2, 1.0, size=n)
    tilt = rng.normal(size=(p, targets.shape[1]))
    return LogisticLoss(rows * weights[:, None], targets, weights, ridge, tilt)


def value(loss, W):
    W = W.reshape(loss.tilt.shape)
    t = loss.rows @ W / loss.weights[:, None]
    if W.shape[1] == 1:
        each = np.logaddexp(0, t[:, 0]) - loss.targets[:, 0] * t[:, 0]
    else:
        each = logsumexp(t, axis=1) - (loss.targets * t).sum(axis=1)
    return (loss.weights**2 * each).sum() + loss.ridge / 2 * (W**2).sum() + (loss.tilt * W).sum()


@pytest.mark.parametrize("k", [2, 3, 6])
def test_gradient_and_hessian(k):
    loss = problem(k)
    W, V = np.random.default_rng(1).normal(size=(2, *loss.tilt.shape))
    q = loss.probabilities(W)
    h = 1e-5
    slope = (value(loss, W + h * V) - value(loss, W - h * V)) / (2 * h)
    assert np.vdot(loss.gradient(W, q), V) == pytest.approx(slope, rel=1e-6)
    change = [loss.gradient(x, loss.probabilities(x)) for x in (W + h * V, W - h * V)]
    np.testing.assert_allclose(
        loss.hessian_product(V, q), (change[0] - change[1]) / (2 * h), rtol=1e-5, atol=1e-8
    )


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e3])
def test_minimum(k, ridge):
    loss = problem(k, ridge=ridge)
    W = minimize(loss, 1e-9)
    assert np.linalg.norm(loss.gradient(W, loss.probabilities(W))) <= 1e-9
    reference = scipy_minimize(lambda w: value(loss, w), np.zeros(W.size), method="BFGS").fun
    assert value(loss, W) <= reference + 1e-9


def test_a_tolerance_out_of_reach_is_an_error():
    with pytest.raises(RuntimeError, match="nothing was released"):
        minimize(problem(2), 0.0)


def test_records_without_weight_contribute_nothing():
    loss = problem(3)
    rows, weights = loss.rows.copy(), loss.weights.copy()
    rows[:50], weights[:50] = 0.0, 0.0
    without = LogisticLoss(rows[50:], loss.targets[50:], weights[50:], loss.ridge, loss.tilt)
    silenced = LogisticLoss(rows, loss.targets, weights, loss.ridge, loss.tilt)
    np.testing.assert_allclose(minimize(silenced, 1e-9), minimize(without, 1e-9), atol=1e-8)


def test_mechanism_parameters():
    mechanism = ObjectivePerturbation(1.0, 1e-6, 2)
    assert mechanism.sensitivity == 1.0
    assert ObjectivePerturbation(1.0, 1e-6, 3).sensitivity == math.sqrt(2)
    assert mechanism.ridge(10) == mechanism.scale(10)
    needed = ObjectivePerturbation(1.0, 1e-6, 2, alpha=0.0).ridge(10)
    assert math.log1p(0.25 / needed) == pytest.approx(0.1)
    assert ObjectivePerturbation(math.inf, 0.0, 2).scale(3) == 0.0
