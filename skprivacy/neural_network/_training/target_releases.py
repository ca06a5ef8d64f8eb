"""Releases of a regressor beside its steps: the mean target before, and a slope after them.

Noise and clipped gradients make outputs too large. The slope of the targets on the outputs says how
much of them the records support. Start reading at :func:`fit_slope`.
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
# The rest was chosen on the tables of the study of automatic settings.
_LEVELS = 2.0 ** np.arange(-10.0, 1.5, 0.5)  # of magnitudes; half the target's range is 1
_ABOVE = 0.2  # share of records above a level, up to which it is high enough
_ABOVE_NOISE = 2.0  # the same, in standard deviations of the share's noise
_CLIP = 4.0  # at which residuals are clipped, in levels
_ERROR = 0.05  # of a slope, up to which wider bounds cost nothing
_TAIL = 0.025  # shift of a mean by clipping, in units of the clip
_PRIOR_STD = 0.5  # of the slope
_NOISE_SHARE = 0.15  # noise in outputs, in units of its variance after many equal steps
_MEAN_WEIGHT, _OUTPUT_WEIGHT = 0.7, 0.5


def release_mean(
    config: TrainingConfig,
    targets: Floats,
    groups: Groups | None,
    peers: Peers,
    random: SecureRandom,
) -> float:
    """Release the mean of targets in [-1, 1]; with groups, the mean of the groups' means."""
    assert config.target_noise is not None
    weights = _own_weights(len(targets), groups, peers, random)
    total = _release_sums(target_rows, config.target_noise.mean, weights, peers, random, targets)
    return float(np.clip(total[0] / config.n_records, -1.0, 1.0))


def target_rows(targets: Floats) -> Floats:
    """Return targets as rows of one number."""
    return targets[:, None]


def fit_slope(
    training: Training,
    trained: nn.Module,
    data: tuple[Tensor | MappedRows, Floats, Groups | None],
    mean: float,
    peers: Peers,
) -> None:
    """Shrink the last layer of a network trained on ``targets - mean``, and add the mean.

    The levels of outputs and residuals are released first, and bound what is released next.
    """
    X, targets, groups = data
    config, random = training.config, training.random
    assert config.target_noise is not None
    # In double precision, hardly an output depends on the shape of the batch it is computed in.
    double = copy.deepcopy(trained).double()
    outputs = _map_rows(X, lambda rows: double(rows.double()).flatten())
    present = finite_rows(X) & np.isfinite(outputs)
    weights = _own_weights(len(targets), groups, peers, random) * present
    values = np.where(present, outputs, 0.0), targets - mean
    levels = _release_sums(level_rows, config.target_noise.levels, weights, peers, random, *values)
    step = SlopeStep.from_levels(levels, config)
    sums = _release_sums(step.rows, config.target_noise.sums, weights, peers, random, *values)
    slope, offset, shift = step.solve(sums, config, noise_variance(training, X.shape[1]))
    *_, last = (layer for layer in trained.children() if isinstance(layer, nn.Linear))
    with torch.no_grad():
        last.weight.mul_(slope)
        last.bias.sub_(offset).mul_(slope).add_(float(np.clip(mean + shift, -1.0, 1.0)))


def finite_rows(X: Tensor | MappedRows) -> NDArray[np.bool_]:
    """Return which records are finite; the others add nothing to any sum."""
    return _map_rows(X, lambda rows: rows.isfinite().all(dim=1))


def _map_rows(X: Tensor | MappedRows, function: Callable[[Tensor], Tensor]) -> NDArray:
    """Return one value per record, computed on the CPU for some records at a time."""
    with torch.inference_mode():
        parts = torch.arange(len(X)).split(_ROWS_AT_A_TIME)
        return np.concatenate([function(X.index_select(0, i).cpu()).numpy() for i in parts])


def level_rows(outputs: Floats, residuals: Floats) -> Floats:
    """Return one-hot levels of both magnitudes, divided by sqrt(2): rows of norm 1."""
    columns = np.arange(len(_LEVELS))
    hot = [
        np.searchsorted(_LEVELS[:-1], np.abs(x))[:, None] == columns for x in (outputs, residuals)
    ]
    return np.hstack(hot) * math.sqrt(0.5)


@dataclass(frozen=True)
class SlopeStep:
    """Least squares for the mean target and the slope of targets on outputs, from noisy sums.

    Let e and u in [-1, 1] be the residual and the output of a record, divided by ``clip`` and
    ``most`` and clipped. The row (0.7 e, u e, u / 2, u^2 / 2) / sqrt(2) has squared norm
    (0.49 e^2 + u^2 e^2 + (u^2 + u^4) / 4) / 2 <= 0.995.
    """

    most: float
    clip: float

    @classmethod
    def from_levels(cls, sums: Floats, config: TrainingConfig) -> SlopeStep:
        """Return the step whose bounds most records keep, by noisy counts of levels.

        Bounds are wider where the noise allows it, because clipping hides the largest effects.
        """
        assert config.target_noise is not None
        std = math.sqrt(2.0) * config.target_noise.levels / config.n_records
        shares = sums.reshape(2, -1) * math.sqrt(2.0) / config.n_records
        most, level = (_pick_level(x, std) for x in shares)
        clip = _CLIP * level
        # If a fifth of normal outputs are clipped, their mean square is about a third of most^2.
        error = 3.0 * math.sqrt(2.0) * config.target_noise.sums / config.n_records * clip / most
        wider = max(1.0, math.sqrt(_ERROR / error))
        return cls(min(wider * most, 2.0), min(wider * clip, 2.0))

    def rows(self, outputs: Floats, residuals: Floats) -> Floats:
        """Return the row of each record, (n, 4)."""
        u = np.clip(outputs / self.most, -1.0, 1.0)
        e = np.clip(residuals / self.clip, -1.0, 1.0)
        columns = [_MEAN_WEIGHT * e, u * e, _OUTPUT_WEIGHT * u, _OUTPUT_WEIGHT * u**2]
        return np.column_stack(columns) / math.sqrt(2.0)

    def solve(
        self, sums: Floats, config: TrainingConfig, noise_variance: float
    ) -> tuple[float, float, float]:
        """Return the slope, the mean output, and the shift of the mean target."""
        noise = config.target_noise
        assert noise is not None
        std = math.sqrt(2.0) * noise.sums / config.n_records
        weights = [_MEAN_WEIGHT, 1.0, _OUTPUT_WEIGHT, _OUTPUT_WEIGHT]
        e, product, u, square = sums * math.sqrt(2.0) / config.n_records / weights
        u = float(np.clip(u, -1.0, 1.0))
        # The released mean and the mean of clipped residuals, each weighted by its precision.
        own = (noise.mean / config.n_records) ** 2
        other = self.clip**2 * ((std / _MEAN_WEIGHT) ** 2 + _TAIL**2)
        shift = own / (own + other) * self.clip * float(e)
        variance = float(square) - u**2
        std_of_variance = std / _OUTPUT_WEIGHT * math.hypot(1.0, 2.0 * u)
        if variance <= std_of_variance:
            return 0.0, 0.0, shift
        unit = self.clip / self.most / variance
        slope = float(product - u * e) * unit
        error = math.hypot(
            std * math.hypot(1.0, u / _MEAN_WEIGHT) * unit, slope * std_of_variance / variance
        )
        # Normal prior around the factor of James and Stein (1961) for the noise of training
        usual = max(0.0, 1.0 - noise_variance / (variance * self.most**2))
        trust = _PRIOR_STD**2 / (_PRIOR_STD**2 + error**2)
        return float(np.clip(usual + trust * (slope - usual), 0.0, 1.0)), u * self.most, shift


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


def _pick_level(shares: Floats, std: float) -> float:
    """Return the lowest level that few records exceed, by their noisy shares."""
    above = 0.0
    for position in range(len(shares) - 1, 0, -1):
        above += float(shares[position])
        if above > max(_ABOVE, _ABOVE_NOISE * std * math.sqrt(len(shares) - position)):
            return float(_LEVELS[position])
    return float(_LEVELS[0])


def _own_weights(n: int, groups: Groups | None, peers: Peers, random: SecureRandom) -> Floats:
    """Return each record's weight in the sums of this process; a group's weights add up to 1."""
    units = n if groups is None else groups.n
    # Each record is in the sum of one process, as in a step on all of them.
    own = np.zeros(units)
    own[peers.draw(SequentialBatches(sys.maxsize, 1), units, random)] = 1.0
    return own if groups is None else own[groups.codes] * groups.exact_shares()


def _release_sums(
    make_rows: Callable[..., Floats],
    noise: float,
    weights: Floats,
    peers: Peers,
    random: SecureRandom,
    *values: Floats,
) -> Floats:
    """Release weighted sums of the records' rows, whose norms are at most 1.

    **Guarantees.** Weighted rows are rounded towards zero to multiples of 2**-20, so sums below
    2**33 are exact in any order. A record moves them by at most 1, and so does a group: its weights
    add up to at most 1.
    """
    total: Floats = np.zeros(1)
    for start in range(0, max(len(weights), 1), _ROWS_AT_A_TIME):  # a process may have no records
        part = slice(start, start + _ROWS_AT_A_TIME)
        rows = weights[part, None] * make_rows(*(x[part] for x in values))
        total = total + (np.trunc(rows * _GRID) / _GRID).sum(axis=0)
    return peers.release(Gaussian(noise, sensitivity=1.0), total, random)
