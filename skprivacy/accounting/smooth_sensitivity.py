"""Local and smooth sensitivity of data-dependent costs (Papernot et al. 2018, appendix B).

The data-dependent cost of votes is computed from private data. Before it is published, noise must
hide the effect of one record: here of one teacher, who has one vote in every query.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._validation import positive
from .event import Event, LocalBound, flatten
from .renyi import rdp
from .work_limit import check_work


class Smoothed(NamedTuple):
    """A data-dependent Renyi cost in nats and its smooth sensitivity. **Both are private.**"""

    cost: float
    sensitivity: float


def smoothed_cost(event: Event, order: float, smoothness: float) -> Smoothed:
    """Return the data-dependent Renyi cost of votes and its smooth sensitivity.

    The sensitivity is the maximum over distances d of e^(-smoothness d) times the local sensitivity
    at d. Neither number may be published; :func:`skprivacy.ensemble.sanitized_cost` publishes the
    cost. ``order`` is chosen without looking at the votes.
    """
    order = check_order(order)
    positive("smoothness", smoothness)
    check_work(event)
    parts = [(e, n, e.local_bound(order)) for e, n in flatten(event).items()]
    cost = math.fsum(n * (b.cost if b else float(rdp(e, [order])[0])) for e, n, b in parts)
    moving = [(n, b) for _, n, b in parts if b]
    # Nissim, Raskhodnikova and Smith 2007: maximum over distances d of e^(-smoothness d) LS(d).
    # From the largest reach on LS does not grow, so larger distances cannot attain it.
    distances = np.arange(max((b.reach for _, b in moving), default=0) + 2)
    weighted = np.exp(-smoothness * distances) * sum_sensitivities(moving, distances)
    return Smoothed(cost, float(weighted.max()))


def sum_sensitivities(
    bounds: list[tuple[int, LocalBound]], distance: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the local sensitivity of the cost of all votes at each distance.

    With x = Phi^-1(q / (m - 1)) for m classes, one vote moves x by at most sqrt(2)/sigma. The cost
    increases with q up to q0, at the latest at ln q = -(order/sigma)^2. From q0 on the
    data-independent cost applies, which is constant. Papernot et al. (2018, appendix B) assume that
    the change by one vote grows with q up to q1, one vote below q0. These are their conditions C5
    and C6, which are equivalent because a step down from q is a step up from one vote below. Then
    the change is largest between q1 and q0. The conditions are checked at several thousand points.
    If one fails, as for large orders and little noise, the result is the largest change over all q,
    for any votes and distance.
    """
    return sum((n * bound.sensitivity(distance) for n, bound in bounds), np.zeros(distance.shape))


def check_order(order: float) -> float:
    positive("order", order)
    if order <= 1:
        raise ValueError(f"order={order!r} must be a finite number > 1.")
    return float(order)
