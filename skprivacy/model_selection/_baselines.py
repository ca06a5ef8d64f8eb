"""What a sweep compares private models with: models that learn from the same records freely."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.base import clone, is_regressor
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder

from .._blas import one_thread
from .._clones import without_values
from .._config import warn_caller
from .._validation import raise_alone
from ..attacks import LabelInferenceAttack
from ..exceptions import BudgetExceededError
from ._attacked import Fitting, measured, scored
from ._split import Split

__all__ = ["checked_baselines", "fit_baseline", "sibling_of"]

_SIBLING = " without privacy"
_BOOSTING = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)


def checked_baselines(
    baseline: Any, models: dict[str, Any], params: list[str], epsilons: list[float], X: Any
) -> dict[str, Any]:
    """Return the baselines by their names.

    Parameters
    ----------
    baseline : "auto", None, estimator or dict of estimators
    models : dict of estimators
        The private models by their names; a single one has none.
    params : list of str
        The name of the privacy parameter of each.
    epsilons : list of float
        What the sweep varies it over.
    X : array-like, sparse matrix or DataFrame
        The records.

    Returns
    -------
    dict

    Raises
    ------
    TypeError
        If a baseline is no estimator object.
    """
    if baseline is None:
        return {}
    if isinstance(baseline, str) and baseline == "auto":
        first = next(iter(models.values()))
        found = {"histogram gradient boosting": _boosting(X, is_regressor(first))}
        for (name, model), param in zip(models.items(), params, strict=True):
            if math.inf not in epsilons and param.rpartition("__")[2] == "epsilon":
                free = {k: None for k in model.get_params() if k.rpartition("__")[2] == "budget"}
                sibling = clone(model).set_params(**{param: math.inf}, **free)
                found[sibling_of(name)] = sibling
        return found
    found = dict(baseline) if isinstance(baseline, Mapping) else {_named(baseline): baseline}
    if not all(isinstance(name, str) and name for name in found):
        raise TypeError(f"baseline={baseline!r} must name each estimator by a text.")
    for name, model in found.items():
        if isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "predict")):
            raise TypeError(
                f"baseline={model!r} ({name!r}) must be an estimator object with fit and predict, "
                "a dict of them, 'auto' or None. Pass an instance."
            )
    return found


def sibling_of(name: str) -> str:
    """Return what a private model without privacy is called."""
    return f"{name or 'same model'}{_SIBLING}"


def fit_baseline(
    model: Any, split: Split, scorers: Any, attack: Any, name: str, optional: bool
) -> dict[str, Any] | None:
    """Return the results of a baseline on one split; None if it is optional and cannot be fitted.

    Attacks that need shadow models, or labels that nothing protects, are not made: their results
    are NaN.
    """
    attackable = not (hasattr(attack, "n_shadows") or isinstance(attack, LabelInferenceAttack))
    try:
        trees = isinstance(_last(model), _BOOSTING)
        few = one_thread(math.prod(np.shape(split.own.X)) if trees else math.inf)
        with warnings.catch_warnings(), few:  # the private models give the same ones
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", message="(The scorer|attack=).* NaN")
            fitting = Fitting(model, split)
            row = scored(fitting, scorers)
            return row | measured(fitting, scorers, attack if attackable else None)
    except Exception as error:
        if not optional:
            if isinstance(error, BudgetExceededError) or not isinstance(
                error, (TypeError, ValueError)
            ):
                raise
            raise_alone(
                ValueError(
                    f"The baseline {name!r} cannot be fitted to these records: "
                    f"{without_values(error)}. No private model of the sweep has been trained. "
                    "Pass baseline= with the steps that it needs, such as "
                    "make_pipeline(SchemaTransformer(schema), model), or None."
                )
            )
        if not name.endswith(_SIBLING):  # many private models are not made for epsilon=inf
            warn_caller(
                f"The baseline {name!r} is left out, as it does not take these records "
                f"({without_values(error)}). Pass baseline= with one that does, or None.",
                UserWarning,
            )
        return None


def _last(model: Any) -> Any:
    while isinstance(model, Pipeline):
        model = model.steps[-1][1]
    return model


def _named(model: Any) -> str:
    return type(_last(model)).__name__


def _boosting(X: Any, of_numbers: bool = False) -> Any:
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
