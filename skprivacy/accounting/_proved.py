"""Proved epsilon, delta and privacy curve of an event, by the tightest accountant."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .._validation import not_negative
from ._checks import cached_answer, check_delta, check_relation
from ._event import Event, NoLossDistributionError, check_event, check_known, flatten
from ._work import check_work
from .events import NonPrivate
from .pld import pld
from .rdp import best_epsilon, rdp_delta, rdp_deltas, rdp_epsilon

__all__ = ["delta_of", "epsilon_of", "privacy_curve"]


@cached_answer(1024)
def epsilon_of(event: Event, delta: float, relation: str = "add_remove") -> float:
    """Return the smallest epsilon that can be proved for ``event`` at ``delta``.

    If every part has a privacy loss distribution, the bound comes from it, otherwise from Renyi
    accounting. If the distribution of some part is not tight, the smaller of both bounds counts.

    Parameters
    ----------
    event : Event
        What was released.
    delta : float
        In [0, 1); 0 asks for a pure guarantee.
    relation : {"add_remove", "label", "replace_one", "zero_out"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        In nats; infinity if nothing can be proved.

    Raises
    ------
    ValueError
        If ``delta`` is 0 and only Renyi accounting covers the event.

    Examples
    --------
    >>> from skprivacy.accounting import ApproxDP, Repeated, epsilon_of
    >>> round(epsilon_of(Repeated(ApproxDP(0.1), 4), 0.0), 6)
    0.4
    """
    check_event("event", event)
    check_delta(delta)
    check_relation(relation)
    check_work(event)
    check_known(event, relation)
    if any(isinstance(part, NonPrivate) for part in flatten(event)):
        return math.inf
    try:
        loss = pld(event, relation)
        epsilon = loss.epsilon(delta)
        if loss.loose and delta > 0:
            with suppress(TypeError):  # no Renyi bound is known
                epsilon = min(epsilon, best_epsilon(event, delta, relation)[0])
        return epsilon
    except NoLossDistributionError:
        if delta == 0:
            raise ValueError(
                "delta=0 has no finite epsilon for an event that only Renyi accounting covers. "
                "Pass a delta > 0."
            ) from None
        return rdp_epsilon(event, delta, relation)


@cached_answer(1024)
def delta_of(event: Event, epsilon: float, relation: str = "add_remove") -> float:
    """Return the smallest delta that can be proved for ``event`` at ``epsilon``.

    Parameters
    ----------
    event : Event
        What was released.
    epsilon : float
        In nats, at least 0.
    relation : {"add_remove", "label", "replace_one", "zero_out"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        In [0, 1].
    """
    check_event("event", event)
    not_negative("epsilon", epsilon)
    check_relation(relation)
    check_work(event)
    check_known(event, relation)
    if any(isinstance(part, NonPrivate) for part in flatten(event)):
        return 1.0
    try:
        loss = pld(event, relation)
        delta = loss.delta(epsilon)
        if loss.loose:
            with suppress(TypeError):
                delta = min(delta, rdp_delta(event, epsilon, relation))
        return delta
    except NoLossDistributionError:
        return rdp_delta(event, epsilon, relation)


@lru_cache(maxsize=64)
def privacy_curve(
    event: Event, relation: str, least: float = 1e-9
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return epsilons, and the delta proved at each, down to a delta of ``least``."""
    top = epsilon_of(event, least, relation)
    if not math.isfinite(top):
        top = 30.0
    epsilons = np.unique(
        np.r_[np.linspace(0, top, 400), np.geomspace(1e-3, 1, 100) * max(top, 1e-9)]
    )
    try:
        loss = pld(event, relation)
        deltas = loss.deltas(epsilons)
        if loss.loose:
            with suppress(TypeError):
                deltas = np.minimum(deltas, rdp_deltas(event, epsilons, relation))
    except NoLossDistributionError:
        deltas = rdp_deltas(event, epsilons, relation)
    return epsilons, deltas
