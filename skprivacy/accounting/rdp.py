"""Renyi differential privacy of events, and its tight conversion to (epsilon, delta)."""

from __future__ import annotations

import math
import warnings
from functools import lru_cache, singledispatch

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp

from ..exceptions import PrivacyWarning
from .events import (
    ApproxDP,
    Composed,
    Event,
    Gaussian,
    Laplace,
    Logistic,
    NonPrivate,
    PoissonSampled,
    Repeated,
    check_relation,
    flatten,
)

__all__ = ["DEFAULT_ORDERS", "rdp", "rdp_delta", "rdp_epsilon"]

Orders = NDArray[np.float64]

DEFAULT_ORDERS: Orders = np.concatenate(
    [
        [1.01, 1.02, 1.05],
        np.arange(11, 110) / 10,
        np.arange(11, 65),
        np.unique(np.geomspace(65, 16384, 48).round()),
    ]
).astype(float)

# Sums of logarithms lose up to 1e-10 relatively where q is tiny and the order near 1.
_ROUNDING = 1 + 1e-9


def rdp(event: Event, orders: ArrayLike, relation: str = "add_remove") -> Orders:
    """Return the Renyi divergence bound of an event at each order.

    Parameters
    ----------
    event : Event
    orders : array-like of float
        Orders above 1.
    relation : {"add_remove", "replace_one", "zero_out"}, default="add_remove"

    Returns
    -------
    ndarray of shape (n_orders,)
        In nats; infinity where no bound holds. A negative or undefined result of a formula also
        becomes infinity: it can only mean that the arithmetic failed.

    Raises
    ------
    TypeError
        If nothing is known about the event.

    References
    ----------
    Mironov, Talwar, Zhang (2019), "Renyi differential privacy of the sampled Gaussian mechanism",
    arXiv:1908.10530.

    Examples
    --------
    >>> from skprivacy.accounting import Gaussian, rdp
    >>> rdp(Gaussian(1.0), [2, 8])
    array([1., 4.])
    """
    check_relation(relation)
    orders = np.atleast_1d(np.asarray(orders, dtype=float))
    if orders.ndim != 1 or not (np.isfinite(orders) & (orders > 1)).all():
        raise ValueError(f"orders={orders!r} must be a list of finite numbers above 1.")
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        values = np.asarray(_rdp(event, orders, relation), dtype=float)
    return np.where(values >= 0, values, np.inf)


@singledispatch
def _rdp(event: Event, orders: Orders, relation: str) -> Orders:
    raise TypeError(f"No Renyi bound is known for {event!r}; it cannot be accounted for.")


@_rdp.register
def _(event: NonPrivate, orders, relation):
    return np.full(orders.shape, np.inf)


@_rdp.register
def _(event: Gaussian, orders, relation):
    return orders / (2 * event.noise_multiplier**2)


@_rdp.register
def _(event: Repeated, orders, relation):
    return event.count * rdp(event.event, orders, relation) if event.count else 0 * orders


@_rdp.register
def _(event: Composed, orders, relation):
    return sum(
        (rdp(Repeated(e, n), orders, relation) for e, n in flatten(event).items()), 0 * orders
    )


@_rdp.register
def _(event: ApproxDP, orders, relation):
    return pure_rdp(event.epsilon, orders) if event.delta == 0 else np.full(orders.shape, np.inf)


def pure_rdp(epsilon: float, orders: Orders) -> Orders:
    """Return the exact Renyi divergence of randomised response, the worst epsilon-DP mechanism."""
    log_p, log_q = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)
    terms = [orders * log_p + (1 - orders) * log_q, orders * log_q + (1 - orders) * log_p]
    return np.minimum(np.logaddexp(*terms) / (orders - 1), epsilon)


@_rdp.register
def _(event: Laplace, orders, relation):
    t = 1 / event.noise_multiplier
    a = orders
    up = np.log(a / (2 * a - 1)) + (a - 1) * t
    down = np.log((a - 1) / (2 * a - 1)) - a * t
    return np.maximum(np.logaddexp(up, down), 0) / (a - 1)


@_rdp.register
def _(event: Logistic, orders, relation):
    t = 1 / event.noise_multiplier
    if event.norm == 2:  # D_a(t) <= a t^2 / 6 in each coordinate, and the squares add up
        return orders * t**2 / 6
    return (_log_sinhc((2 * orders - 1) * t / 2) - _log_sinhc(t / 2)) / (orders - 1)


def _log_sinhc(y):
    """Return ln(sinh(y)/y) for y > 0."""
    y = np.asarray(y, dtype=float)
    small = y**2 / 6 - y**4 / 180
    return np.where(y < 1e-2, small, y + np.log1p(-np.exp(-2 * y)) - np.log(2 * y))


@_rdp.register
def _(event: PoissonSampled, orders, relation):
    if event.sampling_rate == 1 and relation != "replace_one":
        return rdp(event.event, orders, relation)
    return _sampled_rdp(event.event, event.sampling_rate, orders, relation)


@singledispatch
def _sampled_rdp(event: Event, q: float, orders: Orders, relation: str) -> Orders:
    raise TypeError(f"No Renyi bound is known for a Poisson sample of {event!r}.")


@_sampled_rdp.register
def _(event: Gaussian, q, orders, relation):
    z = event.noise_multiplier
    if q == 1:  # replace-one: a contribution may turn round, which is twice its norm
        return rdp(Gaussian(z / 2), orders, relation)
    # The sum is exact at integer orders; at the others, and for two mixtures, the quadrature is.
    values = [
        _binomial(int(a), q, z)
        if a == int(a) and relation != "replace_one"
        else _quadrature(a, q, z, relation)
        for a in orders
    ]
    return np.array(values) * _ROUNDING


@_sampled_rdp.register
def _(event: Logistic, q, orders, relation):
    """Bound by the Gaussian of the same zCDP, which is valid at integer orders only.

    The Renyi divergence never falls with the order, so a fractional order takes the next integer.
    """
    if relation == "replace_one":
        raise TypeError("Poisson-sampled logistic noise has no known replace-one bound.")
    z = math.sqrt(3) * event.noise_multiplier
    return np.array([_binomial(math.ceil(a), q, z) for a in orders]) * _ROUNDING


def _binomial(a: int, q: float, z: float) -> float:
    """Return the Renyi divergence of order ``a`` of (1-q) N(0, z^2) + q N(1, z^2) from N(0, z^2).

    The terms k = 0 and 1 of the moment sum to one with the "- 1" of each later term, so that what
    is left is positive and keeps its relative precision for the smallest rates.
    """
    k = np.arange(2, a + 1, dtype=float)
    choose = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)
    power = (k * k - k) / (2 * z * z)
    log_expm1 = power + np.log(-np.expm1(-power))
    if q == 1:
        return float(np.logaddexp(0, log_expm1[-1])) / (a - 1)
    terms = choose + (a - k) * math.log1p(-q) + k * math.log(q) + log_expm1
    return float(np.logaddexp(0, logsumexp(terms))) / (a - 1)


def _quadrature(a: float, q: float, z: float, relation: str) -> float:
    """Return the Renyi divergence at any real order by the trapezoidal rule.

    The integrand, E_Q[r^a - 1 - a (r - 1)] with r = P/Q, is positive. It is analytic in a strip of
    half-width pi z^2 around the real line and falls off like a normal density, so that the rule
    converges geometrically in 1/step.
    """
    step = min(z / 3, z * z / 2)
    reach = 12 * z
    # Where P/Q is large the integrand is about N(1)^a N(0)^(1-a), whose peak lies at a, and for two
    # mixtures with q near 1 it is about N(1)^a N(-1)^(1-a), whose peak lies at 2a - 1.
    peak = 2 * a - 1 if relation == "replace_one" else a
    x = np.arange(-1 - reach, peak + reach, step)
    up = np.logaddexp(np.log1p(-q), math.log(q) + (2 * x - 1) / (2 * z * z))
    u = q * np.expm1((2 * x - 1) / (2 * z * z))
    log_q = -(x**2) / (2 * z * z) - math.log(z * math.sqrt(2 * math.pi) / step)
    if relation == "replace_one":
        down = np.logaddexp(np.log1p(-q), math.log(q) - (2 * x + 1) / (2 * z * z))
        u = (u - q * np.expm1(-(2 * x + 1) / (2 * z * z))) * np.exp(-down)
        log_q += down
        up -= down
    return float(np.logaddexp(0, logsumexp(log_q + _log_excess(a, u, up)))) / (a - 1)


def _log_excess(a: float, u: NDArray, log_ratio: NDArray) -> NDArray:
    """Return ln((1 + u)^a - 1 - a u), where log_ratio = ln(1 + u)."""
    series = a * (a - 1) / 2 * u**2 * (1 + (a - 2) / 3 * u * (1 + (a - 3) / 4 * u))
    middle = np.maximum(np.expm1(a * log_ratio) - a * u, 0)
    fraction = -np.expm1(-a * log_ratio) - a * (
        np.exp((1 - a) * log_ratio) - np.exp(-a * log_ratio)
    )
    return np.where(
        log_ratio > 1,
        a * log_ratio + np.log(fraction),
        np.log(np.where(np.abs(a * u) < 1e-3, series, middle)),
    )


def _epsilons(values: Orders, orders: Orders, delta: float) -> Orders:
    epsilon = values + np.log1p(-1 / orders) - (np.log(orders) + math.log(delta)) / (orders - 1)
    return np.where(np.isnan(epsilon), np.inf, np.maximum(epsilon, 0))


def _without_failure(event: Event) -> tuple[Event, float]:
    """Split off the probability with which an (epsilon, delta) mechanism may reveal everything."""
    counts = flatten(event)
    log_safe = sum(n * math.log1p(-e.delta) for e, n in counts.items() if isinstance(e, ApproxDP))
    if log_safe == 0:
        return event, 0.0
    pure = [
        Repeated(ApproxDP(e.epsilon) if isinstance(e, ApproxDP) else e, n)
        for e, n in counts.items()
    ]
    return Composed(tuple(pure)), -math.expm1(log_safe)


@lru_cache(maxsize=512)
def rdp_epsilon(event: Event, delta: float, relation: str = "add_remove") -> float:
    """Return the smallest epsilon that Renyi accounting proves at ``delta``.

    Parameters
    ----------
    event : Event
    delta : float
        In (0, 1).
    relation : str, default="add_remove"

    Returns
    -------
    float
        Infinity where nothing is proved.

    Warns
    -----
    PrivacyWarning
        If the best order lies at the edge of the grid, so that a better bound may exist.

    References
    ----------
    Canonne, Kamath, Steinke (2020), "The discrete Gaussian for differential privacy", Prop. 12.

    Examples
    --------
    >>> from skprivacy.accounting import Gaussian, PoissonSampled, Repeated, rdp_epsilon
    >>> round(rdp_epsilon(Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000), 1e-5), 4)
    1.0354
    """
    epsilon, edge = best_epsilon(event, delta, relation)
    if edge is not None:
        warnings.warn(
            f"The best Renyi order, {edge:g}, is at the edge of the grid; epsilon is valid but may "
            "be larger than need be.",
            PrivacyWarning,
            stacklevel=2,
        )
    return epsilon


def best_epsilon(event: Event, delta: float, relation: str) -> tuple[float, float | None]:
    """Return epsilon, and the order that proves it if that is at the edge of the grid."""
    safe, failure = _without_failure(event)
    if delta <= failure:
        return math.inf, None
    delta = (delta - failure) / (1 - failure)
    values = rdp(safe, DEFAULT_ORDERS, relation)
    epsilons = _epsilons(values, DEFAULT_ORDERS, delta)
    best = int(epsilons.argmin())
    if not np.isfinite(epsilons[best]):
        return math.inf, None
    if best in (0, len(epsilons) - 1):
        sharp = epsilons[best] == 0 or values[best] == 0
        return float(epsilons[best]), None if sharp else float(DEFAULT_ORDERS[best])
    # Every order is a valid bound: look more closely around the best one.
    orders = np.linspace(DEFAULT_ORDERS[best - 1], DEFAULT_ORDERS[best + 1], 17)
    if DEFAULT_ORDERS[best] >= 64:
        orders = np.unique(orders.round())
    finer = _epsilons(rdp(safe, orders, relation), orders, delta)
    return float(min(epsilons[best], finer.min())), None


def rdp_delta(event: Event, epsilon: float, relation: str = "add_remove") -> float:
    """Return the smallest delta that Renyi accounting proves at ``epsilon``.

    Parameters
    ----------
    event : Event
        What was released.
    epsilon : float
        In nats, at least 0.
    relation : {"add_remove", "replace_one", "zero_out"}, default="add_remove"
        What neighbouring data sets are.

    Returns
    -------
    delta : float
        In [0, 1].
    """
    return float(rdp_deltas(event, np.array([epsilon]), relation)[0])


def rdp_deltas(event: Event, epsilons: Orders, relation: str = "add_remove") -> Orders:
    """Return the smallest delta that Renyi accounting proves at each epsilon."""
    safe, failure = _without_failure(event)
    values, a = rdp(safe, DEFAULT_ORDERS, relation), DEFAULT_ORDERS
    logs = (a - 1) * (values - epsilons[:, None] + np.log1p(-1 / a)) - np.log(a)
    return np.minimum(failure + (1 - failure) * np.exp(np.minimum(logs.min(axis=1), 0)), 1.0)
