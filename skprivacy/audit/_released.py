"""The numbers that a fitted model holds and answers with, as one vector."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
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

__all__ = ["adds_up_answers", "numbers_of"]

# Their cost is that of everything that the mechanism answers.
_TELLING_ALL = (
    DiscreteGaussianEvent, DiscreteLaplaceEvent, GaussianEvent, LaplaceEvent, LogisticEvent,
    MatrixFactorization, RandomizedResponseEvent,
)  # fmt: skip
# What is public by itself: the parameters are skipped as well.
_PUBLIC = {"privacy_", "privacy_event_", "epsilon_", "delta_", "n_features_in_", "accountant"}
_ANSWERS = ("predict_proba", "decision_function", "predict", "transform")
_MOST = 20_000  # numbers of a model
_DEPTH = 8


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


def numbers_of(model: Any, probes: Any) -> NDArray[np.float64]:
    """Return all numbers that a model learned, and its answers about some records.

    **Guarantees.** The order is the same for models of one kind. Attributes are read, private ones
    too: whoever has the model has them.

    **Edge cases.** Text is left out, and answers if all of them raise.
    """
    learned = list(_walk(model, set(), _DEPTH))
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


def _walk(value: Any, seen: set[int], depth: int) -> Iterator[NDArray[np.float64]]:
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        yield np.array([float(value)])
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        yield value.astype(float).ravel()
    elif sparse.issparse(value):
        yield from (np.asarray(value.data, float), np.asarray(value.nonzero(), float).ravel())
    elif _is_tensor(value):
        yield value.detach().cpu().double().numpy().ravel()
    elif depth and id(value) not in seen:
        seen.add(id(value))
        for part in _parts(value):
            yield from _walk(part, seen, depth - 1)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _parts(value: Any) -> list[Any]:
    """Return what a value is made of; nothing for what is no container, tree, network or model."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, np.ndarray) and value.dtype == object:
        return list(value.ravel())
    if callable(getattr(value, "state_dict", None)):
        return list(value.state_dict().values())
    if isinstance(value, (type, np.random.RandomState, np.random.Generator)):
        return []
    if callable(value) and not hasattr(value, "fit"):
        return []
    held = _attributes(value)
    params = set(value.get_params(deep=False)) if hasattr(value, "get_params") else set()
    skipped = _PUBLIC | (params if hasattr(value, "fit") else set())
    # Arrays before models and lists, whose sizes may differ from run to run: so they keep places.
    return [held[name] for name in sorted(held, key=_shape_may_vary(held)) if name not in skipped]


def _shape_may_vary(held: dict[str, Any]) -> Callable[[str], tuple[bool, str]]:
    plain = (bool, int, float, np.number, np.bool_, np.ndarray)
    return lambda name: (not isinstance(held[name], plain), name)


def _attributes(value: Any) -> dict[str, Any]:
    if hasattr(value, "__dict__"):
        return dict(vars(value))
    state = value.__getstate__() if type(value).__module__.startswith("sklearn.") else None
    return state if isinstance(state, dict) else {}
