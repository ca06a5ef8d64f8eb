"""The layers whose per-example gradients follow from their input and the gradient at their output.

``RULES`` maps a layer's type to the function that says what each example contributes. A new kind of
layer is one more function. All other modules go through ``_functional.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from ._contributions import Contribution, Lookups, OuterProduct, OuterProducts, Rows

__all__ = ["RULES", "has_rule"]


def has_rule(layer: nn.Module) -> bool:
    """Whether the layer's per-example gradients are known; subclasses may do anything, so not."""
    own = dict(layer.named_parameters(recurse=False))
    plain = own.keys() <= {"weight", "bias"} and len({p.requires_grad for p in own.values()}) == 1
    return type(layer) in RULES and plain and _ordinary_padding(layer)


def _ordinary_padding(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Conv1d | nn.Conv2d):
        return True
    return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def _linear(layer: nn.Linear, a: Tensor, d: Tensor) -> list[Contribution]:
    if a.dim() == 2:
        return [OuterProduct(layer.weight, layer.bias, a, d)]
    return _sum_of_products(layer, a.flatten(1, -2), d.flatten(1, -2))


def _sum_of_products(layer: Any, a: Tensor, d: Tensor) -> list[Contribution]:
    """Take the Gram matrices over the places, or the gradients themselves: what is smaller."""
    places = a.shape[1]
    if 2 * places**2 < layer.weight.numel():
        return [OuterProducts(layer.weight, layer.bias, a, d)]
    rows = (d.mT @ a).view(-1, *layer.weight.shape)
    found: list[Contribution] = [Rows(layer.weight, rows)]
    if layer.bias is not None:
        found.append(Rows(layer.bias, d.sum(1)))
    return found


def _conv2d(layer: nn.Conv2d, a: Tensor, d: Tensor) -> list[Contribution]:
    patches = F.unfold(a, layer.kernel_size, layer.dilation, layer.padding, layer.stride)  # type: ignore[arg-type]
    return _convolution(layer, patches, d.flatten(2))


def _conv1d(layer: nn.Conv1d, a: Tensor, d: Tensor) -> list[Contribution]:
    (kernel,), (dilation,), (stride,) = layer.kernel_size, layer.dilation, layer.stride
    padding = int(layer.padding[0])
    patches = F.unfold(a[:, :, None], (1, kernel), (1, dilation), (0, padding), (1, stride))
    return _convolution(layer, patches, d)


def _convolution(layer: Any, patches: Tensor, d: Tensor) -> list[Contribution]:
    """A convolution is a linear layer at every place, on the patch that it sees there."""
    groups = layer.groups
    if groups == 1:
        return _sum_of_products(layer, patches.mT, d.mT)
    n = len(patches)
    rows = d.view(n, groups, -1, d.shape[2]) @ patches.view(n, groups, -1, d.shape[2]).mT
    found: list[Contribution] = [Rows(layer.weight, rows.reshape(n, *layer.weight.shape))]
    if layer.bias is not None:
        found.append(Rows(layer.bias, d.sum(2)))
    return found


def _layer_norm(layer: nn.LayerNorm, a: Tensor, d: Tensor) -> list[Contribution]:
    shape = layer.normalized_shape
    scaled = d * F.layer_norm(a, shape, None, None, layer.eps)
    return _scale_and_shift(
        layer, scaled.reshape(len(a), -1, *shape).sum(1), d.reshape(len(a), -1, *shape).sum(1)
    )


def _group_norm(layer: nn.GroupNorm, a: Tensor, d: Tensor) -> list[Contribution]:
    scaled = d * F.group_norm(a, layer.num_groups, None, None, layer.eps)
    shape = (*a.shape[:2], -1)
    return _scale_and_shift(layer, scaled.reshape(shape).sum(2), d.reshape(shape).sum(2))


def _scale_and_shift(layer: Any, weight: Tensor, bias: Tensor) -> list[Contribution]:
    found: list[Contribution] = [Rows(layer.weight, weight)]
    if layer.bias is not None:
        found.append(Rows(layer.bias, bias))
    return found


def _embedding(layer: nn.Embedding, index: Tensor, d: Tensor) -> list[Contribution]:
    index, d = index.reshape(len(index), -1), d.reshape(len(d), -1, d.shape[-1])
    if layer.padding_idx is not None:
        d = d.masked_fill((index == layer.padding_idx)[:, :, None], 0.0)
    return [Lookups(layer.weight, index, d)]


RULES: dict[type[nn.Module], Callable[[Any, Tensor, Tensor], list[Contribution]]] = {
    nn.Linear: _linear,
    nn.Conv1d: _conv1d,
    nn.Conv2d: _conv2d,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    nn.Embedding: _embedding,
}
