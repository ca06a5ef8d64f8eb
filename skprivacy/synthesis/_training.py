"""What models that are trained on synthetic records have in common, whatever they predict."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._clones import without_values
from .._data_validation import (
    check_classification_targets,
    check_consistent_length,
    check_y,
    column_or_1d,
    validate_data,
)
from .._frozen import of_frozen_parts
from .._sklearn import HasMethods
from .._validation import (
    Interval,
    as_frame,
    check_column_names,
    check_one_type,
    check_random_state,
    raise_alone,
)
from ..base import PrivateEstimatorMixin
from ..exceptions import SyntheticTrainingError
from ..preprocessing import Bounded, Categories
from ._base import Synthesizer
from ._domain import Domain
from ._facts import Facts
from .gan import DPGANSynthesizer
from .synthesizer import PrivateSynthesizer

__all__ = ["SyntheticDataEstimator", "can"]

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
        beside = of_frozen_parts({"estimator": self.estimator}, of_records.relation)
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
                    f"({without_values(error)}). Nothing was charged. Pass one that takes these "
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
