"""Records, splits and candidates of a sweep, its baselines, and a first step that models share."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn import get_config
from sklearn.base import clone, is_regressor
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder

from .._config import warn_caller
from .._sklearn import output_container, safe_indexing
from .._validation import num_samples
from ..preprocessing import SchemaTransformer
from ..preprocessing.pipeline import PrivatePipeline
from ..preprocessing.schema_check import find_unmarked_gaps

SIBLING = " without privacy"
BOOSTING = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)
_MAX_FEATURE_BYTES = 1 << 30  # of the cached features


@dataclass(frozen=True)
class FirstStep:
    """A fitted stateless step and the features that it computes.

    **Guarantees.** The step is of the class :class:`~skprivacy.preprocessing.SchemaTransformer`
    itself, no subclass, with a schema that was not read off data. Its fit reads no value, and each
    row that it makes is a function of one record. So a model fitted to these rows equals the model
    of its pipeline, and no record enters another fold through them.
    """

    step: SchemaTransformer
    features: NDArray[Any]

    def begins(self, model: Any) -> bool:
        """Return whether a model, fitted or not, begins with this step."""
        other = _stateless_step(model)
        return other is not None and _step_parameters(other) == _step_parameters(self.step)

    def before(self, model: Pipeline, name: str) -> Pipeline:
        """Return the pipeline of this fitted step, under ``name``, and the steps of ``model``."""
        return Pipeline([(name, self.step), *model.steps])

    def take(self, rows: Any) -> FirstStep:
        """Return the step with the features of some rows."""
        return replace(self, features=np.asarray(self.features[rows]))


def fit_first_step(model: Any, X: Any) -> FirstStep | None:
    """Fit the first step of a model to all records, or return None if it cannot be shared.

    **Edge cases.** A step that warns or fails is not shared: each model then warns or fails by
    itself. Features that are not an array or exceed 1 GiB are not shared either.
    """
    step = _stateless_step(model)
    if step is None or type(X) not in (pd.DataFrame, np.ndarray):
        return None  # the column types of a list depend on all its rows
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fitted = clone(step).fit(X)
            width = fitted.schema_.n_features_out * np.dtype(step.dtype).itemsize
            if len(X) * width > _MAX_FEATURE_BYTES:
                return None
            features = fitted.transform(X)
    except Exception:
        return None
    if type(features) is not np.ndarray:
        return None
    return FirstStep(fitted, features)


def _stateless_step(model: Any) -> SchemaTransformer | None:
    """Return the first step of a plain pipeline if it learns nothing from data, else None."""
    if type(model) is not Pipeline or len(model.steps) < 2 or model.memory is not None:
        return None
    if model.verbose or getattr(model, "transform_input", None) is not None:
        return None
    step = model.steps[0][1]
    if type(step) is not SchemaTransformer or step.schema is None or step.schema.unconfirmed:
        return None
    plain = get_config()["transform_output"] == "default" and output_container(step) is None
    return step if plain else None


def _step_parameters(step: SchemaTransformer) -> tuple[Any, ...]:
    return step.schema, step.bins, np.dtype(step.dtype)


def warn_of_gaps(models: Iterable[Any], X: Any) -> None:
    """Warn of gaps that a schema reads as the middle of a range.

    A sweep reads the data and is not private. ``fit`` of a model must not warn: it would reveal a
    record.
    """
    for model in models:
        step = model.steps[0][1] if isinstance(model, Pipeline) else None
        if not isinstance(step, SchemaTransformer) or step.schema is None:
            continue
        if isinstance(X, pd.DataFrame) and (found := find_unmarked_gaps(step.schema, X)):
            warn_caller(
                f"The columns {', '.join(map(repr, found))} have missing values, which become the "
                "middle of the range. Write missing=True in the schema of a column that may have "
                "them.",
                UserWarning,
            )
            return


@dataclass(frozen=True)
class Records:
    """All records, with the further arguments of ``fit`` and of the scorers."""

    X: Any
    y: Any
    subgroups: Any = None  # array: the subgroup of each record, as text
    fit_params: Mapping[str, Any] = field(default_factory=dict)  # some with a value per record
    score_params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by scorer
    groups: Any = None  # Series: the group of each record, if groups are members
    first: FirstStep | None = None  # shared by the models

    def take(self, rows: Any) -> Records:
        """Return some of the records."""
        return Records(
            safe_indexing(self.X, rows),
            safe_indexing(self.y, rows),
            None if self.subgroups is None else self.subgroups[rows],
            select_arguments(self.fit_params, rows, num_samples(self.X)),
            {
                name: select_arguments(given, rows, num_samples(self.X))
                for name, given in self.score_params.items()
            },
            None if self.groups is None else self.groups.iloc[rows],
            None if self.first is None else self.first.take(rows),
        )

    @property
    def n_numbers(self) -> int:
        """How many numbers the records hold, or the features of the shared first step."""
        return int(np.prod(np.shape(self.X if self.first is None else self.first.features)))


@dataclass(frozen=True)
class Split:
    """Training records (``own``), test records (``new``), and both, which the attacker knows."""

    own: Records
    new: Records
    known: Records

    @classmethod
    def from_indices(cls, records: Records, train: Any, test: Any) -> Split:
        """Return the split of some records by their indices."""
        return cls(*map(records.take, (train, test, np.concatenate([train, test]))))


def select_arguments(params: Mapping[str, Any], rows: Any, n_samples: int) -> dict[str, Any]:
    """Return arguments for some rows; those without a value for each record are unchanged."""
    return {
        name: safe_indexing(value, rows) if _has_value_per_record(value, n_samples) else value
        for name, value in params.items()
    }


def _has_value_per_record(value: Any, n_samples: int) -> bool:
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
        return hasattr(value, "shape") and len(value.shape) > 0 and value.shape[0] == n_samples
    return num_samples(value) == n_samples


@dataclass(frozen=True)
class Candidate:
    """A private model at one epsilon, or a baseline; its records have what its ``fit`` takes."""

    name: str
    model: Any
    records: Records
    params: dict[str, Any]  # as ``cv_results_`` shows them
    mark: str = ""  # distinguishes baselines of the same name


def share_first_steps(candidates: list[Candidate], n: int) -> list[Candidate]:
    """Return the candidates with their shared first step, if they have one.

    ``n`` is the public number of training records or groups, for which pipelines choose their bins.
    """
    taken: list[FirstStep] = []
    found = []
    for candidate in candidates:
        model, own = candidate.model, candidate.records
        if type(model) is PrivatePipeline:
            model = model.settle_bins(n)
        first = next((step for step in taken if step.begins(model)), None)
        if first is None and (first := fit_first_step(model, own.X)) is not None:
            taken.append(first)
        shared = own if first is None else replace(own, first=first)
        found.append(replace(candidate, model=model, records=shared))
    return found


def validate_baselines(
    baseline: Any, models: dict[str, Any], params: list[str], epsilons: list[float], X: Any
) -> dict[str, Any]:
    """Return the baselines by name; ``params`` names the privacy parameter of each model."""
    if baseline is None:
        return {}
    if isinstance(baseline, str) and baseline == "auto":
        first = next(iter(models.values()))
        found = {"histogram gradient boosting": _make_boosting(X, is_regressor(first))}
        for (name, model), param in zip(models.items(), params, strict=True):
            if math.inf not in epsilons and param.rpartition("__")[2] == "epsilon":
                free = {k: None for k in model.get_params() if k.rpartition("__")[2] == "budget"}
                sibling = clone(model).set_params(**{param: math.inf}, **free)
                found[sibling_name(name)] = sibling
        return found
    name = type(last_step(baseline)).__name__
    found = dict(baseline) if isinstance(baseline, Mapping) else {name: baseline}
    if not all(isinstance(name, str) and name for name in found):
        raise TypeError(f"baseline={baseline!r} must name each estimator by a text.")
    for name, model in found.items():
        if isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "predict")):
            raise TypeError(
                f"baseline={model!r} ({name!r}) must be an estimator object with fit and predict, "
                "a dict of them, 'auto' or None. Pass an instance."
            )
    return found


def sibling_name(name: str) -> str:
    """Return the name of the baseline that is a private model at epsilon=inf."""
    return f"{name or 'same model'}{SIBLING}"


def name_constant(of_numbers: bool) -> str:
    """Return the name of the constant predictor."""
    return "mean" if of_numbers else "most frequent class"


def make_constant(of_numbers: bool) -> Any:
    """Return the constant predictor: mean, or most frequent class with class frequencies."""
    return DummyRegressor() if of_numbers else DummyClassifier(strategy="prior")


def last_step(model: Any) -> Any:
    """Return the last step of a pipeline, or the model itself."""
    while isinstance(model, Pipeline):
        model = model.steps[-1][1]
    return model


def _make_boosting(X: Any, of_numbers: bool = False) -> Any:
    """Return gradient boosting that takes text, categories and gaps as they are."""
    kind = HistGradientBoostingRegressor if of_numbers else HistGradientBoostingClassifier
    boosting = kind(random_state=0)
    if get_config()["enable_metadata_routing"]:
        boosting.set_fit_request(sample_weight=True)
    if sparse.issparse(X):
        return make_pipeline(FunctionTransformer(_dense, accept_sparse=True), boosting)
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    if hasattr(X, "dtypes"):
        text = make_column_selector(dtype_exclude=np.number)
        codes = make_column_transformer((codes, text), remainder="passthrough")
        return make_pipeline(codes, boosting)
    return boosting if np.asarray(X).dtype.kind in "biuf" else make_pipeline(codes, boosting)


def _dense(X: Any) -> Any:
    return X.toarray()
