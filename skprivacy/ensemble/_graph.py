"""Nearest-neighbour graph of records, and label propagation on it (Zhou et al. 2003)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

__all__ = ["build_neighbor_graph", "propagate_labels"]

_STEPS = 60
_DECAY = 4.0


def build_neighbor_graph(rows: NDArray, n_neighbors: int, n_components: int) -> sparse.csr_array:
    """Return the neighbour graph, its weights normalised by the degrees of both ends.

    Records are compared by the angle between their leading principal components, each divided by
    the square root of its standard deviation. In raw features, a few directions unrelated to the
    classes would dominate; in fully whitened features, noise would.

    **Guarantees.** Symmetric, with no weight above 1, so that propagated labels never grow.

    **Edge cases.** Equal records are neighbours of weight 1. Constant features have no effect. With
    fewer records than ``n_neighbors``, all are neighbours of each other.

    References: D. Zhou et al., "Learning with local and global consistency", NIPS 2003; weights by
    the distance of the last neighbour as in J. Calder et al., "Poisson learning", ICML 2020.
    """
    n = len(rows)
    k = min(n_neighbors, n - 1)
    if k < 1:
        return sparse.csr_array((n, n))
    directions = _half_whiten(rows, n_components)
    near = NearestNeighbors(n_neighbors=k, metric="cosine", algorithm="brute").fit(directions)
    distance, neighbor = near.kneighbors()  # excludes the record itself
    # Calder et al. 2020: weights fall with the distance, relative to the last neighbour's
    furthest = np.maximum(distance[:, -1:], np.finfo(distance.dtype).tiny)
    weight = np.exp(-_DECAY * distance / furthest).ravel().astype(np.float64)
    of = np.repeat(np.arange(n), k)
    graph = sparse.csr_array((weight, (of, neighbor.ravel())), shape=(n, n))
    graph = graph.maximum(graph.T)
    # Zhou et al. 2003: S = D^(-1/2) W D^(-1/2)
    scale = sparse.diags_array(1 / np.sqrt(graph.sum(axis=1)))
    return sparse.csr_array(scale @ graph @ scale)


def propagate_labels(
    graph: sparse.csr_array, targets: NDArray[np.float64], spread: float
) -> NDArray[np.float64]:
    """Propagate labels: each record keeps 1 - ``spread`` of its own, the rest is its neighbours'.

    **Guarantees.** Scores are never negative if the targets are not.

    **Edge cases.** A record that no label reaches has score 0 for every class.
    """
    found = targets
    for _ in range(_STEPS):  # Zhou et al. 2003: F <- alpha S F + (1 - alpha) Y
        found = spread * (graph @ found) + (1 - spread) * targets
    return found


def _half_whiten(rows: NDArray, n_components: int) -> NDArray:
    # The seed only sets the start of an iteration that converges to the same directions.
    pca = PCA(min(n_components, *rows.shape), random_state=0)
    components = pca.fit_transform(rows)
    size = np.sqrt(pca.explained_variance_)
    used = size > 1e-6 * size[0]  # smaller components are rounding errors
    return normalize(components[:, used] / np.sqrt(size[used]))
