"""Students: models that learn from few noisy labels, and from many public records without any."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import normalize
from sklearn.semi_supervised import LabelSpreading
from sklearn.utils.extmath import softmax
from sklearn.utils.validation import check_is_fitted, validate_data

from .._sklearn import Interval, safe_indexing
from .aggregators import UNANSWERED

__all__ = ["PropagationStudent"]

_STEPS = 100  # over the graph, at most


class PropagationStudent(ClassifierMixin, BaseEstimator):
    """Spread few labels over a graph of all records, then fit a ridge classifier to them.

    Neighbours in the graph tend to share a class, so that noisy labels are outvoted by their
    surroundings and records without a label get one. The ridge classifier then learns from all of
    them, on all features.

    Parameters
    ----------
    n_neighbors : int, default=10
        Neighbours of a record in the graph, by cosine distance.
    spread : float, default=0.99
        How much a record's label is taken from its neighbours rather than from itself, in (0, 1).
    alpha : float, default=1.0
        Strength of the ridge.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted, without the mark of records that have none.
    n_features_in_ : int
        Number of features seen during fit.

    Notes
    -----
    **Guarantees.** None: it is private only in what its labels are.

    **Edge cases.** A record that no label reaches through the graph is ignored by the ridge. One
    class alone is always predicted.

    References
    ----------
    D. Zhou et al., "Learning with local and global consistency", NIPS 2003.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from skprivacy.ensemble import PropagationStudent
    >>> X, y = load_digits(return_X_y=True)
    >>> known = np.where(np.arange(len(y)) % 20 == 0, y, -1)  # a label for one record in twenty
    >>> PropagationStudent().fit(X, known).score(X, y) > 0.85
    True
    """

    semi_supervised = True

    _parameter_constraints: dict = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "spread": [Interval(Real, 0, 1, closed="neither")],
        "alpha": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, *, n_neighbors: int = 10, spread: float = 0.99, alpha: float = 1.0) -> None:
        self.n_neighbors = n_neighbors
        self.spread = spread
        self.alpha = alpha

    def fit(self, X: ArrayLike, y: ArrayLike) -> PropagationStudent:
        """Fit to records of which some have a label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of int, shape (n_samples,)
            -1 marks records without a label.

        Returns
        -------
        self : PropagationStudent
        """
        self._validate_params()
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        graph = LabelSpreading(
            kernel="knn",
            n_neighbors=min(self.n_neighbors, len(rows) - 1) or 1,
            alpha=self.spread,
            max_iter=_STEPS,
        )
        with warnings.catch_warnings():
            # Where labels have gone after so many steps is what is meant, settled or not.
            warnings.simplefilter("ignore", ConvergenceWarning)
            graph.fit(normalize(rows), labels)
        self.classes_ = graph.classes_
        reached = graph.label_distributions_.sum(axis=1) > 0
        targets = (graph.transduction_[:, None] == self.classes_).astype(np.float64)
        self._ridge_ = Ridge(alpha=self.alpha).fit(rows[reached], targets[reached])
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the score of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self, "classes_")
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return self._ridge_.predict(rows).reshape(len(rows), len(self.classes_))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return probabilities that rank the classes as their scores do.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return np.asarray(softmax(4.0 * self.decision_function(X)))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of highest score for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self.classes_[self.decision_function(X).argmax(axis=1)]


def taught(student: Any, X: Any, labels: NDArray[np.int64]) -> Any:
    """Fit a student to the answered records, or to all of them if it can use those without.

    Parameters
    ----------
    student : classifier
        Unfitted; is fitted here.
    X : public records of shape (n_public, n_features)
    labels : ndarray of shape (n_public,)
        Indices of classes; -1 where there is no answer.

    Returns
    -------
    classifier
        The fitted student.
    """
    last = student.steps[-1][1] if isinstance(student, Pipeline) else student
    if getattr(last, "semi_supervised", False):
        return student.fit(X, labels)
    answered = np.flatnonzero(labels != UNANSWERED)
    return student.fit(safe_indexing(X, answered), labels[answered])
