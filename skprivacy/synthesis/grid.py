"""The public fine grid of a numeric column: into which cells its values are counted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from .._validation import is_number
from ..accounting._checks import numbers
from ..preprocessing import Bounded

__all__ = ["Grid"]

_CELLS = 100
_MOST_CELLS = 10_000


@dataclass(frozen=True)
class Grid:
    """How finely a synthesizer counts the values of a numeric column: a public choice.

    It is chosen by what a codebook says, never by the data. A fine grid costs little: bins are
    joined from it by noisy counts.

    Parameters
    ----------
    step : float, default=None
        Width of a cell, in the units of the column. ``None`` makes ``cells`` cells that are equally
        wide on the column's scale.
    cells : int, default=100
        Number of cells, where there is no ``step``. A column of integers that has fewer values has
        a cell for each.
    atoms : sequence of float, default=()
        Values that mean something special, each of which is a cell of its own: 0 where most people
        have exactly none, or the number that stands for "this much or more".

    See Also
    --------
    skprivacy.synthesis.PrivateSynthesizer : Takes grids by the names of columns.

    Examples
    --------
    >>> from skprivacy.preprocessing import Bounded
    >>> from skprivacy.synthesis import Grid
    >>> Grid(step=10, atoms=[0]).edges(Bounded(0, 30))
    array([ 0., 10., 20., 30.])
    """

    step: float | None = None
    cells: int = _CELLS
    atoms: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        step = self.step
        if step is not None:
            if not is_number(step):
                raise TypeError(f"Grid: step={step!r} must be a number or None.")
            if not 0 < step < math.inf:
                raise ValueError(f"Grid: step={step!r} must be finite and above 0.")
        cells = self.cells
        if not is_number(cells) or not isinstance(cells, Integral):
            raise TypeError(f"Grid: cells={cells!r} must be an integer, for example 100.")
        if not 1 <= cells <= _MOST_CELLS:
            raise ValueError(f"Grid: cells={cells!r} must be from 1 to {_MOST_CELLS}.")
        atoms = numbers("atoms", self.atoms)
        if not all(map(math.isfinite, atoms)):
            raise ValueError(f"Grid: atoms={self.atoms!r} must be finite numbers.")
        object.__setattr__(self, "atoms", tuple(sorted(set(atoms))))

    def edges(self, fact: Bounded) -> NDArray[np.float64]:
        """Return the edges of the cells of a column, without those of the atoms.

        Parameters
        ----------
        fact : Bounded
            The column's public range.

        Returns
        -------
        ndarray of shape (n_cells + 1,)
            Increasing, from ``fact.lower`` to ``fact.upper``; both ends alone if these are equal.

        Raises
        ------
        ValueError
            If there would be too many cells.
        """
        if self.step is None:
            return np.unique(fact.from_unit(np.linspace(0.0, 1.0, self.cells + 1)))
        count = (fact.upper - fact.lower) / self.step
        if count > _MOST_CELLS:
            raise ValueError(
                f"Grid: step={self.step!r} makes {count:.0f} cells of the range from "
                f"{fact.lower!r} to {fact.upper!r}; expected at most {_MOST_CELLS}. Use a larger "
                "step, or narrower bounds."
            )
        starts = fact.lower + self.step * np.arange(math.ceil(count - 1e-9))
        return np.unique(np.append(starts, fact.upper))
