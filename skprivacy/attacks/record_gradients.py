"""Per-record gradients at given weights: norms, and inner products with records and updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .network_view import Labels, ModuleNetwork, Network

Float64Array = NDArray[np.float64]
_BATCH = 64  # records whose gradients torch forms at once


class Block(NamedTuple):
    """Gradients of some weights of a network: for each record, the outer product of two rows."""

    left: Float64Array  # (n_records, n_rows)
    right: Float64Array  # (n_records, n_columns)
    where: NDArray[np.intp]  # (n_rows, n_columns): positions in the vector of weights


@dataclass(frozen=True)
class RecordGradients:
    """Loss gradients of records, stored as outer products instead of a matrix by weights."""

    blocks: list[Block]
    loss: Float64Array

    def __len__(self) -> int:
        return len(self.loss)

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


def record_gradients(network: Network, X: Any, label: Labels) -> RecordGradients:
    """Return the gradient of each record's log-loss with respect to the weights."""
    places = network.weight_positions(X)
    if places is None:
        assert isinstance(network, ModuleNetwork)
        return _module_gradients(network, X, label)
    layers, loss = network.trace(X, label, "loss")
    blocks = []
    for (inputs, at_output, _), where in zip(layers, places, strict=True):
        ones = np.ones((len(inputs), where.shape[1] - inputs.shape[1]))
        blocks.append(Block(at_output, np.hstack([inputs, ones]), where))
    return RecordGradients(blocks, loss)


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
