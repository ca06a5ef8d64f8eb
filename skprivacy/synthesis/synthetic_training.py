"""Classifiers and regressors trained on synthetic records of a private synthesizer.

The estimator sees synthetic records only, so the synthesizer's guarantee holds.
:meth:`SyntheticDataEstimator.fit` holds the steps common to both.
"""

from __future__ import annotations

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
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from .._clones import WrappedClassifier, call_model, constant_model, trial_fit
from .._docs import fill_docs
from .._input_data import (
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
from .._sklearn import HasMethods, safe_indexing
from .._validation import Interval, check_random_state
from ..base import PrivateEstimatorMixin, list_frozen_assumptions
from ..exceptions import SyntheticTrainingError
from ..preprocessing import BoundedColumn, CategoricalColumn
from ..preprocessing.cell_values import category_codes, mask_unreadable
from .base import SYNTHESIS_DOCS, Synthesizer, TableFacts
from .domain import Domain
from .gan import DPGANSynthesizer
from .marginal_synthesizer import MarginalSynthesizer

_N_TRIAL_RECORDS = 60


@fill_docs(SYNTHESIS_DOCS)
class SyntheticDataEstimator(PrivateEstimatorMixin, MetaEstimatorMixin, BaseEstimator):
    """Base class: fits a synthesizer to private records, and an estimator to synthetic ones."""

    synthesizer_: Synthesizer

    # attributes that save_model writes; persistence.attribute_states explains the words
    _saved_state = {
        "estimator_": "learner estimator",
        "synthesizer_": "model synthesizer",
    }

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict"])],
        "synthesizer": [MarginalSynthesizer, DPGANSynthesizer],
        "n_samples": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }

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

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "privacy_" in state:  # never pickle a seed of the noise with a fitted model
            del state["noise_seed"]
            state["synthesizer"] = clone(self.synthesizer).set_params(noise_seed=None)
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.synthesizer).input_tags
        tags.input_tags.sparse = False
        return tags

    def fit(self, X: Any, y: ArrayLike, *, groups: ArrayLike | None = None) -> Any:
        """Fit the synthesizer to private records, and the estimator to synthetic ones.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            Private records, in a form that the synthesizer takes.
        y : array-like of shape (n_samples,)
            Their private labels, or numbers.
        groups : array-like of shape (n_samples,), default=None
            Group of each record. The guarantee then protects groups.

        Returns
        -------
        %(fit_returns)s

        Raises
        ------
        %(synthetic_training_raises)s
        """
        with self._private_fit():
            self._validate_params()
            X = as_frame(X)
            check_column_names(X)
            y = check_target_values(self, X, y)
            synthesizer = clone(self.synthesizer)
            facts, domain = synthesizer._read_public_facts(X, y)
            self._check_target(facts.columns[facts.target])
            remedy = (
                "Pass one that takes these columns, such as a pipeline with a SchemaTransformer."
            )
            with trial_fit(f"estimator={self.estimator!r}", "records of this schema", remedy):
                trial = _make_trial_records(facts, domain)
                self._train_estimator(*self._match_container(X, *trial))
            validate_data(self, X, skip_check_array=True)
            random = check_random_state(self.random_state)
            given = {} if groups is None else {"groups": groups}
            self.synthesizer_ = synthesizer.fit(X, y, **given)
            with self._attach_synthesizer(synthesizer):
                records = synthesizer.sample(self.n_samples, return_X_y=True, random_state=random)
                self.estimator_ = self._train_estimator(*self._match_container(X, *records))
            self._state_guarantee()
        return self

    def _finish_loading(self) -> None:
        """State the guarantee of a model from a file, and keep its parts for a new fit."""
        d = self.n_features_in_
        if not hasattr(self.synthesizer_, "sample") or self.synthesizer_.n_features_in_ != d:
            raise ValueError(f"it has no synthesizer of {d} features")
        self.estimator, self.synthesizer = clone(self.estimator_), clone(self.synthesizer_)
        self._state_guarantee()

    def _state_guarantee(self) -> None:
        """State the synthesizer's guarantee, with the assumptions of frozen parts."""
        of_records = self.synthesizer_.privacy_
        beside = list_frozen_assumptions({"estimator": self.estimator}, of_records.relation)
        assumed = tuple(dict.fromkeys((*of_records.assumptions, *beside)))
        self.privacy_ = replace(of_records, assumptions=assumed)
        for name in ("privacy_event_", "epsilon_", "delta_"):
            setattr(self, name, getattr(self.synthesizer_, name))

    @abstractmethod
    def _check_target(self, fact: BoundedColumn | CategoricalColumn) -> None:
        """Refuse a target of the wrong kind, from its public facts."""

    @abstractmethod
    def _train_estimator(self, rows: Any, y: pd.Series[Any]) -> Any:
        """Return a clone of the estimator fitted to synthetic records."""

    @staticmethod
    def _match_container(
        X: Any, rows: pd.DataFrame, y: pd.Series[Any]
    ) -> tuple[Any, pd.Series[Any]]:
        """Return rows in the container type that ``fit`` got."""
        is_frame = isinstance(X, pd.DataFrame)
        return (rows.set_axis(X.columns, axis=1) if is_frame else rows.to_numpy()), y

    @contextmanager
    def _attach_synthesizer(self, synthesizer: Synthesizer) -> Iterator[None]:
        """Attach the fitted synthesizer to any error or interruption: it has been charged."""
        try:
            yield
        except Exception as error:
            failed = SyntheticTrainingError(
                f"estimator={self.estimator!r} failed on the synthetic records ({error}), which "
                "have been charged. This error's attribute `synthesizer` draws further records by "
                "sample(), at no cost, to train another estimator."
            )
            failed.synthesizer = synthesizer
            raise failed from error
        except BaseException as interruption:
            interruption.synthesizer = synthesizer  # type: ignore[attr-defined]
            raise

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self, "estimator_")
        finite = not get_tags(self).input_tags.allow_nan
        return validate_data(
            self, X, tables="keep", reset=False, dtype=None, ensure_all_finite=finite
        )


def check_target_values(model: Any, X: Any, y: Any) -> Any:
    """Return a target without missing values; a Series keeps its name and type."""
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


def _make_trial_records(facts: TableFacts, domain: Domain) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Return possible records that contain every class, from public facts only."""
    random = np.random.RandomState(0)
    target = facts.target
    n = max(_N_TRIAL_RECORDS, *(c.cells.size for c in domain.columns if c.name == target))
    codes = [random.permutation(np.arange(n) % size) for size in domain.sizes]
    frame = domain.decode(np.column_stack(codes), random)[facts.order]
    return frame.drop(columns=target), frame[target]


@fill_docs(SYNTHESIS_DOCS)
class SyntheticDataClassifier(WrappedClassifier, SyntheticDataEstimator):
    """Train any classifier on private synthetic records.

    The synthesizer sees the private records, and the classifier sees synthetic records only. Any
    classifier may be used, and the guarantee is the synthesizer's.

    Parameters
    ----------
    estimator : classifier
        Model of rows as ``fit`` gets them: for a DataFrame with text, a pipeline that encodes it.
        It is cloned.
    %(synthetic_training)s

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The public classes, sorted, including classes that were never drawn.
    %(synthetic_training_attributes)s
    estimator_ : classifier
        Classifier fitted to synthetic records; it predicts indices of ``classes_``.
    %(guarantee_attributes)s
    %(feature_attributes)s

    See Also
    --------
    SyntheticDataRegressor : The same for numeric targets.
    skprivacy.neural_network.DPSGDClassifier : Spends the whole budget on one classifier.

    Notes
    -----
    **Guarantees.** The model has the guarantee of the synthesizer, because it is computed from
    synthetic records and public facts. The guarantee assumes that no part of the estimator, such as
    a FrozenEstimator, has seen private records before.

    The estimator is first fitted to trial records that obey the schema, so an unsuitable estimator
    is refused before anything is charged. It may still fail on the synthetic records, for instance
    because a class was drawn too rarely. The error then carries the fitted synthesizer, and the
    model keeps its previous state.

    **Edge cases.** If a single class is drawn, it is always predicted. A missing label is refused.
    Records with a label outside the schema's classes are left out. A seed of the synthesizer's
    noise is not pickled with a fitted model.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skprivacy.preprocessing import BoundedColumn, Schema
    >>> from skprivacy.synthesis import MarginalSynthesizer, SyntheticDataClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(5000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], "yes", "no")
    >>> schema = Schema({"a": BoundedColumn(0, 1), "b": BoundedColumn(0, 1)}, classes=["no", "yes"])
    >>> model = SyntheticDataClassifier(
    ...     LogisticRegression(), MarginalSynthesizer(1.0, 1e-6, schema=schema), random_state=0
    ... ).fit(X, y)
    >>> model.privacy_
    (1.00, 1e-06)-DP, add-remove, exact noise, proved
    >>> model.score(X, y) > 0.9
    True
    """

    _saved_state = {"classes_": "labels", **SyntheticDataEstimator._saved_state}

    def _check_target(self, fact: BoundedColumn | CategoricalColumn) -> None:
        if not isinstance(fact, CategoricalColumn):
            raise ValueError(
                f"The schema describes a numeric target, {fact!r}. Pass "
                "Schema(..., classes=[...]), or use SyntheticDataRegressor."
            )
        self.classes_ = np.unique(np.array(fact.values))

    def _unfitted_model(self) -> Any:
        return self.estimator

    def _train_estimator(self, rows: Any, y: pd.Series[Any]) -> Any:
        codes = category_codes(mask_unreadable(y), self.classes_)
        known = np.flatnonzero(codes >= 0)  # drop missing labels
        rows, codes = safe_indexing(rows, known), codes[known]
        if len(np.unique(codes)) == 1:
            return constant_model(codes[0])
        return clone(self.estimator).fit(rows, codes)


@fill_docs(SYNTHESIS_DOCS)
class SyntheticDataRegressor(RegressorMixin, SyntheticDataEstimator):
    """Train any regressor on private synthetic records.

    Like :class:`SyntheticDataClassifier`, for numeric targets with ``target_bounds`` in the schema.

    Parameters
    ----------
    estimator : regressor
        Model of rows as ``fit`` gets them: for a DataFrame with text, a pipeline that encodes it.
        It is cloned.
    %(synthetic_training)s

    Attributes
    ----------
    %(synthetic_training_attributes)s
    estimator_ : regressor
        Regressor fitted to synthetic records.
    %(guarantee_attributes)s
    %(feature_attributes)s

    See Also
    --------
    SyntheticDataClassifier : The same for classes.

    Notes
    -----
    **Guarantees.** As for :class:`SyntheticDataClassifier`.

    **Edge cases.** A seed of the synthesizer's noise is not pickled with a fitted model.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from skprivacy.preprocessing import BoundedColumn, Schema
    >>> from skprivacy.synthesis import MarginalSynthesizer, SyntheticDataRegressor
    >>> X = np.random.default_rng(0).uniform(size=(5000, 2))
    >>> schema = Schema({"a": BoundedColumn(0, 1), "b": BoundedColumn(0, 1)}, target_bounds=(0, 2))
    >>> model = SyntheticDataRegressor(
    ...     LinearRegression(),
    ...     MarginalSynthesizer(1.0, 1e-6, schema=schema, method="adaptive"),
    ...     random_state=0,
    ... ).fit(X, X.sum(axis=1))
    >>> model.score(X, X.sum(axis=1)) > 0.8
    True
    """

    def _check_target(self, fact: BoundedColumn | CategoricalColumn) -> None:
        if isinstance(fact, CategoricalColumn) and not all(
            isinstance(v, Real) for v in fact.values
        ):
            raise ValueError(
                f"The target has classes that are not numbers: {fact.values!r}. Use "
                "SyntheticDataClassifier."
            )

    def _train_estimator(self, rows: Any, y: pd.Series[Any]) -> Any:
        numbers = np.asarray(y, dtype=np.float64)
        known = np.flatnonzero(~np.isnan(numbers))
        return clone(self.estimator).fit(safe_indexing(rows, known), numbers[known])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the prediction for each row.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predicted numbers.
        """
        rows = self._rows(X)
        found: NDArray[Any] = call_model(self.estimator_, "predict", rows)
        return found
