"""Junction trees: over which cliques of columns a graphical model can be summed exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Clique", "JunctionTree", "n_cells_of_junction_tree"]

Clique = tuple[int, ...]  # columns, increasing


@dataclass(frozen=True)
class JunctionTree:
    """Cliques, and in which order messages pass between them.

    Attributes
    ----------
    cliques : tuple of Clique
    order : tuple of (clique, parent, separator)
        Indices of cliques, the root first, whose parent is None; parents before children.
    """

    cliques: tuple[Clique, ...]
    order: tuple[tuple[int, int | None, Clique], ...]

    @classmethod
    def of(cls, measured: Iterable[Clique], sizes: Sequence[int]) -> JunctionTree:
        """Return a junction tree in which each measured clique is in some clique."""
        cliques = _triangulated(measured, sizes)
        inside, left = [0], set(range(1, len(cliques)))
        order: list[tuple[int, int | None, Clique]] = [(0, None, ())]
        while left:  # a spanning tree of the largest separators has the running intersection
            child, parent = max(
                ((i, p) for i in left for p in inside),
                key=lambda pair: (len(_shared(cliques, *pair)), -pair[0], -pair[1]),
            )
            order.append((child, parent, _shared(cliques, child, parent)))
            inside.append(child)
            left.discard(child)
        return cls(tuple(cliques), tuple(order))

    def home(self, columns: Iterable[int], sizes: Sequence[int]) -> int:
        """Return the index of the smallest clique that holds all the columns."""
        wanted = set(columns)
        holding = [i for i, clique in enumerate(self.cliques) if wanted <= set(clique)]
        return min(holding, key=lambda i: _n_cells(self.cliques[i], sizes))


def n_cells_of_junction_tree(measured: Iterable[Clique], sizes: Sequence[int]) -> int:
    """Return how many cells the tables of a junction tree have together."""
    return sum(_n_cells(clique, sizes) for clique in _triangulated(measured, sizes))


def _triangulated(measured: Iterable[Clique], sizes: Sequence[int]) -> list[Clique]:
    """Return the maximal cliques after columns are eliminated, that of the least table first."""
    near: dict[int, set[int]] = {column: set() for column in range(len(sizes))}
    for clique in measured:
        for column in clique:
            near[column] |= set(clique) - {column}
    found: list[set[int]] = []
    while near:
        column = min(near, key=lambda c: (_n_cells((*near[c], c), sizes), c))
        others = near.pop(column)
        if not any(others | {column} <= clique for clique in found):
            found.append(others | {column})
        for other in others:
            near[other] |= others
            near[other] -= {other, column}
    return [tuple(sorted(clique)) for clique in found]


def _n_cells(clique: Iterable[int], sizes: Sequence[int]) -> int:
    return math.prod(sizes[column] for column in clique)


def _shared(cliques: Sequence[Clique], one: int, other: int) -> Clique:
    return tuple(sorted(set(cliques[one]) & set(cliques[other])))
