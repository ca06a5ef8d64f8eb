"""Leaves, fitted parameters and groups of equal predictions: figures for disclosure checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._clones import asked
from .._groups import Groups
from ..attacks._records import fingerprints

__all__ = ["PredictionGroups", "leaf_sizes", "n_parameters", "prediction_groups"]

IntArray = NDArray[np.int64]

CERTAIN = 1 - 1e-12  # a probability that prints as 1 in single and double precision
# Attributes that hold the fitted numbers of scikit-learn's predictors.
_FITTED = (
    "coef_", "intercept_", "coefs_", "intercepts_", "dual_coef_", "theta_", "var_",
    "feature_log_prob_", "means_", "covariances_", "cluster_centers_",
)  # fmt: skip


@dataclass(frozen=True)
class PredictionGroups:
    """Training records grouped by the model's output for them.

    Attributes
    ----------
    group : ndarray of shape (n,)
        Group number of each record; records with equal output in single precision share one.
    sizes : ndarray of shape (n_groups,)
        Number of records in each group.
    n_distinct : int
        Number of distinct records.
    certain : ndarray of shape (n,)
        Whether the model gives one class a probability of 1.
    """

    group: IntArray
    sizes: IntArray
    n_distinct: int
    certain: NDArray[np.bool_]

    @property
    def shared(self) -> bool:
        """Whether there are at most half as many distinct predictions as distinct records."""
        return 2 * len(self.sizes) <= self.n_distinct

    def count_people(self, people: Groups) -> IntArray:
        """Return the number of people in each group of predictions, shape (n_groups,)."""
        pairs = np.unique(self.group.astype(np.int64) * people.n + people.codes)
        return np.bincount(pairs // people.n, minlength=len(self.sizes))

    def find_disclosed(self, y: Any) -> NDArray[np.bool_]:
        """Return the records whose label the prediction reveals: an unmixed group, or 1."""
        labels = np.unique(np.asarray(y), return_inverse=True)[1]
        first = np.full(len(self.sizes), labels.max() + 1)
        last = np.full(len(self.sizes), -1)
        np.minimum.at(first, self.group, labels)
        np.maximum.at(last, self.group, labels)
        alike = (first == last) & (self.sizes > 1)
        return alike[self.group] | self.certain


def prediction_groups(model: Any, X: Any, records: Any) -> PredictionGroups | None:
    """Group records by the model's most detailed output; None for a model without any."""
    output, of_classes = _output(model, X)
    if output is None:
        return None
    table = output.reshape(len(output), -1)
    with np.errstate(over="ignore"):
        alike = fingerprints(table.astype(np.float32) if table.dtype.kind in "biuf" else table)
    _, group, sizes = np.unique(alike, return_inverse=True, return_counts=True)
    certain = np.zeros(len(table), bool)
    if of_classes:
        certain = table.max(axis=1) >= CERTAIN
    return PredictionGroups(group, sizes, len(np.unique(fingerprints(records))), certain)


def _output(model: Any, X: Any) -> tuple[Any, bool]:
    for name in ("predict_proba", "decision_function", "score_samples", "predict"):
        if hasattr(model, name):
            output = asked(model, name, X)
            if isinstance(output, list):  # one array per target
                return np.concatenate([np.asarray(part) for part in output], axis=1), False
            return np.asarray(output), name == "predict_proba"
    return None, False


def leaf_sizes(parts: list[Any]) -> IntArray:
    """Return the number of training records in each leaf of all trees inside a model."""
    found = [_sizes(nodes, leaf) for nodes, leaf in _trees(parts)]
    return np.concatenate(found) if found else np.zeros(0, int)


def n_parameters(parts: list[Any]) -> int:
    """Return the number of fitted numbers: weights, and thresholds and values of trees."""
    weights = sum(
        _size(vars(part)[name])
        for part in parts
        if hasattr(part, "predict") and hasattr(part, "__dict__")
        for name in _FITTED
        if name in vars(part)
    )
    networks = {
        id(weight): int(weight.numel())
        for part in parts
        if hasattr(part, "named_parameters")
        for _, weight in part.named_parameters()
    }
    splits = sum(len(leaf) - int(leaf.sum()) for _, leaf in _trees(parts))
    values = sum(int(leaf.sum()) * _values_of_a_leaf(nodes) for nodes, leaf in _trees(parts))
    return weights + sum(networks.values()) + splits + values


def _trees(parts: list[Any]) -> Iterator[tuple[Any, NDArray[np.bool_]]]:
    """Yield the nodes of each tree, and which of them are leaves."""
    for part in parts:
        tree: Any = getattr(part, "__dict__", {}).get("tree_")
        if hasattr(tree, "n_node_samples") and hasattr(tree, "children_left"):
            yield tree, tree.children_left == -1
        for stage in getattr(part, "_predictors", ()):  # histogram-based boosting
            for predictor in stage:
                yield predictor.nodes, predictor.nodes["is_leaf"].astype(bool)


def _sizes(nodes: Any, leaf: NDArray[np.bool_]) -> IntArray:
    counts = nodes["count"] if isinstance(nodes, np.ndarray) else nodes.n_node_samples
    return np.asarray(counts)[leaf].astype(int)


def _values_of_a_leaf(nodes: Any) -> int:
    """Return the number of free numbers in a leaf: the shares of the classes sum to 1."""
    if isinstance(nodes, np.ndarray):
        return 1
    _, n_outputs, n_values = nodes.value.shape
    return n_outputs * max(n_values - 1, 1)


def _size(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum(_size(part) for part in value)
    size = getattr(value, "size", None)
    return int(size) if isinstance(size, (int, np.integer)) else int(np.size(value))
