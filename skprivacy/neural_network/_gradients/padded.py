"""Clipped sum over a batch that is padded to one of a few public lengths, without synchronisation.

Poisson samples differ in length, and everything that depends on the length makes a GPU wait for the
CPU: memory, and the question whether all gradients are finite. With blank rows up to a public
length, every step is the same operations on the same memory.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .adaptive import AdaptiveClippingOnDevice
from .clipped_sum import _SINGLE_PARTS, _SINGLE_ROWS, ClippedGradientSum
from .contributions import Contribution, OuterProduct, Workspace
from .trial import Probe

__all__ = ["PaddedSum", "Table", "lengths_for"]

# Standard deviations above the expected length. Most samples fit the first length, and one in 1e9
# is longer than the last.
_SPREADS = 1.0, 3.0, 6.0
_MULTIPLE = 32
_NUMBERS = 1 << 26  # numbers that one forward pass may hold


def lengths_for(expected: int, sampled: bool) -> tuple[int, ...]:
    """Return the lengths to which batches are padded, from public facts only.

    >>> lengths_for(256, sampled=True)
    (288, 320, 352)
    >>> lengths_for(256, sampled=False)
    (256,)
    """
    if not sampled:
        return (expected,)
    ends = [expected + spread * math.sqrt(expected) for spread in _SPREADS]
    return tuple(sorted({math.ceil(end / _MULTIPLE) * _MULTIPLE for end in ends}))


class Table:
    """Records and targets on a device, then a blank row of index ``n`` and the probe's rows."""

    def __init__(self, X: Tensor, y: Tensor, probe: Probe, device: str) -> None:
        self.n = len(X)
        self.X = _extended(X, probe.inputs, device)
        self.y = _extended(y, probe.targets, device)

    @property
    def records(self) -> tuple[Tensor, Tensor]:
        """The records without the blank row and the probe's rows."""
        return self.X[: self.n], self.y[: self.n]

    @property
    def of_probe(self) -> Tensor:
        """Indices of the probe's rows."""
        return torch.arange(self.n + 1, len(self.X), device=self.X.device)


def _extended(values: Tensor, public: Tensor, device: str) -> Tensor:
    n = len(values)
    longer = values.new_zeros((n + 1 + len(public), *values.shape[1:]), device=device)
    longer[:n] = values
    longer[n + 1 :] = public
    return longer


class PaddedSum:
    """Clipped sum over the rows of a table whose indices are in a vector.

    ``grad`` is the single-precision vector that contributions add to, ``expected`` the expected
    number of records in a step, and ``longest`` the most rows, blank ones included. ``total`` holds
    the sum after a call; with adaptive clipping, the count follows it.

    **Guarantees.** Those of :class:`ClippedGradientSum`, and the same sum up to rounding. A blank
    row adds exactly zero, however often it occurs and whatever the weights are; so does a record
    without a finite gradient. Only numbers in memory depend on the data: shapes, addresses and the
    sequence of operations do not. Whether parts are added up in double precision, as by
    :class:`~.clipped_sum.BatchSum`, is public.

    **Edge cases.** A batch of blank rows gives zeros. Intermediate results of all lengths share one
    memory, which is reserved for the longest first and never moves: sums over several vectors of
    indices must not be computed at once.
    """

    def __init__(
        self,
        clipped: ClippedGradientSum,
        grad: Tensor,
        table: Table,
        expected: float,
        longest: int,
    ) -> None:
        self._clipped = clipped
        self._grad = grad
        self._table = table
        numbers = table.X.shape[1:].numel() + clipped.numbers_an_example
        self._rows = min(_SINGLE_ROWS, max(1, int(_NUMBERS / numbers)))
        whole = min(_SINGLE_ROWS, _SINGLE_PARTS * self._rows)
        self._single = max(2 * expected, longest) <= whole
        adaptive = isinstance(clipped.clip, AdaptiveClippingOnDevice)
        if self._single and not adaptive:
            self.total = grad
        else:
            kind = grad.dtype if self._single else torch.float64
            self.total = grad.new_zeros(len(grad) + adaptive, dtype=kind)
        self._gradients: Any = copy.copy(clipped.gradients)
        if hasattr(self._gradients, "_workspace"):
            self._gradients._workspace = Workspace()
        self.over(torch.full((longest,), table.n, device=grad.device))()

    def over(self, rows: Tensor) -> Callable[[], None]:
        """Return a function that sums over the rows whose indices are in ``rows`` when called."""

        def add_up() -> None:
            with torch.no_grad():
                self._add_up(rows.split(self._rows))

        return add_up

    def _add_up(self, parts: tuple[Tensor, ...]) -> None:
        whole = self._grad if self._single else self.total[: len(self._grad)].zero_()
        self._grad.zero_()
        for part in parts:
            self._add(part)
            if not self._single:
                whole += self._grad
                self._grad.zero_()
        if isinstance(self._clipped.clip, AdaptiveClippingOnDevice):
            self.total.copy_(self._clipped.clip.joined(whole))

    def _add(self, part: Tensor) -> None:
        X, y = self._table.X.index_select(0, part), self._table.y.index_select(0, part)
        examples = self._gradients(X, y)
        blank = part == self._table.n
        squared = torch.stack([c.squared_norms() for c in examples]).masked_fill_(blank, math.inf)
        total = squared.sum(0)
        bad = ~torch.isfinite(total)
        factors = self._clipped.clip(squared, total, self._clipped.max_grad_norm)
        factors = factors.masked_fill(bad, 0.0)
        for example, factor in zip(examples, factors.expand(len(examples), -1), strict=True):
            _cleared(example, bad).add_sum(factor)


def _cleared(examples: Contribution, bad: Tensor) -> Contribution:
    """Return the contributions with zeros for some examples, in place where allowed."""
    if isinstance(examples, OuterProduct) and examples.spare:
        for values in (examples.input, examples.output_grad):
            values.masked_fill_(bad[:, None], 0.0)
        return examples
    return examples.without(bad)
