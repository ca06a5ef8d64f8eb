"""A skorch net whose training steps are sampled, noisy sums, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from numpy.typing import NDArray
from skorch import NeuralNet
from torch import Tensor, nn
from tqdm import tqdm

from ...mechanisms import Mechanism, SecureRandom
from .._gradients.clipped_sum import BatchSum, ClippedGradientSum
from .._gradients.clipping import AdaptiveClipping
from .._gradients.trial import Probe, flatten_parameters
from ..augmentation import Views
from .averaging import WeightAverage
from .config import constant
from .environment import ordinary_torch, private_chance
from .noise import Sampler
from .optimizers import MomentumSGD
from .peers import Alone, Peers
from .rows import MappedRows

__all__ = ["PrivateNet"]


class PrivateNet(NeuralNet):
    """Train a module with DP-SGD inside skorch's training loop.

    skorch provides the loop, the devices and the optimizers; whatever of it would look at the
    private data outside the mechanism (validation split, loss history, batch sizes, callbacks) is
    switched off here.

    Parameters
    ----------
    module : torch.nn.Module
        An initialised module whose examples do not meet: no batch normalisation.
    sampler : Sampler
        Says who takes part in each step. It cannot be replaced by an iterator.
    mechanism : Mechanism
        Adds noise to the clipped sum; its ``sensitivity`` is the clipping norm.
    random : SecureRandom
        Source of the sampling and of the noise.
    divisor : float
        Constant by which the noisy sum is divided: the expected batch size.
    steps_per_epoch : int
        Steps in one of ``max_epochs`` epochs; declared beforehand, never read off the data.
    averaging : float or "ema"
        Share of the last steps over which the weights are averaged, or an exponential average.
    averaging_decay : float, default=0.95
        How much a step counts in the exponential average beside the step after it.
    clipping : {"flat", "per-layer", "automatic"} or AdaptiveClipping, default="flat"
        How gradients are brought to the clipping norm.
    schedule : callable, default=constant
        Maps the share of the steps that are done to a factor of the learning rate.
    probe : Probe, default=None
        Public numbers of the shape of the data. Needed for all but plain perceptrons.
    peers : Peers, default=None
        The other processes that take part; ``None`` for none.
    views : Views, default=Views()
        What each record is shown as.
    criterion : type, default=torch.nn.CrossEntropyLoss
        The loss; made with ``reduction="none"``.
    optimizer : type, default=MomentumSGD
        What moves the one vector of weights.
    **kwargs
        skorch's own, such as ``optimizer__momentum``, ``lr``, ``max_epochs`` and ``device``.

    Notes
    -----
    **Guarantees.** The module that :meth:`train` returns is a copy made beforehand with the
    released weights put in: whatever else the module under training kept of the records is dropped.

    References
    ----------
    M. Abadi et al., "Deep learning with differential privacy", CCS 2016, algorithm 1.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        sampler: Sampler,
        mechanism: Mechanism,
        random: SecureRandom,
        divisor: float,
        steps_per_epoch: int,
        averaging: float | str,
        averaging_decay: float = 0.95,
        clipping: str | AdaptiveClipping = "flat",
        schedule: Callable[[float], float] = constant,
        probe: Probe | None = None,
        peers: Peers | None = None,
        views: Views = Views(),  # noqa: B008 (frozen)
        criterion: type[nn.Module] = nn.CrossEntropyLoss,
        optimizer: type[torch.optim.Optimizer] = MomentumSGD,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            module, criterion=criterion, criterion__reduction="none", optimizer=optimizer,
            train_split=None, callbacks=None, iterator_train=None, **kwargs,
        )  # fmt: skip
        self.sampler = sampler
        self.mechanism = mechanism
        self.random = random
        self.divisor = divisor
        self.steps_per_epoch = steps_per_epoch
        self.averaging = averaging
        self.averaging_decay = averaging_decay
        self.clipping = clipping
        self.schedule = schedule
        self.probe = probe
        self.peers = Alone() if peers is None else peers
        self.views = views

    @property
    def _default_callbacks(self) -> list:
        return []  # skorch's own record and print the loss, which is private

    def train(self, X: Tensor | MappedRows, y: Tensor) -> nn.Module:
        """Train on a data matrix and its targets; return the module, weights averaged."""
        with ordinary_torch(self.device), private_chance(self.random, self.device):
            if not self.initialized_:
                self.prepare()
            self.fit_loop(X.to(self.device), y.to(self.device))
            return self._released_into(*self._untouched)

    def prepare(self) -> PrivateNet:
        """Get ready for :meth:`train_step`; looks at no data."""
        with ordinary_torch(self.device):
            # In a list, because skorch takes a bare module for one of its own.
            self._untouched = [_without_weights(self.module)]
            self.initialize()
        self._step = 0
        return self

    @property
    def gradients(self) -> str:
        """How per-example gradients are computed."""
        return self._clipped.gradients.name

    @property
    def _n_steps(self) -> int:
        return self.steps_per_epoch * self.max_epochs

    def initialize_optimizer(self, triggered_directly: Any = None) -> PrivateNet:
        self._weights, self._grad = flatten_parameters(self.module_)
        self._average = WeightAverage(self.averaging, self.averaging_decay, self._n_steps)
        self._clipped = ClippedGradientSum(
            self.module_, self.criterion_, self.mechanism.sensitivity, self.clipping, self.probe
        )
        self._sum = BatchSum(self._clipped, self._grad, self.divisor, self.views)
        args, kwargs = self.get_params_for_optimizer("optimizer", [("weights", self._weights)])
        self.optimizer_ = self.optimizer(*args, **kwargs)
        return self

    def get_iterator(self, dataset: Any, training: bool = False) -> _PoissonSteps:
        """Yield the inputs and targets with the records of every step of an epoch."""
        return _PoissonSteps(dataset.X, dataset.y, self)

    def run_single_epoch(
        self, iterator: Any, training: bool, prefix: str, step_fn: Any, **fit_params: Any
    ) -> None:
        if iterator is None:
            return
        for batch in tqdm(iterator, disable=not self.verbose, leave=False, unit="step"):
            step_fn(batch)

    def train_step(
        self, batch: tuple[Tensor | MappedRows, Tensor, Tensor], **fit_params: Any
    ) -> None:
        """Clip, add noise, divide by a constant, update."""
        X, y, indices = batch
        if not self.module_.training:
            self.module_.train()
        total = self._sum(X, y, indices).cpu().numpy()
        noisy = torch.from_numpy(self._noisy(total))
        torch.mul(noisy.to(self._grad), 1.0 / self.divisor, out=self._grad)
        self.optimizer_.param_groups[0]["lr"] = self.lr * self.schedule(self._step / self._n_steps)
        self.optimizer_.step()
        self._average.add(self._weights.data)
        self._step += 1

    def _noisy(self, total: NDArray) -> NDArray:
        """Return the sum with noise; adaptive clipping adds a number to what is released."""
        if not isinstance(self.clipping, AdaptiveClipping):
            return self.peers.release(self.mechanism, total, self.random)
        joined = self.clipping.joined(total)
        return self.clipping.parted(self.peers.release(self.mechanism, joined, self.random))

    def _released_into(self, module: nn.Module) -> nn.Module:
        """Return ``module`` on the CPU with the trained weights and nothing else."""
        self._weights.data.copy_(self._average.of(self._weights.data))
        released = {name: p.detach().cpu().clone() for name, p in self.module_.named_parameters()}
        module.cpu()
        for name, p in module.named_parameters():
            p.data = released[name]
        return module.eval()


def _without_weights(module: nn.Module) -> nn.Module:
    """Return a copy whose parameters hold nothing yet."""
    empty = {
        id(p): nn.Parameter(p.detach().new_empty(0), requires_grad=p.requires_grad)
        for p in module.parameters()
    }
    return copy.deepcopy(module, empty)


class _PoissonSteps:
    """The steps of one epoch: the whole data, and who takes part."""

    def __init__(self, X: Tensor | MappedRows, y: Tensor, net: PrivateNet) -> None:
        self.X, self.y, self.net = X, y, net

    def __len__(self) -> int:
        return self.net.steps_per_epoch

    def __iter__(self) -> Iterator[tuple[Tensor | MappedRows, Tensor, Tensor]]:
        for _ in range(len(self)):
            drawn = self.net.peers.draw(self.net.sampler, len(self.X), self.net.random)
            yield self.X, self.y, torch.from_numpy(drawn).to(self.X.device)
