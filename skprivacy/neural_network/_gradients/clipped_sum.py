"""The clipped sum of per-example gradients over the records of a step, without holding any of them.

The gradient of one example in a linear layer is the outer product of the layer's input ``a`` and of
the loss gradient ``d`` at its output. Its norm is the product of their norms, and the clipped sum
over a batch is one matrix product of ``a`` with reweighted ``d``: "book-keeping" (Bu, Wang, Zha and
Karypis, Differentially private optimization on large model at small cost, ICML 2023, algorithm 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .arithmetic import numpy_sees, tiny_numbers_as_zeros
from .bookkeeping import PerceptronBackward
from .clipping import CLIPPING, Clip
from .contributions import Contribution, Workspace
from .perceptron_sum import PerceptronSum
from .trial import Probe, tried

if TYPE_CHECKING:
    from .._training.people import People
    from .._training.rows import MappedRows
    from ..augmentation import Views
    from .people import Shares

__all__ = ["BatchSum", "ClippedGradientSum"]


class ClippedGradientSum:
    """Add the clipped per-example gradients of a module to its ``grad`` buffers.

    Parameters
    ----------
    module : torch.nn.Module
        Any module whose examples do not meet. ``gradients.name`` says how its per-example gradients
        are computed: by book-keeping, by ``torch.func``, or one by one.
    per_example_loss : callable
        Maps (output, target) to a vector of one loss per example.
    max_grad_norm : float
        L2 norm to which each example's gradient, over all parameters jointly, is clipped.
    clip : callable, default=CLIPPING["flat"]
        How, see ``clipping.py``.
    probe : Probe, default=None
        Public numbers of the shape of the data, to try the module out on.

    Attributes
    ----------
    gradients : PerExampleGradients
    probe : Probe or None
        As the module understands it.

    Notes
    -----
    **Guarantees.** Each example adds a vector of L2 norm at most ``max_grad_norm``, whatever the
    other examples of the batch are, up to the rounding of a sum in the precision of ``grad``. Hence
    it does not matter how a batch is cut into parts. Where examples are people's, this holds of
    each person, whose examples are in one part and are joined before they are clipped.

    **Edge cases.** An empty batch adds nothing. An example whose gradient is not finite (or whose
    squared norm overflows) adds nothing and leaves the others untouched, also those of the same
    person. A person without other examples, or whose examples add up to what is not finite, adds
    nothing.
    """

    def __init__(
        self,
        module: nn.Module,
        per_example_loss: Callable[[Tensor, Tensor], Tensor],
        max_grad_norm: float,
        clip: Clip = CLIPPING["flat"],
        probe: Probe | None = None,
    ) -> None:
        self.gradients, self.probe = tried(module, per_example_loss, probe)
        self.max_grad_norm = max_grad_norm
        self.clip = clip
        self._in_numpy: PerceptronSum | None = None
        if isinstance(self.gradients, PerceptronBackward):
            self._in_numpy = PerceptronSum(self.gradients.layers, self.gradients.activations)
        self.numbers_an_example = 0.0
        if self.probe is not None:
            found = self.gradients(self.probe.inputs, self.probe.targets)
            self.numbers_an_example = sum(c.numbers() for c in found) / len(self.probe.targets)

    @property
    def overwrites(self) -> bool:
        """Whether a sum can take the place of what ``grad`` holds, which no pass has cleared."""
        return isinstance(self.gradients, PerceptronBackward)

    @tiny_numbers_as_zeros()
    def __call__(
        self, inputs: Tensor, targets: Tensor, shares: Shares | None = None, *, first: bool = False
    ) -> None:
        """Add the clipped sum over this batch to ``grad`` of every parameter.

        There are as many rows of ``inputs`` for each target as the probe has views. With ``shares``
        they are people's: what is clipped is a person's. If the batch is the ``first``, which needs
        an example and :attr:`overwrites`, what ``grad`` holds counts for nothing.
        """
        if targets.shape[0] == 0:
            return
        # Not if there are other gradients by now, as those of an audit's canaries.
        in_numpy = self._in_numpy if isinstance(self.gradients, PerceptronBackward) else None
        if shares is None and in_numpy is not None and in_numpy.takes(inputs):
            in_numpy(inputs, targets, self.clip, self.max_grad_norm, first)
        elif first:
            assert isinstance(self.gradients, PerceptronBackward)
            self._add(self.gradients.first(inputs, targets), shares)
        else:
            self._add(self.gradients(inputs, targets), shares)

    def _add(self, examples: list[Contribution], shares: Shares | None) -> None:
        with torch.no_grad():
            squared = _squared_norms(examples, shares)
            finite = math.isfinite(float(squared.sum()))
            if shares is not None and not finite:  # of a person, what is finite still counts
                bad = ~torch.isfinite(_squared_norms(examples).sum(0))
                examples = _without(examples, bad)
                squared = _squared_norms(examples, shares)
                squared = squared.masked_fill(shares.with_nothing_but(bad), math.inf)
            factors = self._factors(squared)
            if not finite:
                bad = ~torch.isfinite(squared.sum(0))
                factors = factors.masked_fill(bad, 0.0)
                examples = _without(examples, bad if shares is None else shares.by_example(bad))
            if shares is not None:
                factors = shares.factors(factors)
            for i, example in enumerate(examples):
                example.add_sum(factors[i] if factors.dim() == 2 else factors)

    def _factors(self, squared: Tensor) -> Tensor:
        """Return what is left of each example: numpy takes less time over so few numbers."""
        if not numpy_sees(squared):
            return self.clip(squared, squared.sum(0), self.max_grad_norm)
        values = squared.numpy()
        factors = self.clip(values, values.sum(0), self.max_grad_norm)
        return torch.from_numpy(factors.astype(values.dtype, copy=False))


def _squared_norms(examples: list[Contribution], shares: Shares | None = None) -> Tensor:
    """Return the squared norms of what all layers' examples, or people, add: (layers, batch)."""
    if shares is None:
        return torch.stack([c.squared_norms() for c in examples])
    return torch.stack([shares.squared_norms(c.joint_norms(shares)) for c in examples])


def _without(examples: list[Contribution], bad: Tensor) -> list[Contribution]:
    """Return the same with zeros for some examples."""
    return [c.without(bad) for c in examples]


# Numbers that one forward pass may hold: bounds memory, changes no result. As many as caches hold
# is fastest, unless the weights are so many that adding up the parts would show.
_NUMBERS = 1 << 23
_CACHED_NUMBERS = 1 << 22
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
    views : Views, default=None
        What each record is shown as; ``None`` for itself.

    Notes
    -----
    **Guarantees.** At most 2,048 rows are added up in single precision, but for those of a person
    who has more. Steps that are expected to have up to 1,024 records, or people with as many in
    all as they may have, return the single-precision sum itself. Larger ones add up parts in
    double precision, because over a hundred thousand rows the rounding of a single-precision sum is
    a per cent of one record's contribution. Which of the two is public, but for a batch of twice
    the expected size: there the precision comes first, and what is released is rounded to single
    precision either way. If ``grad`` is in double precision, everything is added up in it.

    **Edge cases.** Without records the sum is zero, and no view is asked for: an augmentation that
    fails on no rows must not tell that there were none. The result is overwritten by the next call.
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
        self, X: Tensor | MappedRows, y: Tensor, drawn: Tensor, people: People | None = None
    ) -> Tensor:
        """Return the sum over the rows ``drawn`` of ``X`` and ``y`` as a flat tensor.

        With ``people``, over those who are drawn.
        """
        rows = self._rows_at_once(X.shape[1:].numel())
        parts: list[tuple[Tensor, Shares | None]]
        if people is None:
            n_parts = math.ceil(len(drawn) / rows)
            drawn = drawn.to(X.device)
            cut = drawn.tensor_split(n_parts) if n_parts > 1 else [drawn] * n_parts
            parts = [(part, None) for part in cut]
            expected = self._expected
        else:
            parts = list(people.parts(drawn.numpy(), rows, X.device))
            expected = math.inf if people.most is None else people.most * self._expected
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

    def _rows_at_once(self, n_features: int) -> int:
        """Return how many records one forward pass takes."""
        views = 1 if self._views is None else self._views.count
        numbers = n_features * views + self._clipped.numbers_an_example
        most = min(_NUMBERS, max(_CACHED_NUMBERS, 8 * len(self._grad)))
        return min(_SINGLE_ROWS, max(1, int(most / numbers)))

    def _add(
        self,
        X: Tensor | MappedRows,
        y: Tensor,
        part: Tensor,
        shares: Shares | None,
        first: bool,
    ) -> None:
        """Add the sum over a part to ``grad``, or if it is the first, put it there."""
        if isinstance(X, Tensor):
            buffer = self._workspace("inputs", (len(part), *X.shape[1:]), X)
            rows = torch.index_select(X, 0, part, out=buffer)
        else:
            rows = X.index_select(0, part)
        if self._views is not None:
            rows = self._views(rows)
        targets = y.index_select(0, part)
        overwritten = first and self._clipped.overwrites and len(part) > 0
        if first and not overwritten:
            self._grad.zero_()
        self._clipped(rows, targets, shares, first=overwritten)
