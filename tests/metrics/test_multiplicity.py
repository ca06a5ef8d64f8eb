"""Adjusted p-values: those of the textbook, and few false alarms among many tests."""

import numpy as np
import pytest
from scipy.stats import binom, false_discovery_control

from skprivacy.metrics import auc_interval
from skprivacy.metrics.roc_area import auc_p_value, benjamini_hochberg, holm

pytestmark = pytest.mark.heavy


def test_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.5]).tolist() == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.5]).tolist() == pytest.approx(
        [0.04, 0.16 / 3, 0.16 / 3, 0.5]
    )
    assert holm([0.4, 0.9]).tolist() == [0.8, 0.9]
    assert holm([]).size == benjamini_hochberg([]).size == 0


def test_false_discovery_is_that_of_scipy():
    p = np.random.default_rng(0).random(200) ** 2
    assert benjamini_hochberg(p) == pytest.approx(false_discovery_control(p))


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
def test_nan_p_values_do_not_count(adjust):
    found = adjust([0.01, np.nan, 0.02])
    assert np.isnan(found[1])
    assert found[[0, 2]].tolist() == adjust([0.01, 0.02]).tolist()


@pytest.mark.parametrize("alpha", [0.3, 0.05, 0.002])
def test_the_p_value_of_an_area_agrees_with_its_interval(alpha):
    rng = np.random.default_rng(0)
    for shift in np.linspace(0, 1.5, 40):
        scores = rng.normal(shift, 1, 40).round(1), rng.normal(0, 1, 25).round(1)
        low = auc_interval(*scores, alpha=alpha)[0]
        assert (low > 0.5) is (auc_p_value(*scores) < alpha / 2)


DRAWS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "coin": lambda rng, n: rng.integers(0, 2, n),
    "rare": lambda rng, n: rng.random(n) < 0.02,
    "common": lambda rng, n: rng.random(n) < 0.98,
    "constant": lambda rng, n: np.zeros(n),
    "heavy": lambda rng, n: rng.standard_cauchy(n),
}


@pytest.mark.everyday(3)
@pytest.mark.parametrize("sizes", [(5, 5), (5, 1000), (40, 5), (60, 60)])
@pytest.mark.parametrize("draw", DRAWS)
def test_auc_of_one_half_is_rejected_at_most_at_alpha(draw, sizes):
    """Deep in the tail, where the tests of many groups are decided."""
    rng, runs = np.random.default_rng(0), 1500
    p = np.array([auc_p_value(*(DRAWS[draw](rng, n) for n in sizes)) for _ in range(runs)])
    for alpha in (0.2, 0.05, 0.01, 0.002):
        assert (p <= alpha).sum() <= binom.isf(1e-6, runs, alpha)
