"""The engine: private gradient descent on any module, step by step.

Each step draws who takes part, sums their clipped gradients, releases the sum through the
mechanism, divides by a constant, updates the weights and averages them.
"""

from __future__ import annotations

import copy
import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from ..._blas import MUCH_WORK, one_blas_thread, one_torch_thread
from ..._groups import Groups
from ...accounting import PrivacyBudget, Receipt
from ...base import reserve_release
from ...mechanisms import FloatGaussian, Mechanism, SecureRandom
from ...mechanisms.ahead import DrawnAhead
from .._gradients.adaptive import AdaptiveClippingOnDevice
from .._gradients.clipped_sum import BatchSum, ClippedGradientSum
from .._gradients.clipping import AdaptiveClipping, Clip
from .._gradients.trial import Probe, flatten_parameters
from .config import TrainingConfig
from .environment import ordinary_torch, private_randomness, usable_device
from .fixed_step import FIXED_ON, FixedStep, hindrance
from .noise import Sampler
from .optimizers import OPTIMIZERS, MomentumSGD, PrivateAdam
from .people import People
from .rows import MappedRows, that_fit

__all__ = ["Alone", "Peers", "Training", "WeightAverage"]


# The kinds of devices that make noise themselves. Others lack double precision, or are as fast with
# the processor's own cipher.
NOISE_ON = {"cuda"}
# Numbers that take a thread of their own less time than the pass waits for its start.
MUCH_NOISE = 1 << 17
# Numbers that a step holds that are worth several threads.
MUCH_ROOM = 1 << 20


class Training:
    """A run that is ready to start: its module is tried out, no record has been looked at.

    Parameters
    ----------
    config : TrainingConfig
        What the run does.
    module : torch.nn.Module
        Where training starts. It is trained itself; what is returned is another one.
    loss : torch.nn.Module
        Maps (outputs, targets) to one number for each example. A copy of it is used.
    probe : Probe, default=None
        Public numbers of the shape of the data. Needed for all but plain perceptrons.
    random : SecureRandom, default=SecureRandom()
        Source of the sampling and of the noise.

    Attributes
    ----------
    gradients : str
        How per-example gradients are computed.
    rate : float
        Step size, before the schedule.
    hindrance : str or None
        Why steps are not on fixed memory, on a device where they could be.

    Raises
    ------
    ValueError
        If the module, the loss or the views mix records, keep something of them, or do not fit to
        the probe.

    Notes
    -----
    **Guarantees.** Of the records, nothing reaches what :meth:`run` returns but through
    ``Mechanism.release``; the run releases ``config.event``. The module that is returned is a copy
    made beforehand with the released weights put in: whatever else the module under training kept
    of the records is dropped.

    With groups this holds of groups, and ``config.per_group`` is set: they are what is drawn, what
    is clipped and what batches are counted in.

    **Edge cases.** A record without a finite gradient adds nothing. A step without records adds
    noise, and counts.

    References
    ----------
    M. Abadi et al., "Deep learning with differential privacy", CCS 2016, algorithm 1.
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
        with one_torch_thread(), ordinary_torch(self.device):  # a trial has few rows
            self._released = _without_weights(module).cpu()
            self.module = module.to(self.device)
            sums = getattr(torch, config.noise_kind.sums)
            self._weights, self._sums = flatten_parameters(self.module, sums)
            self._grad = self._weights.grad = self._sums.to(self._weights.dtype)
            self._clip = self._adapted(config.clip())
            self._mechanism = config.noise_kind.mechanism(
                config.noise_multiplier, config.max_grad_norm, config
            )
            loss = copy.deepcopy(loss).to(self.device)  # what it may keep of the records is dropped
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
        self._people: People | None = None
        self._step = 0
        self.hindrance: str | None = None

    @property
    def max_grad_norm(self) -> float:
        """The clipping norm of the next step."""
        if isinstance(self._clip, AdaptiveClipping):
            return self._clip.norm
        return float(self.config.max_grad_norm)

    def run(
        self,
        X: Tensor | MappedRows,
        y: Tensor,
        peers: Peers | None = None,
        verbose: int = 0,
        groups: Groups | None = None,
    ) -> nn.Module:
        """Train on a matrix of records and their targets.

        Parameters
        ----------
        X : torch.Tensor or MappedRows of shape (n_samples, ...)
        y : torch.Tensor of shape (n_samples, ...)
        peers : Peers, default=Alone()
            The other processes that take part.
        verbose : int, default=0
            Whether to show a progress bar.
        groups : Groups, default=None
            Whose records they are, exactly if ``config.per_group`` is set.

        Returns
        -------
        torch.nn.Module
            On the CPU.

        Raises
        ------
        RuntimeError
            If it has run already.
        """
        if self._step > 0:
            raise RuntimeError(
                "This run is over: a second one would release what config.event does not count. "
                "Make another Training."
            )
        if (groups is None) != (self.config.per_group is None):
            raise ValueError("groups are given to a run that protects records, or the other way.")
        peers = Alone() if peers is None else peers
        # Threads of numpy's products and those of torch would wait for one another in every step.
        with (
            one_blas_thread(),
            one_torch_thread() if self._is_short() else nullcontext(),
            ordinary_torch(self.device),
            private_randomness(self.random, self.device),
        ):
            n, X = len(X), that_fit(X, self.device)
            fixed = self._fixed(X, y, peers)
            if fixed is None:
                X, y = X.to(self.device), y.to(self.device)
            if groups is not None:
                self._people = self._people_of(groups, peers)
                n = groups.n
            steps = range(self.config.n_steps)
            for _ in tqdm(steps, disable=not verbose, leave=False, unit="step"):
                # Algorithm 1 [Abadi et al. 2016]: take a random sample
                drawn = peers.draw(self._sampler, n, self.random)
                if fixed is None:
                    self.step(X, y, torch.from_numpy(drawn), peers)
                else:
                    fixed(drawn)
            if fixed is not None:
                fixed.finish()
            trained = self._result()
        peers.same(trained)
        return trained

    def _is_short(self) -> bool:
        """Return whether a step is over before other threads have begun with it."""
        views, groups = self.config.views, self.config.per_group
        of_each = 1 if groups is None else groups.most or math.inf
        rows = self.config.batch_size * of_each * (1 if views is None else views.count)
        work, room = len(self._weights), self._clipped.numbers_an_example
        little = work < MUCH_NOISE and rows * work < MUCH_WORK and rows * room < MUCH_ROOM
        return little and self._weights.device.type == "cpu"

    def _fixed(self, X: Tensor | MappedRows, y: Tensor, peers: Peers) -> FixedStep | None:
        """Return the run's steps on fixed memory, where that is faster and can be done."""
        kind = torch.device(self.device).type
        if kind not in FIXED_ON or type(self) is not Training or self._clipped.probe is None:
            return None
        self.hindrance = hindrance(self, X, type(peers) is Alone)
        if self.hindrance is not None:
            return None
        self.module.train()
        try:
            return FixedStep(self, cast(Tensor, X), y, self._clipped.probe)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # on public rows: the module's own may be choosy
            self.hindrance = f"{type(error).__name__}: {error}"
            return None

    def _people_of(self, groups: Groups, peers: Peers) -> People:
        """Return whose rows train, drawn once for the whole run."""
        terms = self.config.per_group
        assert terms is not None
        return People(groups, peers.kept(groups, terms.most, self.random), terms)

    def step(self, X: Tensor | MappedRows, y: Tensor, drawn: Tensor, peers: Peers) -> None:
        """Clip, add noise, divide by a constant, update."""
        if not self.module.training:
            self.module.train()
        random = self._random_of_step(peers)
        # Algorithm 1: compute gradients, clip them and add noise to their sum; then descend
        self.update(self._noisy(self._sum(X, y, drawn, self._people), peers, random))

    def update(self, noisy: Tensor) -> None:
        """Move the weights by a sum that was released."""
        if noisy.data_ptr() != self._grad.data_ptr():
            self._grad.copy_(noisy)
        if not isinstance(self._optimizer, MomentumSGD):  # which divides by itself
            self._grad.mul_(1.0 / self.config.batch_size)
        share = self.config.share_of_step_size(self._step)
        self._optimizer.param_groups[0]["lr"] = self.rate * share
        self._optimizer.step()
        self._average.add(self._weights)
        self._step += 1

    def _random_of_step(self, peers: Peers) -> SecureRandom:
        """Return what this step's noise is drawn of: much of it while the gradients are computed.

        **Guarantees.** A new stream for every step, with a key of its own. Whether there is a core
        to spare changes none of its numbers.
        """
        size = len(self._weights) + isinstance(self._clip, AdaptiveClipping)
        of_sum = isinstance(self._mechanism, FloatGaussian) and self.config.noise_multiplier > 0
        here = self._weights.device.type not in NOISE_ON and isinstance(peers, Alone)
        if size < MUCH_NOISE or not (of_sum and here):
            return self.random
        return DrawnAhead(self.random, size, elsewhere=torch.get_num_threads() > 1)

    def _noisy(self, total: Tensor, peers: Peers, random: SecureRandom) -> Tensor:
        """Return the sum with noise; adaptive clipping adds a number to what is released.

        The noise is made on the device for one process alone: else on the processor, to which the
        sum comes.
        """
        if total.device.type not in NOISE_ON:
            value = self._joined(total.cpu().numpy())
            noisy = peers.release(self._mechanism, value, random)
            return torch.from_numpy(self._parted(noisy))
        value = self._joined(total)
        if type(peers) is Alone:  # nobody else is to see it
            return cast(Tensor, self._parted(self._mechanism.release(value, random)))
        noisy = peers.release(self._mechanism, value.cpu().numpy(), random)
        return cast(Tensor, self._parted(torch.from_numpy(noisy).to(self.device)))

    def _joined(self, total: Any) -> Any:
        """Return all that is released of a step."""
        return self._clip.joined(total) if isinstance(self._clip, AdaptiveClipping) else total

    def _parted(self, noisy: Any) -> Any:
        """Return the noisy sum out of what was released."""
        return self._clip.parted(noisy) if isinstance(self._clip, AdaptiveClipping) else noisy

    def _adapted(self, clip: Clip) -> Clip:
        """Return how gradients are clipped, with what changes from step to step on the device."""
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

    def _result(self) -> nn.Module:
        """Return the untouched copy on the CPU with the trained weights and nothing else.

        **Guarantees.** Where a mechanism answers a sum that is not finite with NaN, because to look
        would be to wait, all weights are NaN from that step on: the run is refused here.
        """
        if self._grad.device.type in NOISE_ON and bool(self._weights.data.isnan().all()):
            raise ValueError(
                f"All weights are NaN: the sum of a step was not finite, or device={self.device!r} "
                "computed beyond single precision. Scale the features, or lower learning_rate."
            )
        self._weights.data.copy_(self._average.of(self._weights.data))
        released = {name: p.detach().cpu().clone() for name, p in self.module.named_parameters()}
        for name, p in self._released.named_parameters():
            p.data = released[name]
        return self._released.eval()


def _without_weights(module: nn.Module) -> nn.Module:
    """Return a copy whose parameters hold nothing yet."""
    empty = {
        id(p): nn.Parameter(p.detach().new_empty(0), requires_grad=p.requires_grad)
        for p in module.parameters()
    }
    return copy.deepcopy(module, empty)


class WeightAverage:
    """The mean of the weights after each step, the last ones alone or with falling weight.

    It is computed from what was released, so it costs no privacy. The weights of an exponential
    average add up to one from the first step on, so the initial weights are not in it.

    Parameters
    ----------
    config : TrainingConfig
    """

    def __init__(self, config: TrainingConfig) -> None:
        self._decay = config.averaging_decay if config.averaging == "ema" else 1.0
        self._first = config.first_averaged
        self._step = 0
        self._mass = 0.0
        self._mean: Tensor | None = None

    def add(self, weights: Tensor) -> None:
        """Take the weights after one more step in."""
        if self._step >= self._first:
            if self._mean is None:
                self._mean = torch.zeros_like(weights.data)
            self._mass = 1.0 + self._decay * self._mass
            self._mean.lerp_(weights.data, 1.0 / self._mass)
        self._step += 1

    def shares(self, n_steps: int) -> list[float]:
        """Return how much of the mean the weights after each step make up when they come in."""
        shares, mass = [0.0] * n_steps, 0.0
        for step in range(self._first, n_steps):
            mass = 1.0 + self._decay * mass
            shares[step] = 1.0 / mass
        return shares

    def of(self, weights: Tensor) -> Tensor:
        """Return the average, or ``weights``, the last ones, if none were to be averaged."""
        return weights if self._mean is None else self._mean


class Peers(Protocol):
    """The points of a run at which processes that train together must meet."""

    def count(
        self, inputs: Tensor | MappedRows, targets: Tensor, groups: Groups | None = None
    ) -> int:
        """Return how many records, or groups, there are in all processes together."""

    def agree(self, facts: dict[str, str]) -> None:
        """Raise ValueError unless all processes are about to do the same."""

    def same(self, module: nn.Module) -> None:
        """Give all processes the same weights."""

    def reserve(
        self, budget: PrivacyBudget | None, *terms: Any
    ) -> AbstractContextManager[Receipt | None]:
        """Charge the budget, once for all processes."""

    def kept(self, groups: Groups, most: int | None, random: SecureRandom) -> NDArray[np.int64]:
        """Return the positions of at most so many records of each of this process's groups."""

    def draw(self, sampler: Sampler, n: int, random: SecureRandom) -> NDArray[np.int64]:
        """Return who of this process's ``n`` records or groups takes part in the step."""

    def release(
        self, mechanism: Mechanism, total: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        """Return the noisy sum over all processes, the same in each."""


class Alone:
    """One process."""

    def count(
        self, inputs: Tensor | MappedRows, targets: Tensor, groups: Groups | None = None
    ) -> int:
        return len(inputs) if groups is None else groups.n

    def agree(self, facts: dict[str, str]) -> None:
        return None

    def same(self, module: nn.Module) -> None:
        return None

    def reserve(
        self, budget: PrivacyBudget | None, *terms: Any
    ) -> AbstractContextManager[Receipt | None]:
        return reserve_release(budget, *terms)

    def kept(self, groups: Groups, most: int | None, random: SecureRandom) -> NDArray[np.int64]:
        return np.arange(len(groups.codes)) if most is None else groups.at_most(most, random)

    def draw(self, sampler: Sampler, n: int, random: SecureRandom) -> NDArray[np.int64]:
        return sampler.draw(n, random)

    def release(
        self, mechanism: Mechanism, total: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        return mechanism.release(total, random)
