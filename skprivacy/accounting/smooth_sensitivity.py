"""Local and smooth sensitivity of data-dependent costs (Papernot et al. 2018, appendix B).

The data-dependent cost of votes is computed from private data. Before it is published, noise must
hide the effect of one record: here of one teacher, who has one vote in every query.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validation import positive
from .event import Event, LocalBound, flatten
from .renyi import rdp
from .work_limit import check_work

__all__ = ["Smoothed", "local_sensitivity", "smoothed_cost"]


class Smoothed(NamedTuple):
    """A data-dependent Renyi cost and its smooth sensitivity. **Both are private.**

    Parameters
    ----------
    cost : float
        The Renyi cost, in nats.
    sensitivity : float
        Its smooth sensitivity, in the same unit.
    """

    cost: float
    sensitivity: float


def smoothed_cost(event: Event, order: float, smoothness: float) -> Smoothed:
    """Return the data-dependent Renyi cost of votes and its smooth sensitivity.

    Parameters
    ----------
    event : Event
        Any composition of votes, their threshold tests and data-independent events.
    order : float
        The Renyi order, above 1, chosen without looking at the votes.
    smoothness : float
        Above 0. A smaller smoothness means a larger sensitivity and a cheaper release.

    Returns
    -------
    Smoothed
        ``cost`` is :func:`rdp` at the order, or slightly more. ``sensitivity`` is the maximum over
        distances d of e^(-smoothness d) times the local sensitivity at d. Neither may be published
        directly; :func:`skprivacy.ensemble.sanitized_cost` publishes the cost.

    Raises
    ------
    TypeError
        If the cost of some part depends on the data and has no known smooth sensitivity.

    Examples
    --------
    >>> from skprivacy.accounting import GNMaxEvent, RepeatedEvent, smoothed_cost
    >>> votes = RepeatedEvent(GNMaxEvent(40.0, votes=(220, 20, 10)), 100)
    >>> cost, sensitivity = smoothed_cost(votes, order=10.0, smoothness=0.04)
    >>> round(cost, 4), round(sensitivity, 4)
    (0.0136, 0.008)
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
    weighted = np.exp(-smoothness * distances) * _sum_sensitivities(moving, distances)
    return Smoothed(cost, float(weighted.max()))


def local_sensitivity(event: Event, order: float, distances: ArrayLike = 0) -> NDArray[np.float64]:
    """Return the local sensitivity of the data-dependent cost at each distance.

    Parameters
    ----------
    event : Event
        See :func:`smoothed_cost`.
    order : float
        The Renyi order.
    distances : array-like of int, default=0
        Number of records in which a data set may already differ from the current one.

    Returns
    -------
    ndarray of the shape of ``distances``
        Upper bounds, private like the votes.

    Notes
    -----
    With x = Phi^-1(q / (m - 1)) for m classes, one vote moves x by at most sqrt(2)/sigma. The cost
    increases with q up to some q0, where ln q0 <= -(order/sigma)^2. Above q0 the data-independent
    cost applies, which is constant. Let q1 be the value from which one vote leads to q0. Papernot
    et al. assume that the change of the cost by one vote grows with q up to q1. Then the change is
    largest between q1 and q0. This is their condition C5. Their C6 is about a vote in the other
    direction, and is equivalent. The conditions are checked at several thousand points. If one
    fails, as for large orders and little noise, the result is the largest change over all q, for
    any votes and distance.

    References
    ----------
    N. Papernot et al., "Scalable private learning with PATE", ICLR 2018, appendix B.
    K. Nissim, S. Raskhodnikova and A. Smith, "Smooth sensitivity and sampling in private data
    analysis", STOC 2007.
    """
    order, distance = check_order(order), _to_array(distances)
    if distance.dtype.kind not in "iu" or (distance < 0).any():
        raise ValueError(f"distances={distances!r} must be integers >= 0.")
    check_work(event)
    bounds = [(n, part.local_bound(order)) for part, n in flatten(event).items()]
    return _sum_sensitivities([(n, bound) for n, bound in bounds if bound], distance)


def _to_array(distances: Any) -> NDArray[Any]:
    try:
        return np.asarray(distances)
    except ValueError:  # rows of different lengths
        return np.asarray(None)


def _sum_sensitivities(
    bounds: list[tuple[int, LocalBound]], distance: NDArray[np.int64]
) -> NDArray[np.float64]:
    return sum((n * bound.sensitivity(distance) for n, bound in bounds), np.zeros(distance.shape))


def check_order(order: float) -> float:
    positive("order", order)
    if order <= 1:
        raise ValueError(f"order={order!r} must be a finite number > 1.")
    return float(order)
