"""Arrays and objects inside a fitted model, at any depth."""

from __future__ import annotations

import logging
import numbers
import pickle
import warnings
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

__all__ = ["Contents", "collect_contents"]

_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, logging.Logger)
_WORKING = ("fit", "predict", "transform", "named_parameters")  # an object with one is a part


@dataclass
class Contents:
    """Arrays and objects found inside a model.

    Attributes
    ----------
    arrays : list of array-like
        Arrays, sparse matrices and tables; nested lists of numbers as arrays. Each once.
    parts : list of object
        Estimators, transformers and torch modules, outer ones first.
    complete : bool
        Whether the whole model could be searched.
    """

    arrays: list[Any] = field(default_factory=list)
    parts: list[Any] = field(default_factory=list)
    complete: bool = True


def collect_contents(model: Any) -> Contents:
    """Return all arrays and parts of a model, from its attributes and from its pickle.

    The pickle reaches objects that attributes do not show, such as trees of compiled classes.
    Nothing is copied or written, and functions and classes are not searched.
    """
    collector = _Collector()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            collector.dump(model)
        except RecursionError:
            collector.found.complete = False
    return collector.found


class _NullFile:
    def write(self, data: Any) -> int:
        return len(data)


class _Collector(pickle.Pickler):
    """A pickler that collects arrays and parts, and writes nothing.

    Objects that cannot be pickled are searched by their attributes.
    """

    def __init__(self) -> None:
        super().__init__(_NullFile(), protocol=5)
        self.found = Contents()
        self._seen: dict[int, Any] = {}  # references, so that no id is reused

    def persistent_id(self, value: Any) -> int | None:
        """Collect a value if it is an array or a part; return 1 if it need not be searched."""
        if isinstance(value, _CODE):
            return 1
        if isinstance(value, (np.ndarray, pd.DataFrame, pd.Series)) or sparse.issparse(value):
            self._keep(value)
            return None if isinstance(value, np.ndarray) and value.dtype.hasobject else 1
        if type(value).__module__.startswith("torch") and hasattr(value, "detach"):
            self._keep(value.detach().cpu().float().numpy(), of=value)
            return 1
        if isinstance(value, (list, tuple)):
            self._keep_rows(value)
        elif any(hasattr(type(value), name) for name in _WORKING) and id(value) not in self._seen:
            self._seen[id(value)] = value
            self.found.parts.append(value)
        return None

    def reducer_override(self, value: Any) -> Any:
        inside = [getattr(value, "__dict__", None)]
        try:
            reduced = value.__reduce_ex__(5)
            if isinstance(reduced, tuple):
                arguments, *states = reduced[1:]
                inside += [arguments, *(_as_list(state) for state in states)]
        except Exception:  # a class without pickle support may raise anything
            pass
        return list, (inside,)

    def _keep(self, array: Any, of: Any = None) -> None:
        held = array if of is None else of
        if id(held) not in self._seen:
            self._seen[id(held)] = held
            self.found.arrays.append(array)

    def _keep_rows(self, value: Any) -> None:
        """Collect a list of lists of numbers as an array."""
        first = value[0] if value else None
        if isinstance(first, (list, tuple)) and first and isinstance(first[0], numbers.Real):
            try:
                self._keep(np.array(value, dtype=float), of=value)
            except (TypeError, ValueError):  # lists of different lengths, or with other values
                return


def _as_list(state: Any) -> Any:
    return list(state) if hasattr(state, "__next__") else state
