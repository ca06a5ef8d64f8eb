"""Releases of a regressor beside its steps: the mean target before; slope and mean error after.

Noise and clipped gradients make outputs too large and move their mean. The slope of the targets on
the outputs says how much of them the records support. Start reading at :func:`fit_last_layer`.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..._groups import Groups
from ...mechanisms import Gaussian, SecureRandom
from .engine import Peers, Training
from .mapped_rows import MappedRows
from .training_config import SequentialBatches, TrainingConfig

Floats = NDArray[np.float64]

_GRID = 2.0**20
_ROWS_AT_A_TIME = 1 << 14
# The rest was chosen on the tables of the study of automatic settings, and others like them.
_CLIP = 0.3  # at which errors are clipped, as gradients are; half the target's range is 1
_OUTPUT_STDS = 2.0  # at which outputs are clipped, in standard deviations of their noise
_PRIOR_STD = 0.5  # of the slope
_NOISE_SHARE = 0.75  # noise in outputs, in units of its variance after many equal steps


def release_mean(
    config: TrainingConfig,
    targets: Floats,
    groups: Groups | None,
    peers: Peers,
    random: SecureRandom,
) -> float:
    """Release the mean of targets in [-1, 1]; with groups, the mean of the groups' means."""
    weights = _own_weights(len(targets), groups, peers, random)
    mean = _release_means(target_rows, config, weights, peers, random, targets)
    return float(np.clip(mean[0], -1.0, 1.0))


def target_rows(targets: Floats) -> Floats:
    """Return targets as rows of one number."""
    return targets[:, None]


def fit_last_layer(
    training: Training,
    trained: nn.Module,
    data: tuple[Tensor | MappedRows, Floats, Groups | None],
    mean: float,
    peers: Peers,
) -> None:
    """Shrink the last layer of a network of ``targets - mean``; shift it to the mean."""
    X, targets, groups = data
    config, random = training.config, training.random
    # In double precision, hardly an output depends on the shape of the batch it is computed in.
    double = copy.deepcopy(trained).double()
    outputs = _map_rows(X, lambda rows: double(rows.double()).flatten())
    present = finite_rows(X) & np.isfinite(outputs)
    weights = _own_weights(len(targets), groups, peers, random) * present
    outputs = np.where(present, outputs, 0.0)
    step = SlopeStep(noise_variance(training, X.shape[1]))
    means = _release_means(step.rows, config, weights, peers, random, outputs, targets - mean)
    slope = step.solve(means, config)
    errors = targets - mean - slope * outputs
    shift = _CLIP * _release_means(error_rows, config, weights, peers, random, errors)
    *_, last = (layer for layer in trained.children() if isinstance(layer, nn.Linear))
    with torch.no_grad():
        last.weight.mul_(slope)
        last.bias.mul_(slope).add_(float(np.clip(mean + shift[0], -1.0, 1.0)))


def error_rows(errors: Floats) -> Floats:
    """Return clipped errors as rows of one number in [-1, 1]."""
    return np.clip(errors / _CLIP, -1.0, 1.0)[:, None]


def finite_rows(X: Tensor | MappedRows) -> NDArray[np.bool_]:
    """Return which records are finite; the others add nothing to any sum."""
    return _map_rows(X, lambda rows: rows.isfinite().all(dim=1))


def _map_rows(X: Tensor | MappedRows, function: Callable[[Tensor], Tensor]) -> NDArray:
    """Return one value per record, computed on the CPU for some records at a time."""
    with torch.inference_mode():
        parts = torch.arange(len(X)).split(_ROWS_AT_A_TIME)
        return np.concatenate([function(X.index_select(0, i).cpu()).numpy() for i in parts])


@dataclass(frozen=True)
class SlopeStep:
    """Least squares for the slope of errors on outputs, from noisy means.

    Let u and e in [-1, 1] be the output and the error of a record, each divided by its bound and
    clipped. The row (u e, u^2) / sqrt(2) has a norm of at most 1. Outputs are clipped at the scale
    of their noise, which is public. Larger outputs are signal, and clipping them raises the slope.
    """

    noise_variance: float  # of outputs

    @property
    def bound(self) -> float:
        """Magnitude at which outputs are clipped."""
        return min(_OUTPUT_STDS * math.sqrt(self.noise_variance), _CLIP)

    def rows(self, outputs: Floats, errors: Floats) -> Floats:
        """Return the row of each record, (n, 2)."""
        u = np.clip(outputs / self.bound, -1.0, 1.0)
        return np.column_stack([u * error_rows(errors)[:, 0], u**2]) / math.sqrt(2.0)

    def solve(self, means: Floats, config: TrainingConfig) -> float:
        """Return the slope, in [0, 1]."""
        assert config.target_noise is not None
        std = math.sqrt(2.0) * config.target_noise / config.n_records
        product, square = map(float, means * math.sqrt(2.0))
        square = max(square, std)
        unit = _CLIP / self.bound / square
        slope = product * unit
        error = std * math.hypot(unit, slope / square)
        # Normal prior around the factor of James and Stein (1961) for the noise of training
        usual = max(0.0, 1.0 - self.noise_variance / (square * self.bound**2))
        trust = _PRIOR_STD**2 / (_PRIOR_STD**2 + error**2)
        return float(np.clip(usual + trust * (slope - usual), 0.0, 1.0))


def noise_variance(training: Training, n_features: int) -> float:
    """Return the usual variance of noise in outputs, by public facts; infinite if unknown.

    Gradient descent with step size r and noise of variance v in each coordinate of a gradient ends
    at weights of variance r v / (2 h) in a direction of curvature h = 2 E x^2. A linear model's
    outputs then vary by r v / 4 for each direction. Smaller steps at the end leave less.
    """
    config = training.config
    if config.optimizer != "sgd":
        return math.inf
    rate = training.rate / (1.0 - config.optimizer_params.get("momentum", 0.0))
    noise = config.noise_std * config.max_grad_norm / config.batch_size
    return _NOISE_SHARE * (n_features + 1) * rate * noise**2 / 4.0


def _own_weights(n: int, groups: Groups | None, peers: Peers, random: SecureRandom) -> Floats:
    """Return each record's weight in the sums of this process; a group's weights add up to 1."""
    units = n if groups is None else groups.n
    # Each record is in the sum of one process, as in a step on all of them.
    own = np.zeros(units)
    own[peers.draw(SequentialBatches(sys.maxsize, 1), units, random)] = 1.0
    return own if groups is None else own[groups.codes] * groups.exact_shares()


def _release_means(
    make_rows: Callable[..., Floats],
    config: TrainingConfig,
    weights: Floats,
    peers: Peers,
    random: SecureRandom,
    *values: Floats,
) -> Floats:
    """Release weighted means of the records' rows, whose norms are at most 1.

    **Guarantees.** Weighted rows are rounded towards zero to multiples of 2**-20, so sums below
    2**33 are exact in any order. A record moves them by at most 1, and so does a group: its weights
    add up to at most 1.
    """
    assert config.target_noise is not None
    total: Floats = np.zeros(1)
    for start in range(0, max(len(weights), 1), _ROWS_AT_A_TIME):  # a process may have no records
        part = slice(start, start + _ROWS_AT_A_TIME)
        rows = weights[part, None] * make_rows(*(x[part] for x in values))
        total = total + (np.trunc(rows * _GRID) / _GRID).sum(axis=0)
    released = peers.release(Gaussian(config.target_noise, sensitivity=1.0), total, random)
    return released / config.n_records
