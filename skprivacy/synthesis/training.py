"""Models that are trained on synthetic records."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier

from .._clones import named_failure
from .._data_validation import ClassifierMixin, RegressorMixin
from .._sklearn import num_samples, safe_indexing
from ..preprocessing import Bounded, Categories
from ..preprocessing._values import category_codes, plain
from ._training import SyntheticDataEstimator, can

__all__ = ["SyntheticDataClassifier", "SyntheticDataRegressor"]


class SyntheticDataClassifier(ClassifierMixin, SyntheticDataEstimator):
    """Train any classifier on private synthetic records.

    The synthesizer sees the private records, the classifier only what the synthesizer draws: any
    classifier may be trained, in any way, and the guarantee is the synthesizer's.

    Parameters
    ----------
    estimator : classifier
        Takes rows as ``fit`` gets them: for a DataFrame with text, a pipeline that encodes it.
        It is cloned.
    synthesizer : estimator
        A :class:`PrivateSynthesizer` or :class:`DPGANSynthesizer`; it is cloned. What privacy there
        is is set here: ``synthesizer__epsilon``, ``synthesizer__budget`` and so on.
    n_samples : int, default=None
        How many synthetic records are drawn. ``None``: as many as there are private ones, by the
        synthesizer's estimate.
    random_state : int, RandomState instance or None, default=None
        Of the draws of records; nothing private hangs on it.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The public classes, in order; those that were never drawn, too.
    synthesizer_ : estimator
        The fitted synthesizer, which draws further records at no further cost.
    estimator_ : classifier
        Fitted to synthetic records; it predicts indices of ``classes_``.
    privacy_ : PrivacyGuarantee
        The guarantee of the synthesizer, with its neighbouring relation and its assumptions.
    privacy_event_ : Event
        What was released, for composition with other releases.
    epsilon_, delta_ : float
        The guarantee in two numbers.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features, if all of them are strings.

    See Also
    --------
    SyntheticDataRegressor : The same for numbers.
    skprivacy.neural_network.DPSGDClassifier : Answers one question with all of the budget.

    Notes
    -----
    **Guarantees.** Those of the synthesizer: the model is computed from synthetic records and
    public facts. The estimator is first tried on made-up records that obey the schema, so that one
    that does not take such rows is refused before anything is charged. If it fails on the
    synthetic records all the same, for instance because a class was drawn too rarely, the error
    has the synthesizer that was paid for, and the model stays as it was.

    **Edge cases.** If a single class is drawn, it is always predicted. A missing label is refused,
    as by every classifier; what is no class of the schema is left out, as by the synthesizer. A
    seed of the synthesizer's noise is not pickled with a fitted model. An estimator that has seen
    private records before, such as one in a FrozenEstimator, is no longer computed from synthetic
    ones: the guarantee assumes that it has not.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skprivacy.preprocessing import Bounded, Schema
    >>> from skprivacy.synthesis import PrivateSynthesizer, SyntheticDataClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(5000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], "yes", "no")
    >>> schema = Schema({"a": Bounded(0, 1), "b": Bounded(0, 1)}, classes=["no", "yes"])
    >>> model = SyntheticDataClassifier(
    ...     LogisticRegression(), PrivateSynthesizer(1.0, 1e-6, schema=schema), random_state=0
    ... ).fit(X, y)
    >>> model.privacy_
    (1.00, 1e-06)-DP, add-remove, exact noise, proved
    >>> model.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        estimator: Any,
        synthesizer: Any,
        *,
        n_samples: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.synthesizer = synthesizer
        self.n_samples = n_samples
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Any:
        """Fit the synthesizer to private records, and the classifier to synthetic ones.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            Private records, as the synthesizer takes them.
        y : array-like of shape (n_samples,)
            Private labels.
        groups : array-like of shape (n_samples,), default=None
            Whom each record belongs to. The guarantee is then the group's.

        Returns
        -------
        SyntheticDataClassifier
            Itself, fitted.

        Raises
        ------
        ValueError
            If a parameter or a shape is not as described, or the estimator does not take records
            of this schema. Nothing has been released then.
        BudgetExceededError
            If the synthesizer's ``budget`` cannot afford the fit. Nothing has been released.
        SyntheticTrainingError
            If the estimator fails on the synthetic records, though it took made-up ones. These are
            paid for, and the error has their ``synthesizer``.
        """
        return self._fit(X, y, groups)

    def _check_target(self, fact: Bounded | Categories) -> None:
        if not isinstance(fact, Categories):
            raise ValueError(
                f"The schema says that the target is a number, {fact!r}. Name its classes, by "
                "Schema(..., classes=[...]), or use SyntheticDataRegressor."
            )
        self.classes_ = np.unique(np.array(fact.values))

    def _trained(self, rows: Any, y: pd.Series[Any]) -> Any:
        codes = category_codes(plain(y), self.classes_)
        known = np.flatnonzero(codes >= 0)  # others are missing
        rows, codes = safe_indexing(rows, known), codes[known]
        if len(np.unique(codes)) == 1:
            return DummyClassifier(strategy="constant", constant=codes[0]).fit(rows, codes)
        return clone(self.estimator).fit(rows, codes)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Of ``classes_``.
        """
        rows = self._rows(X)
        with named_failure(self.estimator_, "asked about X"):
            return self.classes_[self.estimator_.predict(rows)]

    @can("predict_proba")
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class; 0 for those that were never drawn.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        rows = self._rows(X)
        found = np.zeros((num_samples(rows), len(self.classes_)))
        with named_failure(self.estimator_, "asked about X"):
            found[:, self.estimator_.classes_] = self.estimator_.predict_proba(rows)
        return found


class SyntheticDataRegressor(RegressorMixin, SyntheticDataEstimator):
    """Train any regressor on private synthetic records.

    As :class:`SyntheticDataClassifier`, for numbers: the schema says ``target_bounds``.

    Parameters
    ----------
    estimator : regressor
        Takes rows as ``fit`` gets them: for a DataFrame with text, a pipeline that encodes it.
        It is cloned.
    synthesizer : estimator
        A :class:`PrivateSynthesizer` or :class:`DPGANSynthesizer`; it is cloned. What privacy there
        is is set here: ``synthesizer__epsilon``, ``synthesizer__budget`` and so on.
    n_samples : int, default=None
        How many synthetic records are drawn. ``None``: as many as there are private ones, by the
        synthesizer's estimate.
    random_state : int, RandomState instance or None, default=None
        Of the draws of records; nothing private hangs on it.

    Attributes
    ----------
    synthesizer_ : estimator
        The fitted synthesizer, which draws further records at no further cost.
    estimator_ : regressor
        Fitted to synthetic records.
    privacy_ : PrivacyGuarantee
        The guarantee of the synthesizer, with its neighbouring relation and its assumptions.
    privacy_event_ : Event
        What was released, for composition with other releases.
    epsilon_, delta_ : float
        The guarantee in two numbers.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features, if all of them are strings.

    See Also
    --------
    SyntheticDataClassifier : The same for classes.

    Notes
    -----
    **Guarantees.** As of :class:`SyntheticDataClassifier`.

    **Edge cases.** A seed of the synthesizer's noise is not pickled with a fitted model.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from skprivacy.preprocessing import Bounded, Schema
    >>> from skprivacy.synthesis import PrivateSynthesizer, SyntheticDataRegressor
    >>> X = np.random.default_rng(0).uniform(size=(5000, 2))
    >>> schema = Schema({"a": Bounded(0, 1), "b": Bounded(0, 1)}, target_bounds=(0, 2))
    >>> model = SyntheticDataRegressor(
    ...     LinearRegression(),
    ...     PrivateSynthesizer(1.0, 1e-6, schema=schema, method="adaptive"),
    ...     random_state=0,
    ... ).fit(X, X.sum(axis=1))
    >>> model.score(X, X.sum(axis=1)) > 0.8
    True
    """

    def __init__(
        self,
        estimator: Any,
        synthesizer: Any,
        *,
        n_samples: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.synthesizer = synthesizer
        self.n_samples = n_samples
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Any:
        """Fit the synthesizer to private records, and the regressor to synthetic ones.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            Private records, as the synthesizer takes them.
        y : array-like of shape (n_samples,)
            Private numbers.
        groups : array-like of shape (n_samples,), default=None
            Whom each record belongs to. The guarantee is then the group's.

        Returns
        -------
        SyntheticDataRegressor
            Itself, fitted.

        Raises
        ------
        ValueError
            If a parameter or a shape is not as described, or the estimator does not take records
            of this schema. Nothing has been released then.
        BudgetExceededError
            If the synthesizer's ``budget`` cannot afford the fit. Nothing has been released.
        SyntheticTrainingError
            If the estimator fails on the synthetic records, though it took made-up ones. These are
            paid for, and the error has their ``synthesizer``.
        """
        return self._fit(X, y, groups)

    def _check_target(self, fact: Bounded | Categories) -> None:
        if isinstance(fact, Categories) and not all(isinstance(v, Real) for v in fact.values):
            raise ValueError(
                f"The target has the classes {fact.values!r}, which are no numbers. Use "
                "SyntheticDataClassifier."
            )

    def _trained(self, rows: Any, y: pd.Series[Any]) -> Any:
        numbers = np.asarray(y, dtype=np.float64)
        known = np.flatnonzero(~np.isnan(numbers))
        return clone(self.estimator).fit(safe_indexing(rows, known), numbers[known])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the number of each row.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            As the regressor predicts them.
        """
        rows = self._rows(X)
        with named_failure(self.estimator_, "asked about X"):
            found: NDArray[Any] = self.estimator_.predict(rows)
        return found
