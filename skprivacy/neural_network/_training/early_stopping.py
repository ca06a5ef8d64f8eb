"""Training without privacy that ends when records held out from it say so."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..._groups import Groups
from ...mechanisms import PoissonSampler
from .engine import Peers, Training, WeightAverage
from .mapped_rows import MappedRows
from .quantile_units import EncodedRows, QuantileUnits
from .training_config import TrainingConfig

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
