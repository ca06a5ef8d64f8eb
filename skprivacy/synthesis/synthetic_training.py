"""What models that are trained on synthetic records have in common, whatever they predict.

Models that are trained on synthetic records.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._clones import describe_error, name_failing_model
from .._input_data import (
    ClassifierMixin,
    RegressorMixin,
    as_frame,
    check_classification_targets,
    check_column_names,
    check_consistent_length,
    check_one_type,
    check_y,
    column_or_1d,
    validate_data,
)
from .._sklearn import HasMethods, num_samples, safe_indexing
from .._validation import Interval, check_random_state, raise_alone
from ..base import PrivateEstimatorMixin, list_frozen_assumptions
from ..exceptions import SyntheticTrainingError
from ..preprocessing import Bounded, Categories
from ..preprocessing.cell_values import category_codes, plain
from .base import Facts, Synthesizer
from .domain import Domain
from .gan import DPGANSynthesizer
from .marginal_synthesizer import PrivateSynthesizer

__all__ = [
    "SyntheticDataClassifier",
    "SyntheticDataEstimator",
    "SyntheticDataRegressor",
    "can",
]

_TRIED = 60  # made-up records on which the estimator is tried


class SyntheticDataEstimator(PrivateEstimatorMixin, MetaEstimatorMixin, BaseEstimator):
    """Fits a synthesizer to private records, and an estimator to what it draws."""

    estimator: Any
    synthesizer: Any
    n_samples: int | None
    random_state: Any
    synthesizer_: Synthesizer

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict"])],
        "synthesizer": [PrivateSynthesizer, DPGANSynthesizer],
        "n_samples": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "privacy_" in state:  # a seed of the noise is never pickled with a fitted model
            del state["noise_seed"]
            state["synthesizer"] = clone(self.synthesizer).set_params(noise_seed=None)
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.synthesizer).input_tags
        tags.input_tags.sparse = False
        return tags

    def _fit(self, X: Any, y: Any, groups: Any) -> Any:
        """Try the estimator on made-up records, pay for synthetic ones, and train it on these."""
        with self._private_fit():
            self._validate_params()
            X = as_frame(X)
            check_column_names(X)
            y = _target(self, X, y)
            synthesizer = clone(self.synthesizer)
            facts, domain = synthesizer._public(X, y)
            self._check_target(facts.columns[facts.target])
            self._try(*self._as_given(X, *_made_up(facts, domain)))
            validate_data(self, X, skip_check_array=True)
            random = check_random_state(self.random_state)
            self.synthesizer_ = synthesizer.fit(X, y, **_named(groups))
            with self._kept_on_error(synthesizer):
                records = synthesizer.sample(self.n_samples, return_X_y=True, random_state=random)
                self.estimator_ = self._trained(*self._as_given(X, *records))
            self._state_guarantee()
        return self

    def _state_guarantee(self) -> None:
        """State the synthesizer's guarantee, and what it assumes of the estimator."""
        of_records = self.synthesizer_.privacy_
        beside = list_frozen_assumptions({"estimator": self.estimator}, of_records.relation)
        assumed = tuple(dict.fromkeys((*of_records.assumptions, *beside)))
        self.privacy_ = replace(of_records, assumptions=assumed)
        for name in ("privacy_event_", "epsilon_", "delta_"):
            setattr(self, name, getattr(self.synthesizer_, name))

    @abstractmethod
    def _check_target(self, fact: Bounded | Categories) -> None:
        """Refuse a target that there is no learning of, by what is public of it."""

    @abstractmethod
    def _trained(self, rows: Any, y: pd.Series[Any]) -> Any:
        """Return a clone of the estimator, fitted to synthetic records."""

    @staticmethod
    def _as_given(X: Any, rows: pd.DataFrame, y: pd.Series[Any]) -> tuple[Any, pd.Series[Any]]:
        """Return rows in the form in which ``fit`` got its own."""
        return rows.set_axis(X.columns, axis=1) if isinstance(
            X, pd.DataFrame
        ) else rows.to_numpy(), y

    def _try(self, rows: Any, y: pd.Series[Any]) -> None:
        """Train on made-up records: what breaks the estimator must show before any noise."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._trained(rows, y)
        except Exception as error:
            raise_alone(
                ValueError(
                    f"estimator={self.estimator!r} cannot be fitted to records of this schema "
                    f"({describe_error(error)}). Nothing was charged. Pass one that takes these "
                    "columns, for instance a pipeline with a SchemaTransformer."
                )
            )

    @contextmanager
    def _kept_on_error(self, synthesizer: Synthesizer) -> Iterator[None]:
        """Hand the synthesizer, which is paid for, to whoever catches what is raised.

        Of an interruption it is an attribute as well.
        """
        try:
            yield
        except Exception as error:
            failed = SyntheticTrainingError(
                f"estimator={self.estimator!r} failed on the synthetic records ({error}), which "
                "are paid for. Their synthesizer is the attribute `synthesizer` of this error: "
                "train another estimator on what its sample() draws, at no further cost."
            )
            failed.synthesizer = synthesizer
            raise failed from error
        except BaseException as interruption:
            interruption.synthesizer = synthesizer  # type: ignore[attr-defined]
            raise

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self, "estimator_")
        X = as_frame(X)
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, skip_check_array=True, reset=False)
            return X
        tags = get_tags(self).input_tags
        return validate_data(self, X, reset=False, dtype=None, ensure_all_finite=not tags.allow_nan)


def _target(model: Any, X: Any, y: Any) -> Any:
    """Return a target with a known value for each record; a Series keeps its name and type."""
    if y is None:
        raise ValueError(
            f"This {type(model).__name__} estimator requires y to be passed, but the target y is "
            "None."
        )
    check_y(y)
    values = column_or_1d(y, warn=True)
    check_consistent_length(X, values)
    if pd.isna(values).any() or (values.dtype.kind == "f" and not np.isfinite(values).all()):
        raise ValueError(
            "Input y contains NaN or infinity. Drop records without a target before the fit."
        )
    if is_classifier(model):
        check_one_type("y", values)
        check_classification_targets(values)
    return y if isinstance(y, pd.Series) else values


def _made_up(facts: Facts, domain: Domain) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Return records of values that are possible, each class among them, by public facts alone."""
    random = np.random.RandomState(0)
    target = facts.target
    n = max(_TRIED, *(c.cells.size for c in domain.columns if c.name == target))
    codes = [random.permutation(np.arange(n) % size) for size in domain.sizes]
    frame = domain.decoded(np.column_stack(codes), random)[facts.order]
    return frame.drop(columns=target), frame[target]


def _named(groups: Any) -> dict[str, Any]:
    return {} if groups is None else {"groups": groups}


def can(method: str) -> Any:
    def has(self: Any) -> bool:
        return hasattr(getattr(self, "estimator_", self.estimator), method)

    return available_if(has)


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
        with name_failing_model(self.estimator_, "asked about X"):
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
        with name_failing_model(self.estimator_, "asked about X"):
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
        with name_failing_model(self.estimator_, "asked about X"):
            found: NDArray[Any] = self.estimator_.predict(rows)
        return found
