"""Gradients of networks of linear layers, from the inputs and output gradients of each layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["Layers", "LinearLayers"]

Loss = Callable[[Tensor, Tensor], Tensor]


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
    """Trace inputs and output gradients of a module whose weights are all in linear layers.

    **Guarantees.** The traced values are differentiable with respect to the records.

    **Edge cases.** Raises RuntimeError for weights in other layers, or a layer that is used twice
    or on several rows per record.
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
