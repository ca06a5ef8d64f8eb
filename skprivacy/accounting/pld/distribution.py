"""Privacy loss distribution of an event: epsilon and delta from its dominating pairs."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from ..._validation import cached_answer, is_number, open_unit
from ..event import Event, check_known, check_relation, flatten
from ..work_limit import check_work
from .compose import ComposedLoss, compose
from .pairs import GaussianPair, Pair
from .saddle_point import Group, SaddlePoint, saddle_point

_RELATIVE_ACCURACY = 3e-4  # target relative accuracy, of epsilon or of delta


class PrivacyLossDistribution:
    """Privacy loss distribution: upper bounds on the privacy curve; returned by :func:`pld`."""

    def __init__(self, directions: tuple[list[Group], ...], loose: bool) -> None:
        self._directions = directions  # the losses to compose, for each order of the neighbours
        self.loose = loose  # whether the dominating pair of some part is known not to be tight

    @property
    def infinity(self) -> float:
        """Probability of an infinite loss, the larger of both directions."""
        return max(_infinite_probability(groups) for groups in self._directions)

    @property
    def max_loss(self) -> float:
        """Largest finite loss: pure epsilon, unless some loss is infinite."""
        return max(_largest_finite_loss(groups) for groups in self._directions)

    def single_pairs(self) -> tuple[Pair, Pair] | None:
        """Return the pair of each direction if there is a single loss."""
        if not all(_is_single_loss(groups) for groups in self._directions):
            return None
        remove, *add = (groups[0].pair for groups in self._directions)
        return remove, add[0] if add else remove

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon that the distribution proves at ``delta``."""
        if not (is_number(delta) and 0 <= delta < 1):
            raise ValueError(f"delta={delta!r} must be in [0, 1).")
        epsilon = 0.0
        for groups in self._directions:
            epsilon = _direction_epsilon(groups, delta, at_least=epsilon)
        return epsilon

    def estimate(self, delta: float) -> float:
        """Estimate epsilon by a saddle point, within a few per cent; not a bound."""
        open_unit("delta", delta)
        return max(
            _direction_epsilon(groups, delta)
            if not groups or _is_single_loss(groups) or _infinite_probability(groups) >= delta
            else saddle_point(groups, log_delta=math.log(delta)).epsilon
            for groups in self._directions
        )

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta that the distribution proves at ``epsilon``."""
        if not (is_number(epsilon) and epsilon >= 0):
            raise ValueError(f"epsilon={epsilon!r} must be >= 0.")
        return max(_direction_delta(groups, float(epsilon)) for groups in self._directions)

    def deltas(self, epsilons: ArrayLike) -> NDArray[np.float64]:
        """Return the smallest delta at each epsilon; close epsilons share a composition."""
        epsilons = np.asarray(epsilons, dtype=float)
        worse: NDArray[np.float64] = np.max(
            [_direction_deltas(groups, epsilons.ravel()) for groups in self._directions], axis=0
        )
        return worse.reshape(epsilons.shape)


def _infinite_probability(groups: list[Group]) -> float:
    """Return the probability that some loss is infinite."""
    if any(g.pair.infinity == 1 for g in groups):
        return 1.0
    return -math.expm1(sum(g.count * math.log1p(-g.pair.infinity) for g in groups))


def _largest_finite_loss(groups: list[Group]) -> float:
    """Return the largest finite loss."""
    return sum(g.count * g.pair.max_loss for g in groups)


def _single_loss_delta(pair: Pair, epsilon: float) -> float:
    """Return the exact delta of a single loss L, rounded up.

    It is P(L > epsilon) - e^epsilon Q(L > epsilon).

    A normal tail of mass m lies about sqrt(-2 ln m) deviations out. Rounding that distance by a
    part in 2**53 changes m by about -2 ln(m) parts in 2**53.
    """
    p, q = pair.masses(np.array([epsilon]))
    from_q = math.exp(epsilon) * float(q[1]) if q[1] > 0 else 0.0
    from_p = float(p[1])
    if math.isnan(from_p - from_q):
        return 1.0  # max(0, nan) would return 0
    slack = 4e-16 * sum(m * (4 + epsilon - math.log(m)) for m in (from_p, from_q) if m > 0)
    return min(1.0, max(0.0, from_p - from_q + slack) + pair.infinity)


def _is_single_loss(groups: list[Group]) -> bool:
    return len(groups) == 1 and groups[0].count == 1


def _direction_epsilon(groups: list[Group], delta: float, at_least: float = 0.0) -> float:
    """Return epsilon of one direction, or ``at_least`` if that is larger."""
    top = _largest_finite_loss(groups)
    infinite = _infinite_probability(groups)
    if not groups:
        return at_least
    if delta == 0 or delta <= infinite:
        if delta == 0 and infinite == 0 and math.isinf(top):
            raise ValueError(
                "delta=0 has no finite epsilon for an event whose privacy loss is unbounded. "
                "Pass a delta > 0."
            )
        return max(at_least, top) if delta == infinite else math.inf
    if top <= at_least:
        return at_least
    if _is_single_loss(groups):
        return max(at_least, min(top, _single_loss_epsilon(groups[0].pair, delta)))
    where, probe = _plan_composition(groups, delta=delta)
    # The probe is a rough upper bound, which often shows that the other direction is larger.
    if probe.epsilon(delta) <= at_least:
        return at_least
    # Near zero no relative accuracy is possible: use a hundredth of the curve's width.
    tolerance = _RELATIVE_ACCURACY * max(where.epsilon * where.slope, 0.01)
    composed = compose(groups, where, tolerance, lambda c: c.epsilon(delta) * where.slope, probe)
    return max(at_least, min(composed.epsilon(delta), top))


def _plan_composition(
    groups: list[Group], *, epsilon: float | None = None, delta: float | None = None
) -> tuple[SaddlePoint, ComposedLoss]:
    """Return a saddle point, inaccurate for few losses, and a composition that confirms it."""
    where = saddle_point(
        groups, epsilon=epsilon, log_delta=math.log(delta) if delta is not None else None
    )
    for _ in range(3):
        probe = compose(groups, where, 0.05)
        found = probe.epsilon(delta) if delta is not None else where.epsilon
        log_delta = where.log_delta if delta is not None else _log_delta(probe, where.epsilon)
        off = abs(found - where.epsilon) * where.slope + abs(log_delta - where.log_delta)
        if off < 1 or math.isinf(found):
            break
        where = saddle_point(groups, epsilon=found, log_delta=log_delta)
    return where, probe


def _log_delta(composed: ComposedLoss, epsilon: float) -> float:
    return math.log(max(composed.delta(epsilon), 1e-300))


def _single_loss_epsilon(pair: Pair, delta: float) -> float:
    if _single_loss_delta(pair, 0.0) <= delta:
        return 0.0
    high = 1.0
    while _single_loss_delta(pair, high) > delta:
        high *= 2
        if high > 1e6:
            return math.inf
    root = brentq(lambda e: _single_loss_delta(pair, e) - delta, 0.0, high, xtol=1e-12, rtol=1e-12)
    return float(root) * (1 + 1e-11) + 1e-12


def _direction_delta(groups: list[Group], epsilon: float) -> float:
    if not groups:
        return 0.0
    if _infinite_probability(groups) == 1:
        return 1.0
    if _is_single_loss(groups):
        return _single_loss_delta(groups[0].pair, epsilon)
    if epsilon >= _largest_finite_loss(groups):
        return _infinite_probability(groups)
    return _compose_near_epsilon(groups, epsilon, _RELATIVE_ACCURACY).delta(epsilon)


def _compose_near_epsilon(groups: list[Group], epsilon: float, tolerance: float) -> ComposedLoss:
    """Return the composition, tilted to be tight near ``epsilon``."""
    where, _ = _plan_composition(groups, epsilon=epsilon)
    for _ in range(4):
        composed = compose(groups, where, tolerance, lambda c: _log_delta(c, epsilon))
        found = _log_delta(composed, epsilon)
        # With a few rare losses, delta may be far below the planned delta. The truncated mass then
        # matters, so the composition is planned again.
        if found > where.log_delta - 2:
            break
        where = saddle_point(groups, epsilon=epsilon, log_delta=found)
    return composed


def _direction_deltas(groups: list[Group], epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    if not groups or _is_single_loss(groups) or _infinite_probability(groups) == 1:
        return np.array([_direction_delta(groups, float(e)) for e in epsilons])
    top = _largest_finite_loss(groups)
    best = np.where(epsilons < top, 1.0, _infinite_probability(groups))
    below = epsilons[epsilons < top]
    if not below.size:
        return best
    # Each composition bounds the whole curve from above, and is tight near its anchor.
    anchors = np.unique(np.quantile(below, np.linspace(0, 1, min(8, len(below)))))
    for i, anchor in enumerate(anchors):
        composed = _compose_near_epsilon(groups, float(anchor), 1e-2)
        low, high = anchors[max(i - 1, 0)], anchors[min(i + 1, len(anchors) - 1)]
        near = np.flatnonzero((low <= epsilons) & (epsilons <= high))
        best[near] = np.minimum(best[near], [composed.delta(float(e)) for e in epsilons[near]])
    return best


def _group_pairs(counts: Counter[Pair]) -> list[Group]:
    """Group the pairs; all unsampled Gaussians compose to one (Dong et al. 2022, Corollary 3.3)."""
    precision = sum(n / p.z**2 for p, n in counts.items() if isinstance(p, GaussianPair))
    groups = [Group(p, n) for p, n in counts.items() if not isinstance(p, GaussianPair)]
    if precision:
        groups.append(Group(GaussianPair(1 / math.sqrt(precision)), 1))
    return groups


@cached_answer(256)
def pld(event: Event, relation: str = "add_remove") -> PrivacyLossDistribution:
    """Return the privacy loss distribution of an event, composed in both directions.

    Under Poisson sampling ``zero_out`` has the same pairs as ``add_remove``: a record's
    contribution is present or absent.
    """
    check_relation(relation)
    check_work(event)
    check_known(event, relation)
    counts: tuple[Counter[Pair], Counter[Pair]] = (Counter(), Counter())
    # Zhu, Dong and Wang 2022, Theorem 10: products of dominating pairs dominate the composition
    for part, times in flatten(event).items():
        for counter, pair in zip(counts, part.dominating_pairs(relation), strict=True):
            counter[pair] += times
    loose = any(pair.loose for pair in counts[0])
    remove, add = (_group_pairs(counter) for counter in counts)
    return PrivacyLossDistribution((remove,) if remove == add else (remove, add), loose)
