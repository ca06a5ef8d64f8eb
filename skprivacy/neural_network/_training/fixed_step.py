"""A step that is the same operations on the same memory, whoever is drawn: for GPUs.

The numbers of the rows go to the device, the sum is made of them, the mechanism releases it, and
the weights are moved by what it released. Nothing comes back and nothing is waited for. The sum and
the move are recorded once and launched as a whole; the release between the two is not: a recording
would repeat its noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...mechanisms import Mechanism, PoissonSampler, SecureRandom
from .._gradients.adaptive import AdaptiveClippingOnDevice
from .._gradients.losses import LabelEntropy, PerExample, SquaredError
from .._gradients.padded import PaddedSum, Table, lengths_for
from .._gradients.trial import Probe
from .optimizers import MomentumSGD
from .recorded import WARM_UPS, Body, close, recorded, room_for
from .rows import MappedRows

if TYPE_CHECKING:
    import numpy as np

    from .._gradients.clipped_sum import BatchSum, ClippedGradientSum
    from .._gradients.clipping import Clip
    from .config import TrainingConfig
    from .noise import Sampler

__all__ = ["FixedStep", "hindrance"]

# Kinds of devices that wait for the processor where a step is not fixed.
FIXED_ON = {"cuda"}
# What surely does the same to any numbers, whenever it is called: the rest is not recorded.
_STEADY = {
    nn.Sequential, nn.Linear, nn.Conv1d, nn.Conv2d, nn.LayerNorm, nn.GroupNorm, nn.Embedding,
    nn.Tanh, nn.ReLU, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Identity,
    nn.Flatten, nn.Unflatten, nn.AvgPool1d, nn.AvgPool2d, nn.MaxPool1d, nn.MaxPool2d,
    nn.CrossEntropyLoss, nn.MSELoss, nn.BCEWithLogitsLoss, LabelEntropy, PerExample, SquaredError,
}  # fmt: skip


def hindrance(training: Run, X: Tensor | MappedRows, alone: bool) -> str | None:
    """Return why a run takes the other way, or ``None`` if its steps can be fixed."""
    config = training.config
    if config.per_group is not None:
        return "groups are protected, whose rows differ in number"
    if config.views is not None:
        return "records are shown as several views"
    if isinstance(X, MappedRows):
        return "the records are not on the device"
    if not alone:
        return "several processes train together"
    if config.noise == "exact":
        return "the noise is made by the processor"
    if training.gradients != "book-keeping":
        return f"the gradients are computed by {training.gradients}"
    return None


class Run(Protocol):
    """What fixed steps take of a run and change in it: see :class:`~.engine.Training`."""

    config: TrainingConfig
    module: nn.Module
    device: str
    gradients: str
    rate: float
    random: SecureRandom
    _average: Any
    _clip: Clip
    _clipped: ClippedGradientSum
    _grad: Tensor
    _loss: nn.Module
    _mechanism: Mechanism
    _optimizer: torch.optim.Optimizer
    _sampler: Sampler
    _step: int
    _sum: BatchSum
    _weights: nn.Parameter

    def update(self, noisy: Tensor) -> None:
        """Move the weights by a sum that was released."""

    def _joined(self, total: Any) -> Any:
        """Return all that is released of a step."""

    def _parted(self, noisy: Any) -> Any:
        """Return the noisy sum out of what was released."""


class FixedStep:
    """The steps of a run on fixed memory.

    Parameters
    ----------
    training : Run
        One without :func:`hindrance`.
    X, y : torch.Tensor of shape (n, ...)
        Records and targets, anywhere.
    probe : Probe
        Public rows that the module understands.

    Raises
    ------
    RuntimeError
        If the sum over the probe's rows is not that of the other way: of public numbers alone.

    Notes
    -----
    **Guarantees.** What is released in a step is what the other way releases, to rounding, by the
    same mechanism, sensitivity and noise, and once. What is recorded is recorded on public rows,
    and is used only if it makes of them what was recorded makes.

    **Edge cases.** A batch that is longer than all lengths is summed the other way, and released
    and used like any. With other optimizers than gradient descent with momentum the move is not
    recorded, nor is a module that has layers of the caller's: both compute as they would otherwise.
    """

    def __init__(self, training: Run, X: Tensor, y: Tensor, probe: Probe) -> None:
        config = training.config
        sampler = training._sampler
        self._training = training
        self._table = Table(X, y, probe, training.device)
        lengths = lengths_for(
            config.batch_size, isinstance(sampler, PoissonSampler) and sampler.rate < 1
        )
        self._sum = PaddedSum(
            training._clipped, training._grad, self._table, float(config.batch_size), lengths[-1]
        )
        self._rows = {n: self._table.of_probe.new_full((n,), self._table.n) for n in lengths}
        room = room_for(self._sum.total.device)
        steady = _is_steady(training.module) and _is_steady(training._loss)
        with _off_zero(training._weights.data):
            self._sums = {n: self._summing(rows, steady, room) for n, rows in self._rows.items()}
        self._move = self._moving(room)

    def __call__(self, drawn: NDArray[np.int64]) -> None:
        """Carry out a step on the records with these numbers."""
        training = self._training
        noisy = training._mechanism.release(self._summed(drawn), training.random)
        if noisy is not self._sum.total:
            self._sum.total.copy_(noisy)
        self._move()

    def finish(self) -> None:
        """Leave the run as its last step would have left it."""
        if isinstance(self._move, Momentum):
            self._move.finish()

    def _summed(self, drawn: NDArray[np.int64]) -> Tensor:
        """Return all that is to be released of the records with these numbers."""
        # The size of the sample chooses how gradients are rounded. Zero-out keeps it; under
        # add-remove no margin is proved for it (SECURITY.md).
        length = next((n for n in self._sums if len(drawn) <= n), None)
        if length is None:
            training = self._training
            return training._joined(training._sum(*self._table.records, torch.from_numpy(drawn)))
        rows = self._rows[length]
        here = torch.full((length,), self._table.n, pin_memory=rows.is_cuda)
        here[: len(drawn)] = torch.from_numpy(drawn)
        rows.copy_(here, non_blocking=True)
        self._sums[length]()
        return self._sum.total

    def _summing(self, rows: Tensor, steady: bool, room: Any) -> Body:
        """Return what sums over the rows named in ``rows``, tried on the probe's."""
        training, total = self._training, self._sum.total
        tried = self._table.of_probe[: len(rows)]
        expected = training._joined(training._sum(self._table.X, self._table.y, tried)).clone()
        rows[: len(tried)] = tried
        add_up = self._sum.over(rows)
        add_up()
        if not close(total, expected):
            raise RuntimeError("the sum over rows that are filled up is another one")
        if steady:
            total.fill_(torch.nan)  # what does nothing is no sum
            add_up = _launched(add_up, [total], room)
        rows.fill_(self._table.n)
        return add_up

    def _moving(self, room: Any) -> Body:
        """Return what moves the weights by the released sum, which stands where the sum stood."""
        training, total = self._training, self._sum.total
        if type(training._optimizer) is MomentumSGD:
            return Momentum(training, total, room)
        return lambda: training.update(training._parted(total))


class Momentum:
    """Gradient descent with momentum, its schedule and its average as one launch.

    Parameters
    ----------
    training : Run
        Whose weights move, as its own optimizer and average would move them.
    released : torch.Tensor
        Where the released sum stands.
    room : object, default=None
        See :func:`~.recorded.recorded`.
    """

    def __init__(self, training: Run, released: Tensor, room: Any = None) -> None:
        config, weights = training.config, training._weights.data
        self._training = training
        self._released = released
        n = config.n_steps
        rates = [training.rate * config.share_of_step_size(step) for step in range(n)]
        spare = [0.0] * WARM_UPS  # what is recorded is tried before, also of a single step
        self._rates = weights.new_tensor(rates + spare)
        self._shares = weights.new_tensor(training._average.shares(n) + spare)
        self._momentum = training._optimizer.param_groups[0]["momentum"]
        self._velocity, self._mean = torch.zeros_like(weights), torch.zeros_like(weights)
        self._at = torch.zeros(1, dtype=torch.int64, device=weights.device)
        changes = [weights, self._velocity, self._mean, self._at, training._grad]
        if released is not training._grad:
            changes.append(released)
        if isinstance(training._clip, AdaptiveClippingOnDevice):
            changes.append(training._clip.state)
        released.zero_()
        released += 1.0  # public, and of a size that shows
        self._launch = _launched(self._move, changes, room)
        released.zero_()

    def __call__(self) -> None:
        self._launch()
        self._training._step += 1

    def _move(self) -> None:
        training = self._training
        with torch.no_grad():
            noisy = training._parted(self._released).to(training._grad)
            torch.mul(noisy, 1.0 / training.config.batch_size, out=training._grad)
            self._velocity.mul_(self._momentum).add_(training._grad)
            rate = self._rates.index_select(0, self._at)
            weights = training._weights.data
            weights.addcmul_(self._velocity, rate, value=-1.0)
            self._mean.lerp_(weights, self._shares.index_select(0, self._at))
            self._at += 1

    def finish(self) -> None:
        """Put the average in the place of the weights, if there is one."""
        if self._training._step > self._training.config.first_averaged:
            self._training._weights.data.copy_(self._mean)


@contextmanager
def _off_zero(weights: Tensor) -> Iterator[None]:
    """Move weights by public numbers inside: zeros would hide errors."""
    before = weights.clone()
    public = torch.Generator().manual_seed(0)
    weights += 0.1 * torch.randn(weights.shape, generator=public).to(weights)
    try:
        yield
    finally:
        weights.copy_(before)


def _launched(body: Body, changes: list[Tensor], room: Any) -> Body:
    """Return what launches a body as one, or the body where that cannot be done."""
    try:
        return recorded(body, changes, room)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # of a driver or a library that is somebody else's
        warnings.warn(
            f"A step cannot be launched as one ({type(error).__name__}: {error}). Its operations "
            "are launched one by one: the same numbers, more slowly.",
            RuntimeWarning,
            stacklevel=2,
        )
        return body


def _is_steady(module: nn.Module) -> bool:
    return all(type(part) in _STEADY for part in module.modules())
