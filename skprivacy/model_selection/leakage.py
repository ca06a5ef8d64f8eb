"""Scorer of membership leakage for scikit-learn's searches (Yeom et al. 2018)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._clones import call_model
from .._input_data import check_consistent_length, label_columns
from .._sklearn import safe_indexing
from .._validation import as_array
from ..attacks.model_answers import class_list, predict_aligned
from ..attacks.record_tables import as_records, fingerprints
from ..attacks.scores import loss
from ..metrics import auc
from .sweep_plan import validate_splits, validate_splitter

Measure = Callable[[Any, Any, Any, Any, Any], float]
_REMEDY = "Pass make_leakage_scorer the same X, y, groups and cv as the search"


def loss_auc(model: Any, X_train: Any, y_train: Any, X_test: Any, y_test: Any) -> float:
    """Return the AUC of a membership attack by the loss of the model (Yeom et al. 2018).

    The loss is the cross-entropy, the squared error of a regressor, or the error of a classifier
    without probabilities.
    """
    if not hasattr(model, "predict"):
        raise TypeError(f"model={model!r} must be a fitted classifier or regressor.")
    return auc(
        _negative_loss(
            model, _check_records("X_train", X_train), _check_labels("y_train", y_train, model)
        ),
        _negative_loss(
            model, _check_records("X_test", X_test), _check_labels("y_test", y_test, model)
        ),
    )


def _check_records(name: str, X: Any) -> Any:
    found = as_records(X, name)
    if found.ndim < 2:
        raise ValueError(f"{name} has shape {found.shape}; expected records by features.")
    return found


def _check_labels(name: str, y: Any, model: Any = None) -> NDArray[Any]:
    if not np.ndim(y):
        raise ValueError(f"{name} must have one label for each record; got {type(y).__name__}.")
    if hasattr(model, "classes_") and np.ndim(y) != 1:
        raise ValueError(f"{name} has shape {np.shape(y)}; expected one label for each record.")
    return as_array(name, y)


def _negative_loss(model: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
    check_consistent_length(X, y)
    if not hasattr(model, "classes_"):
        return -(
            (np.asarray(call_model(model, "predict", X), dtype=float).reshape(y.shape) - y) ** 2
        )
    if not hasattr(model, "predict_proba"):
        return (np.asarray(call_model(model, "predict", X)) == y).astype(float)
    classes = class_list(model.classes_, y)
    return loss(predict_aligned(model, X, classes), label_columns(y, classes))


def make_leakage_scorer(
    X: Any, y: Any, *, cv: Any = None, groups: Any = None, measure: Measure | None = None
) -> LeakageScorer:
    """Return a scorer of leakage, for functions such as ``GridSearchCV`` and ``cross_validate``.

    scikit-learn passes the fitted model and the test fold to a scorer. Leakage also needs the
    training fold. This scorer therefore holds all records and the splits. It recognises the split
    by its test fold, and compares the training records with the held-out records.

    Parameters
    ----------
    X, y : array-like of shape (n_samples, n_features) and (n_samples,)
        All records, as they are passed to the search's ``fit``.
    cv : int, cross-validation generator or iterable, default=None
        As in the search, with three folds or more. It must split alike each time: a splitter that
        shuffles needs a ``random_state``.
    groups : array-like of shape (n_samples,), default=None
        The groups that are passed to the search's ``fit``.
    measure : callable, default=None
        Measure of leakage: a function ``(model, X_train, y_train, X_test, y_test) -> float`` that
        is larger for models that leak more. ``None`` means the probability that a training record
        has a smaller loss than a new one (Yeom et al. 2018); 0.5 is chance.

    Returns
    -------
    callable
        A function of ``(model, X_fold, y_fold)`` that returns MINUS the measure, because larger
        scores are better in scikit-learn. Its usual name is ``neg_leakage``.

    Raises
    ------
    ValueError
        If the records differ in length, or ``cv`` makes fewer than three folds or different folds
        each time. The scorer raises it for a fold of another split.

    References
    ----------
    S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha. Privacy risk in machine learning: analyzing the
    connection to overfitting. CSF 2018.

    Notes
    -----
    The scores are computed from private data without noise. Choosing a model by them has no
    guarantee. A small score shows only that this measure found little.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skprivacy import make_leakage_scorer
    >>> X, y = make_classification(400, flip_y=0.3, random_state=0)
    >>> search = GridSearchCV(
    ...     DecisionTreeClassifier(random_state=0),
    ...     {"max_depth": [2, None]},
    ...     scoring={"accuracy": "accuracy", "neg_leakage": make_leakage_scorer(X, y, cv=3)},
    ...     cv=3,
    ...     refit="accuracy",
    ... ).fit(X, y)
    >>> search.cv_results_["mean_test_neg_leakage"].round(2)
    array([-0.53, -0.65])
    """
    return LeakageScorer(X, y, cv, groups, loss_auc if measure is None else measure)


class LeakageScorer:
    """Scorer that finds the training fold of a test fold; see :func:`make_leakage_scorer`."""

    def __init__(self, X: Any, y: Any, cv: Any, groups: Any, measure: Measure) -> None:
        check_consistent_length(as_records(X), _check_labels("y", y))
        if groups is not None:
            check_consistent_length(X, _check_labels("groups", groups))
        if not callable(measure):
            raise TypeError(
                f"measure={measure!r} must be a function (model, X_train, y_train, X_test, y_test) "
                "that returns a number, or None."
            )
        self.X, self.y, self.measure = X, y, measure
        records = _fingerprints(X, y)
        self._splits: dict[bytes, tuple[Any, Any]] = {}
        for classifier in (False, True):  # an integer cv is stratified for classifiers only
            splitter = validate_splitter(cv, y, classifier)
            splits, again = (validate_splits(splitter, cv, X, y, groups=groups) for _ in range(2))
            if not all(map(_same_split, splits, again)):
                raise ValueError(
                    f"cv={cv!r} splits differently each time, so the splits of the search are "
                    "unknown. Pass random_state=0 to it, and the same cv to the search."
                )
            shown = [[_digest(records[fold]) for fold in split] for split in splits]
            if {own for own, _ in shown} & {held_out for _, held_out in shown}:
                raise ValueError(
                    f"cv={cv!r} trains on a fold that it holds out elsewhere, so a fold "
                    "does not identify the model it is scored on. Pass at least three folds."
                )
            for digests, split in zip(shown, splits, strict=True):
                self._splits |= dict.fromkeys(digests, split)  # a search may score both folds

    def __call__(self, estimator: Any, X: Any, y: Any = None) -> float:
        """Return minus the leakage of a model that was trained without this fold."""
        if y is None:
            raise ValueError(f"y is None; leakage is measured from records and labels. {_REMEDY}.")
        found = self._splits.get(_digest(_fingerprints(X, y)))
        if found is None:
            raise ValueError(f"X is not a fold of the splits that this scorer knows. {_REMEDY}.")
        parts = list(self._iter_parts(*found))
        return -float(self.measure(estimator, *parts))

    def _iter_parts(self, own: Any, held_out: Any) -> Iterator[Any]:
        for fold in (own, held_out):
            yield safe_indexing(self.X, fold)
            yield safe_indexing(self.y, fold)

    def __repr__(self) -> str:
        return f"LeakageScorer({getattr(self.measure, '__name__', self.measure)})"


def _same_split(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _fingerprints(X: Any, y: Any) -> NDArray[np.uint64]:
    """Return a fingerprint of each record with its label."""
    labels = np.asarray(y).reshape(len(np.asarray(y)), -1)
    return fingerprints(as_records(X)) * np.uint64(0x9E3779B97F4A7C15) + fingerprints(labels)


def _digest(records: NDArray[np.uint64]) -> bytes:
    """Return a digest of a fold, whatever the order of its records."""
    return hashlib.blake2b(np.sort(records).tobytes(), digest_size=16).digest()
