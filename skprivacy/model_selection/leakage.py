"""Scorer of membership leakage for scikit-learn's searches (Yeom et al. 2018)."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._input_data import check_consistent_length
from .._validation import as_array
from ..attacks import LabeledRecords, LossThreshold
from ..attacks.record_tables import as_records, fingerprints
from .sweep_plan import validate_splits, validate_splitter

_REMEDY = "Pass make_leakage_scorer the same X, y, groups and cv as the search"


def make_leakage_scorer(X: Any, y: Any, *, cv: Any = None, groups: Any = None) -> LeakageScorer:
    """Return a scorer of leakage, for functions such as ``GridSearchCV`` and ``cross_validate``.

    Leakage is the probability that a training record has a smaller loss than a new one (Yeom et al.
    2018; :class:`~skprivacy.attacks.LossThreshold`); 0.5 is chance.

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

    Returns
    -------
    callable
        A function of ``(model, X_fold, y_fold)`` that returns MINUS the leakage, because larger
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
    guarantee. A small score shows only that this attack found little.

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
    return LeakageScorer(X, y, cv, groups)


class LeakageScorer:
    """Scorer that finds the training fold of a test fold; see :func:`make_leakage_scorer`."""

    def __init__(self, X: Any, y: Any, cv: Any, groups: Any) -> None:
        self._records = LabeledRecords(X, y)
        if groups is not None:
            check_consistent_length(X, as_array("groups", groups))
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
        return -_measure_leakage(estimator, *(self._records[fold] for fold in found))


def _measure_leakage(model: Any, own: LabeledRecords, held_out: LabeledRecords) -> float:
    """Return the area under the ROC curve of the attack by the loss."""
    attack = LossThreshold(model, training_loss=0.0)  # no threshold is needed
    return attack.fit(held_out).evaluate(own, held_out).auc


def _same_split(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _fingerprints(X: Any, y: Any) -> NDArray[np.uint64]:
    """Return a fingerprint of each record with its label."""
    labels = np.asarray(y).reshape(len(np.asarray(y)), -1)
    return fingerprints(as_records(X)) * np.uint64(0x9E3779B97F4A7C15) + fingerprints(labels)


def _digest(records: NDArray[np.uint64]) -> bytes:
    """Return a digest of a fold, whatever the order of its records."""
    return hashlib.blake2b(np.sort(records).tobytes(), digest_size=16).digest()
