"""The least noise for one vector: which mechanism, which account, and how much it is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from skprivacy.accounting import ComposedEvent, epsilon_of
from skprivacy.accounting.events import LogisticEvent
from skprivacy.fine_tuning.sensitivity import (
    MECHANISMS,
    Sensitivity,
    least_noise_mechanism,
    noise_std,
)
from skprivacy.mechanisms import Gaussian, KNorm, Laplace, SecureRandom
from skprivacy.mechanisms.special_noise import Logistic

HEAD = 65 * 9  # contrasts of ten classes on 64 features and a constant


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_a_release_costs_no_more_than_epsilon_and_hardly_less(name, delta, epsilon):
    if name == "gaussian" and delta == 0:
        return
    mechanism = least_noise_mechanism(name, epsilon, delta, Sensitivity(0.3), HEAD)
    cost = epsilon_of(mechanism.event, delta)
    assert 0.995 * epsilon < cost <= epsilon * (1 + 1e-9)


@pytest.mark.heavy
@pytest.mark.parametrize("size", [1, 2, 5, 40, HEAD])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.05])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("l1", [None, 0.31])
def test_auto_has_the_least_noise(size, delta, epsilon, l1):
    moved = Sensitivity(0.3, l1)
    least = noise_std(least_noise_mechanism("auto", epsilon, delta, moved, size), size)
    for name in set(MECHANISMS) - ({"gaussian"} if delta == 0 else set()):
        other = noise_std(least_noise_mechanism(name, epsilon, delta, moved, size), size)
        assert least <= other * (1 + 1e-9), name


def test_auto_takes_each_where_it_is_best():
    def kind(size, delta, l1=None):
        return type(least_noise_mechanism("auto", 1.0, delta, Sensitivity(1.0, l1), size))

    assert kind(HEAD, 1e-5) is Gaussian
    assert kind(HEAD, 0.0) is KNorm
    assert kind(1, 1e-5) in (KNorm, Laplace)
    assert kind(HEAD, 0.0, l1=1.0) is Laplace


def test_the_account_of_logistic_noise_that_needs_less_is_taken():
    """Moments from L2 for a whole head at a delta; pure from L1 without, and for few numbers."""
    many = least_noise_mechanism("logistic", 1.0, 1e-5, Sensitivity(1.0), HEAD)
    assert (many.norm, many.event) == ("l2", LogisticEvent(many.noise_multiplier, 2))
    assert least_noise_mechanism("logistic", 1.0, 0.0, Sensitivity(1.0), HEAD).norm == "l1"
    assert least_noise_mechanism("logistic", 1.0, 1e-5, Sensitivity(1.0), 4).norm == "l1"


def check_that_noise_is_for_its_own_norm():
    for l1, in_l1 in ((None, 0.3 * math.sqrt(HEAD)), (0.5, 0.5)):
        for name, delta, expected in (
            ("laplace", 0.0, in_l1),
            ("laplace", 1e-5, in_l1),
            ("logistic", 0.0, in_l1),
            ("logistic", 1e-5, 0.3 if l1 is None else 0.5),  # whichever needs less
            ("gaussian", 1e-5, 0.3),
            ("k_norm", 0.0, 0.3),
        ):
            found = least_noise_mechanism(name, 1.0, delta, Sensitivity(0.3, l1), HEAD)
            assert found.sensitivity == pytest.approx(expected), name
            by_moments = isinstance(found, Logistic) and found.norm == "l2"
            assert by_moments == (name == "logistic" and expected == 0.3)


def test_noise_is_for_the_sensitivity_in_its_own_norm():
    check_that_noise_is_for_its_own_norm()


@pytest.mark.parametrize("kind", [Laplace, Logistic])
def test_noise_for_l2_where_l1_is_due_is_caught(kind, monkeypatch):
    def wrong(epsilon, delta, moved, size):
        return kind(1 / epsilon, moved.l2)

    name = kind.__name__.lower()
    monkeypatch.setitem(MECHANISMS, name, (wrong,))
    with pytest.raises(AssertionError, match=name):
        check_that_noise_is_for_its_own_norm()


def test_many_releases_compose_by_their_moments():
    """Future work of the paper: a hundred copies cost ten times as much as one, not a hundred."""
    event = least_noise_mechanism("logistic", 0.1, 1e-5, Sensitivity(1.0), HEAD).event
    assert event.norm == 2
    together = epsilon_of(ComposedEvent((event,) * 100), 1e-5)
    assert together < 1.25  # a hundred added up are 10


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize("name", ["gaussian", "k_norm", "laplace", "logistic"])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_measured_noise_has_the_predicted_variance_and_law(name, delta):
    if name == "gaussian" and delta == 0:
        return
    mechanism, size = least_noise_mechanism(name, 1.0, delta, Sensitivity(0.7), 300), 300
    random = SecureRandom(seed=1)
    noise = np.array([mechanism.release(np.full(size, 5.0), random) for _ in range(200)]) - 5.0
    assert noise.var() == pytest.approx(noise_std(mechanism, size) ** 2, rel=0.02)
    unit = noise / mechanism.scale
    laws = {Gaussian: stats.norm, Laplace: stats.laplace, Logistic: stats.logistic}
    if type(mechanism) in laws:
        assert stats.kstest(unit.ravel(), laws[type(mechanism)].cdf).pvalue > 1e-4
    else:
        norms = np.linalg.norm(unit, axis=1)
        assert stats.kstest(norms, stats.gamma(size).cdf).pvalue > 1e-4


def test_no_noise_and_no_guarantee():
    for name in MECHANISMS:
        assert (
            least_noise_mechanism(name, math.inf, 1e-5, Sensitivity(1.0), 3).noise_multiplier == 0
        )


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"mechanism='gaussian' has no pure.*delta=0"):
        least_noise_mechanism("gaussian", 1.0, 0.0, Sensitivity(1.0), 3)
    for wrong in ({"l2": 0.0}, {"l2": math.nan}, {"l2": 1.0, "l1": -1.0}):
        with pytest.raises(ValueError, match="must be a finite number above 0"):
            Sensitivity(**wrong)
