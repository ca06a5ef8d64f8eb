"""Attack networks on every layer's gradients and activations (Nasr, Shokri & Houmansadr 2019).

A smaller version of the paper's architecture: a component for each layer's gradients, each layer's
activations, the loss and the label, and an encoder of all components into one number.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..._environment import threads_for
from .classifiers import linear_model

Float64Array = NDArray[np.float64]

NETWORKS = 5
KERNELS = 8
PART = 32
HIDDEN = (64, 32)
DROPOUT = 0.2
BATCH = 64
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 1e-3
NORM = 4  # column of ``signals`` with the logarithm of the first layer's gradient norm


@dataclass(frozen=True)
class View:
    """The attacker's view of each record."""

    inputs: list[Float64Array]  # inputs of each linear layer, (n_records, width)
    gradients: list[Float64Array]  # loss gradient at each layer's outputs, (n_records, width)
    loss: Float64Array  # (n_records,)
    label: Float64Array  # indicator of the true class, (n_records, n_classes)
    # Figures of the prediction and of each layer, (n_records, n_signals): inputs of the linear
    # model, and targets of the decoder in the unsupervised attack.
    signals: Float64Array

    def take(self, rows: Any) -> View:
        """Return the view of some of the records."""
        return View(**_take_rows(vars(self), rows))


class Scaled:
    """Bring a view to a common scale, learned from the attacker's records."""

    def __init__(self, view: View) -> None:
        self.widths = [_root_mean_square(part) for part in view.inputs]
        self.steep = [_root_mean_square(part) for part in view.gradients]
        loss = _log_loss(view.loss)
        self.middle, self.spread = loss.mean(), loss.std() + 1e-12
        self.centre, self.scale = view.signals.mean(axis=0), view.signals.std(axis=0) + 1e-12

    def __call__(self, view: View) -> dict[str, Any]:
        def numbers(values: Float64Array) -> torch.Tensor:
            return torch.as_tensor(values, dtype=torch.float32)

        loss = (_log_loss(view.loss) - self.middle) / self.spread
        return {
            "inputs": [numbers(p / s) for p, s in zip(view.inputs, self.widths, strict=True)],
            "gradients": [
                # signed roots, since gradients of members and non-members differ by orders of
                # magnitude
                numbers(np.sign(p) * np.sqrt(np.abs(p / s)))
                for p, s in zip(view.gradients, self.steep, strict=True)
            ],
            "loss": numbers(loss[:, None]),
            "label": numbers(view.label),
            "signals": numbers((view.signals - self.centre) / self.scale),
        }


@dataclass
class Scorer:
    """Trained encoders from views to membership scores, as a correction of ``linear`` if given."""

    encoders: list[nn.Module]
    scaled: Scaled
    sign: float = 1.0
    linear: Any = None

    def __call__(self, view: View) -> Float64Array:
        with torch.no_grad():
            data = self.scaled(view)
            codes = torch.stack([encoder.eval()(data) for encoder in self.encoders])
        code = self.sign * np.asarray(codes.mean(0).numpy(), dtype=float)
        return code if self.linear is None else code + self.linear.decision_function(view.signals)


def train_labelled(view: View, member: NDArray[np.bool_], epochs: int, seed: int) -> Scorer:
    """Train the supervised attack: a mean of encoders, stopped by different records."""
    scaled, linear = Scaled(view), linear_model("balanced").fit(view.signals, member)
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
                    start[rows] + encoder(_take_rows(data, rows)), truth[rows], pos_weight=balance
                )

            learned, held_out = (torch.nonzero(rows)[:, 0] for rows in (part != k, part == k))
            _train(encoder, data, cost, epochs, learned, held_out)
    return Scorer(encoders, scaled, linear=linear)


def train_decoded(view: View, epochs: int, seed: int) -> Scorer:
    """Train the unsupervised attack: an autoencoder that restores the signals from one number."""
    scaled = Scaled(view)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = _Encoder(view)
        width = view.signals.shape[1]
        decoder = nn.Sequential(nn.Linear(1, PART), nn.ReLU(), nn.Linear(PART, width))

        def cost(data: dict[str, Any], rows: torch.Tensor) -> torch.Tensor:
            batch = _take_rows(data, rows)
            return nn.functional.mse_loss(decoder(encoder(batch)[:, None]), batch["signals"])

        everything = torch.arange(len(view.loss))
        _train(nn.ModuleList([encoder, decoder]), scaled(view), cost, epochs, everything)
    code = Scorer([encoder], scaled)(view)
    rises = np.sum((code - code.mean()) * view.signals[:, NORM]) > 0
    return Scorer([encoder], scaled, -1.0 if rises else 1.0)


class _Encoder(nn.Module):
    def __init__(self, view: View) -> None:
        super().__init__()
        shapes = [
            (inputs.shape[1], gradient.shape[1])
            for inputs, gradient in zip(view.inputs, view.gradients, strict=True)
        ]
        # Nasr et al. 2019: one component per gradient (convolutional), activation, loss and label
        self.kernels = nn.ParameterList(
            torch.randn(KERNELS, width) / width**0.5 for width, _ in shapes
        )
        self.of_gradients = nn.ModuleList(_make_component(KERNELS * out) for _, out in shapes)
        self.of_inputs = nn.ModuleList(_make_component(width) for width, _ in shapes)
        self.of_loss = _make_component(1)
        self.of_label = _make_component(view.label.shape[1])
        sizes = [PART * (2 * len(shapes) + 2), *HIDDEN]
        # Nasr et al. 2019: the encoder, fully connected on the concatenated components
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(DROPOUT)]
        self.hidden, self.last = nn.Sequential(*layers), nn.Linear(sizes[-1], 1)

    def forward(self, data: dict[str, Any]) -> torch.Tensor:
        parts = [self.of_loss(data["loss"]), self.of_label(data["label"])]
        for i, (inputs, gradient) in enumerate(zip(data["inputs"], data["gradients"], strict=True)):
            seen = _convolve(self.kernels[i], inputs, gradient)
            parts += [self.of_gradients[i](seen.flatten(1).relu()), self.of_inputs[i](inputs)]
        code: torch.Tensor = self.last(self.hidden(torch.cat(parts, 1)))[:, 0]
        return code


def _convolve(kernels: torch.Tensor, inputs: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Convolve gradient matrices with kernels as wide as the layer, without forming them."""
    return (inputs @ kernels.T)[:, :, None] * gradient[:, None, :]


def _make_component(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, PART), nn.ReLU(), nn.Dropout(DROPOUT))


def _train(
    network: nn.Module,
    data: dict[str, Any],
    cost: Callable[[dict[str, Any], torch.Tensor], torch.Tensor],
    epochs: int,
    learned: torch.Tensor,
    held_out: torch.Tensor | None = None,
) -> None:
    """Train on ``learned``; keep the state, initial one included, that is best on ``held_out``."""
    steps = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    best, kept = _held_out_cost(network, data, cost, held_out), copy.deepcopy(network.state_dict())
    with threads_for(network, BATCH):
        for _ in range(epochs):
            network.train()
            for rows in learned[torch.randperm(len(learned))].split(BATCH):
                steps.zero_grad()
                cost(data, rows).backward()
                steps.step()
            reached = _held_out_cost(network, data, cost, held_out)
            if reached <= best:
                best, kept = reached, copy.deepcopy(network.state_dict())
    network.load_state_dict(kept)


def _held_out_cost(
    network: nn.Module, data: dict[str, Any], cost: Any, held_out: torch.Tensor | None
) -> float:
    if held_out is None:
        return 0.0
    network.eval()
    with torch.no_grad():
        return float(cost(data, held_out))


def _take_rows(data: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {
        name: [part[rows] for part in value] if isinstance(value, list) else value[rows]
        for name, value in data.items()
    }


def _root_mean_square(values: Float64Array) -> float:
    return float(np.sqrt(np.mean(values**2))) + 1e-12


def _log_loss(loss: Float64Array) -> Float64Array:
    return np.log(np.maximum(loss, 0.0) + 1e-9)
