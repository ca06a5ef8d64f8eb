"""Book-keeping (Bu et al. 2023, Algorithm 1): contributions of every layer from one backward pass.

No weight gradient is computed. :class:`AutogradBackward` serves any module whose layers have a
rule. ``RULES`` maps a layer's type to a function that returns the contributions of ``n`` examples,
given the layer's input and the gradient at its output. Their rows are the examples, or several
views of each in succession. Contributions of views, and of the positions of a sequence or an image,
are summed. A new kind of layer needs one more function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F

from .._training.torch_modes import numpy_sees
from .contributions import (
    ROW_COST,
    Contribution,
    DenseGradients,
    Lookups,
    OuterProduct,
    OuterProducts,
    products,
)

Loss = Callable[[Tensor, Tensor], Tensor]
# Consecutive numbers that are worth copying in one piece, and numbers that a core's cache holds.
_SHORT, _CACHED = 32, 1 << 20
_Seen = list[tuple[nn.Module, Tensor, int, GradientEdge]]


class AutogradBackward:
    """Book-keeping for a module whose trained layers all have a rule and are used once.

    With several ``views``, an example contributes the mean of as many consecutive rows. ValueError
    is raised if a layer has no rule, shares a parameter, is used twice, or is overwritten.
    """

    name = "book-keeping"

    def __init__(self, module: nn.Module, per_example_loss: Loss, views: int = 1) -> None:
        self.module = module
        self.per_example_loss = per_example_loss
        self.views = views
        self.layers = [m for m in module.modules() if _trained_parameters(m)]
        if strange := [type(m).__name__ for m in self.layers if not has_rule(m)]:
            raise ValueError(f"No rule for {strange}.")
        owned = [p for m in self.layers for p in _trained_parameters(m)]
        if len(owned) != len({id(p) for p in owned}):
            raise ValueError("A parameter is shared between layers.")

    def __call__(self, inputs: Tensor, targets: Tensor) -> list[Contribution]:
        with torch.enable_grad():
            seen, output = self._forward(inputs)
            losses = self.per_example_loss(output, targets.repeat_interleave(self.views, 0))
            loss = losses.sum() / self.views
            # Bu et al. 2023, Algorithm 1: one backward pass for the output gradients of all layers
            grads = torch.autograd.grad(loss, [edge for *_, edge in seen])
        with torch.no_grad(), np.errstate(all="ignore"):
            return [
                contribution
                for (layer, a, _, _), grad in zip(seen, grads, strict=True)
                for contribution in RULES[type(layer)](layer, a, grad, len(targets))
            ]

    def _forward(self, inputs: Tensor) -> tuple[_Seen, Tensor]:
        """Run the module; record every layer's input, and the graph edge of its output."""
        seen: _Seen = []

        def note(layer: Any, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            a = args[0].detach()
            seen.append((layer, a, a._version, get_gradient_edge(output)))
            return output.clone() if output._is_view() else output

        hooks = [layer.register_forward_hook(note) for layer in self.layers]
        try:
            output = self.module(inputs)
        finally:
            for hook in hooks:
                hook.remove()
        if sorted(map(id, self.layers)) != sorted(id(layer) for layer, *_ in seen):
            raise ValueError(f"Not every layer of {type(self.module).__name__} is used just once.")
        if any(a._version != version for _, a, version, _ in seen):
            raise ValueError(f"{type(self.module).__name__} overwrites the input of a layer.")
        return seen, output


def has_rule(layer: nn.Module) -> bool:
    """Return True if a layer has a rule; subclasses have none, since they may do anything."""
    params = dict(layer.named_parameters(recurse=False))
    trained = {p.requires_grad for p in params.values()}
    plain = params.keys() <= {"weight", "bias"} and len(trained) == 1
    return type(layer) in RULES and plain and _ordinary_padding(layer)


def sum_of_products(layer: nn.Linear, a: Tensor, d: Tensor) -> list[Contribution]:
    """Return the faster form of contributions: Gram matrices over the positions, or gradients."""
    if _pairs_are_faster(a.shape[1], a.shape[2], d.shape[2]):
        return [OuterProducts(layer.weight, layer.bias, a, d)]
    return _weight_and_bias(layer, d.mT @ a, d.sum(1))


def _trained_parameters(layer: nn.Module) -> list[nn.Parameter]:
    return [p for p in layer.parameters(recurse=False) if p.requires_grad]


def _ordinary_padding(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Conv1d | nn.Conv2d):
        return True
    return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def _linear(layer: nn.Linear, a: Tensor, d: Tensor, n: int) -> list[Contribution]:
    if a.dim() == 2 and len(a) == n:
        return [OuterProduct(layer.weight, layer.bias, a, d)]
    return sum_of_products(layer, _by_position(a, n), _by_position(d, n))


def _pairs_are_faster(positions: int, n_in: int, n_out: int) -> bool:
    # Bu et al. 2023, mixed ghost norm: choose by layer, by the cost of each method
    return positions**2 * (n_in + n_out) < ROW_COST * n_in * n_out


def _convolution(layer: Any, a: Tensor, d: Tensor, n: int) -> list[Contribution]:
    """Return the contributions of a convolution: a linear layer on the patch at every position."""
    grads, views = _by_position(d.flatten(2).mT, n), len(a) // n
    positions, (n_out, channels, *window) = grads.shape[1], layer.weight.shape
    n_in, groups = channels * math.prod(window), layer.groups
    if groups == 1 and _pairs_are_faster(positions, n_in, n_out):
        return [OuterProducts(layer.weight, layer.bias, _by_position(_unfold(layer, a), n), grads)]
    rows, squared = a.new_empty(n, n_out * n_in), []
    few = max(1, _CACHED // (positions * n_in * groups)) if numpy_sees(a) else n
    for some, of_some, out in zip(
        a.split(few * views), grads.split(few), rows.split(few), strict=True
    ):
        given = _group_channels(of_some, groups, n_out // groups).mT
        for columns, seen in _iter_bands(layer, some):
            inputs = _group_channels(_by_position(seen, len(out)), groups, channels)
            products(given, inputs, out.view(-1, n_out // groups, n_in)[..., columns])
        squared.append(DenseGradients(layer.weight, out).squared_norms())
    weight = DenseGradients(layer.weight, rows, channels_last=True, squared=torch.cat(squared))
    return [weight, *_bias(layer, grads.sum(1))]


def _group_channels(values: Tensor, groups: int, channels: int) -> Tensor:
    """Return the channels of each group, shape (batch x groups, positions, channels of a group)."""
    parted = values.unflatten(2, (-1, groups, channels))
    return parted.permute(0, 3, 1, 2, 4).flatten(3).flatten(0, 1)


def _iter_bands(layer: Any, a: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield bands of a window: the columns of a band, and its inputs by position."""
    kernel, gap, stride = (v[0] for v in (layer.kernel_size, layer.dilation, layer.stride))
    together = stride if gap == 1 else 1
    width = layer.weight[0, :, 0].numel()
    if not numpy_sees(a) or width * min(together, kernel) < _SHORT:
        yield slice(None), _unfold(layer, a)
        return
    a = _channels_last(layer, a)
    down = (a.shape[1] - (kernel - 1) * gap - 1) // stride + 1
    if more := -a.shape[1] % stride:
        a = F.pad(a, [0, 0] * (a.dim() - 2) + [0, more])
    a = _view_windows(layer, a, 2) if a.dim() == 4 else a[:, :, None]
    across = a.shape[2]
    rows = a.unflatten(1, (-1, stride)).movedim(2, 3).flatten(3).flatten(1, 2)
    row = rows.shape[2] // stride
    for first in range(0, kernel, together):
        (place, rest), n = divmod(first * gap, stride), min(together, kernel - first)
        seen = rows[:, place * across : (place + down) * across, rest * row : (rest + n) * row]
        yield slice(first * width, (first + n) * width), seen


def _unfold(layer: Any, a: Tensor) -> Tensor:
    """Return a convolution's inputs by position, (batch, positions, kernel x channels)."""
    a = _channels_last(layer, a)
    for axis in range(a.dim() - 2, 0, -1):
        a = _view_windows(layer, a, axis).flatten(-2)
    return a.reshape(len(a), -1, a.shape[-1])


def _channels_last(layer: Any, a: Tensor) -> Tensor:
    """Return padded images with the channels last."""
    if any(layer.padding):
        a = F.pad(a, [side for p in reversed(layer.padding) for side in (p, p)])
    return a.movedim(1, -1).contiguous()


def _view_windows(layer: Any, a: Tensor, axis: int) -> Tensor:
    """Return a view of the windows along an axis, the kernel and the channels last."""
    kernel, gap, stride = (v[axis - 1] for v in (layer.kernel_size, layer.dilation, layer.stride))
    if a.shape[-1] < _SHORT:  # copied side by side with the next row
        a = a.movedim(axis, -2).contiguous().movedim(-2, axis)
    return a.unfold(axis, (kernel - 1) * gap + 1, stride)[..., ::gap].mT


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
    return [DenseGradients(layer.weight, weight), *_bias(layer, bias)]


def _bias(layer: Any, bias: Tensor) -> list[Contribution]:
    return [] if layer.bias is None else [DenseGradients(layer.bias, bias)]


def _embedding(layer: nn.Embedding, index: Tensor, d: Tensor, n: int) -> list[Contribution]:
    index, d = index.reshape(n, -1), _by_position(d, n)
    if layer.padding_idx is not None:
        d = d.masked_fill((index == layer.padding_idx)[:, :, None], 0.0)
    return [Lookups(layer.weight, index, d)]


RULES: dict[type[nn.Module], Callable[[Any, Tensor, Tensor, int], list[Contribution]]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    nn.Embedding: _embedding,
}
