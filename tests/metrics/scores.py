"""Scores of attacks whose true epsilon is known."""

from scipy.special import expit


def responses(rng, n, epsilon):
    """Return scores of the best attack on randomised response, which is (epsilon, 0)-private."""
    keep = expit(epsilon)
    return (rng.random(n) < keep).astype(float), (rng.random(n) >= keep).astype(float)
