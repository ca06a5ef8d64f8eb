"""Who takes part in a training step: this process alone, or a group that acts as one."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..mechanisms import Mechanism, SecureRandom
from ._noise import Sampler

__all__ = ["Alone", "Peers"]


class Peers(Protocol):
    """The two points of a step at which processes that train together must meet."""

    def draw(self, sampler: Sampler, n: int, random: SecureRandom) -> NDArray[np.int64]:
        """Return who of this process's ``n`` records takes part in the step."""

    def release(
        self, mechanism: Mechanism, total: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        """Return the noisy sum over all processes, the same in each."""


class Alone:
    """One process."""

    def draw(self, sampler: Sampler, n: int, random: SecureRandom) -> NDArray[np.int64]:
        return sampler.draw(n, random)

    def release(
        self, mechanism: Mechanism, total: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        return mechanism.release(total, random)
