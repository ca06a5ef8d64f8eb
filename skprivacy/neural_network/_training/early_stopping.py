"""Training without privacy that ends when records held out from it say so.

No guarantee covers such a run, so its first layer may also start from quantiles of the records.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..._groups import Groups
from ...mechanisms import PoissonSampler
from .engine import Peers, Training, WeightAverage
from .mapped_rows import MappedRows

_STEPS_PER_CHECK = 40
_PATIENCE = 12  # checks without a smaller loss after which training ends
_MIN_GAIN = 1e-5  # of the loss, in nats
_N_QUANTILES = 32
_LEAST_GAP = 5e-4  # between quantiles, as a share of the range of a column
_MAX_NUMERIC, _MAX_UNITS = 64, 1024  # columns of more than two values, and units for them
_MAX_ROWS = 20_000  # whose quantiles are computed


class EarlyStoppedTraining(Training):
    """Run without privacy that keeps the averaged weights of the smallest loss on held-out records.

    The share ``config.held_out_share`` of the records, or groups, takes part in no step. Their mean
    loss is computed every 40 steps. The run ends after 12 checks without a smaller one.

    **Guarantees.** None: the weights depend on the held-out records beside ``Mechanism.release``. A
    run with noise is refused.
    """

    def __init__(self, config: Any, *others: Any) -> None:
        if config.noise_multiplier:
            raise ValueError(
                f"noise_multiplier={config.noise_multiplier!r} must be 0 where held-out records "
                "end the training, because no guarantee covers them. Use Training."
            )
        super().__init__(config, *others)
        self._held_out = torch.zeros(0, dtype=torch.bool)
        self._checked: tuple[Tensor, Tensor] | None = None
        self._least, self._best, self._waited = math.inf, self._weights.detach().clone(), 0

    @property
    def n_steps(self) -> int:
        return self._step

    def run(
        self,
        X: Tensor | MappedRows,
        y: Tensor,
        peers: Peers | None = None,
        progress: bool = False,
        groups: Groups | None = None,
    ) -> nn.Module:
        n = len(X) if groups is None else groups.n
        drawn = PoissonSampler(self.config.held_out_share).draw(n, self.random)
        self._held_out = torch.zeros(n, dtype=torch.bool)
        self._held_out[torch.from_numpy(drawn)] = True
        of_rows = self._held_out if groups is None else self._held_out[groups.codes]
        rows = torch.nonzero(of_rows).flatten()
        if len(rows):
            self._checked = X.index_select(0, rows).to(self.device), y[rows].to(self.device)
        return super().run(X, y, peers, progress, groups)

    def step(self, X: Tensor | MappedRows, y: Tensor, drawn: Tensor, peers: Peers) -> None:
        """Move the weights by the records of a batch that are not held out, until the run ends."""
        if self._waited >= _PATIENCE:
            return
        super().step(X, y, drawn[~self._held_out[drawn]], peers)
        if self._step % _STEPS_PER_CHECK == 0 or self._step == self.config.n_steps:
            self._check()

    def _check(self) -> None:
        """Keep the averaged weights if their loss on the held-out records is the smallest."""
        last = self._weights.detach().clone()
        average = self._average.result(last)
        self._weights.data.copy_(average)
        loss = 0.0
        if self._checked is not None:
            with torch.no_grad():
                rows, targets = self._checked
                losses = self._loss(self.module(rows), targets)
                loss = float(losses[losses.isfinite()].mean())
        self._weights.data.copy_(last)
        self._waited += 1
        if self._checked is None or not loss >= self._least - _MIN_GAIN:
            self._least, self._best, self._waited = loss, average.detach().clone(), 0

    def _released_module(self) -> nn.Module:
        self._weights.data.copy_(self._best)
        self._average = WeightAverage(self.config)  # of no step, so that these weights stay
        return super()._released_module()


class QuantileUnits(NamedTuple):
    """Tanh units of a first layer: ``weights`` (n_units, n_features) and ``biases`` (n_units,)."""

    weights: NDArray[np.float32]
    biases: NDArray[np.float32]

    def write(self, module: nn.Module) -> None:
        """Start the first layer of a perceptron from these units."""
        for start, p in zip(self, module.parameters(), strict=False):
            p.data.copy_(torch.from_numpy(start))


def quantile_units(rows: Tensor | MappedRows) -> QuantileUnits | None:
    """Return units that tell quantiles of the rows apart; None for very many columns or no numbers.

    A column of more than two values has a unit between any two neighbouring quantiles, whose slope
    is steep where these are close: a smooth form of the piecewise linear encoding of Gorishniy et
    al. 2022, "On embeddings for numerical features in tabular deep learning". Any other column has
    a unit of slope 1.
    """
    n, width = rows.shape
    some = rows.index_select(0, torch.arange(0, n, -(-n // _MAX_ROWS))).cpu().numpy()
    found = [np.unique(x[np.isfinite(x)], return_counts=True) for x in some.T]
    n_numeric = sum(len(values) > 2 for values, _ in found)
    if not 0 < n_numeric <= _MAX_NUMERIC or width > _MAX_UNITS:
        return None
    most = min(_N_QUANTILES, _MAX_UNITS // n_numeric)
    layers = [
        _between_quantiles(values.astype(np.float64), counts, most)
        if len(values) > 2
        else (np.zeros(1), np.ones(1))
        for values, counts in found
    ]
    column = np.repeat(np.arange(width), [len(centers) for centers, _ in layers])
    centers, slopes = (np.concatenate(parts) for parts in zip(*layers, strict=True))
    weights = np.zeros((len(column), width), np.float32)
    weights[np.arange(len(column)), column] = slopes
    return QuantileUnits(weights, (-slopes * centers).astype(np.float32))


def _between_quantiles(
    values: NDArray[np.float64], counts: NDArray[np.int64], most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return centre and slope of a unit for each pair of neighbouring quantiles of the values.

    A value counts by the root of its frequency, so that a frequent one leaves quantiles to others.
    """
    below = np.cumsum(np.sqrt(counts))
    at = np.searchsorted(below, below[-1] * np.linspace(0, 1, most + 1))
    edges = values[np.unique(np.minimum(at, len(values) - 1))]
    gaps = np.maximum(np.diff(edges), _LEAST_GAP * (values[-1] - values[0]))
    return (edges[1:] + edges[:-1]) / 2, 2.0 / gaps
