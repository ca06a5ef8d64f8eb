"""One forward and one backward pass that record what each linear layer saw.

No weight gradient is computed. Two ways lead to the same records: autograd, for any module of
linear layers, and a backpropagation written out by hand for the built-in perceptron, which spares
autograd's bookkeeping on small batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Backward", "LayerRecord", "backward_of"]


@dataclass
class LayerRecord:
    """The input of a linear layer, and the gradient of each example's loss at its output."""

    layer: nn.Linear
    input: Tensor
    output_grad: Tensor


Backward = Callable[[Tensor, Tensor], list[LayerRecord]]
Loss = Callable[[Tensor, Tensor], Tensor]


def backward_of(module: nn.Module, per_example_loss: Loss) -> Backward:
    """Return the function that maps (inputs, targets) to the records of every linear layer."""
    if _is_perceptron(module) and _is_plain_cross_entropy(per_example_loss):
        assert isinstance(module, nn.Sequential)
        return _PerceptronBackward(module)
    return _AutogradBackward(module, per_example_loss)


class _AutogradBackward:
    def __init__(self, module: nn.Module, per_example_loss: Loss) -> None:
        self.module = module
        self.per_example_loss = per_example_loss
        self.layers = [m for m in module.modules() if isinstance(m, nn.Linear)]

    def __call__(self, inputs: Tensor, targets: Tensor) -> list[LayerRecord]:
        with torch.enable_grad():
            seen, output = self._forward(inputs)
            loss = self.per_example_loss(output, targets).sum()
            grads = torch.autograd.grad(loss, [out for _, _, out in seen])
        return [LayerRecord(m, a, g) for (m, a, _), g in zip(seen, grads, strict=True)]

    def _forward(self, inputs: Tensor) -> tuple[list[tuple[nn.Linear, Tensor, Tensor]], Tensor]:
        """Run the module on frozen weights; note every layer's input and output."""
        seen: list[tuple[nn.Linear, Tensor, Tensor]] = []

        def note(layer: Any, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            if not output.requires_grad:
                output.requires_grad_()
            seen.append((layer, args[0].detach(), output))
            return output

        hooks = [layer.register_forward_hook(note) for layer in self.layers]
        parameters = list(self.module.parameters())
        for p in parameters:
            p.requires_grad_(False)
        try:
            output = self.module(inputs)
        finally:
            for hook in hooks:
                hook.remove()
            for p in parameters:
                p.requires_grad_(True)
        if sorted(map(id, self.layers)) != sorted(id(layer) for layer, _, _ in seen):
            raise ValueError(
                f"Every linear layer of {type(self.module).__name__} must be used exactly once in "
                "a forward pass: the norm of an example's gradient cannot be had otherwise."
            )
        return seen, output


class _PerceptronBackward:
    """Backpropagation of the cross-entropy through alternating linear layers and activations."""

    def __init__(self, module: nn.Sequential) -> None:
        self.linear: list[nn.Linear] = list(module)[::2]  # type: ignore[assignment]
        self.activations = list(module)[1::2]

    def __call__(self, inputs: Tensor, targets: Tensor) -> list[LayerRecord]:
        with torch.no_grad():
            seen = [inputs]
            for layer, activation in zip(self.linear, self.activations, strict=False):
                z = torch.addmm(layer.bias, seen[-1], layer.weight.T)
                seen.append(_IN_PLACE[type(activation)](z))
            last = self.linear[-1]
            grad = torch.addmm(last.bias, seen[-1], last.weight.T).softmax(1)
            grad[torch.arange(len(targets)), targets] -= 1.0
            records = [LayerRecord(last, seen[-1], grad)]
            for i in range(len(self.activations) - 1, -1, -1):
                grad = grad @ self.linear[i + 1].weight
                _TIMES_SLOPE[type(self.activations[i])](grad, seen[i + 1])
                records.append(LayerRecord(self.linear[i], seen[i], grad))
        return records


_IN_PLACE: dict[type, Callable[[Tensor], Tensor]] = {
    nn.Tanh: torch.tanh_,
    nn.ReLU: torch.relu_,
    nn.Sigmoid: torch.sigmoid_,
}


def _times_tanh_slope(grad: Tensor, value: Tensor) -> None:
    grad.addcmul_(grad * value, value, value=-1.0)


def _times_relu_slope(grad: Tensor, value: Tensor) -> None:
    grad.mul_(value > 0)


def _times_sigmoid_slope(grad: Tensor, value: Tensor) -> None:
    grad.mul_(torch.addcmul(value, value, value, value=-1.0))


# Multiply a gradient by the slope of the activation, given the activation's value.
_TIMES_SLOPE: dict[type, Callable[[Tensor, Tensor], None]] = {
    nn.Tanh: _times_tanh_slope,
    nn.ReLU: _times_relu_slope,
    nn.Sigmoid: _times_sigmoid_slope,
}


def _is_perceptron(module: nn.Module) -> bool:
    """Whether it is linear, activation, linear, ..., linear, with biases and without hooks."""
    if type(module) is not nn.Sequential or len(module) % 2 == 0:
        return False
    layers = list(module)
    linear, activations = layers[::2], layers[1::2]
    return (
        all(type(m) is nn.Linear and m.bias is not None for m in linear)
        and all(type(m) in _IN_PLACE for m in activations)
        and len({id(m) for m in linear}) == len(linear)
        and not any(m._forward_hooks or m._forward_pre_hooks for m in [module, *layers])
    )


def _is_plain_cross_entropy(loss: Loss) -> bool:
    return (
        type(loss) is nn.CrossEntropyLoss
        and loss.weight is None
        and loss.label_smoothing == 0
        and loss.ignore_index < 0
    )
