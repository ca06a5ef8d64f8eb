"""A generator that learns to pass its records off as private ones, before a private discriminator.

The discriminator alone sees private records, and is trained by :class:`~.engine.Training`. What the
generator learns it learns from the discriminator's weights, which are released after every step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ..._groups import Groups
from ...mechanisms import SecureRandom
from .._gradients.trial import PROBES, Probe
from .config import TrainingConfig
from .engine import Peers, Training
from .rows import MappedRows

__all__ = [
    "AdversarialTraining",
    "Generator",
    "GeneratorPlan",
    "RealOrMade",
    "discriminator_config",
    "generator_from",
    "made",
    "networks",
]

_LEAK = 0.2  # of the activations: an inactive unit still tells the generator where to go
_MOMENTS = 0.5, 0.999  # of both Adams: a long memory lets the two networks chase each other
_HEAT = 0.5  # of the soft choices: the nearer to 0, the nearer to one category
_EDGE = 1e-3  # of normal numbers: nearer to 0 and 1 nothing could be learned
_ALONE = 0.3  # of the steps: before, the discriminator knows too little to be learned from
_SLOWER = 0.03  # steps of the generator beside those of the discriminator
_MEMORY = 0.999  # of the average of the generator's weights


@dataclass(frozen=True)
class GeneratorPlan:
    """What is public of a generator and of its training.

    Parameters
    ----------
    widths : tuple of int
        Of the parts of a row: 1 for a number in [0, 1], more for the categories of a column.
    n_classes : int
        Labels that a row may have.
    n_noise : int
        Random numbers that a row is made of.
    hidden_layer_sizes : tuple of int
    learning_rate : float
        Of the discriminator; the generator's is 0.03 times it.
    every : int
        Steps of the discriminator for each of the generator.
    """

    widths: tuple[int, ...]
    n_classes: int
    n_noise: int
    hidden_layer_sizes: tuple[int, ...]
    learning_rate: float
    every: int


class Generator(nn.Module):
    """Makes rows of noise and labels: normal ones, which a network corrects.

    Before it has learned anything, the network adds nothing.

    Parameters
    ----------
    plan : GeneratorPlan

    Attributes
    ----------
    means : torch.Tensor of shape (n_classes, sum of widths)
        Of the rows of each label.
    factor : torch.Tensor of shape (n_noise, sum of widths)
        What a step of each random number adds to a row.
    """

    def __init__(self, plan: GeneratorPlan) -> None:
        super().__init__()
        self.plan = plan
        width = sum(plan.widths)
        sizes = plan.n_noise + plan.n_classes, *plan.hidden_layer_sizes, width
        self.layers = _perceptron(sizes)
        for last in self.layers[-1].parameters():
            nn.init.zeros_(last)
        self.register_buffer("means", torch.full((plan.n_classes, width), 0.5))
        self.register_buffer("factor", torch.zeros(plan.n_noise, width))
        self._number = [w == 1 for w in plan.widths for _ in range(w)]

    def forward(self, labels: Tensor, chance: torch.Generator) -> Tensor:
        """Return a row for each label, of shape (n, sum of widths)."""
        noise = torch.randn(len(labels), self.plan.n_noise, generator=chance)
        normal = (self.means[labels] + noise @ self.factor).clamp(_EDGE, 1 - _EDGE)
        outputs = self.layers(torch.cat([noise, F.one_hot(labels, self.plan.n_classes)], 1))
        if set(self.plan.widths) == {1}:
            return (normal.logit() + outputs).sigmoid()
        outputs = outputs + torch.where(torch.tensor(self._number), normal.logit(), normal.log())
        parts = outputs.split(self.plan.widths, 1)
        return torch.cat([_number(p) if p.shape[1] == 1 else _choice(p, chance) for p in parts], 1)

    def start(self, means: NDArray[np.float64], factor: NDArray[np.float64]) -> None:
        """Say what normal rows are."""
        self.means = torch.from_numpy(means).float()
        self.factor = torch.from_numpy(factor).float()


def _number(part: Tensor) -> Tensor:
    return part.sigmoid()


def _choice(part: Tensor, chance: torch.Generator) -> Tensor:
    gumbel = -torch.empty_like(part).exponential_(generator=chance).clamp_(min=1e-30).log()
    return ((part + gumbel) / _HEAT).softmax(1)


def _perceptron(sizes: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.LeakyReLU(_LEAK)]
    return nn.Sequential(*layers[:-1])


def _discriminator(plan: GeneratorPlan, hidden_layer_sizes: Sequence[int]) -> nn.Sequential:
    """Return a network with one output for each label: how real a row looks that has it."""
    return _perceptron((sum(plan.widths), *hidden_layer_sizes, plan.n_classes))


class RealOrMade(nn.Module):
    """The cross-entropy of one output, that of a row's label, with whether the row is real.

    Targets are labels, those of real rows above ``n_classes``.
    """

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.n_classes = n_classes

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        real = (target >= self.n_classes).to(output.dtype)
        own = output.gather(1, (target % self.n_classes)[:, None])[:, 0]
        return F.binary_cross_entropy_with_logits(own, real, reduction="none")


class AdversarialTraining(Training):
    """Private training of a discriminator, and a generator that learns from it beside.

    Parameters
    ----------
    config : TrainingConfig
        Of the discriminator.
    critic : torch.nn.Module
        The discriminator to start from.
    generator : Generator
        It is trained itself; :meth:`generator` returns another one.
    rates : ndarray of shape (n_classes,)
        How often each label is to be made, as was released.
    seed : int
        Of the rows that are made. It may be known to anybody: nothing private hangs on it.
    random : SecureRandom, default=SecureRandom()

    Notes
    -----
    **Guarantees.** Those of ``Training``: to the released sum of each step the clipped gradients of
    made rows are added, which depend on weights, rates and chance alone, and the generator sees
    the discriminator's weights between steps, which are computed from released sums. All of that
    is post-processing of ``config.event`` and of ``rates``.

    References
    ----------
    L. Xie, K. Lin, S. Wang, F. Wang and J. Zhou, "Differentially private generative adversarial
    network", arXiv:1802.06739, 2018.
    A. Bie, G. Kamath and G. Zhang, "Private GANs, revisited", TMLR 2023: many steps of the
    discriminator for each of the generator.
    """

    def __init__(
        self,
        config: TrainingConfig,
        critic: nn.Module,
        generator: Generator,
        rates: NDArray[np.float64],
        seed: int,
        random: SecureRandom | None = None,
    ) -> None:
        plan = generator.plan
        probe = Probe(
            torch.rand(PROBES, sum(plan.widths), generator=torch.Generator().manual_seed(0)),
            torch.arange(PROBES) % (2 * plan.n_classes),
            None,
        )
        super().__init__(config, critic, RealOrMade(plan.n_classes), probe, random)
        self._generator = generator
        self._mean = copy.deepcopy(generator).requires_grad_(False)
        self._rates = torch.from_numpy(rates)
        self._chance = torch.Generator().manual_seed(seed)
        self._improve = torch.optim.Adam(
            generator.parameters(), lr=_SLOWER * plan.learning_rate, betas=_MOMENTS
        )

    def step(self, X: Tensor | MappedRows, y: Tensor, drawn: Tensor, peers: Peers) -> None:
        super().step(X, y, drawn, peers)
        learned = self._step > _ALONE * self.config.n_steps
        if learned and self._step % self._generator.plan.every == 0:
            self._step_of_generator()

    def _noisy(self, total: Tensor, peers: Peers, random: SecureRandom) -> Tensor:
        """Return the released sum over real rows, and that over as many made ones."""
        noisy = super()._noisy(total, peers, random).clone()  # the next sum takes the same place
        labels = self._labels()
        with torch.no_grad():
            rows = self._generator(labels, self._chance)
        return noisy + self._sum(rows, labels, torch.arange(len(rows)))

    def _labels(self) -> Tensor:
        size = self.config.batch_size
        return torch.multinomial(self._rates, size, replacement=True, generator=self._chance)

    def _step_of_generator(self) -> None:
        """Let the generator's rows look more real to the discriminator as it now is."""
        labels = self._labels()
        rows = self._generator(labels, self._chance)
        real = labels + self._generator.plan.n_classes
        loss = RealOrMade(self._generator.plan.n_classes)(self.module(rows), real).mean()
        weights = list(self._generator.parameters())
        for weight, grad in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = grad  # and none of the discriminator's
        self._improve.step()
        with torch.no_grad():
            for mean, weight in zip(self._mean.parameters(), weights, strict=True):
                mean.lerp_(weight, 1 - min(_MEMORY, self._memory()))

    def _memory(self) -> float:
        """Return how much the average remembers, less at first: the first weights say nothing."""
        alone = _ALONE * self.config.n_steps
        done = (self._step - alone) // self._generator.plan.every
        return done / (done + 10)

    def generator(self) -> Generator:
        """Return the generator, with the average of its weights over the last steps."""
        return self._mean

    def learn(
        self, rows: NDArray[np.float32], labels: NDArray[np.int64], groups: Groups | None
    ) -> None:
        """Train on private rows, which have a label each."""
        real = torch.from_numpy(labels) + self._generator.plan.n_classes
        self.run(torch.from_numpy(rows), real, groups=groups)


def discriminator_config(n: int, **settings: Any) -> TrainingConfig:
    """Return how a discriminator is trained, but for the noise."""
    return TrainingConfig.planned(
        n, optimizer=torch.optim.Adam, optimizer_params={"betas": _MOMENTS}, averaging=0.0,
        **settings,
    )  # fmt: skip


def networks(
    plan: GeneratorPlan, hidden_layer_sizes: Sequence[int], random: np.random.RandomState
) -> tuple[nn.Sequential, Generator]:
    """Return a discriminator and a generator whose weights depend on ``random`` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(random.randint(1 << 31)))
        return _discriminator(plan, hidden_layer_sizes), Generator(plan)


def generator_from(
    plan: GeneratorPlan, take: Callable[[str, tuple[int, ...]], NDArray[np.float64]]
) -> Generator:
    """Return a generator with the weights that are found by name and shape.

    **Guarantees.** It is made without numbers, so that weights of a size that nobody has take no
    memory before ``take`` refuses them.
    """
    with torch.device("meta"):
        generator = Generator(plan)
    found = {
        name: torch.from_numpy(take(name, tuple(weight.shape))).float()
        for name, weight in generator.state_dict().items()
    }
    generator.load_state_dict(found, assign=True)
    return generator.requires_grad_(False)


def made(generator: Generator, labels: NDArray[np.int64], seed: int) -> NDArray[np.float32]:
    """Return a row for each label."""
    with torch.inference_mode():
        made = generator(torch.from_numpy(labels), torch.Generator().manual_seed(seed))
    return np.asarray(made.numpy())
