"""StackedFit: a private run written out as arrays, for training many networks at once.

It serves the shadow models of an attacker, who pays no privacy. The stacked trainer knows some of
the options of :class:`~.training_config.TrainingConfig`, and needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ..._input_data import single_precision
from .._gradients.perceptron import PerceptronGradients
from ..auto_settings import held_out_share
from .training_config import TrainingConfig

Float32Array = NDArray[np.float32]


@dataclass(frozen=True)
class StackedFit:
    """One fit: its plan, and its records and initial weights in the form that training uses."""

    config: TrainingConfig
    inputs: Float32Array  # (n_records, n_features)
    targets: NDArray[np.intp]  # class indices
    classes: NDArray[Any]
    layers: list[tuple[Float32Array, Float32Array]]  # initial weights (n_in, n_out) and biases
    activation: str  # of the hidden layers
    loss_weight: Float32Array  # (n_classes,), factors of the cross-entropy


def is_stackable_fit(estimator: Any) -> bool:
    """Return True if the stacked trainer supports all parameters of a classifier."""
    try:
        estimator._validate_params()
        # The options that are compared below do not depend on these public facts.
        config = estimator._plan(1, estimator._recipe(1, 1, 2))
    except ValueError:
        return False  # fit raises the error
    if held_out_share(estimator._settings(), estimator._public_facts(1 << 20, 1, 2)):
        return False
    built_in = estimator.module is None and not estimator._module_params()
    return built_in and estimator._processes is None and _as_supported(config) == config


def _as_supported(config: TrainingConfig) -> TrainingConfig:
    """Return the configuration as the stacked trainer would carry it out.

    Fields that are not named here get their defaults, so a configuration that uses one differs.
    """
    known: dict[str, Any] = {}
    if config.clipping != "adaptive":
        known["clipping"] = config.clipping
    if config.averaging != "ema":
        known["averaging"] = config.averaging
    if config.device.partition(":")[0] in ("auto", "cuda"):  # the trainer trains there, too
        known["device"] = config.device
    return TrainingConfig(
        n_records=config.n_records,
        batch_size=config.batch_size,
        epochs=config.epochs,
        relation=config.relation,
        noise_multiplier=config.noise_multiplier,
        max_grad_norm=config.max_grad_norm,
        optimizer=config.optimizer,
        optimizer_params=config.optimizer_params,
        learning_rate=config.learning_rate,
        schedule=config.schedule,
        **known,
    )


def as_stacked_fit(estimator: Any, rows: NDArray[Any], targets: NDArray[Any]) -> StackedFit:
    """Return the fit of a checked classifier to checked rows and class indices, as arrays."""
    recipe = estimator._recipe(len(rows), rows.shape[1], len(estimator.classes_))
    config = estimator._plan(len(rows), recipe).with_noise_for(
        estimator.epsilon, estimator.delta, estimator.noise_multiplier
    )
    module, loss = estimator._make_module(recipe, estimator.random_state), estimator._loss()
    n_classes, weight = len(estimator.classes_), loss.weight
    loss.weight = None  # the stack knows weights of classes, and else what the perceptron knows
    if not PerceptronGradients.fits(module, loss):
        raise NotImplementedError(f"Stacked training supports neither {module} nor {loss}.")
    return StackedFit(
        config=config,
        inputs=single_precision(rows),
        targets=targets.astype(np.intp),
        classes=estimator.classes_,
        layers=[
            (m.weight.detach().numpy().T.copy(), m.bias.detach().numpy().copy())
            for m in module
            if isinstance(m, nn.Linear)
        ],
        activation=recipe.activation,
        loss_weight=np.ones(n_classes, np.float32) if weight is None else weight.numpy(),
    )
