"""Bugs, as functions of what they replace; planted.py says where they are put."""

from __future__ import annotations

import dataclasses

import numpy as np

from skprivacy.fine_tuning import GradientHead
from skprivacy.fine_tuning.sensitivity import Sensitivity
from skprivacy.mechanisms import SecureRandom
from skprivacy.mechanisms.bounds import quantize

__all__ = [
    "bare",
    "clips_the_mean",
    "columns_beyond_their_bounds",
    "divides_by_n",
    "features_beyond_the_ball",
    "first_number_bare",
    "half_distance",
    "half_gradient",
    "half_spread",
    "half_statistic",
    "keeps_n",
    "keeps_rows",
    "looked_at_by_nobody",
    "mirrored",
    "mirrored_in_place",
    "never_lies",
    "no_noise",
    "no_tilt",
    "not_at_all",
    "of_the_global_generator",
    "polished_on_the_data",
    "released_twice",
    "reported_twice",
    "scaled",
    "too_true",
    "twice_the_steps",
]


def too_true(original):
    """Lie with half the probability."""
    return property(lambda self: (1.0 + original.fget(self)) / 2)


def never_lies(original):
    return property(lambda self: 1.0)


def no_noise(original):
    return lambda self, scale, size, random: np.zeros(size, np.int64)


def bare(original):
    return lambda self, value, random: value


def no_tilt(original):
    return lambda self, size: 0.0


def of_the_global_generator(original):
    def release(self, value, random):
        seed = int(np.random.randint(2**31))  # noqa: NPY002
        return original(self, value, SecureRandom(seed))

    return release


def mirrored(original):
    """Give the second half of a vector the first half's noise, turned round."""

    def noise(self, scale, size, random):
        half = original(self, scale, (size + 1) // 2, random)
        return np.r_[half, -half][:size]

    return noise


def mirrored_in_place(original):
    def release(self, value, random):
        before, half = value.copy(), (len(value) + 1) // 2
        noise = original(self, value, random) - before
        value[:] = before + np.r_[noise[:half], -noise[:half]][: len(value)]
        return value

    return release


def first_number_bare(original):
    def release(self, value, random):
        first = np.ravel(value)[0]
        noisy = original(self, value, random)
        np.ravel(noisy)[0] = first  # of a view
        return noisy

    return release


def released_twice(original):
    """Release the same once more, in a better mean, for the price of one."""

    def release(self, value, random):
        again = np.array(value, copy=True) if isinstance(value, np.ndarray) else value
        return (original(self, value, random) + original(self, again, random)) / 2

    return release


def reported_twice(original):
    """Report what is true if one of two reports says so, for the price of one."""

    def release(self, value, random):
        first, second = (original(self, value, random) for _ in range(2))
        return np.where(second == value, second, first)

    return release


def half_spread(original):
    """Halve the sensitivity of every mechanism that is made in a place."""
    return lambda noise_multiplier, sensitivity: original(noise_multiplier, sensitivity / 2)


def half_distance(original):
    return lambda self, sensitivity: original(self, sensitivity / 2)


def half_gradient(original):
    return property(lambda self: original.fget(self) / 2)


def half_statistic(original):
    return lambda self, task: Sensitivity(original(self, task).l2 / 2)


def features_beyond_the_ball(original):
    def transform(self, X, shares=None):
        lower, upper = np.array(self.lower), np.array(self.upper)
        rows = 2 * (np.nan_to_num(X) - lower) / (upper - lower) - 1
        return quantize(rows / self.norm), np.ones(len(X))

    return transform


def columns_beyond_their_bounds(original):
    def unit(self, middle, half):
        return (quantize(10.0 * part) for part in original(self, middle, half))

    return unit


def polished_on_the_data(original):
    """Move the constant by the mean of the private targets, bare."""

    def fit(self, X, y, **params):
        original(self, X, y, **params)
        self.intercept_ = self.intercept_ + np.mean(np.clip(np.nan_to_num(y), -1, 1))
        return self

    return fit


def keeps_rows(original):
    def fit(self, X, y=None, **params):
        self.kept_ = np.array(X) if y is None else np.c_[np.array(X), y]
        return original(self, X, y, **params)

    return fit


def keeps_n(original):
    def fit(self, X, y=None, **params):
        self.seen_ = len(X)
        return original(self, X, y, **params)

    return fit


def divides_by_n(original):
    """Divide noisy sums by the number of records, which is not public."""

    def moments(self, degree, relation, value):
        return original(self, degree, "zero_out", value)

    return moments


def not_at_all(original):
    return np.inf


def looked_at_by_nobody(original):
    return lambda value: None


def clips_the_mean(original):
    """Clip the mean gradient of a batch and not that of each record."""

    def total(self, X, y, indices, people=None):
        summed = original(self, X, y, indices, people)
        allowed = self._expected * self._clipped.max_grad_norm
        return summed * min(1.0, allowed / (float(summed.norm()) + 1e-30))

    return total


def twice_the_steps(original):
    """Take twice the steps that the noise is for."""

    def release(self, task, records, random):
        class More(GradientHead):
            def _multiplier(this, task):
                return self._multiplier(task)

        more = More(**{**dataclasses.asdict(self), "steps": 2 * self.steps})
        return original(more, task, records, random)

    return release


def scaled(share):
    """Return what makes the noise of a grid smaller."""

    def make(original):
        def noise(self, scale, size, random):
            return original(self, max(1, round(share * scale)), size, random)

        return noise

    return make
