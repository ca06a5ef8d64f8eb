"""Who takes part in a training: this process alone, or a group that acts as one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ...accounting import PrivacyBudget, charge
from ...mechanisms import Mechanism, SecureRandom
from .noise import Sampler
from .rows import MappedRows

__all__ = ["Alone", "Peers"]


class Peers(Protocol):
    """The points of a training at which processes that train together must meet."""

    def count(self, inputs: Tensor | MappedRows, targets: Tensor) -> int:
        """Return how many records there are in all processes together."""

    def agree(self, facts: dict[str, str]) -> None:
        """Raise ValueError unless all processes are about to do the same."""

    def same(self, module: nn.Module) -> None:
        """Give all processes the same weights."""

    def charge(
        self, budget: PrivacyBudget | None, *terms: Any
    ) -> AbstractContextManager[int | None]:
        """Charge the budget, once for all processes."""

    def draw(self, sampler: Sampler, n: int, random: SecureRandom) -> NDArray[np.int64]:
        """Return who of this process's ``n`` records takes part in the step."""

    def release(
        self, mechanism: Mechanism, total: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        """Return the noisy sum over all processes, the same in each."""


class Alone:
    """One process."""

    def count(self, inputs: Tensor | MappedRows, targets: Tensor) -> int:
        return len(inputs)

    def agree(self, facts: dict[str, str]) -> None:
        return None

    def same(self, module: nn.Module) -> None:
        return None

    def charge(
        self, budget: PrivacyBudget | None, *terms: Any
    ) -> AbstractContextManager[int | None]:
        return charge(budget, *terms)

    def draw(self, sampler: Sampler, n: int, random: SecureRandom) -> NDArray[np.int64]:
        return sampler.draw(n, random)

    def release(
        self, mechanism: Mechanism, total: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        return mechanism.release(total, random)
