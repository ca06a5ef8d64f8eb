"""Table of the scikit-learn classes that a file may hold, with parameters and attributes.

A scikit-learn estimator has no guarantee. A file holds one only inside a private model whose
guarantee covers it: there it was fitted on public and noisy values only. A file may also hold a
bare stateless transformer. The table includes the students and encoders of this library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    StandardScaler,
)

from ..ensemble import PropagationStudent
from ..fine_tuning import HalfWhitening
from .value_checks import check_names, common_to_state, whole

# For each class: the parameters that change its output, and its fitted attributes.
_TABLE: dict[type, tuple[list[str], dict[str, str]]] = {
    Binarizer: (["threshold"], {}),
    FunctionTransformer: (["validate", "accept_sparse", "feature_names_out"], {}),
    GaussianNB: (
        [],
        {
            "classes_": "indices",
            "theta_": "typed classes features",
            "var_": "variances classes features",
            "class_prior_": "typed classes",
        },
    ),
    HalfWhitening: ([], {"mean_": "array features", "components_": "array features features"}),
    LinearRegression: ([], {"coef_": "array features", "intercept_": "array"}),
    LogisticRegression: (
        ["solver"],
        {
            "classes_": "indices",
            "coef_": "typed outputs features",
            "intercept_": "typed outputs",
        },
    ),
    MaxAbsScaler: ([], {"scale_": "array features"}),
    MinMaxScaler: (
        ["feature_range", "clip"], {"scale_": "array features", "min_": "array features"}
    ),
    Normalizer: (["norm"], {}),
    PCA: (
        ["whiten"],
        {
            "mean_": "typed features",
            "components_": "typed components features",
            "explained_variance_": "variances components",
        },
    ),
    PropagationStudent: (
        ["n_neighbors", "alpha"],
        {
            "classes_": "indices",
            "_coef_": "typed features classes",
            "_intercept_": "typed classes",
        },
    ),
    Ridge: ([], {"coef_": "array features", "intercept_": "array"}),
    StandardScaler: (
        ["with_mean", "with_std"],
        {"scale_": "array features when with_std", "mean_": "array features when with_mean"},
    ),
}  # fmt: skip
PARAMS = {kind: params for kind, (params, _) in _TABLE.items()}
STATES = {kind: states for kind, (_, states) in _TABLE.items()}
STATELESS = {
    "Binarizer",
    "FunctionTransformer",
    "Normalizer",
}  # learn nothing, so need no guarantee
CLASSES: dict[str, type] = {
    kind.__name__: kind for kind in (*_TABLE, DummyClassifier, OneHotEncoder)
}
_MAX_FEATURES = 1 << 16


def check_usual(model: Any) -> None:
    """Raise ValueError if a parameter changes the output of a model but is not written."""
    if getattr(model, "multi_class", "deprecated") not in ("auto", "deprecated"):
        raise ValueError(
            f"multi_class={model.multi_class!r} of the LogisticRegression cannot be saved. "
            "Use the default, or OneVsRestClassifier and joblib."
        )


def _constant_to_state(model: DummyClassifier) -> dict[str, Any]:
    if model.strategy != "constant":
        raise ValueError(f"a DummyClassifier of strategy={model.strategy!r} cannot be saved.")
    return {"constant": int(model.constant)}


def _constant_from_state(facts: dict[str, Any]) -> DummyClassifier:
    check_names(facts, ["constant"])
    only = whole({"constant": facts["constant"] + 1}, "constant") - 1
    return DummyClassifier(strategy="constant", constant=only).fit([[0.0]], [only])


def _codes_to_state(model: OneHotEncoder) -> dict[str, Any]:
    usual = OneHotEncoder(handle_unknown="ignore", sparse_output=False).get_params()
    if model.get_params() != {**usual, "categories": model.categories} or any(
        not isinstance(value, str | int | float)
        for values in model.categories_
        for value in values.tolist()
    ):
        raise ValueError(
            "A OneHotEncoder must have handle_unknown='ignore', sparse_output=False and "
            "categories of text or numbers to be saved. Use SchemaTransformer."
        )
    return {
        "feature_names": getattr(model, "feature_names_in_", None),
        "categories": [values.tolist() for values in model.categories_],
    }


def _codes_from_state(facts: dict[str, Any]) -> OneHotEncoder:
    check_names(facts, ["feature_names", "categories"])
    categories = [np.array(values, dtype=object) for values in facts["categories"]]
    if not categories or any(values.ndim != 1 or not len(values) for values in categories):
        raise ValueError("a column has no categories")
    row = pd.DataFrame([[values[0] for values in categories]], dtype=object)
    if facts["feature_names"] is not None:
        row.columns = _check_column_names(facts["feature_names"], len(categories))
    codes = OneHotEncoder(categories=categories, handle_unknown="ignore", sparse_output=False)
    return codes.fit(row if facts["feature_names"] is not None else row.to_numpy())


def _check_column_names(names: Any, n: int) -> list[str]:
    if not isinstance(names, list) or len(names) != n or not all(type(x) is str for x in names):
        raise ValueError(f"the column names are {names!r}, expected {n} strings")
    return names


def frozen_parts(model: ColumnTransformer) -> list[tuple[str, Any, list[int]]]:
    """Return the fitted transformers of a ColumnTransformer, with their column indices."""
    dropped = all(step == "drop" for name, step, _ in model.transformers_ if name == "remainder")
    if not dropped or model.sparse_output_ or model.transformer_weights is not None:
        raise ValueError(
            "A ColumnTransformer can be saved only if it drops the remainder and has neither "
            "weights nor sparse output. Use SchemaTransformer."
        )
    places = np.arange(model.n_features_in_)
    names = list(getattr(model, "feature_names_in_", []))
    parts = []
    for name, step, columns in model.transformers_:
        if name == "remainder" or isinstance(step, str):
            continue
        by_name = [names.index(c) for c in columns] if _are_names(columns) else places[columns]
        if len(by_name):
            parts.append((name, step, [int(place) for place in by_name]))
    return parts


def _are_names(columns: Any) -> bool:
    return isinstance(columns, list) and bool(columns) and isinstance(columns[0], str)


def columns_to_state(model: ColumnTransformer) -> dict[str, Any]:
    """Return the facts of a ColumnTransformer without its transformers."""
    return {
        **common_to_state(model),
        "columns": {name: places for name, _, places in frozen_parts(model)},
        "prefixed": bool(model.verbose_feature_names_out),
    }


def columns_from_state(facts: dict[str, Any], parts: dict[str, Any]) -> ColumnTransformer:
    """Return a ColumnTransformer built from fitted transformers."""
    check_names(facts, ["n_features_in_", "feature_names", "columns", "prefixed"])
    d = whole(facts, "n_features_in_")
    if d > _MAX_FEATURES or set(parts) != set(facts["columns"]) or not parts:
        raise ValueError("its transformers do not match its lists of columns")
    for name, places in facts["columns"].items():
        if not all(type(place) is int and 0 <= place < d for place in places):
            raise ValueError(f"{name!r} takes the columns {places!r}, expected indices below {d}")
        if len(places) != parts[name].n_features_in_:
            raise ValueError(
                f"{name!r} takes {len(places)} columns, but was fitted on another number"
            )
    model = ColumnTransformer(
        [(name, FrozenEstimator(parts[name]), facts["columns"][name]) for name in parts],
        verbose_feature_names_out=facts["prefixed"] is True,
    )
    row = pd.DataFrame(np.zeros((1, d)), columns=facts["feature_names"])
    for name, places in facts["columns"].items():
        first = [values[0] for values in getattr(parts[name], "categories_", [])]
        for place, value in zip(places, first, strict=False):
            row[row.columns[place]] = pd.Series([value], dtype=object)
    return model.fit(row if facts["feature_names"] is not None else row.to_numpy())


# Classes described by values instead of arrays: their functions to write and to read.
BY_VALUES: dict[str, tuple[Callable[[Any], dict[str, Any]], Callable[[dict[str, Any]], Any]]] = {
    "DummyClassifier": (_constant_to_state, _constant_from_state),
    "OneHotEncoder": (_codes_to_state, _codes_from_state),
}
