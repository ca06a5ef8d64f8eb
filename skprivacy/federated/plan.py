"""Plan of a federated training, and its rounds, simulated: parties, contributions, noisy sums.

It implements DP-FedSGD and DP-FedAvg (McMahan et al. 2018) with distributed discrete Gaussian
noise (Kairouz et al. 2021). A party computes gradients of softmax regression, for each record
or for their mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from scipy.special import expit, softmax

from .._groups import Groups, check_groups, group_labels
from .._input_data import resolve_groups
from .._validation import (
    PlainNumbers,
    flag,
    is_number,
    not_negative,
    positive,
    probability,
    sequence,
    whole,
)
from ..accounting import (
    Event,
    GaussianEvent,
    PoissonSampledEvent,
    RepeatedEvent,
    calibrate_noise_multiplier,
)
from ..accounting.events import NonPrivateEvent
from ..mechanisms import PoissonSampler, SecureRandom
from ..mechanisms.distributed_gaussian import DistributedGaussian

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]
_INWARDS = 1.0 - 2.0**-20  # keeps a vector that is rounded to steps within its norm
_MAX_NUMBERS_IN_MEMORY = 1 << 20  # numbers of records' gradients held in memory at once
_MAX_UNITS = 1 << 24  # the sum of this many contributions does not overflow
_LARGEST = 1e100  # largest absolute feature: products of two do not overflow


@dataclass(frozen=True, kw_only=True)
class FederatedPlan(PlainNumbers):
    """Public facts on which server and parties agree before the first round.

    Parameters
    ----------
    n_features, n_outputs : int
        Size of the linear model: ``n_outputs`` is 1 for two classes, else the number of classes.
    n_parties : int
        Number of parties. All take part in every round.
    n_units : int
        Public number of records, or of parties if these are protected. Sums are divided by it.
    n_rounds : int
        Number of rounds.
    of_parties : bool, default=False
        Whether whole parties are protected and contribute one vector a round. Otherwise each record
        contributes one vector to the rounds in which it takes part.
    sampling_rate : float, default=1.0
        Probability with which a record takes part in a round. Must be 1 for parties, since the
        server sees which parties answer.
    max_grad_norm : float, default=1.0
        L2 norm to which each contribution is clipped.
    noise_multiplier : float, default=0.0
        Standard deviation of the noise of a round, divided by ``max_grad_norm``.
    n_noises : int, default=None
        Number of parties that add noise: 1 if the server does it, ``None`` for all parties.
    n_untrusted : int, default=0
        Number of parties, among those that add noise, whose noise does not count.
    learning_rate : float, default=1.0
        Step size of the first round. It decreases linearly to zero.
    momentum : float, default=0.9
        Momentum of the server's updates, in [0, 1).
    local_steps : int, default=1
        Number of gradient steps of a protected party in a round.
    local_learning_rate : float, default=1.0
        Size of the local steps.

    Notes
    -----
    **Guarantees.** The plan is frozen and made of public facts. Each round releases one noisy sum:
    :attr:`mechanism` adds the noise to the sum of all :meth:`contribution`. :attr:`event` is the
    cost of all rounds, whose weights may be published.

    Examples
    --------
    A round by hand. Each party computes its contribution locally; the mechanism sums and adds the
    noise.

    >>> import numpy as np
    >>> from skprivacy.federated import FederatedPlan
    >>> from skprivacy.mechanisms import SecureRandom
    >>> plan = FederatedPlan(n_features=2, n_outputs=1, n_parties=2, n_units=2, n_rounds=3,
    ...                      of_parties=True, noise_multiplier=1.0)
    >>> weights, velocity = plan.start()
    >>> X, y = np.ones((5, 2)), np.array([0, 1, 1, 1, 1])
    >>> sent = [plan.contribution(weights, X, y) for party in range(plan.n_parties)]
    >>> total = plan.mechanism.release(np.stack(sent), SecureRandom())
    >>> weights, velocity = plan.step(weights, velocity, total, done=0)
    >>> weights.shape
    (1, 3)
    """

    n_features: int
    n_outputs: int
    n_parties: int
    n_units: int
    n_rounds: int
    of_parties: bool = False
    sampling_rate: float = 1.0
    max_grad_norm: float = 1.0
    noise_multiplier: float = 0.0
    n_noises: int | None = None
    n_untrusted: int = 0
    learning_rate: float = 1.0
    momentum: float = 0.9
    local_steps: int = 1
    local_learning_rate: float = 1.0

    def __post_init__(self) -> None:
        for name in ("n_features", "n_outputs", "n_parties", "n_units", "n_rounds", "local_steps"):
            whole(name, getattr(self, name))
        for name in ("max_grad_norm", "learning_rate", "local_learning_rate"):
            positive(name, getattr(self, name))
        probability("momentum", self.momentum)
        if not (is_number(self.sampling_rate) and 0 < self.sampling_rate <= 1):
            raise ValueError(f"sampling_rate={self.sampling_rate!r} must be in (0, 1].")
        if self.n_units > _MAX_UNITS:
            raise ValueError(
                f"n_units={self.n_units!r} must be {_MAX_UNITS} at most: sums of more "
                "contributions could overflow 64 bits."
            )
        flag("of_parties", self.of_parties)
        if self.of_parties and self.sampling_rate < 1:
            raise ValueError(
                f"sampling_rate={self.sampling_rate!r} must be 1 if parties are protected: the "
                "server sees which parties answer, so sampling them hides nothing."
            )
        if not self.of_parties and self.local_steps != 1:
            raise ValueError(
                f"local_steps={self.local_steps!r} must be 1 if records are protected: the effect "
                "of one record on several steps has no known bound. Protect parties instead."
            )
        assert self.mechanism  # raises for noise that it cannot add

    @property
    def mechanism(self) -> DistributedGaussian:
        """Mechanism that sums the contributions of a round and adds the noise."""
        noises = self.n_parties if self.n_noises is None else self.n_noises
        return DistributedGaussian(
            self.noise_multiplier, noises, self.n_untrusted, 2 * max(self.n_units, self.n_parties)
        )

    @property
    def event(self) -> Event:
        """Event of all rounds."""
        return self.event_at(self.noise_multiplier)

    def event_at(self, noise_multiplier: float) -> Event:
        """Return the event of all rounds with another noise.

        Parameters
        ----------
        noise_multiplier : float
            Standard deviation of the noise of a round, divided by ``max_grad_norm``.

        Returns
        -------
        Event
            The composition of all rounds.
        """
        not_negative("noise_multiplier", noise_multiplier)
        if noise_multiplier == 0:
            return NonPrivateEvent()
        # Sampled even for parties, whose rate is 1: the event then relates ``noise_multiplier`` to
        # one contribution, and accounts for two of them if a unit is replaced.
        return RepeatedEvent(
            PoissonSampledEvent(self.sampling_rate, GaussianEvent(noise_multiplier)), self.n_rounds
        )

    def with_noise_for(self, epsilon: float, delta: float, relation: str) -> FederatedPlan:
        """Return a copy with the noise calibrated to a guarantee.

        Parameters
        ----------
        epsilon, delta : float
            Cost of all rounds; an infinite ``epsilon`` means no noise.
        relation : {"zero_out", "add_remove"}
            Neighbouring relation of the guarantee.

        Returns
        -------
        FederatedPlan
            Copy whose :attr:`event` meets the guarantee.
        """
        if is_number(epsilon) and epsilon == math.inf:
            return replace(self, noise_multiplier=0.0)
        positive("epsilon", epsilon)
        noise = calibrate_noise_multiplier(self.event_at, epsilon, delta, relation)
        return replace(self, noise_multiplier=noise)

    def start(self) -> tuple[Floats, Floats]:
        """Return the weights before the first round, all 0, and their velocity.

        Returns
        -------
        weights : ndarray of shape (n_outputs, n_features + 1)
            The last column is the intercept.
        velocity : ndarray of shape (n_outputs, n_features + 1)
            Velocity of the weights.
        """
        shape = (self.n_outputs, self.n_features + 1)
        return np.zeros(shape), np.zeros(shape)

    def contribution(self, weights: Floats, X: NDArray, codes: NDArray[np.int64]) -> Steps:
        """Return the contribution of a party to the sum of a round, before noise.

        Parameters
        ----------
        weights : ndarray of shape (n_outputs, n_features + 1)
            Weights that the server has sent.
        X : ndarray of shape (n_samples, n_features)
            The party's records; if records are protected, the party's sample for this round. It may
            be empty.
        codes : ndarray of int of shape (n_samples,)
            Their classes, numbered from 0.

        Returns
        -------
        ndarray of int64 of shape (n_outputs * (n_features + 1),)
            The contribution in steps of ``max_grad_norm`` / 2**36.

        Notes
        -----
        **Guarantees.** One unit, a record or a party, changes the contribution by at most 2**36
        steps in L2. It is clipped to a norm shorter by one part in 2**20, which exceeds the
        rounding to steps, and integers are summed exactly, in any order.

        **Edge cases.** A record with NaN, infinity or numbers beyond 1e100 adds nothing, and
        neither does a party whose local training diverges.
        """
        if self.of_parties:
            return self._party_contribution(weights, X, codes)
        return self._record_contribution(weights, X, codes)

    def _record_contribution(self, weights: Floats, X: NDArray, codes: NDArray[np.int64]) -> Steps:
        total = np.zeros(weights.size, np.int64)
        rows = max(1, _MAX_NUMBERS_IN_MEMORY // weights.size)
        for begin in range(0, len(X), rows):
            part = slice(begin, begin + rows)
            # McMahan et al. 2018, DP-FedSGD: the gradient of each record, clipped to max_grad_norm
            with np.errstate(all="ignore"):  # weights are unbounded, so scores may overflow
                errors, inputs = gradient_factors(weights, X[part], codes[part])
                norms = np.sqrt((errors**2).sum(axis=1) * (inputs**2).sum(axis=1))
            errors[~np.isfinite(norms)] = 0.0
            norms[~np.isfinite(norms)] = 0.0
            errors *= self._clipping_factors(norms)[:, None]
            each = np.rint(errors[:, :, None] * inputs[:, None, :])
            total += each.astype(np.int64).sum(axis=0).ravel()
        return total

    def _party_contribution(self, weights: Floats, X: NDArray, codes: NDArray[np.int64]) -> Steps:
        fine = usable_rows(X)
        X, codes = X[fine], codes[fine]
        local = weights
        # McMahan et al. 2018, DP-FedAvg: local steps, then clip the update of the party
        with np.errstate(all="ignore"):  # local training may overflow
            for _ in range(self.local_steps):
                local = local - self.local_learning_rate * mean_gradient(local, X, codes)
            update = (weights - local).ravel() / self.local_learning_rate
        if not np.isfinite(update).all() or np.abs(update).max() > 1e100:
            return np.zeros(update.size, np.int64)
        norm = np.sqrt((update**2).sum())
        return np.rint(update * self._clipping_factors(norm)).astype(np.int64)

    def _clipping_factors(self, norms: NDArray) -> NDArray:
        """Return the factors that clip gradients of these norms and convert them to steps."""
        shortened = _INWARDS * DistributedGaussian.sensitivity
        factors: NDArray = shortened / np.maximum(norms, self.max_grad_norm)
        return factors

    def step(
        self, weights: Floats, velocity: Floats, total: Steps, done: int
    ) -> tuple[Floats, Floats]:
        """Return weights and velocity after a round.

        Parameters
        ----------
        weights, velocity : ndarray of shape (n_outputs, n_features + 1)
            Weights and velocity before the round.
        total : ndarray of int64 of shape (n_outputs * (n_features + 1),)
            The noisy sum of all contributions.
        done : int
            Number of earlier rounds.

        Returns
        -------
        weights : ndarray of shape (n_outputs, n_features + 1)
            Weights for the next round.
        velocity : ndarray of shape (n_outputs, n_features + 1)
            Velocity for the next round.
        """
        # McMahan et al. 2018: divide by the expected number of units, which is public
        unit = self.max_grad_norm / DistributedGaussian.sensitivity
        mean = total.reshape(weights.shape) * (unit / (self.n_units * self.sampling_rate))
        velocity = self.momentum * velocity + mean
        size = self.learning_rate * (1.0 - done / self.n_rounds)
        return weights - size * velocity, velocity


def usable_rows(X: NDArray) -> NDArray[np.bool_]:
    """Return which rows are finite and not huge; the other rows count as zero."""
    fine: NDArray[np.bool_] = (np.abs(X) <= _LARGEST).all(axis=1)  # False for NaN
    return fine


def residuals(scores: Floats, codes: NDArray[np.int64]) -> Floats:
    """Return predicted probabilities minus indicators of the true class; one column for two."""
    rest: Floats
    if scores.shape[1] == 1:
        return expit(scores) - codes[:, None]
    rest = softmax(scores, axis=1)
    rest[np.arange(len(codes)), codes] -= 1.0
    return rest


def gradient_factors(
    weights: Floats, X: NDArray, codes: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Return the errors and the inputs of each record; its gradient is their outer product.

    A record's rows depend only on the record and ``weights``, to the last bit: each score is a
    separate sum, whereas a matrix product would order sums by the number of records.
    """
    fine = usable_rows(X)
    inputs = np.ones((len(X), X.shape[1] + 1))
    inputs[:, :-1] = np.where(fine[:, None], X, 0.0)
    scores = (inputs[:, None, :] * weights).sum(axis=2)
    return residuals(scores, codes) * fine[:, None], inputs


def mean_gradient(weights: Floats, X: NDArray, codes: NDArray[np.int64]) -> Floats:
    """Return the mean gradient of usable records, in the shape of ``weights``; 0 without any."""
    if not len(X):
        return np.zeros_like(weights)
    scores = X @ weights[:, :-1].T + weights[:, -1]
    errors = residuals(scores, codes) / len(X)
    return np.column_stack([errors.T @ X, errors.sum(axis=0)])


def check_parties(parties: Any, X: Any, names: Any) -> Groups:
    """Return the party of each record; without ``parties`` each record is a separate party."""
    units = resolve_groups(None, X) if parties is None else check_groups(parties, X, "parties")
    return units if names is None else _index_parties(units, parties, names)


def _index_parties(units: Groups, parties: Any, names: Any) -> Groups:
    if parties is None:
        raise ValueError("party_names is given, but parties is not: pass fit(X, y, parties=...).")
    every = sequence("party_names", names)
    if not all(isinstance(name, str | int | float | np.generic) for name in every):
        raise ValueError(f"party_names={names!r} must be numbers or text, as in parties.")
    if len(set(group_labels(np.array(every, object)))) < len(every):
        raise ValueError(f"party_names={names!r} must name each party once.")
    places = pd.Index(np.array(every, object)).get_indexer(np.asarray(units.names, object))
    if (places < 0).any():
        raise ValueError(
            f"parties has a name which is not in party_names={names!r}. Name all parties, with "
            "the type of their names in parties."
        )
    return Groups(places[units.codes].astype(np.int64), len(every), units.unit, every)


def train_over_parties(
    plan: FederatedPlan,
    X: NDArray,
    codes: NDArray[np.int64],
    parties: NDArray[np.int64],
    random: SecureRandom,
    n_jobs: int | None = None,
) -> NDArray[np.float64]:
    """Return the weights after all rounds, each one release of ``plan.mechanism``.

    The Poisson sample of records is drawn from one generator instead of by each party, with the
    same distribution. The result does not depend on ``n_jobs``.
    """
    mechanism, sampler = plan.mechanism, PoissonSampler(plan.sampling_rate)
    weights, velocity = plan.start()
    grouped = _group_by_party(np.arange(len(X)), parties, plan.n_parties)
    with Parallel(n_jobs=n_jobs, prefer="threads") as workers:
        for done in range(plan.n_rounds):
            if not plan.of_parties:
                grouped = _group_by_party(sampler.draw(len(X), random), parties, plan.n_parties)
            added = _party_contributions(plan, weights, X, codes, grouped, workers)
            if plan.n_noises == 1:  # trusted server: it sees all contributions and adds the noise
                added = added.sum(axis=0, keepdims=True)
            total = mechanism.release(added, random)
            weights, velocity = plan.step(weights, velocity, total, done)
    return weights


def _group_by_party(
    rows: NDArray[np.int64], parties: NDArray[np.int64], n: int
) -> list[NDArray[np.int64]]:
    """Return the ``rows`` of each party, in their order."""
    rows = rows[np.argsort(parties[rows], kind="stable")]
    ends = np.searchsorted(parties[rows], np.arange(n + 1))
    return [rows[begin:end] for begin, end in pairwise(ends)]


def _party_contributions(
    plan: FederatedPlan,
    weights: NDArray[np.float64],
    X: NDArray,
    codes: NDArray[np.int64],
    grouped: Sequence[NDArray[np.int64]],
    workers: Parallel,
) -> NDArray[np.int64]:
    """Return the contribution of each party, of shape (n_parties, n_weights)."""
    added = np.zeros((len(grouped), weights.size), np.int64)

    def some(these: NDArray[np.int64]) -> None:
        for party in these:
            rows = grouped[party]
            if len(rows):
                added[party] = plan.contribution(weights, X[rows], codes[rows])

    shares = np.array_split(np.arange(len(grouped)), effective_n_jobs(workers.n_jobs))
    workers(delayed(some)(these) for these in shares)
    return added
