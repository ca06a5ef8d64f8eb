"""Learning from labels that were noised by a known law: all of it is post-processing.

What is known of a record's label is its likelihood: for each class, the probability of what was
released if that class were the true one. With a prior, which a model of the features gives, it is a
posterior; with the posterior as weights a model can be fitted, which gives a better prior.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from .._blas import one_thread
from .._sklearn import num_samples, safe_indexing

__all__ = [
    "cross_fit_scores",
    "estimate_first_prior",
    "fit_inverse_temperature",
    "fit_on_posterior",
    "fit_on_weights",
    "posterior",
    "scores_to_probabilities",
]

Floats = NDArray[np.float64]

_LEAST_PRIOR = 1e-3  # of a prior, shared by all classes: no model is certain
_NEGLIGIBLE = 0.05  # weights below this share of a record's largest are left out
_INVERSE_TEMPERATURES = 2.0 ** np.arange(-3.0, 9.0, 0.5)


def posterior(likelihood: Floats, prior: Floats) -> Floats:
    """Return the probability of each class, of shape (n_samples, n_classes)."""
    joint: Floats = likelihood * prior
    return joint / joint.sum(axis=1, keepdims=True)


def fit_on_posterior(
    estimator: Any,
    X: Any,
    likelihood: Floats,
    prior: Floats,
    n_rounds: int,
    n_folds: int,
    random: np.random.RandomState,
) -> Any:
    """Return a clone of ``estimator`` that has learned from noisy labels."""
    for _ in range(n_rounds - 1):
        weights = posterior(likelihood, prior)
        scores = cross_fit_scores(estimator, X, weights, n_folds, random)
        prior = scores_to_probabilities(
            scores, fit_inverse_temperature(estimator, scores, likelihood)
        )
    return fit_on_weights(estimator, X, posterior(likelihood, prior), random)


def estimate_first_prior(
    estimator: Any,
    X: Any,
    named: NDArray[np.int64],
    true: float,
    likelihood: Floats,
    n_folds: int,
    random: np.random.RandomState,
) -> Floats:
    """Return what a model of noisy labels says of the true ones."""
    k = likelihood.shape[1]
    scores = cross_fit_scores(estimator, X, np.eye(k)[named], n_folds, random)
    if not hasattr(estimator, "predict_proba"):
        return scores_to_probabilities(
            scores, fit_inverse_temperature(estimator, scores, likelihood)
        )
    other = (1.0 - true) / (k - 1)
    return _floor_probabilities((np.exp(scores) - other) / max(true - other, 1e-9))


def cross_fit_scores(
    estimator: Any, X: Any, weights: Floats, n_folds: int, random: np.random.RandomState
) -> Floats:
    """Return the scores of each record's classes by a model that was fitted without it."""
    found = np.empty_like(weights)
    n_folds = min(n_folds, len(weights))
    if n_folds < 2:  # a single record has no others that would tell of it
        return np.zeros_like(weights)
    for others, own in KFold(n_folds, shuffle=True, random_state=random).split(weights):
        model = fit_on_weights(estimator, safe_indexing(X, others), weights[others], random)
        found[own] = class_scores(model, safe_indexing(X, own), weights.shape[1])
    return found


def class_scores(model: Any, X: Any, n_classes: int) -> Floats:
    """Return logarithms of probabilities, or else the values of a decision function.

    Where a model gives no number, as some do for records that are far from all others, it tells
    nothing: what has been released by now must not be lost.
    """
    if isinstance(model, DummyClassifier):
        X = np.zeros((num_samples(X), 1))
    if hasattr(model, "predict_proba"):
        found = np.zeros((num_samples(X), n_classes))
        found[:, model.classes_] = model.predict_proba(X)
        return np.log(_floor_probabilities(np.nan_to_num(found)))
    if hasattr(model, "decision_function"):
        values = np.nan_to_num(np.asarray(model.decision_function(X), np.float64))
        values = np.column_stack([-values, values]) if values.ndim == 1 else values
        found = np.full((len(values), n_classes), values.min())
        found[:, model.classes_] = values
        return found
    return np.eye(n_classes)[model.predict(X)]


def fit_inverse_temperature(estimator: Any, scores: Floats, likelihood: Floats) -> float:
    """Return what scores are multiplied by to be logarithms of probabilities.

    1 where they are; otherwise the factor that makes what was released most likely.
    """
    if hasattr(estimator, "predict_proba"):
        return 1.0
    fits = [
        np.log((likelihood * scores_to_probabilities(scores, t)).sum(axis=1)).sum()
        for t in _INVERSE_TEMPERATURES
    ]
    return float(_INVERSE_TEMPERATURES[int(np.argmax(fits))])


def scores_to_probabilities(scores: Floats, heat: float) -> Floats:
    """Return the probabilities that scores stand for."""
    return _floor_probabilities(softmax(heat * scores, axis=1))


def fit_on_weights(estimator: Any, X: Any, weights: Floats, random: np.random.RandomState) -> Any:
    """Return a clone fitted to each record once a class, with that class's weight.

    An estimator without sample weights gets one label a record, drawn by these weights.
    """
    model, route = _seed_clone(estimator, random), _weight_parameter(estimator)
    fit_params = {}
    if route is None:
        drawn = (weights.cumsum(axis=1) < random.random_sample((len(weights), 1))).sum(axis=1)
        rows, labels = np.arange(len(weights)), np.minimum(drawn, weights.shape[1] - 1)
    else:
        rows, labels = np.nonzero(weights > _NEGLIGIBLE * weights.max(axis=1, keepdims=True))
        fit_params = {route: weights[rows, labels]}
    if len(np.unique(labels)) < 2:
        return DummyClassifier(strategy="constant", constant=labels[0]).fit(labels, labels)
    whole = len(rows) == len(weights)  # one class a record: no copy is needed
    # Features and their number are public where labels alone are protected.
    with one_thread(math.prod(np.shape(X))):
        return model.fit(X if whole else safe_indexing(X, rows), labels, **fit_params)


def _seed_clone(estimator: Any, random: np.random.RandomState) -> Any:
    """Return a clone whose seeds are drawn, where they are left open."""
    model = clone(estimator)
    seeds = {
        name: random.randint(np.iinfo(np.int32).max)
        for name, value in sorted(model.get_params().items())
        if name.split("__")[-1] == "random_state" and value is None
    }
    return model.set_params(**seeds)


def _floor_probabilities(values: Floats) -> Floats:
    values = np.maximum(values, _LEAST_PRIOR / values.shape[1])
    return values / values.sum(axis=1, keepdims=True)


def _weight_parameter(estimator: Any) -> str | None:
    """Return the name under which ``fit`` takes weights of records; None if it takes none."""
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inner = _weight_parameter(last)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None
