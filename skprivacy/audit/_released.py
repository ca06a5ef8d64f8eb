"""The numbers that a fitted model holds and answers with, as one vector."""

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

__all__ = ["Given", "adds_up_answers", "given_to", "numbers_of"]

# Of a kind of estimator and the name of a parameter: what it was given before the fit, as bytes.
Given = Mapping[tuple[type, str], frozenset[bytes]]

# Their cost is that of everything that the mechanism answers.
_TELLING_ALL = (
    DiscreteGaussianEvent, DiscreteLaplaceEvent, GaussianEvent, LaplaceEvent, LogisticEvent,
    MatrixFactorization, RandomizedResponseEvent,
)  # fmt: skip
# What is public by itself, or costs too much for what an event and its epsilon say as well.
_PUBLIC = {"privacy_", "n_features_in_", "accountant", "random_state", "seed", "random_seed"}
_ANSWERS = ("predict_proba", "decision_function", "predict", "transform")
_MOST = 20_000  # numbers of a model
_DEPTH = 8
_BITS = 1000  # of whole numbers that a float holds
# Code, and generators, whose states tell no more than what was drawn from them.
_SKIPPED = (
    type, ModuleType, BuiltinFunctionType, np.random.RandomState, np.random.Generator,
    random.Random,
)  # fmt: skip


def adds_up_answers(guarantee: PrivacyGuarantee, mechanisms: Sequence[Mechanism]) -> bool:
    """Return whether a claim is one of all answers of mechanisms, released together.

    It is if it adds up the very events of those that answered in a fit, or events that always cost
    what the whole answer does. That of votes is of the winners alone, that of a private selection
    of the best run.
    """

    def tells_all(event: Event) -> bool:
        inner = event.event if isinstance(event, PoissonSampled) else event
        return isinstance(inner, _TELLING_ALL)

    claimed = flatten(guarantee.event)
    return all(map(tells_all, claimed)) or claimed == Counter(m.event for m in mechanisms)


def given_to(model: Any) -> Given:
    """Return the parameters of an estimator, and of those inside them, before it is fitted."""
    params = model.get_params() if hasattr(model, "get_params") else {}
    given: dict[tuple[type, str], set[bytes]] = {}
    for part in [model, *params.values()]:
        for name, value in _params(part).items():
            given.setdefault((type(part), name), set()).add(_content(value, {}, _DEPTH))
    return {place: frozenset(contents) for place, contents in given.items()}


def _params(value: Any) -> dict[str, Any]:
    plain = not hasattr(value, "get_params") or isinstance(value, type)
    return {} if plain else value.get_params(deep=False)


def _content(value: Any, given: Given, depth: int) -> bytes:
    return b"".join(part.tobytes() for part in _walk(value, {}, depth, given))


def numbers_of(model: Any, probes: Any, given: Given | None = None) -> NDArray[np.float64]:
    """Return all numbers that a model learned, and its answers about some records.

    Parameters are public as :func:`given_to` says they were given. A fit may change them: that of a
    pipeline fits its steps, which are parameters. Others, of estimators that a fit makes, are
    skipped.

    **Guarantees.** The order is the same for models of one kind. Attributes are read, private ones
    too, and what a pickle holds of anything else: whoever has the model has them.

    **Edge cases.** Text counts by its length and a digest. Answers are left out if all of them
    raise, and what is beyond some 20,000 numbers.
    """
    learned = list(_walk(model, {}, _DEPTH, given or {}))
    return np.concatenate([np.zeros(0), *learned, _answers(model, probes)])[:_MOST]


def _answers(model: Any, probes: Any) -> NDArray[np.float64]:
    """Return the most telling answers that the model gives."""
    for name in _ANSWERS:
        try:
            said = getattr(model, name)(probes)
        except Exception as error:  # there is no such answer, or none about these records
            if is_alarm(error):
                raise
            continue
        said = np.asarray(said.toarray() if sparse.issparse(said) else said)
        if said.dtype.kind not in "biuf":
            said = np.searchsorted(np.asarray(getattr(model, "classes_", np.unique(said))), said)
        return said.astype(float).ravel()
    return np.zeros(0)


def _walk(
    value: Any, seen: dict[int, Any], depth: int, given: Given
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
        seen[id(value)] = value  # kept: of what is gone, another object may get the id
        for part in _parts(value, given, depth):
            yield from _walk(part, seen, depth - 1, given)


def _digits(value: Any) -> NDArray[np.float64]:
    """Return a scalar as numbers; of text, and of what no float holds, its size and a digest."""
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


def _parts(value: Any, given: Given, depth: int) -> list[Any]:
    """Return what a value is made of; nothing for what holds no data, or keeps it to itself."""
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
    if isinstance(value, FunctionType):  # what it was made with; its module has nothing of a fit
        return [*(cell.cell_contents for cell in value.__closure__ or () if _filled(cell))]
    if isinstance(value, MethodType):
        return [value.__self__]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, _SKIPPED):
        return []
    if not hasattr(value, "__dict__"):
        return _pickled(value)
    held = vars(value)
    skipped = _PUBLIC | _as_given(value, given, depth - 1)
    # Arrays before models and lists, whose sizes may differ from run to run: so they keep places.
    return [held[name] for name in sorted(held, key=_shape_may_vary(held)) if name not in skipped]


def _as_given(value: Any, given: Given, depth: int) -> set[str]:
    """Return the parameters that a fit did not change, or of which nobody knows."""
    places = {name: (type(value), name) for name in _params(value) if hasattr(value, "fit")}
    return {
        name
        for name, place in places.items()
        if place not in given or _content(vars(value).get(name), given, depth) in given[place]
    }


def _filled(cell: Any) -> bool:
    """Return whether a cell of a closure has a value yet."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _pickled(value: Any) -> list[Any]:
    """Return what a pickle of a value would hold; nothing if it refuses."""
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
