"""Replay contract: private data reaches a result only through ``Mechanism.release``.

A fit on D records what every release was given and what it returned. A fit on a neighbour D' gets
the same answers. Then everything but the inputs of the releases must be equal, and the inputs may
differ by at most the sensitivity. ``tests/contracts/neighbors.py`` has the neighbourhoods.
"""

import contextlib
import io
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from skprivacy._groups import Groups
from skprivacy.accounting import ComposedEvent, Event, PrivacyBudget, VoteBlockEvent, epsilon_of
from skprivacy.mechanisms import Exponential, Gaussian, Laplace, Mechanism, RandomizedResponse

from .cases import Case
from .noise_laws import noise_of
from .tape import Tape, recording, replaying

# Sums of single-precision numbers round at 1e-6 of the sensitivity for batches this small.
_ROUNDING = 1 + 1e-6


@dataclass(frozen=True)
class Pair:
    """Two neighbouring data sets, each X, y and perhaps groups."""

    name: str
    data: tuple[Any, ...]
    neighbour: tuple[Any, ...]
    params: dict[str, Any] = field(default_factory=dict)  # of the estimator
    always: int | None = None  # unit of the data that takes part in every step
    extra: int | None = None  # index, among its units, of the unit that only the neighbour has
    most: float = 1.0  # sensitivities by which inputs may differ
    party: int | None = None  # the only party that may send anything else
    around: Callable[[], AbstractContextManager[Any]] = nullcontext  # in which both are fitted


@dataclass(frozen=True)
class Run:
    """The releases of a fit on D, of its replay on D', and the model fitted on D."""

    model: Any
    recorded: Tape
    again: Tape
    pair: Pair

    def releases(self) -> Iterator[tuple[Mechanism, Any, Any, Any]]:
        """Yield each mechanism, its inputs on D and on D', and its output."""
        tapes = self.recorded, self.again
        return zip(
            tapes[0].mechanisms, tapes[0].inputs, tapes[1].inputs, tapes[0].outputs, strict=True
        )


@dataclass(frozen=True)
class Neighbourhood:
    """Pairs of data sets, and a function that refuses or measures a change of the inputs.

    ``allowed`` returns a number for each release, 1 at most: how far its inputs are apart, of what
    is allowed.
    """

    pairs: Callable[..., Iterator[Pair]]
    allowed: Callable[[Run], list[float]]


def replay(case: Case, neighbourhood: Neighbourhood, pairs: Iterable[Pair] | None = None) -> None:
    """Test an estimator on all pairs of a neighbourhood, or on the given ones."""
    reached: list[float] = []
    for pair in neighbourhood.pairs(case) if pairs is None else pairs:
        reached += compare(case.make(**pair.params), pair, neighbourhood.allowed)
    assert max(reached) > case.reaches, "no neighbour comes near the sensitivity: proves nothing"


def compare(model: Any, pair: Pair, allowed: Callable[[Run], list[float]] | None = None) -> Any:
    """Fit on both data sets of a pair, and return how far apart the inputs of each release are."""
    recorded, again = Tape(), Tape()
    blob = pickle.dumps(model)  # both from a copy: then equal words are the same objects in both
    model, other = pickle.loads(blob), pickle.loads(blob)
    with same_rows_drawn(), pair.around():
        with recording(recorded, pair.always), _said() as said:
            fitted(model, *pair.data)
        with replaying(recorded, again, pair.extra), _said() as said_again:
            fitted(other, *pair.neighbour)
    name = pair.name
    assert said == said_again, f"{name}: what is printed or warned depends on the data"
    assert recorded.mechanisms, "nothing passed through a mechanism"
    assert recorded.mechanisms == again.mechanisms, f"{name}: other mechanisms on the neighbour"
    distances = (allowed or within_sensitivity)(Run(model, recorded, again, pair))
    assert fingerprint(model) == fingerprint(other), f"{name}: the result depends on the data"
    return distances


def fitted(model: Any, X: Any, y: Any, groups: Any = None) -> Any:
    """Fit, with groups if there are any: not every estimator takes them."""
    return model.fit(X, y) if groups is None else model.fit(X, y, groups=groups)


@contextmanager
def same_rows_drawn() -> Iterator[None]:
    """Draw the first k records of each group, in place of any: both fits draw the same."""

    def at_most(self: Groups, k: int, random: Any) -> NDArray[np.int64]:
        order = np.argsort(self.codes, kind="stable")
        sizes = self.sizes()
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(order[rank < k])

    with mock.patch.object(Groups, "at_most", at_most):
        yield


# ------------------------------------------------------------------------------- allowed changes


def within_sensitivity(run: Run) -> list[float]:
    """Demand that the inputs of each release lie within its declared sensitivity."""
    distances = []
    for mechanism, a, b, output in run.releases():
        if isinstance(a, np.ndarray):
            assert a.shape == b.shape, f"{run.pair.name}: the shape of a release depends on data"
            assert a.dtype == b.dtype, f"{run.pair.name}: the type of a release depends on data"
            difference = a.astype(float) - b.astype(float)
        else:  # the data itself is given: what counts is the noise that leads to one answer
            difference = noise_of(mechanism, a, output) - noise_of(mechanism, b, output)
        distance = np.linalg.norm(difference.ravel(), norm_of(mechanism))
        assert distance <= run.pair.most * mechanism.sensitivity * _ROUNDING, (
            f"{run.pair.name}: inputs differ by {distance}, declared {mechanism.sensitivity}"
        )
        distances.append(distance / mechanism.sensitivity)
    return distances


def of_one_party(run: Run) -> list[float]:
    """Demand that only one party sends anything else, and within the sensitivity."""
    for _, a, b, _ in run.releases():
        others = np.arange(len(a)) != run.pair.party
        assert len(a) == len(b), f"{run.pair.name}: a party is missing"
        same = np.array_equal(a[others], b[others])
        assert same, f"{run.pair.name}: another party's share depends on the records"
    return within_sensitivity(run)


def cost_of_a_label(run: Run) -> list[float]:
    """Demand that all releases whose inputs differ cost, composed, no more than is claimed."""
    touched: list[Event] = []
    for mechanism, a, b, _ in run.releases():
        if not np.array_equal(a, b):
            _check_labels(mechanism, a, b)
            touched.append(_event_of_labels(mechanism, a))
    if touched:
        cost = epsilon_of(ComposedEvent(tuple(touched)), run.model.delta_, "label")
        assert cost <= run.model.epsilon_ * (1 + 2e-3), f"a label costs {cost}"
    return [1.0] * len(touched) or [0.0]


def _check_labels(mechanism: Mechanism, a: NDArray[Any], b: NDArray[Any]) -> None:
    if isinstance(mechanism, RandomizedResponse):
        assert np.count_nonzero(a != b) == 1, "one label is in several responses"
        return
    distance = np.linalg.norm((a.astype(float) - b.astype(float)).ravel(), norm_of(mechanism))
    assert distance <= mechanism.sensitivity * _ROUNDING, "beyond the sensitivity"


def _event_of_labels(mechanism: Mechanism, counts: NDArray[Any]) -> Event:
    """Return what is released: of noisy votes, the winners."""
    if isinstance(mechanism, Gaussian):
        kind = "gnmax" if np.ndim(counts) == 2 else "threshold"
        noise = mechanism.noise_multiplier * mechanism.sensitivity
        return VoteBlockEvent(kind, noise, len(counts))
    return mechanism.event


def norm_of(mechanism: Mechanism) -> float:
    """Return 1, 2 or infinity: the norm that the sensitivity of a mechanism is measured in."""
    if isinstance(mechanism, Exponential):
        return np.inf
    named = getattr(mechanism, "norm", "l1" if isinstance(mechanism, Laplace) else "l2")
    return int(named[1])


# -------------------------------------------------------------------------- what must be equal


@contextmanager
def _said() -> Iterator[list[str]]:
    """Collect what is printed and warned."""
    said: list[str] = []
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        yield said
    said += [out.getvalue(), err.getvalue(), *(str(w.message) for w in caught)]


class _Pickler(pickle.Pickler):
    """Pickle tensors by their values: torch writes memory addresses; and budgets by their ledger.

    A budget also remembers the last line of the ledger that it has seen, whoever wrote it.
    """

    def reducer_override(self, obj):
        if isinstance(obj, torch.Tensor):
            return bytes, (obj.detach().cpu().numpy().tobytes(),)
        if isinstance(obj, PrivacyBudget):
            return str, (f"{obj.path} {obj._scope}",)
        return NotImplemented


def fingerprint(model: Any) -> bytes:
    """Everything that a fitted model holds, whichever of it is one object in two places."""
    out = io.BytesIO()
    pickler = _Pickler(out)
    pickler.fast = True  # no memo: equal models are equal bytes, also after a copy
    pickler.dump(vars(model))  # skorch's nets pickle their tensors by themselves
    return out.getvalue()
