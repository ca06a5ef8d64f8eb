"""Modules to train, built in or the user's, and the skorch net that trains with the engine."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import torch
from skorch import NeuralNet
from skorch.utils import to_device
from torch import Tensor, nn
from torch.nn.utils import skip_init

from ..._groups import Groups
from ..._validation import as_array
from .engine import Peers, Training
from .rows import MappedRows

__all__ = [
    "ACTIVATIONS",
    "PrivateNet",
    "has_random_start",
    "layer_sizes",
    "make_mlp",
    "make_module",
    "mlp_from_arrays",
    "mlp_to_arrays",
]


def make_module(
    module: Any,
    params: dict[str, Any],
    n_features: int,
    n_outputs: int,
    hidden_layer_sizes: tuple[int, ...],
    activation: str,
    random_state: np.random.RandomState,
) -> nn.Module:
    """Return a new module in single precision; ``module`` itself is not changed."""
    if module is None:
        if params:
            raise ValueError(
                f"module__{next(iter(params))} is given, but module=None has no parameters. Pass "
                "module=..., or leave it out."
            )
        return make_mlp(n_features, hidden_layer_sizes, n_outputs, activation, random_state)
    if isinstance(module, nn.Module):
        if params:
            raise ValueError(
                f"module__{next(iter(params))} is given, but module={type(module).__name__} is an "
                "instance. Pass its class instead."
            )
        made = copy.deepcopy(module)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random_state.randint(2**31)))
            try:
                made = module(**params)
            except TypeError as error:
                raise TypeError(f"module={module!r} cannot be made: {error}") from error
    if not isinstance(made, nn.Module):
        raise ValueError(f"module={module!r} made a {type(made).__name__}, not a torch module.")
    if not any(p.requires_grad for p in made.parameters()):
        raise ValueError(f"module={type(made).__name__} has no parameters to train.")
    return made.float()


ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "logistic": nn.Sigmoid}


def layer_sizes(sizes: Any) -> tuple[int, ...]:
    """Return the sizes of hidden layers as integers of Python's."""
    values = tuple(np.atleast_1d(as_array("hidden_layer_sizes", sizes)).tolist())
    if not all(type(v) is int and 0 < v < 1 << 31 for v in values):  # True is no size
        raise ValueError(
            f"hidden_layer_sizes={sizes!r} must be positive whole numbers, such as (64,) or (), "
            "one for each hidden layer."
        )
    return values


def make_mlp(
    n_features: int,
    hidden_layer_sizes: Sequence[int],
    n_outputs: int,
    activation: str,
    random_state: np.random.RandomState,
) -> nn.Sequential:
    """Build a perceptron whose initial weights depend on ``random_state`` only.

    Hidden layers start uniform within 1/sqrt(fan-in). The output layer starts at zero, so training
    starts at equal class probabilities and need not first undo noise.
    """
    sizes = [n_features, *hidden_layer_sizes, n_outputs]
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        linear = skip_init(nn.Linear, fan_in, fan_out)  # its own init would use torch's generator
        bound = 1.0 / np.sqrt(fan_in)
        for p in linear.parameters():
            start = random_state.uniform(-bound, bound, size=tuple(p.shape))
            p.data = torch.from_numpy(start.astype(np.float32))
        layers += [linear, ACTIVATIONS[activation]()]
    layers.pop()
    for p in layers[-1].parameters():
        p.data.zero_()
    return nn.Sequential(*layers)


def mlp_to_arrays(module: Any) -> dict[str, Any] | None:
    """Return the state for :func:`mlp_from_arrays`; None for other modules than perceptrons."""
    layers = list(module) if type(module) is nn.Sequential else []
    kinds = {type(layer) for layer in layers[1::2]}
    linear = all(type(layer) is nn.Linear and layer.bias is not None for layer in layers[::2])
    if not (len(layers) % 2 and linear and len(kinds) < 2 and kinds <= {*ACTIVATIONS.values()}):
        return None
    weights = {name: tensor.cpu().numpy().copy() for name, tensor in module.state_dict().items()}
    if any(array.dtype != np.float32 for array in weights.values()):
        return None
    activation = next((name for name, kind in ACTIVATIONS.items() if kind in kinds), "tanh")
    return {"activation": activation, "weights": weights}


def mlp_from_arrays(saved: dict[str, Any]) -> nn.Sequential:
    """Return the perceptron with the state of :func:`mlp_to_arrays`."""
    weights = {name: torch.from_numpy(array.copy()) for name, array in saved["weights"].items()}
    shapes = [w.shape for name, w in weights.items() if name.endswith("weight")]
    sizes = [shapes[0][1], *(shape[0] for shape in shapes)]
    made = make_mlp(sizes[0], sizes[1:-1], sizes[-1], saved["activation"], np.random.RandomState(0))
    made.load_state_dict(weights)
    return made.eval()


def has_random_start(module: nn.Module, again: nn.Module) -> bool:
    """Return True if a module, made twice under different seeds, starts with random weights.

    Weights or buffers that are equal both times come from outside, perhaps from private data.
    Layers of zeros or ones, such as biases and norms, do not count.
    """
    first, second = (dict([*m.named_parameters(), *m.named_buffers()]) for m in (module, again))
    return not any(
        name in second and torch.equal(p.cpu(), second[name].cpu())
        for name, p in first.items()
        if not bool((p == 0).all() or (p == 1).all())
    )


class PrivateNet(NeuralNet):
    """A skorch net that trains only through :class:`~.engine.Training`.

    skorch makes the module and the loss from classes and their ``module__x`` and ``criterion__x``,
    and moves them to their device. Its own loop is disabled: it would draw batches, store the loss,
    and show both to callbacks.
    """

    prefixes_ = [*NeuralNet.prefixes_, "optimizer"]
    module_: nn.Module

    @property
    def _default_callbacks(self) -> list:
        return []  # skorch's default callbacks record and print the loss, which is private

    def initialize_criterion(self) -> PrivateNet:
        """Create the loss, with one number per example.

        Returns
        -------
        PrivateNet
            The net itself.
        """
        self.criterion_ = per_example_criterion(self.criterion, self.get_params_for("criterion"))
        return self

    def initialize_optimizer(self, triggered_directly: Any = None) -> PrivateNet:
        """Do nothing: the engine creates the optimizer, whose state is not released.

        Parameters
        ----------
        triggered_directly : object, default=None
            Ignored; skorch passes it.

        Returns
        -------
        PrivateNet
            The net itself.
        """
        self._register_virtual_param(
            ["optimizer__*"]
        )  # so that skorch accepts optimizer__ settings
        return self

    def fit_loop(
        self,
        X: Tensor | MappedRows,
        y: Tensor | None = None,
        epochs: int | None = None,
        *,
        training: Training | None = None,
        peers: Peers | None = None,
        groups: Groups | None = None,
        **fit_params: Any,
    ) -> PrivateNet:
        """Carry out a prepared run, and store the trained module.

        Parameters
        ----------
        X : tensor or mapped rows of shape (n_samples, ...)
            Private records.
        y : tensor of shape (n_samples, ...)
            Targets, as the loss takes them.
        epochs : int, default=None
            Ignored: the run has a fixed length.
        training : Training
            The run, whose cost is charged.
        peers : Peers, default=None
            The other processes of a distributed run.
        groups : Groups, default=None
            Group of each record; ``None`` if single records are protected.
        **fit_params : dict
            Ignored.

        Returns
        -------
        PrivateNet
            The net itself, with the trained ``module_``.
        """
        if training is None or y is None:
            self._refuse()
        trained = training.run(X, y, peers, int(self.verbose), groups)
        self.module_ = to_device(trained, self.device)
        return self

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} has no public single steps, because no guarantee would cover "
            "them. Use fit or partial_fit."
        )

    run_single_epoch = train_step = train_step_single = validation_step = _refuse


def per_example_criterion(criterion: Any, params: dict[str, Any]) -> nn.Module:
    """Return the loss with one number per example or output, never a mean over a batch."""
    if params.get("reduction", "none") != "none":
        raise ValueError(
            f"criterion__reduction={params['reduction']!r} mixes examples, but each gradient is "
            "clipped by itself. Leave it out; sums are divided by the expected batch size."
        )
    if isinstance(criterion, nn.Module):
        made = type(criterion)(**params) if params else criterion
        if getattr(made, "reduction", "none") != "none":
            raise ValueError(
                f"criterion={type(made).__name__}(reduction={made.reduction!r}) mixes examples. "
                "Pass the class, or reduction='none'."
            )
        return made
    if "reduction" in inspect.signature(criterion).parameters:
        params = {**params, "reduction": "none"}
    return criterion(**params)
