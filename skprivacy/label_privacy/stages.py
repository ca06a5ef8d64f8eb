"""Labels in two stages: a model of the first tells what is worth asking in the second."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._docs import fill_docs
from .._sklearn import safe_indexing
from .._validation import Interval
from ..accounting import ApproxDP, Event, PrivacyBudget, weakest_arithmetic
from ..mechanisms import RandomizedResponse, RandomizedResponseAmong, SecureRandom
from ._base import LARGEST_EPSILON, NoisyLabelClassifier
from ._learning import (
    class_scores,
    cross_fit_scores,
    estimate_first_prior,
    fit_inverse_temperature,
    fit_on_weights,
    posterior,
    scores_to_probabilities,
)

__all__ = ["LP2STClassifier"]

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@fill_docs
class LP2STClassifier(NoisyLabelClassifier):
    """Any classifier, with labels that are private by randomised response with a prior.

    The labels of a part of the records are released by randomised response, and a model of them
    tells how probable each class is for the others. These respond among their most probable classes
    alone, as many as make a true response most probable: with fewer candidates less is lost
    to noise. Each label is released once.

    Parameters
    ----------
    estimator : classifier or pipeline, default=None
        Is cloned and fitted to indices of classes, with a weight for each class that a record may
        be of; one without ``sample_weight`` gets labels that are drawn by these weights. ``None``
        means logistic regression on features scaled by their largest and least values.
    %(label_epsilon)s
    n_rounds : int, default=3
        How often the probabilities of the true labels are worked out. All rounds use the labels
        that were released once; more cost time, not privacy.
    n_folds : int, default=3
        Between rounds, a record's label is judged by a model that was fitted without it.
    first : float, default=0.5
        Share of the records whose labels are released in the first stage, in (0, 1).
    %(classes)s
    keep_labels : bool, default=False
        Whether what was released is kept as ``labels_``.
    random_state : int, RandomState instance or None, default=None
        Drives which records come first, the folds and the estimator's seeds, never the noise.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    estimator_ : classifier
        The fitted estimator. It predicts indices of ``classes_``.
    labels_ : ndarray of shape (n_samples,)
        With ``keep_labels``: the reported labels.
    labelled_ : ndarray of shape (n_groups,)
        With ``keep_labels``: the positions of the records that ``labels_`` are of; with ``groups``
        one of each.
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** Pure ``epsilon``-differential privacy of each label. The stages are disjoint: a
    label is released in one of them, and what is asked in the second depends on released labels
    and public features alone. With ``groups`` it is that of all labels of a group, of which one
    alone is released. Features are unprotected, and so is that a record takes part: a label
    guarantee says nothing about membership.

    **Edge cases.** If all noisy labels are of one class, that class is always predicted. An
    estimator that has neither probabilities nor a decision function is fitted all the same, and
    little is gained by rounds.

    References
    ----------
    B. Ghazi, N. Golowich, R. Kumar, P. Manurangsi and C. Zhang, "Deep learning with label
    differential privacy", NeurIPS 2021: LP-2ST.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.label_privacy import LP2STClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 3))
    >>> y = X[:, 0] > 0
    >>> model = LP2STClassifier(epsilon=1.0, classes=[False, True]).fit(X[:3000], y[:3000])
    >>> model.privacy_
    1.00-DP, label, exact noise, proved assuming the features of all records are public (labels
    alone are protected)
    >>> model.score(X[3000:], y[3000:]) > 0.8
    True
    """

    _arithmetic = weakest_arithmetic(
        (RandomizedResponse.arithmetic, RandomizedResponseAmong.arithmetic)
    )

    _parameter_constraints: dict = {
        **NoisyLabelClassifier._parameter_constraints,
        "first": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        epsilon: float = 1.0,
        n_rounds: int = 3,
        n_folds: int = 3,
        first: float = 0.5,
        classes: ArrayLike | None = None,
        keep_labels: bool = False,
        random_state: int | np.random.RandomState | None = None,
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        super().__init__(
            estimator,
            epsilon=epsilon,
            n_rounds=n_rounds,
            n_folds=n_folds,
            classes=classes,
            keep_labels=keep_labels,
            random_state=random_state,
            budget=budget,
            noise_seed=noise_seed,
        )
        self.first = first

    def _event(self, n_classes: int) -> Event:
        # Of all pure mechanisms: records respond among different numbers of candidates.
        RandomizedResponse(
            min(self.epsilon, LARGEST_EPSILON), n_classes
        )  # refuses what it cannot respond by
        return ApproxDP(float(self.epsilon))

    def _release_labels(
        self, X: Any, codes: Codes, random: np.random.RandomState, noise: SecureRandom
    ) -> tuple[NDArray[Any], Floats, Floats]:
        n, k = len(codes), len(self.classes_)
        order = random.permutation(n)
        n_first = min(max(round(self.first * n), 2), n - 1)
        one, two = np.sort(order[:n_first]), np.sort(order[n_first:])
        reports = np.empty(n, np.int64)
        likelihood, prior = np.empty((n, k)), np.empty((n, k))
        reports[one], likelihood[one] = _respond(codes[one], k, self.epsilon, noise)
        prior[one], prior[two] = self._priors(X, one, two, reports[one], likelihood[one], random)
        reports[two], likelihood[two] = _respond_with_prior(
            codes[two], prior[two], self.epsilon, noise
        )
        return self.classes_[reports], likelihood, prior

    def _priors(
        self, X: Any, one: Codes, two: Codes, reports: Codes, likelihood: Floats,
        random: np.random.RandomState,
    ) -> tuple[Floats, Floats]:  # fmt: skip
        """Return the probabilities of classes in both parts, by labels of the first alone."""
        base, known = self._base(X), safe_indexing(X, one)
        true = likelihood[0].max() / likelihood[0].sum()
        prior = estimate_first_prior(base, known, reports, true, likelihood, self.n_folds, random)
        weights = posterior(likelihood, prior)
        scores = cross_fit_scores(base, known, weights, self.n_folds, random)
        factor = fit_inverse_temperature(base, scores, likelihood)
        model = fit_on_weights(base, known, weights, random)
        others = class_scores(model, safe_indexing(X, two), likelihood.shape[1])
        return scores_to_probabilities(scores, factor), scores_to_probabilities(others, factor)


def _respond(
    codes: Codes, n_classes: int, epsilon: float, noise: SecureRandom
) -> tuple[Codes, Floats]:
    """Return reports among all classes, and their likelihoods."""
    mechanism = RandomizedResponse(min(epsilon, LARGEST_EPSILON), n_classes)
    reports = mechanism.release(codes, noise)
    true = mechanism.truth_probability
    named = np.eye(n_classes, dtype=bool)[reports]
    return reports, np.where(named, true, (1.0 - true) / (n_classes - 1))


def _respond_with_prior(
    codes: Codes, prior: Floats, epsilon: float, noise: SecureRandom
) -> tuple[Codes, Floats]:
    """Return reports among each record's most probable classes, and their likelihoods.

    Who has one candidate reports it whatever the label: nothing is released, nothing learned.
    """
    ranked = np.argsort(-prior, axis=1, kind="stable")
    sizes = _best_candidate_counts(np.take_along_axis(prior, ranked, axis=1), epsilon)
    reports, likelihood = ranked[:, 0].copy(), np.ones_like(prior)
    for size in range(2, prior.shape[1] + 1):
        rows = np.flatnonzero(sizes == size)
        if not len(rows):
            continue
        candidates = ranked[rows, :size]
        found = candidates == codes[rows, None]
        positions = np.where(found.any(axis=1), found.argmax(axis=1), -1)
        mechanism = RandomizedResponseAmong(min(epsilon, LARGEST_EPSILON), size)
        chosen = mechanism.release(positions, noise)
        reports[rows] = candidates[np.arange(len(rows)), chosen]
        true = mechanism.truth_probability
        likelihood[rows] = 1.0 / size
        likelihood[rows[:, None], candidates] = (1.0 - true) / (size - 1)
        likelihood[rows, reports[rows]] = true
    return reports, likelihood


def _best_candidate_counts(ranked: Floats, epsilon: float) -> Codes:
    """Return how many candidates make a true report most probable; ``ranked`` is descending."""
    sizes = np.arange(1, ranked.shape[1] + 1)
    with np.errstate(over="ignore"):
        truthful = 1.0 / (1.0 + (sizes - 1) * np.exp(-min(epsilon, LARGEST_EPSILON)))
    return (ranked.cumsum(axis=1) * truthful).argmax(axis=1) + 1
