"""Private adversarial training (Xie et al. 2018): a DP-SGD discriminator and a generator.

Only the discriminator sees private records, and :class:`~.engine.Training` trains it. The generator
learns from the discriminator's weights, which are released after every step.
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
from .engine import Peers, Training
from .mapped_rows import MappedRows
from .training_config import TrainingConfig

_LEAKY_SLOPE = 0.2  # slope of inactive units, so that the generator still gets a gradient
_ADAM_BETAS = 0.5, 0.999  # betas of both Adams: more momentum makes the two networks oscillate
_TEMPERATURE = 0.5  # temperature of the Gumbel-softmax: near 0 a choice is nearly one category
_MIN_DISTANCE_TO_BOUND = 1e-3  # of normal numbers, from 0 and 1, where the logit has no gradient
_HEAD_START = 0.3  # share of steps before the generator starts: the discriminator learns first
_GENERATOR_RATE = 0.03  # learning rate of the generator relative to the discriminator's
_AVERAGE_DECAY = 0.999  # decay of the average of the generator's weights


@dataclass(frozen=True)
class GeneratorPlan:
    """Public facts of a generator and of its training."""

    widths: tuple[int, ...]  # columns of each part of a row: 1 for a number, more for categories
    n_classes: int  # labels, of which a row starts with one
    n_noise: int  # random numbers that a row starts from
    hidden_layer_sizes: tuple[int, ...]
    learning_rate: float  # of the discriminator
    every: int  # steps of the discriminator per step of the generator


class Generator(nn.Module):
    """Maps noise and labels to rows: normal rows plus a correction by a network, 0 at the start."""

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
        normal = (self.means[labels] + noise @ self.factor).clamp(
            _MIN_DISTANCE_TO_BOUND, 1 - _MIN_DISTANCE_TO_BOUND
        )
        outputs = self.layers(torch.cat([noise, F.one_hot(labels, self.plan.n_classes)], 1))
        if set(self.plan.widths) == {1}:
            return (normal.logit() + outputs).sigmoid()
        outputs = outputs + torch.where(torch.tensor(self._number), normal.logit(), normal.log())
        parts = outputs.split(self.plan.widths, 1)
        return torch.cat(
            [p.sigmoid() if p.shape[1] == 1 else _gumbel_softmax(p, chance) for p in parts], 1
        )

    def start(self, means: NDArray[np.float64], factor: NDArray[np.float64]) -> None:
        """Set the mean rows and the factor of normal rows."""
        self.means = torch.from_numpy(means).float()
        self.factor = torch.from_numpy(factor).float()


def _gumbel_softmax(part: Tensor, chance: torch.Generator) -> Tensor:
    gumbel = -torch.empty_like(part).exponential_(generator=chance).clamp_(min=1e-30).log()
    return ((part + gumbel) / _TEMPERATURE).softmax(1)


def _perceptron(sizes: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.LeakyReLU(_LEAKY_SLOPE)]
    return nn.Sequential(*layers[:-1])


class RealOrGenerated(nn.Module):
    """Binary cross-entropy of a row's label; real rows have theirs plus ``n_classes``."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.n_classes = n_classes

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        real = (target >= self.n_classes).to(output.dtype)
        own = output.gather(1, (target % self.n_classes)[:, None])[:, 0]
        return F.binary_cross_entropy_with_logits(own, real, reduction="none")


class AdversarialTraining(Training):
    """Private training of a discriminator, with a generator that learns from it.

    ``rates`` (n_classes,) are released frequencies of the labels to generate. ``seed`` draws the
    generated rows and may be public. ``generator`` is trained in place; :meth:`generator` returns
    another one, with averaged weights.

    **Guarantees.** As for ``Training``. Clipped gradients of generated rows are added to the
    released sum of each step. They depend only on weights, rates and randomness. The generator sees
    the discriminator's weights between steps, which are computed from released sums. All of this is
    post-processing of ``config.event`` and of ``rates``.

    L. Xie, K. Lin, S. Wang, F. Wang and J. Zhou, "Differentially private generative adversarial
    network", arXiv:1802.06739, 2018.
    A. Bie, G. Kamath and G. Zhang, "Private GANs, revisited", TMLR 2023: many steps of the
    discriminator per step of the generator.
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
        super().__init__(config, critic, RealOrGenerated(plan.n_classes), probe, random)
        self._generator = generator
        self._mean = copy.deepcopy(generator).requires_grad_(False)
        self._rates = torch.from_numpy(rates)
        self._chance = torch.Generator().manual_seed(seed)
        self._improve = torch.optim.Adam(
            generator.parameters(), lr=_GENERATOR_RATE * plan.learning_rate, betas=_ADAM_BETAS
        )

    def step(self, X: Tensor | MappedRows, y: Tensor, drawn: Tensor, peers: Peers) -> None:
        super().step(X, y, drawn, peers)
        # Bie et al. 2023: many discriminator steps per generator step
        learned = self._step > _HEAD_START * self.config.n_steps
        if learned and self._step % self._generator.plan.every == 0:
            self._step_of_generator()

    def _noisy(self, total: Tensor, peers: Peers, random: SecureRandom) -> Tensor:
        """Return the released sum over real rows plus the sum over as many generated ones."""
        noisy = super()._noisy(total, peers, random).clone()  # the next sum reuses its memory
        labels = self._labels()
        with torch.no_grad():
            rows = self._generator(labels, self._chance)
        return noisy + self._sum(rows, labels, torch.arange(len(rows)))

    def _labels(self) -> Tensor:
        size = self.config.batch_size
        return torch.multinomial(self._rates, size, replacement=True, generator=self._chance)

    def _step_of_generator(self) -> None:
        """Update the generator so that the discriminator takes its rows for real."""
        labels = self._labels()
        rows = self._generator(labels, self._chance)
        real = labels + self._generator.plan.n_classes
        loss = RealOrGenerated(self._generator.plan.n_classes)(self.module(rows), real).mean()
        weights = list(self._generator.parameters())
        for weight, grad in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = grad  # the discriminator's weights get no gradient
        self._improve.step()
        with torch.no_grad():
            for mean, weight in zip(self._mean.parameters(), weights, strict=True):
                mean.lerp_(weight, 1 - min(_AVERAGE_DECAY, self._memory()))

    def _memory(self) -> float:
        """Return the decay of the average: small at first, to forget the initial weights."""
        alone = _HEAD_START * self.config.n_steps
        done = (self._step - alone) // self._generator.plan.every
        return done / (done + 10)

    def generator(self) -> Generator:
        """Return the generator with the average of its weights over the last steps."""
        return self._mean

    def learn(
        self, rows: NDArray[np.float32], labels: NDArray[np.int64], groups: Groups | None
    ) -> None:
        """Train on private rows with one label each."""
        real = torch.from_numpy(labels) + self._generator.plan.n_classes
        self.run(torch.from_numpy(rows), real, groups=groups)


def discriminator_config(n: int, **settings: Any) -> TrainingConfig:
    """Return the plan of a discriminator's training, without noise."""
    return TrainingConfig.planned(
        n, optimizer=torch.optim.Adam, optimizer_params={"betas": _ADAM_BETAS}, averaging=0.0,
        **settings,
    )  # fmt: skip


def make_networks(
    plan: GeneratorPlan, hidden_layer_sizes: Sequence[int], random: np.random.RandomState
) -> tuple[nn.Sequential, Generator]:
    """Return a discriminator and a generator whose weights depend only on ``random``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(random.randint(1 << 31)))
        # One output per label: how real a row with that label looks.
        sizes = sum(plan.widths), *hidden_layer_sizes, plan.n_classes
        return _perceptron(sizes), Generator(plan)


def load_generator(
    plan: GeneratorPlan, take: Callable[[str, tuple[int, ...]], NDArray[np.float64]]
) -> Generator:
    """Return a generator with weights of ``take``, which may refuse a size beforehand."""
    with torch.device("meta"):
        generator = Generator(plan)
    found = {
        name: torch.from_numpy(take(name, tuple(weight.shape))).float()
        for name, weight in generator.state_dict().items()
    }
    generator.load_state_dict(found, assign=True)
    return generator.requires_grad_(False)


def generate_rows(
    generator: Generator, labels: NDArray[np.int64], seed: int
) -> NDArray[np.float32]:
    """Return a generated row for each label."""
    with torch.inference_mode():
        made = generator(torch.from_numpy(labels), torch.Generator().manual_seed(seed))
    return np.asarray(made.numpy())
