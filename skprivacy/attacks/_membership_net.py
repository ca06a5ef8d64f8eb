"""Networks that see what a target computes for a record: every layer's gradients and activations.

The architecture of Nasr, Shokri & Houmansadr 2019, smaller: a component for each layer's gradients,
each layer's activations, the loss and the label, and an encoder of all of them into one number.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .._blas import threads_for
from .gradient_norm import linear_model

__all__ = ["Scorer", "View", "train_decoded", "train_labelled"]

Float64Array = NDArray[np.float64]

NETWORKS = 5
KERNELS = 8
PART = 32
HIDDEN = (64, 32)
DROPOUT = 0.2
BATCH = 64
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 1e-3
NORM = 4  # the signal that is the logarithm of a gradient's norm


@dataclass(frozen=True)
class View:
    """What the attacker sees of each record.

    Attributes
    ----------
    inputs, gradients : list of ndarray of shape (n_records, layer width)
        For each linear layer its inputs and the loss gradient at its outputs. The gradient of its
        weights is their outer product.
    loss : ndarray of shape (n_records,)
    label : ndarray of shape (n_records, n_classes)
        Indicator of the true class.
    signals : ndarray of shape (n_records, n_signals)
        Figures of the prediction and of each layer: what the linear model takes, and what the
        decoder of the unsupervised attack must restore.
    """

    inputs: list[Float64Array]
    gradients: list[Float64Array]
    loss: Float64Array
    label: Float64Array
    signals: Float64Array

    def take(self, rows: Any) -> View:
        """Return the view of some of the records."""
        return replace(
            self,
            inputs=[part[rows] for part in self.inputs],
            gradients=[part[rows] for part in self.gradients],
            loss=self.loss[rows],
            label=self.label[rows],
            signals=self.signals[rows],
        )


class Scaled:
    """Brings a view to a common scale, learned from the records of the attacker."""

    def __init__(self, view: View) -> None:
        self.widths = [_size(part) for part in view.inputs]
        self.steep = [_size(part) for part in view.gradients]
        loss = _logarithm(view.loss)
        self.middle, self.spread = loss.mean(), loss.std() + 1e-12
        self.centre, self.scale = view.signals.mean(axis=0), view.signals.std(axis=0) + 1e-12

    def __call__(self, view: View) -> dict[str, Any]:
        def numbers(values: Float64Array) -> torch.Tensor:
            return torch.as_tensor(values, dtype=torch.float32)

        loss = (_logarithm(view.loss) - self.middle) / self.spread
        return {
            "inputs": [numbers(p / s) for p, s in zip(view.inputs, self.widths, strict=True)],
            "gradients": [
                # signed roots: gradients of members and of others differ by orders of magnitude
                numbers(np.sign(p) * np.sqrt(np.abs(p / s)))
                for p, s in zip(view.gradients, self.steep, strict=True)
            ],
            "loss": numbers(loss[:, None]),
            "label": numbers(view.label),
            "signals": numbers((view.signals - self.centre) / self.scale),
        }


@dataclass
class Scorer:
    """A trained encoder, from views to membership scores.

    With ``linear``, it corrects a linear attack model on the signals.
    """

    encoder: nn.Module
    scaled: Scaled
    sign: float = 1.0
    linear: Any = None

    def __call__(self, view: View) -> Float64Array:
        self.encoder.eval()
        with torch.no_grad():
            code = self.sign * np.asarray(self.encoder(self.scaled(view)).numpy(), dtype=float)
        return code if self.linear is None else code + self.linear.decision_function(view.signals)


def train_labelled(view: View, member: NDArray[np.bool_], epochs: int, seed: int) -> Scorer:
    """Return membership scores learned from known members.

    Of few records one network learns much that is chance. ``NETWORKS`` of them, each stopped by
    another part of the records, are averaged.
    """
    scaled, linear = Scaled(view), linear_model().fit(view.signals, member)
    data, truth = scaled(view), torch.as_tensor(member, dtype=torch.float32)
    start = torch.as_tensor(linear.decision_function(view.signals), dtype=torch.float32)
    balance = torch.as_tensor((~member).sum() / member.sum(), dtype=torch.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        part = torch.randperm(len(member)) % NETWORKS
        encoders: list[nn.Module] = []
        for k in range(NETWORKS):
            encoder = _Encoder(view)
            encoders.append(encoder)
            nn.init.zeros_(encoder.last.weight)
            nn.init.zeros_(encoder.last.bias)

            def cost(
                data: dict[str, Any], rows: torch.Tensor, encoder: _Encoder = encoder
            ) -> torch.Tensor:
                return nn.functional.binary_cross_entropy_with_logits(
                    start[rows] + encoder(_rows(data, rows)), truth[rows], pos_weight=balance
                )

            learned, held_out = (torch.nonzero(rows)[:, 0] for rows in (part != k, part == k))
            _train(encoder, data, cost, epochs, learned, held_out)
    return Scorer(_Mean(encoders), scaled, linear=linear)


def train_decoded(view: View, epochs: int, seed: int) -> Scorer:
    """Return membership scores learned without any known member.

    The encoder's number must let a decoder restore the signals. Members have smaller gradients, so
    the number is taken with the sign that falls with their norm.
    """
    scaled = Scaled(view)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = _Encoder(view)
        decoder = nn.Sequential(
            nn.Linear(1, PART), nn.ReLU(), nn.Linear(PART, view.signals.shape[1])
        )

        def cost(data: dict[str, Any], rows: torch.Tensor) -> torch.Tensor:
            batch = _rows(data, rows)
            return nn.functional.mse_loss(decoder(encoder(batch)[:, None]), batch["signals"])

        everything = torch.arange(len(view.loss))
        _train(nn.ModuleList([encoder, decoder]), scaled(view), cost, epochs, everything)
    code = Scorer(encoder, scaled)(view)
    rises = np.sum((code - code.mean()) * view.signals[:, NORM]) > 0
    return Scorer(encoder, scaled, -1.0 if rises else 1.0)


class _Mean(nn.Module):
    def __init__(self, encoders: list[nn.Module]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)

    def forward(self, data: dict[str, Any]) -> torch.Tensor:
        return torch.stack([encoder(data) for encoder in self.encoders]).mean(0)


class _Encoder(nn.Module):
    def __init__(self, view: View) -> None:
        super().__init__()
        shapes = [
            (inputs.shape[1], gradient.shape[1])
            for inputs, gradient in zip(view.inputs, view.gradients, strict=True)
        ]
        self.kernels = nn.ParameterList(
            torch.randn(KERNELS, width) / width**0.5 for width, _ in shapes
        )
        self.of_gradients = nn.ModuleList(_part(KERNELS * out) for _, out in shapes)
        self.of_inputs = nn.ModuleList(_part(width) for width, _ in shapes)
        self.of_loss, self.of_label = _part(1), _part(view.label.shape[1])
        sizes = [PART * (2 * len(shapes) + 2), *HIDDEN]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(DROPOUT)]
        self.hidden, self.last = nn.Sequential(*layers), nn.Linear(sizes[-1], 1)

    def forward(self, data: dict[str, Any]) -> torch.Tensor:
        parts = [self.of_loss(data["loss"]), self.of_label(data["label"])]
        for i, (inputs, gradient) in enumerate(zip(data["inputs"], data["gradients"], strict=True)):
            seen = _convolved(self.kernels[i], inputs, gradient)
            parts += [self.of_gradients[i](seen.flatten(1).relu()), self.of_inputs[i](inputs)]
        code: torch.Tensor = self.last(self.hidden(torch.cat(parts, 1)))[:, 0]
        return code


def _convolved(kernels: torch.Tensor, inputs: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Slide kernels as wide as the layer over the rows of each record's gradient matrix.

    The matrix is the outer product of ``gradient`` and ``inputs``, so that its rows' products with
    the kernels are an outer product too, and the matrix is never formed.
    """
    return (inputs @ kernels.T)[:, :, None] * gradient[:, None, :]


def _part(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, PART), nn.ReLU(), nn.Dropout(DROPOUT))


def _train(
    network: nn.Module,
    data: dict[str, Any],
    cost: Callable[[dict[str, Any], torch.Tensor], torch.Tensor],
    epochs: int,
    learned: torch.Tensor,
    held_out: torch.Tensor | None = None,
) -> None:
    """Train on some rows; keep the state, the first included, that is best on others."""
    steps = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    best, kept = _judged(network, data, cost, held_out), copy.deepcopy(network.state_dict())
    with threads_for(network, BATCH):
        for _ in range(epochs):
            network.train()
            for rows in learned[torch.randperm(len(learned))].split(BATCH):
                steps.zero_grad()
                cost(data, rows).backward()
                steps.step()
            judged = _judged(network, data, cost, held_out)
            if judged <= best:
                best, kept = judged, copy.deepcopy(network.state_dict())
    network.load_state_dict(kept)


def _judged(
    network: nn.Module, data: dict[str, Any], cost: Any, held_out: torch.Tensor | None
) -> float:
    if held_out is None:
        return 0.0
    network.eval()
    with torch.no_grad():
        return float(cost(data, held_out))


def _rows(data: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {
        name: [part[rows] for part in value] if isinstance(value, list) else value[rows]
        for name, value in data.items()
    }


def _size(values: Float64Array) -> float:
    return float(np.sqrt(np.mean(values**2))) + 1e-12


def _logarithm(loss: Float64Array) -> Float64Array:
    return np.log(np.maximum(loss, 0.0) + 1e-9)
