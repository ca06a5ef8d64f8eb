"""Label privacy by noisy labels: randomised response, LP-2ST and ALIBI.

- :class:`RandomizedResponseClassifier`: randomised response (Warner 1965)
- :class:`LP2STClassifier`: two stages, randomised response with prior (Ghazi et al. 2021)
- :class:`ALIBIClassifier`: Laplace noise on one-hot labels (Malek et al. 2021)

All learn with a model of the true labels given the noisy ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from .._docs import fill_docs
from .._sklearn import safe_indexing
from ..accounting import ApproxDPEvent, Event, weakest_arithmetic
from ..mechanisms import Laplace, RandomizedResponse, SecureRandom
from ..mechanisms.selection import RandomizedResponseWithPrior
from .base import LABEL_DOCS, LARGEST_EPSILON, NoisyLabelClassifier
from .posterior import (
    class_scores,
    cross_fit_scores,
    estimate_first_prior,
    fit_inverse_temperature,
    fit_on_weights,
    posterior,
    scores_to_probabilities,
)

_SENSITIVITY = 2.0  # a changed label moves 1 from one indicator to another
Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@fill_docs(LABEL_DOCS)
class ALIBIClassifier(NoisyLabelClassifier):
    """ALIBI: any classifier, with label privacy by Laplace noise (Malek et al. 2021).

    Each label is released as a one-hot vector plus Laplace noise on each number. Bayes' rule infers
    the class of a vector, with a prior from a model of the features. Each round fits a better
    model, which gives a better prior.

    Parameters
    ----------
    %(label_model)s
    %(label_run)s

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples, n_classes)
        With ``store_labels``: the noisy one-hot vectors.
    %(label_attributes)s

    Notes
    -----
    **Guarantees.** Pure ``epsilon``-differential privacy of each label: the vector of a record is
    one release of L1 sensitivity 2.
    %(label_notes)s

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
        self, X: Any, codes: Codes, random: np.random.RandomState, noise: SecureRandom
    ) -> tuple[NDArray[Any], Floats, Floats]:
        k, scale = len(self.classes_), _SENSITIVITY / min(self.epsilon, LARGEST_EPSILON)
        mechanism = Laplace(scale / _SENSITIVITY, _SENSITIVITY)
        # Malek et al. 2021, ALIBI: Laplace noise of scale 2 / epsilon on the one-hot label
        noisy = mechanism.release(np.eye(k)[codes], noise)
        # Malek et al. 2021, ALIBI: the likelihood of each class, relative to a vector of zeros.
        # Only the number of the class itself changes its density.
        log_likelihood = (np.abs(noisy) - np.abs(noisy - 1.0)) / scale
        likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
        true = _truth_probability(k, scale)
        prior = estimate_first_prior(
            self._unfitted_model(X), X, noisy.argmax(axis=1), true, likelihood, self.n_folds, random
        )
        return noisy, likelihood, prior


@fill_docs(LABEL_DOCS)
class RandomizedResponseClassifier(NoisyLabelClassifier):
    """Any classifier, with label privacy by randomised response (Warner 1965).

    Each label is reported truthfully with probability e^epsilon / (e^epsilon + k - 1), otherwise as
    one of the other k - 1 labels. This law is known, so its bias can be removed. A first model
    predicts the reports. Its predictions are converted to probabilities of the true labels, from
    which the estimator learns.

    Parameters
    ----------
    %(label_model)s
    %(label_run)s

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        With ``store_labels``: the reported labels.
    %(label_attributes)s

    Notes
    -----
    **Guarantees.** Pure ``epsilon``-differential privacy of each label, even locally: it also holds
    against an observer of the reports.
    %(label_notes)s

    **Bias.** The rounds are steps of expectation maximisation on the likelihood of the reports,
    which is also behind the forward-corrected loss of Patrini et al. All weights are positive.

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
        self, X: Any, codes: Codes, random: np.random.RandomState, noise: SecureRandom
    ) -> tuple[NDArray[Any], Floats, Floats]:
        reports, likelihood, true = _respond(codes, len(self.classes_), self.epsilon, noise)
        prior = estimate_first_prior(
            self._unfitted_model(X), X, reports, true, likelihood, self.n_folds, random
        )
        return self.classes_[reports], likelihood, prior


@fill_docs(LABEL_DOCS)
class LP2STClassifier(NoisyLabelClassifier):
    """LP-2ST: any classifier, with label privacy by RRWithPrior (Ghazi et al. 2021).

    In the first stage, the labels of half of the records are released by randomised response, and
    a model of them predicts probable classes for each other record. In the second stage, the other
    records respond by randomised response among their most probable classes only. The number of
    these classes is chosen so that a true response is most probable. Fewer candidates mean less
    noise. Each label is released once.

    Parameters
    ----------
    %(label_model)s
    %(label_run)s

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        With ``store_labels``: the reported labels.
    %(label_attributes)s

    Notes
    -----
    **Guarantees.** Pure ``epsilon``-differential privacy of each label. The stages have disjoint
    records, so a label is released once. The candidates of the second stage depend on released
    labels and public features alone.
    %(label_notes)s

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
        (RandomizedResponse.arithmetic, RandomizedResponseWithPrior.arithmetic)
    )

    def _event(self, n_classes: int) -> Event:
        # The event of any pure mechanism, since the number of candidates differs between records.
        RandomizedResponse(min(self.epsilon, LARGEST_EPSILON), n_classes)  # checks the epsilon
        return ApproxDPEvent(float(self.epsilon))

    def _release_labels(
        self, X: Any, codes: Codes, random: np.random.RandomState, noise: SecureRandom
    ) -> tuple[NDArray[Any], Floats, Floats]:
        n, k = len(codes), len(self.classes_)
        order = random.permutation(n)
        n_first = min(max(round(n / 2), 2), n - 1)
        one, two = np.sort(order[:n_first]), np.sort(order[n_first:])
        reports = np.empty(n, np.int64)
        likelihood, prior = np.empty((n, k)), np.empty((n, k))
        # Ghazi et al. 2021, LP-2ST, first stage: randomised response
        reports[one], likelihood[one], true = _respond(codes[one], k, self.epsilon, noise)
        # Ghazi et al. 2021, LP-2ST, between the stages: a model of the reports gives the prior
        base, known = self._unfitted_model(X), safe_indexing(X, one)
        first = likelihood[one]
        prior_one = estimate_first_prior(
            base, known, reports[one], true, first, self.n_folds, random
        )
        weights = posterior(first, prior_one)
        scores = cross_fit_scores(base, known, weights, self.n_folds, random)
        factor = fit_inverse_temperature(base, scores, first)
        model = fit_on_weights(base, known, weights, random)
        prior[one] = scores_to_probabilities(scores, factor)
        others = class_scores(model, safe_indexing(X, two), k)
        prior[two] = scores_to_probabilities(others, factor)
        # Ghazi et al. 2021, LP-2ST, second stage: RRWithPrior
        reports[two], likelihood[two] = _respond_with_prior(
            codes[two], prior[two], self.epsilon, noise
        )
        return self.classes_[reports], likelihood, prior


def _truth_probability(n_classes: int, scale: float) -> float:
    """Return the probability that the true class has the largest noisy number."""
    law = stats.laplace(scale=scale)
    middles = law.ppf((np.arange(20_000) + 0.5) / 20_000)
    return float((law.cdf(1.0 + middles) ** (n_classes - 1)).mean())


def _respond(
    codes: Codes, n_classes: int, epsilon: float, noise: SecureRandom
) -> tuple[Codes, Floats, float]:
    """Return responses, the likelihood of each class, and the probability of a true response."""
    mechanism = RandomizedResponse(min(epsilon, LARGEST_EPSILON), n_classes)
    reports = mechanism.release(codes, noise)  # Warner 1965: randomised response
    true = mechanism.truth_probability
    named = np.eye(n_classes, dtype=bool)[reports]
    return reports, np.where(named, true, (1.0 - true) / (n_classes - 1)), true


def _respond_with_prior(
    codes: Codes, prior: Floats, epsilon: float, noise: SecureRandom
) -> tuple[Codes, Floats]:
    """Return reports by RRWithPrior, and their likelihoods; one candidate is always reported."""
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
        # Ghazi et al. 2021, RRTop-k: randomised response among the k candidates; a label outside
        # of them is reported as any of them, uniformly
        mechanism = RandomizedResponseWithPrior(min(epsilon, LARGEST_EPSILON), size)
        chosen = mechanism.release(positions, noise)
        reports[rows] = candidates[np.arange(len(rows)), chosen]
        true = mechanism.truth_probability
        likelihood[rows] = 1.0 / size
        likelihood[rows[:, None], candidates] = (1.0 - true) / (size - 1)
        likelihood[rows, reports[rows]] = true
    return reports, likelihood


def _best_candidate_counts(ranked: Floats, epsilon: float) -> Codes:
    """Return how many candidates, of a descending prior, maximise the chance of a true report."""
    # Ghazi et al. 2021, RRWithPrior: w_k = e^eps / (e^eps + k - 1) times the prior of the top k,
    # and the k of largest w_k
    sizes = np.arange(1, ranked.shape[1] + 1)
    with np.errstate(over="ignore"):
        truthful = 1.0 / (1.0 + (sizes - 1) * np.exp(-min(epsilon, LARGEST_EPSILON)))
    return (ranked.cumsum(axis=1) * truthful).argmax(axis=1) + 1
