"""The best of a random number of private trials."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._pairs import AtomPair
from .events import Event, _check_event
from .pld import NoLossDistributionError, pairs, pld
from .rdp import DEFAULT_ORDERS, _rdp, rdp

__all__ = ["PrivateSelection"]

_LEAST = 1e-15  # the privacy curve is followed down to here
_MOST = 350.0  # twice as much is all that an exponential holds
_POINTS = 250


@dataclass(frozen=True)
class PrivateSelection(Event, tag="PrivateSelection", stored=("event", "eta", "gamma")):
    """The best of K runs, K drawn from a truncated negative binomial distribution.

    Parameters
    ----------
    event : Event
        One run, with the score by which it is judged. All runs must have the same event.
    eta : float, default=1.0
        Shape, above -1: 1 is geometric, 0 logarithmic.
    gamma : float
        Rate, in (0, 1): a smaller one means more runs.

    Notes
    -----
    Only a *random* number of trials earns this bound. A fixed grid composes.

    References
    ----------
    Papernot, Steinke (2022), "Hyperparameter tuning with Renyi differential privacy",
    arXiv:2110.03620, Theorem 2.
    Koskela, Redberg, Wang (2024), "Privacy profiles for private selection", arXiv:2402.06701.
    """

    event: Event
    eta: float = 1.0
    gamma: float = 0.1

    def __post_init__(self) -> None:
        _check_event("event", self.event)
        if not (math.isfinite(self.eta) and self.eta > -1):
            raise ValueError(f"eta={self.eta!r} must be a finite number > -1.")
        if not 0 < self.gamma < 1:
            raise ValueError(f"gamma={self.gamma!r} must be in (0, 1).")

    @property
    def expected_trials(self) -> float:
        """The mean number of runs."""
        if self.eta == 0:
            return (1 / self.gamma - 1) / -math.log(self.gamma)
        fall = -math.expm1(self.eta * math.log(self.gamma))
        return self.eta * (1 - self.gamma) / (self.gamma * fall)


@_rdp.register
def _(event: PrivateSelection, orders, relation):
    own, every = DEFAULT_ORDERS, rdp(event.event, DEFAULT_ORDERS, relation)
    choice = ((1 - 1 / own) * every - math.log(event.gamma) / own).min()
    return (
        rdp(event.event, orders, relation)
        + (1 + event.eta) * choice
        + np.log(event.expected_trials) / (orders - 1)
    )


@pairs.register
def _(event: PrivateSelection, relation):
    """Bound the privacy curve of the best run by that of one run.

    Let u(y) be the probability that one run is no better than y, and f the generating function of
    K. The best run has the density f'(u(y)) times that of one run, f' rises up to f'(1) = E K, and
    f'(u) is proportional to (gamma + (1 - gamma)(1 - u))^-(eta + 1). If one run is (e, d)-private
    with (1 - gamma) d <= gamma (expm1 e), then from one data set to the next
    gamma + (1 - gamma)(1 - u) grows by a factor of e^e at most, so that for every epsilon

        delta(epsilon + (eta + 1) e) <= E K delta_1(epsilon).
    """
    one = pld(event.event, relation)
    top = one.epsilon(_LEAST)
    if not top < _MOST:
        raise NoLossDistributionError(f"{event!r} has losses too large for a distribution.")
    epsilons = np.linspace(0, top, _POINTS)
    deltas = one.deltas(epsilons)
    deltas = np.minimum(deltas * (1 + 1e-9), 1.0)  # more than all rounding below
    drift = (event.eta + 1) * _least_drift(epsilons, deltas, event.gamma)
    if not drift < _MOST:
        raise NoLossDistributionError(f"{event!r} has too many trials for a distribution.")
    pair = _pair_of_curve(epsilons + drift, np.minimum(event.expected_trials * deltas, 1.0))
    return pair, pair


def _least_drift(epsilons: NDArray, deltas: NDArray, gamma: float) -> float:
    """Return the least e with (1 - gamma) d <= gamma expm1(e), or infinity.

    Between two points of the curve the chord in e^epsilon, which lies above it, is solved exactly.
    """
    excess = (1 - gamma) * deltas - gamma * np.expm1(epsilons)
    i = int((excess <= 0).argmax())
    if excess[i] > 0:
        return math.inf
    if i == 0:
        return float(epsilons[0])
    left, right = np.exp(epsilons[i - 1 : i + 1])
    share = excess[i - 1] / (excess[i - 1] - excess[i])
    return min(float(epsilons[i]), math.log(left + share * (right - left)) + 1e-12)


def _pair_of_curve(epsilons: NDArray, deltas: NDArray) -> AtomPair:
    """Return a symmetric pair whose privacy curve lies above the one through the points.

    Any such curve is convex in e^epsilon, and so lies below the convex hull of points above it.
    """
    x = np.exp(np.r_[-epsilons[::-1], epsilons])
    below = 1 - np.exp(-epsilons) * (1 - deltas)  # the mirror image of a symmetric curve
    corners = _lower_hull(np.r_[0.0, x], np.r_[1.0, below[::-1], deltas])
    at, height = np.r_[0.0, x][corners], np.r_[1.0, below[::-1], deltas][corners]
    slopes = np.r_[np.diff(height) / np.diff(at), 0.0]
    after = at > 1
    q = np.diff(slopes)[after[1:]]
    p, losses = q * at[after], np.log(at[after])
    infinity = float(height[-1])
    middle = max(0.0, 1 - infinity - float(p.sum() + q.sum()))
    return AtomPair(
        tuple(np.r_[-losses[::-1], 0.0, losses]),
        tuple(np.r_[q[::-1], middle, p]),
        tuple(np.r_[p[::-1], middle, q]),
        infinity,
        loose=True,
    )


def _lower_hull(x: NDArray, y: NDArray) -> list[int]:
    """Return the indices of the corners of the convex hull from below, for sorted ``x``."""
    corners: list[int] = []
    for i in range(len(x)):
        while len(corners) > 1:
            a, b = corners[-2:]
            if (y[b] - y[a]) * (x[i] - x[b]) < (y[i] - y[b]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(i)
    return corners
