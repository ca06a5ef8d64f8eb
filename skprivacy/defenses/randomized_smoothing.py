"""Randomised smoothing: predictions certified not to change under small changes of the input."""

from __future__ import annotations

import hashlib
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils.validation import check_is_fitted

from .._clones import name_failing_model
from .._docs import fill_docs
from .._groups import check_order
from .._input_data import ClassifierMixin, validate_data
from .._sklearn import HasMethods
from .._validation import Interval, check_random_state
from ..base import rolls_back_on_error
from ..metrics.rates import clopper_pearson

_ROWS = 1 << 16  # number of noisy rows to predict, or of numbers to draw, at a time
_KEY_BYTES = 32


@fill_docs
class SmoothedClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Predict the class that a classifier returns most often for a row with Gaussian noise.

    This protects the *input of a prediction*: no perturbation of a row within the certified radius
    can change its class. It adds no privacy for the training records. It keeps the guarantee of a
    private ``estimator``: see ``estimator_.privacy_``.

    Parameters
    ----------
    estimator : classifier
        The classifier to clone and fit.
    sigma : float, default=0.25
        Standard deviation of the noise, in the units of the features.
    n_samples : int, default=1000
        Number of noisy copies of a row that determine its certificate.
    n_selection : int, default=100
        Number of noisy copies that select the class beforehand.
    failure_probability : float, default=0.001
        Probability with which a certificate may be wrong.
    random_state : int, RandomState instance or None, default=None
        Seed of the noise.

    Attributes
    ----------
    estimator_ : classifier
        The fitted clone. Its ``privacy_``, if it has one, covers all predictions and certificates.
    %(classes_)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** For each row, with probability at least 1 - ``failure_probability``, the
    smoothed classifier has the certified class everywhere within the certified L2 radius. All rows
    of a call share their noise, so the result for one row does not depend on the other rows. Wrong
    certificates may therefore occur together.

    The training noise of a row is a function of that row, ``sigma`` and a key drawn from
    ``random_state`` (SHAKE-128 of key and row, as normal numbers). Adding, removing, blanking or
    replacing a record therefore changes only this row of the estimator's input, also for a known
    key. So a guarantee of the estimator holds unchanged, under any relation. (Noise drawn row after
    row would change all rows after a removed one.)

    **Edge cases.** If no class has a certain majority, the radius is 0. Equal rows get equal
    training noise. Training makes one noisy copy of all rows, in addition to the memory of the
    estimator. ``fit`` passes NaN and infinity to the estimator: a private estimator silently leaves
    such a record out, and other estimators refuse it. All other methods refuse NaN and infinity.

    References
    ----------
    J. Cohen, E. Rosenfeld and J. Z. Kolter, "Certified adversarial robustness via randomized
    smoothing", ICML 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skprivacy.defenses import SmoothedClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SmoothedClassifier(LogisticRegression(max_iter=500), sigma=0.5, random_state=0)
    >>> labels, radii = model.fit(X, y).certify(X[:3])
    >>> labels.tolist(), bool((radii > 0.5).all())
    ([0, 0, 0], True)
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict"])],
        "sigma": [Interval(Real, 0, None, closed="neither")],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "n_selection": [Interval(Integral, 1, None, closed="left")],
        "failure_probability": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any,
        *,
        sigma: float = 0.25,
        n_samples: int = 1000,
        n_selection: int = 100,
        failure_probability: float = 0.001,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.sigma = sigma
        self.n_samples = n_samples
        self.n_selection = n_selection
        self.failure_probability = failure_probability
        self.random_state = random_state

    @rolls_back_on_error
    def fit(
        self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None
    ) -> SmoothedClassifier:
        """Fit the classifier on rows with the noise of predictions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training records.
        y : array-like of shape (n_samples,)
            Their labels.
        groups : array-like of shape (n_samples,), default=None
            Whom each record belongs to, for a classifier that protects groups.

        Returns
        -------
        SmoothedClassifier
            Itself, fitted.
        """
        self._validate_params()
        check_order(groups, X)
        # An error about one record would reveal its presence, so the estimator handles it.
        rows, labels = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
        given = {} if groups is None else {"groups": groups}
        # Certificates need noise that training did not use; training uses a hash of the seed.
        key = check_random_state(self.random_state).bytes(_KEY_BYTES)
        rows = rows + self.sigma * _noise_by_row(rows, key)
        with name_failing_model(self.estimator, "trained on X and y"):
            self.estimator_ = clone(self.estimator).fit(rows, labels, **given)
        self.classes_ = self.estimator_.classes_
        return self

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the most frequent class of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Of ``classes_``.
        """
        rows = self._checked(X)
        random = check_random_state(self.random_state)
        counts = self._counts(rows, self.n_samples, random)
        return self.classes_[counts.argmax(axis=1)]

    def certify(self, X: ArrayLike) -> tuple[NDArray, NDArray[np.float64]]:
        """Return classes and the radii within which they are certified.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            The class that most of ``n_selection`` noisy copies got.
        radii : ndarray of shape (n_samples,)
            In the units of the features. 0 if nothing can be certified.
        """
        rows = self._checked(X)
        random = check_random_state(self.random_state)
        chosen = self._counts(rows, self.n_selection, random).argmax(axis=1)
        hits = self._counts(rows, self.n_samples, random)[np.arange(len(rows)), chosen]
        # The one-sided bound at alpha is the lower end of a two-sided interval at twice alpha.
        low, _ = clopper_pearson(hits, self.n_samples, min(2 * self.failure_probability, 0.999))
        radii = np.where(low > 0.5, self.sigma * ndtri(np.maximum(low, 0.5)), 0.0)
        return self.classes_[chosen], radii

    def _checked(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self, "estimator_")
        return validate_data(self, X, dtype=np.float64, reset=False)

    def _counts(self, rows: NDArray, copies: int, random: Any) -> NDArray[np.int64]:
        """Return how often each class was predicted, of shape (n_samples, n_classes).

        All rows get the same noise, so the result for one row does not depend on the others.
        """
        counts = np.zeros((len(rows), len(self.classes_)), np.int64)
        for first in range(0, copies, _ROWS):
            n = min(_ROWS, copies - first)
            noise = random.normal(0.0, self.sigma, (n, rows.shape[1]))
            block = _ROWS // n
            for start in range(0, len(rows), block):
                part = rows[start : start + block]
                noisy = (part[:, None] + noise).reshape(-1, rows.shape[1])
                codes = np.searchsorted(self.classes_, self.estimator_.predict(noisy))
                cells = np.repeat(np.arange(len(part)), n) * len(self.classes_) + codes
                counts[start : start + block] += np.bincount(
                    cells, minlength=part.shape[0] * len(self.classes_)
                ).reshape(len(part), -1)
        return counts


def _noise_by_row(rows: NDArray[np.float64], key: bytes) -> NDArray[np.float64]:
    """Return standard normal numbers of the shape of ``rows``, each row's a function of it."""
    width = rows.shape[1]
    noise = np.empty(rows.shape)
    block = max(1, _ROWS // width)
    for start in range(0, len(rows), block):
        part = rows[start : start + block].astype("<f8")
        bits = b"".join(hashlib.shake_128(key + row.tobytes()).digest(8 * width) for row in part)
        steps = np.frombuffer(bits, "<u8").reshape(part.shape) >> np.uint64(12)
        noise[start : start + block] = ndtri((steps + 0.5) * 2.0**-52)
    return noise
