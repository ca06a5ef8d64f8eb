"""Canaries in gradient space: records with a long gradient in one weight each (Nasr et al. 2023).

The estimators' own engine trains: canaries are rows of its data, drawn by its sampler, clipped,
summed and released like all others. This file only defines their gradients, and the watcher that
sees the noisy sums.

Nasr et al., "Tight auditing of differentially private machine learning", USENIX Security 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..._groups import Groups
from ...mechanisms import Mechanism, SecureRandom
from .._gradients.contributions import Contribution
from .._gradients.group_batches import GroupedExamples
from .._gradients.trial import PerExampleGradients
from .engine import Peers, SingleProcess, Training
from .mapped_rows import MappedRows
from .training_config import Sampler, TrainingConfig

Float64Array = NDArray[np.float64]

_CANARY_NORM = 10.0  # norm of a canary's gradient in clipping norms, so that missing clipping shows
_MAX_CANARIES = 1 << 23  # single-precision numbers between two powers of two
_LARGEST_FEATURE = 2.0**46  # largest first feature: training treats numbers beyond 1e15 as infinite


@dataclass(frozen=True)
class CanaryCode:
    """Encoding of canaries as rows, recognisable by their first feature.

    ``start`` is a power of two beyond the first feature of every record. Canary i has ``start``
    times ``1 + i / 2**23`` there, which is exact in single precision, and zeros elsewhere.

    **Edge cases.** An absent canary is a row of NaN, which has no finite gradient: under zero-out,
    a record that contributes nothing.
    """

    start: float

    @classmethod
    def beyond(cls, first: NDArray[Any]) -> CanaryCode:
        """Return a code that no record with such a first feature matches."""
        first = np.asarray(first, dtype=float)
        largest = float(np.abs(first[np.isfinite(first)]).max(initial=1.0))
        if largest > _LARGEST_FEATURE:
            raise ValueError(
                f"X exceeds {_LARGEST_FEATURE:g} in its first feature, which numbers the canaries "
                "above all records. Scale the features."
            )
        return cls(2.0 ** (math.frexp(largest)[1] + 1))

    def rows(self, present: NDArray[np.bool_], n_features: int) -> Float64Array:
        """Return a row for each canary."""
        rows = np.zeros((len(present), n_features))
        rows[:, 0] = self.start * (1.0 + np.arange(len(present)) / _MAX_CANARIES)
        rows[~present] = np.nan
        return rows

    def find_canaries(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return a mask of the rows that are canaries, and the numbers of these canaries."""
        first = inputs[:, 0]
        is_canary = (first >= self.start) & (first < 2 * self.start)
        numbers = (first[is_canary] / self.start - 1.0) * _MAX_CANARIES
        return is_canary, numbers.round().long()


class CanaryGradients:
    """Per-example gradients; canaries have one of ``length`` in a weight that ``clean`` watches."""

    def __init__(
        self,
        others: PerExampleGradients,
        code: CanaryCode,
        grad: Tensor,
        weights: Tensor,
        length: float,
    ) -> None:
        self.name = others.name
        self.grad = grad
        self.weights = weights
        self.length = length
        self.clean = torch.zeros(len(weights), dtype=torch.float64, device=grad.device)
        self._others = others
        self._code = code

    def __call__(self, inputs: Tensor, targets: Tensor) -> list[Contribution]:
        is_canary, numbers = self._code.find_canaries(inputs)
        blank = inputs.masked_fill(is_canary[:, None], 0.0)
        *rest, last = [c.without(is_canary) for c in self._others(blank, targets)]
        before = self.grad[self.weights]
        return [*rest, _WithCanaries(last, self, is_canary, numbers, before)]


@dataclass
class _WithCanaries:
    """Last layer's contributions of records and of canaries."""

    records: Contribution
    to: CanaryGradients
    is_canary: Tensor
    numbers_of_canaries: Tensor
    before: Tensor  # ``to.grad`` at the canaries' weights, before any layer added to it

    def squared_norms(self) -> Tensor:
        return self.records.squared_norms().masked_fill(self.is_canary, self.to.length**2)

    def add_sum(self, factors: Tensor) -> None:
        self.records.add_sum(factors)
        to = self.to
        to.clean += to.grad[to.weights].double() - self.before
        # Nasr et al. 2023: a canary gradient is zero except in one weight
        theirs = to.length * factors[self.is_canary].to(to.grad.dtype)
        to.grad.index_add_(0, to.weights[self.numbers_of_canaries], theirs)

    def joint_norms(self, shares: GroupedExamples) -> Tensor:
        found = self.records.joint_norms(shares)
        alone = shares.n_single_examples
        if self.is_canary[alone:].any():
            raise ValueError("A canary shares its group with other rows. Give it its own group.")
        found[:alone].masked_fill_(self.is_canary[:alone], self.to.length**2)
        return found

    def without(self, bad: Tensor) -> _WithCanaries:
        kept = ~bad[self.is_canary]
        return _WithCanaries(
            self.records.without(bad),
            self.to,
            self.is_canary & ~bad,
            self.numbers_of_canaries[kept],
            self.before,
        )

    def numbers(self) -> int:
        return self.records.numbers()


class CanaryTraining(Training):
    """A run of the engine with canaries among its rows, observed by ``watcher``.

    **Guarantees.** Canaries are sampled, clipped and released as records are, or as groups of one
    row. The watcher's view of the sums is a function of the noisy sums and of the records that are
    not canaries.
    """

    def __init__(
        self,
        config: TrainingConfig,
        module: nn.Module,
        loss: nn.Module,
        *rest: Any,
        code: CanaryCode,
        n_canaries: int,
        watcher: Watcher,
        public: np.random.Generator,
    ) -> None:
        super().__init__(config, module, loss, *rest)
        n_weights = len(self._sums)
        if n_canaries > n_weights:
            raise ValueError(
                f"n_canaries={n_canaries} exceeds the {n_weights} weights of the network, and each "
                "canary needs its own. Pass fewer, or make the network larger."
            )
        weights = torch.from_numpy(public.permutation(n_weights)[:n_canaries]).to(self.device)
        self._canaries = self._clipped.gradients = CanaryGradients(
            self._clipped.gradients, code, self._sums, weights, _CANARY_NORM * config.max_grad_norm
        )
        self._watcher = watcher

    def run(
        self,
        X: Tensor | MappedRows,
        y: Tensor,
        peers: Peers | None = None,
        progress: bool = False,
        groups: Groups | None = None,
    ) -> nn.Module:
        """Train, observed by the watcher."""
        return super().run(X, y, _Watched(self._canaries, self._watcher), progress, groups)


class Watcher(Protocol):
    """Observer of a run and of the positions of its canaries."""

    def observe_sample(self, indices: NDArray[np.int64], n: int) -> None:
        """Observe which of ``n`` rows, or groups, take part in a step."""

    def observe_release(self, noisy: Float64Array, clean: Float64Array) -> None:
        """Observe the noisy sum at the canaries' weights, and the records' contribution there."""


class _Watched(SingleProcess):
    def __init__(self, canaries: CanaryGradients, watcher: Watcher) -> None:
        self._canaries = canaries
        self._watcher = watcher

    def draw(self, sampler: Sampler, n: int, random: SecureRandom) -> NDArray[np.int64]:
        indices = super().draw(sampler, n, random)
        self._watcher.observe_sample(indices, n)
        return indices

    def release(
        self, mechanism: Mechanism, total: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        noisy = super().release(mechanism, total, random)
        clean, weights = self._canaries.clean.cpu().numpy(), self._canaries.weights.cpu().numpy()
        self._watcher.observe_release(noisy[weights].astype(float), clean.copy())
        self._canaries.clean.zero_()
        return noisy
