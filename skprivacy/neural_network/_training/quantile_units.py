"""Features of quantiles, which a perceptron learns from as boosted trees do; without privacy only.

A column of many values has a step between any two neighbouring quantiles and a bump on each: a
smooth form of the piecewise linear encoding of Gorishniy et al. (2022), "On embeddings for
numerical features in tabular deep learning". Steps are tanh units and bumps their differences, so a
network of the features equals a perceptron of the records with one more layer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .mapped_rows import MappedRows

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
    """Return units for the quantiles of rows; None for very many columns, or without numbers.

    A column of at most two values has one step, and no bump.
    """
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
    """Return centre and slope of a step for each pair of neighbouring quantiles of the values.

    A value counts by the root of its frequency, so that a frequent one leaves quantiles to others.
    """
    below = np.cumsum(np.sqrt(counts))
    at = np.searchsorted(below, below[-1] * np.linspace(0, 1, most + 1))
    edges = values[np.unique(np.minimum(at, len(values) - 1))]
    gaps = np.maximum(np.diff(edges), _LEAST_GAP * (values[-1] - values[0]))
    return (edges[1:] + edges[:-1]) / 2, _SLOPE / gaps
