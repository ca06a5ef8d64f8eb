"""What two samples of scores show of the trade-off between true and false positive rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._validation import generator
from ._area import auc
from ._mean import mean_lower_bound
from ._rates import high_rates, low_rates
from ._samples import Float64Array

__all__ = ["Evidence", "Rates", "area_bound", "epsilon_of_rates", "gather", "split_points"]

Curve = Callable[[Float64Array], Float64Array]

# Share of the area's error probability for members that score LOW. Exchanged groups are a mistake
# and a gross one; a small share costs the usual direction little.
REVERSED = 0.1
# Error probability at which a threshold looks promising enough to be tested against the claim.
HOPEFUL = 0.5


class Rates(NamedTuple):
    """Bounds on the rates of one test: a true positive rate and a false positive one.

    **Edge cases.** Of a reversed test, which calls low scores members, they are the rates at which
    non-members and members score high.
    """

    tpr: float
    fpr: float
    reverse: bool = False

    def epsilon(self, delta: float) -> float:
        """Return the epsilon that a test with these rates needs, at least 0."""
        return float(epsilon_of_rates(self.tpr, self.fpr, delta))


@dataclass(frozen=True)
class Evidence:
    """Tests of membership whose rates are bounded, and an area that is.

    Attributes
    ----------
    points : tuple of Rates
        For each test, a lower bound on its true positive rate and an upper one on its false
        positive rate. Members and non-members are exchanged if the former score lower.
    area : float
        Lower bound on the area under the ROC curve; of the mirrored one if members score lower.
    mirrored : bool
        Whether it is of the mirrored curve.

    Notes
    -----
    **Guarantees.** All bounds hold at once with the probability that they were gathered for, so
    whatever follows from them, at any delta and for any curve, holds at once too.
    """

    points: tuple[Rates, ...]
    area: float
    mirrored: bool = False

    def strongest(self, delta: float) -> Rates | None:
        """Return the test that refutes the largest epsilon; None if only the area goes as far."""
        best = max(self.points, key=lambda rates: rates.epsilon(delta), default=None)
        return best if best and 0 < best.epsilon(delta) == self.epsilon(delta) else None

    def epsilon(self, delta: float) -> float:
        """Return the largest epsilon that is refuted at this delta, at least 0."""
        odds = (1 - delta) ** 2 / (1 - self.area) - 1
        of_area = float(np.log(odds)) if odds > 1 else 0.0
        return max([of_area, *(rates.epsilon(delta) for rates in self.points)])


class _Test(NamedTuple):
    """A record is called a member if its score reaches ``cut``; a non-member if reversed."""

    cut: float
    reverse: bool


def epsilon_of_rates(tpr: Any, fpr: Any, delta: float) -> Any:
    """Return the epsilon that a test with these rates needs, at least 0."""
    tiny = np.finfo(float).tiny
    hit = np.log(np.maximum(tpr - delta, tiny)) - np.log(fpr)
    reject = np.log(np.maximum(1 - np.asarray(fpr) - delta, tiny)) - np.log(1 - np.asarray(tpr))
    return np.maximum(np.maximum(hit, reject), 0.0)


def gather(
    members: Float64Array,
    others: Float64Array,
    *,
    delta: float,
    alpha: float,
    curve: Curve | None = None,
    random_state: int = 0,
) -> Evidence:
    """Return what the scores show, with error probability ``alpha``: one half for each kind.

    The thresholds and their direction are chosen on one half of the records and tested on the
    other: the one with the largest epsilon at ``delta``, and the one that goes furthest beyond
    ``curve`` if it promises to refute what the first does not. They share the error probability.

    Ties need no coin: records with equal scores pass a threshold together, and count one half in
    the area.

    **Edge cases.** Without two records of each kind there is no evidence: an area of 0.
    """
    if min(len(members), len(others)) < 2:
        return Evidence((), 0.0)
    rng = generator("random_state", random_state)
    points = split_points(members, others, delta=delta, alpha=alpha / 2, curve=curve, rng=rng)
    return Evidence(points, area_bound(members, others, alpha / 2), auc(members, others) < 0.5)


def split_points(
    members: Float64Array,
    others: Float64Array,
    *,
    delta: float,
    alpha: float,
    rng: np.random.Generator,
    curve: Curve | None = None,
) -> tuple[Rates, ...]:
    """Return bounds on the rates of thresholds that are chosen on one random half of the records.

    **Guarantees.** All of them hold at once with probability ``1 - alpha``.
    """
    choose_in, test_in = np.array_split(rng.permutation(members), 2)
    choose_out, test_out = np.array_split(rng.permutation(others), 2)
    tests = _choose(choose_in, choose_out, delta, alpha, curve)
    return tuple(_rates(test_in, test_out, test, alpha / len(tests)) for test in tests)


def area_bound(members: Float64Array, others: Float64Array, alpha: float) -> float:
    """Return a lower bound on the area under the ROC curve, or on that of the mirrored one."""
    area, n = auc(members, others), min(len(members), len(others))
    if area >= 0.5:
        return mean_lower_bound(area, n, (1 - REVERSED) * alpha)
    return mean_lower_bound(1 - area, n, REVERSED * alpha)


def _choose(
    members: Float64Array, others: Float64Array, delta: float, alpha: float, curve: Curve | None
) -> list[_Test]:
    cuts = np.unique(np.concatenate([members, others]))
    chosen = [int(np.argmax(epsilon_of_rates(*_all_rates(members, others, cuts, alpha), delta)))]
    if curve is not None:
        tpr, fpr = _all_rates(members, others, cuts, HOPEFUL)
        beyond = tpr - curve(fpr)
        if beyond.max() > 0 >= beyond[chosen[0]]:
            chosen.append(int(np.argmax(beyond)))
    # both rates of every cut come once in each direction
    return [_Test(float(cuts[i % len(cuts)]), i >= len(cuts)) for i in chosen]


def _all_rates(
    members: Float64Array, others: Float64Array, cuts: Float64Array, alpha: float
) -> tuple[Float64Array, Float64Array]:
    """Return the bounds on both rates of every threshold, in one direction and in the other."""
    forward = _bounds(members, others, cuts, alpha)
    backward = _bounds(others, members, cuts, alpha)
    return np.r_[forward[0], backward[0]], np.r_[forward[1], backward[1]]


def _rates(members: Float64Array, others: Float64Array, test: _Test, alpha: float) -> Rates:
    sides = (others, members) if test.reverse else (members, others)
    tpr, fpr = _bounds(*sides, np.array([test.cut]), alpha)
    return Rates(float(tpr[0]), float(fpr[0]), test.reverse)


def _bounds(
    hit: Float64Array, missed: Float64Array, cuts: Float64Array, alpha: float
) -> tuple[Float64Array, Float64Array]:
    """Return the low ends of one sample's rates above ``cuts`` and the high ends of the other's."""
    of_hit, of_missed = (len(s) - np.searchsorted(np.sort(s), cuts) for s in (hit, missed))
    return low_rates(of_hit, len(hit), alpha), high_rates(of_missed, len(missed), alpha)
