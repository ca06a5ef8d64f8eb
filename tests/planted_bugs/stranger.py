"""Another author's DP-SGD in plain numpy, which releases only its weights."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from skprivacy.accounting import (
    GaussianEvent,
    PoissonSampledEvent,
    RepeatedEvent,
    calibrate_noise_multiplier,
)

Array = NDArray[Any]


@lru_cache
def noise_multiplier(epsilon: float, delta: float, n_steps: int, rate: float) -> float:
    """Return the noise of Poisson samples for replaced records."""

    def make_event(noise: float) -> RepeatedEvent:
        return RepeatedEvent(PoissonSampledEvent(rate, GaussianEvent(noise)), n_steps)

    return calibrate_noise_multiplier(make_event, epsilon, delta, relation="replace_one")


class StrangerDPSGD(ClassifierMixin, BaseEstimator):
    """Logistic regression without intercept by DP-SGD (Abadi et al. 2016, Algorithm 1).

    Each step is one method, so that a bug can take its place.
    """

    def __init__(self, epsilon=1.0, delta=1e-5, n_steps=4, sampling_rate=0.25, max_grad_norm=1.0):
        self.epsilon = epsilon
        self.delta = delta
        self.n_steps = n_steps
        self.sampling_rate = sampling_rate
        self.max_grad_norm = max_grad_norm

    def fit(self, X, y):
        random = np.random.default_rng()
        signs = np.where(y == 1, 1.0, -1.0)
        weights = np.zeros(X.shape[1])
        scale = self.noise_scale(random)
        for batch in self.batches(len(X), random):
            rows, own = X[batch], signs[batch]
            with np.errstate(over="ignore"):
                gradients = rows * (-own / (1.0 + np.exp(own * (rows @ weights))))[:, None]
            total = self.clip(gradients, own).sum(axis=0)
            total += scale * random.normal(size=len(weights))
            weights -= total / (self.sampling_rate * len(X))
        self.coef_ = weights
        return self

    def batches(self, n: int, random: np.random.Generator) -> list[Array]:
        """Return Poisson samples of the records."""
        drawn = random.random((self.n_steps, n)) < self.sampling_rate
        return [np.flatnonzero(row) for row in drawn]

    def clip(self, gradients: Array, signs: Array) -> Array:
        """Return gradients of norm ``max_grad_norm`` at most."""
        norms = np.sqrt((gradients**2).sum(axis=1)) + 1e-12
        return gradients * np.minimum(1.0, self.max_grad_norm / norms)[:, None]

    def noise_scale(self, random: np.random.Generator) -> float:
        """Return the deviation of the noise."""
        noise = noise_multiplier(self.epsilon, self.delta, self.n_steps, self.sampling_rate)
        return noise * self.sensitivity()

    def sensitivity(self) -> float:
        """Return how far ONE record moves a sum; a replaced one moves it by twice as much."""
        return self.max_grad_norm
