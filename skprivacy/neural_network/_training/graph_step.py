"""DP-SGD steps as CUDA graphs: the same operations on the same memory for every sample.

The row numbers go to the device, the clipped sum is computed there, the mechanism releases it, and
the released sum moves the weights. No step synchronises with the GPU. The sum and the update are
captured once and replayed as one launch. The release between them is not captured: a graph would
repeat its noise. Start reading at :class:`GraphStep`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...mechanisms import Mechanism, PoissonSampler, SecureRandom
from .._gradients.losses import AbsoluteError, HuberError, LabelEntropy, PerExample, SquaredError
from .._gradients.padded_sum import AdaptiveClippingOnDevice, PaddedSum, Table, lengths_for
from .._gradients.trial import Probe
from .update_rules import MomentumSGD

if TYPE_CHECKING:
    import numpy as np

    from .._gradients.clipped_sum import BatchSum, Clip, ClippedGradientSum
    from .training_config import Sampler, TrainingConfig

# Devices that would wait for the CPU in every step without fixed memory.
FIXED_ON = {"cuda"}
# Layers and losses without state or data-dependent operations: only these are captured.
_CAPTURABLE = {
    nn.Sequential, nn.Linear, nn.Conv1d, nn.Conv2d, nn.LayerNorm, nn.GroupNorm, nn.Embedding,
    nn.Tanh, nn.ReLU, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Identity,
    nn.Flatten, nn.Unflatten, nn.AvgPool1d, nn.AvgPool2d, nn.MaxPool1d, nn.MaxPool2d,
    nn.CrossEntropyLoss, nn.MSELoss, nn.BCEWithLogitsLoss, LabelEntropy, PerExample, SquaredError,
    AbsoluteError, HuberError,
}  # fmt: skip
WARM_UPS = 3  # calls before a capture, so that one-time initialisation is not captured
_AGREE = 1e-4  # relative tolerance: rounding is far below, errors are far above
Body = Callable[[], None]


class GraphStep:
    """The steps of a run on fixed memory; RuntimeError if the sum over public rows differs.

    **Guarantees.** A step releases what an ordinary step releases, up to rounding: once, by the
    same mechanism, sensitivity and noise. Graphs are captured on public rows, and used only if they
    reproduce the results of the operations that were captured.

    **Edge cases.** A batch longer than all prepared lengths is summed, released and used as in an
    ordinary step. The update is captured for momentum SGD only, and the sum only for known layers;
    otherwise both are computed without a graph.
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
        pool = graph_memory_pool(self._sum.total.device)
        steady = _is_capturable(training.module) and _is_capturable(training._loss)
        with _move_off_zero(training._weights.data):
            self._sums = {n: self._make_sum(rows, steady, pool) for n, rows in self._rows.items()}
        self._move = self._make_update(pool)

    def __call__(self, drawn: NDArray[np.int64]) -> None:
        """Carry out a step on the records with these indices."""
        training = self._training
        noisy = training._mechanism.release(self._sum_numbers(drawn), training.random)
        if noisy is not self._sum.total:
            self._sum.total.copy_(noisy)
        self._move()

    def finish(self) -> None:
        """Leave the run in the state after its last step."""
        if isinstance(self._move, Momentum):
            self._move.finish()

    def _sum_numbers(self, drawn: NDArray[np.int64]) -> Tensor:
        """Return all numbers to release, computed from the records with these indices."""
        # The size of the sample decides the rounding of gradients. Zero-out keeps it; under
        # add-remove no margin is proved for it (SECURITY.md).
        length = next((n for n in self._sums if len(drawn) <= n), None)
        if length is None:
            training = self._training
            return training._append_count(
                training._sum(*self._table.records, torch.from_numpy(drawn))
            )
        rows = self._rows[length]
        here = torch.full((length,), self._table.n, pin_memory=rows.is_cuda)
        here[: len(drawn)] = torch.from_numpy(drawn)
        rows.copy_(here, non_blocking=True)
        self._sums[length]()
        return self._sum.total

    def _make_sum(self, rows: Tensor, steady: bool, pool: Any) -> Body:
        """Return a function that sums over the rows named in ``rows``, tested on the probe's."""
        training, total = self._training, self._sum.total
        tried = self._table.of_probe[: len(rows)]
        expected = training._append_count(
            training._sum(self._table.X, self._table.y, tried)
        ).clone()
        rows[: len(tried)] = tried
        add_up = self._sum.sum_over(rows)
        add_up()
        if not are_close(total, expected):
            raise RuntimeError("the sum over padded rows differs")
        if steady:
            total.fill_(torch.nan)  # a graph that writes nothing would be noticed
            add_up = _capture_or_keep(add_up, [total], pool)
        rows.fill_(self._table.n)
        return add_up

    def _make_update(self, pool: Any) -> Body:
        """Return a function that moves the weights by the released sum in ``total``."""
        training, total = self._training, self._sum.total
        if type(training._optimizer) is MomentumSGD:
            return Momentum(training, total, pool)
        return lambda: training.update(training._remove_count(total))


class Run(Protocol):
    """Attributes of a run that fixed steps read and change: see :class:`~.engine.Training`."""

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
        """Move the weights by a released sum."""

    def _append_count(self, total: Any) -> Any:
        """Return all numbers that a step releases."""

    def _remove_count(self, noisy: Any) -> Any:
        """Return the noisy sum from the released numbers."""


class Momentum:
    """Momentum SGD with its schedule and its average, as one graph; ``released`` holds the sum."""

    def __init__(self, training: Run, released: Tensor, pool: Any = None) -> None:
        config, weights = training.config, training._weights.data
        self._training = training
        self._released = released
        n = config.n_steps
        rates = [training.rate * config.share_of_step_size(step) for step in range(n)]
        spare = [0.0] * WARM_UPS  # warm-up calls run past the end, also in a run of one step
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
        released += 1.0  # public numbers that move the weights visibly
        self._launch = _capture_or_keep(self._move, changes, pool)
        released.zero_()

    def __call__(self) -> None:
        self._launch()
        self._training._step += 1

    def _move(self) -> None:
        training = self._training
        with torch.no_grad():
            noisy = training._remove_count(self._released).to(training._grad)
            torch.mul(noisy, 1.0 / training.config.batch_size, out=training._grad)
            self._velocity.mul_(self._momentum).add_(training._grad)
            rate = self._rates.index_select(0, self._at)
            weights = training._weights.data
            weights.addcmul_(self._velocity, rate, value=-1.0)
            self._mean.lerp_(weights, self._shares.index_select(0, self._at))
            self._at += 1

    def finish(self) -> None:
        """Replace the weights by their average, if there is one."""
        if self._training._step > self._training.config.first_averaged:
            self._training._weights.data.copy_(self._mean)


def capture_graph(body: Body, changes: Sequence[Tensor], pool: Any = None) -> Body:
    """Return a function that does the same as ``body`` in one launch, or ``body`` itself.

    ``body`` works on tensors that stay in place, and ``changes`` are all that it changes. It must
    read no number from the CPU that changes between calls, and draw no noise. RuntimeError is
    raised if the graph does not reproduce its results on the numbers in memory, which are public.
    """
    record = RECORD.get(changes[0].device.type)
    if record is None:
        return body
    with _restore_tensors(changes):
        for _ in range(WARM_UPS):
            body()
    with _restore_tensors(changes):
        again = record(body, pool)
    with _restore_tensors(changes):
        body()
        expected = [value.to("cpu", copy=True) for value in changes]
    with _restore_tensors(changes):
        again()
        if not all(map(are_close, [value.cpu() for value in changes], expected)):
            raise RuntimeError("the captured operations give other numbers")
    return again


def are_close(found: Tensor, expected: Tensor) -> bool:
    """Return True if two vectors are equal up to rounding."""
    difference, size = (found - expected).double().norm(), expected.double().norm()
    return bool(difference <= _AGREE * size)


def graph_memory_pool(device: torch.device) -> Any:
    """Return a memory pool that captured graphs may share for intermediate results."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None


@contextmanager
def _move_off_zero(weights: Tensor) -> Iterator[None]:
    """Move weights by public numbers inside, since zeros would hide errors."""
    before = weights.clone()
    public = torch.Generator().manual_seed(0)
    weights += 0.1 * torch.randn(weights.shape, generator=public).to(weights)
    try:
        yield
    finally:
        weights.copy_(before)


def _capture_or_keep(body: Body, changes: list[Tensor], pool: Any) -> Body:
    """Return a function that launches a body as one graph, or the body where that fails."""
    try:
        return capture_graph(body, changes, pool)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # from a driver or a third-party library
        warnings.warn(
            f"A step cannot be launched as one ({type(error).__name__}: {error}). Its operations "
            "are launched one by one: the same numbers, more slowly.",
            RuntimeWarning,
            stacklevel=2,
        )
        return body


def _is_capturable(module: nn.Module) -> bool:
    return all(type(part) in _CAPTURABLE for part in module.modules())


@contextmanager
def _restore_tensors(changes: Sequence[Tensor]) -> Iterator[None]:
    """Restore tensors after; the copies are on the CPU and take no device memory."""
    before = [value.to("cpu", copy=True) for value in changes]
    try:
        yield
    finally:
        for value, was in zip(changes, before, strict=True):
            value.copy_(was)


def _cuda_graph(body: Body, pool: Any) -> Body:
    """Capture a CUDA graph, which keeps the memory that it works in."""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        body()  # libraries initialise themselves once per stream, which must not be captured
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph, pool, side, capture_error_mode="thread_local"):
        body()

    def launch(body: Body = body) -> None:  # keeps the body's tensors alive for the graph
        graph.replay()

    return launch


# Capture function by kind of device.
RECORD: dict[str, Callable[[Body, Any], Body]] = {"cuda": _cuda_graph}
