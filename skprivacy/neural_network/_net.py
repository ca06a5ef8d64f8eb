"""A skorch net whose training steps are Poisson-sampled Gaussian mechanisms, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from skorch import NeuralNet
from torch import Tensor, nn
from tqdm import tqdm

from ..mechanisms import FloatGaussian, PoissonSampler, SecureRandom
from ._per_example import ClippedGradientSum, flatten_parameters

__all__ = ["PrivateNet"]

# Bytes of input rows that one forward pass may take: bounds memory, changes no result.
_MICRO_BATCH_BYTES = 1 << 26


class PrivateNet(NeuralNet):
    """Train a module with DP-SGD inside skorch's training loop.

    skorch provides the loop, the devices and the optimizers; whatever of it would look at the
    private data outside the mechanism (validation split, loss history, batch sizes, callbacks) is
    switched off here.

    Parameters
    ----------
    module : torch.nn.Module
        An initialised module of :class:`torch.nn.Linear` layers.
    sampler : PoissonSampler
        Draws the records of each step. It cannot be replaced by an iterator.
    mechanism : Mechanism
        Adds noise to the clipped sum; its ``sensitivity`` is the clipping norm.
    random : SecureRandom
        Source of the sampling and of the noise.
    divisor : float
        Constant by which the noisy sum is divided: the expected batch size.
    steps_per_epoch : int
        Steps in one of ``max_epochs`` epochs; declared beforehand, never read off the data.
    averaging : float
        Share of the last steps over which the weights are averaged.
    **kwargs
        skorch's own, such as ``optimizer__momentum``, ``lr``, ``max_epochs`` and ``device``.

    References
    ----------
    M. Abadi et al., "Deep learning with differential privacy", CCS 2016, algorithm 1.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        sampler: PoissonSampler,
        mechanism: FloatGaussian,
        random: SecureRandom,
        divisor: float,
        steps_per_epoch: int,
        averaging: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            module, criterion=nn.CrossEntropyLoss, criterion__reduction="none", train_split=None,
            callbacks=None, iterator_train=None, **kwargs,
        )  # fmt: skip
        self.sampler = sampler
        self.mechanism = mechanism
        self.random = random
        self.divisor = divisor
        self.steps_per_epoch = steps_per_epoch
        self.averaging = averaging

    @property
    def _default_callbacks(self) -> list:
        return []  # skorch's own record and print the loss, which is private

    def train(self, X: Tensor, y: Tensor) -> nn.Module:
        """Train on a data matrix and its targets; return the module, weights averaged."""
        self.initialize()
        self._first_averaged = int(self._n_steps * (1.0 - self.averaging))
        self._step = 0
        with _full_precision():
            self.fit_loop(X.to(self.device), y.to(self.device))
        return self._finished_module()

    @property
    def _n_steps(self) -> int:
        return self.steps_per_epoch * self.max_epochs

    def initialize_optimizer(self, triggered_directly: Any = None) -> PrivateNet:
        self._weights, self._grad = flatten_parameters(self.module_)
        self._average = torch.zeros_like(self._weights.data)
        self._clipped = ClippedGradientSum(
            self.module_, self.criterion_, self.mechanism.sensitivity
        )
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

    def train_step(self, batch: tuple[Tensor, Tensor, Tensor], **fit_params: Any) -> None:
        """Clip, add noise, divide by a constant, update."""
        X, y, indices = batch
        self.module_.train()
        grad = self._grad.zero_()
        rows = max(1, _MICRO_BATCH_BYTES // (4 * max(1, X[:1].numel())))
        for part in indices.split(rows):
            self._clipped(X.index_select(0, part), y.index_select(0, part))
        noisy = self.mechanism.release(grad.cpu().numpy(), self.random)
        grad.copy_(torch.from_numpy(noisy)).div_(self.divisor)
        self.optimizer_.step()
        if self._step >= self._first_averaged:
            self._average += self._weights.data
        self._step += 1

    def _finished_module(self) -> nn.Module:
        """Return the module on the CPU, owning its weights and nothing of the training."""
        if self._step > self._first_averaged:
            self._weights.data.copy_(self._average / (self._step - self._first_averaged))
        module = self.module_.cpu().eval()
        for p in module.parameters():
            p.data = p.data.clone()
            p.grad = None
        return module


class _PoissonSteps:
    """The steps of one epoch: the whole data, and who takes part."""

    def __init__(self, X: Tensor, y: Tensor, net: PrivateNet) -> None:
        self.X, self.y, self.net = X, y, net

    def __len__(self) -> int:
        return self.net.steps_per_epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for _ in range(len(self)):
            drawn = self.net.sampler.draw(len(self.X), self.net.random)
            yield self.X, self.y, torch.from_numpy(drawn).to(self.X.device)


@contextmanager
def _full_precision() -> Iterator[None]:
    """Keep matrix products in single precision: the clipping norms are computed in it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
