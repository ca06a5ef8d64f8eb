"""Semi-supervised student of PATE: label propagation (Zhou et al. 2003) and a ridge classifier.

The default student is the better of two by cross-validation on released labels. Start reading at
:class:`PropagationStudent`.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import rankdata
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, normalize
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier
from sklearn.utils.extmath import softmax
from sklearn.utils.validation import check_is_fitted

from .._docs import fill_docs
from .._environment import one_thread
from .._input_data import ClassifierMixin, all_numbers, check_one_type, validate_data
from .._sklearn import safe_indexing
from .._validation import Interval, num_samples
from ..base import rolls_back_on_error
from .aggregators import UNANSWERED

_FOLDS = 5
# Records on which students are compared: the graph grows with the square of their number.
_MAX_COMPARED_RECORDS = 2000
_STEPS = 60  # of propagation
_SPREAD = 0.9  # weight of the neighbours' labels against the record's own
_N_COMPONENTS = 200  # principal components by which records are compared
_MAX_FITS = 10  # of the ridge classifier
_DECAY = 4.0

# scikit-learn's classifiers that take -1 for records without a label.
_SEMI_SUPERVISED = (LabelPropagation, LabelSpreading, SelfTrainingClassifier)


@fill_docs
class PropagationStudent(ClassifierMixin, BaseEstimator):
    """Co-training of label propagation and a ridge classifier, for few noisy labels.

    Neighbours in a graph of all records tend to share a class. Propagation (Zhou et al. 2003)
    therefore outvotes noisy labels and labels the other records. The ridge classifier learns from
    all these labels, on all features. Its predictions are propagated in turn, and it is fitted
    again, until they no longer change.

    Parameters
    ----------
    n_neighbors : int, default=10
        Number of neighbours of a record in the graph.
    alpha : float, default=1.0
        Strength of the ridge.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted, without -1.
    n_features_in_ : int
        Number of features seen during fit.

    Notes
    -----
    **Guarantees.** None: the student is as private as its labels and records.

    **Edge cases.** A record that no label reaches through the graph is ignored until the ridge
    classifier labels it. A single class is always predicted.

    References
    ----------
    D. Zhou et al., "Learning with local and global consistency", NIPS 2003.
    A. Blum and T. Mitchell, "Combining labeled and unlabeled data with co-training", COLT 1998.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from skprivacy.ensemble import PropagationStudent
    >>> X, y = load_digits(return_X_y=True)
    >>> known = np.where(np.arange(len(y)) % 20 == 0, y, -1)  # a label for one record in twenty
    >>> PropagationStudent().fit(X, known).score(X, y) > 0.9
    True
    """

    semi_supervised = True

    _parameter_constraints: dict = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, *, n_neighbors: int = 10, alpha: float = 1.0) -> None:
        self.n_neighbors = n_neighbors
        self.alpha = alpha

    @rolls_back_on_error
    def fit(self, X: ArrayLike, y: ArrayLike) -> PropagationStudent:
        """Fit to partly labelled records.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public records.
        y : array-like of int, shape (n_samples,)
            -1 marks records without a label.

        Returns
        -------
        %(fit_returns)s

        Raises
        ------
        ValueError
            If a parameter or a shape is not as described, or no record has a label.
        """
        self._validate_params()
        rows, labels = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_one_type("y", labels)
        self.classes_ = np.setdiff1d(labels, [UNANSWERED])
        if not len(self.classes_):
            raise ValueError(f"y marks all {len(rows)} records as without a label (-1).")
        graph = build_neighbor_graph(rows, self.n_neighbors)
        ridge = _Ridge(rows, float(self.alpha))
        known = (np.asarray(labels)[:, None] == self.classes_).astype(np.float64)
        decided = _one_hot_winners(propagate_labels(graph, known))
        for _ in range(_MAX_FITS):
            self._coef_, self._intercept_ = ridge.solve(decided)
            scores = rows @ self._coef_ + self._intercept_
            before, decided = (
                decided,
                _one_hot_winners(propagate_labels(graph, _one_hot_winners(scores))),
            )
            died_out = ~decided.any(axis=0)
            if np.array_equal(before, decided) or died_out.any():
                break  # no change; or a class died out, which the next fit would not know
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the score of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Scores; higher is more likely.
        """
        check_is_fitted(self, "classes_")
        rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(rows @ self._coef_ + self._intercept_, np.float64)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return probabilities that rank the classes in the order of their scores.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities; each row adds up to 1.
        """
        return np.asarray(softmax(4.0 * self.decision_function(X)))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class with the highest score for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Elements of ``classes_``.
        """
        return self.classes_[self.decision_function(X).argmax(axis=1)]


def default_students(public: Any) -> list[Any]:
    """Return two unfitted students, scaled by public records alone, the preferred one first."""
    # The graph is the most accurate where neighbours share a class, but elsewhere it may predict a
    # single class. No public figure, such as the number of columns, separates the two cases.
    scale = MinMaxScaler()
    tabular = isinstance(public, pd.DataFrame) and not all_numbers(public)
    if tabular:
        numbers = [pd.api.types.is_numeric_dtype(dtype) for dtype in public.dtypes]
        codes = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        scale = make_column_transformer((scale, np.array(numbers)), (codes, ~np.array(numbers)))
    scaled = FrozenEstimator(scale.fit(public))
    graph = PropagationStudent()
    return [
        make_pipeline(scaled, graph) if tabular else graph,
        make_pipeline(scaled, LogisticRegression(max_iter=1000)),
    ]


def select_student(public: Any, labels: NDArray[np.int64]) -> Any:
    """Return the unfitted default student of the better accuracy; None if neither ranks a class."""
    # Only public records and released labels are seen, and no random numbers are drawn.
    answered = np.flatnonzero(labels != UNANSWERED)
    n = num_samples(public)
    spread = np.linspace(0, n - 1, min(n, _MAX_COMPARED_RECORDS)).astype(np.intp)
    some = np.union1d(answered, spread)
    records, known = safe_indexing(public, some), labels[some]
    answered = np.flatnonzero(known != UNANSWERED)
    shares = np.zeros((2, len(known), known.max() + 1))
    for fold in range(_FOLDS):
        held = answered[fold::_FOLDS]
        rest = known.copy()
        rest[held] = UNANSWERED
        if len(held) and len(np.unique(rest[rest != UNANSWERED])) > 1:
            asked = safe_indexing(records, held)
            for i, student in enumerate(default_students(records)):
                fitted = fit_student(student, records, rest)
                shares[i, held[:, None], fitted.classes_] = fitted.predict_proba(asked)
    shares, known = shares[:, answered], known[answered]
    right = (shares.argmax(axis=2) == known).sum(axis=1)
    able = [_ranks_classes(each, known) for each in shares]
    best = max(range(2), key=lambda i: (right[i], able[i]))
    return default_students(public)[best] if any(able) else None


def _ranks_classes(shares: NDArray[np.float64], labels: NDArray[np.int64]) -> bool:
    """Return whether the mean AUC of the labels' classes is a standard error above 1/2.

    Neither accuracy nor recall would do: a student of a rare class ranks records, but may never
    predict this class. The mean is over labels, because a class of one label has an AUC of 0.
    """
    excess = 0.0
    for label in np.unique(labels):
        own = labels == label
        n, others = int(own.sum()), int((~own).sum())
        wins = rankdata(shares[:, label])[own].sum() - n * (n + 1) / 2
        # Mann and Whitney 1947: variance of the statistic of two equal distributions
        spread = math.sqrt((n + others + 1) / (12 * n * others))
        excess += n * (wins / (n * others) - 0.5 - spread)
    return bool(excess > 0)


def build_neighbor_graph(rows: NDArray, n_neighbors: int) -> sparse.csr_array:
    """Return the symmetric graph of neighbours by angle, normalised by the degrees of both ends."""
    # No weight is above 1, so propagated labels never grow. Records are compared by half-whitened
    # principal components: in raw features a few directions unrelated to the classes would
    # dominate, in fully whitened features noise would.
    n = len(rows)
    k = min(n_neighbors, n - 1)
    if k < 1:
        return sparse.csr_array((n, n))
    directions = _half_whiten(rows)
    near = NearestNeighbors(n_neighbors=k, metric="cosine", algorithm="brute").fit(directions)
    distance, neighbor = near.kneighbors()  # excludes the record itself
    # J. Calder et al., "Poisson learning", ICML 2020: weights fall with the distance, relative to
    # the last neighbour's
    furthest = np.maximum(distance[:, -1:], np.finfo(distance.dtype).tiny)
    weight = np.exp(-_DECAY * distance / furthest).ravel().astype(np.float64)
    of = np.repeat(np.arange(n), k)
    graph = sparse.csr_array((weight, (of, neighbor.ravel())), shape=(n, n))
    graph = graph.maximum(graph.T)
    # Zhou et al. 2003: S = D^(-1/2) W D^(-1/2)
    scale = sparse.diags_array(1 / np.sqrt(graph.sum(axis=1)))
    return sparse.csr_array(scale @ graph @ scale)


def propagate_labels(graph: sparse.csr_array, targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return class scores: nine tenths of the neighbours' scores, the rest from the own label."""
    found = targets
    for _ in range(_STEPS):  # Zhou et al. 2003: F <- alpha S F + (1 - alpha) Y
        found = _SPREAD * (graph @ found) + (1 - _SPREAD) * targets
    return found


def fit_student(student: Any, X: Any, labels: NDArray[np.int64]) -> Any:
    """Fit a student to the answered records, or to all if it is semi-supervised (label -1)."""
    last = student.steps[-1][1] if isinstance(student, Pipeline) else student
    if not (isinstance(last, _SEMI_SUPERVISED) or getattr(last, "semi_supervised", False)):
        answered = np.flatnonzero(labels != UNANSWERED)
        X, labels = safe_indexing(X, answered), labels[answered]
    with one_thread(math.prod(np.shape(X))):
        return student.fit(X, labels)


def _half_whiten(rows: NDArray) -> NDArray:
    # The seed only sets the start of an iteration that converges to the same directions.
    pca = PCA(min(_N_COMPONENTS, *rows.shape), random_state=0)
    components = pca.fit_transform(rows)
    size = np.sqrt(pca.explained_variance_)
    used = size > 1e-6 * size[0]  # smaller components are rounding errors
    return normalize(components[:, used] / np.sqrt(size[used]))


class _Ridge:
    """Ridge regression of several targets in turn, with one factorised Gram matrix."""

    def __init__(self, rows: NDArray, alpha: float) -> None:
        self._mean = rows.mean(axis=0)
        self._rows = rows - self._mean
        self._wide = rows.shape[1] > len(rows)
        gram = self._rows @ self._rows.T if self._wide else self._rows.T @ self._rows
        # The second term outweighs rounding, which could make the matrix indefinite.
        gram[np.diag_indices_from(gram)] += alpha + np.finfo(gram.dtype).eps * np.trace(gram)
        self._root = cho_factor(gram, overwrite_a=True)

    def solve(self, targets: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
        """Return coefficients of shape (n_features, n_classes), and intercepts."""
        known = targets.sum(axis=1) > 0  # a record without a label is set to the mean of the others
        mean = targets[known].mean(axis=0)
        centred = np.where(known[:, None], targets - mean, 0.0).astype(self._rows.dtype)
        if self._wide:
            coefficients = self._rows.T @ cho_solve(self._root, centred)
        else:
            coefficients = cho_solve(self._root, self._rows.T @ centred)
        return coefficients, mean - self._mean @ coefficients


def _one_hot_winners(scores: NDArray) -> NDArray[np.float64]:
    """Return 1 for each record's class of highest score, 0 elsewhere and where all scores are 0."""
    won = np.arange(scores.shape[1]) == scores.argmax(axis=1)[:, None]
    return (won & (scores != 0).any(axis=1, keepdims=True)).astype(np.float64)
