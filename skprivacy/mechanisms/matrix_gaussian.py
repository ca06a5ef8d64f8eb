"""MatrixGaussian: correlated noise of DP-FTRL, by matrix factorisation or tree aggregation.

Denisov et al., "Improved differential privacy for SGD via optimal private linear operators on
adaptive streams", NeurIPS 2022; Kairouz et al., "Practical and private (deep) learning without
sampling or shuffling", ICML 2021.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._validation import check_flat, is_tensor
from ..accounting.events import (
    BandedFactorizationEvent,
    MatrixFactorizationEvent,
    TreeAggregationEvent,
)
from ..accounting.events.matrix_factorization import last_step_deviation
from .base import Mechanism
from .float_noise import check_finite, check_noise
from .secure_random import SecureRandom

if TYPE_CHECKING:
    from .chacha import DeviceRandom

    Random = SecureRandom | DeviceRandom

_CHUNK = 1 << 16  # numbers of noise computed at a time
# Single precision keeps four digits of a step's fresh noise next to earlier noise of this size.
_MOST_SPREAD = 1e3


@dataclass(frozen=True)
class MatrixGaussian(Mechanism):
    """Add the noise of a matrix factorisation to the vectors of a stream, one by one, in place.

    Parameters
    ----------
    run : MatrixFactorizationEvent
        The event that accounts for all releases together. Each ``release`` is one of its steps.
    sensitivity : float
        L2 norm of one record's contribution to one vector: the clipping norm.

    Notes
    -----
    **Guarantees.** Release t adds row t of C^-1 z, where C is the matrix of ``run``, or for a tree
    the difference of its noisy running sums. The z are independent normal numbers of standard
    deviation ``run.noise_multiplier * sensitivity``. All releases together are accounted as
    ``run``, if each record is in the same batch of every epoch. The caller must ensure this. More
    releases than steps are refused. The numbers are floating point and **not hardened**, as for
    :class:`FloatGaussian`.

    **Edge cases.** As for :class:`FloatGaussian`; all vectors must be on one device. With some
    coefficients, such as (1, 2), C^-1 z grows without bound. They are refused if it would grow more
    than a thousandfold: rounding would swallow the fresh noise of each step, and C times the stream
    would reveal the data. The object stores noise: it cannot be copied, and a reader of its
    memory can remove the noise. A band needs memory for ``len(coefficients) - 1`` vectors of single
    precision. A tree needs one vector for each binary digit of the number of steps.
    """

    arithmetic = "floating_point"

    run: MatrixFactorizationEvent
    sensitivity: float
    _noise: _CorrelatedNoise = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        noise = _noise_of(self.run)
        check_noise(self.noise_multiplier, self.sensitivity)
        object.__setattr__(self, "_noise", noise)

    def __reduce__(self):
        raise TypeError(
            "MatrixGaussian cannot be copied or pickled: two copies would continue with the same "
            "noise. Create a new one for a new stream."
        )

    @property
    def event(self) -> MatrixFactorizationEvent:
        """``run``, which accounts for all releases together, not for a single one."""
        return self.run

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the independent noise z divided by ``sensitivity``."""
        return self.run.noise_multiplier

    def _release(self, value: Any, random: SecureRandom) -> Any:
        check_flat(value)
        if self._noise.step == self.run.n_steps:
            raise RuntimeError(
                f"All {self.run.n_steps} steps of the stream are used. Create a new "
                "MatrixGaussian, accounted for more steps."
            )
        check_finite(value)
        std = float(np.float32(self.noise_multiplier * self.sensitivity))
        if is_tensor(value):
            from .chacha import DeviceRandom

            there = DeviceRandom(random, value.device)
            return value.add_(self._noise.draw(len(value), there), alpha=std)
        noise = self._noise.draw(len(value), random)
        for start in range(0, len(value), _CHUNK):
            value[start : start + _CHUNK] += std * noise[start : start + _CHUNK]
        return value


class _CorrelatedNoise(ABC):
    """Noise of a stream, computed from independent normal numbers of variance 1."""

    step = 0
    size = -1

    def draw(self, size: int, random: Random) -> Any:
        """Return the next step's noise in a reused buffer, on the device of ``random``."""
        if self.step == 0:
            self.size = size
        if size != self.size:
            raise ValueError(
                f"value has {size} numbers; expected {self.size}, as in the earlier vectors of the "
                "stream. Create a new MatrixGaussian for vectors of another length."
            )
        noise = self._next(size, random)
        self.step += 1
        return noise

    @abstractmethod
    def _next(self, size: int, random: Random) -> Any: ...


class _BandedNoise(_CorrelatedNoise):
    """Forward substitution for C y = z: y_t = z_t - sum of c_j y_(t-j), from the last y."""

    def __init__(self, coefficients: tuple[float, ...], n_steps: int) -> None:
        spread = last_step_deviation(np.asarray(coefficients), n_steps)
        if not spread <= _MOST_SPREAD:
            raise ValueError(
                f"coefficients={coefficients!r} make the noise of step {n_steps} {spread:.3g} "
                "times as large as in the first step, too much for single precision. Use "
                "decreasing coefficients, or fewer steps."
            )
        self._behind = np.asarray(coefficients[1:], np.float32)

    def _next(self, size: int, random: Random) -> Any:
        reach = len(self._behind)
        if self.step == 0:
            shape = (max(reach, 1), size)
            self._past: Any = (
                np.zeros(shape, np.float32)
                if isinstance(random, SecureRandom)
                else random.zeros(shape)
            )
        here = self.step % max(reach, 1)
        # Row i of the ring buffer holds the noise of (here - i) steps ago, modulo its length; the
        # row at i = here is the oldest.
        ago = (here - np.arange(reach) - 1) % max(reach, 1)
        weights: Any = self._behind[ago]
        chunk = _CHUNK
        if not isinstance(random, SecureRandom):  # a device computes all numbers at once
            weights, chunk = random.array(weights), max(size, 1)
        for start in range(0, size, chunk):
            part = self._past[:, start : start + chunk]
            fresh = random.normal(part.shape[1])
            if reach:  # row t of C^-1 z (Denisov et al. 2022), by forward substitution
                fresh -= weights @ part
            part[here] = fresh
        return self._past[here]


class _TreeNoise(_CorrelatedNoise):
    """Differences of running sums with one noise per binary digit of the step."""

    def __init__(self) -> None:
        self._parts: dict[int, Any] = {}

    def _next(self, size: int, random: Random) -> Any:
        # Tree aggregation: step t closes a node at the level of its lowest set bit
        done = self.step + 1
        level = (done & -done).bit_length() - 1
        fresh = random.normal(size)
        noise = fresh + 0.0  # a copy
        for lower in range(level):  # the new node replaces the nodes below it
            noise -= self._parts.pop(lower)
        self._parts[level] = fresh
        return noise


def _noise_of(run: MatrixFactorizationEvent) -> _CorrelatedNoise:
    if isinstance(run, BandedFactorizationEvent):
        return _BandedNoise(run.coefficients, run.n_steps)
    if isinstance(run, TreeAggregationEvent):
        return _TreeNoise()
    raise TypeError(
        f"run={run!r} must be a matrix factorisation: BandedFactorizationEvent or "
        "TreeAggregationEvent."
    )
