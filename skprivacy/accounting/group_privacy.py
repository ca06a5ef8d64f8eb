"""Group privacy from a privacy curve alone (Dong, Roth and Su 2022, theorem 2.14).

Also the names of groups. Start reading at :func:`chain_steps`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .accountants import epsilon_of, privacy_curve
from .event import Event
from .events import ApproxDPEvent, NonPrivateEvent

Floats = NDArray[np.float64]
_SMALLEST_DELTA = 1e-30  # smallest delta of the curve, where the first of many steps starts
_GRID_POINTS = 1000
_MAX_CHAINED_STEPS = 100  # largest number of steps that are chained one by one


def chain_steps(event: Event, steps: int, delta: float, relation: str) -> Event:
    """Bound the cost between data sets ``steps`` neighbouring steps apart, at ``delta``."""
    if delta == 0:
        epsilon = steps * epsilon_of(event, 0.0, relation)
    else:
        epsilon = group_epsilon(event, steps, delta, relation)
    return ApproxDPEvent(epsilon, delta) if math.isfinite(epsilon) else NonPrivateEvent()


def group_epsilon(event: Event, steps: int, delta: float, relation: str) -> float:
    """Return epsilon at ``delta`` > 0 between data sets that are ``steps`` neighbours apart.

    Let F(x) be the highest true-positive rate at false-positive rate x for tests of two neighbours.
    Let Q be a neighbour of P, and R a neighbour of Q. A test that says yes with probability x under
    P says yes with probability at most F(x) under Q, and hence at most F(F(x)) under R: Dong, Roth
    and Su (2022), theorem 2.14. Epsilon is the smallest number with F(...F(x)) <= delta + e^epsilon
    x for every x. One line of F, one pair (epsilon, delta), would give (k epsilon, delta (1 +
    e^epsilon + ...)) in k steps: never less, and far more for many steps.

    The quotient (F(...F(x)) - delta) / x has one maximum, since increasing concave functions of
    concave functions are concave. It is bounded above between the points of a grid, which is
    refined around the maximum. More than 100 steps are bounded by one line.
    """
    curve = privacy_curve(event, relation, _SMALLEST_DELTA)
    if steps > _MAX_CHAINED_STEPS:
        return _bound_by_one_line(steps, delta, curve)
    grid = np.geomspace(1e-300, 1.0, _GRID_POINTS)
    if _chain_tpr(grid[:1], steps, curve)[0] > delta:
        return math.inf
    for _ in range(3):
        # The numerator at a cell's right end over its left end bounds the quotient in the cell.
        above = _chain_tpr(grid[1:], steps, curve) - delta
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(above > 0, np.log(above), -np.inf) - np.log(grid[:-1])
        best = int(logs.argmax())
        epsilon = max(0.0, float(logs[best]))
        grid = np.geomspace(
            grid[max(best - 1, 0)], grid[min(best + 2, len(grid) - 1)], _GRID_POINTS
        )
    return epsilon


def _bound_by_one_line(steps: int, delta: float, curve: tuple[Floats, Floats]) -> float:
    """Return the least k epsilon with delta' (1 + e^epsilon + ...) <= delta on the curve."""
    epsilons, deltas = curve
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        many = np.where(epsilons > 0, np.expm1(steps * epsilons) / np.expm1(epsilons), steps)
        reached = deltas * many <= delta
    return steps * float(epsilons[reached].min()) if reached.any() else math.inf


def _chain_tpr(fpr: Floats, steps: int, curve: tuple[Floats, Floats]) -> Floats:
    """Return F(...F(fpr)): the highest probability of a yes ``steps`` neighbours away."""
    for _ in range(steps):  # Dong, Roth and Su 2022, theorem 2.14
        fpr = np.maximum(fpr, _highest_tpr(fpr, curve))
    return fpr


def _highest_tpr(fpr: Floats, curve: tuple[Floats, Floats]) -> Floats:
    """Return F(fpr): each (epsilon, delta) of the curve gives two lines; the lowest line counts."""
    epsilons, deltas = curve
    best = np.ones(len(fpr))
    for epsilon, delta in zip(epsilons, deltas, strict=True):
        with np.errstate(over="ignore"):
            np.minimum(best, math.exp(min(epsilon, 700)) * fpr + delta, out=best)
        np.minimum(best, 1 - math.exp(-epsilon) * (1 - delta - fpr), out=best)
    return best


def group_name(unit: str, k: int) -> str:
    """Name a group of ``k`` units."""
    if k == 1:
        return unit
    return f"group of {k} records" if unit == "record" else f"group of {k} values of {unit}"


def unit_name(unit: str, k: int = 2) -> str:
    """Name ``k`` units in the plural or the singular."""
    if unit == "record":
        return "records" if k > 1 else "record"
    return f"values of {unit}" if k > 1 else f"value of {unit}"
