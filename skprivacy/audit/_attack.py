"""Threshold tests of a release: pilot runs choose neighbours and tests, fresh runs count them."""

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
from ._neighbours import NeighbourPair
from ._tells import N_COUNTS, ThresholdTest, choose_thresholds, runs_to_matrix, separation

__all__ = ["CountedAttack", "Effort", "Release", "ReleaseRuns", "copies_repeat"]

Release = Callable[[Any], Any]
Batch = tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]  # one list per side

_TRIAL = 16  # first runs per side of each pair
_FEWEST = 64  # fresh runs per side
_PILOT = 128  # runs per side from which tests are first chosen
# If a pilot refutes a claim this plainly, _MARGIN times its runs are enough. The margin is needed
# because the best of some thousand tests looks better than it is.
_PLAIN = 1e-8
_MARGIN = 4
_CERTAIN = 40.0  # a separation in standard deviations that no noise leaves
_MOST = 200_000
_COPIED = 64  # runs in which two copies of a release do not agree by chance


@dataclass
class ReleaseRuns:
    """Runs of a release on two neighbours, made on demand; no two calls return the same run.

    The sides take turns in random order. In a fixed order, a release that depends on a clock, a
    counter or the load of the processor would separate the sides, or hide a real difference.
    """

    release: Release
    pair: NeighbourPair
    n_jobs: int
    made: Batch = field(default_factory=lambda: ([], []))

    def pilot_runs(self, n: int) -> Batch:
        """Return the first ``n`` pilot runs per side, including those of earlier calls."""
        if n > self.n_made:
            for side, more in zip(self.made, self.fresh(n - self.n_made), strict=True):
                side += more
        return self.made[0][:n], self.made[1][:n]

    @property
    def n_made(self) -> int:
        """Number of pilot runs per side."""
        return len(self.made[0])

    def fresh(self, n: int) -> Batch:
        """Return ``n`` new runs per side: with the record, and without it."""
        turns = np.random.default_rng().permutation(np.repeat([True, False], n))
        if self.n_jobs == 1 or n < 2 * self.n_jobs:
            runs = _batch(self.release, self.pair, turns)
        else:
            parts = Parallel(n_jobs=self.n_jobs)(
                delayed(_run_in_worker)(self.release, self.pair, part, os.getpid())
                for part in np.array_split(turns, 4 * self.n_jobs)
            )
            runs = [run for part in parts for run in part]
        sides: Batch = ([], [])
        for run, inside in zip(runs, turns, strict=True):
            sides[0 if inside else 1].append(run)
        return sides


def _batch(
    release: Release, pair: NeighbourPair, turns: NDArray[np.bool_]
) -> list[NDArray[np.float64]]:
    data = (pair.other, pair.data)
    return [np.asarray(release(data[inside]), dtype=float).ravel() for inside in turns.astype(int)]


def copies_repeat(release: Release, data: Any, n_jobs: int) -> bool:
    """Return whether a release draws the same noise in every process that gets a copy of it.

    It does if it holds a generator, such as a numpy generator in its closure. False without noise.
    """
    turns = np.zeros(_COPIED, bool)
    first, second = Parallel(n_jobs=n_jobs)(
        delayed(_run_in_worker)(release, NeighbourPair("", data, data), turns, os.getpid())
        for _ in range(2)
    )
    drawn = {run.tobytes() for run in first}
    return len(drawn) > 1 and all(map(np.array_equal, first, second))


def _run_in_worker(
    release: Release, pair: NeighbourPair, turns: NDArray[np.bool_], parent: int
) -> list[NDArray[np.float64]]:
    """Run a batch; reseed global generators, which a forked process shares with its parent."""
    with nullcontext() if os.getpid() == parent else seeded_globally(secrets.randbelow(2**32)):
        return _batch(release, pair, turns)


@dataclass(frozen=True)
class Effort:
    """Limit of the effort: ``n_runs`` fresh runs per side, or about ``seconds`` of runs."""

    n_runs: int | None
    seconds: float
    n_jobs: int

    def fresh(self, a_run: float) -> int:
        """Return the largest number of fresh runs per side, if one run takes ``a_run`` seconds."""
        if self.n_runs is not None:
            return self.n_runs
        return int(np.clip(0.45 * self._runs(a_run), _FEWEST, _MOST))

    def pilot(self, a_run: float) -> int:
        """Return the largest number of pilot runs per side."""
        if self.n_runs is not None:
            return max(self.n_runs, _PILOT)
        return int(np.clip(0.35 * self._runs(a_run), _PILOT, _MOST))

    def trial(self, a_run: float, n_pairs: int) -> int:
        """Return the number of first runs per side for each pair."""
        if self.n_runs is not None:
            return int(np.clip(self.n_runs // 60, _TRIAL, 4 * _TRIAL))
        return int(np.clip(0.05 * self._runs(a_run) / n_pairs, _TRIAL, 4 * _TRIAL))

    def _runs(self, a_run: float) -> float:
        return self.seconds * self.n_jobs / a_run / 2


@dataclass(frozen=True)
class CountedAttack:
    """Counts of threshold tests in fresh runs.

    Attributes
    ----------
    pair : Pair
        The chosen neighbours.
    counts : tuple of Counts
        One for each test, all in the same fresh runs.
    n_pilot : int
        Number of earlier runs, over all neighbours.
    left_out : tuple of str
        Neighbours on which the release failed.
    """

    pair: NeighbourPair
    counts: tuple[Counts, ...]
    n_pilot: int
    left_out: tuple[str, ...]

    @classmethod
    def run(
        cls,
        release: Release,
        pairs: Iterable[NeighbourPair],
        curve: Curve,
        delta: float,
        alpha: float,
        effort: Effort,
        steps: Sequence[slice] = (),
    ) -> CountedAttack:
        """Choose neighbours and tests by pilot runs, then count the tests in fresh runs.

        ``steps`` are the positions of the numbers that each of several steps released. Choices, and
        the number of fresh runs, do not depend on the fresh runs. Raises ValueError if the release
        returns no numbers on any pair.
        """
        tried = [ReleaseRuns(release, pair, effort.n_jobs) for pair in pairs]
        works = [runs for runs in tried if all(side[0].size for side in runs.pilot_runs(1))]
        left_out = tuple(runs.pair.name for runs in tried if all(runs is not w for w in works))
        if not works:
            raise ValueError(
                "The release returned no numbers on any neighbours. Pass X and y on which it works."
            )
        # Timed after the first runs, which have one-time costs.
        started = time.perf_counter()
        for runs in works:
            runs.pilot_runs(2)
        a_run = max((time.perf_counter() - started) / (2 * len(works)), 1e-6)
        runs = _best_pair(works, effort.trial(a_run, len(works)))
        events, width, n = _choose_tests(runs, curve, delta, alpha, effort, a_run, steps)
        inside, outside = (runs_to_matrix(side, width) for side in runs.fresh(n))
        return cls(
            runs.pair,
            tuple(event.count(inside, outside) for event in events),
            sum(2 * both.n_made for both in tried),
            left_out,
        )


def _best_pair(works: list[ReleaseRuns], n: int) -> ReleaseRuns:
    """Return the neighbours that runs separate best, by successive halving.

    A pair that is separated beyond all noise is returned at once: none can be better.
    """
    while len(works) > 1:
        found = []
        for runs in works:
            found.append(_separation(runs.pilot_runs(n)))
            if found[-1] > _CERTAIN:
                return runs
        works = [works[i] for i in np.argsort(found)[::-1][: len(works) // 2]]
        n *= 2
    return works[0]


def _separation(both: Batch) -> float:
    width = max(len(run) for side in both for run in side)
    runs, others = (runs_to_matrix(side, width) for side in both)
    return separation(runs, others)


def _choose_tests(
    runs: ReleaseRuns, curve: Curve, delta: float, alpha: float, effort: Effort, a_run: float,
    steps: Sequence[slice],
) -> tuple[tuple[ThresholdTest, ...], int, int]:  # fmt: skip
    """Return the tests to count, how many numbers of a run they use, and the number of runs."""
    most, enough = effort.fresh(a_run), effort.pilot(a_run)
    n = min(_PILOT, enough)
    columns = [slice(step.start + N_COUNTS, step.stop + N_COUNTS) for step in steps]
    while True:
        both = runs.pilot_runs(n)
        width = max(len(run) for side in both for run in side)
        learn, check = ([runs_to_matrix(side[i::2], width) for side in both] for i in (0, 1))
        found = choose_thresholds(
            (learn[0], learn[1]), (check[0], check[1]), curve, delta, alpha, columns
        )
        if found.surprise < _PLAIN or n >= enough:
            break
        n = min(2 * n, enough)
    if found.surprise < _PLAIN:
        most = min(most, _MARGIN * n)
    return found.events, width, most
