"""Worst-case neighbouring data sets for empirical privacy tests, and runs of a release on them.

Jagielski et al. 2020 and Nasr et al. 2021 use such crafted records.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor

from ..._clones import seed_globally
from ...accounting import PrivacyGuarantee

Release = Callable[[Any], Any]
Batch = tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]  # one list per side
_TRIAL = 16  # first runs per side of each pair
_FEWEST = 64  # fresh runs per side
PILOT = 128  # runs per side from which tests are first chosen
_MAX_RUNS = 200_000
_COPIED = 64  # runs in which two copies of a release do not agree by chance

_N_DEFAULT = 24
_FAR = (2.0, 10.0, 1e3)  # distances of outliers from the middle of the bounds, in half-widths
_FAR_TARGET = 1e6
# _MANY records at the share _FAINT of the way from the middle to the extreme record push a linear
# model as far as a few extreme ones, and curve its loss less: one further record then moves the
# minimum nearly as far as any record can.
_MANY, _FAINT = 4_000, 0.0125


@dataclass(frozen=True)
class NeighbourPair:
    """Two neighbours: ``data`` with the record in question, ``other`` without it."""

    name: str
    data: Any
    other: Any


@dataclass(frozen=True)
class PublicRanges:
    """Public ranges and labels of the records, from the parameters of an estimator."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    targets: tuple[Any, ...]  # labels, as scalars or rows; the ends of a range; or none
    numbers: bool  # whether targets are a range, which a record may exceed

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: NDArray[Any] | None, y: NDArray[Any] | None
    ) -> PublicRanges:
        """Read the parameters; facts that they lack are taken from the records, if given."""
        # By the last part of their names; outer steps take precedence.
        by_depth = sorted(estimator.get_params().items(), key=lambda item: -item[0].count("__"))
        params = {name.split("__")[-1]: v for name, v in by_depth if v is not None}
        low, high = _bounds(params, X)
        if y is not None and y.ndim == 2:
            ones = np.ones(y.shape[1], y.dtype)
            return cls(low, high, (ones, 0 * ones), numbers=False)
        if is_regressor(estimator):
            given = params.get("target_bounds", params.get("bounds_y"))
            if given is None:
                given = (0.0, 1.0) if y is None else (y.min(), y.max())
            bottom, top = (float(np.ravel(end)[0]) for end in given)
            return cls(low, high, (top, bottom), numbers=True)
        if y is None and not is_classifier(estimator):
            return cls(low, high, (), numbers=False)
        classes = params.get("classes")
        if classes is None:
            classes = [0, 1] if y is None else np.unique(y)
        return cls(low, high, tuple(np.asarray(classes)), numbers=False)

    @property
    def middle(self) -> NDArray[np.float64]:
        """The middle of the ranges."""
        return (self.low + self.high) / 2

    @property
    def blank(self) -> NDArray[np.float64]:
        """The features nearest to zero within the ranges."""
        return np.clip(0.0 * self.middle, self.low, self.high)

    def holds(self, x: NDArray[np.float64], target: Any) -> bool:
        """Return whether a record is within the ranges."""
        inside = bool(((self.low <= x) & (x <= self.high)).all())
        return inside and not (
            self.numbers and not min(self.targets) <= target <= max(self.targets)
        )

    def other_target(self, target: Any) -> Any:
        """Return a target that differs from the given one as much as possible."""
        for option in self.targets:
            if not np.array_equal(option, target):
                return option
        return target


@dataclass(frozen=True)
class PublicFeatures:
    """Facts in which neighbours must agree: the claim calls them public, a fit reads them."""

    labels: bool = False  # the set of labels
    ranges: bool = False  # of features and targets

    @classmethod
    def from_guarantee(cls, guarantee: PrivacyGuarantee) -> PublicFeatures:
        """Read the assumptions about facts that a fit takes from the data."""
        taken = [text for text in guarantee.assumptions if "read off" in text or "reads" in text]
        return cls(
            labels=any("labels" in text or "classes" in text for text in taken),
            ranges=any("bounds" in text or "schema" in text for text in taken),
        )

    def show_facts(
        self, X: NDArray[np.float64], y: NDArray[Any] | None, public: PublicRanges
    ) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
        """Return the records with the first ones replaced, so that they show all public facts."""
        targets = public.targets if y is not None and (self.labels or public.numbers) else ()
        if not (self.labels or self.ranges):
            return X, y
        n = min(max(len(targets), 2 * self.ranges), len(X))
        X, y = X.copy(), None if y is None else y.copy()
        for row in range(n):
            ends = (public.low, public.high)
            X[row] = ends[row % 2] if self.ranges else public.middle
            if y is not None and targets:
                y[row] = targets[row % len(targets)]
        return X, y


_NOTHING = PublicFeatures()


def _bounds(
    params: dict[str, Any], X: NDArray[Any] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    given = params.get("bounds", params.get("bounds_X"))
    if given is not None:
        low, high = (np.ravel(np.asarray(end, dtype=float)) for end in given)
        size = max(low.size, high.size) if X is None else X.shape[1]
        return np.broadcast_to(low, size).copy(), np.broadcast_to(high, size).copy()
    if X is None:
        return -np.ones(1), np.ones(1)
    return np.nanmin(X, axis=0), np.nanmax(X, axis=0)


def default_records(public: PublicRanges) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
    """Return a small set of records within the public ranges."""
    random = np.random.default_rng(0)
    share = random.uniform(size=(_N_DEFAULT, len(public.low)))
    X = public.low + share * (public.high - public.low)
    if not public.targets:
        return X, None
    which = (share[:, 0] > 0.5).astype(int) % len(public.targets)
    return X, np.array([public.targets[i] for i in which])


def neighbours(
    relation: str, X: NDArray[np.float64], y: NDArray[Any] | None, public: PublicRanges, *,
    erased: bool, agreed: PublicFeatures = _NOTHING,
) -> Iterator[NeighbourPair]:  # fmt: skip
    """Yield pairs of data sets that differ by one step of ``relation``.

    The record in question replaces the last record of X, or is appended. With ``erased``, a record
    that is zeroed out leaves an empty place; otherwise a record of missing values replaces it.
    """
    if relation == "label":
        yield from _each_label(*agreed.show_facts(X, y, public), public)
    for of_record, x, target in _extreme_records(X, y, public):
        if agreed.ranges and not public.holds(x, target):
            continue
        for of_others, others, labels in _other_records(X, y, x, target, public, relation):
            name = f"{of_record} among {of_others}"
            others, labels = agreed.show_facts(others, labels, public)
            here = (np.vstack([others, x]), _behind(labels, target))
            if relation == "add_remove" or (relation == "zero_out" and erased):
                yield NeighbourPair(name, here, (others, labels))
                continue
            for as_what, there, label in _iter_replacements(relation, x, target, y, public):
                beside = (np.vstack([others, there]), _behind(labels, label))
                yield NeighbourPair(f"{name}{as_what}", here, beside)


def _iter_replacements(
    relation: str, x: NDArray[np.float64], target: Any, y: NDArray[Any] | None, public: PublicRanges
) -> Iterator[tuple[str, NDArray[np.float64], Any]]:
    """Yield records that replace a record: what they are, the features and a target."""
    if relation == "zero_out":
        yield "", np.full_like(x, np.nan), _null(y, public)
        return
    other, mirror = public.other_target(target), 2 * public.middle - x
    has_other = y is not None and not np.array_equal(other, target)
    has_mirror = not np.array_equal(mirror, x)
    if relation == "label":
        if has_other:
            yield "", x, other
        return
    # The gradient of a model without intercept is odd: in x and the target together it is even. Its
    # mirror image with another target changes nothing there, and each of them alone does.
    if has_other:
        yield " or with another target", x, other
    if has_mirror:
        yield " or its mirror image", mirror, target
    if has_other and has_mirror:
        yield " or its mirror image with another target", mirror, other
    if not np.array_equal(public.blank, x):
        yield " or a blank record", public.blank, _null(y, public)


def _each_label(
    X: NDArray[np.float64], y: NDArray[Any] | None, public: PublicRanges
) -> Iterator[NeighbourPair]:
    """Yield pairs that differ in one label, for each position, since one label may lack noise."""
    if y is None:
        return
    for i, own in enumerate(y):
        changed = y.copy()
        changed[i] = public.other_target(own)
        if not np.array_equal(changed, y):
            yield NeighbourPair(f"the label of record {i} of the data", (X, y), (X, changed))


def _behind(labels: NDArray[Any] | None, target: Any) -> NDArray[Any] | None:
    if labels is None:
        return None
    return np.concatenate([labels, np.asarray([target], dtype=labels.dtype)])


def _null(y: NDArray[Any] | None, public: PublicRanges) -> Any:
    """Return the target of a record that contributes nothing: the one that reveals least."""
    if y is None:
        return None
    if public.numbers:
        return sum(public.targets) / 2
    return 0 * y[0] if y.ndim == 2 else public.targets[0]


def _extreme_records(
    X: NDArray[np.float64], y: NDArray[Any] | None, public: PublicRanges
) -> Iterator[tuple[str, NDArray[np.float64], Any]]:
    """Yield extreme records: a name, the features and a target."""
    first, own = X[-1], None if y is None else y[-1]
    half = np.where(public.high > public.low, (public.high - public.low) / 2, 1.0)
    turns = np.where(np.arange(len(half)) % 2, -1.0, 1.0)
    if own is None:
        yield "a record of the data", first, own
    else:
        yield "a mislabelled record", first, public.other_target(own)
    ends = public.targets[:2] if public.targets else (None,)
    for target in ends:
        shown = "" if target is None else f" of target {np.asarray(target).tolist()!r}"
        yield f"the extreme record{shown}", public.high.copy(), target
    if len(half) > 1:
        yield "a corner of the bounds", public.middle + turns * half, ends[0]
    yield "the middle of the bounds", public.middle, ends[0]
    rare = public.targets[-1] if public.targets else None
    for times in _FAR:
        yield f"an outlier of {times:g} half-widths", public.middle + times * half, rare
    if public.numbers:
        yield "a target beyond its range", public.high.copy(), np.float64(_FAR_TARGET)
        yield "a target below its range", public.high.copy(), np.float64(-_FAR_TARGET)


def _other_records(
    X: NDArray[np.float64], y: NDArray[Any] | None, x: NDArray[np.float64], target: Any,
    public: PublicRanges, relation: str,
) -> Iterator[tuple[str, NDArray[np.float64], NDArray[Any] | None]]:  # fmt: skip
    """Yield the other records: the data, copies with another target, middle or blank records."""
    n = len(X) - (relation != "add_remove")
    yield "the data", X[:n], None if y is None else y[:n]
    if target is not None:
        other = np.asarray([public.other_target(target)], dtype=np.asarray(y).dtype)
        near = np.clip(x, public.low, public.high)
        yield "copies with another target", np.tile(near, (n, 1)), np.repeat(other, n, axis=0)
        if relation == "add_remove":  # a claim for another relation may fix the number of records
            faint = public.middle + _FAINT * (near - public.middle)
            opposed = np.repeat(other, _MANY, axis=0)
            yield "many faint copies with another target", np.tile(faint, (_MANY, 1)), opposed
    same = np.tile(public.middle, (n, 1))
    null = None if y is None else np.repeat(np.asarray([_null(y, public)], y.dtype), n, axis=0)
    if relation == "zero_out":
        yield "blank records", np.full_like(same, np.nan), null
        return
    yield "records in the middle", same, null
    if not np.array_equal(public.blank, public.middle):
        yield "blank records", np.tile(public.blank, (n, 1)), null


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
        """Return the first ``n`` pilot runs per side, including the runs of earlier calls."""
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


def copies_repeat(release: Release, data: Any, n_jobs: int) -> bool:
    """Return whether copies of a release in several processes draw the same noise."""
    turns = np.zeros(_COPIED, bool)
    first, second = Parallel(n_jobs=n_jobs)(
        delayed(_run_in_worker)(release, NeighbourPair("", data, data), turns, os.getpid())
        for _ in range(2)
    )
    drawn = {run.tobytes() for run in first}
    return len(drawn) > 1 and all(map(np.array_equal, first, second))


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
        return int(np.clip(0.45 * self._runs(a_run), _FEWEST, _MAX_RUNS))

    def pilot(self, a_run: float) -> int:
        """Return the largest number of pilot runs per side."""
        if self.n_runs is not None:
            return max(self.n_runs, PILOT)
        return int(np.clip(0.35 * self._runs(a_run), PILOT, _MAX_RUNS))

    def trial(self, a_run: float, n_pairs: int) -> int:
        """Return the number of first runs per side for each pair."""
        if self.n_runs is not None:
            return int(np.clip(0.4 * self.n_runs / n_pairs, _TRIAL, 4 * _TRIAL))
        return int(np.clip(0.05 * self._runs(a_run) / n_pairs, _TRIAL, 4 * _TRIAL))

    def _runs(self, a_run: float) -> float:
        return self.seconds * self.n_jobs / a_run / 2


def _batch(
    release: Release, pair: NeighbourPair, turns: NDArray[np.bool_]
) -> list[NDArray[np.float64]]:
    data = (pair.other, pair.data)
    return [np.asarray(release(data[inside]), dtype=float).ravel() for inside in turns.astype(int)]


def _run_in_worker(
    release: Release, pair: NeighbourPair, turns: NDArray[np.bool_], parent: int
) -> list[NDArray[np.float64]]:
    """Run a batch; reseed global generators, which a forked process shares with its parent."""
    with nullcontext() if os.getpid() == parent else seed_globally(secrets.randbelow(2**32)):
        return _batch(release, pair, turns)
