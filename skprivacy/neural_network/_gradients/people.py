"""Which examples of a batch are whose: what people contribute is clipped, not what examples do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Joined", "Shares"]

# Of people with up to this many examples each number is computed by itself; of more, with those
# who have up to twice as many, filled up with examples that count nothing.
_EXACT = 8


class Shares:
    """How the examples of a batch are divided among people, one person after another.

    Parameters
    ----------
    sizes : ndarray of shape (n_people,)
        How many consecutive examples each has, one at least; in ascending order, so that people
        with about equally many are computed at once.
    mean : bool
        Whether a person contributes the mean of the examples' gradients, or their sum.
    device : torch.device

    Attributes
    ----------
    joined : list of Joined
        People with about equally many examples together, in order.
    sizes : Tensor of shape (n_people,)
        As given.
    """

    def __init__(self, sizes: NDArray[np.int64], mean: bool, device: torch.device) -> None:
        ends = np.cumsum(sizes)
        self.joined = [_joined(sizes, ends, *cut, device) for cut in _buckets(sizes)]
        owner = np.repeat(np.arange(len(sizes)), sizes)
        self._owner = torch.from_numpy(owner).to(device)
        self.sizes = torch.from_numpy(sizes.astype(np.float32)).to(device)
        self._weights = 1.0 / self.sizes if mean else torch.ones_like(self.sizes)
        self._squared_weights = self._weights.square()

    @property
    def alone(self) -> int:
        """How many people have one example; they are the first."""
        return self.joined[0].who.stop if self.joined[0].most == 1 else 0

    def squared_norms(self, joint: Tensor) -> Tensor:
        """Return upper bounds of the squared norms of what people contribute, in place.

        ``joint`` bounds the squared norm of the sum over the examples of each.
        """
        return joint.mul_(self._squared_weights)

    def longest(self, squared: Tensor) -> Tensor:
        """Return how many examples each person has times the sum of their squared norms."""
        sums = torch.zeros_like(self.sizes).index_add_(0, self._owner, squared)
        return sums.mul_(self.sizes)

    def by_example(self, values: Tensor) -> Tensor:
        """Return each example's value, given people's; examples are the last dimension."""
        return values.index_select(-1, self._owner)

    def with_nothing_but(self, bad: Tensor) -> Tensor:
        """Return who has no examples but those marked ``bad``."""
        good = self._weights.new_zeros(len(self._weights))
        return good.index_add_(0, self._owner, (~bad).to(good.dtype)) == 0

    def factors(self, factors: Tensor) -> Tensor:
        """Return by how much each example's gradient is multiplied, given people's factors."""
        return self.by_example(factors * self._weights)


@dataclass(frozen=True)
class Joined:
    """Some consecutive people and examples, of whom each has about equally many.

    Parameters
    ----------
    m : int
        How many each has, or is given: as many as somebody here has.
    most : int
        How many such people may have at most: by this alone goes how norms are computed.
    who : slice
        The people.
    part : slice
        The examples.
    places : Tensor of shape (n_people * m,), default=None
        Which of them stands where; ``None`` if each person has ``m``.
    extra : Tensor of shape (n_people * m,), default=None
        Which places are to count nothing.
    """

    m: int
    most: int
    who: slice
    part: slice
    places: Tensor | None = None
    extra: Tensor | None = None

    def of(self, values: Tensor) -> Tensor:
        """Return each person's values, shape (n_people, m, ...); extra places have any."""
        values = values[self.part]
        if self.places is not None:
            values = values.index_select(0, self.places)
        return values.view(-1, self.m, *values.shape[1:])

    def blanked(self, values: Tensor) -> Tensor:
        """Return the same with zeros in extra places."""
        if self.places is None or self.extra is None:
            return self.of(values)
        values = values[self.part].index_select(0, self.places)
        return values.index_fill_(0, self.extra, 0).view(-1, self.m, *values.shape[1:])


def _buckets(sizes: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Return (most, first, last): where people are who have about equally many examples.

    **Guarantees.** ``most`` depends on a person's own number alone, also if all have fewer: by
    ``most`` goes how norms are computed and how much rounding is feared, and nobody may change
    what others add.
    """
    found, first = [], 0
    while first < len(sizes):
        most = _rounded(int(sizes[first]))
        last = int(np.searchsorted(sizes, most, side="right"))
        found.append((most, first, last))
        first = last
    return found


def _rounded(size: int) -> int:
    """Return the next of 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64..."""
    return size if size <= _EXACT else 1 << (size - 1).bit_length()


def _joined(
    sizes: NDArray[np.int64],
    ends: NDArray[np.int64],
    most: int,
    first: int,
    last: int,
    device: torch.device,
) -> Joined:
    start, m = int(ends[first] - sizes[first]), int(sizes[last - 1])
    who, part = slice(first, last), slice(start, int(ends[last - 1]))
    if sizes[first] == m:
        return Joined(m, most, who, part)
    own = sizes[first:last]
    place = np.arange(m)
    extra = place >= own[:, None]
    places = np.where(extra, 0, place) + (ends[first:last] - own - start)[:, None]
    return Joined(
        m,
        most,
        who,
        part,
        torch.from_numpy(places.ravel()).to(device),
        torch.from_numpy(np.flatnonzero(extra)).to(device),
    )
