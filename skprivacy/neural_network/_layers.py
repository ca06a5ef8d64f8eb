"""The layers whose per-example gradients follow from their input and the gradient at their output.

``RULES`` maps a layer's type to the function that says what each of ``n`` examples contributes. The
rows of input and gradient are the examples, or several views of each, one after another: what the
views contribute is summed, as is what the places of a sequence or an image contribute. A new kind
of layer is one more function. All other modules go through ``_functional.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from ._contributions import Contribution, Lookups, OuterProduct, OuterProducts, Rows

__all__ = ["RULES", "has_rule", "sum_of_products"]


def has_rule(layer: nn.Module) -> bool:
    """Whether the layer's per-example gradients are known; subclasses may do anything, so not."""
    own = dict(layer.named_parameters(recurse=False))
    plain = own.keys() <= {"weight", "bias"} and len({p.requires_grad for p in own.values()}) == 1
    return type(layer) in RULES and plain and _ordinary_padding(layer)


def _ordinary_padding(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Conv1d | nn.Conv2d):
        return True
    return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


# Products that take as long as one number of a gradient that is written, squared and read again.
_ROW_COST = 4


def _linear(layer: nn.Linear, a: Tensor, d: Tensor, n: int) -> list[Contribution]:
    if a.dim() == 2 and len(a) == n:
        return [OuterProduct(layer.weight, layer.bias, a, d)]
    return sum_of_products(layer, _places(a, n), _places(d, n))


def sum_of_products(layer: Any, a: Tensor, d: Tensor) -> list[Contribution]:
    """Take the Gram matrices over the places, or the gradients themselves: what is faster.

    ``a`` has shape (batch, places, n_in), ``d`` has shape (batch, places, n_out).
    """
    places, n_in, n_out = a.shape[1], a.shape[2], d.shape[2]
    if places**2 * (n_in + n_out) < _ROW_COST * n_in * n_out:
        return [OuterProducts(layer.weight, layer.bias, a, d)]
    rows = (d.mT @ a).view(-1, *layer.weight.shape)
    return _weight_and_bias(layer, rows, d.sum(1))


def _conv2d(layer: nn.Conv2d, a: Tensor, d: Tensor, n: int) -> list[Contribution]:
    return _convolution(layer, a, d.flatten(2).mT, n)


def _conv1d(layer: nn.Conv1d, a: Tensor, d: Tensor, n: int) -> list[Contribution]:
    return _convolution(layer, a, d.mT, n)


def _convolution(layer: Any, a: Tensor, d: Tensor, n: int) -> list[Contribution]:
    """A convolution is a linear layer at every place, on the patch that it sees there."""
    patches = _patches(layer, a)
    if layer.groups == 1:
        return sum_of_products(layer, _places(patches, n), _places(d, n))
    patches = _places(patches, n).unflatten(2, (layer.groups, -1)).transpose(1, 2)
    grads = _places(d, n).unflatten(2, (layer.groups, -1)).transpose(1, 2)
    rows = (grads.mT @ patches).reshape(n, *layer.weight.shape)
    return _weight_and_bias(layer, rows, _places(d, n).sum(1))


def _patches(layer: Any, a: Tensor) -> Tensor:
    """Return what a convolution sees at each place, shape (batch, places, channels x kernel).

    Copied window by window out of a strided view: faster than ``torch.nn.functional.unfold``.
    """
    axes = a.dim() - 2
    a = F.pad(a, [side for p in reversed(layer.padding) for side in (p, p)])
    for i, (kernel, gap, stride) in enumerate(
        zip(layer.kernel_size, layer.dilation, layer.stride, strict=True)
    ):
        a = a.unfold(2 + i, (kernel - 1) * gap + 1, stride)[..., ::gap]
    places, window = range(2, 2 + axes), range(2 + axes, 2 + 2 * axes)
    n_places = math.prod(a.shape[2 : 2 + axes])
    return a.permute(0, *places, 1, *window).reshape(len(a), n_places, -1)


def _places(values: Tensor, n: int) -> Tensor:
    """Return the places of all views of an example in one row, shape (n, places, features)."""
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
    index, d = index.reshape(n, -1), _places(d, n)
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
