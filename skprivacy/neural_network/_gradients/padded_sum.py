"""Clipped sums on a GPU, over batches padded to one of a few public lengths.

Poisson samples differ in length, and everything that depends on the length makes a GPU wait for the
CPU: memory, and the question whether all gradients are finite. With blank rows up to a public
length, every step is the same operations on the same memory. Start reading at :class:`PaddedSum`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .clipped_sum import (
    _MAX_NORM_FACTOR,
    _NORM_LEARNING_RATE,
    _SAFETY,
    _SINGLE_PARTS,
    _SINGLE_ROWS,
    AdaptiveClipping,
    ClippedGradientSum,
)
from .contributions import Contribution, OuterProduct
from .perceptron import Workspace
from .trial import Probe

# Standard deviations above the expected length. Most samples fit the first length, and one in 1e9
# is longer than the last.
_SPREADS = 1.0, 3.0, 6.0
_MULTIPLE = 32
_MAX_PADDED_NUMBERS = 1 << 26  # numbers that one forward pass may hold


class AdaptiveClippingOnDevice(AdaptiveClipping):
    """AdaptiveClipping on a device; only reading :attr:`norm` synchronises with it.

    **Guarantees.** As for :class:`AdaptiveClipping`: the same numbers up to rounding. Only
    :meth:`remove_count` changes the norm, in place, so captured operations read the new value.
    """

    def __init__(self, host: AdaptiveClipping, device: str) -> None:
        vars(self).update({k: v for k, v in vars(host).items() if k != "norm"})
        self._norm = torch.tensor(host.norm, dtype=torch.float64, device=device)

    @property
    def norm(self) -> float:  # type: ignore[override]  # read from the device on access
        """Norm of the next step."""
        return float(self._norm)

    @property
    def state(self) -> Tensor:
        """The tensor that :meth:`remove_count` changes."""
        return self._norm

    def __call__(self, squared: Tensor, total: Tensor, allowed: float) -> Tensor:
        """Return the clip factors, and count the gradients below the norm."""
        norms, finite = total.sqrt(), total < math.inf  # excludes NaN too
        self._counted += (finite & (norms <= self._norm)).sum() - 0.5 * finite.sum()
        scale = allowed * _SAFETY * self._sum_weight
        return (scale / norms).clip(max=scale / self._norm)

    def append_count(self, total: Tensor) -> Tensor:  # type: ignore[override]  # a tensor for a tensor
        """Return the sum with the count appended, and reset the count."""
        counted, self._counted = self._counted, 0.0
        longer = total.new_empty(len(total) + 1)
        longer[:-1] = total
        longer[-1] = self._allowed * self._count_weight * counted
        return longer

    def remove_count(self, noisy: Tensor) -> Tensor:  # type: ignore[override]
        """Return the noisy sum, and update the norm by the noisy count."""
        counted = noisy[-1].double() / (self._allowed * self._count_weight)
        share = 0.5 + counted / self._divisor
        farthest = math.log(_MAX_NORM_FACTOR)
        log = (self._norm / self._start).log() - _NORM_LEARNING_RATE * (share - self.quantile)
        self._norm.copy_(self._start * log.clip(-farthest, farthest).exp())
        return noisy[:-1] / self._sum_weight


def lengths_for(expected: int, sampled: bool) -> tuple[int, ...]:
    """Return the lengths to which batches are padded, such as 288, 320 and 352 for 256 records."""
    if not sampled:
        return (expected,)
    ends = [expected + spread * math.sqrt(expected) for spread in _SPREADS]
    return tuple(sorted({math.ceil(end / _MULTIPLE) * _MULTIPLE for end in ends}))


class Table:
    """Records and targets on a device, then a blank row of index ``n`` and the probe's rows."""

    def __init__(self, X: Tensor, y: Tensor, probe: Probe, device: str) -> None:
        self.n = len(X)
        self.X = _extend_table(X, probe.inputs, device)
        self.y = _extend_table(y, probe.targets, device)

    @property
    def records(self) -> tuple[Tensor, Tensor]:
        """The records without the blank row and the probe's rows."""
        return self.X[: self.n], self.y[: self.n]

    @property
    def of_probe(self) -> Tensor:
        """Indices of the probe's rows."""
        return torch.arange(self.n + 1, len(self.X), device=self.X.device)


class PaddedSum:
    """Clipped sum, in ``total``, over the rows of a table whose indices are in a vector.

    **Guarantees.** As for :class:`ClippedGradientSum`, and the same sum up to rounding. A blank
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
        self._rows = min(_SINGLE_ROWS, max(1, int(_MAX_PADDED_NUMBERS / numbers)))
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
        self.sum_over(torch.full((longest,), table.n, device=grad.device))()

    def sum_over(self, rows: Tensor) -> Callable[[], None]:
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
            self.total.copy_(self._clipped.clip.append_count(whole))

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
            _clear_examples(example, bad).add_sum(factor)


def _extend_table(values: Tensor, public: Tensor, device: str) -> Tensor:
    n = len(values)
    longer = values.new_zeros((n + 1 + len(public), *values.shape[1:]), device=device)
    longer[:n] = values
    longer[n + 1 :] = public
    return longer


def _clear_examples(examples: Contribution, bad: Tensor) -> Contribution:
    """Return contributions with zeros for some examples; a ``spare`` one is overwritten."""
    if isinstance(examples, OuterProduct) and examples.spare:
        for values in (examples.input, examples.output_grad):
            values.masked_fill_(bad[:, None], 0.0)
        return examples
    return examples.without(bad)
