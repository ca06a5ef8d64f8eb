"""Independent fits of an estimator, as releases of numbers, with what they claim."""

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
from ..mechanisms.base import answers
from ._alarms import is_alarm
from ._private import looks_private
from ._released import Given, adds_up_answers, given_to, numbers_of
from .claims import claim_of

__all__ = ["Fits"]

# What noise may be drawn from in other libraries, beside random_state. A clone has a copy of its
# generator, which would draw the same noise in every run.
_SEEDS = ("seed", "random_seed")
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)

_FOREIGN = "epsilon and delta are what the parameters say, for replaced records"


@dataclass(frozen=True)
class Fits:
    """Fits of clones of an estimator to a data set ``(X, y)``; each is a release of numbers.

    Attributes
    ----------
    estimator : estimator
        Never changed.
    fit_params : mapping
        Further arguments of ``fit``, such as public records. They must not be private.
    stated : PrivacyGuarantee or None
        The claim; None: the one that a fitted clone makes.
    probes : ndarray
        Records about which the model is asked.
    answers : bool
        Whether the answers of mechanisms count as released, of which the model is made.

    Notes
    -----
    **Guarantees.** Runs are independent: a ``noise_seed`` is taken out. Where there is one, the
    claim is that nothing else needs to be secret, so ``random_state`` and the global generators of
    random, numpy and torch are the same in every run. Where there is none, ``random_state``, a
    ``seed`` or a generator may drive the noise, and every run gets a fresh one; that is settled
    for each step of a pipeline, and global generators are then fresh for all. Budgets are taken
    out: nothing is charged.
    """

    estimator: Any
    fit_params: Mapping[str, Any] = field(default_factory=dict)
    stated: PrivacyGuarantee | None = None
    probes: Any = None
    answers: bool = False

    def __call__(self, data: tuple[Any, Any]) -> NDArray[np.float64]:
        """Fit once and return the released numbers; none if the fit fails.

        **Edge cases.** What a signal, such as an alarm, raises inside the fit reaches the caller.
        """
        with answers() as told:
            try:
                model = self.fitted(data)
            except Exception as error:
                if is_alarm(error):
                    raise
                return np.zeros(0)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            learned = numbers_of(model, self.probes, self._given)
        return np.concatenate(
            [*(np.ravel(one) for _, one in told), learned] if self.answers else [learned]
        )

    def with_answers(
        self, guarantee: PrivacyGuarantee, data: tuple[Any, Any]
    ) -> tuple[Fits, tuple[slice, ...]]:
        """Return the same with the answers of mechanisms, if the claim is one of all of them.

        With it comes where in a release these stand, one after the other, as one fit to ``data``
        shows.
        """
        with answers() as told:
            self.fitted(data)
        if not adds_up_answers(guarantee, [mechanism for mechanism, _ in told]):
            return self, ()
        ends = np.cumsum([0, *(np.size(one) for _, one in told)]).tolist()
        steps = tuple(slice(start, end) for start, end in pairwise(ends) if start < end)
        return replace(self, answers=True), steps

    def fitted(self, data: tuple[Any, Any]) -> Any:
        """Return a clone that was fitted once."""
        X, y = data
        with warnings.catch_warnings(), np.errstate(all="ignore"), self._public_chance():
            warnings.simplefilter("ignore")
            model = self._clone()
            labels = () if y is None else (y,)
            return model.fit(X, *labels, **self.fit_params)

    def claim(self, data: tuple[Any, Any]) -> PrivacyGuarantee:
        """Return what is claimed.

        Raises
        ------
        ValueError
            If nothing is claimed that could be refuted.
        """
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
            raise ValueError(f"estimator={kind} claims an epsilon of infinity: nothing to refute.")
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

    def at(self, epsilon: float) -> Fits | None:
        """Return the same with another epsilon; None if it is not settled by one parameter."""
        name = self._epsilon_name
        if name is None or self.stated is not None:
            return None
        changed = clone(self.estimator)
        changed.set_params(**{name: float(epsilon)})
        return replace(self, estimator=changed)

    @property
    def epsilon(self) -> float | None:
        """The epsilon among the parameters; None if there is none, or several."""
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
        """What is changed of the estimator for every run, in words."""
        said = []
        for name, value in self.estimator.get_params().items():
            last = name.split("__")[-1]
            if last == "budget" and value is not None:
                said.append(f"{name}=None: the runs are not charged")
            if last == "noise_seed" and value is not None:
                said.append(f"{name}=None: every run has its own noise")
            if name in self._seeds and value is not None:
                said.append(f"{name} is fresh in every run: it may drive the noise")
        return tuple(said)

    @cached_property
    def _noisy(self) -> list[str]:
        """Where the estimators stand whose noise has a source of its own: "" is the outermost."""
        params = self.estimator.get_params()
        return [_owner(name) for name in params if name.split("__")[-1] == "noise_seed"]

    def _is_public(self, name: str) -> bool:
        """Return whether a seed may be known to anybody.

        It may be if noise has a source of its own in the estimator that has the seed, in one around
        it or inside it. That of a neighbour in a pipeline says nothing about its noise.
        """
        owner = _owner(name)
        return any(_inside(owner, noisy) or _inside(noisy, owner) for noisy in self._noisy)

    @cached_property
    def _given(self) -> Given:
        return given_to(self._prototype)

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
        """The parameters that need a fresh seed, or generator, for every run; with their values."""
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
        """Give global generators the same state in every run, if no noise may come from them."""
        if self._seeds or not self._noisy:
            yield
            return
        with seeded_globally(0):
            yield


def _owner(name: str) -> str:
    """Return where the estimator stands that has a parameter: all of the name but the last part."""
    return name.rpartition("__")[0]


def _inside(inner: str, outer: str) -> bool:
    return not outer or f"{inner}__".startswith(f"{outer}__")


def _fresh(value: Any) -> Any:
    """Return a fresh generator like one that is given, or a seed for anything else."""
    seed = secrets.randbelow(2**31)
    if isinstance(value, np.random.Generator):
        return np.random.default_rng(seed)
    if isinstance(value, np.random.RandomState):
        return np.random.RandomState(seed)
    return random.Random(seed) if isinstance(value, random.Random) else seed
