"""Clipped sum of per-example gradients over a batch, without storing them (book-keeping).

The gradient of one example in a linear layer is the outer product of the layer's input ``a`` and of
the loss gradient ``d`` at its output. Its norm is the product of their norms. The clipped sum over
a batch is one matrix product of ``a`` with reweighted ``d``. Start reading at
:class:`ClippedGradientSum`.

:class:`PaddedSum` pads the batch to one of a few public lengths. Poisson samples differ in length,
and everything that depends on the length makes a GPU wait for the CPU: memory, and the question
whether all gradients are finite. With blank rows up to a public length, every step is the same
operations on the same memory.

Bu, Wang, Zha and Karypis, "Differentially private optimization on large model at small cost", ICML
2023, Algorithm 1.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .._training.torch_modes import flush_denormals, numpy_sees
from .clipping import (
    _MAX_NORM_FACTOR,
    _NORM_LEARNING_RATE,
    _SAFETY,
    CLIPPING,
    AdaptiveClipping,
    Clip,
)
from .contributions import Contribution, OuterProduct
from .perceptron import PerceptronGradients, Workspace
from .trial import PerExampleGradients, Probe, select_gradient_method

if TYPE_CHECKING:
    from .._training.mapped_rows import MappedRows
    from ..augmentation import Views
    from .group_batches import GroupedExamples, GroupRows

# Numbers that one forward pass may hold. This bounds memory and changes no result. The size of the
# cache is fastest, except with many weights, where adding up the parts takes long.
_MAX_NUMBERS_PER_PASS = 1 << 23
_CACHED_NUMBERS = 1 << 22
# Rows that may be added up in single precision, and in how many parts. With more, the rounding of
# the sum would be visible next to one record's contribution.
_SINGLE_ROWS, _SINGLE_PARTS = 2048, 8
_CHUNK = 1 << 16  # numbers converted to double precision at a time

# Standard deviations above the expected length. Most samples fit the first length, and one in 1e9
# is longer than the last.
_SPREADS = 1.0, 3.0, 6.0
_MULTIPLE = 32
_MAX_PADDED_NUMBERS = 1 << 26  # numbers that one forward pass may hold


class ClippedGradientSum:
    """Adds the clipped per-example gradients of a module to the accumulators of its parameters.

    ``probe`` holds public numbers of the shape of the data, on which methods are tried; without it,
    only the built-in perceptron is accepted.

    **Guarantees.** Each example adds a vector of L2 norm at most ``max_grad_norm``, whatever the
    other examples of the batch are, up to the rounding of a sum in its precision. So
    the split of a batch into parts does not matter. With groups this holds of each group, whose
    examples are in one part and are joined before clipping.

    **Edge cases.** An empty batch adds nothing. An example whose gradient, or its squared norm, is
    not finite adds nothing, and leaves all others unchanged, also in its group. A group adds
    nothing if it has no other examples, or if their sum is not finite.
    """

    def __init__(
        self,
        module: nn.Module,
        per_example_loss: Callable[[Tensor, Tensor], Tensor],
        max_grad_norm: float,
        clip: Clip = CLIPPING["flat"],
        probe: Probe | None = None,
    ) -> None:
        self.max_grad_norm = max_grad_norm
        self.clip = clip
        self.gradients: PerExampleGradients
        self.probe: Probe | None = None
        if probe is None:
            self.gradients = PerceptronGradients(module, per_example_loss)
            self.numbers_an_example = float(self.gradients.numbers_an_example)
        else:
            self.gradients, self.probe = select_gradient_method(module, per_example_loss, probe)
            found = self.gradients(self.probe.inputs, self.probe.targets)
            self.numbers_an_example = sum(c.numbers() for c in found) / len(self.probe.targets)

    @property
    def overwrites(self) -> bool:
        """Whether a sum can overwrite the accumulators, which then need no clearing."""
        return isinstance(self.gradients, PerceptronGradients)

    @flush_denormals()
    def __call__(
        self,
        inputs: Tensor,
        targets: Tensor,
        shares: GroupedExamples | None = None,
        *,
        first: bool = False,
    ) -> None:
        """Add the clipped sum over a batch; with ``shares``, groups are clipped.

        The ``first`` batch overwrites the sum, which needs an example and :attr:`overwrites`.
        """
        if targets.shape[0] == 0:
            return
        if not isinstance(self.gradients, PerceptronGradients):
            self._add(self.gradients(inputs, targets), shares)
        elif shares is None and self.gradients.takes(inputs):
            self.gradients.add_clipped(inputs, targets, self.clip, self.max_grad_norm, first)
        else:
            self._add(self.gradients(inputs, targets, first), shares)

    def _add(self, examples: list[Contribution], shares: GroupedExamples | None) -> None:
        with torch.no_grad():
            # Bu et al. 2023, Algorithm 1: per-example norms of all layers from one backward pass
            squared = _squared_norms(examples, shares)
            finite = math.isfinite(float(squared.sum()))
            if shares is not None and not finite:  # the finite examples of a group still count
                bad = ~torch.isfinite(_squared_norms(examples).sum(0))
                examples = [c.without(bad) for c in examples]
                squared = _squared_norms(examples, shares)
                squared = squared.masked_fill(shares.has_only(bad), math.inf)
            factors = self._factors(squared)  # ... the clip factors
            if not finite:
                bad = ~torch.isfinite(squared.sum(0))
                factors = factors.masked_fill(bad, 0.0)
                lost = bad if shares is None else shares.by_example(bad)
                examples = [c.without(lost) for c in examples]
            if shares is not None:
                factors = shares.factors(factors)
            # ... and the weighted sum, without a second backward pass
            for i, example in enumerate(examples):
                example.add_sum(factors[i] if factors.dim() == 2 else factors)

    def _factors(self, squared: Tensor) -> Tensor:
        """Return the clip factors; numpy is faster on so few numbers."""
        if not numpy_sees(squared):
            return self.clip(squared, squared.sum(0), self.max_grad_norm)
        values = squared.numpy()
        factors = self.clip(values, values.sum(0), self.max_grad_norm)
        return torch.from_numpy(factors.astype(values.dtype, copy=False))


class BatchSum:
    """Sums the clipped gradients of a step's sample, split into parts of bounded memory.

    **Guarantees.** At most 2,048 rows are added up in single precision, except for the rows of a
    larger group. Steps with an expected number of up to 1,024 records return the single-precision
    sum itself; for groups, the largest possible number of rows counts. Larger steps add up parts in
    double precision: over a hundred thousand rows, the rounding of a single-precision sum is a per
    cent of one record's contribution. The choice between the two is public, except for a batch of
    twice the expected size. There the precision rises, and the released vector is rounded to single
    precision either way. If the accumulators are in double precision, all additions are.

    **Edge cases.** Without records the sum is zero, and no view is computed: an augmentation that
    fails on zero rows must not reveal them. The next call overwrites the result.
    """

    def __init__(
        self,
        clipped: ClippedGradientSum,
        grad: Tensor,
        expected: float,
        views: Views | None = None,
    ) -> None:
        self._clipped = clipped
        self._views = views
        self._grad = grad
        self._expected = expected
        self._workspace = Workspace()

    def __call__(
        self, X: Tensor | MappedRows, y: Tensor, drawn: Tensor, group_rows: GroupRows | None = None
    ) -> Tensor:
        """Return the sum over the drawn rows of ``X`` and ``y``, or over drawn groups."""
        rows = self._rows_at_once(X.shape[1:].numel())
        parts: list[tuple[Tensor, GroupedExamples | None]]
        if group_rows is None:
            n_parts = math.ceil(len(drawn) / rows)
            drawn = drawn.to(X.device)
            cut = drawn.tensor_split(n_parts) if n_parts > 1 else [drawn] * n_parts
            parts = [(part, None) for part in cut]
            expected = self._expected
        else:
            parts = list(group_rows.iterate_parts(drawn.numpy(), rows, X.device))
            expected = math.inf if group_rows.most is None else group_rows.most * self._expected
        n_rows = sum(len(part) for part, _ in parts)
        if max(2 * expected, n_rows) <= min(_SINGLE_ROWS, _SINGLE_PARTS * rows):
            if not parts:
                self._grad.zero_()
            for i, part in enumerate(parts):
                self._add(X, y, *part, first=i == 0)
            return self._grad
        total = self._workspace(
            "total", self._grad.shape, self._grad.new_empty(0, dtype=torch.float64)
        )
        total.zero_()
        for part in parts:
            self._add(X, y, *part, first=True)
            for whole, addend in zip(total.split(_CHUNK), self._grad.split(_CHUNK), strict=True):
                whole += addend
        return total

    def is_single(self, n_features: int) -> bool:
        """Return True if steps on records add them up in single precision, in one pass."""
        return 2 * self._expected <= self._rows_at_once(n_features)

    def _rows_at_once(self, n_features: int) -> int:
        """Return the number of records of one forward pass."""
        views = 1 if self._views is None else self._views.count
        numbers = n_features * views + self._clipped.numbers_an_example
        most = min(_MAX_NUMBERS_PER_PASS, max(_CACHED_NUMBERS, 8 * len(self._grad)))
        return min(_SINGLE_ROWS, max(1, int(most / numbers)))

    def _add(
        self,
        X: Tensor | MappedRows,
        y: Tensor,
        part: Tensor,
        shares: GroupedExamples | None,
        first: bool,
    ) -> None:
        """Add the sum over a part to the accumulators, or overwrite them if it is the first."""
        if isinstance(X, Tensor):
            buffer = self._workspace("inputs", (len(part), *X.shape[1:]), X)
            rows = torch.index_select(X, 0, part, out=buffer)
        else:
            rows = X.index_select(0, part)
        if self._views is not None:  # augmentation multiplicity (De et al. 2022)
            rows = self._views(rows)
        targets = y.index_select(0, part)
        overwritten = first and self._clipped.overwrites and len(part) > 0
        if first and not overwritten:
            self._grad.zero_()
        self._clipped(rows, targets, shares, first=overwritten)


class AdaptiveClippingOnDevice(AdaptiveClipping):
    """AdaptiveClipping on a device; only reading :attr:`norm` synchronises with it.

    **Guarantees.** Those of :class:`AdaptiveClipping`: the same numbers up to rounding. Only
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
        norms, there = total.sqrt(), total < math.inf  # excludes NaN too
        self._counted += (there & (norms <= self._norm)).sum() - 0.5 * there.sum()
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


class PaddedSum:
    """Clipped sum, in ``total``, over the rows of a table whose indices are in a vector.

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
            _cleared(example, bad).add_sum(factor)


def _squared_norms(examples: list[Contribution], shares: GroupedExamples | None = None) -> Tensor:
    """Return squared norms of all layers' examples, or groups: (layers, batch)."""
    if shares is None:
        return torch.stack([c.squared_norms() for c in examples])
    return torch.stack([shares.squared_norms(c.joint_norms(shares)) for c in examples])


def _extended(values: Tensor, public: Tensor, device: str) -> Tensor:
    n = len(values)
    longer = values.new_zeros((n + 1 + len(public), *values.shape[1:]), device=device)
    longer[:n] = values
    longer[n + 1 :] = public
    return longer


def _cleared(examples: Contribution, bad: Tensor) -> Contribution:
    """Return contributions with zeros for some examples; a ``spare`` one is overwritten."""
    if isinstance(examples, OuterProduct) and examples.spare:
        for values in (examples.input, examples.output_grad):
            values.masked_fill_(bad[:, None], 0.0)
        return examples
    return examples.without(bad)
