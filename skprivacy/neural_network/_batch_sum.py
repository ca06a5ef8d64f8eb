"""The clipped sum over the records of a step, part by part, and in which precision it is held."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._on_disk import MappedRows
from ._per_example import ClippedGradientSum
from ._workspace import Workspace
from .augmentation import Views

__all__ = ["BatchSum"]

# Numbers that one forward pass may hold: bounds memory, changes no result. As many as caches hold
# is fastest, unless the weights are so many that adding up the parts would show.
_NUMBERS = 1 << 23
_CACHED_NUMBERS = 1 << 21
# Rows that may be added up in single precision, and in how many parts: over more of them the
# rounding of the sum would show next to one record's contribution.
_SINGLE_ROWS, _SINGLE_PARTS = 2048, 8
_CHUNK = 1 << 16  # numbers that are turned into double precision at a time


class BatchSum:
    """Sum the clipped gradients of the records that take part in a step.

    Parameters
    ----------
    clipped : ClippedGradientSum
    grad : torch.Tensor
        The vector that ``clipped`` adds to.
    expected : float
        Expected number of records in a step, a public number.
    views : Views, default=Views()
        What each record is shown as.

    Notes
    -----
    **Guarantees.** At most 2,048 rows are added up in single precision. Steps that are expected to
    have up to 1,024 records return the single-precision sum itself. Larger ones add up parts in
    double precision, because over a hundred thousand rows the rounding of a single-precision sum is
    a per cent of one record's contribution. Which of the two is public, but for a batch of twice
    the expected size: there the precision comes first, and what is released is rounded to single
    precision either way.

    **Edge cases.** Without records the sum is zero, and no view is asked for: an augmentation that
    fails on no rows must not tell that there were none. The result is overwritten by the next call.
    """

    def __init__(
        self,
        clipped: ClippedGradientSum,
        grad: Tensor,
        expected: float,
        views: Views = Views(),  # noqa: B008 (frozen)
    ) -> None:
        self._clipped = clipped
        self._views = views
        self._grad = grad
        self._expected = expected
        self._room = Workspace()

    def __call__(self, X: Tensor | MappedRows, y: Tensor, indices: Tensor) -> Tensor:
        """Return the sum over the rows ``indices`` of ``X`` and ``y`` as a flat tensor."""
        rows = self._rows_at_once(X.shape[1:].numel())
        n_parts = math.ceil(len(indices) / rows)
        parts = indices.tensor_split(n_parts) if n_parts else ()  # of equal length
        if max(2 * self._expected, len(indices)) <= min(_SINGLE_ROWS, _SINGLE_PARTS * rows):
            self._grad.zero_()
            for part in parts:
                self._add(X, y, part)
            return self._grad
        total = self._room("total", self._grad.shape, self._grad.new_empty(0, dtype=torch.float64))
        total.zero_()
        for part in parts:
            self._grad.zero_()
            self._add(X, y, part)
            for whole, addend in zip(total.split(_CHUNK), self._grad.split(_CHUNK), strict=True):
                whole += addend
        return total

    def _rows_at_once(self, n_features: int) -> int:
        """Return how many records one forward pass takes."""
        numbers = n_features * self._views.count + self._clipped.numbers_an_example
        most = min(_NUMBERS, max(_CACHED_NUMBERS, 8 * len(self._grad)))
        return min(_SINGLE_ROWS, max(1, int(most / numbers)))

    def _add(self, X: Tensor | MappedRows, y: Tensor, part: Tensor) -> None:
        if isinstance(X, Tensor):
            room = self._room("inputs", (len(part), *X.shape[1:]), X)
            rows = torch.index_select(X, 0, part, out=room)
        else:
            rows = X.index_select(0, part)
        self._clipped(self._views(rows), y.index_select(0, part))
