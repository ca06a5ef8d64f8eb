"""What a file holds of a learner within a private model, which saw public and noisy values alone.

These are scikit-learn's, and our students. By themselves they learn from records outside any
guarantee, so that no file holds them but within a model whose guarantee covers them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, OneHotEncoder, StandardScaler

from ..ensemble import PropagationStudent
from .file_format import Arrays
from .value_checks import check_names, common, make, number, restore_common, whole

__all__ = [
    "LEARNERS",
    "frozen_parts",
    "restored_columns",
    "restored_learner",
    "told_columns",
    "told_learner",
]

# Parameters that change what is predicted, and the arrays of each: "d" features, "k" classes,
# "s" scores (one of two classes); "" for a single number.
_FITTED: dict[type, tuple[tuple[str, ...], dict[str, str]]] = {
    GaussianNB: ((), {"theta_": "kd", "var_": "kd", "class_prior_": "k"}),
    LinearRegression: ((), {"coef_": "d", "intercept_": ""}),
    LogisticRegression: (("solver",), {"coef_": "sd", "intercept_": "s"}),
    MaxAbsScaler: ((), {"scale_": "d"}),
    MinMaxScaler: (("feature_range", "clip"), {"scale_": "d", "min_": "d"}),
    PropagationStudent: (
        ("n_neighbors", "n_components", "spread", "alpha", "max_rounds"),
        {"_coef_": "dk", "_intercept_": "k"},
    ),
    Ridge: ((), {"coef_": "d", "intercept_": ""}),
    StandardScaler: (("with_mean", "with_std"), {"scale_": "d", "mean_": "d"}),
}
LEARNERS: dict[str, type] = {
    kind.__name__: kind for kind in (*_FITTED, DummyClassifier, OneHotEncoder)
}
_MOST_CLASSES = 1 << 16


def told_learner(model: Any) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the arrays of a fitted learner.

    Raises
    ------
    ValueError
        If it is not as such learners are fitted by ours.
    """
    if isinstance(model, DummyClassifier):
        if model.strategy != "constant":
            raise ValueError(f"a DummyClassifier of strategy={model.strategy!r} cannot be saved.")
        return {"constant": int(model.constant)}, {}
    if isinstance(model, OneHotEncoder):
        return _told_codes(model), {}
    if getattr(model, "multi_class", "deprecated") not in ("auto", "deprecated"):
        raise ValueError(
            f"multi_class={model.multi_class!r} of the LogisticRegression is not kept by a file of "
            "save_model. Leave it, or use OneVsRestClassifier and joblib."
        )
    params, shapes = _FITTED[type(model)]
    facts = {**common(model), "params": {name: getattr(model, name) for name in params}}
    arrays = {name: np.asarray(getattr(model, name)) for name in shapes if _uses(model, name)}
    if _classifies(shapes):
        facts["classes"] = model.classes_
        facts["types"] = {name: array.dtype.name for name, array in arrays.items()}
    if isinstance(model, PropagationStudent):
        facts["n_rounds_"] = model.n_rounds_
    return facts, {name: array.astype(np.float64) for name, array in arrays.items()}


def _classifies(shapes: dict[str, str]) -> bool:
    return any("k" in shape or "s" in shape for shape in shapes.values())


def _uses(model: Any, name: str) -> bool:
    """Return whether a model predicts by an array: a scaler may leave mean or scale as they are."""
    if not isinstance(model, StandardScaler):
        return True
    used = model.with_std if name == "scale_" else model.with_mean
    return bool(used)


def restored_learner(kind: type, facts: dict[str, Any], arrays: Arrays) -> Any:
    """Return the learner that facts and arrays describe."""
    if kind is DummyClassifier:
        check_names(facts, ["constant"])
        only = whole({"constant": facts["constant"] + 1}, "constant") - 1
        return DummyClassifier(strategy="constant", constant=only).fit([[0.0]], [only])
    if kind is OneHotEncoder:
        return _restored_codes(facts)
    params, shapes = _FITTED[kind]
    more = ["classes", "types"] if _classifies(shapes) else []
    more += ["n_rounds_"] if kind is PropagationStudent else []
    check_names(facts, ["n_features_in_", "feature_names", "params", *more])
    given = dict(facts["params"])
    if "feature_range" in given:
        low, high = (number({"range": end}, "range") for end in given["feature_range"])
        given["feature_range"] = (low, high)
    model = make(kind, given, params)
    sizes = {"d": restore_common(model, facts)}
    if _classifies(shapes):
        model.classes_ = _indices(facts["classes"])
        k = len(model.classes_)
        sizes |= {"k": k, "s": 1 if k == 2 else k}
    for name, shape in shapes.items():
        if not _uses(model, name):
            setattr(model, name, None)
            continue
        array = arrays.take(name, tuple(sizes[letter] for letter in shape))
        setattr(model, name, array.astype(_type(facts, name)))
    if isinstance(model, PropagationStudent):
        model.n_rounds_ = whole(facts, "n_rounds_")
    return model


def _type(facts: dict[str, Any], name: str) -> str:
    found = facts["types"][name] if "types" in facts else "float64"
    if found not in ("float32", "float64"):
        raise ValueError(f"the numbers of {name!r} are of the type {found!r}")
    return str(found)


def _indices(told: Any) -> NDArray[np.int64]:
    """Return classes, which are indices of those of the model around."""
    whole_numbers = isinstance(told, list) and all(type(value) is int for value in told)
    if not whole_numbers or len(told) < 2 or sorted(set(told)) != told:
        raise ValueError(f"the classes of its learner are {told!r}")
    if told[0] < 0 or told[-1] >= _MOST_CLASSES:
        raise ValueError(f"the classes of its learner are {told!r}")
    return np.array(told, dtype=np.int64)


def _told_codes(model: OneHotEncoder) -> dict[str, Any]:
    usual = OneHotEncoder(handle_unknown="ignore", sparse_output=False).get_params()
    if model.get_params() != {**usual, "categories": model.categories} or any(
        not isinstance(value, str | int | float)
        for values in model.categories_
        for value in values.tolist()
    ):
        raise ValueError(
            "A OneHotEncoder is saved with handle_unknown='ignore', sparse_output=False and "
            "categories that are text or numbers. Use SchemaTransformer."
        )
    return {
        "feature_names": getattr(model, "feature_names_in_", None),
        "categories": [values.tolist() for values in model.categories_],
    }


def _restored_codes(facts: dict[str, Any]) -> OneHotEncoder:
    check_names(facts, ["feature_names", "categories"])
    categories = [np.array(values, dtype=object) for values in facts["categories"]]
    if not categories or any(values.ndim != 1 or not len(values) for values in categories):
        raise ValueError("the categories of a column are none")
    row = pd.DataFrame([[values[0] for values in categories]], dtype=object)
    if facts["feature_names"] is not None:
        row.columns = _names(facts["feature_names"], len(categories))
    codes = OneHotEncoder(categories=categories, handle_unknown="ignore", sparse_output=False)
    return codes.fit(row if facts["feature_names"] is not None else row.to_numpy())


def _names(names: Any, n: int) -> list[str]:
    if not isinstance(names, list) or len(names) != n or not all(type(x) is str for x in names):
        raise ValueError(f"there are {n} columns, and their names are {names!r}")
    return names


def frozen_parts(model: ColumnTransformer) -> list[tuple[str, Any, list[int]]]:
    """Return the fitted transformers of columns, with the places of these.

    Raises
    ------
    ValueError
        If columns are passed on or are combined in another way than ours.
    """
    dropped = all(step == "drop" for name, step, _ in model.transformers_ if name == "remainder")
    if not dropped or model.sparse_output_ or model.transformer_weights is not None:
        raise ValueError(
            "A ColumnTransformer is saved if it drops the remainder, and has neither weights nor "
            "sparse output. Use SchemaTransformer."
        )
    places = np.arange(model.n_features_in_)
    names = list(getattr(model, "feature_names_in_", []))
    parts = []
    for name, step, columns in model.transformers_:
        if name == "remainder" or isinstance(step, str):
            continue
        by_name = [names.index(c) for c in columns] if _texts(columns) else places[columns]
        if len(by_name):
            parts.append((name, step, [int(place) for place in by_name]))
    return parts


def _texts(columns: Any) -> bool:
    return isinstance(columns, list) and bool(columns) and isinstance(columns[0], str)


def told_columns(model: ColumnTransformer) -> dict[str, Any]:
    """Return what is known of a ColumnTransformer beside its parts."""
    return {
        **common(model),
        "columns": {name: places for name, _, places in frozen_parts(model)},
        "prefixed": bool(model.verbose_feature_names_out),
    }


def restored_columns(facts: dict[str, Any], parts: dict[str, Any]) -> ColumnTransformer:
    """Return a ColumnTransformer of fitted parts."""
    check_names(facts, ["n_features_in_", "feature_names", "columns", "prefixed"])
    d = whole(facts, "n_features_in_")
    if d > _MOST_CLASSES or set(parts) != set(facts["columns"]) or not parts:
        raise ValueError("its parts are not those that it names")
    for name, places in facts["columns"].items():
        if not all(type(place) is int and 0 <= place < d for place in places):
            raise ValueError(f"{name!r} takes the columns {places!r} of {d}")
        if len(places) != parts[name].n_features_in_:
            raise ValueError(f"{name!r} takes {len(places)} columns, and was fitted to others")
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
