"""Gradients of networks all of whose weights are in linear layers, by the layers' inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["Layers", "LinearLayers"]

Loss = Callable[[Tensor, Tensor], Tensor]


class Layers(NamedTuple):
    """The gradient of a layer's weights is, for each record, an outer product of two vectors.

    Attributes
    ----------
    inputs, slopes : dict of Tensor of shape (n, width)
        By a layer's name: its inputs, and the gradient at its outputs.
    trained : tuple of str
        Weights and biases that are trained, in the order of parameters.
    """

    inputs: dict[str, Tensor]
    slopes: dict[str, Tensor]
    trained: tuple[str, ...]

    def squared_norms(self) -> Tensor:
        """Return the squared norm of each record's gradient, which is not formed."""
        total = torch.zeros(())
        for name in self.trained:
            layer, _, part = name.rpartition(".")
            of_slope = self.slopes[layer].square().sum(1)
            total = total + of_slope * (
                self.inputs[layer].square().sum(1) if part == "weight" else 1.0
            )
        return total

    def summed(self, factors: Tensor) -> Tensor:
        """Return sums of scaled gradients, (batches, size), for factors (batches, n)."""
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
    """Trace a module all of whose weights are in linear layers.

    **Guarantees.** What is traced may be differentiated by the records.

    **Edge cases.** Weights elsewhere, a layer that is used twice or on more than one row a record:
    RuntimeError.
    """

    def __init__(self, module: nn.Module, trained: tuple[str, ...], loss: Loss) -> None:
        self.module, self.trained, self.loss = module, trained, loss
        self.layers = {
            name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)
        }
        if any(name.rpartition(".")[0] not in self.layers for name in trained):
            raise RuntimeError("weights are in other layers, too")

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
