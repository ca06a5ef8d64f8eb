"""Membership inference by quantile regression, without shadow models (Bertran et al. 2023)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

from ..._docs import fill_docs
from ..._environment import one_thread
from ..._input_data import label_columns
from ..._sklearn import HasMethods, safe_indexing
from ..._validation import num_samples
from ..model_answers import logit
from ..record_tables import fingerprints, split_columns
from .classifiers import score_folds
from .membership_attack import MEMBERSHIP_DOCS, MembershipAttack

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
    %(forest_target)s
    >>> from skprivacy.attacks import QuantileAttack
    >>> attack = QuantileAttack(target).fit(records[300:])
    >>> attack.evaluate(records[:200], records[200:300]).auc > 0.7
    True
    """

    _parameter_constraints = MembershipAttack._parameter_constraints | {
        "regressor": [HasMethods(["fit", "predict", "set_params"]), None]
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
        self._values = [np.unique(column) for column in split_columns(X)[1].T]
        features = self._features(X, y)
        signal = logit(*self._target_proba(X, y))
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
        signal = logit(*self._target_proba(X, y))
        features = self._features(X, y)

        def score(pair: list[Any], rows: NDArray[np.intp]) -> Float64Array:
            middle, high = (model.predict(features[rows]) for model in pair)
            # separately fitted quantiles may cross, and a constant model has equal quantiles
            return (signal[rows] - middle) / np.maximum(high - middle, 0.1)

        with one_thread(features.size):
            return score_folds(self._regressors, X, score)

    def _features(self, X: Any, y: NDArray[Any]) -> Float64Array:
        numbers, texts = split_columns(X)
        codes = [np.searchsorted(v, text) for v, text in zip(self._values, texts.T, strict=True)]
        indicators = np.eye(len(self._label_classes))[label_columns(y, self._label_classes)]
        return np.column_stack([numbers, *codes, indicators]).astype(float)
