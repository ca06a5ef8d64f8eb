"""The distribution of greatest entropy that agrees with noisy marginals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ._drawing import drawn
from ._junction import Clique, JunctionTree

__all__ = ["GraphicalModel", "Measurement"]

_RIDGE = 0.005  # trusts the noisy tables about as far as their noise, and no potential diverges
# Tables of less noise are taken for ones of this: that records are a sample makes them less certain
# anyway, and potentials of empty cells would go so far down that L-BFGS takes thousands of steps.
_LEAST_STD = 3.0
_PAIRS = 10  # that L-BFGS remembers

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measurement:
    """A noisy marginal.

    Parameters
    ----------
    columns : Clique
    table : ndarray
        An axis for each column.
    std : float or ndarray that broadcasts to the table
        Of the noise of each cell.
    """

    columns: Clique
    table: Floats
    std: float | Floats


@dataclass
class GraphicalModel:
    """A log-linear model with a potential for each measurement.

    With counts N p(u) expected under potentials u, it minimises
    N log Z(u) - <u, noisy> + ridge / 2 sum std**2 u**2: the dual of greatest entropy with the
    squared error of each cell weighed by its noise.

    Parameters
    ----------
    sizes : list of int
        Cells of each column.
    measurements : list of Measurement
    total : float
        Number of records.

    References
    ----------
    R. McKenna, D. Sheldon and G. Miklau, "Graphical-model based estimation and inference for
    differential privacy", ICML 2019.
    """

    sizes: list[int]
    measurements: list[Measurement]
    total: float
    potentials: list[Floats] = field(init=False)
    tree: JunctionTree = field(init=False)

    def __post_init__(self) -> None:
        self.potentials = [np.zeros(m.table.shape) for m in self.measurements]
        self.tree = JunctionTree.of([m.columns for m in self.measurements], self.sizes)

    def extended(self, measurement: Measurement) -> GraphicalModel:
        """Return a model with one more measurement, which starts where this one is."""
        model = GraphicalModel(self.sizes, [*self.measurements, measurement], self.total)
        model.potentials[:-1] = self.potentials
        return model

    def fit(self, max_iter: int) -> GraphicalModel:
        """Improve the potentials by at most ``max_iter`` steps of L-BFGS."""
        shapes = [m.table.shape for m in self.measurements]
        cuts = np.cumsum([m.table.size for m in self.measurements])[:-1]
        homes = [self.tree.home(m.columns, self.sizes) for m in self.measurements]
        noisy = np.concatenate([m.table.ravel() for m in self.measurements])
        stds = [np.broadcast_to(m.std, m.table.shape).ravel() for m in self.measurements]
        std = np.maximum(np.concatenate(stds), _LEAST_STD)
        ridge = _RIDGE * std**2
        # About the root of the Hessian's diagonal, with which all directions are equally curved.
        curvature = np.sqrt((np.maximum(noisy, std) + ridge) / self.total)

        def objective(scaled: Floats) -> tuple[float, Floats]:
            flat = scaled / curvature
            potentials = [u.reshape(s) for u, s in zip(np.split(flat, cuts), shapes, strict=True)]
            beliefs, log_z = self._beliefs(potentials, homes)
            expected = [
                self._summed(beliefs[home], self.tree.cliques[home], m.columns).ravel()
                for m, home in zip(self.measurements, homes, strict=True)
            ]
            value = self.total * log_z - flat @ noisy + 0.5 * ridge @ flat**2
            slope = self.total * np.concatenate(expected) - noisy + ridge * flat
            return value / self.total, slope / self.total / curvature

        start = np.concatenate([u.ravel() for u in self.potentials]) * curvature
        options = {
            "maxiter": max_iter, "maxfun": 2 * max_iter, "maxcor": _PAIRS,
            "ftol": 1e-10, "gtol": 1e-7,
        }  # fmt: skip
        best = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
        parts = np.split(best / curvature, cuts)
        self.potentials = [u.reshape(s) for u, s in zip(parts, shapes, strict=True)]
        return self

    def beliefs(self) -> list[Floats]:
        """Return the probabilities of the cells of each clique of the junction tree."""
        homes = [self.tree.home(m.columns, self.sizes) for m in self.measurements]
        return self._beliefs(self.potentials, homes)[0]

    def marginal(self, columns: Clique, beliefs: list[Floats]) -> Floats:
        """Return the probabilities of columns that are in one clique."""
        home = self.tree.home(columns, self.sizes)
        return self._summed(beliefs[home], self.tree.cliques[home], columns)

    def sample(self, n: int, random: np.random.RandomState) -> NDArray[np.int64]:
        """Draw codes, shape (n, n_columns)."""
        beliefs = self.beliefs()
        codes = np.zeros((n, len(self.sizes)), np.int64)
        known: set[int] = set()
        for i, _, _ in self.tree.order:
            clique = self.tree.cliques[i]
            for column in sorted(set(clique) - known, key=lambda c: (self.sizes[c], c)):
                given = tuple(c for c in clique if c in known)
                table = self._summed(beliefs[i], clique, tuple(sorted((*given, column))))
                table = np.moveaxis(table, sorted((*given, column)).index(column), -1)
                rows = np.zeros(n, np.int64)
                for c in given:
                    rows = rows * self.sizes[c] + codes[:, c]
                codes[:, column] = drawn(table.reshape(-1, self.sizes[column]), rows, random)
                known.add(column)
        return codes

    def _beliefs(
        self, potentials: Sequence[Floats], homes: list[int]
    ) -> tuple[list[Floats], float]:
        """Return beliefs and log Z, by messages to the root and back.

        On the way to the root a table becomes that of probabilities given its separator, and their
        normalisers, as logarithms, are the message: nothing overflows, and no row is lost.
        """
        cliques = self.tree.cliques
        tables = [np.zeros([self.sizes[c] for c in clique]) for clique in cliques]
        for potential, m, home in zip(potentials, self.measurements, homes, strict=True):
            tables[home] += self._spread(potential, m.columns, cliques[home])
        log_z = 0.0
        for i, parent, separator in reversed(self.tree.order):
            axes = _others(cliques[i], separator)
            top = tables[i].max(axis=axes, keepdims=True)
            np.exp(tables[i] - top, out=tables[i])
            weight = tables[i].sum(axis=axes, keepdims=True)
            tables[i] /= weight
            message = top + np.log(weight)
            if parent is None:
                log_z = float(message.item())
            else:
                tables[parent] += self._spread(message, separator, cliques[parent])
        for i, parent, separator in self.tree.order:
            if parent is not None:
                shares = self._summed(tables[parent], cliques[parent], separator)
                tables[i] *= self._spread(shares, separator, cliques[i])
        return tables, log_z

    def _spread(self, table: Floats, columns: Clique, clique: Clique) -> Floats:
        """Return a table of some columns with an axis for each column of the clique."""
        return table.reshape([self.sizes[c] if c in columns else 1 for c in clique])

    @staticmethod
    def _summed(table: Floats, clique: Clique, columns: Clique) -> Floats:
        """Return the sums of a clique's table over all columns but some."""
        others = _others(clique, columns)
        summed: Floats = table.sum(axis=others) if others else table
        return summed


def _others(clique: Clique, columns: Clique) -> tuple[int, ...]:
    """Return the axes of a clique's table of all columns but some."""
    return tuple(axis for axis, c in enumerate(clique) if c not in columns)
