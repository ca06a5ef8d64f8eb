"""A graph of records that are alike, and labels that spread along it."""

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
    """Return weights between records that are alike, normalised by the degrees of both ends.

    Records are compared by the angle between their leading principal components, each divided by
    the square root of its standard deviation: of raw features a few directions that tell no class
    apart would decide, of fully whitened ones noise would.

    **Guarantees.** Symmetric, with no weight above 1, so that spreading along it never grows.

    **Edge cases.** Equal records are neighbours of weight 1. Constant features say nothing. Fewer
    records than neighbours are all neighbours of each other.

    References: D. Zhou et al., "Learning with local and global consistency", NIPS 2003; weights by
    the distance of the last neighbour as in J. Calder et al., "Poisson learning", ICML 2020.
    """
    n = len(rows)
    k = min(n_neighbors, n - 1)
    if k < 1:
        return sparse.csr_array((n, n))
    directions = _half_whiten(rows, n_components)
    near = NearestNeighbors(n_neighbors=k, metric="cosine", algorithm="brute").fit(directions)
    distance, neighbor = near.kneighbors()  # of each record, itself left out
    furthest = np.maximum(distance[:, -1:], np.finfo(distance.dtype).tiny)
    weight = np.exp(-_DECAY * distance / furthest).ravel().astype(np.float64)
    of = np.repeat(np.arange(n), k)
    graph = sparse.csr_array((weight, (of, neighbor.ravel())), shape=(n, n))
    graph = graph.maximum(graph.T)
    scale = sparse.diags_array(1 / np.sqrt(graph.sum(axis=1)))
    return sparse.csr_array(scale @ graph @ scale)


def propagate_labels(
    graph: sparse.csr_array, targets: NDArray[np.float64], spread: float
) -> NDArray[np.float64]:
    """Return what each record gets of each class: 1 - ``spread`` of its own, the rest from others.

    **Guarantees.** No negative number comes of none.

    **Edge cases.** A record that no label reaches gets 0 of every class.
    """
    found = targets
    for _ in range(_STEPS):
        found = spread * (graph @ found) + (1 - spread) * targets
    return found


def _half_whiten(rows: NDArray, n_components: int) -> NDArray:
    # The seed starts an iteration that finds the same leading directions from anywhere.
    pca = PCA(min(n_components, *rows.shape), random_state=0)
    components = pca.fit_transform(rows)
    size = np.sqrt(pca.explained_variance_)
    used = size > 1e-6 * size[0]  # the others are rounding
    return normalize(components[:, used] / np.sqrt(size[used]))
