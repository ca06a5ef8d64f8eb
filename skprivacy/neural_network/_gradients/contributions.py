"""Per-example contributions to the gradient of one layer, in the cheapest form for its type.

Each form computes the squared norm of every example's contribution, and adds their weighted sum to
the accumulator of each parameter. No form needs more memory than the layer's inputs and outputs,
except :class:`DenseGradients`, which holds the gradients. A :class:`Workspace` reuses memory
between steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._training.torch_modes import numpy_sees

if TYPE_CHECKING:
    from .group_batches import GroupedExamples

# Attribute of a parameter, a tensor that sums its clipped gradients. It is not ``grad``: exact
# noise sums in double precision, which torch before 2.9 refuses there.
ACCUMULATOR = "clipped_sum"

# Squares below the smallest normal number vanish: each number may have lost this much.
_LOST = torch.finfo(torch.float32).tiny
# A sum over positions that nearly cancels has an error of 2e-6 times the sum of the norms. Up to
# 5e-5 of the norm, the clipping's safety factor covers it; the rest is added to the norm.
_ROUNDING, _COVERED = 2e-6, 5e-5
# Positions that cancel further than this are clipped as if they did not. Scaled to the clipping
# norm, each would be so long that the rounding of the sum over the batch would be visible.
_CANCELLED = 1e-3
# Multiplications that take as long as writing, squaring and re-reading one number of a gradient.
ROW_COST = 4
# Up to this many terms, products of all pairs are computed, whatever their cost.
_FEW_TERMS = 64
# Positions of which all pairs are held in memory.
_MAX_POSITIONS = 1 << 10
# Largest relative rounding error of one number, and smallest bound on the error of products of
# pairs, in units of the squared sum of the norms. Products of long rows have larger errors, see
# ``_lost_in_products``.
_UNIT = 2.0**-24
_OTHERS = 16  # arithmetic operations besides the sums
_PRODUCTS = 4e-6
# Added per number to a squared norm that is multiplied by another one.
LOST = _LOST / _PRODUCTS


class Contribution(Protocol):
    """One layer's share of the per-example gradients of a batch."""

    def squared_norms(self) -> Tensor:
        """Return an upper bound, tight up to rounding, of each squared norm, shape (batch,)."""

    def add_sum(self, factors: Tensor) -> None:
        """Add the sum of the contributions times ``factors``, shape (batch,)."""

    def without(self, bad: Tensor) -> Contribution:
        """Return the contributions with zeros for ``bad`` examples, since 0 * inf is NaN."""

    def joint_norms(self, shares: GroupedExamples) -> Tensor:
        """Return bounds of the squared norms of each group's sum, shape (n_groups,)."""

    def numbers(self) -> int:
        """Return how many numbers it holds in memory."""


@dataclass
class OuterProduct:
    """A linear layer with one row per example: ``output_grad`` times ``input``."""

    weight: Tensor
    bias: Tensor | None
    input: Tensor  # (batch, n_in)
    output_grad: Tensor  # (batch, n_out)
    spare: bool = False  # whether ``output_grad`` may be overwritten
    first: bool = False  # whether the accumulator is overwritten instead of added to

    def squared_norms(self) -> Tensor:
        # Book-keeping (Bu et al. 2023): the norm of an outer product is the product of the norms
        return _norms_of_terms(self.input, self.output_grad, self.bias is not None)

    def add_sum(self, factors: Tensor) -> None:
        total, d, a = getattr(self.weight, ACCUMULATOR), self.output_grad, self.input
        if total.dtype != d.dtype:
            d, a, factors = (values.to(total.dtype) for values in (d, a, factors))
        buffer = d if self.spare or d is not self.output_grad else None
        bias = None if self.bias is None else getattr(self.bias, ACCUMULATOR)
        add_weighted(total, bias, d, a, factors, buffer, self.first)

    def without(self, bad: Tensor) -> OuterProduct:
        return replace(
            self,
            input=_zero_examples(self.input, bad),
            output_grad=_zero_examples(self.output_grad, bad),
        )

    def joint_norms(self, shares: GroupedExamples) -> Tensor:
        bias = self.bias is not None
        each = _norms_of_terms(self.input, self.output_grad, bias)
        longest = shares.longest(each)
        return torch.cat(
            [
                each[bucket.part]
                if bucket.m == 1
                else _norms_of_sums(
                    bucket.gather(self.input),
                    bucket.gather_blanked(self.output_grad),
                    longest[bucket.groups],
                    bucket.most,
                    bias,
                )
                for bucket in shares.buckets
            ]
        )

    def numbers(self) -> int:
        return self.input.numel() + self.output_grad.numel()


@dataclass
class OuterProducts:
    """A layer with many positions per example, whose outer products are summed.

    Norms come from two Gram matrices over the positions ("ghost norm") in double precision: single
    precision loses them where positions nearly cancel.
    """

    weight: Tensor
    bias: Tensor | None
    input: Tensor  # (batch, positions, n_in)
    output_grad: Tensor  # (batch, positions, n_out)

    def squared_norms(self) -> Tensor:
        a, d = self.input.double(), self.output_grad.double()
        inputs = a @ a.mT
        if self.bias is not None:
            inputs += 1.0
        # Ghost norm (Li et al. 2022; Bu et al. 2023): <a a^T, d d^T> over pairs of positions
        exact = (inputs * (d @ d.mT)).sum((1, 2))
        lengths = inputs.diagonal(dim1=1, dim2=2).sqrt() * d.norm(dim=2)
        return _add_rounding_margin(exact, lengths.sum(1))

    def add_sum(self, factors: Tensor) -> None:
        total = getattr(self.weight, ACCUMULATOR)
        weighted = _weight_by_example(self.output_grad, factors, total.dtype)
        update = weighted.T @ self.input.flatten(0, 1).to(total.dtype)
        total = total.movedim(1, -1)
        total.add_(update.view(total.shape))
        if self.bias is not None:
            getattr(self.bias, ACCUMULATOR).add_(weighted.sum(0))

    def without(self, bad: Tensor) -> OuterProducts:
        return replace(
            self,
            input=_zero_examples(self.input, bad),
            output_grad=_zero_examples(self.output_grad, bad),
        )

    def joint_norms(self, shares: GroupedExamples) -> Tensor:
        found, positions = [], self.input.shape[1]
        for bucket in shares.buckets:
            if bucket.m == 1:  # as without groups
                part = self.input[bucket.part], self.output_grad[bucket.part]
                found.append(OuterProducts(self.weight, self.bias, *part).squared_norms())
                continue
            a = bucket.gather(self.input).flatten(1, 2)
            d = bucket.gather_blanked(self.output_grad).flatten(1, 2)
            bias = self.bias is not None
            each = _norms_of_terms(a.flatten(0, 1), d.flatten(0, 1), bias).view(a.shape[:2])
            longest = each.sum(1).mul_(positions * shares.sizes[bucket.groups])
            found.append(_norms_of_sums(a, d, longest, positions * bucket.most, bias))
        return torch.cat(found)

    def numbers(self) -> int:
        positions = self.input.shape[1]
        return self.input.numel() + self.output_grad.numel() + len(self.input) * positions**2


@dataclass
class Lookups:
    """An embedding: each position adds its output gradient to one row of the table."""

    weight: Tensor
    index: Tensor  # (batch, positions)
    output_grad: Tensor  # (batch, positions, n_out)

    def squared_norms(self) -> Tensor:
        d = self.output_grad.double()
        same = self.index[:, :, None] == self.index[:, None, :]
        exact = ((d @ d.mT) * same).sum((1, 2))
        return _add_rounding_margin(exact, d.norm(dim=2).sum(1))

    def add_sum(self, factors: Tensor) -> None:
        total = getattr(self.weight, ACCUMULATOR)
        weighted = _weight_by_example(self.output_grad, factors, total.dtype)
        total.index_add_(0, self.index.flatten(), weighted)

    def without(self, bad: Tensor) -> Lookups:
        return replace(self, output_grad=_zero_examples(self.output_grad, bad))

    def joint_norms(self, shares: GroupedExamples) -> Tensor:
        found = []
        for bucket in shares.buckets:
            index = bucket.gather(self.index).flatten(1, 2)
            d = bucket.gather_blanked(self.output_grad).flatten(1, 2)
            few = bucket.most * self.index.shape[1] <= _MAX_POSITIONS
            norms = Lookups.squared_norms if few else _norms_by_row
            found.append(norms(Lookups(self.weight, index, d)))
        return torch.cat(found)

    def numbers(self) -> int:
        return self.output_grad.numel() + 2 * self.index.shape[1] * self.index.numel()


@dataclass
class DenseGradients:
    """The gradients themselves, one row per example."""

    parameter: Tensor
    rows: Tensor  # (batch, *parameter.shape), or the same flattened
    channels_last: bool = False  # whether the parameter's second axis is the last of a row
    squared: Tensor | None = None  # their squared norms, if known

    def squared_norms(self) -> Tensor:
        if self.squared is not None:
            return self.squared
        return squared_lengths(self.rows.flatten(1), _LOST * self.parameter.numel())

    def add_sum(self, factors: Tensor) -> None:
        total = getattr(self.parameter, ACCUMULATOR)
        update = factors.to(total.dtype) @ self.rows.flatten(1).to(total.dtype)
        total = total.movedim(1, -1) if self.channels_last else total
        total.add_(update.view(total.shape))

    def without(self, bad: Tensor) -> DenseGradients:
        return replace(self, rows=_zero_examples(self.rows, bad), squared=None)

    def joint_norms(self, shares: GroupedExamples) -> Tensor:
        each = self.squared_norms()
        found = []
        for bucket in shares.buckets:
            if bucket.m == 1:
                found.append(each[bucket.part])
                continue
            rows = bucket.gather_blanked(self.rows.flatten(1)).sum(1)
            sums = squared_lengths(rows, _LOST * self.parameter.numel())
            lengths = bucket.gather_blanked(each).sqrt().sum(1)
            found.append(_add_rounding_margin(sums, lengths, max(_ROUNDING, bucket.most * _UNIT)))
        return torch.cat(found)

    def numbers(self) -> int:
        return self.rows.numel()


def _norms_by_row(lookups: Lookups) -> Tensor:
    """Return squared norms of examples with too many positions for products of all pairs."""
    found = []
    for index, d in zip(lookups.index, lookups.output_grad.double(), strict=True):
        rows, row = index.unique(return_inverse=True)
        sums = d.new_zeros(len(rows), d.shape[1]).index_add_(0, row, d)
        found.append(_add_rounding_margin(sums.square().sum(), d.norm(dim=1).sum()))
    return torch.stack(found)


def _norms_of_terms(a: Tensor, d: Tensor, bias: bool) -> Tensor:
    """Return the squared norm of each outer product, plus the possible loss in sums of products."""
    inputs = squared_lengths(a, 1.0 if bias else LOST * a.shape[1])
    return inputs.mul_(squared_lengths(d, LOST * d.shape[1]))


def _norms_of_sums(a: Tensor, d: Tensor, longest: Tensor, most: int, bias: bool) -> Tensor:
    """Return upper bounds of the squared norms of sums of outer products ``d`` times ``a``.

    ``a`` is (sums, terms, n_in); ``d`` is (sums, terms, n_out), zero for padding. ``longest`` is
    the number of terms of each sum times the sum of their squared norms by :func:`_norms_of_terms`:
    at least the squared sum of the norms, by Cauchy-Schwarz. ``most`` bounds the number of
    terms. With ``bias``, a term contains the numbers of ``d`` once more.

    **Guarantees.** The faster of two methods: products of all pairs of terms, or the sums
    themselves. The possible loss by rounding where terms nearly cancel is added. The bound holds
    for any order of additions and if all errors point one way, as they do for rows chosen by an
    adversary.
    """
    n_in, n_out = a.shape[2], d.shape[2]
    if most > _FEW_TERMS and most**2 * (n_in + n_out) > (most + ROW_COST) * n_in * n_out:
        squared = (d.mT @ a).flatten(1).square().sum(1)
        if bias:
            squared += d.sum(1).square().sum(1)
        squared += _LOST * (n_in + 1) * n_out
        return _add_rounding_margin(squared, longest.sqrt(), max(_ROUNDING, most * _UNIT))
    lost = _lost_in_products(n_in, n_out, most)
    if max(n_in, n_out) > SUMMED:
        a, d = a.double(), d.double()
    if most == 2:  # the same result as below, in half the time
        crossed = torch.linalg.vecdot(a[:, 0], a[:, 1])
        crossed = (crossed + 1.0 if bias else crossed) * torch.linalg.vecdot(d[:, 0], d[:, 1])
        return (longest * (0.5 + lost)).add_(crossed, alpha=2.0).float()
    products = torch.bmm(a, a.mT)
    if bias:
        products += 1.0
    products *= torch.bmm(d, d.mT)
    return products.sum(2).sum(1).add_(longest, alpha=lost).float()


def _lost_in_products(n_in: int, n_out: int, most: int) -> float:
    """Return the error bound of products of pairs of terms, or of squared norms, in any order.

    A sum of n products is off by n units at most (Higham, "Accuracy and stability of numerical
    algorithms", 2002, section 3.1); rows above 4,096 numbers are added up in double precision.
    """
    numbers = min(n_in, SUMMED) + min(n_out, SUMMED) + 2 * most  # rows of pairs, then rows
    return max(_PRODUCTS, (numbers + _OTHERS) * _UNIT)


def _weight_by_example(output_grad: Tensor, factors: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the gradients at all positions times the example's factor, in one matrix."""
    return (output_grad.to(dtype) * factors.to(dtype)[:, None, None]).flatten(0, 1)


def _zero_examples(values: Tensor, bad: Tensor) -> Tensor:
    return values.masked_fill(bad.view(-1, *[1] * (values.dim() - 1)), 0.0)


def _add_rounding_margin(exact: Tensor, lengths: Tensor, rounding: float = _ROUNDING) -> Tensor:
    """Return squared norms that cancellation cannot make too small; ``lengths``: sum of norms."""
    norm = exact.clamp(min=0.0).sqrt()  # NaN stays NaN
    norm += (rounding * lengths - _COVERED * norm).clamp(min=0.0)
    return torch.maximum(norm, _CANCELLED * lengths).square().float()


_SMALL_PRODUCT = 1 << 22  # multiplications of a product below which numpy is faster
_FEW_THREADS = 2  # threads of torch up to which numpy's one is as fast
# Numbers whose squares are added up in sequence: over a million of equal size the norm came out too
# small by 8e-4, over four million by 2e-3.
SUMMED = 1 << 12
# Rows that numpy adds up: over more, its products of few columns round more than torch's.
_SUMMED_ROWS = 512


def products(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Compute products of matrices into ``out``; numpy needs half of torch's time on one thread."""
    if numpy_sees(a) and torch.get_num_threads() <= _FEW_THREADS:
        np.matmul(a.numpy(), b.numpy(), out=out.numpy())
    else:
        torch.bmm(a, b, out=out)


def add_weighted(
    weight: Tensor,
    bias: Tensor | None,
    d: Tensor,
    a: Tensor,
    factors: Tensor,
    out: Tensor | None,
    first: bool = False,
) -> None:
    """Add the outer products of the rows of ``d`` and ``a``, times factors, to ``weight``.

    ``out``, which may be ``d``, is memory to use. With ``first``, the sums are overwritten.
    """
    # As in _is_small, the number of rows affects the rounding only.
    short = len(d) <= _SUMMED_ROWS and weight.dtype == torch.float32
    if out is not None and short and _is_small(a, d.shape[1]):
        rows, scale, weighted, sums = d.numpy(), factors.numpy(), out.numpy(), weight.numpy()
        if bias is not None:
            _add_product(bias.numpy(), scale, rows, first)
        np.multiply(rows, scale[:, None], out=weighted)
        _add_product(sums, weighted.T, a.numpy(), first)
        return
    kept = 0.0 if first else 1.0
    if bias is not None:
        bias.addmv_(d.T, factors, beta=kept)
    weight.addmm_(torch.mul(d, factors[:, None], out=out).T, a, beta=kept)


def _add_product(total: NDArray, left: NDArray, right: NDArray, first: bool) -> None:
    if first:
        np.matmul(left, right, out=total)
    else:
        total += left @ right


def squared_lengths(rows: Tensor, lost: float) -> Tensor:
    """Return the squared L2 norm of each row, plus ``lost``.

    **Guarantees.** Right to 6e-5 for any length and position of a row, and to 3e-4 if all errors
    point one way: norms are right to 3e-5 and 1.3e-4.
    """
    if rows.shape[1] > SUMMED:
        parts = torch.stack([squared_lengths(part, 0.0) for part in rows.split(SUMMED, dim=1)])
        return parts.sum(0).add_(lost)
    if numpy_sees(rows):
        values = rows.numpy()
        with np.errstate(all="ignore"):
            found = np.matmul(values[:, None], values[:, :, None])[:, 0, 0]
        found += lost
        return torch.from_numpy(found)
    return torch.linalg.vector_norm(rows, dim=1).square_().add_(lost)


def _is_small(a: Tensor, n: int) -> bool:
    """Return True if numpy should multiply a matrix by another one of ``n`` columns.

    The number of rows decides the rounding of gradients, as shapes of products always do. Zero-out
    keeps it; under add-remove no margin is proved for it (SECURITY.md).
    """
    return numpy_sees(a) and a.dtype == torch.float32 and a.numel() * n <= _SMALL_PRODUCT
