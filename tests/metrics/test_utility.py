"""The utility loss: a difference of accuracies, with its error."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skprivacy.metrics import utility_loss


def test_loss_is_the_difference_of_accuracies():
    y = np.array(["a", "b", "b", "a", "c"])
    before = np.array(["a", "b", "b", "c", "c"])
    after = np.array(["a", "a", "b", "a", "b"])
    found = utility_loss(y, before, after)
    assert found.loss == pytest.approx(0.8 - 0.6)
    assert found.relative == pytest.approx(0.25)
    assert utility_loss(y, after, before).loss == pytest.approx(-0.2)
    assert math.isnan(utility_loss(y, ["d"] * 5, after).relative)


def test_the_error_is_that_of_new_records_and_new_noise():
    random = np.random.default_rng(0)
    y = np.zeros(400, int)
    losses, errors = [], []
    for _ in range(500):
        before = (random.random(400) > 0.9).astype(int)
        spoilt = random.uniform(0.0, 0.4, size=(5, 1))  # noise that harms some draws more
        after = np.maximum(before, random.random((5, 400)) < spoilt)
        found = utility_loss(y, before, after)
        losses.append(found.loss)
        errors.append(found.standard_error)
    # 500 seeded repetitions: a standard deviation is known to 3%
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(losses), rel=0.15)


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
