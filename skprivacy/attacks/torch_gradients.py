"""Clipped per-record loss gradients in torch, as a party of federated learning sends them.

:class:`Layers` computes the gradients of networks of linear layers from the inputs and output
gradients of each layer. Start reading at :meth:`LossGradients.mean`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import is_regressor
from sklearn.pipeline import Pipeline
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from .._input_data import label_columns
from .network_view import ACTIVATIONS, ModuleNetwork, open_network

Loss = Callable[[Tensor, Tensor], Tensor]
_AT_ONCE = 2**24  # numbers in per-record gradients that are in memory at once
_SAFE = 1e-24  # keeps the square root differentiable at zero


class LossGradients:
    """Gradients of a network's loss with respect to its weights, as functions of records.

    **Guarantees.** The target is not changed. ``mean`` is differentiable in the records.
    """

    def __init__(self, target: Any, loss: Loss | None, max_grad_norm: float | None) -> None:
        self.module = copy.deepcopy(_module_of(target)).cpu().eval()
        self.classes = getattr(_last(target), "classes_", None)
        self.weights = {
            name: p.detach() for name, p in self.module.named_parameters() if p.requires_grad
        }
        if not self.weights:
            raise ValueError(
                f"target={type(target).__name__} must have trainable weights, but every weight is "
                "frozen. Unfreeze the weights whose gradient was sent."
            )
        self.shapes = {name: tuple(p.shape) for name, p in self.weights.items()}
        self.size = sum(p.numel() for p in self.weights.values())
        self.dtype = next(iter(self.weights.values())).dtype
        self.max_grad_norm = max_grad_norm
        self._frozen: dict[str, Tensor] = dict(self.module.named_buffers())
        self._frozen |= {
            name: p.detach() for name, p in self.module.named_parameters() if not p.requires_grad
        }
        if loss is not None and not callable(loss):
            raise TypeError(f"loss={loss!r} must be a function of outputs and targets, or None.")
        self._own_loss = loss is not None
        self._loss = _checked_loss(target) if loss is None else partial(_call_user_loss, loss)
        self._trace = self._trace_linear_layers()

    def records(self, X: Any) -> Tensor:
        """Return rows as a tensor of the module's type."""
        rows = np.ascontiguousarray(X)  # torch does not accept negative strides
        return torch.as_tensor(rows, dtype=self.dtype, device="cpu")

    def targets(self, y: Any, name: str = "y") -> Tensor:
        """Return labels as the tensor that the loss expects."""
        if self._own_loss:
            values = torch.as_tensor(np.asarray(y))
            return values.to(self.dtype) if values.is_floating_point() else values
        labels = np.asarray(y)
        if self.classes is not None:
            return torch.as_tensor(label_columns(labels, np.asarray(self.classes), name))
        if labels.dtype.kind not in "biu" or (labels < 0).any():
            raise ValueError(
                f"{name} must hold the indices of the outputs (0, 1, ...) for a bare torch module."
            )
        return torch.as_tensor(labels.astype(np.int64))

    def outputs(self, X: Tensor) -> Tensor:
        with torch.no_grad():
            return functional_call(self.module, (self.weights, self._frozen), (X,))

    def n_classes(self, X: Tensor) -> int:
        return len(self.classes) if self.classes is not None else max(2, self._width(X))

    def _width(self, X: Tensor) -> int:
        outputs = self.outputs(X[:1])
        return 1 if outputs.dim() == 1 else outputs.shape[1]

    def mean(self, X: Tensor, y: Tensor) -> Tensor:
        """Return the mean gradients, (batches, size), of (batches, n, ...) and (batches, n)."""
        if self._trace is not None:
            layers = self._trace(X.flatten(0, 1), y.flatten())
            factors = self._clipping_factors(layers.squared_norms()) / y.shape[1]
            return layers.summed(factors.unflatten(0, y.shape))
        if self.max_grad_norm is None:
            return _concatenate(vmap(self._batch_gradient)(X, y), 1)
        return self._per_record(X.flatten(0, 1), y.flatten()).unflatten(0, y.shape).mean(1)

    def count_floats(self, n_records: int) -> int:
        """Return how many numbers ``mean`` keeps in memory for each batch."""
        one_by_one = self._trace is None and self.max_grad_norm is not None
        return self.size * (n_records if one_by_one else 1)

    def per_record(self, X: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of each record, of shape (n, size), computed in parts."""
        step = max(1, _AT_ONCE // self.size)
        with torch.no_grad():
            parts = [
                self._per_record(x, t) for x, t in zip(X.split(step), y.split(step), strict=True)
            ]
        return torch.cat(parts)

    def _per_record(self, X: Tensor, y: Tensor) -> Tensor:
        if self._trace is not None:
            layers = self._trace(X, y)
            return layers.summed(self._clipping_factors(layers.squared_norms())[:, None])
        rows = _concatenate(vmap(self._batch_gradient)(X[:, None], y[:, None]), 1)
        return rows * self._clipping_factors(rows.square().sum(1))[:, None]

    def _clipping_factors(self, squared: Tensor) -> Tensor:
        """Return the clipping factors of gradients with these squared norms."""
        if self.max_grad_norm is None:
            return torch.ones_like(squared)
        # Abadi et al. 2016, DP-SGD: clip each gradient to the norm max_grad_norm
        return (self.max_grad_norm / (squared + _SAFE).sqrt()).clip(max=1.0)

    def _trace_linear_layers(self) -> LinearLayers | None:
        """Return the tracer of linear layers if its gradients agree with torch's on a trial."""
        if self._own_loss:
            return None
        try:
            trace = LinearLayers(self.module, tuple(self.weights), self._loss)
            X = torch.linspace(-1, 1, 2 * trace.n_inputs, dtype=self.dtype).reshape(2, -1)
            y = torch.tensor([0, max(1, self._width(X) - 1)])
            layers = trace(X, y)
        except RuntimeError:
            return None
        with torch.no_grad():
            expected = _concatenate(vmap(self._batch_gradient)(X[:, None], y[:, None]), 1)
            same = torch.allclose(layers.summed(torch.ones_like(X[:, :1])), expected, 1e-4, 1e-6)
        return trace if same else None

    def _batch_gradient(self, X: Tensor, y: Tensor) -> dict[str, Tensor]:
        def loss(weights: dict[str, Tensor]) -> Tensor:
            output = functional_call(self.module, (weights, self._frozen), (X,))
            return self._loss(output, y).mean()

        return grad(loss)(self.weights)

    def flatten_gradient(self, gradient: Any, name: str = "gradient") -> Tensor:
        """Check a gradient against the weights' names and shapes, and return it as one vector."""
        if isinstance(gradient, Mapping):
            if set(gradient) != set(self.shapes):
                raise ValueError(
                    f"{name} has the keys {sorted(map(str, gradient))}; expected the names of the "
                    f"weights, {sorted(self.shapes)}."
                )
            parts = [gradient[key] for key in self.shapes]
        elif isinstance(gradient, list | tuple):
            parts = list(gradient)
        else:
            raise TypeError(
                f"{name} is a {type(gradient).__name__}; expected a list with an array for each "
                "weight of the target, or a dict of arrays by name."
            )
        if len(parts) != len(self.shapes):
            raise ValueError(
                f"{name} has {len(parts)} arrays; expected {len(self.shapes)}, one for each "
                f"weight: {list(self.shapes)}."
            )
        for (key, shape), part in zip(self.shapes.items(), parts, strict=True):
            if tuple(np.shape(part)) != shape:
                raise ValueError(
                    f"{name} of {key!r} has shape {tuple(np.shape(part))}; expected {shape}."
                )
        vector = torch.cat([_as_tensor(part, self.dtype).flatten() for part in parts])
        if not torch.isfinite(vector).all():
            raise ValueError(f"{name} holds NaN or infinity. Leave this gradient out.")
        return vector

    def linear_layer(self, position: int) -> tuple[str, str]:
        """Return the names of the first (0) or last (-1) layer's trained weight and bias."""
        layers = [
            (name, layer)
            for name, layer in self.module.named_modules()
            if any(True for _ in layer.parameters(False))
        ]
        name, layer = layers[position]
        weight, bias = (f"{name}.{part}".lstrip(".") for part in ("weight", "bias"))
        which, advice = ("last", "Pass labels") if position else ("first", "Use GradientInversion")
        if not isinstance(layer, nn.Linear):
            raise ValueError(
                f"The target's {which} layer with weights, {name!r}, is a {type(layer).__name__}; "
                f"expected Linear. {advice}."
            )
        if not {weight, bias} <= set(self.weights):
            raise ValueError(
                f"The target's {which} layer {name!r} must have a trained bias and trained "
                f"weights, whose gradients the attack reads. {advice}."
            )
        return weight, bias

    def split_weights(self, vector: Tensor) -> dict[str, Tensor]:
        """Split a vector into arrays of the weights' shapes, by name."""
        pieces = vector.split([prod(shape) for shape in self.shapes.values()], dim=-1)
        return {
            name: piece.reshape(*vector.shape[:-1], *shape)
            for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }


def perceptron(weights: list[Any], biases: list[Any], activation: str) -> nn.Sequential:
    """Build a multi-layer perceptron from scikit-learn's arrays of weights and biases."""
    layers: list[nn.Module] = []
    for w, b in zip(weights, biases, strict=True):
        layer = nn.utils.skip_init(nn.Linear, *w.shape, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(np.asarray(w).T.copy()))
            layer.bias.copy_(torch.tensor(np.array(b)))
        layers += [layer, getattr(nn, ACTIVATIONS[activation].module)()]
    return nn.Sequential(*layers[:-1])


class Layers(NamedTuple):
    """Factors of each record's gradient: for a layer's weights, an outer product of two vectors."""

    inputs: dict[str, Tensor]  # inputs of each layer by name, (n, width)
    slopes: dict[str, Tensor]  # gradient at each layer's outputs, (n, width)
    trained: tuple[str, ...]  # names of trained weights and biases, in the order of parameters

    def squared_norms(self) -> Tensor:
        """Return the squared norm of each record's gradient, without forming the gradient."""
        total = torch.zeros(())
        for name in self.trained:
            layer, _, part = name.rpartition(".")
            of_slope = self.slopes[layer].square().sum(1)
            total = total + of_slope * (
                self.inputs[layer].square().sum(1) if part == "weight" else 1.0
            )
        return total

    def summed(self, factors: Tensor) -> Tensor:
        """Return sums of scaled gradients, (batches, size), for scales ``factors`` (batches, n)."""
        parts = []
        for name in self.trained:
            layer, _, part = name.rpartition(".")
            slope = self.slopes[layer].unflatten(0, factors.shape) * factors[..., None]
            if part == "weight":
                inputs = self.inputs[layer].unflatten(0, factors.shape)
                parts.append((slope.transpose(1, 2) @ inputs).flatten(1))
            else:
                parts.append(slope.sum(1))
        return torch.cat(parts, dim=1)


class LinearLayers:
    """Trace inputs and output gradients of a module of linear layers, differentiably.

    Raises RuntimeError for weights in other layers, or a layer not used once for each record.
    """

    def __init__(self, module: nn.Module, trained: tuple[str, ...], loss: Loss) -> None:
        self.module, self.trained, self.loss = module, trained, loss
        self.layers = {
            name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)
        }
        if any(name.rpartition(".")[0] not in self.layers for name in trained):
            raise RuntimeError("weights are also in other layers")

    @property
    def n_inputs(self) -> int:
        return next(iter(self.layers.values())).in_features

    def __call__(self, X: Tensor, y: Tensor) -> Layers:
        inputs: dict[str, Tensor] = {}
        taps: dict[str, Tensor] = {}

        def tapped(name: str) -> Callable[[Any, Any, Tensor], Tensor]:
            def hook(_: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
                if name in taps or output.dim() != 2 or len(output) != len(X):
                    raise RuntimeError(f"{name!r} is not used once for each record")
                inputs[name] = args[0]
                taps[name] = torch.zeros_like(output, requires_grad=True)
                return output + taps[name]

            return hook

        hooks = [layer.register_forward_hook(tapped(name)) for name, layer in self.layers.items()]
        try:
            with torch.enable_grad():
                total = self.loss(self.module(X), y).sum()
                found = torch.autograd.grad(total, list(taps.values()), create_graph=True)
        finally:
            for hook in hooks:
                hook.remove()
        return Layers(inputs, dict(zip(taps, found, strict=True)), self.trained)


def _call_user_loss(loss: Any, outputs: Tensor, targets: Tensor) -> Any:
    """Call the user's loss function; a TypeError names the parameter."""
    try:
        return loss(outputs, targets)
    except TypeError as error:
        raise TypeError(
            f"loss={loss!r} must be a function of outputs and targets. It failed: {error}"
        ) from error


def _last(target: Any) -> Any:
    return target.steps[-1][1] if isinstance(target, Pipeline) else target


def _module_of(target: Any) -> nn.Module:
    if isinstance(target, Pipeline) and len(target.steps) > 1:
        raise TypeError(
            "target must not be a pipeline, because gradients belong to its last step. Pass "
            "target[-1], and records transformed by target[:-1]."
        )
    network, _ = open_network(_last(target))
    if isinstance(network, ModuleNetwork):
        return network.module
    return perceptron(network.matrices, network.biases, network.activation)


def _checked_loss(target: Any) -> Loss:
    """Return the cross-entropy; ValueError if the target was trained with another loss."""
    model = _last(target)
    if isinstance(model, nn.Module) and not hasattr(model, "module_"):
        return _cross_entropy
    criterion = getattr(model, "criterion_", None)
    other = criterion is not None and (
        not isinstance(criterion, nn.CrossEntropyLoss)
        or criterion.weight is not None
        or criterion.label_smoothing > 0
    )
    weighted = getattr(model, "class_weight", None) is not None
    if other or weighted or getattr(model, "multilabel_", False) or is_regressor(model):
        raise ValueError(
            f"target={type(model).__name__} was not trained with the plain cross-entropy. Pass "
            "loss=, a function of outputs and targets that returns a loss for each record."
        )
    return _cross_entropy


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each record; a single logit is the log-odds of class 1."""
    if outputs.dim() == 1 or outputs.shape[1] == 1:
        logits = outputs.reshape(-1)
        return F.binary_cross_entropy_with_logits(
            logits, targets.to(logits.dtype), reduction="none"
        )
    return F.cross_entropy(outputs, targets, reduction="none")


def _concatenate(parts: dict[str, Tensor], lead: int) -> Tensor:
    return torch.cat([part.flatten(lead) for part in parts.values()], dim=lead)


def _as_tensor(part: Any, dtype: torch.dtype) -> Tensor:
    value = part.detach().cpu() if isinstance(part, Tensor) else torch.as_tensor(np.asarray(part))
    return value.to(dtype)
