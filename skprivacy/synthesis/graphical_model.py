"""Graphical model of greatest entropy that agrees with noisy marginals (Private-PGM).

R. McKenna, D. Sheldon and G. Miklau, "Graphical-model based estimation and inference for
differential privacy", ICML 2019. :class:`GraphicalModel` fits potentials by L-BFGS, with sums over
all cells by belief propagation on a :class:`JunctionTree`. :func:`sample_conditional` draws
records with little sampling error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

_MIN_WEIGHT = 1e-12


def sample_conditional(
    table: NDArray[np.float64], rows: NDArray[np.int64], random: np.random.RandomState
) -> NDArray[np.int64]:
    """Draw a column index for each record by the weights of its table row, by systematic sampling.

    Within a row, the number of records that get a column is within 1 of its expectation. Negative
    weights count as 0, and all weights of a zero row as equal.
    """
    n, width = len(rows), table.shape[1]
    reached = np.cumsum(np.maximum(table, 0.0) + _MIN_WEIGHT, axis=1)
    reached /= reached[:, -1:]
    order = random.permutation(n)
    narrow = rows.astype(np.min_scalar_type(len(table)))  # 16 bits are sorted by their digits
    order = order[np.argsort(narrow[order], kind="stable")]
    row = rows[order]
    counts = np.bincount(row, minlength=len(table))
    rank = np.arange(n) - (np.cumsum(counts) - counts)[row]
    at = (rank + random.uniform(size=len(table))[row]) / counts[row]
    flat = (reached + np.arange(len(table))[:, None]).ravel()
    place = (
        np.searchsorted(flat, row + np.minimum(at, 1.0 - _MIN_WEIGHT), side="right") - row * width
    )
    result = np.empty(n, np.int64)
    result[order] = np.clip(place, 0, width - 1)
    return result


Clique = tuple[int, ...]  # columns, increasing


@dataclass(frozen=True)
class JunctionTree:
    """Cliques of a junction tree, and the order in which messages pass between them."""

    cliques: tuple[Clique, ...]
    # Clique, parent and separator, parents before children. The root's parent is None.
    order: tuple[tuple[int, int | None, Clique], ...]

    @classmethod
    def from_cliques(cls, measured: Iterable[Clique], sizes: Sequence[int]) -> JunctionTree:
        """Return a junction tree whose cliques contain each measured clique."""
        cliques = _triangulate(measured, sizes)
        inside, left = [0], set(range(1, len(cliques)))
        order: list[tuple[int, int | None, Clique]] = [(0, None, ())]
        while left:  # maximum spanning tree by separator size: a junction tree
            child, parent = max(
                ((i, p) for i in left for p in inside),
                key=lambda pair: (len(_separator(cliques, *pair)), -pair[0], -pair[1]),
            )
            order.append((child, parent, _separator(cliques, child, parent)))
            inside.append(child)
            left.discard(child)
        return cls(tuple(cliques), tuple(order))

    def smallest_clique_with(self, columns: Iterable[int], sizes: Sequence[int]) -> int:
        """Return the index of the smallest clique that contains the columns."""
        wanted = set(columns)
        holding = [i for i, clique in enumerate(self.cliques) if wanted <= set(clique)]
        return min(holding, key=lambda i: _count_cells(self.cliques[i], sizes))


def count_junction_tree_cells(measured: Iterable[Clique], sizes: Sequence[int]) -> int:
    """Return the number of cells of all tables of a junction tree."""
    return sum(_count_cells(clique, sizes) for clique in _triangulate(measured, sizes))


def _triangulate(measured: Iterable[Clique], sizes: Sequence[int]) -> list[Clique]:
    """Return the maximal cliques of greedy variable elimination, smallest table first."""
    near: dict[int, set[int]] = {column: set() for column in range(len(sizes))}
    for clique in measured:
        for column in clique:
            near[column] |= set(clique) - {column}
    found: list[set[int]] = []
    while near:
        column = min(near, key=lambda c: (_count_cells((*near[c], c), sizes), c))
        others = near.pop(column)
        if not any(others | {column} <= clique for clique in found):
            found.append(others | {column})
        for other in others:
            near[other] |= others
            near[other] -= {other, column}
    return [tuple(sorted(clique)) for clique in found]


def _count_cells(clique: Iterable[int], sizes: Sequence[int]) -> int:
    return math.prod(sizes[column] for column in clique)


def _separator(cliques: Sequence[Clique], one: int, other: int) -> Clique:
    return tuple(sorted(set(cliques[one]) & set(cliques[other])))


_RIDGE = 0.005  # keeps potentials finite, and fits the tables up to about their noise
# Smallest noise assumed: sampling makes tables uncertain anyway, and with less noise the potentials
# of empty cells would need thousands of steps of L-BFGS.
_MIN_STD = 3.0
_LBFGS_MEMORY = 10  # corrections that L-BFGS stores
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measurement:
    """A noisy marginal: its columns, a table with one axis per column, and the noise of cells."""

    columns: Clique
    table: Floats
    std: float | Floats


@dataclass(frozen=True)
class StructuralZeros:
    """Columns, and a table that is False where no record is possible, with an axis for each."""

    columns: Clique
    possible: NDArray[np.bool_]

    def project(self, columns: Clique) -> NDArray[np.bool_]:
        """Return where cells of some columns are possible; other columns have an axis of size 1."""
        table = self.possible.any(axis=_axes_without(self.columns, columns), keepdims=True)
        kept = [c for c in self.columns if c in columns]
        sizes = dict(zip(self.columns, table.shape, strict=True))
        return table.reshape([sizes[c] if c in kept else 1 for c in columns])


@dataclass
class GraphicalModel:
    """Log-linear model with a table of potentials for each measurement.

    Let u be the potentials, p(u) the probabilities of the measured cells and N the number of
    records. The fit minimises N log Z(u) - <u, noisy> + ridge / 2 sum std**2 u**2. This is the dual
    of entropy maximisation with a squared error of each cell, weighted by its noise. Cells of
    ``zeros`` have probability 0.
    """

    sizes: list[int]  # number of cells of each column
    measurements: list[Measurement]
    total: float  # number of records
    zeros: tuple[StructuralZeros, ...] = ()
    potentials: list[Floats] = field(init=False)
    tree: JunctionTree = field(init=False)

    def __post_init__(self) -> None:
        self.potentials = [np.zeros(m.table.shape) for m in self.measurements]
        cliques = [m.columns for m in self.measurements] + [z.columns for z in self.zeros]
        self.tree = JunctionTree.from_cliques(cliques, self.sizes)

    def with_measurements(self, measurements: Sequence[Measurement]) -> GraphicalModel:
        """Return a model with more measurements that starts from the fitted potentials."""
        model = replace(self, measurements=[*self.measurements, *measurements])
        model.potentials[: len(self.potentials)] = self.potentials
        return model

    def without_large_zeros(self, max_cells: int) -> GraphicalModel:
        """Return a model without the structural zeros that make it exceed ``max_cells``."""
        kept: list[StructuralZeros] = []
        measured = [m.columns for m in self.measurements]
        for zeros in sorted(self.zeros, key=lambda own: own.possible.size):
            cliques = [*measured, *(own.columns for own in kept), zeros.columns]
            if count_junction_tree_cells(cliques, self.sizes) <= max_cells:
                kept.append(zeros)
        if len(kept) == len(self.zeros):
            return self
        model = replace(self, zeros=tuple(kept))
        model.potentials = self.potentials
        return model

    def fit(self, max_iter: int) -> GraphicalModel:
        """Improve the potentials by at most ``max_iter`` steps of L-BFGS."""
        shapes = [m.table.shape for m in self.measurements]
        cuts = np.cumsum([m.table.size for m in self.measurements])[:-1]
        homes = [self.tree.smallest_clique_with(m.columns, self.sizes) for m in self.measurements]
        noisy = np.concatenate([m.table.ravel() for m in self.measurements])
        stds = [np.broadcast_to(m.std, m.table.shape).ravel() for m in self.measurements]
        std = np.maximum(np.concatenate(stds), _MIN_STD)
        if self.zeros:  # counts of impossible cells are noise, or records that break the rules
            noisy[~np.concatenate([self._possible_cells(m) for m in self.measurements])] = 0.0
        ridge = _RIDGE * std**2
        # Preconditioner: about the root of the Hessian's diagonal.
        curvature = np.sqrt((np.maximum(noisy, std) + ridge) / self.total)

        def objective(scaled: Floats) -> tuple[float, Floats]:
            flat = scaled / curvature
            potentials = [u.reshape(s) for u, s in zip(np.split(flat, cuts), shapes, strict=True)]
            beliefs, log_z = self._propagate(potentials, homes)
            expected = [
                self._sum_to_columns(beliefs[home], self.tree.cliques[home], m.columns).ravel()
                for m, home in zip(self.measurements, homes, strict=True)
            ]
            value = self.total * log_z - flat @ noisy + 0.5 * ridge @ flat**2
            slope = self.total * np.concatenate(expected) - noisy + ridge * flat
            return value / self.total, slope / self.total / curvature

        start = np.concatenate([u.ravel() for u in self.potentials]) * curvature
        options = {
            "maxiter": max_iter, "maxfun": 2 * max_iter, "maxcor": _LBFGS_MEMORY,
            "ftol": 1e-10, "gtol": 1e-7,
        }  # fmt: skip
        best = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
        parts = np.split(best / curvature, cuts)
        self.potentials = [u.reshape(s) for u, s in zip(parts, shapes, strict=True)]
        return self

    def _possible_cells(self, measurement: Measurement) -> NDArray[np.bool_]:
        """Return which cells of a measurement, flattened, hold a possible record."""
        possible = np.ones(measurement.table.shape, bool)
        for zeros in self.zeros:
            possible &= zeros.project(measurement.columns)
        return possible.ravel()

    def beliefs(self) -> list[Floats]:
        """Return the cell probabilities of each clique of the junction tree."""
        homes = [self.tree.smallest_clique_with(m.columns, self.sizes) for m in self.measurements]
        return self._propagate(self.potentials, homes)[0]

    def marginal(self, columns: Clique, beliefs: list[Floats]) -> Floats:
        """Return the probabilities of columns that lie in one clique."""
        home = self.tree.smallest_clique_with(columns, self.sizes)
        return self._sum_to_columns(beliefs[home], self.tree.cliques[home], columns)

    def sample(self, n: int, random: np.random.RandomState) -> NDArray[np.int64]:
        """Draw codes of shape (n, n_columns)."""
        beliefs = self.beliefs()
        codes = np.zeros((n, len(self.sizes)), np.int64)
        known: set[int] = set()
        for i, _, _ in self.tree.order:
            clique = self.tree.cliques[i]
            for column in sorted(set(clique) - known, key=lambda c: (self.sizes[c], c)):
                given = tuple(c for c in clique if c in known)
                table = self._sum_to_columns(beliefs[i], clique, tuple(sorted((*given, column))))
                table = np.moveaxis(table, sorted((*given, column)).index(column), -1)
                rows = np.zeros(n, np.int64)
                for c in given:
                    rows = rows * self.sizes[c] + codes[:, c]
                codes[:, column] = sample_conditional(
                    table.reshape(-1, self.sizes[column]), rows, random
                )
                known.add(column)
        return codes

    def _propagate(
        self, potentials: Sequence[Floats], homes: list[int]
    ) -> tuple[list[Floats], float]:
        """Return beliefs and log Z by belief propagation: messages to the root and back."""
        # On the way to the root, each table becomes conditional on its separator. The logarithms of
        # the normalisers are the message, so nothing overflows.
        cliques = self.tree.cliques
        tables = [np.zeros([self.sizes[c] for c in clique]) for clique in cliques]
        for potential, m, home in zip(potentials, self.measurements, homes, strict=True):
            tables[home] += self._expand_to_clique(potential, m.columns, cliques[home])
        for zeros in self.zeros:
            home = self.tree.smallest_clique_with(zeros.columns, self.sizes)
            log_mask = np.where(zeros.possible, 0.0, -np.inf)
            tables[home] += self._expand_to_clique(log_mask, zeros.columns, cliques[home])
        log_z = 0.0
        for i, parent, separator in reversed(self.tree.order):  # children before parents
            axes = _axes_without(cliques[i], separator)
            top = tables[i].max(axis=axes, keepdims=True)
            possible = top > -np.inf  # False where no cell of the separator's row is possible
            top = np.where(possible, top, 0.0)
            np.exp(tables[i] - top, out=tables[i])
            weight = np.where(possible, tables[i].sum(axis=axes, keepdims=True), 1.0)
            tables[i] /= weight
            message = np.where(possible, top + np.log(weight), -np.inf)
            if parent is None:
                log_z = float(message.item())
            else:
                tables[parent] += self._expand_to_clique(message, separator, cliques[parent])
        for i, parent, separator in self.tree.order:
            if parent is not None:
                shares = self._sum_to_columns(tables[parent], cliques[parent], separator)
                tables[i] *= self._expand_to_clique(shares, separator, cliques[i])
        return tables, log_z

    def _expand_to_clique(self, table: Floats, columns: Clique, clique: Clique) -> Floats:
        """Return a table with one axis for each column of the clique."""
        return table.reshape([self.sizes[c] if c in columns else 1 for c in clique])

    @staticmethod
    def _sum_to_columns(table: Floats, clique: Clique, columns: Clique) -> Floats:
        """Return the marginal of a clique's table over the columns."""
        others = _axes_without(clique, columns)
        summed: Floats = table.sum(axis=others) if others else table
        return summed


def _axes_without(clique: Clique, columns: Clique) -> tuple[int, ...]:
    """Return the axes of a clique's table that do not belong to the columns."""
    return tuple(axis for axis, c in enumerate(clique) if c not in columns)
