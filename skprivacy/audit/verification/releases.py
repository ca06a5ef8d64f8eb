"""Independent fits of an estimator as releases of numbers, and the claim of these fits.

:func:`released_numbers` collects learned attributes and answers into one vector.
:func:`choose_epsilon` finds the epsilon at which a wrong size of the noise shows in the fewest
runs. Start reading at :class:`IndependentFits`.
"""

from __future__ import annotations

import math
import random
import secrets
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from ..._clones import seed_globally
from ..._validation import is_tensor
from ...accounting import (
    ApproxDPEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    PrivacyGuarantee,
)
from ...accounting.event import flatten
from ...accounting.events import (
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    LogisticEvent,
    RandomizedResponseEvent,
)
from ...accounting.events.matrix_factorization import MatrixFactorizationEvent
from ...mechanisms import Mechanism
from ...mechanisms.base import record_releases
from ..inspection.claims import claim_of
from ..inspection.guarantees import looks_private

# Sources of noise in other libraries, besides random_state. A clone copies its generator, which
# would draw the same noise in every run.
_SEEDS = ("seed", "random_seed")
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
_FOREIGN = "epsilon and delta are the estimator's parameters, taken for replaced records"

# Values of each parameter before the fit, as bytes, by class and parameter name.
GivenParameters = Mapping[tuple[type, str], frozenset[bytes]]
# Events of mechanisms whose cost covers everything that the mechanism answers.
_COVERING_ALL = (
    DiscreteGaussianEvent, DiscreteLaplaceEvent, GaussianEvent, LaplaceEvent, LogisticEvent,
    MatrixFactorizationEvent, RandomizedResponseEvent,
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

# Candidate epsilons, and the target error rate of the best attack that the claim allows. At this
# rate a wrong size of the noise shows in the fewest runs, for any noise.
_EPSILONS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 14.0, 18.0, 24.0, 32.0, 48.0, 64.0)
_TELLING = 0.1
_PLAIN_DELTA = 0.01
_FLAT = 1.05  # error rates within this factor of the least count as equal


@dataclass(frozen=True)
class IndependentFits:
    """Fits of clones of an estimator to a data set ``(X, y)``; each fit is a release of numbers.

    Runs are independent: a ``noise_seed`` is removed. An estimator with this parameter claims that
    nothing else must be secret. So ``random_state`` and the global generators of random, numpy and
    torch are the same in every run. In any other estimator, ``random_state``, a ``seed`` or a
    generator may drive the noise, and is fresh in every run. This is decided for each step of a
    pipeline. If any step needs fresh seeds, the global generators are fresh as well. Budgets are
    removed: nothing is charged.
    """

    estimator: Any  # never changed
    fit_params: Mapping[str, Any] = field(default_factory=dict)  # public
    stated: PrivacyGuarantee | None = None  # None: the claim of a fitted clone
    probes: Any = None  # records for which the model is asked
    answers: bool = False  # whether the answers of mechanisms count as released
    set_delta: tuple[str, ...] = ()  # a change of delta, in words

    def __call__(self, data: tuple[Any, Any]) -> NDArray[np.float64]:
        """Fit once and return the released numbers; none if the fit fails."""
        with record_releases() as recorded:
            try:
                model = self.fitted(data)
            except TimeoutError:  # of an alarm of the caller
                raise
            except Exception:
                return np.zeros(0)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            learned = released_numbers(model, self.probes, self._given_params)
        return np.concatenate(
            [*(np.ravel(one) for _, one in recorded), learned] if self.answers else [learned]
        )

    def with_answers(
        self, guarantee: PrivacyGuarantee, data: tuple[Any, Any]
    ) -> tuple[IndependentFits, tuple[slice, ...]]:
        """Return fits with mechanisms' answers, if claimed, and the position of each answer."""
        with record_releases() as recorded:
            self.fitted(data)
        if not covers_all_answers(guarantee, [mechanism for mechanism, _ in recorded]):
            return self, ()
        ends = np.cumsum([0, *(np.size(one) for _, one in recorded)]).tolist()
        steps = tuple(slice(start, end) for start, end in pairwise(ends) if start < end)
        return replace(self, answers=True), steps

    def fitted(self, data: tuple[Any, Any]) -> Any:
        """Return a clone after one fit."""
        X, y = data
        # Global generators have the same state in every run if they cannot drive noise.
        public = nullcontext() if self._seeds or not self._noisy else seed_globally(0)
        with warnings.catch_warnings(), np.errstate(all="ignore"), public:
            warnings.simplefilter("ignore")
            model = clone(self._prototype)
            if self._seeds:
                model.set_params(**{name: _renew(value) for name, value in self._seeds.items()})
            labels = () if y is None else (y,)
            return model.fit(X, *labels, **self.fit_params)

    def claim(self, data: tuple[Any, Any]) -> PrivacyGuarantee:
        """Return the claim; raise ValueError if there is none that could be refuted."""
        if self.stated is not None:
            return self.stated
        model = self.fitted(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            claim = claim_of(model, data[0])
        found = claim.guarantee or self._of_parameters(model)
        kind = type(self.estimator).__name__
        if found is None:
            raise ValueError(f"estimator={kind} has {claim.reason}. Pass claim=(epsilon, delta).")
        if math.isinf(found.epsilon()):
            raise ValueError(
                f"estimator={kind} claims an epsilon of infinity, which nothing can refute. Set a "
                "finite epsilon."
            )
        return found

    def _of_parameters(self, model: Any) -> PrivacyGuarantee | None:
        epsilon = model.epsilon if looks_private(model) else None
        delta = getattr(model, "delta", 0.0)
        if not isinstance(epsilon, (int, float)) or not isinstance(delta, (int, float)):
            return None
        return PrivacyGuarantee(
            ApproxDPEvent(float(epsilon), float(delta)),
            at_delta=float(delta) or None,
            relation="replace_one",
            kind="estimate",
            assumptions=(_FOREIGN,),
        )

    def at(self, epsilon: float) -> IndependentFits | None:
        """Return the fits at another epsilon; None if no single parameter sets it."""
        names = [
            name
            for name, value in self.estimator.get_params().items()
            if name.split("__")[-1] == "epsilon"
            and isinstance(value, (int, float))
            and math.isfinite(value)
        ]
        if len(names) != 1 or self.stated is not None:
            return None
        changed = clone(self.estimator).set_params(**{names[0]: float(epsilon)})
        return replace(self, estimator=changed)

    def at_plain_delta(self, data: tuple[Any, Any]) -> IndependentFits:
        """Return the fits at a larger delta if they claim one point (epsilon, delta) and accept it.

        Noise violates such a claim in a share of about delta of the runs: at delta 1e-5, halved
        noise takes 17 times as many runs to detect as at 0.01.
        """
        small = [
            name
            for name, value in self.estimator.get_params().items()
            if name.split("__")[-1] == "delta"
            and isinstance(value, (int, float))
            and 0 < value < _PLAIN_DELTA
        ]
        if len(small) != 1 or not isinstance(self.claim(data).event, ApproxDPEvent):
            return self
        model = clone(self.estimator).set_params(**{small[0]: _PLAIN_DELTA})
        text = f"{small[0]}={_PLAIN_DELTA:g}: mistakes about one point show where delta is large"
        larger = replace(self, estimator=model, set_delta=(text,))
        try:
            larger.claim(data)
        except Exception:
            return self
        return larger

    @property
    def changes(self) -> tuple[str, ...]:
        """Parameters that are changed for every run, in words."""
        texts = [*self.set_delta]
        for name, value in self.estimator.get_params().items():
            last = name.split("__")[-1]
            if last == "budget" and value is not None:
                texts.append(f"{name}=None: the runs are not charged")
            if last == "noise_seed" and value is not None:
                texts.append(f"{name}=None: every run has its own noise")
            if name in self._seeds and value is not None:
                texts.append(f"{name} is fresh in every run: it may drive the noise")
        return tuple(texts)

    @cached_property
    def _noisy(self) -> list[str]:
        """Paths of estimators with a noise source besides their seeds; "" is the outermost."""
        params = self.estimator.get_params()
        return [_owner_of(name) for name in params if name.split("__")[-1] == "noise_seed"]

    def _is_public(self, name: str) -> bool:
        """Return whether a seed may be public.

        It may if its estimator, one around it or one inside it has a separate noise source. The
        noise source of a neighbour in a pipeline says nothing about it.
        """
        owner = _owner_of(name)
        return any(_holds(owner, noisy) or _holds(noisy, owner) for noisy in self._noisy)

    @cached_property
    def _given_params(self) -> GivenParameters:
        return parameters_before_fit(self._prototype)

    @cached_property
    def _prototype(self) -> Any:
        model = clone(self.estimator)
        changes: dict[str, Any] = {}
        for name, value in model.get_params().items():
            last = name.split("__")[-1]
            if last in ("budget", "noise_seed") and value is not None:
                changes[name] = None
            elif last == "random_state" and value is None and self._is_public(name):
                changes[name] = 0
        return model.set_params(**changes) if changes else model

    @cached_property
    def _seeds(self) -> dict[str, Any]:
        """Parameters that need a fresh seed or generator in every run, with their values."""
        return {
            name: value
            for name, value in self.estimator.get_params().items()
            if (
                (last := name.split("__")[-1]) == "random_state"
                or (last in _SEEDS and value is not None)
                or isinstance(value, _GENERATORS)
            )
            and not self._is_public(name)
        }


def covers_all_answers(guarantee: PrivacyGuarantee, mechanisms: Sequence[Mechanism]) -> bool:
    """Return whether a claim covers all answers of mechanisms, released together.

    It does if it sums the events of exactly the mechanisms that answered in a fit, or only events
    whose cost always covers the whole answer. The event of a vote covers the winners only, and the
    event of a private selection covers the best run only.
    """

    def covers_all(event: Event) -> bool:
        inner = event.event if isinstance(event, PoissonSampledEvent) else event
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


def released_numbers(
    model: Any, probes: Any, given: GivenParameters | None = None
) -> NDArray[np.float64]:
    """Return all numbers that a model learned, and its answers for the probe records.

    A parameter is skipped if it still has its value from ``given``. Private attributes and the
    pickles of other objects are read, because a recipient of the model has them all. The order is
    the same for all models of one kind. Text counts by its length and a checksum.
    """
    learned = list(_walk(model, {}, _DEPTH, given or {}))
    return np.concatenate([np.zeros(0), *learned, _collect_answers(model, probes)])[:_MOST]


def choose_epsilon(
    fits: IndependentFits, data: tuple[Any, Any], epsilon: float | None
) -> tuple[IndependentFits, PrivacyGuarantee]:
    """Return the fits at the requested epsilon, or at the most sensitive one, with their claim.

    Fits without a single parameter ``epsilon``, or with a stated claim, are returned unchanged.
    """
    if epsilon is not None:
        changed = fits.at(epsilon)
        if changed is None:
            raise ValueError(
                f"epsilon={epsilon!r} cannot be set, because the estimator does not have exactly "
                "one parameter of this name, or claim was given. Leave epsilon=None."
            )
        return changed, changed.claim(data)
    if fits.at(1.0) is not None:
        fits = fits.at_plain_delta(data)
    options = [(fits, fits.claim(data))]
    for value in _EPSILONS if fits.at(1.0) is not None else ():
        changed = fits.at(value)
        assert changed is not None
        options.append((changed, changed.claim(data)))
    errors = [_find_error_rate(guarantee) for _, guarantee in options]
    least = min(errors)
    if least > _TELLING:  # no epsilon reaches the target
        enough = [i for i, error in enumerate(errors) if error <= _FLAT * least]
        return options[min(enough, key=lambda i: options[i][1].epsilon())]
    return options[int(np.argmin(np.abs(np.log(np.maximum(errors, 1e-9) / _TELLING))))]


def _owner_of(name: str) -> str:
    """Return the path of the estimator that has a parameter: the name without its last part."""
    return name.rpartition("__")[0]


def _holds(inner: str, outer: str) -> bool:
    return not outer or f"{inner}__".startswith(f"{outer}__")


def _renew(value: Any) -> Any:
    """Return a fresh generator of the given kind, or a fresh seed for any other value."""
    seed = secrets.randbelow(2**31)
    if isinstance(value, np.random.Generator):
        return np.random.default_rng(seed)
    if isinstance(value, np.random.RandomState):
        return np.random.RandomState(seed)
    return random.Random(seed) if isinstance(value, random.Random) else seed


def _params(value: Any) -> dict[str, Any]:
    plain = not hasattr(value, "get_params") or isinstance(value, type)
    return {} if plain else value.get_params(deep=False)


def _as_bytes(value: Any, given: GivenParameters, depth: int) -> bytes:
    return b"".join(part.tobytes() for part in _walk(value, {}, depth, given))


def _collect_answers(model: Any, probes: Any) -> NDArray[np.float64]:
    """Return the answers of the most detailed prediction method that works."""
    for name in _ANSWERS:
        try:
            output = getattr(model, name)(probes)
        except TimeoutError:
            raise
        except Exception:  # the model lacks this method, or cannot answer these records
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
        yield _read_digits(value)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biufcmM":
        plain = value.view(np.int64) if value.dtype.kind in "mM" else value
        pair = (plain.real, plain.imag) if plain.dtype.kind == "c" else (plain,)
        yield from (part.astype(float).ravel() for part in pair)
    elif sparse.issparse(value):
        yield from (np.asarray(value.data, float), np.asarray(value.nonzero(), float).ravel())
    elif is_tensor(value):
        yield value.detach().cpu().double().numpy().ravel()
    elif depth and id(value) not in seen:
        seen[id(value)] = value  # a reference, so that no other object gets this id
        for part in _list_components(value, given, depth):
            yield from _walk(part, seen, depth - 1, given)


def _read_digits(value: Any) -> NDArray[np.float64]:
    """Return a scalar as numbers; text and huge integers as a size and a checksum."""
    if isinstance(value, (str, bytes)):
        text = value.encode(errors="surrogatepass") if isinstance(value, str) else value
        return np.array([len(text), zlib.crc32(text)], float)
    if isinstance(value, (complex, np.complexfloating)):
        return np.array([value.real, value.imag], float)
    if isinstance(value, int) and value.bit_length() > _BITS:
        return np.array([value.bit_length(), value % (1 << 53)], float)
    return np.array([float(value)])


def _list_components(value: Any, given: GivenParameters, depth: int) -> list[Any]:
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
    plain = (bool, int, float, np.number, np.bool_, np.ndarray)
    names = sorted(held, key=lambda name: (not isinstance(held[name], plain), name))
    return [held[name] for name in names if name not in skipped]


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
    except Exception:
        return []


def _find_error_rate(guarantee: PrivacyGuarantee) -> float:
    """Return the error rate, equal for both kinds of error, of the best attack of a claim."""
    rates = np.geomspace(1e-6, 0.5, 200)
    # Equal error rates: FPR = FNR on the claimed trade-off curve.
    return float(rates[np.argmax(guarantee.tpr_bound(rates) >= 1 - rates)])
