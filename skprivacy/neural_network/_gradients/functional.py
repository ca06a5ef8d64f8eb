"""Per-example gradients of any module, by ``torch.func`` or one example at a time.

Slower than book-keeping, and every example's gradient is in memory. In return, each example is
alone in its forward pass, so no module can mix examples.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from .contributions import Contribution, DenseGradients

__all__ = ["OneByOne", "Vectorised"]

Loss = Callable[[Tensor, Tensor], Tensor]


class Vectorised:
    """Gradients of all examples at once, by ``torch.func.vmap``; the views of one are a batch."""

    name = "torch.func"

    def __init__(self, module: nn.Module, per_example_loss: Loss, views: int = 1) -> None:
        self.views = views
        self.trained = _named_trained_parameters(module)
        constant: dict[str, Tensor] = dict(module.named_buffers())
        constant |= {k: p for k, p in module.named_parameters() if not p.requires_grad}

        def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            output = functional_call(module, (weights, constant), (x,))
            return per_example_loss(output, y.expand(views, *y.shape)).mean()

        self._gradients = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")

    def __call__(self, inputs: Tensor, targets: Tensor) -> list[Contribution]:
        weights = {k: p.detach() for k, p in self.trained.items()}
        found = self._gradients(weights, _split_by_example(inputs, self.views), targets)
        return [DenseGradients(p, found[k].detach()) for k, p in self.trained.items()]


class OneByOne:
    """Gradients by a loop over examples: the fallback, and the reference for all other methods."""

    name = "one by one"

    def __init__(self, module: nn.Module, per_example_loss: Loss, views: int = 1) -> None:
        self.module = module
        self.views = views
        self.per_example_loss = per_example_loss
        self.trained = _named_trained_parameters(module)

    def __call__(self, inputs: Tensor, targets: Tensor) -> list[Contribution]:
        parameters = list(self.trained.values())
        rows: list[tuple[Tensor, ...]] = []
        with torch.enable_grad():
            for x, y in zip(_split_by_example(inputs, self.views), targets, strict=True):
                labels = y.expand(self.views, *y.shape)
                loss = self.per_example_loss(self.module(x), labels).mean()
                rows.append(
                    torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
                )
        return [
            DenseGradients(p, torch.stack([g.to_dense() for g in column]))
            for p, column in zip(parameters, zip(*rows, strict=True), strict=True)
        ]


def _split_by_example(inputs: Tensor, views: int) -> Tensor:
    return inputs.unflatten(0, (-1, views))


def _named_trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in module.named_parameters() if p.requires_grad}
