"""Per-record gradients at given weights: norms, and inner products with records and updates."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .network_view import Labels, ModuleNetwork, Network, PlainNetwork, open_network

__all__ = ["Block", "RecordGradients", "network_at", "record_gradients", "weights_of"]

Float64Array = NDArray[np.float64]
_BATCH = 64  # records whose gradients torch forms at once


class Block(NamedTuple):
    """Gradients of some weights of a network: for each record, the outer product of two rows."""

    left: Float64Array  # (n_records, n_rows)
    right: Float64Array  # (n_records, n_columns)
    where: NDArray[np.intp]  # (n_rows, n_columns): positions in the vector of weights


@dataclass(frozen=True)
class RecordGradients:
    """Loss gradients of records, stored as outer products instead of a matrix by weights.

    The gradient of a linear layer is an outer product, so inner products of gradients are products
    of small matrices. For other layers, each record has one long row.
    """

    blocks: list[Block]
    loss: Float64Array

    def __len__(self) -> int:
        return len(self.loss)

    def take(self, rows: NDArray[Any]) -> RecordGradients:
        parts = [Block(b.left[rows], b.right[rows], b.where) for b in self.blocks]
        return RecordGradients(parts, self.loss[rows])

    def squared_norms(self) -> Float64Array:
        sizes = (np.sum(b.left**2, axis=1) * np.sum(b.right**2, axis=1) for b in self.blocks)
        return np.sum(list(sizes), axis=0)

    def clip_to(self, norm: float) -> RecordGradients:
        """Return the gradients clipped to ``norm``, as a party does before summing them."""
        # Abadi et al. 2016, DP-SGD: clip each gradient
        factor = np.minimum(1, norm / np.maximum(np.sqrt(self.squared_norms()), 1e-300))
        parts = [Block(b.left * factor[:, None], b.right, b.where) for b in self.blocks]
        return RecordGradients(parts, self.loss)

    def products(self, other: RecordGradients) -> Float64Array:
        """Return the inner products with the gradients of others, (n_records, n_others)."""
        pairs = zip(self.blocks, other.blocks, strict=True)
        return np.sum([(a.left @ b.left.T) * (a.right @ b.right.T) for a, b in pairs], axis=0)

    def project_on(self, vector: Float64Array) -> Float64Array:
        """Return the inner product of each gradient with a vector of weights."""
        parts = [np.sum((b.left @ vector[b.where]) * b.right, axis=1) for b in self.blocks]
        return np.sum(parts, axis=0)

    def mean(self, n_weights: int) -> Float64Array:
        """Return the mean gradient, of shape (n_weights,)."""
        total = np.zeros(n_weights)
        for b in self.blocks:
            total[b.where] = b.left.T @ b.right / len(self)
        return total


def weights_of(model: Any) -> Float64Array:
    """Return all weights of a network as one vector, in the order of :meth:`Updates.weights_of`."""
    network, _ = open_network(model)
    if isinstance(network, ModuleNetwork):
        parts = [p.detach().cpu().numpy() for p in network.module.parameters()]
    else:
        assert isinstance(network, PlainNetwork)
        parts = [w for pair in zip(network.weights, network.biases, strict=True) for w in pair]
    return np.concatenate([np.ravel(part) for part in parts]).astype(float)


def network_at(network: Network, weights: Float64Array) -> Network:
    """Return a copy of a network with other weights."""
    if isinstance(network, PlainNetwork):
        layers = zip(network.weights, network.biases, strict=True)
        shapes = [np.shape(w) for pair in layers for w in pair]
        parts = _split_weights(weights, shapes)
        return PlainNetwork(parts[::2], parts[1::2], network.activation, network.recipe)
    import torch

    assert isinstance(network, ModuleNetwork)
    module = copy.deepcopy(network.module)
    values = list(module.parameters())
    with torch.no_grad():
        parts = _split_weights(weights, [tuple(p.shape) for p in values])
        for value, part in zip(values, parts, strict=True):
            value.copy_(torch.as_tensor(part))
    return ModuleNetwork(module, epochs=network.epochs, probabilities=network.probabilities)


def record_gradients(network: Network, X: Any, label: Labels) -> RecordGradients:
    """Return the gradient of each record's log-loss with respect to the weights."""
    if isinstance(network, PlainNetwork):
        starts, at = [], 0
        for weight in network.weights:
            starts.append((at, at + weight.size, weight.shape))
            at += weight.size + weight.shape[1]
        places = [
            np.vstack([np.arange(low, high).reshape(shape), high + np.arange(shape[1])]).T
            for low, high, shape in starts
        ]
        return _linear_gradients(network, X, label, places)
    assert isinstance(network, ModuleNetwork)
    linear = _linear_positions(network, X)
    if linear is not None:
        return _linear_gradients(network, X, label, linear)
    return _module_gradients(network, X, label)


def _linear_gradients(
    network: Network, X: Any, label: Labels, places: list[NDArray[np.intp]]
) -> RecordGradients:
    layers, loss = network.trace(X, label, "loss")
    blocks = []
    for (inputs, at_output, _), where in zip(layers, places, strict=True):
        ones = np.ones((len(inputs), where.shape[1] - inputs.shape[1]))
        blocks.append(Block(at_output, np.hstack([inputs, ones]), where))
    return RecordGradients(blocks, loss)


def _linear_positions(network: ModuleNetwork, X: Any) -> list[NDArray[np.intp]] | None:
    """Return the positions of each linear layer's weights, in order of use; None if not possible.

    Possible only for modules of linear layers, each used once, on one row per record.
    """
    import torch

    module = network.module
    calls: list[Any] = []

    def note(layer: Any, inputs: tuple[Any, ...], _: Any) -> None:
        calls.append((layer, inputs[0].ndim))

    holders = [m for m in module.modules() if any(True for _ in m.parameters(recurse=False))]
    if not all(type(m) is torch.nn.Linear for m in holders):
        return None
    hooks = [m.register_forward_hook(note) for m in holders]
    try:
        with torch.no_grad():
            network._logits(network._tensor(X[:2]))
    finally:
        for hook in hooks:
            hook.remove()
    used = [layer for layer, _ in calls]
    if set(used) != set(holders) or len(used) != len(holders) or any(d != 2 for _, d in calls):
        return None
    starts, at = {}, 0
    for p in module.parameters():
        starts[id(p)] = at
        at += p.numel()
    if at != sum(p.numel() for m in used for p in m.parameters()):
        return None  # shared weights, or weights outside of layers
    places = []
    for layer in used:
        rows, columns = layer.weight.shape
        place = starts[id(layer.weight)] + np.arange(rows * columns).reshape(rows, columns)
        if layer.bias is not None:
            place = np.c_[place, starts[id(layer.bias)] + np.arange(rows)]
        places.append(place)
    return places


def _module_gradients(network: ModuleNetwork, X: Any, label: Labels) -> RecordGradients:
    """Return the gradients of any module, with one long row for each record."""
    import torch

    module = network.module
    values = {name: p.detach() for name, p in module.named_parameters()}
    inputs = network._tensor(X)
    labels = torch.as_tensor(label, device=inputs.device)

    def loss(weights: Any, x: Any, column: Any) -> Any:
        def call(x: Any) -> Any:
            return torch.func.functional_call(module, weights, (x,))

        logits = network._as_logits(call(x[None]), 1)
        value = torch.nn.functional.cross_entropy(logits, column[None])
        return value, value

    each: Callable[..., Any] = torch.func.vmap(
        torch.func.grad(loss, has_aux=True), in_dims=(None, 0, 0), randomness="error"
    )
    rows, losses = [], []
    with network._evaluating():
        for part in range(0, len(inputs), _BATCH):
            batch = slice(part, part + _BATCH)
            gradients, value = each(values, inputs[batch], labels[batch])
            rows.append(torch.cat([g.flatten(1) for g in gradients.values()], 1).cpu().numpy())
            losses.append(value.cpu().numpy())
    matrix = np.concatenate(rows)
    where = np.arange(matrix.shape[1])[None]
    block = Block(np.ones((len(matrix), 1)), matrix, where)
    return RecordGradients([block], np.concatenate(losses).astype(float))


def _split_weights(vector: Float64Array, shapes: list[tuple[int, ...]]) -> list[Float64Array]:
    sizes = [int(np.prod(shape)) for shape in shapes]
    if vector.shape != (sum(sizes),):
        raise ValueError(
            f"weights have shape {vector.shape}; expected ({sum(sizes)},), as the network has. "
            "Pass the weights of the same network."
        )
    parts = np.split(vector, np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
