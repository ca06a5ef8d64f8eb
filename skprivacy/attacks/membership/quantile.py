"""Membership inference by quantile regression, without shadow models (Bertran et al. 2023)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

from ..._docs import fill_docs
from ..._environment import one_thread
from ..._input_data import label_columns
from ..._sklearn import HasMethods, num_samples, safe_indexing
from .. import scores
from ..coordinates import as_texts
from ..record_tables import as_table, fingerprints
from .classifiers import score_folds
from .membership_attack import MEMBERSHIP_DOCS, MembershipAttack

__all__ = ["QuantileAttack"]

Float64Array = NDArray[np.float64]
N_FOLDS = 3
HIGH = 0.9


@fill_docs(MEMBERSHIP_DOCS)
class QuantileAttack(MembershipAttack):
    """Set a threshold for each record by quantile regression (Bertran et al. 2023).

    The attack learns the median and a high quantile of the target's log-odds as functions of the
    record, from records outside the target's training set. The log-odds of a member lie far above
    both. No shadow model is trained.

    Parameters
    ----------
    %(target_classifier)s
    regressor : regressor with a ``quantile`` parameter, default=None
        Cloned and fitted at two quantiles. None: gradient boosting on the class and the features,
        with text and categories encoded as numbers.
    %(attack_fpr)s

    Notes
    -----
    Known members among the records given to ``fit`` are left out. Every record is scored by
    regressors that were not fitted on it (3 folds, assigned by fingerprint). Otherwise their
    overfitting would look like the target's.

    References
    ----------
    M. Bertran, S. Tang, A. Roth, M. Kearns, J. Morgenstern, Z. S. Wu. Scalable membership
    inference attacks via quantile regression. NeurIPS 2023.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skprivacy.attacks import QuantileAttack
    >>> X, y = make_classification(600, flip_y=0.3, random_state=0)
    >>> target = RandomForestClassifier(10, random_state=0).fit(X[:200], y[:200])
    >>> attack = QuantileAttack(target).fit(X[400:], y[400:])
    >>> attack.evaluate(X[:200], y[:200], X[200:400], y[200:400]).auc > 0.7
    True
    """

    _parameter_constraints: dict[str, Any] = {
        **MembershipAttack._parameter_constraints,
        "regressor": [HasMethods(["fit", "predict", "set_params"]), None],
    }

    def __init__(self, target: Any = None, *, regressor: Any = None, fpr: float = 0.05) -> None:
        self.target = target
        self.regressor = regressor
        self.fpr = fpr

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        others = np.ones(len(y), bool) if member is None else ~member
        X, y = safe_indexing(X, np.flatnonzero(others)), y[others]
        fold = fingerprints(X) % N_FOLDS
        if len(np.unique(fold)) < N_FOLDS:
            raise ValueError(
                f"X holds {num_samples(X)} non-members; expected dozens. Pass more records to fit "
                "that were not in the target's training set."
            )
        self._values = _text_values(X)
        features = self._features(X, y)
        signal = scores.logit(*self._target_proba(X, y))
        base = self.regressor or HistGradientBoostingRegressor(
            loss="quantile", max_iter=60, max_leaf_nodes=15, random_state=0
        )
        with one_thread(features.size):
            # Bertran et al. 2023: quantile regression of the confidence score on non-members
            self._regressors = [
                [
                    clone(base).set_params(quantile=q).fit(features[fold != k], signal[fold != k])
                    for q in (0.5, HIGH)
                ]
                for k in range(N_FOLDS)
            ]

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        signal = scores.logit(*self._target_proba(X, y))
        features = self._features(X, y)

        def score(pair: list[Any], rows: NDArray[np.intp]) -> Float64Array:
            middle, high = (model.predict(features[rows]) for model in pair)
            # separately fitted quantiles may cross, and those of a constant model are equal
            return (signal[rows] - middle) / np.maximum(high - middle, 0.1)

        with one_thread(features.size):
            return score_folds(self._regressors, X, score)

    def _features(self, X: Any, y: NDArray[Any]) -> Float64Array:
        label = label_columns(y, self.classes_)
        if sparse.issparse(X):
            X = X.toarray()
        frame = as_table(X)
        columns = [
            _encode_column(frame.iloc[:, i], self._values.get(i)) for i in range(frame.shape[1])
        ]
        return np.column_stack([*columns, np.eye(len(self.classes_))[label]])


def _text_values(X: Any) -> dict[int, NDArray[Any]]:
    """Return the distinct texts of each non-numeric column, by column index."""
    if not isinstance(X, pd.DataFrame):
        X = as_table(X.toarray() if sparse.issparse(X) else X)
    columns = range(X.shape[1])
    text = [i for i in columns if not pd.api.types.is_numeric_dtype(X.iloc[:, i].dtype)]
    return {i: np.unique(as_texts(X.iloc[:, i].to_numpy(dtype=object))) for i in text}


def _encode_column(column: Any, values: NDArray[Any] | None) -> Float64Array:
    if values is None:
        return column.to_numpy(dtype=float, na_value=np.nan)
    return np.searchsorted(values, as_texts(column.to_numpy(dtype=object))).astype(float)
