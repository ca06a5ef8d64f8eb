"""The utility loss: definition 6.1 for any metric, with its error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score, r2_score

from skprivacy.metrics.utility import utility_loss


def test_loss_is_the_share_of_the_score_that_is_lost():
    """Definition 6.1: 1 - M(protected) / M(unprotected)."""
    y = np.array(["a", "b", "b", "a", "c"])
    before = np.array(["a", "b", "b", "c", "c"])
    after = np.array(["a", "a", "b", "a", "b"])
    found = utility_loss(y, before, after)
    assert found.loss == pytest.approx(1 - 0.6 / 0.8)
    assert found.difference == pytest.approx(0.8 - 0.6)
    gained = utility_loss(y, after, before)
    assert gained.loss == pytest.approx(1 - 0.8 / 0.6)
    assert gained.difference == pytest.approx(-0.2)


def test_nothing_is_lost_of_a_score_of_zero():
    found = utility_loss(["a", "b"], ["c", "c"], ["a", "c"])
    assert math.isnan(found.loss)
    assert found.difference == -0.5


@pytest.mark.parametrize("metric", [balanced_accuracy_score, f1_score, r2_score])
def test_the_loss_is_of_any_metric(metric):
    y = np.array([0, 1, 1, 0, 1, 1, 0, 1])
    before, after = y.copy(), np.array([y, y])
    before[0], after[:, 0], after[1, 3] = 1, 1, 1
    protected = np.mean([metric(y, draw) for draw in after])
    found = utility_loss(y, before, after, metric=metric)
    assert found.loss == pytest.approx(1 - protected / metric(y, before))
    assert found.difference == pytest.approx(metric(y, before) - protected)
    assert found.loss > 0
    assert found.standard_error > 0


@pytest.mark.slow
def test_the_error_is_that_of_new_records_and_new_noise():
    random = np.random.default_rng(0)
    y = np.zeros(400, int)
    losses, errors = [], []
    for _ in range(150):
        before = (random.random(400) > 0.9).astype(int)
        spoilt = random.uniform(0.0, 0.4, size=(5, 1))  # noise that harms some draws more
        after = np.maximum(before, random.random((5, 400)) < spoilt)
        found = utility_loss(y, before, after)
        losses.append(found.loss)
        errors.append(found.standard_error)
    # 150 seeded repetitions: a standard deviation is known to 6 %
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(losses), rel=0.15)


@pytest.mark.heavy
def test_the_error_of_one_draw_is_that_of_new_records():
    random = np.random.default_rng(1)
    y = np.arange(300) % 2
    found = []
    for _ in range(150):
        before = np.where(random.random(300) < 0.9, y, 1 - y)
        after = np.where(random.random(300) < 0.7, y, 1 - y)
        found.append(utility_loss(y, before, after))
    errors = [one.standard_error for one in found]
    # as above; both models err independently, so that the ratio has the error of both
    assert np.mean(errors) == pytest.approx(np.std([one.loss for one in found]), rel=0.15)


def test_invalid_metric_is_refused():
    with pytest.raises(TypeError, match=r"^metric="):
        utility_loss([0, 1], [0, 1], [0, 1], metric="f1")


@pytest.mark.parametrize(
    ("y", "before", "after", "name"),
    [
        ([], [], [], "y_true"),
        ([[0], [1]], [0, 1], [0, 1], "y_true"),
        ([0, 1], [0], [0, 1], "unprotected"),
        ([0, 1], [0, 1], [[0], [1]], "protected"),
        ([0, 1], [0, 1], np.zeros((1, 1, 2)), "protected"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(y, before, after, name):
    with pytest.raises(ValueError, match=f"^{name} has shape"):
        utility_loss(y, before, after)
