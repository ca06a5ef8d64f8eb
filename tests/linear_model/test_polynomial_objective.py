"""A polynomial objective of one's own: slopes that mix records are found on public numbers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from skprivacy.linear_model import PolynomialObjective
from skprivacy.linear_model.polynomial_objective import multinomial_objective, squared_objective


class Remembering:
    """The slope of a target depends on what was seen before."""

    def __init__(self):
        self.seen = np.zeros(0)

    def __call__(self, y):
        before = self.seen.mean() if self.seen.size else 0.0
        self.seen = y
        return (y - before)[:, None]


def objective(slope):
    return PolynomialObjective(slope, curvature=0.5, slope_l1=10.0, slope_l2=10.0)


APART = {
    "linear": lambda y: (1.0 - y)[:, None],
    "of a curve": lambda y: np.column_stack([np.exp(y / 10), expit(y), np.log1p(y)]),
    "of a table": lambda y: np.array([0.3, -1.0, 2.0])[np.minimum(y, 2).astype(int)][:, None],
    "of labels": lambda y: 1.0 / 11 - (y[:, None] == np.arange(11)),
    "NaN": lambda y: np.where(y > 5, np.nan, y)[:, None],
    "in place": lambda y: np.subtract(1.0, y, out=y)[:, None],
    "infinite": lambda y: np.where(y > 5, np.inf, -y)[:, None],
}


@pytest.mark.parametrize("name", APART)
def test_slopes_of_single_records_pass(name):
    objective(APART[name]).check_records_apart(0, 10)


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 1e9), (-3.5, -3.4), (2.0, 2.0)])
def test_the_objectives_of_the_library_pass(bounds):
    for made in (squared_objective(), multinomial_objective(2), multinomial_objective(5)):
        made.check_records_apart(*bounds)


MIXING = {
    "centred": lambda y: (y - y.mean())[:, None],
    "scaled": lambda y: (y / np.abs(y).max())[:, None],
    "ranked": lambda y: np.argsort(np.argsort(y))[:, None] / len(y),
    "weighted by frequency": lambda y: ((y[:, None] == y).sum(1) / 10)[:, None],
    "by position": lambda y: (y + np.arange(len(y)) / len(y))[:, None],
    "first record": lambda y: (y - y[0])[:, None],
    "last record": lambda y: (y + 1e-6 * y[-1])[:, None],
    "noise by position": lambda y: (y + np.random.RandomState(0).normal(size=len(y)))[:, None],
    "classes of the data": lambda y: y[:, None] == np.unique(y),
    "remembered": Remembering(),
}


@pytest.mark.parametrize("name", MIXING)
def test_slopes_that_mix_records_are_refused(name):
    with pytest.raises(ValueError, match="Compute each slope only from its own target"):
        objective(MIXING[name]).check_records_apart(0, 10)


def test_what_returns_no_row_for_each_target_is_refused():
    for slope in (lambda y: y, lambda y: y[:5, None], lambda y: np.zeros((1, 1))):
        with pytest.raises(ValueError, match="slope must return shape"):
            objective(slope).check_records_apart()


def test_the_assumption_is_that_of_modules():
    """Printed beside a guarantee, in the words that networks use for modules."""
    assumption = objective(APART["linear"]).assumption
    assert assumption == "the objective treats each record by itself (tried on random numbers)"


def test_a_trial_leaves_the_targets_of_a_release_alone():
    """A slope that writes into its argument does not reach what the caller holds."""
    targets = np.linspace(0, 1, 5)
    objective(APART["in place"])._slopes(targets)
    assert targets.tolist() == [0, 0.25, 0.5, 0.75, 1]
