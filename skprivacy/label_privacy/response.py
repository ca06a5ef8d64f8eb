"""Randomised response on labels (Warner 1965), with a model of the true labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._docs import fill_docs
from ..accounting import Event
from ..mechanisms import RandomizedResponse, SecureRandom
from ._base import LARGEST_EPSILON, NoisyLabelClassifier
from ._learning import estimate_first_prior

__all__ = ["RandomizedResponseClassifier"]


@fill_docs
class RandomizedResponseClassifier(NoisyLabelClassifier):
    """Any classifier, with label privacy by randomised response (Warner 1965).

    Each label is reported truthfully with probability e^epsilon / (e^epsilon + k - 1), otherwise as
    one of the other k - 1. Since this law is known, the bias can be removed: a first model of the
    reports is solved for the probabilities of the true labels, and the estimator learns from these.

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
    labels_ : ndarray of shape (n_samples,)
        With ``keep_labels``: the reported labels.
    labelled_ : ndarray of shape (n_groups,)
        With ``keep_labels``: positions of the records of ``labels_``, one record of each group.
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** Pure ``epsilon``-differential privacy of each label, even locally: it also holds
    against an observer of the reports. With ``groups`` all labels of a group are protected
    together, and one of them is reported. Features and membership are public and unprotected.

    **Bias.** The rounds are steps of expectation maximisation on the likelihood of the reports, the
    likelihood behind the forward-corrected loss of Patrini et al.; all weights are positive.

    **Edge cases.** If all noisy labels are of one class, that class is always predicted. With an
    estimator that has neither ``predict_proba`` nor ``decision_function``, rounds gain little.

    References
    ----------
    S. L. Warner, "Randomized response", JASA 60, 1965.
    G. Patrini, A. Rozza, A. Menon, R. Nock and L. Qu, "Making deep neural networks robust to label
    noise: a loss correction approach", CVPR 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.label_privacy import RandomizedResponseClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 3))
    >>> y = X[:, 0] > 0
    >>> model = RandomizedResponseClassifier(epsilon=1.0, classes=[False, True])
    >>> model = model.fit(X[:3000], y[:3000])
    >>> model.privacy_
    1.00-DP, label, exact noise, proved assuming the features of all records are public (labels
    alone are protected)
    >>> model.score(X[3000:], y[3000:]) > 0.8
    True
    """

    _arithmetic = RandomizedResponse.arithmetic

    def _event(self, n_classes: int) -> Event:
        return RandomizedResponse(self.epsilon, n_classes).event

    def _release_labels(
        self, X: Any, codes: NDArray[np.int64], random: np.random.RandomState, noise: SecureRandom
    ) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64]]:
        k = len(self.classes_)
        mechanism = RandomizedResponse(min(self.epsilon, LARGEST_EPSILON), k)
        reports = mechanism.release(codes, noise)  # Warner 1965: randomised response
        true = mechanism.truth_probability
        likelihood = np.where(np.eye(k, dtype=bool)[reports], true, (1.0 - true) / (k - 1))
        prior = estimate_first_prior(
            self._base(X), X, reports, true, likelihood, self.n_folds, random
        )
        return self.classes_[reports], likelihood, prior
