"""The search for the neighbours and the events that show most, and the count of fresh runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from ..metrics._fresh_runs import Counts, Curve
from ._neighbours import Pair
from ._tells import N_COUNTS, Event, matrix, plan, separation

__all__ = ["Attack", "Effort", "Release", "Runs"]

Release = Callable[[Any], Any]

_TRIAL = 16  # runs a side of each pair, at first
_FEWEST = 64  # fresh runs a side
_PILOT = 128  # runs a side from which events are first settled
# A claim that a pilot refutes this plainly is tried by so many times its runs: the best of some
# thousand events looks better than it is.
_PLAIN = 1e-8
_MARGIN = 4
_CERTAIN = 40.0  # deviations between two neighbours, which no noise leaves
_MOST = 200_000


@dataclass
class Runs:
    """Runs of a release on one data set, made as they are asked for.

    **Guarantees.** No two calls return the same run.
    """

    release: Release
    data: Any
    n_jobs: int
    made: list[NDArray[np.float64]] = field(default_factory=list)

    def up_to(self, n: int) -> list[NDArray[np.float64]]:
        """Return the first ``n`` runs of the pilot, those of earlier calls among them."""
        if n > len(self.made):
            self.made += self.fresh(n - len(self.made))
        return self.made[:n]

    def fresh(self, n: int) -> list[NDArray[np.float64]]:
        """Return ``n`` runs that nobody has seen."""
        if self.n_jobs == 1 or n < 2 * self.n_jobs:
            return _batch(self.release, self.data, n)
        sizes = [len(part) for part in np.array_split(np.arange(n), 4 * self.n_jobs)]
        parts = Parallel(n_jobs=self.n_jobs)(
            delayed(_batch)(self.release, self.data, size) for size in sizes if size
        )
        return [run for part in parts for run in part]


def _batch(release: Release, data: Any, n: int) -> list[NDArray[np.float64]]:
    return [np.asarray(release(data), dtype=float).ravel() for _ in range(n)]


@dataclass(frozen=True)
class Effort:
    """How much may be run: ``n_runs`` fresh ones a side, or what about ``seconds`` allow."""

    n_runs: int | None
    seconds: float
    n_jobs: int

    def fresh(self, a_run: float) -> int:
        """Return the most fresh runs a side, if one takes so many seconds."""
        if self.n_runs is not None:
            return self.n_runs
        return int(np.clip(0.45 * self._runs(a_run), _FEWEST, _MOST))

    def pilot(self, a_run: float) -> int:
        """Return the most runs a side to settle the events by."""
        if self.n_runs is not None:
            return max(self.n_runs, _PILOT)
        return int(np.clip(0.35 * self._runs(a_run), _PILOT, _MOST))

    def trial(self, a_run: float, n_pairs: int) -> int:
        """Return how many runs a side each pair gets at first."""
        if self.n_runs is not None:
            return int(np.clip(self.n_runs // 60, _TRIAL, 4 * _TRIAL))
        return int(np.clip(0.05 * self._runs(a_run) / n_pairs, _TRIAL, 4 * _TRIAL))

    def _runs(self, a_run: float) -> float:
        return self.seconds * self.n_jobs / a_run / 2


@dataclass(frozen=True)
class Attack:
    """What was counted in fresh runs.

    Attributes
    ----------
    pair : Pair
        The neighbours.
    counts : tuple of Counts
        Of each event that was settled beforehand, in the same fresh runs.
    n_pilot : int
        How many runs there were before, on all neighbours.
    left_out : tuple of str
        Neighbours that the release refused, and why there are none of them here.
    """

    pair: Pair
    counts: tuple[Counts, ...]
    n_pilot: int
    left_out: tuple[str, ...]

    @classmethod
    def of(
        cls,
        release: Release,
        pairs: Iterable[Pair],
        curve: Curve,
        delta: float,
        alpha: float,
        effort: Effort,
        steps: Sequence[slice] = (),
    ) -> Attack:
        """Choose neighbours and events by some runs, then count the events in fresh ones.

        ``steps`` are the places of the numbers that each of several steps released.

        **Guarantees.** Nothing that is chosen, not even the number of fresh runs, depends on them.

        Raises
        ------
        ValueError
            If the release returns numbers for no pair.
        """
        tried = [(pair, _sides(release, pair, effort.n_jobs)) for pair in pairs]
        works = [
            (pair, sides) for pair, sides in tried if all(side.up_to(1)[0].size for side in sides)
        ]
        left_out = tuple(pair.name for pair, sides in tried if all(p is not pair for p, _ in works))
        if not works:
            raise ValueError(
                "the release returned no numbers on any neighbours. Pass X and y on which it works."
            )
        # After the first runs, whose costs others do not have.
        started = time.perf_counter()
        for _, sides in works:
            sides[0].up_to(3)
        a_run = max((time.perf_counter() - started) / (2 * len(works)), 1e-6)
        pair, sides = _most_apart(works, effort.trial(a_run, len(works)))
        events, width, n = _settled(sides, curve, delta, alpha, effort, a_run, steps)
        fresh = [matrix(side.fresh(n), width) for side in sides]
        return cls(
            pair,
            tuple(event.counted(fresh[0], fresh[1]) for event in events),
            sum(len(side.made) for _, both in tried for side in both),
            left_out,
        )


def _sides(release: Release, pair: Pair, n_jobs: int) -> tuple[Runs, Runs]:
    return Runs(release, pair.data, n_jobs), Runs(release, pair.other, n_jobs)


def _most_apart(
    works: list[tuple[Pair, tuple[Runs, Runs]]], n: int
) -> tuple[Pair, tuple[Runs, Runs]]:
    """Return the neighbours that runs tell apart best; the better half gets twice the runs.

    The first that are told apart beyond all noise are as good as any.
    """
    while len(works) > 1:
        found = []
        for work in works:
            found.append(_apart(work[1], n))
            if found[-1] > _CERTAIN:
                return work
        works = [works[i] for i in np.argsort(found)[::-1][: len(works) // 2]]
        n *= 2
    return works[0]


def _apart(sides: tuple[Runs, Runs], n: int) -> float:
    runs, others = (side.up_to(n) for side in sides)
    width = max(len(run) for run in [*runs, *others])
    return separation(matrix(runs, width), matrix(others, width))


def _settled(
    sides: tuple[Runs, Runs], curve: Curve, delta: float, alpha: float, effort: Effort,
    a_run: float, steps: Sequence[slice],
) -> tuple[tuple[Event, ...], int, int]:  # fmt: skip
    """Return the events to count, how many numbers of a run they see, and how often to run."""
    most, enough = effort.fresh(a_run), effort.pilot(a_run)
    n = min(_PILOT, enough)
    columns = [slice(step.start + N_COUNTS, step.stop + N_COUNTS) for step in steps]
    while True:
        both = [side.up_to(n) for side in sides]
        width = max(len(run) for side in both for run in side)
        runs = [matrix(side, width) for side in both]
        learn, check = ([side[i::2] for side in runs] for i in (0, 1))
        found = plan((learn[0], learn[1]), (check[0], check[1]), curve, delta, alpha, columns)
        if found.surprise < _PLAIN or n >= enough:
            break
        n = min(2 * n, enough)
    if found.surprise < _PLAIN:
        most = min(most, _MARGIN * n)
    return found.events, width, most
