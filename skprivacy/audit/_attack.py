"""The search for the neighbours and the events that show most, and the count of fresh runs."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from .._global_chance import seeded_globally
from ..metrics._fresh_runs import Counts, Curve
from ._neighbours import Pair
from ._tells import N_COUNTS, Event, matrix, plan, separation

__all__ = ["Attack", "Effort", "Release", "Runs", "copies_repeat"]

Release = Callable[[Any], Any]
Batch = tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]  # a list a side

_TRIAL = 16  # runs a side of each pair, at first
_FEWEST = 64  # fresh runs a side
_PILOT = 128  # runs a side from which events are first settled
# A claim that a pilot refutes this plainly is tried by so many times its runs: the best of some
# thousand events looks better than it is.
_PLAIN = 1e-8
_MARGIN = 4
_CERTAIN = 40.0  # deviations between two neighbours, which no noise leaves
_MOST = 200_000
_COPIED = 64  # runs that two copies of a release do not have in common by chance


@dataclass
class Runs:
    """Runs of a release on two neighbours, made as they are asked for.

    The sides take turns in random order: a clock, a counter or a processor that slows down, which
    a release may well tell, would otherwise tell the sides apart, or hide what does.

    **Guarantees.** No two calls return the same run.
    """

    release: Release
    pair: Pair
    n_jobs: int
    made: Batch = field(default_factory=lambda: ([], []))

    def up_to(self, n: int) -> Batch:
        """Return the first ``n`` runs a side of the pilot, those of earlier calls among them."""
        if n > self.n_made:
            for side, more in zip(self.made, self.fresh(n - self.n_made), strict=True):
                side += more
        return self.made[0][:n], self.made[1][:n]

    @property
    def n_made(self) -> int:
        """How many runs a side the pilot has."""
        return len(self.made[0])

    def fresh(self, n: int) -> Batch:
        """Return ``n`` runs a side that nobody has seen: with the record, and without it."""
        turns = np.random.default_rng().permutation(np.repeat([True, False], n))
        if self.n_jobs == 1 or n < 2 * self.n_jobs:
            runs = _batch(self.release, self.pair, turns)
        else:
            parts = Parallel(n_jobs=self.n_jobs)(
                delayed(_elsewhere)(self.release, self.pair, part, os.getpid())
                for part in np.array_split(turns, 4 * self.n_jobs)
            )
            runs = [run for part in parts for run in part]
        sides: Batch = ([], [])
        for run, inside in zip(runs, turns, strict=True):
            sides[0 if inside else 1].append(run)
        return sides


def _batch(release: Release, pair: Pair, turns: NDArray[np.bool_]) -> list[NDArray[np.float64]]:
    data = (pair.other, pair.data)
    return [np.asarray(release(data[inside]), dtype=float).ravel() for inside in turns.astype(int)]


def copies_repeat(release: Release, data: Any, n_jobs: int) -> bool:
    """Return whether a release draws the same noise in every process that gets a copy of it.

    It does if it has a generator of its own, such as one of numpy in its closure.

    **Edge cases.** False if there is no noise: then nothing is repeated.
    """
    turns = np.zeros(_COPIED, bool)
    first, second = Parallel(n_jobs=n_jobs)(
        delayed(_elsewhere)(release, Pair("", data, data), turns, os.getpid()) for _ in range(2)
    )
    drawn = {run.tobytes() for run in first}
    return len(drawn) > 1 and all(map(np.array_equal, first, second))


def _elsewhere(
    release: Release, pair: Pair, turns: NDArray[np.bool_], parent: int
) -> list[NDArray[np.float64]]:
    """Run a batch in a process that may have been forked: with the generators of its parent."""
    with nullcontext() if os.getpid() == parent else seeded_globally(secrets.randbelow(2**32)):
        return _batch(release, pair, turns)


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
        tried = [Runs(release, pair, effort.n_jobs) for pair in pairs]
        works = [runs for runs in tried if all(side[0].size for side in runs.up_to(1))]
        left_out = tuple(runs.pair.name for runs in tried if all(runs is not w for w in works))
        if not works:
            raise ValueError(
                "the release returned no numbers on any neighbours. Pass X and y on which it works."
            )
        # After the first runs, whose costs others do not have.
        started = time.perf_counter()
        for runs in works:
            runs.up_to(2)
        a_run = max((time.perf_counter() - started) / (2 * len(works)), 1e-6)
        runs = _most_apart(works, effort.trial(a_run, len(works)))
        events, width, n = _settled(runs, curve, delta, alpha, effort, a_run, steps)
        inside, outside = (matrix(side, width) for side in runs.fresh(n))
        return cls(
            runs.pair,
            tuple(event.counted(inside, outside) for event in events),
            sum(2 * both.n_made for both in tried),
            left_out,
        )


def _most_apart(works: list[Runs], n: int) -> Runs:
    """Return the neighbours that runs tell apart best; the better half gets twice the runs.

    The first that are told apart beyond all noise are as good as any.
    """
    while len(works) > 1:
        found = []
        for runs in works:
            found.append(_apart(runs.up_to(n)))
            if found[-1] > _CERTAIN:
                return runs
        works = [works[i] for i in np.argsort(found)[::-1][: len(works) // 2]]
        n *= 2
    return works[0]


def _apart(both: Batch) -> float:
    width = max(len(run) for side in both for run in side)
    runs, others = (matrix(side, width) for side in both)
    return separation(runs, others)


def _settled(
    runs: Runs, curve: Curve, delta: float, alpha: float, effort: Effort, a_run: float,
    steps: Sequence[slice],
) -> tuple[tuple[Event, ...], int, int]:  # fmt: skip
    """Return the events to count, how many numbers of a run they see, and how often to run."""
    most, enough = effort.fresh(a_run), effort.pilot(a_run)
    n = min(_PILOT, enough)
    columns = [slice(step.start + N_COUNTS, step.stop + N_COUNTS) for step in steps]
    while True:
        both = runs.up_to(n)
        width = max(len(run) for side in both for run in side)
        learn, check = ([matrix(side[i::2], width) for side in both] for i in (0, 1))
        found = plan((learn[0], learn[1]), (check[0], check[1]), curve, delta, alpha, columns)
        if found.surprise < _PLAIN or n >= enough:
            break
        n = min(2 * n, enough)
    if found.surprise < _PLAIN:
        most = min(most, _MARGIN * n)
    return found.events, width, most
