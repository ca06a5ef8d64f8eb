"""All numbers that a fitted model releases, learned attributes and answers, as one vector."""

from __future__ import annotations

import random
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ..accounting import (
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    LogisticEvent,
    PoissonSampled,
    PrivacyGuarantee,
    RandomizedResponseEvent,
)
from ..accounting._event import flatten
from ..accounting.events.streams import MatrixFactorization
from ..mechanisms import Mechanism
from ._alarms import is_alarm

__all__ = ["GivenParameters", "covers_all_answers", "parameters_before_fit", "released_numbers"]

# Values of each parameter before the fit, as bytes, by class and parameter name.
GivenParameters = Mapping[tuple[type, str], frozenset[bytes]]

# Events of mechanisms whose cost covers everything that the mechanism answers.
_COVERING_ALL = (
    DiscreteGaussianEvent, DiscreteLaplaceEvent, GaussianEvent, LaplaceEvent, LogisticEvent,
    MatrixFactorization, RandomizedResponseEvent,
)  # fmt: skip
# Attributes that are public, or are costly to read and repeat an event and its epsilon.
_PUBLIC = {"privacy_", "n_features_in_", "accountant", "random_state", "seed", "random_seed"}
_ANSWERS = ("predict_proba", "decision_function", "predict", "transform")
_MOST = 20_000  # numbers of a model
_DEPTH = 8
_BITS = 1000  # of whole numbers that a float can hold
# Code, and generators: their states reveal no more than the numbers drawn from them.
_SKIPPED = (
    type, ModuleType, BuiltinFunctionType, np.random.RandomState, np.random.Generator,
    random.Random,
)  # fmt: skip


def covers_all_answers(guarantee: PrivacyGuarantee, mechanisms: Sequence[Mechanism]) -> bool:
    """Return whether a claim covers all answers of mechanisms, released together.

    It does if it sums the events of exactly the mechanisms that answered in a fit, or only events
    whose cost always covers the whole answer. The event of a vote covers the winners only, and that
    of a private selection covers the best run only.
    """

    def covers_all(event: Event) -> bool:
        inner = event.event if isinstance(event, PoissonSampled) else event
        return isinstance(inner, _COVERING_ALL)

    claimed = flatten(guarantee.event)
    return all(map(covers_all, claimed)) or claimed == Counter(m.event for m in mechanisms)


def parameters_before_fit(model: Any) -> GivenParameters:
    """Return the parameters of an estimator, and of those inside it, before the fit."""
    params = model.get_params() if hasattr(model, "get_params") else {}
    given: dict[tuple[type, str], set[bytes]] = {}
    for part in [model, *params.values()]:
        for name, value in _params(part).items():
            given.setdefault((type(part), name), set()).add(_as_bytes(value, {}, _DEPTH))
    return {place: frozenset(contents) for place, contents in given.items()}


def _params(value: Any) -> dict[str, Any]:
    plain = not hasattr(value, "get_params") or isinstance(value, type)
    return {} if plain else value.get_params(deep=False)


def _as_bytes(value: Any, given: GivenParameters, depth: int) -> bytes:
    return b"".join(part.tobytes() for part in _walk(value, {}, depth, given))


def released_numbers(
    model: Any, probes: Any, given: GivenParameters | None = None
) -> NDArray[np.float64]:
    """Return all numbers that a model learned, and its answers for the probe records.

    Parameters with the values in ``given`` are public and skipped. A fit may change a parameter, as
    a pipeline fits its steps. Parameters of estimators that the fit itself made are skipped too.
    All other attributes are read, private ones included, and the pickle of other objects: a
    recipient of the model has them all. The order is the same for all models of one kind.

    Text counts by its length and a checksum. There are no answers if all methods raise. Numbers
    beyond the first 20,000 are dropped.
    """
    learned = list(_walk(model, {}, _DEPTH, given or {}))
    return np.concatenate([np.zeros(0), *learned, _answers(model, probes)])[:_MOST]


def _answers(model: Any, probes: Any) -> NDArray[np.float64]:
    """Return the answers of the most detailed prediction method that works."""
    for name in _ANSWERS:
        try:
            output = getattr(model, name)(probes)
        except Exception as error:  # the model lacks this method, or cannot answer these records
            if is_alarm(error):
                raise
            continue
        output = np.asarray(output.toarray() if sparse.issparse(output) else output)
        if output.dtype.kind not in "biuf":
            classes = np.asarray(getattr(model, "classes_", np.unique(output)))
            output = np.searchsorted(classes, output)
        return output.astype(float).ravel()
    return np.zeros(0)


def _walk(
    value: Any, seen: dict[int, Any], depth: int, given: GivenParameters
) -> Iterator[NDArray[np.float64]]:
    if isinstance(value, (bool, int, float, np.number, np.bool_, str, bytes)):
        yield _digits(value)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biufcmM":
        plain = value.view(np.int64) if value.dtype.kind in "mM" else value
        pair = (plain.real, plain.imag) if plain.dtype.kind == "c" else (plain,)
        yield from (part.astype(float).ravel() for part in pair)
    elif sparse.issparse(value):
        yield from (np.asarray(value.data, float), np.asarray(value.nonzero(), float).ravel())
    elif _is_tensor(value):
        yield value.detach().cpu().double().numpy().ravel()
    elif depth and id(value) not in seen:
        seen[id(value)] = value  # a reference, so that no other object gets this id
        for part in _components(value, given, depth):
            yield from _walk(part, seen, depth - 1, given)


def _digits(value: Any) -> NDArray[np.float64]:
    """Return a scalar as numbers; text and huge integers as a size and a checksum."""
    if isinstance(value, (str, bytes)):
        text = value.encode(errors="surrogatepass") if isinstance(value, str) else value
        return np.array([len(text), zlib.crc32(text)], float)
    if isinstance(value, (complex, np.complexfloating)):
        return np.array([value.real, value.imag], float)
    if isinstance(value, int) and value.bit_length() > _BITS:
        return np.array([value.bit_length(), value % (1 << 53)], float)
    return np.array([float(value)])


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _components(value: Any, given: GivenParameters, depth: int) -> list[Any]:
    """Return the components of a value; empty for values without data, or without access to it."""
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, (pd.DataFrame, pd.Series)):
        return [value.index.to_numpy(), value.to_numpy()]
    if isinstance(value, np.ndarray):  # of objects, of text, or of several fields
        return value.ravel().tolist()
    if callable(getattr(value, "state_dict", None)):
        return list(value.state_dict().values())
    if isinstance(value, FunctionType):  # its closure; its module holds nothing of a fit
        return [*(cell.cell_contents for cell in value.__closure__ or () if _has_value(cell))]
    if isinstance(value, MethodType):
        return [value.__self__]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, _SKIPPED):
        return []
    if not hasattr(value, "__dict__"):
        return _pickle_components(value)
    held = vars(value)
    skipped = _PUBLIC | _unchanged_params(value, given, depth - 1)
    # Numbers first: the sizes of models and lists may differ between runs and would shift them.
    return [held[name] for name in sorted(held, key=_shape_may_vary(held)) if name not in skipped]


def _unchanged_params(value: Any, given: GivenParameters, depth: int) -> set[str]:
    """Return the parameters that the fit did not change, or whose earlier value is unknown."""
    places = {name: (type(value), name) for name in _params(value) if hasattr(value, "fit")}
    return {
        name
        for name, place in places.items()
        if place not in given or _as_bytes(vars(value).get(name), given, depth) in given[place]
    }


def _has_value(cell: Any) -> bool:
    """Return whether a cell of a closure has a value yet."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _pickle_components(value: Any) -> list[Any]:
    """Return the contents of a value's pickle; empty if it cannot be pickled."""
    try:
        _, *held = value.__reduce_ex__(4)
        return [part if isinstance(part, (tuple, dict)) else list(part) for part in held if part]
    except Exception as error:
        if is_alarm(error):
            raise
        return []


def _shape_may_vary(held: dict[str, Any]) -> Callable[[str], tuple[bool, str]]:
    plain = (bool, int, float, np.number, np.bool_, np.ndarray)
    return lambda name: (not isinstance(held[name], plain), name)
