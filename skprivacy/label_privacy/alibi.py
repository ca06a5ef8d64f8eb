"""ALIBI (Malek et al. 2021): Laplace noise on one-hot labels, and Bayesian inference."""

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

_SENSITIVITY = 2.0  # a changed label moves 1 from one indicator to another


@fill_docs
class ALIBIClassifier(NoisyLabelClassifier):
    """ALIBI: any classifier, with label privacy by Laplace noise (Malek et al. 2021).

    Each label is released as a one-hot vector plus Laplace noise on each number. The class of a
    vector is inferred by Bayes' rule, with a prior from a model of the features; each round fits a
    better model, which gives a better prior.

    Parameters
    ----------
    %(label_estimator)s
    %(label_epsilon)s
    %(label_rounds)s
    %(classes)s
    keep_labels : bool, default=False
        Whether to keep the released labels as ``labels_``.
    random_state : int, RandomState instance or None, default=None
        Seed of the folds and the estimator, never of the noise.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    estimator_ : classifier
        The fitted estimator. It predicts indices of ``classes_``.
    labels_ : ndarray of shape (n_samples, n_classes)
        With ``keep_labels``: the noisy one-hot vectors.
    labelled_ : ndarray of shape (n_groups,)
        With ``keep_labels``: positions of the records of ``labels_``, one record of each group.
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** Pure ``epsilon``-differential privacy of each label: the vector of a record is
    one release of L1 sensitivity 2. With ``groups`` all labels of a group are protected together,
    and one of them is released. Features and membership are public and unprotected.

    **Edge cases.** If all noisy labels are of one class, that class is always predicted. With an
    estimator that has neither ``predict_proba`` nor ``decision_function``, rounds gain little.

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
        # Malek et al. 2021, ALIBI: Laplace noise of scale 2 / epsilon on the one-hot label
        noisy = mechanism.release(np.eye(k)[codes], noise)
        # Malek et al. 2021, ALIBI: the likelihood of each class, relative to a vector of zeros.
        # Only the number of the class itself changes its density.
        log_likelihood = (np.abs(noisy) - np.abs(noisy - 1.0)) / scale
        likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
        prior = estimate_first_prior(
            self._base(X), X, noisy.argmax(axis=1), _truth_probability(k, scale), likelihood,
            self.n_folds, random,
        )  # fmt: skip
        return noisy, likelihood, prior


def _truth_probability(n_classes: int, scale: float) -> float:
    """Return the probability that the true class has the largest noisy number."""
    law = stats.laplace(scale=scale)
    middles = law.ppf((np.arange(20_000) + 0.5) / 20_000)
    return float((law.cdf(1.0 + middles) ** (n_classes - 1)).mean())
