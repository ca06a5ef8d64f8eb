"""Expectation maximisation on labels with known noise: all of it is post-processing.

The likelihood of a record is, for each class, the probability of the released label if that class
were the true one. With a prior, from a model of the features, it gives a posterior. A model fitted
with the posterior as weights gives a better prior.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from .._clones import constant_model, feed_constant_model
from .._environment import one_thread
from .._sklearn import safe_indexing
from .._validation import num_samples

Floats = NDArray[np.float64]

_LEAST_PRIOR = 1e-3  # probability shared by all classes, since no model is certain
_NEGLIGIBLE = 0.05  # weights below this share of a record's largest weight are dropped
_INVERSE_TEMPERATURES = 2.0 ** np.arange(-3.0, 9.0, 0.5)


def posterior(likelihood: Floats, prior: Floats) -> Floats:
    """Return the probability of each class, of shape (n_samples, n_classes)."""
    joint: Floats = likelihood * prior  # Malek et al. 2021, ALIBI: Bayes' rule
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
    """Return a clone of ``estimator`` fitted to noisy labels in rounds; it predicts indices."""
    # Malek et al. 2021, ALIBI: alternate posterior and model; the posterior is the E step of
    # expectation maximisation, the fit on it the M step
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
    """Return the class probabilities of the true labels, from a cross-fitted model of noisy ones.

    ``named`` holds the class of each noisy label, ``true`` the probability that it is the true one.
    """
    k = likelihood.shape[1]
    scores = cross_fit_scores(estimator, X, np.eye(k)[named], n_folds, random)
    if not hasattr(estimator, "predict_proba"):
        return scores_to_probabilities(
            scores, fit_inverse_temperature(estimator, scores, likelihood)
        )
    # A noisy label names each other class with the same probability: p = other + (true - other) q
    other = (1.0 - true) / (k - 1)
    return _floor_probabilities((np.exp(scores) - other) / max(true - other, 1e-9))


def cross_fit_scores(
    estimator: Any, X: Any, weights: Floats, n_folds: int, random: np.random.RandomState
) -> Floats:
    """Return the class scores of each record, by a model that was fitted without it."""
    found = np.empty_like(weights)
    n_folds = min(n_folds, len(weights))
    if n_folds < 2:  # a single record leaves none to fit a model to
        return np.zeros_like(weights)
    for others, own in KFold(n_folds, shuffle=True, random_state=random).split(weights):
        model = fit_on_weights(estimator, safe_indexing(X, others), weights[others], random)
        found[own] = class_scores(model, safe_indexing(X, own), weights.shape[1])
    return found


def class_scores(model: Any, X: Any, n_classes: int) -> Floats:
    """Return logarithms of probabilities, or else the values of a decision function."""
    # NaN, which some models return for records far from all others, counts as no information: an
    # error here would lose labels that are released already.
    X = feed_constant_model(model, X)
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
    """Return the likeliest factor from scores to log-probabilities; 1 if these are given."""
    if hasattr(estimator, "predict_proba"):
        return 1.0
    fits = [
        np.log((likelihood * scores_to_probabilities(scores, t)).sum(axis=1)).sum()
        for t in _INVERSE_TEMPERATURES
    ]
    return float(_INVERSE_TEMPERATURES[int(np.argmax(fits))])


def scores_to_probabilities(scores: Floats, heat: float) -> Floats:
    """Return the softmax of the scaled scores, with a floor."""
    return _floor_probabilities(softmax(heat * scores, axis=1))


def fit_on_weights(estimator: Any, X: Any, weights: Floats, random: np.random.RandomState) -> Any:
    """Return a clone fitted to each record once per class, with the class's weight."""
    model, route = _seed_clone(estimator, random), _weight_parameter(estimator)
    fit_params = {}
    if route is None:
        sampled = (weights.cumsum(axis=1) < random.random_sample((len(weights), 1))).sum(axis=1)
        rows, labels = np.arange(len(weights)), np.minimum(sampled, weights.shape[1] - 1)
    else:
        rows, labels = np.nonzero(weights > _NEGLIGIBLE * weights.max(axis=1, keepdims=True))
        fit_params = {route: weights[rows, labels]}
    if len(np.unique(labels)) < 2:
        return constant_model(labels[0])
    whole = len(rows) == len(weights)  # one class per record: no copy is needed
    # The number of threads may depend on the number of records, which is public here.
    with one_thread(math.prod(np.shape(X))):
        return model.fit(X if whole else safe_indexing(X, rows), labels, **fit_params)


def _seed_clone(estimator: Any, random: np.random.RandomState) -> Any:
    """Return a clone, with each ``random_state`` of None replaced by a drawn seed."""
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
    """Return the name of the ``fit`` parameter for sample weights; None if there is none."""
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inner = _weight_parameter(last)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None
