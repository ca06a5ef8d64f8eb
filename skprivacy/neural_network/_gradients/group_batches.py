"""Batches of drawn groups, and the joint clipping of a group's examples.

The privacy unit is the group, so the joint contribution of a group is clipped and not its examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._groups import Groups

# Groups of up to this many examples are computed together with groups of equal size only. Larger
# ones share a bucket with groups of up to twice as many, padded with examples that count nothing.
_EXACT = 8


@dataclass(frozen=True)
class PerGroup:
    """Terms of a run that protects groups."""

    unit: str  # name of a group
    most: int | None  # records of a group that are used at most
    contribution: str  # "mean" or "sum" of their gradients, before clipping


class GroupedExamples:
    """Division of a batch's consecutive examples among groups, of ascending ``sizes``."""

    def __init__(self, sizes: NDArray[np.int64], mean: bool, device: torch.device) -> None:
        ends = np.cumsum(sizes)
        self.buckets = [_make_bucket(sizes, ends, *cut, device) for cut in _buckets(sizes)]
        owner = np.repeat(np.arange(len(sizes)), sizes)
        self._owner = torch.from_numpy(owner).to(device)
        self.sizes = torch.from_numpy(sizes.astype(np.float32)).to(device)
        self._weights = 1.0 / self.sizes if mean else torch.ones_like(self.sizes)
        self._squared_weights = self._weights.square()

    @property
    def n_single_examples(self) -> int:
        """Number of groups with one example; they come first."""
        return self.buckets[0].groups.stop if self.buckets[0].most == 1 else 0

    def squared_norms(self, joint: Tensor) -> Tensor:
        """Return bounds of squared norms of groups' contributions, given bounds of their sums."""
        return joint.mul_(self._squared_weights)

    def longest(self, squared: Tensor) -> Tensor:
        """Return each group's number of examples times the sum of their squared norms."""
        sums = torch.zeros_like(self.sizes).index_add_(0, self._owner, squared)
        return sums.mul_(self.sizes)

    def by_example(self, values: Tensor) -> Tensor:
        """Return each example's value, given its group's; examples are the last dimension."""
        return values.index_select(-1, self._owner)

    def has_only(self, bad: Tensor) -> Tensor:
        """Return a mask of the groups that have only examples marked ``bad``."""
        good = self._weights.new_zeros(len(self._weights))
        return good.index_add_(0, self._owner, (~bad).to(good.dtype)) == 0

    def factors(self, factors: Tensor) -> Tensor:
        """Return the factor of each example's gradient, given the factors of groups."""
        return self.by_example(factors * self._weights)


@dataclass(frozen=True)
class GroupBucket:
    """A bucket of consecutive groups with similar numbers of examples, padded to ``m`` each."""

    m: int
    most: int  # largest possible size; decides how norms are computed
    groups: slice  # their positions
    part: slice  # their examples
    places: Tensor | None = None  # padded positions of examples; None if all groups have m
    extra: Tensor | None = None  # positions that count nothing

    def gather(self, values: Tensor) -> Tensor:
        """Return each group's values, shape (n_groups, m, ...); padding has any values."""
        values = values[self.part]
        if self.places is not None:
            values = values.index_select(0, self.places)
        return values.view(-1, self.m, *values.shape[1:])

    def gather_blanked(self, values: Tensor) -> Tensor:
        """Return each group's values with zeros in padding."""
        if self.places is None or self.extra is None:
            return self.gather(values)
        values = values[self.part].index_select(0, self.places)
        return values.index_fill_(0, self.extra, 0).view(-1, self.m, *values.shape[1:])


class GroupRows:
    """Rows of each group; a group takes part in a step with all of those in use.

    **Guarantees.** Every row in use belongs to one group. :meth:`iterate_parts` puts all rows of a
    drawn group, and no rows of other groups, into one part as one contribution to the step.
    """

    def __init__(self, groups: Groups, rows: NDArray[np.int64], terms: PerGroup) -> None:
        sizes = np.bincount(groups.codes[rows], minlength=groups.n)
        by_size = np.argsort(sizes, kind="stable")
        self.most = terms.most
        self._mean = terms.contribution == "mean"
        self._place = np.empty_like(by_size)
        self._place[by_size] = np.arange(groups.n)
        self._sizes = sizes[by_size]
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._rows = rows[np.argsort(self._place[groups.codes[rows]], kind="stable")]

    def __len__(self) -> int:
        return len(self._sizes)

    def iterate_parts(
        self, drawn: NDArray[np.int64], n_rows: int, device: torch.device
    ) -> Iterator[tuple[Tensor, GroupedExamples | None]]:
        """Yield the rows of drawn groups, at most ``n_rows`` or one group, and each one's group."""
        places = np.sort(self._place[drawn])  # positions of groups, which are sorted by size
        sizes = self._sizes[places]
        ends = np.cumsum(sizes)
        first = self._starts[places] - (ends - sizes)
        rows = torch.from_numpy(self._rows[np.repeat(first, sizes) + np.arange(sizes.sum())])
        start = 0
        while start < len(drawn):
            before = int(ends[start] - sizes[start])
            stop = max(start + 1, int(np.searchsorted(ends, before + n_rows, side="right")))
            part = rows[before : int(ends[stop - 1])].to(device)
            own = sizes[start:stop]
            yield part, None if own[-1] == 1 else GroupedExamples(own, self._mean, device)
            start = stop


def _buckets(sizes: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Return (most, first, last) for each bucket of groups with similar numbers of examples.

    **Guarantees.** ``most`` depends on a group's own size only, even if all groups have fewer. It
    decides how norms are computed and how much rounding is assumed, and no group may change what
    others add.
    """
    found, first = [], 0
    while first < len(sizes):
        most = _bucket_size(int(sizes[first]))
        last = int(np.searchsorted(sizes, most, side="right"))
        found.append((most, first, last))
        first = last
    return found


def _bucket_size(size: int) -> int:
    """Return the next of 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64..."""
    return size if size <= _EXACT else 1 << (size - 1).bit_length()


def _make_bucket(
    sizes: NDArray[np.int64],
    ends: NDArray[np.int64],
    most: int,
    first: int,
    last: int,
    device: torch.device,
) -> GroupBucket:
    start, m = int(ends[first] - sizes[first]), int(sizes[last - 1])
    groups, part = slice(first, last), slice(start, int(ends[last - 1]))
    if sizes[first] == m:
        return GroupBucket(m, most, groups, part)
    own = sizes[first:last]
    place = np.arange(m)
    extra = place >= own[:, None]
    places = np.where(extra, 0, place) + (ends[first:last] - own - start)[:, None]
    return GroupBucket(
        m,
        most,
        groups,
        part,
        torch.from_numpy(places.ravel()).to(device),
        torch.from_numpy(np.flatnonzero(extra)).to(device),
    )
