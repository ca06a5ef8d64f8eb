"""DP-SGD training engine for any module (Abadi et al. 2016, Algorithm 1).

Read :meth:`Training.run`, then :meth:`Training.step` and :meth:`Training.update`.
"""

from __future__ import annotations

import copy
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..._environment import MUCH_WORK, one_blas_thread, one_torch_thread, progress_bar
from ..._groups import Groups
from ...accounting import PrivacyBudget
from ...accounting.budget.receipts import Receipt
from ...base import reserve_release
from ...mechanisms import FloatGaussian, Mechanism, SecureRandom
from ...mechanisms.secure_random import PrefetchedNoise
from .._gradients.clipped_sum import AdaptiveClipping, BatchSum, Clip, ClippedGradientSum
from .._gradients.contributions import ACCUMULATOR
from .._gradients.group_batches import GroupRows
from .._gradients.padded_sum import AdaptiveClippingOnDevice
from .._gradients.trial import Probe
from .graph_step import FIXED_ON, GraphStep, Run
from .mapped_rows import FREE_MEMORY, MappedRows, move_rows_to_device
from .torch_modes import ordinary_torch, private_randomness, usable_device
from .training_config import Sampler, TrainingConfig
from .update_rules import OPTIMIZERS, MomentumSGD, PrivateAdam

# Devices that draw noise themselves. Others lack double precision, or the CPU's cipher is as fast.
NOISE_ON = {"cuda"}
# Noise numbers from which on a second thread that draws them saves more time than it costs.
MUCH_NOISE = 1 << 17
# Numbers held by a step from which on several threads are faster than one.
MUCH_MEMORY = 1 << 20


class Training:
    """A private training run, ready to start: its module is tested, and no record has been read.

    ``module`` is trained in place; :meth:`run` returns another one. ``probe`` holds public numbers
    of the shape of the data; only the built-in perceptron needs none. ``hindrance`` says why a run
    on a GPU does not use CUDA graphs.

    **Guarantees.** Records reach the result of :meth:`run` through ``Mechanism.release`` only, and
    a run releases ``config.event``. The returned module is a copy from before training that
    receives the released weights: any other state of the trained module is dropped. If
    ``config.per_group`` is set, groups are drawn, clipped and counted instead of records.

    **Edge cases.** A record without a finite gradient adds nothing. A step without records adds
    noise and counts.
    """

    def __init__(
        self,
        config: TrainingConfig,
        module: nn.Module,
        loss: nn.Module,
        probe: Probe | None = None,
        random: SecureRandom | None = None,
    ) -> None:
        self.config = config
        self.random = SecureRandom() if random is None else random
        self.device = usable_device(config.device)
        if config.views is not None:
            assert probe is not None
            config.views.check(probe.inputs)
        # Abadi et al. 2016, Algorithm 1, "Initialize": the caller chose the initial weights.
        with one_torch_thread(), ordinary_torch(self.device):  # a trial has few rows
            self._released = _without_weights(module).cpu()
            self.module = module.to(self.device)
            sums = getattr(torch, config.noise_kind.sums)
            self._weights, self._sums = flatten_parameters(self.module, sums)
            self._grad = self._weights.grad = self._sums.to(self._weights.dtype)
            self._clip = self._move_clip(config.clip())
            self._mechanism = config.noise_kind.mechanism(
                config.noise_multiplier, config.max_grad_norm, config
            )
            loss = copy.deepcopy(loss).to(self.device)  # a copy: it may store private records
            self._clipped = ClippedGradientSum(
                self.module, loss, self._mechanism.sensitivity, self._clip, probe
            )
            self._loss = loss
            self._sum = BatchSum(self._clipped, self._sums, float(config.batch_size), config.views)
            self._optimizer = self._make_optimizer()
        self.gradients = self._clipped.gradients.name
        self.rate = config.step_size(len(self._weights))
        self._sampler = config.noise_kind.sampler(config)
        self._average = WeightAverage(config)
        self._group_rows: GroupRows | None = None
        self._step = 0
        self.hindrance: str | None = None

    @property
    def max_grad_norm(self) -> float:
        """Clipping norm of the next step."""
        if isinstance(self._clip, AdaptiveClipping):
            return self._clip.norm
        return float(self.config.max_grad_norm)

    @property
    def n_steps(self) -> int:
        """Number of steps."""
        return self.config.n_steps

    def run(
        self,
        X: Tensor | MappedRows,
        y: Tensor,
        peers: Peers | None = None,
        progress: bool = False,
        groups: Groups | None = None,
    ) -> nn.Module:
        """Train on records and their targets; return the trained module, on the CPU."""
        if self._step > 0:
            raise RuntimeError(
                "This run is over, and config.event does not account for a second one. Create a "
                "new Training."
            )
        if (groups is None) != (self.config.per_group is None):
            raise ValueError(
                "groups and config.per_group must be given together: a run protects either records "
                "or groups."
            )
        peers = SingleProcess() if peers is None else peers
        # Threads of BLAS and of torch would wait for each other in every step.
        with (
            one_blas_thread(),
            one_torch_thread() if self._is_short() else nullcontext(),
            ordinary_torch(self.device),
            private_randomness(self.random, self.device),
        ):
            n = len(X)
            if torch.device(self.device).type in FREE_MEMORY:
                X = move_rows_to_device(X, self.device)
            fixed = self._make_graph_step(X, y, peers)
            if fixed is None:
                X, y = X.to(self.device), y.to(self.device)
            if groups is not None:
                self._group_rows = self._draw_group_rows(groups, peers)
                n = groups.n
            steps = range(self.config.n_steps)
            # Abadi et al. 2016, Algorithm 1: for t in 1, ..., T
            for _ in progress_bar(steps, shown=progress, leave=False, unit="step"):
                # Algorithm 1, "Take a random sample": each record with probability L / N
                drawn = peers.draw(self._sampler, n, self.random)
                if fixed is None:
                    self.step(X, y, torch.from_numpy(drawn), peers)
                else:
                    fixed(drawn)
            if fixed is not None:
                fixed.finish()
            trained = self._released_module()  # Algorithm 1, "Output": the last or averaged weights
        peers.same(trained)
        return trained

    def _is_short(self) -> bool:
        """Return True if a step ends before further threads would have started."""
        views, groups = self.config.views, self.config.per_group
        of_each = 1 if groups is None else groups.most or math.inf
        rows = self.config.batch_size * of_each * (1 if views is None else views.count)
        work, size = len(self._weights), self._clipped.numbers_an_example
        little = work < MUCH_NOISE and rows * work < MUCH_WORK and rows * size < MUCH_MEMORY
        return little and self._weights.device.type == "cpu"

    def _make_graph_step(self, X: Tensor | MappedRows, y: Tensor, peers: Peers) -> GraphStep | None:
        """Return the run's steps as CUDA graphs, where the device and the run allow it."""
        kind = torch.device(self.device).type
        if kind not in FIXED_ON or type(self) is not Training or self._clipped.probe is None:
            return None
        self.hindrance = why_unsupported(self, X, type(peers) is SingleProcess)
        if self.hindrance is not None:
            return None
        self.module.train()
        try:
            return GraphStep(self, cast(Tensor, X), y, self._clipped.probe)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # on public rows; a user's module may raise anything
            self.hindrance = f"{type(error).__name__}: {error}"
            return None

    def _draw_group_rows(self, groups: Groups, peers: Peers) -> GroupRows:
        """Draw the training rows of each group, once for the whole run."""
        terms = self.config.per_group
        assert terms is not None
        return GroupRows(groups, peers.select_rows(groups, terms.most, self.random), terms)

    def step(self, X: Tensor | MappedRows, y: Tensor, drawn: Tensor, peers: Peers) -> None:
        """Release the clipped sum of one batch, and move the weights by it."""
        if not self.module.training:
            self.module.train()
        random = self._random_of_step(peers)
        # Abadi et al. 2016, Algorithm 1, "Compute gradient" and "Clip gradient"; then their sum
        total = self._sum(X, y, drawn, self._group_rows)
        self.release_and_update(total, peers, random)

    def release_and_update(self, total: Tensor, peers: Peers, random: SecureRandom) -> None:
        """Release a clipped sum, and move the weights by it."""
        # Algorithm 1, "Add noise": N(0, sigma^2 C^2 I), added to the sum by the mechanism
        self.update(self._noisy(total, peers, random))

    def update(self, noisy: Tensor) -> None:
        """Move the weights by a released sum."""
        if noisy.data_ptr() != self._grad.data_ptr():
            self._grad.copy_(noisy)
        # Abadi et al. 2016, Algorithm 1: divide by L, the expected batch size, a public constant
        if not isinstance(self._optimizer, MomentumSGD):  # which divides by itself
            self._grad.mul_(1.0 / self.config.batch_size)
        share = self.config.share_of_step_size(self._step)
        self._optimizer.param_groups[0]["lr"] = self.rate * share
        self._optimizer.step()  # Algorithm 1, "Descent": theta - eta_t g
        self._average.add(self._weights)
        self._step += 1

    def _random_of_step(self, peers: Peers) -> SecureRandom:
        """Return the source of this step's noise: a new stream; long noise is drawn meanwhile."""
        size = len(self._weights) + isinstance(self._clip, AdaptiveClipping)
        of_sum = isinstance(self._mechanism, FloatGaussian) and self.config.noise_multiplier > 0
        here = self._weights.device.type not in NOISE_ON and isinstance(peers, SingleProcess)
        if size < MUCH_NOISE or not (of_sum and here):
            return self.random
        return PrefetchedNoise(self.random, size, elsewhere=torch.get_num_threads() > 1)

    def _noisy(self, total: Tensor, peers: Peers, random: SecureRandom) -> Tensor:
        """Return the noisy sum; adaptive clipping releases a count with it."""
        if total.device.type not in NOISE_ON:
            value = self._append_count(total.cpu().numpy())
            noisy = peers.release(self._mechanism, value, random)
            return torch.from_numpy(self._remove_count(noisy))
        value = self._append_count(total)
        if type(peers) is SingleProcess:  # no other process needs the sum
            return cast(Tensor, self._remove_count(self._mechanism.release(value, random)))
        noisy = peers.release(self._mechanism, value.cpu().numpy(), random)
        return cast(Tensor, self._remove_count(torch.from_numpy(noisy).to(self.device)))

    def _append_count(self, total: Any) -> Any:
        """Return all numbers that a step releases: the sum and, if counted, the count."""
        return self._clip.append_count(total) if isinstance(self._clip, AdaptiveClipping) else total

    def _remove_count(self, noisy: Any) -> Any:
        """Return the noisy sum from the released numbers."""
        return self._clip.remove_count(noisy) if isinstance(self._clip, AdaptiveClipping) else noisy

    def _move_clip(self, clip: Clip) -> Clip:
        """Return the clipping function, with its state on the device of the gradients."""
        on_device = torch.device(self.device).type in NOISE_ON
        if on_device and isinstance(clip, AdaptiveClipping):
            return AdaptiveClippingOnDevice(clip, self.device)
        return clip

    def _make_optimizer(self) -> torch.optim.Optimizer:
        config = self.config
        kind = OPTIMIZERS.get(config.optimizer, config.optimizer)
        params = {"lr": 0.0, **config.optimizer_params}
        if issubclass(kind, PrivateAdam):
            params["noise_std"] = config.noise_std * config.max_grad_norm / config.batch_size
        if issubclass(kind, MomentumSGD):
            params["divisor"] = float(config.batch_size)
        return kind([self._weights], **params)

    def _released_module(self) -> nn.Module:
        """Return the untouched copy on the CPU with the trained weights.

        **Guarantees.** On a GPU, a mechanism turns a sum that is not finite into NaN, because an
        error would need to synchronise. All weights are then NaN, and the run is refused here.
        """
        if self._grad.device.type in NOISE_ON and bool(self._weights.data.isnan().all()):
            raise ValueError(
                f"All weights are NaN: the sum of a step was not finite, or device={self.device!r} "
                "computed beyond single precision. Scale the features, or lower learning_rate."
            )
        self._weights.data.copy_(self._average.result(self._weights.data))
        released = {name: p.detach().cpu().clone() for name, p in self.module.named_parameters()}
        for name, p in self._released.named_parameters():
            p.data = released[name]
        return self._released.eval()


@dataclass(eq=False)
class ChargedRun:
    """A run that has been charged, with its data; whoever trains it sets ``trained``."""

    training: Training
    data: tuple[Tensor | MappedRows, Tensor, Groups | None]
    peers: Peers
    trained: nn.Module | None = None
    error: Exception | None = None  # why it could not be trained


def needs_public_rows(device: str) -> bool:
    """Return True if a run on this device tries its steps on public rows first."""
    return torch.device(device).type in FIXED_ON


def flatten_parameters(
    module: nn.Module, sums: torch.dtype | None = None
) -> tuple[nn.Parameter, Tensor]:
    """Move trained parameters into one vector; return it and their sums, of dtype ``sums``."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in parameters]))
    grad = torch.zeros_like(flat, dtype=sums)
    start = 0
    for p in parameters:
        stop = start + p.numel()
        p.data = flat.data[start:stop].view_as(p)
        setattr(p, ACCUMULATOR, grad[start:stop].view_as(p))
        start = stop
    if grad.dtype == flat.dtype:
        flat.grad = grad
    return flat, grad


def _without_weights(module: nn.Module) -> nn.Module:
    """Return a copy of a module with empty parameters."""
    empty = {
        id(p): nn.Parameter(p.detach().new_empty(0), requires_grad=p.requires_grad)
        for p in module.parameters()
    }
    return copy.deepcopy(module, empty)


class WeightAverage:
    """Mean of the released weights after each step: of the last steps, or exponential."""

    def __init__(self, config: TrainingConfig) -> None:
        self._decay = config.averaging_decay if config.averaging == "ema" else 1.0
        self._first = config.first_averaged
        self._step = 0
        self._mass = 0.0
        self._mean: Tensor | None = None

    def add(self, weights: Tensor) -> None:
        """Include the weights after one more step."""
        # De et al. 2022, parameter averaging: post-processing of released weights
        if self._step >= self._first:
            if self._mean is None:
                self._mean = torch.zeros_like(weights.data)
            self._mass = 1.0 + self._decay * self._mass
            self._mean.lerp_(weights.data, 1.0 / self._mass)
        self._step += 1

    def shares(self, n_steps: int) -> list[float]:
        """Return each step's weight in the running mean, at the time when it is added."""
        shares, mass = [0.0] * n_steps, 0.0
        for step in range(self._first, n_steps):
            mass = 1.0 + self._decay * mass
            shares[step] = 1.0 / mass
        return shares

    def result(self, weights: Tensor) -> Tensor:
        """Return the average, or the last ``weights`` if no step is averaged."""
        return weights if self._mean is None else self._mean


class Peers:
    """Points of a run at which processes that train together synchronise; here there is one."""

    def count(
        self, inputs: Tensor | MappedRows, targets: Tensor, groups: Groups | None = None
    ) -> int:
        """Return the number of records, or groups, over all processes."""
        return len(inputs) if groups is None else groups.n

    def agree(self, facts: dict[str, str]) -> None:
        """Raise ValueError unless all processes are configured alike."""

    def same(self, module: nn.Module) -> None:
        """Broadcast the weights of the first process."""

    def reserve(
        self, budget: PrivacyBudget | None, *terms: Any
    ) -> AbstractContextManager[Receipt | None]:
        """Charge the budget once for all processes."""
        return reserve_release(budget, *terms)

    def select_rows(
        self, groups: Groups, most: int | None, random: SecureRandom
    ) -> NDArray[np.int64]:
        """Return the positions of at most ``most`` records of each of this process's groups."""
        return np.arange(len(groups.codes)) if most is None else groups.at_most(most, random)

    def draw(self, sampler: Sampler, n: int, random: SecureRandom) -> NDArray[np.int64]:
        """Draw a sample of this process's ``n`` records or groups; return its indices."""
        return sampler.draw(n, random)

    def release(
        self, mechanism: Mechanism, total: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        """Return the noisy sum over all processes, the same in each."""
        return mechanism.release(total, random)


class SingleProcess(Peers):
    """Training in one process."""


def why_unsupported(training: Run, X: Tensor | MappedRows, alone: bool) -> str | None:
    """Return why a run cannot use fixed steps, or None if it can."""
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
