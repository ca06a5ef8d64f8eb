"""DistributedGaussian: Gaussian noise in shares of several parties (Kairouz et al. 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validation import as_array, is_number, whole
from ..accounting import Event, events
from .additive import discrete_gaussian
from .base import NoiseMechanism
from .secure_random import SecureRandom, check_count, check_random

_STEPS = 1 << 36  # largest norm of one contribution, in steps
_MARGIN = 1.0 + 2.0**-20  # covers the difference of a sum of discrete Gaussians from a Gaussian
_LEAST_SHARE = 1 << 16  # least standard deviation of one party's noise, in steps
_MOST_PARTIES = 1 << 26
_MOST_NOISE = 1e15  # noise multipliers from which on no sum fits 64 bits
_ROOM = 1 << 63  # absolute values from which on sums wrap around modulo 2**64
_FARTHEST = 64  # standard deviations, which noise exceeds with probability exp(-2048)


@dataclass(frozen=True)
class DistributedGaussian(NoiseMechanism):
    """Sum of integer vectors of several parties, each of which adds a share of the noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the guaranteed noise, divided by ``sensitivity``. 0: no noise, no
        privacy.
    n_parties : int
        Number of parties that add noise.
    n_untrusted : int, default=0
        Number of parties that may drop out or reveal their noise. The noise of each party is then
        larger: its variance is the guaranteed variance divided by ``n_parties - n_untrusted``.
    n_contributions : int, default=None
        Public bound on the number of contributions in the sum, each of norm up to ``sensitivity``.
        ``None``: one per party.

    Attributes
    ----------
    sensitivity : float
        2**36: the largest L2 norm of a record's (or a party's) addition to the sum, in the integer
        steps of all values.

    Notes
    -----
    **Guarantees.** ``GaussianEvent(noise_multiplier)`` holds for an observer who sees only the sum.
    It also holds if the observer knows what up to ``n_untrusted`` parties have sent and drawn. A
    party adds a discrete Gaussian of tau steps to each number, by exact integer arithmetic, then a
    mask modulo 2**64. The masks of all parties cancel (:meth:`masks`).

    A sum of K discrete Gaussians is nearly a discrete Gaussian. The probability of each value
    differs by a factor within exp(+-10 K exp(-pi**2 tau**2)) (Kairouz et al., 2021), and tau is at
    least 2**16 here. A discrete Gaussian of sigma steps differs from a continuous one that is
    rounded to the grid by a factor within exp(+-k**2 / (24 sigma**4) +- 1 / (8 sigma**2)) at k
    steps. With sigma = 2**36 ``noise_multiplier`` both are 1 +- 1e-19 / ``noise_multiplier**2``
    within 40 sigma, and beyond lies a mass of exp(-800). Rounding is post-processing, so a run is
    accounted as ordinary Gaussian noise, sampled or not.

    The difference for n released numbers is 2e-19 n / ``noise_multiplier**2`` of epsilon and
    exp(-790) n of delta. Increasing the noise by one part in 2**20 outweighs it, unless sampling
    rates are below 1e-6 sqrt(n in one sum). Values are integers: nothing is rounded here, so the
    lowest bits reveal nothing.

    **Edge cases.** A value has a row for each party that answers. Fewer rows than ``n_parties -
    n_untrusted`` would have too little noise and are refused. Parameters with which the sum could
    overflow are refused.

    References
    ----------
    P. Kairouz, Z. Liu and T. Steinke, "The distributed discrete Gaussian mechanism for federated
    learning with secure aggregation", ICML 2021.

    K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning",
    CCS 2017.

    J. H. Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", CCS 2020.
    """

    arithmetic = "exact"

    sensitivity: ClassVar[float] = float(_STEPS)  # type: ignore[misc]  # the same for all

    noise_multiplier: float
    n_parties: int
    n_untrusted: int = 0
    n_contributions: int | None = None

    def __post_init__(self) -> None:
        whole("n_parties", self.n_parties, least=1)
        whole("n_untrusted", self.n_untrusted, least=0)
        if self.n_contributions is not None:
            whole("n_contributions", self.n_contributions, least=1)
        if self.n_parties > _MOST_PARTIES:
            raise ValueError(f"n_parties={self.n_parties!r} must be at most {_MOST_PARTIES}.")
        if self.n_untrusted >= self.n_parties:
            raise ValueError(
                f"n_untrusted={self.n_untrusted!r} must be below n_parties={self.n_parties!r}. "
                "At least one party must add noise that counts."
            )
        if not (is_number(self.noise_multiplier) and 0 <= self.noise_multiplier <= _MOST_NOISE):
            raise ValueError(
                f"noise_multiplier={self.noise_multiplier!r} must be a number from 0 to "
                f"{_MOST_NOISE:g}. Use 0 for no noise."
            )
        if self.noise_multiplier and self._share() < _LEAST_SHARE:
            raise ValueError(
                f"noise_multiplier={self.noise_multiplier!r} is too small for {self.n_parties} "
                f"parties: each would add {self._share()} steps, and the proof needs "
                f"{_LEAST_SHARE}. Use more noise, or a smaller epsilon."
            )
        if self._reach() >= _ROOM:
            raise ValueError(
                f"noise_multiplier={self.noise_multiplier!r} and {self._max_contributions()} "
                "contributions of 2**36 steps could overflow 64 bits. Use a larger epsilon, or "
                "fewer records."
            )

    def _event(self) -> Event:
        return events.GaussianEvent(self.noise_multiplier)

    def _max_contributions(self) -> int:
        return self.n_parties if self.n_contributions is None else self.n_contributions

    def _share(self) -> int:
        """Return the standard deviation of one party's noise, in steps."""
        counted = self.n_parties - self.n_untrusted
        return math.ceil(self.noise_multiplier * _STEPS * _MARGIN / math.sqrt(counted))

    def _reach(self) -> float:
        """Return the largest absolute value that a sum can have."""
        return float(self._max_contributions()) * _STEPS + _FARTHEST * self._share() * math.sqrt(
            self.n_parties
        )

    def share(self, values: ArrayLike, random: SecureRandom) -> NDArray[np.uint64]:
        """Return messages modulo 2**64 without masks: one alone **is not private enough**."""
        return self._share_steps(_as_steps("values", values), random)

    def _share_steps(self, steps: NDArray[np.int64], random: SecureRandom) -> NDArray[np.uint64]:
        check_random(random)
        # Kairouz et al. 2021: each party adds its own discrete Gaussian noise
        noisy = steps.astype(np.uint64)
        if self.noise_multiplier:
            noise = discrete_gaussian(self._share(), steps.size, random)
            noisy += noise.astype(np.uint64).reshape(steps.shape)
        return noisy

    def masks(self, n: int, size: int, random: SecureRandom) -> NDArray[np.uint64]:
        """Return uniform masks (n, size) of ``n`` parties, with sum 0 modulo 2**64.

        Each party shares a key with its next ``n_untrusted // 2 + 1`` neighbours on either side of
        a ring. One adds the numbers of the key, the other subtracts them. Here ``random`` stands
        for the keys.

        **Guarantees.** An observer with all keys of up to ``n_untrusted`` parties learns only the
        sum of the others' messages: the ring stays connected without any ``n_untrusted`` of them.
        """
        check_random(random)
        whole("n", n, least=1)
        check_count("size", size)
        if n > self.n_parties:
            raise ValueError(f"n={n!r} must be at most n_parties={self.n_parties!r}.")
        # Bonawitz et al. 2017: pairwise masks that cancel. Bell et al. 2020: between neighbours.
        masks = np.zeros((n, size), np.uint64)
        for distance in range(1, min(self.n_untrusted // 2 + 1, n // 2) + 1):
            agreed = np.frombuffer(random.random_bytes(8 * n * size), np.uint64).reshape(n, size)
            masks += agreed
            masks -= np.roll(agreed, distance, axis=0)
        return masks

    def total(self, sent: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the sum of the parties' masked messages: the server's whole computation."""
        sent = as_array("sent", sent)
        if sent.dtype != np.uint64:
            raise ValueError(f"sent is of type {sent.dtype}; expected uint64. Pass shares.")
        self._check_answers("sent", sent)
        added: NDArray[np.uint64] = sent.sum(axis=0, dtype=np.uint64)
        return added.view(np.int64)

    def _check_answers(self, name: str, rows: NDArray[Any]) -> None:
        if rows.ndim != 2:
            raise ValueError(
                f"{name} has shape {rows.shape}; expected two dimensions. Pass one row per party "
                "that answers."
            )
        if not self.n_parties - self.n_untrusted <= len(rows) <= self.n_parties:
            raise ValueError(
                f"{name} has {len(rows)} rows, one per party that answers; expected "
                f"{self.n_parties - self.n_untrusted} to {self.n_parties}, since fewer add too "
                "little noise. Raise n_untrusted if more parties may drop out."
            )

    def _release(self, value: Any, random: SecureRandom) -> NDArray[np.int64]:
        steps = _as_steps("value", value)
        self._check_answers("value", steps)
        sent = self._share_steps(steps, random)
        sent += self.masks(len(sent), sent.shape[1], random)
        return self.total(sent)


def _as_steps(name: str, values: Any) -> NDArray[np.int64]:
    steps = as_array(name, values)
    if steps.dtype != np.int64:
        raise ValueError(
            f"{name} has type {steps.dtype}; expected int64. Pass integer steps, with norms of at "
            "most 2**36 per contribution."
        )
    return steps
