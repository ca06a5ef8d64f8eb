"""Start of a generator: its moments of rows, and the contribution of a record."""

from __future__ import annotations

import numpy as np
import pytest

from skprivacy.synthesis import gan_features as _moments
from skprivacy.synthesis.gan_features import Moments

WIDE = (2, 4)  # choices, whose rows may be of length 2**.5


def normal_rows(n, seed=0):
    """Rows of two labels around .3 and .6, in one direction more than in others."""
    rng = np.random.default_rng(seed)
    labels = (rng.uniform(size=n) < 0.25).astype(np.int64)
    factor = np.array([[0.1, 0.05, 0.0], [0.0, 0.02, 0.02]])
    rows = 0.3 + 0.3 * labels[:, None] + rng.normal(size=(n, 2)) @ factor
    return rows.astype(np.float32), labels, factor


def test_exact_moments_are_those_of_the_rows():
    rows, labels, factor = normal_rows(20_000)
    moments = Moments(2, (1, 1, 1))
    found = moments.start(moments.sums(rows, labels, None), 1e-9, 5)
    np.testing.assert_allclose(found.rates, [0.75, 0.25], atol=0.02)
    means = [rows[labels == k].mean(axis=0) for k in (0, 1)]
    np.testing.assert_allclose(found.means, means, atol=1e-3)
    np.testing.assert_allclose(found.factor.T @ found.factor, factor.T @ factor, atol=5e-4)
    assert found.factor.shape == (5, 3)
    assert np.all(found.factor[3:] == 0)  # more random numbers than columns


def test_directions_of_mere_noise_are_left_out():
    rows, labels, _ = normal_rows(2000)
    moments = Moments(2, (1, 1, 1))
    sums = moments.sums(rows, labels, None)
    noisy = sums + np.random.default_rng(0).normal(scale=50.0, size=sums.shape)
    assert np.all(moments.start(noisy, 50.0, 5).factor == 0)


def test_sums_are_exact_however_rows_are_cut(monkeypatch):
    rows, labels, _ = normal_rows(1000)
    shares = np.random.default_rng(1).integers(1, 1 << 20, size=1000) / (1 << 20)
    whole = Moments(2, (1, 1, 1)).sums(rows, labels, shares)
    monkeypatch.setattr(_moments, "row_slices", lambda n: (slice(i, i + 7) for i in range(0, n, 7)))
    np.testing.assert_array_equal(Moments(2, (1, 1, 1)).sums(rows, labels, shares), whole)


def test_of_wide_rows_the_means_alone_are_told(monkeypatch):
    rows, labels, _ = normal_rows(2000)
    moments = Moments(2, (1, 1, 1))
    sums = moments.sums(rows, labels, None)
    known = moments.start(sums, 1e-9, 5)
    monkeypatch.setattr(_moments, "_MAX_COVARIANCE_WIDTH", 2)
    few = moments.sums(rows, labels, None)
    assert len(few) == 3 + 6 < len(sums)  # each pair of labels; a mean for each
    found = moments.start(few, 1e-9, 5)
    np.testing.assert_array_equal(found.means, known.means)
    assert found.factor.shape == known.factor.shape
    assert np.all(found.factor == 0)


def test_a_label_that_is_hardly_counted_has_the_mean_of_all():
    rows, labels, _ = normal_rows(2000)
    labels[labels == 1] = 0
    labels[0] = 1
    moments = Moments(2, (1, 1, 1))
    found = moments.start(moments.sums(rows, labels, None), 10.0, 3)
    np.testing.assert_allclose(found.means[1], rows.mean(axis=0), atol=0.03)
    assert 0 <= found.means.min() <= found.means.max() <= 1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_a_unit_adds_no_more_than_the_sensitivity(size):
    """A record, or a group whose records have shares of it, of whatever length."""
    rng = np.random.default_rng(size)
    shares = None if size == 1 else np.full(size, (1 << 20) // size / (1 << 20))
    longest = 0.0
    for length in (0.0, 0.5, 1.0, 1e3, 1e30):
        rows = rng.normal(size=(size, 6)).astype(np.float32)
        rows *= np.float32(length) / np.linalg.norm(rows, axis=1, keepdims=True)
        labels = np.full(size, 2) if length > 1 else rng.integers(4, size=size)
        added = Moments(4, WIDE).sums(rows, labels, shares)
        longest = max(longest, float(np.linalg.norm(added)))
        rows[:] = rows[0]  # all alike: the most that a group can add
        alike = Moments(4, WIDE).sums(rows, np.zeros(size, int), shares)
        longest = max(longest, float(np.linalg.norm(alike)))
    assert longest <= Moments.sensitivity
    # Reached by a row in one direction.
    row = np.sqrt(np.float32(2)) * np.eye(6, dtype=np.float32)[[0] * size]
    added = Moments(4, WIDE).sums(row, np.zeros(size, int), shares)
    assert np.linalg.norm(added) > 0.999 * Moments.sensitivity


def test_no_row_is_longer_than_the_radius():
    """So that none is shortened: a number at its end, and one category of each column."""
    moments = Moments(2, (1, 2, 3))
    assert moments.radius == 1.5
    row = np.array([[1, 0, 1, 0, 0, 1]], dtype=np.float32)
    added = moments.sums(row, np.array([0]), None)
    assert np.linalg.norm(added) == pytest.approx(Moments.sensitivity, rel=0.2)
    found = moments.start(
        moments.sums(np.repeat(row, 50, axis=0), np.zeros(50, int), None), 1e-9, 3
    )
    np.testing.assert_allclose(found.means[0], row[0], atol=1e-4)
