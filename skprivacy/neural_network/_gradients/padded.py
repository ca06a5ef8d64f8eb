"""The clipped sum of a step over rows filled up to one of a few lengths: nothing is waited for.

A Poisson sample has another length in every step, and what depends on it, from the memory to the
question whether all gradients are finite, keeps a GPU waiting for the processor. Filled up with
blank rows to a public length, every step is the same operations on the same memory.
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

# Standard deviations above the expected length: most samples have the first length at most, and one
# in a thousand million is longer than the last.
_SPREADS = 1.0, 3.0, 6.0
_MULTIPLE = 32
_NUMBERS = 1 << 26  # that one forward pass may hold


def lengths_for(expected: int, sampled: bool) -> tuple[int, ...]:
    """Return the lengths to which batches are filled up, by public facts alone.

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
    """Records and targets on a device, with a blank row after them, and then the probe's.

    Parameters
    ----------
    X, y : torch.Tensor of shape (n, ...)
    probe : Probe
        Public rows.
    device : str

    Attributes
    ----------
    n : int
        Number of records; the blank row has this number. It is zeros.
    """

    def __init__(self, X: Tensor, y: Tensor, probe: Probe, device: str) -> None:
        self.n = len(X)
        self.X = _extended(X, probe.inputs, device)
        self.y = _extended(y, probe.targets, device)

    @property
    def records(self) -> tuple[Tensor, Tensor]:
        """The records alone."""
        return self.X[: self.n], self.y[: self.n]

    @property
    def of_probe(self) -> Tensor:
        """The numbers of the probe's rows."""
        return torch.arange(self.n + 1, len(self.X), device=self.X.device)


def _extended(values: Tensor, public: Tensor, device: str) -> Tensor:
    n = len(values)
    longer = values.new_zeros((n + 1 + len(public), *values.shape[1:]), device=device)
    longer[:n] = values
    longer[n + 1 :] = public
    return longer


class PaddedSum:
    """The clipped sum over the rows of a table that a vector of their numbers names.

    Parameters
    ----------
    clipped : ClippedGradientSum
    grad : torch.Tensor
        The vector in single precision that contributions add to.
    table : Table
    expected : float
        Expected number of records in a step.
    longest : int
        The most rows, blank ones included.

    Attributes
    ----------
    total : torch.Tensor
        Where the sum is after a call. With adaptive clipping, the count comes after it.

    Notes
    -----
    **Guarantees.** What :class:`ClippedGradientSum` guarantees, and the same sum to rounding. The
    blank row adds exactly zero however often it is named, whatever the weights are; so does a
    record without a finite gradient. Nothing depends on the data but numbers in memory: neither
    shapes, nor addresses, nor which operations are done. Whether parts are added up in double
    precision, as :class:`~.clipped_sum.BatchSum` does, is public.

    **Edge cases.** Blank rows alone make zeros. What is computed in between stands in the same
    memory for all lengths, which is reserved for the longest at first and is never moved: sums over
    several vectors of numbers must not be computed at once.
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
        """Return what sums over the rows whose numbers stand in ``rows`` when it is called."""

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
    """Return the same with zeros for some examples, in place where that is allowed."""
    if isinstance(examples, OuterProduct) and examples.spare:
        for values in (examples.input, examples.output_grad):
            values.masked_fill_(bad[:, None], 0.0)
        return examples
    return examples.without(bad)
