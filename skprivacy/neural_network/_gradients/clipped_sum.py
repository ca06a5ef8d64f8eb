"""Clip factors, and the clipped sum of per-example gradients over a batch (book-keeping).

The gradient of one example in a linear layer is the outer product of the layer's input ``a`` and of
the loss gradient ``d`` at its output. Its norm is the product of their norms. The clipped sum over
a batch is one matrix product of ``a`` with reweighted ``d``. No gradient of an example is stored.
Start reading at :class:`ClippedGradientSum`.

Each function in ``CLIPPING`` maps squared norms of shape (parts, batch), their sum over the parts,
and the allowed norm to factors of that shape, or of shape (batch,) if all parts share them. The
scaled gradient of an example never exceeds the allowed norm over all parts jointly. Arrays may be
numpy's or torch's.

Bu, Wang, Zha and Karypis, "Differentially private optimization on large model at small cost", ICML
2023, Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .._training.torch_modes import flush_denormals, numpy_sees
from .contributions import Contribution
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

Clip = Callable[[Any, Any, float], Any]

# Clipping is this much below the declared norm, so that neighbouring sums stay within it.
#
# Single precision: norms are off by about 1e-5 relative. The sum over a batch, of which at most
# 2,048 rows are added up in single precision, is off by up to 5e-4 of one contribution. Both were
# measured on sums of one sign; rounding errors that all point one way would be more.
#
# Double precision: here it is a proof. A norm is off by at most 3e-4 if all errors point one way,
# because 4,096 squares are added up at a time (``contributions.py``), each sum rounded by a part in
# 2**24. A row's contribution is a factor times single-precision numbers, exact to a part in 2**53,
# and so is each addition. After t additions the sum is off by t 2**-53 of the added lengths; t
# counts additions within a part of at most 2,048 rows, and additions of parts. Over a million rows
# this is 3e-7 of one contribution, and twice that for two sums. Where a row's positions cancel,
# their lengths may add up to 1,000 times its norm: over 10,000 such rows in parts of 2**16
# positions the error is 7e-5.
_SAFETY = 1.0 - 1e-3

# Added to the norm by automatic clipping, so that gradients near zero stay small.
_STABILITY = 0.01

# Adaptive clipping.
_NORM_LEARNING_RATE = 0.2  # learning rate of the norm
_COUNT_STD = 0.05  # target standard deviation of the released share of short gradients
_MIN_COUNT_SHARE, _MAX_COUNT_SHARE = 1e-4, 0.1  # share of a step's privacy that the count may use
_MAX_NORM_FACTOR = 1e6  # the norm stays within this factor of its start


def _flat(squared: Any, total: Any, allowed: float) -> Any:
    """Shorten gradients longer than the allowed norm."""
    # Abadi et al. 2016, Algorithm 1, "Clip gradient": g / max(1, norm / C)
    return (allowed * _SAFETY / total**0.5).clip(max=1.0)


def _per_layer(squared: Any, total: Any, allowed: float) -> Any:
    """Clip each of k parts to ``allowed / sqrt(k)``."""
    return (allowed / len(squared) ** 0.5 * _SAFETY / squared**0.5).clip(max=1.0)


def _automatic(squared: Any, total: Any, allowed: float) -> Any:
    """Scale every gradient, long or short, to just below the allowed norm.

    Z. Bu, Y.-X. Wang, S. Zha and G. Karypis, "Automatic clipping: differentially private deep
    learning made easier and stronger", NeurIPS 2023.
    """
    # Bu et al. 2023, AUTO-S: 1 / (norm + gamma)
    return allowed * _SAFETY / (total**0.5 + _STABILITY)


CLIPPING: dict[str, Clip] = {
    "flat": _flat,
    "per-layer": _per_layer,
    "automatic": _automatic,
}


class AdaptiveClipping:
    """Clips to a norm that follows a ``quantile`` of the gradient norms (Andrew et al. 2021).

    ``start`` is the norm of the first step. ``allowed`` is the sensitivity a of the mechanism: the
    sum is divided by the current norm and multiplied by a, so that the size of an update does not
    depend on the norm. ``noise`` is the standard deviation of the noise in units of ``allowed``,
    and ``divisor`` the expected batch size.

    **Guarantees.** In units of ``allowed``, a record with gradient g contributes a g / max(abs(g),
    norm) to the sum, of norm at most a. It adds w (b - 1/2) to one more number, where b is 1 if g
    is within the norm and else 0: w / 2 at most, and nothing if it has no gradient. With a^2 + (w /
    2)^2 = 1, both together have norm at most 1, so the longer vector is one release of the same
    mechanism. In terms of Andrew et al., noise multipliers z / a for the sum and z / w for the
    count give the accounted z. The norm of the next step is computed from released numbers.

    **Edge cases.** An empty batch counts nothing, and noise alone moves the norm. With small
    batches the count stays noisy, because it may use a tenth of the privacy at most.

    G. Andrew, O. Thakkar, B. McMahan and S. Ramaswamy, "Differentially private learning with
    adaptive clipping", NeurIPS 2021.
    """

    def __init__(
        self, start: float, allowed: float, noise: float, quantile: float, divisor: float
    ) -> None:
        self.norm = start
        self.quantile = quantile
        self._start = start
        self._allowed = allowed
        self._divisor = divisor
        wanted = (noise / (2.0 * _COUNT_STD * divisor)) ** 2
        self.share = min(max(wanted, _MIN_COUNT_SHARE), _MAX_COUNT_SHARE)
        # Andrew et al. 2021, Theorem 1: the noise of one release, split between sum and count
        self._sum_weight = math.sqrt(1.0 - self.share)
        self._count_weight = 2.0 * math.sqrt(self.share)
        self._counted: Any = 0.0
        self.noise_on_sum = noise / self._sum_weight

    def __call__(self, squared: Any, total: Any, allowed: float) -> Any:
        """Return the clip factors, and count the gradients below the norm."""
        norms = total**0.5
        short = (norms <= self.norm)[total < math.inf]  # excludes NaN too
        # Andrew et al. 2021, Section 2: b - 1/2 halves the sensitivity of the count
        self._counted += float(short.sum()) - 0.5 * len(short)
        scale = allowed * _SAFETY * self._sum_weight
        return (scale / norms).clip(max=scale / self.norm)

    def append_count(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum with the count appended, and reset the count."""
        counted, self._counted = self._counted, 0.0
        return np.append(total, self._allowed * self._count_weight * counted)

    def remove_count(self, noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the noisy sum, and update the norm by the noisy count."""
        counted = float(noisy[-1]) / (self._allowed * self._count_weight)
        share = 0.5 + counted / self._divisor
        # Andrew et al. 2021, geometric update: C exp(-eta (b - gamma))
        log = math.log(self.norm / self._start) - _NORM_LEARNING_RATE * (share - self.quantile)
        farthest = math.log(_MAX_NORM_FACTOR)
        self.norm = self._start * math.exp(min(max(log, -farthest), farthest))
        return noisy[:-1] / self._sum_weight


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

        The ``first`` batch overwrites the sum. It needs an example, and :attr:`overwrites` true.
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


def _squared_norms(examples: list[Contribution], shares: GroupedExamples | None = None) -> Tensor:
    """Return squared norms of all layers' examples, or groups: (layers, batch)."""
    if shares is None:
        return torch.stack([c.squared_norms() for c in examples])
    return torch.stack([shares.squared_norms(c.joint_norms(shares)) for c in examples])
