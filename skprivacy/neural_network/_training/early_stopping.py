"""Training without privacy on features of quantiles, which ends by held-out records.

A column of many values has a step between any two neighbouring quantiles and a bump on each. This
is a smooth form of the piecewise linear encoding of Gorishniy et al. (2022), "On embeddings for
numerical features in tabular deep learning". Steps are tanh units, and bumps are their differences.
So a network of the features equals a perceptron of the records with one more layer. It learns as
boosted trees do.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..._groups import Groups
from ...mechanisms import PoissonSampler
from .engine import Peers, Training, WeightAverage
from .mapped_rows import MappedRows
from .training_config import TrainingConfig

_MIN_QUANTILES, _MAX_QUANTILES, _ROWS_PER_QUANTILE = 10, 32, 200  # of a column
_LEAST_GAP = 5e-4  # between quantiles, as a share of the range of a column
_SLOPE = 4.0  # of a step, over the gap between its quantiles
_HEIGHT = 3.0  # of a bump; a step rises from -1 to 1
_MAX_NUMERIC, _MAX_UNITS = 64, 1024  # columns of more than two values, and units for them
_MAX_ROWS = 20_000  # whose quantiles are computed


class QuantileUnits(NamedTuple):
    """Steps of columns, and bumps between two steps; steps n and n + 1 are constant, 1 and -1."""

    column: Tensor  # of each of n steps
    slope: Tensor
    bias: Tensor
    left: Tensor  # step at which each bump rises
    right: Tensor  # step at which it falls

    def encode(self, rows: Tensor) -> Tensor:
        """Return steps and bumps of rows."""
        steps = torch.tanh(rows.index_select(1, self.column) * self.slope + self.bias)
        ends = torch.ones(len(rows), 2, dtype=rows.dtype, device=rows.device)
        ends[:, 1] = -1.0
        levels = torch.cat([steps, ends], 1)
        bumps = levels.index_select(1, self.left) - levels.index_select(1, self.right)
        return torch.cat([steps, bumps.mul_(_HEIGHT / 2)], 1)

    def to(self, device: str) -> QuantileUnits:
        return QuantileUnits(*(values.to(device) for values in self))

    def strip(self, module: nn.Sequential) -> nn.Sequential:
        """Return a perceptron of the features with the weights of a perceptron of the records."""
        _, _, second, *others = module
        assert isinstance(second, nn.Linear)
        n, width = len(self.column), len(self.column) + len(self.left)
        first = nn.utils.skip_init(nn.Linear, width, second.out_features)
        # the same random numbers in another order, for weights of bumps
        bumps = second.weight.data.flip(0)[:, self.left % n]
        first.weight.data.copy_(torch.cat([second.weight.data, bumps], 1))
        first.bias.data.copy_(second.bias.data)
        return nn.Sequential(first, *others)

    def restore(self, stripped: nn.Module, width: int) -> nn.Sequential:
        """Return the perceptron of records of this width that equals one of the features."""
        first, *others = stripped.children()
        assert isinstance(first, nn.Linear)
        n = len(self.column)
        steps, second = nn.Linear(width, n), nn.Linear(n, first.out_features)
        steps.weight.data.zero_()
        steps.weight.data[torch.arange(n), self.column] = self.slope
        steps.bias.data.copy_(self.bias)
        of_steps, of_bumps = first.weight.data.double().split([n, len(self.left)], 1)
        levels = torch.cat([of_steps, of_steps.new_zeros(len(of_steps), 2)], 1)
        levels.index_add_(1, self.left, of_bumps, alpha=_HEIGHT / 2)
        levels.index_add_(1, self.right, of_bumps, alpha=-_HEIGHT / 2)
        second.weight.data.copy_(levels[:, :n])
        second.bias.data.copy_(first.bias.data.double() + levels[:, n] - levels[:, n + 1])
        return nn.Sequential(steps, nn.Tanh(), second, *others)


class EncodedRows(MappedRows):
    """Features of rows, computed for each step's rows."""

    def __init__(self, rows: Tensor | MappedRows, units: QuantileUnits) -> None:
        self.rows, self.units = rows, units
        self.device = rows.device
        self.shape = torch.Size((len(rows), len(units.column) + len(units.left)))

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: str) -> EncodedRows:
        return EncodedRows(self.rows.to(device), self.units.to(device))

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """Return the features of the rows with these indices; ``dim`` is 0."""
        return self.units.encode(self.rows.index_select(dim, index))


def find_quantile_units(rows: Tensor | MappedRows) -> QuantileUnits | None:
    """Return units for the quantiles of rows; None for very many columns, or without numbers."""
    n, width = rows.shape
    some = rows.index_select(0, torch.arange(0, n, -(-n // _MAX_ROWS))).cpu().numpy()
    found = [np.unique(x[np.isfinite(x)], return_counts=True) for x in some.T]
    n_numeric = sum(len(values) > 2 for values, _ in found)
    if not 0 < n_numeric <= _MAX_NUMERIC or width > _MAX_UNITS:
        return None
    of_rows = min(max(n // _ROWS_PER_QUANTILE, _MIN_QUANTILES), _MAX_QUANTILES)
    most = min(of_rows, _MAX_UNITS // n_numeric)
    steps = [
        _steps_between_quantiles(values.astype(np.float64), counts, most)
        if len(values) > 2
        else (np.zeros(1), np.full(1, 2.0))
        for values, counts in found
    ]
    sizes = [len(centers) for centers, _ in steps]
    centers, slopes = (np.concatenate(parts) for parts in zip(*steps, strict=True))
    ends = np.array([len(centers), len(centers) + 1])
    left, right = [], []
    for start, size, (values, _) in zip(np.cumsum(sizes) - sizes, sizes, found, strict=True):
        if len(values) > 2:
            levels = np.r_[ends[0], start + np.arange(size), ends[1]]
            left.append(levels[:-1])
            right.append(levels[1:])
    return QuantileUnits(
        torch.from_numpy(np.repeat(np.arange(width), sizes)),
        torch.from_numpy(slopes.astype(np.float32)),
        torch.from_numpy((-slopes * centers).astype(np.float32)),
        torch.from_numpy(np.concatenate(left)),
        torch.from_numpy(np.concatenate(right)),
    )


def _steps_between_quantiles(
    values: NDArray[np.float64], counts: NDArray[np.int64], most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return centre and slope of a step for each pair of neighbouring quantiles of the values."""
    below = np.cumsum(np.sqrt(counts))
    at = np.searchsorted(below, below[-1] * np.linspace(0, 1, most + 1))
    edges = values[np.unique(np.minimum(at, len(values) - 1))]
    gaps = np.maximum(np.diff(edges), _LEAST_GAP * (values[-1] - values[0]))
    return (edges[1:] + edges[:-1]) / 2, _SLOPE / gaps


_STEPS_PER_CHECK = 40
_PATIENCE = 12  # checks without a smaller loss after which training ends
_MIN_GAIN = 1e-5  # of the loss, in nats
# Over n records, the mean gradient of a weight without effect is noise of about sqrt(batch / n) of
# the root mean square that Adam divides by. The penalty, in the same unit, outweighs it in small
# tables. In large ones early stopping suffices, and bias would cost more. Among few columns, most
# have an effect.
_MAX_PENALTY, _PENALTY_TIMES_RECORDS, _MANY_COLUMNS = 0.3, 1000.0, 10


class EarlyStoppedTraining(Training):
    """Run without privacy that keeps the averaged weights of the smallest loss on held-out records.

    The share ``config.held_out_share`` of the records, or groups, takes part in no step. Their mean
    loss is computed every 40 steps. The run ends after 12 checks without a smaller one. With
    ``units``, a perceptron of their features is trained, and returned as one of the records. An L1
    penalty on its first layer drops columns without effect.

    **Guarantees.** None: the weights depend on the held-out records beside ``Mechanism.release``. A
    run with noise is refused.
    """

    def __init__(
        self,
        config: TrainingConfig,
        module: nn.Module,
        *others: Any,
        units: QuantileUnits | None = None,
    ) -> None:
        if config.noise_multiplier:
            raise ValueError(
                f"noise_multiplier={config.noise_multiplier!r} must be 0 where held-out records "
                "end the training, because no guarantee covers them. Use Training."
            )
        self._units = units
        super().__init__(
            config, module if units is None else units.strip(cast(nn.Sequential, module)), *others
        )
        self._first_layer = next(self.module.parameters()).data  # a view of the weights
        width = 0 if units is None else int(units.column[-1]) + 1
        most = min(_MAX_PENALTY, _PENALTY_TIMES_RECORDS / config.n_records)
        self._penalty = most * min(1.0, width / _MANY_COLUMNS)
        self._held_out = torch.zeros(0, dtype=torch.bool)
        self._checked: tuple[Tensor, Tensor] = torch.zeros(0), torch.zeros(0)
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
        width = X.shape[1]
        if self._units is not None:
            X = EncodedRows(X, self._units)
        n = len(X) if groups is None else groups.n
        drawn = PoissonSampler(self.config.held_out_share).draw(n, self.random)
        self._held_out = torch.zeros(n, dtype=torch.bool)
        self._held_out[torch.from_numpy(drawn)] = True
        of_rows = self._held_out if groups is None else self._held_out[groups.codes]
        rows = torch.nonzero(of_rows).flatten()
        self._checked = X.index_select(0, rows).to(self.device), y[rows].to(self.device)
        trained = super().run(X, y, peers, progress, groups)
        return trained if self._units is None else self._units.restore(trained, width).eval()

    def step(self, X: Tensor | MappedRows, y: Tensor, drawn: Tensor, peers: Peers) -> None:
        """Move the weights by the records of a batch that are not held out, until the run ends."""
        if self._waited >= _PATIENCE:
            return
        super().step(X, y, drawn[~self._held_out[drawn]], peers)
        if self._step % _STEPS_PER_CHECK == 0 or self._step == self.config.n_steps:
            self._check()

    def update(self, noisy: Tensor) -> None:
        """Take Adam's step; then, with units, the proximal step of the penalty."""
        super().update(noisy)
        if self._penalty:
            most = self._penalty * self._optimizer.param_groups[0]["lr"]
            self._first_layer.sub_(self._first_layer.clamp(-most, most))

    def _check(self) -> None:
        """Keep the averaged weights if their loss on the held-out records is the smallest."""
        last = self._weights.detach().clone()
        average = self._average.result(last).clone()
        self._weights.data.copy_(average)
        loss = self._held_out_loss()
        self._weights.data.copy_(last)
        self._waited += 1
        if not loss >= self._least - _MIN_GAIN:
            self._least, self._best, self._waited = loss, average, 0

    def _held_out_loss(self) -> float:
        """Return the mean loss; NaN, at which the last weights are kept, if nothing has a loss."""
        rows, targets = self._checked
        with torch.no_grad():
            losses = self._loss(self.module(rows), targets)
        return float(losses[losses.isfinite()].mean())

    def _released_module(self) -> nn.Module:
        self._weights.data.copy_(self._best)
        self._average = WeightAverage(self.config)  # of no step, so that these weights stay
        return super()._released_module()
