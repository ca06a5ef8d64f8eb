"""Privacy accountants: epsilon, delta and privacy curve of an event by RDP, PLD, zCDP and GDP.

:func:`epsilon_of` and :func:`delta_of` return the tightest proved bound.
:func:`compare_accountants` shows each accountant's bound beside naive and advanced composition.
Start reading at :func:`epsilon_of`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .._validation import cached_answer, not_negative
from ..exceptions import PrivacyWarning
from .event import (
    Event,
    NoLossDistributionError,
    Orders,
    allows_replacement,
    check_delta,
    check_event,
    check_known,
    check_relation,
    flatten,
)
from .events import (
    ApproxDPEvent,
    ComposedEvent,
    GaussianEvent,
    NonPrivateEvent,
    PoissonSampledEvent,
    RepeatedEvent,
)
from .events.composition import total_zcdp
from .pld.distribution import pld
from .renyi import DEFAULT_ORDERS, rdp
from .work_limit import check_work


@cached_answer(1024)
def epsilon_of(event: Event, delta: float, relation: str = "add_remove") -> float:
    """Return the smallest epsilon that can be proved for ``event`` at ``delta``.

    If every part has a privacy loss distribution, the bound comes from it, otherwise from Renyi
    accounting. If the distribution of some part is not tight, the smaller of both bounds counts.

    Parameters
    ----------
    event : Event
        The release.
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
    >>> from skprivacy.accounting import ApproxDPEvent, RepeatedEvent, epsilon_of
    >>> round(epsilon_of(RepeatedEvent(ApproxDPEvent(0.1), 4), 0.0), 6)
    0.4
    """
    check_event("event", event)
    check_delta(delta)
    check_relation(relation)
    check_work(event)
    check_known(event, relation)
    if _is_unprotected(event):
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
    """Return the smallest delta that can be proved for ``event`` at ``epsilon`` >= 0, in nats."""
    check_event("event", event)
    not_negative("epsilon", epsilon)
    check_relation(relation)
    check_work(event)
    check_known(event, relation)
    if _is_unprotected(event):
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
    if not math.isfinite(top):  # the guarantee fails more often: end where the rest of it ends
        top = epsilon_of(_split_off_failure(event)[0], least, relation)
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


def rdp_epsilon(event: Event, delta: float, relation: str = "add_remove") -> float:
    """Return the smallest epsilon that Renyi accounting proves; warn at the edge of the grid."""
    epsilon, edge = best_epsilon(event, delta, relation)
    if edge is not None:
        warnings.warn(
            f"The best Renyi order, {edge:g}, is at the edge of the grid: epsilon is valid but may "
            "be larger than necessary.",
            PrivacyWarning,
            stacklevel=2,
        )
    return epsilon


@lru_cache(maxsize=512)
def best_epsilon(event: Event, delta: float, relation: str) -> tuple[float, float | None]:
    """Return epsilon, and its order if that lies at the edge of the grid (else None)."""
    check_work(event)
    safe, failure = _split_off_failure(event)
    if delta <= failure:
        return math.inf, None
    # With probability 1 - failure the release costs as much as ``safe``, for the rest of delta.
    delta = (delta - failure) / (1 - failure)
    values = rdp(safe, DEFAULT_ORDERS, relation)
    epsilons = _convert_to_epsilons(values, DEFAULT_ORDERS, delta)
    best = int(epsilons.argmin())
    if not np.isfinite(epsilons[best]):
        return math.inf, None
    if best in (0, len(epsilons) - 1):
        sharp = epsilons[best] == 0 or values[best] == 0
        return float(epsilons[best]), None if sharp else float(DEFAULT_ORDERS[best])
    # Every order gives a valid bound: refine the grid around the best one.
    orders = np.linspace(DEFAULT_ORDERS[best - 1], DEFAULT_ORDERS[best + 1], 17)
    if DEFAULT_ORDERS[best] >= 64:  # integer orders have finite sums, which are faster
        orders = np.unique(orders.round())
    finer = _convert_to_epsilons(rdp(safe, orders, relation), orders, delta)
    return float(min(epsilons[best], finer.min())), None


def rdp_delta(event: Event, epsilon: float, relation: str = "add_remove") -> float:
    """Return the smallest delta that Renyi accounting proves at ``epsilon``."""
    return float(rdp_deltas(event, np.array([float(epsilon)]), relation)[0])


def rdp_deltas(event: Event, epsilons: Orders, relation: str = "add_remove") -> Orders:
    """Return the smallest delta that Renyi accounting proves at each epsilon."""
    check_work(event)
    safe, failure = _split_off_failure(event)
    values, a = rdp(safe, DEFAULT_ORDERS, relation), DEFAULT_ORDERS
    # Canonne, Kamath and Steinke 2020, Proposition 12, solved for delta
    logs = (a - 1) * (values - epsilons[:, None] + np.log1p(-1 / a)) - np.log(a)
    safely = np.exp(np.minimum(logs.min(axis=1), 0))
    deltas: Orders = np.minimum(failure + (1 - failure) * safely, 1.0)
    return deltas


def zcdp(event: Event, relation: str = "add_remove") -> float:
    """Return rho of zero-concentrated differential privacy (Bun and Steinke 2016)."""
    check_known(event, relation)
    return total_zcdp(event, relation)


def gdp_mu(event: Event) -> tuple[float, bool]:
    """Return mu of Gaussian differential privacy (GDP), and whether it is proved.

    Mu is exact for Gaussian noise and a bound for logistic noise. For Poisson-sampled Gaussian
    noise it is the central limit of many steps (Bu, Dong, Long and Su 2020). The limit may lie
    *below* the true value: it is an estimate, never a guarantee.
    """
    check_work(event)
    total, proved = 0.0, True
    for part, n in flatten(event).items():
        mu, known = part.gdp()
        if math.isinf(mu) and known:
            return math.inf, True
        # Dong, Roth and Su 2022, Corollary 3.3: the squares of the mus add up
        total, proved = total + n * mu**2, proved and known
    return math.sqrt(total), proved


def epsilon_by(accountant: str, event: Event, delta: float, relation: str = "add_remove") -> float:
    """Return the epsilon that one accountant proves; infinity if it has no bound."""
    check_work(event)
    if not flatten(event):
        return 0.0
    if _is_unprotected(event):
        return math.inf
    return float(ACCOUNTANTS[accountant](ComposedEvent((event,)), delta, relation))


def compare_accountants(
    event: Event, delta: float, relation: str = "add_remove"
) -> dict[str, dict[str, float | str]]:
    """Return the epsilon of an event by each accountant.

    Parameters
    ----------
    event : Event
        The release.
    delta : float
        In (0, 1).
    relation : {"add_remove", "label", "replace_one", "zero_out"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    dict
        For each of ``naive``, ``advanced``, ``zcdp``, ``gdp``, ``rdp`` and ``pld``, its ``epsilon``
        (infinity if it has no bound) and its ``kind``: ``proved``, or ``estimate`` for the central
        limit that Gaussian differential privacy uses under sampling.

    References
    ----------
    B. Jayaraman and D. Evans, "Evaluating differentially private machine learning in practice",
    USENIX Security 2019.

    Examples
    --------
    >>> from skprivacy.accounting import GaussianEvent, RepeatedEvent, compare_accountants
    >>> table = compare_accountants(RepeatedEvent(GaussianEvent(10.0), 20), 1e-6)
    >>> {name: round(row["epsilon"], 3) for name, row in table.items()}
    {'naive': 9.225, 'advanced': 13.661, 'zcdp': 2.451, 'gdp': 1.995, 'rdp': 2.142, 'pld': 1.995}
    """
    if check_delta(delta) == 0:
        raise ValueError(
            "delta=0 leaves nothing to compare: pure epsilons only add up. Pass a delta > 0."
        )
    check_relation(relation)
    check_event("event", event)
    check_known(event, relation)
    if event.data_dependent:
        raise ValueError(
            f"The cost of {event!r} was computed from private data. Compare the data-independent "
            "event instead."
        )
    table: dict[str, dict[str, float | str]] = {}
    for name in ACCOUNTANTS:
        estimate = name == "gdp" and not gdp_mu(event)[1]
        table[name] = {
            "epsilon": epsilon_by(name, event, delta, relation),
            "kind": "estimate" if estimate else "proved",
        }
    return table


def _is_unprotected(event: Event) -> bool:
    """Return True if some part of the event is released without protection."""
    return any(isinstance(part, NonPrivateEvent) for part in flatten(event))


def _convert_to_epsilons(values: Orders, orders: Orders, delta: float) -> Orders:
    # Canonne, Kamath and Steinke 2020, Proposition 12
    epsilon = values + np.log1p(-1 / orders) - (np.log(orders) + math.log(delta)) / (orders - 1)
    return np.where(np.isnan(epsilon), np.inf, np.maximum(epsilon, 0))


def _split_off_failure(event: Event) -> tuple[Event, float]:
    """Split off the probability that an (epsilon, delta) event reveals everything."""
    counts = flatten(event)
    log_safe = sum(
        n * math.log1p(-e.delta) for e, n in counts.items() if isinstance(e, ApproxDPEvent)
    )
    if log_safe == 0:
        return event, 0.0
    pure = [
        RepeatedEvent(ApproxDPEvent(e.epsilon) if isinstance(e, ApproxDPEvent) else e, n)
        for e, n in counts.items()
    ]
    return ComposedEvent(tuple(pure)), -math.expm1(log_safe)


def _naive_epsilon(event: Event, delta: float, relation: str) -> float:
    """Add up the epsilons, each at an equal share of delta: basic composition."""
    counts = flatten(event)
    steps = sum(counts.values())
    return math.fsum(n * _single_epsilon(e, delta / steps, relation) for e, n in counts.items())


def _advanced_epsilon(event: Event, delta: float, relation: str) -> float:
    """Apply advanced composition at half of delta; the steps share the other half equally."""
    counts = flatten(event)
    steps = sum(counts.values())
    each = [(n, _single_epsilon(e, delta / (2 * steps), relation)) for e, n in counts.items()]
    if not all(math.isfinite(e) for _, e in each):
        return math.inf
    # Kairouz, Oh and Viswanath 2015, composition of different epsilons: e (e^e - 1) / (e^e + 1)
    drift = math.fsum(n * e * math.tanh(e / 2) for n, e in each)
    return drift + math.sqrt(2 * math.log(2 / delta) * math.fsum(n * e**2 for n, e in each))


def _single_epsilon(event: Event, delta: float, relation: str) -> float:
    """Return the pure epsilon of one event, or its epsilon at ``delta`` if it is not pure."""
    try:
        return epsilon_of(event, 0.0, relation)
    except ValueError:
        return epsilon_of(event, delta, relation)


def _zcdp_epsilon(event: Event, delta: float, relation: str) -> float:
    rho = zcdp(event, relation)
    # Bun and Steinke 2016, Proposition 1.3
    return rho + 2 * math.sqrt(rho * math.log(1 / delta)) if math.isfinite(rho) else math.inf


def _gdp_epsilon(event: Event, delta: float, relation: str) -> float:
    if allows_replacement(relation) and any(
        isinstance(e, PoissonSampledEvent) for e in flatten(event)
    ):
        return math.inf  # the central limit is for added or removed records
    mu = gdp_mu(event)[0]
    # Dong, Roth and Su 2022: mu-GDP has the privacy curve of Gaussian noise 1 / mu
    return pld(GaussianEvent(1 / mu)).epsilon(delta) if math.isfinite(mu) else math.inf


def _pld_epsilon(event: Event, delta: float, relation: str) -> float:
    try:
        return pld(event, relation).epsilon(delta)
    except NoLossDistributionError:
        return math.inf


ACCOUNTANTS: dict[str, Callable[[Event, float, str], float]] = {
    "naive": _naive_epsilon,
    "advanced": _advanced_epsilon,
    "zcdp": _zcdp_epsilon,
    "gdp": _gdp_epsilon,
    "rdp": rdp_epsilon,
    "pld": _pld_epsilon,
}
