"""Several steps between neighbours, from the privacy curve of one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ._event import Event
from ._proved import privacy_curve

__all__ = ["chained_epsilon"]

Floats = NDArray[np.float64]

_LEAST = 1e-30  # smallest delta of the curve, which the first of many steps starts from
_POINTS = 1000
_MOST = 100  # steps that are taken one by one


def chained_epsilon(event: Event, steps: int, delta: float, relation: str) -> float:
    """Return epsilon at ``delta`` > 0 between data sets that are ``steps`` neighbours apart.

    Notes
    -----
    If no test of neighbours that errs with probability x is right with more than F(x), and Q is a
    neighbour of P, and R of Q, then a test that errs with x under P says yes under Q with at most
    F(x), hence under R with at most F(F(x)): Dong, Roth and Su (2022), theorem 2.14. Epsilon is
    the smallest number with F(...F(x)) <= delta + e^epsilon x for every x. One line of F, that is
    one (epsilon, delta), at every step would give (k epsilon, delta (1 + e^epsilon + ...)): never
    less, and far more for many steps.

    The quotient (F(...F(x)) - delta) / x has one maximum, as a concave function of concave
    increasing functions is concave. It is bounded above between the points of a grid, which is
    made finer around the maximum. More than 100 steps are bounded by one line.
    """
    curve = privacy_curve(event, relation, _LEAST)
    if steps > _MOST:
        return _by_one_line(steps, delta, curve)
    grid = np.geomspace(1e-300, 1.0, _POINTS)
    if _power(grid[:1], steps, curve)[0] > delta:
        return math.inf
    for _ in range(3):
        above = _power(grid[1:], steps, curve) - delta
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(above > 0, np.log(above), -np.inf) - np.log(grid[:-1])
        best = int(logs.argmax())
        epsilon = max(0.0, float(logs[best]))
        grid = np.geomspace(grid[max(best - 1, 0)], grid[min(best + 2, len(grid) - 1)], _POINTS)
    return epsilon


def _by_one_line(steps: int, delta: float, curve: tuple[Floats, Floats]) -> float:
    epsilons, deltas = curve
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        many = np.where(epsilons > 0, np.expm1(steps * epsilons) / np.expm1(epsilons), steps)
        reached = deltas * many <= delta
    return steps * float(epsilons[reached].min()) if reached.any() else math.inf


def _power(fpr: Floats, steps: int, curve: tuple[Floats, Floats]) -> Floats:
    """Return the highest probability of a yes ``steps`` neighbours away."""
    for _ in range(steps):
        fpr = np.maximum(fpr, _tpr(fpr, curve))
    return fpr


def _tpr(fpr: Floats, curve: tuple[Floats, Floats]) -> Floats:
    epsilons, deltas = curve
    best = np.ones(len(fpr))
    for epsilon, delta in zip(epsilons, deltas, strict=True):
        with np.errstate(over="ignore"):
            np.minimum(best, math.exp(min(epsilon, 700)) * fpr + delta, out=best)
        np.minimum(best, 1 - math.exp(-epsilon) * (1 - delta - fpr), out=best)
    return best
