"""Models without privacy that a sweep compares with, and the constant predictor below them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.base import clone, is_regressor
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder

SIBLING = " without privacy"
BOOSTING = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)


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
    found = (
        dict(baseline) if isinstance(baseline, Mapping) else {_baseline_name(baseline): baseline}
    )
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


def _baseline_name(model: Any) -> str:
    return type(last_step(model)).__name__


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
