"""Independent fits of an estimator as releases of numbers, and the claim of these fits."""

from __future__ import annotations

import math
import random
import secrets
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from .._global_chance import seeded_globally
from ..accounting import ApproxDP, PrivacyGuarantee
from ..mechanisms.base import record_releases
from ._alarms import is_alarm
from ._private import looks_private
from ._released import GivenParameters, covers_all_answers, parameters_before_fit, released_numbers
from .claims import claim_of

__all__ = ["IndependentFits"]

# Sources of noise in other libraries, besides random_state. A clone copies its generator, which
# would draw the same noise in every run.
_SEEDS = ("seed", "random_seed")
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)

_FOREIGN = "epsilon and delta are the estimator's parameters, taken for replaced records"


@dataclass(frozen=True)
class IndependentFits:
    """Fits of clones of an estimator to a data set ``(X, y)``; each fit is a release of numbers.

    Runs are independent: a ``noise_seed`` is removed. An estimator that has one claims that nothing
    else must be secret, so ``random_state`` and the global generators of random, numpy and torch
    are the same in every run. Without one, ``random_state``, a ``seed`` or a generator may drive
    the noise, and every run gets a fresh one. This is decided for each step of a pipeline; if any
    step needs fresh seeds, the global generators are fresh too. Budgets are removed: nothing is
    charged.

    Attributes
    ----------
    estimator : estimator
        Never changed.
    fit_params : mapping
        Further arguments of ``fit``, such as public records. They must not be private.
    stated : PrivacyGuarantee or None
        The claim; None takes the claim of a fitted clone.
    probes : ndarray
        Records for which the model is asked.
    answers : bool
        Whether the answers of mechanisms, from which the model is made, count as released.
    """

    estimator: Any
    fit_params: Mapping[str, Any] = field(default_factory=dict)
    stated: PrivacyGuarantee | None = None
    probes: Any = None
    answers: bool = False

    def __call__(self, data: tuple[Any, Any]) -> NDArray[np.float64]:
        """Fit once and return the released numbers; none if the fit fails.

        An error raised by a signal, such as an alarm, reaches the caller.
        """
        with record_releases() as recorded:
            try:
                model = self.fitted(data)
            except Exception as error:
                if is_alarm(error):
                    raise
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
        """Return the fits with the answers of mechanisms, if the claim is for all of them.

        The second result is the position of each answer in a release, from one fit to ``data``.
        """
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
        with warnings.catch_warnings(), np.errstate(all="ignore"), self._public_chance():
            warnings.simplefilter("ignore")
            model = self._clone()
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
            raise ValueError(
                f"estimator={kind} has {claim.reason}. Pass claim=PrivacyGuarantee(...)."
            )
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
            ApproxDP(float(epsilon), float(delta)),
            at_delta=float(delta) or None,
            relation="replace_one",
            kind="estimate",
            assumptions=(_FOREIGN,),
        )

    def at(self, epsilon: float) -> IndependentFits | None:
        """Return the fits at another epsilon; None if no single parameter sets it."""
        name = self._epsilon_name
        if name is None or self.stated is not None:
            return None
        changed = clone(self.estimator)
        changed.set_params(**{name: float(epsilon)})
        return replace(self, estimator=changed)

    @property
    def epsilon(self) -> float | None:
        """The epsilon among the parameters; None if there are none or several."""
        name = self._epsilon_name
        return None if name is None else float(self.estimator.get_params()[name])

    @property
    def _epsilon_name(self) -> str | None:
        params = self.estimator.get_params()
        found = [
            name
            for name, value in params.items()
            if name.split("__")[-1] == "epsilon"
            and isinstance(value, (int, float))
            and math.isfinite(value)
        ]
        return found[0] if len(found) == 1 else None

    @property
    def changes(self) -> tuple[str, ...]:
        """Parameters that are changed for every run, in words."""
        texts = []
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
        return [_owner(name) for name in params if name.split("__")[-1] == "noise_seed"]

    def _is_public(self, name: str) -> bool:
        """Return whether a seed may be public.

        It may if its estimator, one around it or one inside it has a separate noise source. The
        noise source of a neighbour in a pipeline says nothing about it.
        """
        owner = _owner(name)
        return any(_inside(owner, noisy) or _inside(noisy, owner) for noisy in self._noisy)

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

    def _clone(self) -> Any:
        model = clone(self._prototype)
        if self._seeds:
            model.set_params(**{name: _fresh(value) for name, value in self._seeds.items()})
        return model

    @contextmanager
    def _public_chance(self) -> Iterator[None]:
        """Give global generators the same state in every run if they cannot drive noise."""
        if self._seeds or not self._noisy:
            yield
            return
        with seeded_globally(0):
            yield


def _owner(name: str) -> str:
    """Return the path of the estimator that has a parameter: the name without its last part."""
    return name.rpartition("__")[0]


def _inside(inner: str, outer: str) -> bool:
    return not outer or f"{inner}__".startswith(f"{outer}__")


def _fresh(value: Any) -> Any:
    """Return a fresh generator of the given kind, or a fresh seed for any other value."""
    seed = secrets.randbelow(2**31)
    if isinstance(value, np.random.Generator):
        return np.random.default_rng(seed)
    if isinstance(value, np.random.RandomState):
        return np.random.RandomState(seed)
    return random.Random(seed) if isinstance(value, random.Random) else seed
