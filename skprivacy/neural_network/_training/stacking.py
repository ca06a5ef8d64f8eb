"""What the training of a private network will do, said plainly enough to be done elsewhere.

Shadow models of an attacker, who pays no privacy, can then be trained many at a time. The
description is the whole interface: numbers, arrays and one function of arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import nn

from .._gradients.clipping import _SAFETY, _STABILITY
from .config import SCHEDULES
from .module import make_mlp
from .rows import without_huge

__all__ = ["Description", "describable", "describe"]

Floats = NDArray[np.float32]

# The description says all about every value of these. Any other parameter must have its default.
_COVERED = frozenset(
    [
        *("hidden_layer_sizes", "activation", "clipping", "max_grad_norm", "optimizer", "momentum"),
        *("learning_rate", "schedule", "averaging", "batch_size", "epochs", "class_weight"),
        *("epsilon", "delta", "classes", "n_records", "random_state", "noise_seed", "budget"),
        *("device", "verbose"),
    ]
)


@dataclass(frozen=True)
class Description:
    """One fit: the records as they are trained on, and the numbers of every step.

    Each of ``n_steps`` steps draws every record with probability ``sampling_rate``, multiplies the
    layers' per-example gradients of the cross-entropy, itself times ``loss_weight`` of the label,
    by ``factors``, sums, adds noise of standard deviation ``noise_std``, divides by ``divisor``
    and updates at ``learning_rate[step]``. The weights after steps from ``first_averaged`` on are
    averaged.
    """

    inputs: Floats  # (n_records, n_features)
    targets: NDArray[np.intp]  # columns of classes
    classes: NDArray[Any]
    layers: list[tuple[Floats, Floats]]  # initial weights (n_in, n_out) and biases
    activation: str
    loss_weight: Floats  # (n_classes,)
    factors: Callable[[Floats], Floats]  # squared norms (n_layers, ...) to factors of that shape
    sampling_rate: float
    n_steps: int
    noise_std: float
    divisor: float
    optimizer: str  # "sgd", or "adam" without the noise's variance
    momentum: float
    learning_rate: NDArray[np.float64]  # (n_steps,)
    first_averaged: int


def describable(estimator: Any) -> bool:
    """Whether :func:`describe` covers the estimator's parameters."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(type(estimator).__init__).parameters.items()
    }
    others = {k: v for k, v in estimator.get_params(deep=False).items() if k not in _COVERED}
    return (
        all(k in defaults and _same(v, defaults[k]) for k, v in others.items())
        and estimator.clipping in ("flat", "per-layer", "automatic")
        and estimator.optimizer in ("sgd", "adam")
        and isinstance(estimator.averaging, Real)
        and estimator.device in ("auto", "cpu")
    )


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and value == default


def describe(
    estimator: Any, rows: NDArray[Any], targets: NDArray[Any], loss_weight: Floats | None
) -> Description:
    """Describe the fit of a checked classifier to checked rows and columns of its classes."""
    with np.errstate(over="ignore"):  # infinite, hence no part, as in training
        inputs = without_huge(torch.from_numpy(rows.astype(np.float32))).numpy()
    if loss_weight is None:
        loss_weight = np.ones(len(estimator.classes_), np.float32)
    plan = estimator._plan(len(inputs))
    noise = estimator._noise_multiplier(plan)
    network = make_mlp(
        inputs.shape[1],
        tuple(np.atleast_1d(estimator.hidden_layer_sizes).tolist()),
        len(estimator.classes_),
        estimator.activation,
        check_random_state(estimator.random_state),
    )
    schedule = SCHEDULES[estimator.schedule]
    falls = np.array([schedule(step / plan.n_steps) for step in range(plan.n_steps)])
    return Description(
        inputs=inputs,
        targets=targets.astype(np.intp),
        classes=estimator.classes_,
        layers=[
            (m.weight.detach().numpy().T.copy(), m.bias.detach().numpy().copy())
            for m in network
            if isinstance(m, nn.Linear)
        ],
        activation=estimator.activation,
        loss_weight=loss_weight,
        factors=_factors(estimator.clipping, estimator.max_grad_norm),
        sampling_rate=plan.sampling_rate,
        n_steps=plan.n_steps,
        noise_std=noise * estimator.max_grad_norm,
        divisor=plan.divisor,
        optimizer=estimator.optimizer,
        momentum=estimator.momentum,
        learning_rate=estimator._learning_rate(network, noise, plan) * falls,
        first_averaged=int(plan.n_steps * (1.0 - estimator.averaging)),
    )


def _factors(clipping: str, allowed: float) -> Callable[[Floats], Floats]:
    """Return the function of ``clipping.py`` for arrays, which spares torch on short ones."""

    def flat(squared: Floats) -> Floats:
        whole = np.sqrt(squared.sum(0))
        return np.broadcast_to(np.minimum(allowed * _SAFETY / whole, 1.0), squared.shape)

    def per_layer(squared: Floats) -> Floats:
        share = allowed / len(squared) ** 0.5 * _SAFETY
        return np.minimum(share / np.sqrt(squared), 1.0)

    def automatic(squared: Floats) -> Floats:
        whole = np.sqrt(squared.sum(0)) + _STABILITY
        return np.broadcast_to(allowed * _SAFETY / whole, squared.shape)

    return {"flat": flat, "per-layer": per_layer, "automatic": automatic}[clipping]
