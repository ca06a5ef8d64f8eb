"""Parts of an estimator that no fit changes, and that may have learned from private records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, ModuleType
from typing import Any

import numpy as np
from scipy import special
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags

__all__ = ["of_frozen_parts", "on_its_word"]

_KNOWN = {"skprivacy", "sklearn", "skorch"}  # whose classes say of themselves what is so
_LIBRARIES = {*_KNOWN, "numpy", "scipy", "torch"}  # whose functions have seen nobody's records


def of_frozen_parts(params: Mapping[str, Any], relation: str) -> Iterator[str]:
    """Yield what a guarantee assumes of estimators that were passed fitted and stay as they are.

    Parameters
    ----------
    params : mapping
        Parameters of an estimator, by name.
    relation : str
        The neighbouring relation: under "label" features are public, and may have been learned
        from.

    Notes
    -----
    **Edge cases.** A method of an estimator, as in ``FunctionTransformer(scaler.transform)``, keeps
    what that has learned. What a function knows, such as a mean, is nowhere seen: those that an
    estimator was handed are assumed of, and one that is itself a parameter by whoever takes it.
    Nothing is assumed of a part that learns nothing, or says by ``data_independent_`` that it has
    not.
    """
    private = "label" if relation == "label" else "record"
    for name, value in params.items():
        if _is_frozen(value) and _may_have_learned(value):
            yield f"the {name} depends on no private {private}"
            continue
        found = list(_frozen_in(value))
        if any(_may_have_learned(part) for part in found if _is_estimator(part)):
            yield f"what is frozen in {name} depends on no private {private}"
        if not all(map(_is_estimator, found)):
            yield f"the functions in {name} depend on no private {private}"


def on_its_word(step: Any) -> bool:
    """Return whether that a transformer learns nothing is only said by a class of somebody else's.

    A subclass of SchemaTransformer inherits what that says, whatever its own ``fit`` does.
    """
    return hasattr(step, "data_independent_") and _package(type(step)) not in _KNOWN


def _frozen_in(value: Any, inside: bool = False) -> Iterator[Any]:
    """Yield the frozen estimators in a parameter, to any depth, and functions of its estimators."""
    if isinstance(value, Mapping):
        value = list(value.values())
    elif isinstance(value, partial):
        value = [value.func, *value.args, value.keywords]
    elif isinstance(value, np.vectorize):
        value = [value.pyfunc]
    if isinstance(value, list | tuple):
        for part in value:
            yield from _frozen_in(part, inside)
    elif _is_estimator(owner := getattr(value, "__self__", None)):
        yield owner
    elif inside and _is_function(value):
        yield value
    elif _is_frozen(value):
        yield value
        if isinstance(value, FrozenEstimator):
            yield from _frozen_in(value.estimator, inside=True)
    elif _is_estimator(value):
        for part in value.get_params(deep=False).values():
            yield from _frozen_in(part, inside=True)


def _is_function(value: Any) -> bool:
    """Return whether it is a user's function, or an object with data that is called like one."""
    if not callable(value) or isinstance(value, type) or _is_estimator(value):
        return False
    if isinstance(value, np.ufunc):
        return not any(getattr(of, value.__name__, None) is value for of in (np, special))
    owner = getattr(value, "__self__", None)
    if isinstance(value, BuiltinFunctionType) and isinstance(owner, type | ModuleType | None):
        return False
    # A function has a name of its own, in numpy's dispatchers too; an object has its class's alone.
    if isinstance(owner, type) or (owner is None and hasattr(value, "__qualname__")):
        return _package(value) not in _LIBRARIES
    return _package(value if owner is None else type(owner)) not in _KNOWN


def _package(value: Any) -> str:
    return (getattr(value, "__module__", None) or "").split(".")[0]


def _is_estimator(value: Any) -> bool:
    return hasattr(value, "get_params") and hasattr(value, "fit") and not isinstance(value, type)


def _is_frozen(value: Any) -> bool:
    """Return whether an estimator is its own clone, or has one that is fitted as it is."""
    if not _is_estimator(value):
        return False
    own = getattr(type(value), "__sklearn_clone__", BaseEstimator.__sklearn_clone__)
    if own is BaseEstimator.__sklearn_clone__:
        return False
    copy = clone(value)
    return copy is value or any(a.endswith("_") and not a.endswith("__") for a in vars(copy))


def _may_have_learned(frozen: Any) -> bool:
    inner = frozen.estimator if isinstance(frozen, FrozenEstimator) else frozen
    if getattr(inner, "data_independent_", False) is True:
        return on_its_word(inner)
    return bool(not hasattr(inner, "__sklearn_tags__") or get_tags(inner).requires_fit)
