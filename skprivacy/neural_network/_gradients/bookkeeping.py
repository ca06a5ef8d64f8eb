"""One forward and one backward pass that give the contributions of every layer: book-keeping.

No weight gradient is computed. Two ways lead to the same contributions: autograd, for any module
whose layers have a rule, and a backpropagation written out by hand for the built-in perceptron,
which spares autograd's bookkeeping on small batches.

``RULES`` maps a layer's type to the function that says what each of ``n`` examples contributes,
given the layer's input and the gradient at its output. The rows of both are the examples, or
several views of each, one after another: what the views contribute is summed, as is what the
positions of a sequence or an image contribute. A new kind of layer is one more function. All other
modules go through ``functional.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .arithmetic import (
    ACTIVATIONS,
    activate,
    affine,
    multiply_by_slope,
    product,
    softmax_gradient,
)
from .contributions import (
    ROW_COST,
    Contribution,
    Lookups,
    OuterProduct,
    OuterProducts,
    Rows,
    Workspace,
)

__all__ = ["RULES", "AutogradBackward", "PerceptronBackward", "has_rule", "sum_of_products"]

Loss = Callable[[Tensor, Tensor], Tensor]
_Seen = list[tuple[nn.Module, Tensor, int, Tensor]]


class AutogradBackward:
    """Book-keeping for a module whose trained layers all have a rule and are used once.

    With ``views`` above 1, as many rows of the inputs, one after another, show the same example,
    and what it contributes is the mean over them.

    Raises
    ------
    ValueError
        If a layer has no rule, shares a parameter, is used twice or has its input overwritten.
    """

    name = "book-keeping"

    def __init__(self, module: nn.Module, per_example_loss: Loss, views: int = 1) -> None:
        self.module = module
        self.per_example_loss = per_example_loss
        self.views = views
        self.layers = [m for m in module.modules() if _trained(m)]
        if strange := [type(m).__name__ for m in self.layers if not has_rule(m)]:
            raise ValueError(f"No rule for {strange}.")
        owned = [p for m in self.layers for p in _trained(m)]
        if len(owned) != len({id(p) for p in owned}):
            raise ValueError("A parameter is shared between layers.")

    def __call__(self, inputs: Tensor, targets: Tensor) -> list[Contribution]:
        with torch.enable_grad():
            seen, output = self._forward(inputs)
            losses = self.per_example_loss(output, targets.repeat_interleave(self.views, 0))
            loss = losses.sum() / self.views
            grads = torch.autograd.grad(loss, [out for *_, out in seen])
        with torch.no_grad():
            return [
                contribution
                for (layer, a, _, _), grad in zip(seen, grads, strict=True)
                for contribution in RULES[type(layer)](layer, a, grad, len(targets))
            ]

    def _forward(self, inputs: Tensor) -> tuple[_Seen, Tensor]:
        """Run the module on frozen weights; note every layer's input and output."""
        seen: _Seen = []

        def note(layer: Any, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            if not output.requires_grad:
                output.requires_grad_()
            seen.append((layer, args[0].detach(), args[0]._version, output))
            return output.clone()  # what follows may work in place, as nn.ReLU(inplace=True) does

        hooks = [layer.register_forward_hook(note) for layer in self.layers]
        parameters = [p for layer in self.layers for p in _trained(layer)]
        for p in parameters:
            p.requires_grad_(False)
        try:
            output = self.module(inputs)
        finally:
            for hook in hooks:
                hook.remove()
            for p in parameters:
                p.requires_grad_(True)
        if sorted(map(id, self.layers)) != sorted(id(layer) for layer, *_ in seen):
            raise ValueError(f"Not every layer of {type(self.module).__name__} is used just once.")
        if any(a._version != version for _, a, version, _ in seen):
            raise ValueError(f"{type(self.module).__name__} overwrites the input of a layer.")
        return seen, output


def _trained(layer: nn.Module) -> list[nn.Parameter]:
    return [p for p in layer.parameters(recurse=False) if p.requires_grad]


class PerceptronBackward:
    """Backpropagation of the cross-entropy through alternating linear layers and activations."""

    name = "book-keeping"

    @staticmethod
    def fits(module: nn.Module, per_example_loss: Loss) -> bool:
        """Whether this is the backpropagation of that module and loss."""
        return _is_perceptron(module) and _is_plain_cross_entropy(per_example_loss)

    def __init__(self, module: nn.Sequential) -> None:
        linear = [layer for layer in module if isinstance(layer, nn.Linear)]
        self._layers = [(layer.weight, layer.bias) for layer in linear]
        self._activations = [type(m) for m in list(module)[1::2]]
        self._workspace = Workspace()

    def __call__(self, inputs: Tensor, targets: Tensor) -> list[Contribution]:
        with torch.no_grad(), np.errstate(all="ignore"):
            seen = [inputs]
            for i, activation in enumerate(self._activations):
                seen.append(activate(activation, self._outputs(i, seen[-1])))
            outputs = self._outputs(-1, seen[-1])
            buffer = self._workspace("softmax", outputs.shape, outputs)
            grad = softmax_gradient(outputs, targets, buffer)
            found: list[Contribution] = [OuterProduct(*self._layers[-1], seen[-1], grad, True)]
            for i in range(len(self._activations) - 1, -1, -1):
                value = seen[i + 1]
                buffer = self._workspace(("grad", i), value.shape, value)
                grad = product(grad, self._layers[i + 1][0], buffer)
                multiply_by_slope(self._activations[i], grad, value)
                found.append(OuterProduct(*self._layers[i], seen[i], grad, True))
        return found

    def _outputs(self, i: int, inputs: Tensor) -> Tensor:
        weight, bias = self._layers[i]
        buffer = self._workspace(("output", i), (inputs.shape[0], weight.shape[0]), inputs)
        return affine(bias, inputs, weight, buffer)


def _is_perceptron(module: nn.Module) -> bool:
    """Whether it is linear, activation, linear, ..., linear, with biases and without hooks."""
    if type(module) is not nn.Sequential or len(module) % 2 == 0:
        return False
    layers = list(module)
    linear, activations = layers[::2], layers[1::2]
    return (
        all(has_rule(m) and m.weight.requires_grad and m.bias is not None for m in linear)
        and all(type(m) is nn.Linear for m in linear)
        and all(type(m) in ACTIVATIONS for m in activations)
        and len({id(m.weight) for m in linear} | {id(m.bias) for m in linear}) == 2 * len(linear)
        and not any(m._forward_hooks or m._forward_pre_hooks for m in [module, *layers])
    )


def _is_plain_cross_entropy(loss: Loss) -> bool:
    return (
        type(loss) is nn.CrossEntropyLoss
        and loss.reduction == "none"
        and loss.weight is None
        and loss.label_smoothing == 0
        and loss.ignore_index < 0
    )


def has_rule(layer: nn.Module) -> bool:
    """Whether the layer's per-example gradients are known; subclasses may do anything, so not."""
    params = dict(layer.named_parameters(recurse=False))
    trained = {p.requires_grad for p in params.values()}
    plain = params.keys() <= {"weight", "bias"} and len(trained) == 1
    return type(layer) in RULES and plain and _ordinary_padding(layer)


def _ordinary_padding(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Conv1d | nn.Conv2d):
        return True
    return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def _linear(layer: nn.Linear, a: Tensor, d: Tensor, n: int) -> list[Contribution]:
    if a.dim() == 2 and len(a) == n:
        return [OuterProduct(layer.weight, layer.bias, a, d)]
    return sum_of_products(layer, _by_position(a, n), _by_position(d, n))


def sum_of_products(layer: Any, a: Tensor, d: Tensor) -> list[Contribution]:
    """Take the Gram matrices over the positions, or the gradients themselves: what is faster.

    ``a`` has shape (batch, positions, n_in), ``d`` has shape (batch, positions, n_out).
    """
    positions, n_in, n_out = a.shape[1], a.shape[2], d.shape[2]
    if positions**2 * (n_in + n_out) < ROW_COST * n_in * n_out:
        return [OuterProducts(layer.weight, layer.bias, a, d)]
    rows = (d.mT @ a).view(-1, *layer.weight.shape)
    return _weight_and_bias(layer, rows, d.sum(1))


def _conv2d(layer: nn.Conv2d, a: Tensor, d: Tensor, n: int) -> list[Contribution]:
    return _convolution(layer, a, d.flatten(2).mT, n)


def _conv1d(layer: nn.Conv1d, a: Tensor, d: Tensor, n: int) -> list[Contribution]:
    return _convolution(layer, a, d.mT, n)


def _convolution(layer: Any, a: Tensor, d: Tensor, n: int) -> list[Contribution]:
    """A convolution is a linear layer at every position, on the patch that it sees there."""
    patches = _patches(layer, a)
    if layer.groups == 1:
        return sum_of_products(layer, _by_position(patches, n), _by_position(d, n))
    patches = _by_position(patches, n).unflatten(2, (layer.groups, -1)).transpose(1, 2)
    grads = _by_position(d, n).unflatten(2, (layer.groups, -1)).transpose(1, 2)
    rows = (grads.mT @ patches).reshape(n, *layer.weight.shape)
    return _weight_and_bias(layer, rows, _by_position(d, n).sum(1))


def _patches(layer: Any, a: Tensor) -> Tensor:
    """Return what a convolution sees at each position, shape (batch, positions, channels x kernel).

    Copied window by window out of a strided view: faster than ``torch.nn.functional.unfold``.
    """
    axes = a.dim() - 2
    a = F.pad(a, [side for p in reversed(layer.padding) for side in (p, p)])
    for i, (kernel, gap, stride) in enumerate(
        zip(layer.kernel_size, layer.dilation, layer.stride, strict=True)
    ):
        a = a.unfold(2 + i, (kernel - 1) * gap + 1, stride)[..., ::gap]
    positions, window = range(2, 2 + axes), range(2 + axes, 2 + 2 * axes)
    n_positions = math.prod(a.shape[2 : 2 + axes])
    return a.permute(0, *positions, 1, *window).reshape(len(a), n_positions, -1)


def _by_position(values: Tensor, n: int) -> Tensor:
    """Return the positions of all views of each example, shape (n, positions, features)."""
    return values.reshape(n, -1, values.shape[-1])


def _layer_norm(layer: nn.LayerNorm, a: Tensor, d: Tensor, n: int) -> list[Contribution]:
    shape = layer.normalized_shape
    scaled = d * F.layer_norm(a, shape, None, None, layer.eps)
    return _weight_and_bias(
        layer, scaled.reshape(n, -1, *shape).sum(1), d.reshape(n, -1, *shape).sum(1)
    )


def _group_norm(layer: nn.GroupNorm, a: Tensor, d: Tensor, n: int) -> list[Contribution]:
    scaled = d * F.group_norm(a, layer.num_groups, None, None, layer.eps)
    shape = (n, -1, layer.num_channels, math.prod(a.shape[2:]))
    return _weight_and_bias(layer, scaled.reshape(shape).sum((1, 3)), d.reshape(shape).sum((1, 3)))


def _weight_and_bias(layer: Any, weight: Tensor, bias: Tensor) -> list[Contribution]:
    found: list[Contribution] = [Rows(layer.weight, weight)]
    if layer.bias is not None:
        found.append(Rows(layer.bias, bias))
    return found


def _embedding(layer: nn.Embedding, index: Tensor, d: Tensor, n: int) -> list[Contribution]:
    index, d = index.reshape(n, -1), _by_position(d, n)
    if layer.padding_idx is not None:
        d = d.masked_fill((index == layer.padding_idx)[:, :, None], 0.0)
    return [Lookups(layer.weight, index, d)]


RULES: dict[type[nn.Module], Callable[[Any, Tensor, Tensor, int], list[Contribution]]] = {
    nn.Linear: _linear,
    nn.Conv1d: _conv1d,
    nn.Conv2d: _conv2d,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    nn.Embedding: _embedding,
}
