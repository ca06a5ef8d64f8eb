"""Rows of each group in a training run, and the batches of drawn groups."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._groups import Groups
from .._gradients.people import GroupedExamples
from .config import PerGroup

__all__ = ["GroupRows"]


class GroupRows:
    """Rows of each group; a group takes part in a step with all of them.

    ``rows`` are the positions of the rows in use, at least one of each group of ``groups``.

    **Guarantees.** Every row in use belongs to one group. :meth:`parts` puts all rows of a drawn
    group, and no rows of other groups, into one part as one contribution to the step.
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

    def parts(
        self, drawn: NDArray[np.int64], n_rows: int, device: torch.device
    ) -> Iterator[tuple[Tensor, GroupedExamples | None]]:
        """Yield the rows of drawn groups, at most ``n_rows`` at a time, and the group of each.

        **Edge cases.** A group of more than ``n_rows`` rows is a separate part. ``None`` stands for
        groups of one row each.
        """
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
