"""Canaries in gradient space: records with a long gradient, each in one weight of its own.

The training is the one that estimators run: canaries are rows of its data, drawn by its sampler,
clipped, summed and released with all others. Only what their gradients are is said here, and who
looks at the noisy sums.

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
from .._gradients.people import Shares
from .._gradients.trial import PerExampleGradients
from .config import TrainingConfig
from .engine import Alone, Peers, Training
from .noise import Sampler
from .rows import MappedRows

__all__ = ["CanaryCode", "CanaryTraining", "Watcher"]

Float64Array = NDArray[np.float64]

_LENGTH = 10.0  # of a canary's gradient, in clipping norms: what is not clipped shows
_NUMBERS = 1 << 23  # that single precision tells apart between two powers of two
_LARGEST = 2.0**46  # of a first feature: training takes numbers beyond 1e15 for infinite


@dataclass(frozen=True)
class CanaryCode:
    """The rows that stand for canaries, told from records by their first feature.

    Parameters
    ----------
    start : float
        A power of two beyond the first feature of every record. Canary i has ``start`` times
        ``1 + i / 2**23`` there, which is exact in single precision, and zeros elsewhere.

    Notes
    -----
    **Edge cases.** A canary that is not in the data is a row of NaN, which has no finite gradient:
    under zero-out, a record that contributes nothing.
    """

    start: float

    @classmethod
    def beyond(cls, first: NDArray[Any]) -> CanaryCode:
        """Return a code that no record with such a first feature is taken for."""
        first = np.asarray(first, dtype=float)
        largest = float(np.abs(first[np.isfinite(first)]).max(initial=1.0))
        if largest > _LARGEST:
            raise ValueError(
                f"X holds {largest:g} in its first feature, where canaries are numbered above all "
                f"records, up to {_LARGEST:g}. Scale the features."
            )
        return cls(2.0 ** (math.frexp(largest)[1] + 1))

    def rows(self, there: NDArray[np.bool_], n_features: int) -> Float64Array:
        """Return a row for each canary."""
        rows = np.zeros((len(there), n_features))
        rows[:, 0] = self.start * (1.0 + np.arange(len(there)) / _NUMBERS)
        rows[~there] = np.nan
        return rows

    def found(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return which rows are canaries, and the numbers of these canaries."""
        first = inputs[:, 0]
        is_canary = (first >= self.start) & (first < 2 * self.start)
        numbers = (first[is_canary] / self.start - 1.0) * _NUMBERS
        return is_canary, numbers.round().long()


class CanaryGradients:
    """Per-example gradients with those of canaries in the place of what their rows would have.

    Parameters
    ----------
    others : PerExampleGradients
        Of records.
    code : CanaryCode
    grad : torch.Tensor
        The vector that gradients are added to.
    weights : torch.Tensor
        Where in it each canary has its number.
    length : float
        That number.

    Attributes
    ----------
    clean : torch.Tensor
        What records without canaries added to ``grad`` at ``weights``, since it was last cleared.
    """

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
        is_canary, numbers = self._code.found(inputs)
        blank = inputs.masked_fill(is_canary[:, None], 0.0)
        *rest, last = [c.without(is_canary) for c in self._others(blank, targets)]
        before = self.grad[self.weights]
        return [*rest, _WithCanaries(last, self, is_canary, numbers, before)]


@dataclass
class _WithCanaries:
    """The last layer's share of records, and canaries."""

    records: Contribution
    to: CanaryGradients
    is_canary: Tensor
    numbers_of_canaries: Tensor
    before: Tensor  # what ``to.grad`` held before any layer added to it

    def squared_norms(self) -> Tensor:
        return self.records.squared_norms().masked_fill(self.is_canary, self.to.length**2)

    def add_sum(self, factors: Tensor) -> None:
        self.records.add_sum(factors)
        to = self.to
        to.clean += to.grad[to.weights].double() - self.before
        theirs = to.length * factors[self.is_canary].to(to.grad.dtype)
        to.grad.index_add_(0, to.weights[self.numbers_of_canaries], theirs)

    def joint_norms(self, shares: Shares) -> Tensor:
        found = self.records.joint_norms(shares)
        alone = shares.alone
        if self.is_canary[alone:].any():
            raise ValueError("A canary shares its group with other rows: give it its own.")
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
    """A run of the engine with canaries among its rows, watched by an attacker.

    Parameters
    ----------
    config, module, loss, probe, random
        As of :class:`~.engine.Training`.
    code : CanaryCode
    n_canaries : int
    watcher : Watcher
        Sees what the run does.
    public : numpy.random.Generator
        Says which weight is whose.

    Raises
    ------
    ValueError
        If there are more canaries than weights.

    Notes
    -----
    **Guarantees.** Canaries are sampled, clipped and released as records are; where groups are
    protected, as groups of one row. What the watcher sees
    of the sums is settled by the noisy sums, and by what records that are no canaries add.
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
                f"n_canaries={n_canaries} is more than the {n_weights} weights of the network, of "
                "which each canary takes one. Pass fewer, or make the network larger."
            )
        weights = torch.from_numpy(public.permutation(n_weights)[:n_canaries]).to(self.device)
        self._canaries = self._clipped.gradients = CanaryGradients(
            self._clipped.gradients, code, self._sums, weights, _LENGTH * config.max_grad_norm
        )
        self._watcher = watcher

    def run(
        self,
        X: Tensor | MappedRows,
        y: Tensor,
        peers: Peers | None = None,
        verbose: int = 0,
        groups: Groups | None = None,
    ) -> nn.Module:
        """Train, watched."""
        return super().run(X, y, _Watched(self._canaries, self._watcher), verbose, groups)


class Watcher(Protocol):
    """Who sees what a run does, and where its canaries are in the sums."""

    def drawn(self, indices: NDArray[np.int64], n: int) -> None:
        """See which of ``n`` rows, or groups, take part in a step."""

    def released(self, noisy: Float64Array, clean: Float64Array) -> None:
        """See a noisy sum at the canaries' weights, and what other records contributed there."""


class _Watched(Alone):
    def __init__(self, canaries: CanaryGradients, watcher: Watcher) -> None:
        self._canaries = canaries
        self._watcher = watcher

    def draw(self, sampler: Sampler, n: int, random: SecureRandom) -> NDArray[np.int64]:
        indices = super().draw(sampler, n, random)
        self._watcher.drawn(indices, n)
        return indices

    def release(
        self, mechanism: Mechanism, total: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        noisy = super().release(mechanism, total, random)
        clean, weights = self._canaries.clean.cpu().numpy(), self._canaries.weights.cpu().numpy()
        self._watcher.released(noisy[weights].astype(float), clean.copy())
        self._canaries.clean.zero_()
        return noisy
