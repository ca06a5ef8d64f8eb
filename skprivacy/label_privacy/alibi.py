"""Laplace noise on labels as indicators, and Bayesian inference of what they were."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from .._docs import fill_docs
from ..accounting import Event
from ..mechanisms import Laplace, SecureRandom
from ._base import LARGEST_EPSILON, NoisyLabelClassifier
from ._learning import estimate_first_prior

__all__ = ["ALIBIClassifier"]

_SENSITIVITY = 2.0  # another label takes 1 off one indicator and adds it to another


@fill_docs
class ALIBIClassifier(NoisyLabelClassifier):
    """Any classifier, with labels that are private by Laplace noise: iterative Bayesian inference.

    Each label is released as a vector with 1 for its class and 0 for the others, plus Laplace noise
    on each number. Which class a vector stands for is inferred with a prior from the features,
    and better again with the better model that results.

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
    %(classes)s
    keep_labels : bool, default=False
        Whether what was released is kept as ``labels_``.
    random_state : int, RandomState instance or None, default=None
        Drives the folds and the estimator's seeds, never the noise.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    estimator_ : classifier
        The fitted estimator. It predicts indices of ``classes_``.
    labels_ : ndarray of shape (n_samples, n_classes)
        With ``keep_labels``: the noisy indicators.
    labelled_ : ndarray of shape (n_groups,)
        With ``keep_labels``: the positions of the records that ``labels_`` are of; with ``groups``
        one of each.
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** Pure ``epsilon``-differential privacy of each label: all indicators of a record
    are one release of L1 sensitivity 2. With ``groups`` it is that of all labels of a group, of
    which one alone is released. Features are public and unprotected, and so is that a
    record takes part: a label guarantee says nothing about membership.

    **Edge cases.** If all noisy labels are of one class, that class is always predicted. An
    estimator that has neither probabilities nor a decision function is fitted all the same, and
    little is gained by rounds.

    References
    ----------
    M. Malek, I. Mironov, K. Prasad, I. Shilov and F. Tramer, "Antipodes of label differential
    privacy: PATE and ALIBI", NeurIPS 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.label_privacy import ALIBIClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 3))
    >>> y = X[:, 0] > 0
    >>> model = ALIBIClassifier(epsilon=1.0, classes=[False, True]).fit(X[:3000], y[:3000])
    >>> model.privacy_
    1.00-DP, label, exact noise, proved assuming the features of all records are public (labels
    alone are protected)
    >>> model.score(X[3000:], y[3000:]) > 0.8
    True
    """

    _arithmetic = Laplace.arithmetic

    def _event(self, n_classes: int) -> Event:
        return Laplace(1.0 / self.epsilon, _SENSITIVITY).event

    def _release_labels(
        self, X: Any, codes: NDArray[np.int64], random: np.random.RandomState, noise: SecureRandom
    ) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64]]:
        k, scale = len(self.classes_), _SENSITIVITY / min(self.epsilon, LARGEST_EPSILON)
        mechanism = Laplace(scale / _SENSITIVITY, _SENSITIVITY)
        noisy = mechanism.release(np.eye(k)[codes], noise)
        # Of the density only what depends on the class: one number is a step nearer, the rest stay.
        log_likelihood = (np.abs(noisy) - np.abs(noisy - 1.0)) / scale
        likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
        prior = estimate_first_prior(
            self._base(X), X, noisy.argmax(axis=1), _truth_probability(k, scale), likelihood,
            self.n_folds, random,
        )  # fmt: skip
        return noisy, likelihood, prior


def _truth_probability(n_classes: int, scale: float) -> float:
    """Return the probability that the indicator of the true class is the largest with noise."""
    law = stats.laplace(scale=scale)
    middles = law.ppf((np.arange(20_000) + 0.5) / 20_000)
    return float((law.cdf(1.0 + middles) ** (n_classes - 1)).mean())
