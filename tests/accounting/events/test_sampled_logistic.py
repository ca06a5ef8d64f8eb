"""Poisson-sampled logistic noise under L2 sensitivity: the bound against quadrature."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from skprivacy.accounting import PoissonSampledEvent
from skprivacy.accounting.accountants import delta_of
from skprivacy.accounting.events import LogisticEvent
from skprivacy.accounting.renyi import rdp

MOVES = {"one number": (1.0,), "two, equally": (0.7071067, 0.7071067), "two, not": (0.96, 0.28)}


def densities(rate, scale, moves):
    """ln Q and ln((1-q) Q + q P) on a grid, and the logarithm of the size of its cells."""
    reach, step = 60 * scale + 2, scale / 4  # analytic out to pi scales: converges fast
    axes = np.meshgrid(*[np.arange(-reach, reach, step)] * len(moves), indexing="ij", sparse=True)
    log_q = sum(stats.logistic.logpdf(x, scale=scale) for x in axes)
    log_p = sum(stats.logistic.logpdf(x, m, scale) for x, m in zip(axes, moves, strict=True))
    mixture = np.logaddexp(np.log1p(-rate), np.log(rate) + log_p - log_q) + log_q
    return log_q, mixture, len(moves) * np.log(step)


def renyi(order, rate, scale, moves, added):
    """Both directions: (1-q) Q + q P from Q, and Q from (1-q) Q + q P, on a grid."""
    log_q, mixture, log_cell = densities(rate, scale, moves)
    upper, lower = (log_q, mixture) if added else (mixture, log_q)
    log_moment = logsumexp(order * upper + (1 - order) * lower) + log_cell
    return log_moment / (order - 1)


@pytest.mark.heavy
@pytest.mark.parametrize("added", [False, True], ids=["removed", "added"])
@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("scale", [0.4, 1.0, 4.0])
@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_never_below_the_quadrature(rate, scale, moves, added):
    for order in (1.1, 1.5, 2.0, 2.5, 4.0, 7.3, 16.0, 32.0):
        exact = renyi(order, rate, scale, MOVES[moves], added)
        bound = rdp(PoissonSampledEvent(rate, LogisticEvent(scale, norm=2)), [order])[0]
        assert exact <= bound * (1 + 1e-6)


@pytest.mark.heavy
@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("scale", [0.4, 2.0])
@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_privacy_curves_are_never_below_the_quadrature(rate, scale, moves):
    event = PoissonSampledEvent(rate, LogisticEvent(scale, norm=2))
    log_q, mixture, log_cell = densities(rate, scale, MOVES[moves])
    one, other = np.exp(log_q + log_cell), np.exp(mixture + log_cell)
    for epsilon in (0.0, 0.05 * rate / scale, 0.3 * rate / scale):
        exact = max(
            np.maximum(a - np.exp(epsilon) * b, 0).sum() for a, b in ((one, other), (other, one))
        )
        # Where the integrand has a kink the sum over cells is off by about a thousandth.
        assert exact <= delta_of(event, epsilon) * (1 + 2e-3) + 1e-12
        assert exact > 0.5 * delta_of(event, epsilon)


def test_the_quadrature_would_notice_a_bound_that_is_too_small():
    """At small moves the bound is the truth, so noise 5 % smaller already shows."""
    exact = renyi(2.0, 0.3, 4.0, (1.0,), added=False)
    bound = rdp(PoissonSampledEvent(0.3, LogisticEvent(4.0, norm=2)), [2.0])[0]
    less = rdp(PoissonSampledEvent(0.3, LogisticEvent(4.2, norm=2)), [2.0])[0]
    assert less < exact <= bound
