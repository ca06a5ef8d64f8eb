"""Renyi divergence of events (Mironov 2017): orders, and formulas that several events share.

Also the divergence of two discrete distributions (van Erven and Harremoes 2014). Start reading at
:func:`rdp`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp

from .event import Event, Orders, allows_replacement, check_known
from .work_limit import check_work

DEFAULT_ORDERS: Orders = np.concatenate(
    [
        [1.01, 1.02, 1.05],
        np.arange(11, 110) / 10,
        np.arange(11, 65),
        np.unique(np.geomspace(65, 16384, 48).round()),
    ]
).astype(float)
# Sums of logarithms lose up to 1e-10 relatively where q is tiny and the order near 1.
ROUNDING = 1 + 1e-9
_MAX_NODES = 1_000_000  # of a quadrature


def rdp(event: Event, orders: ArrayLike, relation: str = "add_remove") -> Orders:
    """Return the Renyi divergence bound of an event at each order (Mironov 2017), or infinity."""
    check_work(event)
    check_known(event, relation)
    orders = np.asarray(orders, dtype=float)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        values = np.asarray(event.renyi(orders, relation), dtype=float)
    # a negative or undefined result can only mean that the arithmetic failed
    return np.where(values >= 0, values, np.inf)


def pure_rdp(epsilon: float, orders: Orders) -> Orders:
    """Return the exact Renyi divergence of randomised response, the worst epsilon-DP mechanism."""
    # Mironov 2017, randomised response; the worst of all by Kairouz, Oh and Viswanath 2015
    log_p, log_q = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)
    terms = [orders * log_p + (1 - orders) * log_q, orders * log_q + (1 - orders) * log_p]
    divergence: Orders = np.minimum(np.logaddexp(*terms) / (orders - 1), epsilon)
    return divergence


def sampled_gaussian_rdp(noise: float, rate: float, orders: Orders, relation: str) -> Orders:
    """Return the exact Renyi divergence of a Poisson-sampled Gaussian, rounded up."""
    # Mironov, Talwar and Zhang 2019: a finite sum at integer orders; else, or replaced, quadrature
    values = [
        binomial_rdp(int(a), rate, noise)
        if a == int(a) and not allows_replacement(relation)
        else _quadrature(a, rate, noise, relation)
        for a in orders
    ]
    return np.array(values) * ROUNDING


def binomial_rdp(a: int, q: float, z: float) -> float:
    """Return the Renyi divergence of order ``a`` of (1-q) N(0, z^2) + q N(1, z^2) from N(0, z^2).

    The moment is sum_k C(a, k) (1-q)^(a-k) q^k e^((k^2 - k) / (2 z^2)). The terms k = 0 and 1 and
    the "- 1" of each later term's expm1 sum to one. So the remainder is positive and keeps its
    relative precision for the smallest rates.
    """
    k = np.arange(2, a + 1, dtype=float)
    choose = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)
    power = (k * k - k) / (2 * z * z)
    log_expm1 = power + np.log(-np.expm1(-power))
    if q == 1:
        return float(np.logaddexp(0, log_expm1[-1])) / (a - 1)
    terms = choose + (a - k) * math.log1p(-q) + k * math.log(q) + log_expm1
    return float(np.logaddexp(0, logsumexp(terms))) / (a - 1)


def mixed_gaussian_rdp(
    noise: float,
    weights: tuple[float, ...],
    up: tuple[float, ...],
    down: tuple[float, ...],
    orders: Orders,
) -> Orders:
    """Return the Renyi divergence of sum_j w_j N(a_j, z^2) from sum_j w_j N(b_j, z^2), or above."""
    step, reach = min(noise / 3, noise**2 / 2), 12 * noise
    widest = max(up) - min(down)
    c, logs = np.array([up, down]), np.log(weights)

    def divergence_at(a: float) -> float:
        low, high = min(down) - reach, a * max(up) - (a - 1) * min(down) + reach
        if (high - low) / step > _MAX_NODES // len(weights):
            return a * widest**2 / (2 * noise**2)  # joint convexity: the bound without sampling
        x = np.arange(low, high, step)
        exponents = (c[:, :, None] * x - c[:, :, None] ** 2 / 2) / noise**2
        log_p, log_q = logsumexp(exponents + logs[:, None], axis=1)
        with np.errstate(over="ignore"):
            excess = np.exp(logs) @ (np.expm1(exponents[0]) - np.expm1(exponents[1]))
            u = np.where(log_p - log_q < 1, excess * np.exp(-log_q), 1.0)
        base = -(x**2) / (2 * noise**2) - math.log(noise * math.sqrt(2 * math.pi) / step)
        terms = base + log_q + _log_excess(a, u, log_p - log_q)
        return float(np.logaddexp(0, logsumexp(terms))) / (a - 1)

    return np.array([divergence_at(float(a)) for a in orders]) * ROUNDING


def _quadrature(a: float, q: float, z: float, relation: str) -> float:
    """Return the Renyi divergence at any real order by the trapezoidal rule.

    The integrand of E_Q[r^a - 1 - a (r - 1)], with r = P/Q, is positive. It is analytic in a strip
    of half-width pi z^2 around the real line and decays like a normal density, so the rule
    converges geometrically in 1/step.
    """
    step = min(z / 3, z * z / 2)
    reach = 12 * z
    # Where P/Q is large, the integrand is about N(1)^a N(0)^(1-a), with its peak at a. For two
    # mixtures with q near 1 it is about N(1)^a N(-1)^(1-a), with its peak at 2a - 1.
    peak = 2 * a - 1 if allows_replacement(relation) else a
    if (peak + 1 + 2 * reach) / step > _MAX_NODES:
        return _bound_small_noise(a, q, z, relation)
    x = np.arange(-1 - reach, peak + reach, step)
    up = np.logaddexp(np.log1p(-q), math.log(q) + (2 * x - 1) / (2 * z * z))
    u = q * np.expm1((2 * x - 1) / (2 * z * z))
    log_q = -(x**2) / (2 * z * z) - math.log(z * math.sqrt(2 * math.pi) / step)
    if allows_replacement(relation):
        down = np.logaddexp(np.log1p(-q), math.log(q) - (2 * x + 1) / (2 * z * z))
        u = (u - q * np.expm1(-(2 * x + 1) / (2 * z * z))) * np.exp(-down)
        log_q += down
        up -= down
    return float(np.logaddexp(0, logsumexp(log_q + _log_excess(a, u, up)))) / (a - 1)


def _bound_small_noise(a: float, q: float, z: float, relation: str) -> float:
    """Return a bound for noise so small that the integrand is too narrow for a grid.

    The divergence grows with the order, so fractional orders are rounded up. By joint convexity the
    divergence without sampling is a bound for two mixtures.
    """
    return 2 * a / z**2 if allows_replacement(relation) else binomial_rdp(math.ceil(a), q, z)


def _log_excess(a: float, u: Orders, log_ratio: Orders) -> Orders:
    """Return ln((1 + u)^a - 1 - a u), where log_ratio = ln(1 + u)."""
    # Three forms, each where it loses no digits: a series, expm1, and (1 + u)^a taken out.
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
