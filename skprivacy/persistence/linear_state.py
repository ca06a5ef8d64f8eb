"""What a file holds of a private linear model, and of a scaler: coefficients and public facts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from ..linear_model.base import PrivateLinearClassifier
from ..linear_model.functional_mechanism import FunctionalMechanism
from ..linear_model.polynomial_objective import NoisyPolynomial
from ..mechanisms.bounds import UnitBall
from ..preprocessing import PrivateStandardScaler
from .file_format import Arrays
from .value_checks import (
    check_names,
    classes_told,
    common,
    make,
    number,
    restore_classes,
    restore_common,
    restore_guarantee,
)

__all__ = ["PARAMS", "restored_linear", "restored_scaler", "told_linear", "told_scaler"]

_SHARED = ("epsilon", "delta", "radius", "fit_intercept", "relation")
# Parameters that are numbers or words. The public facts (bounds, target_bounds, classes) are
# written as they were used, with whether they were given; budget, noise_seed and code are not.
PARAMS: dict[type, tuple[str, ...]] = {
    AdaSSPRegressor: _SHARED,
    FunctionalMechanismClassifier: (*_SHARED, "alpha", "order"),
    FunctionalMechanismRegressor: (*_SHARED, "alpha"),
    ObjectivePerturbationClassifier: (*_SHARED, "alpha"),
    OutputPerturbationClassifier: (*_SHARED, "alpha"),
    PrivateStandardScaler: ("epsilon", "delta", "relation"),
}
_OF_POLYNOMIAL = ("linear_std", "quadratic_std", "quadratic_norm", "trace_std", "unit")
_OF_SCALER = ("mean_", "var_", "scale_")


def _told(model: Any) -> dict[str, Any]:
    return {
        **common(model),
        "params": {name: getattr(model, name) for name in PARAMS[type(model)]},
        "bounds_given": model.bounds is not None,
        "privacy": model.privacy_.to_dict(),
    }


def _restored(kind: type, facts: dict[str, Any], arrays: Arrays, *more: str) -> Any:
    told = ("n_features_in_", "feature_names", "params", "bounds_given", "privacy")
    check_names(facts, (*told, *more))
    model = make(kind, facts["params"], PARAMS[kind])
    d = restore_common(model, facts)
    lower, upper = arrays.take("bounds_", (2, d))
    if not (lower <= upper).all():
        raise ValueError("a lower bound of the features is above the upper one")
    model.bounds_ = lower, upper
    # What was read off the data must not pass for public in a new fit.
    model.bounds = model.bounds_ if _flag(facts, "bounds_given") else None
    restore_guarantee(model, facts)
    return model


def _flag(facts: dict[str, Any], name: str) -> bool:
    if not isinstance(facts[name], bool):
        raise ValueError(f"{name} is {facts[name]!r}, neither true nor false")
    return facts[name]


def told_scaler(model: PrivateStandardScaler) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the arrays of a fitted scaler."""
    arrays = {name: getattr(model, name) for name in _OF_SCALER}
    return _told(model), {"bounds_": np.stack(model.bounds_), **arrays}


def restored_scaler(kind: type, facts: dict[str, Any], arrays: Arrays) -> PrivateStandardScaler:
    """Return the scaler that facts and arrays describe."""
    model: PrivateStandardScaler = _restored(kind, facts, arrays)
    for name in _OF_SCALER:
        setattr(model, name, arrays.take(name, (model.n_features_in_,)))
    if not (model.scale_ > 0).all():
        raise ValueError("a scale is not above 0")
    return model


def told_linear(model: Any) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the arrays of a fitted linear model.

    Raises
    ------
    ValueError
        If the model has an objective of its own, which is code.
    """
    if getattr(model, "objective", None) is not None:
        raise ValueError(
            f"objective of the {type(model).__name__} is code, which no file of save_model holds. "
            "Leave objective=None, or use joblib, for files that only you can write."
        )
    facts, arrays = _told(model), {"bounds_": np.stack(model.bounds_), "coef_": model.coef_}
    if isinstance(model, PrivateLinearClassifier):
        facts["classes"] = classes_told(model.classes_)
        facts["classes_given"] = model.classes is not None
        arrays["intercept_"] = model.intercept_
    else:
        facts["target_bounds"] = list(model.target_bounds_)
        facts["target_bounds_given"] = model.target_bounds is not None
        facts["intercept_"] = model.intercept_
    if isinstance(model, AdaSSPRegressor):
        facts["ridge_"] = model.ridge_
    if isinstance(model, FunctionalMechanism):
        released = model.polynomial_
        facts["polynomial"] = {name: getattr(released, name) for name in _OF_POLYNOMIAL}
        facts["ball"] = {"radius": model._ball_.radius, "intercept": model._ball_.intercept}
        arrays["polynomial_.linear"] = released.linear
        arrays["polynomial_.quadratic"] = released.quadratic
    return facts, arrays


def restored_linear(kind: type, facts: dict[str, Any], arrays: Arrays) -> Any:
    """Return the linear model that facts and arrays describe."""
    classifies = issubclass(kind, PrivateLinearClassifier)
    more = ["classes", "classes_given"]
    if not classifies:
        more = ["target_bounds", "target_bounds_given", "intercept_"]
    more += ["ridge_"] if kind is AdaSSPRegressor else []
    more += ["polynomial", "ball"] if issubclass(kind, FunctionalMechanism) else []
    model = _restored(kind, facts, arrays, *more)
    d = model.n_features_in_
    n_outputs = _restore_classes(model, facts) if classifies else 1
    if classifies:
        model.coef_ = arrays.take("coef_", (n_outputs, d))
        model.intercept_ = arrays.take("intercept_", (n_outputs,))
    else:
        _restore_target_bounds(model, facts)
        model.coef_ = arrays.take("coef_", (d,))
        model.intercept_ = number(facts, "intercept_")
    if kind is AdaSSPRegressor:
        model.ridge_ = number(facts, "ridge_")
    if isinstance(model, FunctionalMechanism):
        _restore_polynomial(model, facts, arrays, n_outputs)
    return model


def _restore_classes(model: Any, facts: dict[str, Any]) -> int:
    """Set the classes; return how many scores a record gets."""
    model.classes_ = restore_classes(facts["classes"])
    model.classes = model.classes_ if _flag(facts, "classes_given") else None
    return 1 if len(model.classes_) == 2 else len(model.classes_)


def _restore_target_bounds(model: Any, facts: dict[str, Any]) -> None:
    lower, upper = (number({"target_bounds": v}, "target_bounds") for v in facts["target_bounds"])
    if not lower < upper:
        raise ValueError(f"the target's bounds are {lower!r} and {upper!r}")
    model.target_bounds_ = lower, upper
    model.target_bounds = (lower, upper) if _flag(facts, "target_bounds_given") else None


def _restore_polynomial(model: Any, facts: dict[str, Any], arrays: Arrays, n_outputs: int) -> None:
    check_names(facts["polynomial"], _OF_POLYNOMIAL)
    ball = check_names(facts["ball"], ["radius", "intercept"])
    lower, upper = (tuple(bound.tolist()) for bound in model.bounds_)
    model._ball_ = UnitBall(lower, upper, number(ball, "radius"), number(ball, "intercept"))
    if model._ball_.radius <= 0 or model._ball_.intercept < 0:
        raise ValueError(f"there is no ball of {ball!r}")
    p = model._ball_.size
    model.polynomial_ = NoisyPolynomial(
        linear=arrays.take("polynomial_.linear", (p, n_outputs)),
        quadratic=arrays.take("polynomial_.quadratic", (p, p)),
        **{name: number(facts["polynomial"], name) for name in _OF_POLYNOMIAL},
    )
