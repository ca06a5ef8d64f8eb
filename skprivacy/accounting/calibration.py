"""Noise calibration: the least noise that meets a target epsilon, advantage or TPR.

:func:`calibrate_noise_multiplier` works for any event. The Gaussian mechanism also has the analytic
multiplier (Balle and Wang 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from scipy.special import log_ndtr, ndtr

from .._validation import is_number, positive, sequence
from .accountants import best_epsilon, delta_of, epsilon_by, epsilon_of
from .event import Event, NoLossDistributionError, check_delta, check_relation, flatten
from .events import ComposedEvent, RepeatedEvent
from .guarantee import PrivacyGuarantee
from .pld.distribution import pld

_TOLERANCE = 1e-3  # relative tolerance below the target
_MAX_NOISE = 1e9
MakeEvent = Callable[[float], Event]
_COSTS: dict[str, Callable[[Event, float, str], float]] = {
    "naive": partial(epsilon_by, "naive"),
    "advanced": partial(epsilon_by, "advanced"),
    "zcdp": partial(epsilon_by, "zcdp"),
    # best_epsilon, unlike rdp_epsilon, issues no warning, which most trial values would cause.
    "rdp": lambda event, delta, relation: best_epsilon(event, delta, relation)[0],
    "pld": epsilon_of,
}
_SOLVED: dict[tuple[Any, ...], tuple[float, Event]] = {}
_UPWARDS = 1.0 + 2.0**-30  # keeps an accountant's rounding below the target epsilon


def calibrate_noise_multiplier(
    make_event: MakeEvent,
    epsilon: float,
    delta: float,
    relation: str = "add_remove",
    accountant: str = "pld",
    guess: float | None = None,
) -> float:
    """Return the least noise at which an event is (epsilon, delta)-differentially private.

    Parameters
    ----------
    make_event : callable
        Takes a noise multiplier and returns the event. Its cost must not increase with the noise.
    epsilon, delta : float
        The target: ``epsilon`` > 0 and ``delta`` in [0, 1).
    relation : {"add_remove", "label", "replace_one", "zero_out"}, default="add_remove"
        The neighbouring relation.
    accountant : {"pld", "rdp", "zcdp", "advanced", "naive"}, default="pld"
        The accountant that computes epsilon. ``"pld"`` is :func:`epsilon_of`, the tightest proof in
        the library. The others are for comparison and need ``delta`` > 0. All of them prove the
        target; a looser accountant needs more noise. For many steps without sampling, the noise
        decreases in the order ``"naive"``, ``"advanced"``, ``"zcdp"``, ``"rdp"``, ``"pld"``. Under
        sampling ``"zcdp"`` has no amplification and can be the worst of all. For few steps or a
        large epsilon ``"advanced"`` is worse than ``"naive"``.
    guess : float, default=None
        Start of the search. A good guess saves time if a cost is slow to compute.

    Returns
    -------
    float
        A noise multiplier at which epsilon is at most the target, and within 0.1 % of it.

    Raises
    ------
    ValueError
        If no amount of noise reaches the target, for example if the accountant has no bound.

    References
    ----------
    B. Jayaraman and D. Evans, "Evaluating differentially private machine learning in practice",
    USENIX Security 2019.

    Examples
    --------
    >>> from skprivacy.accounting import GaussianEvent, RepeatedEvent, calibrate_noise_multiplier
    >>> round(calibrate_noise_multiplier(GaussianEvent, epsilon=1.0, delta=1e-5), 2)
    3.73
    >>> steps = lambda z: RepeatedEvent(GaussianEvent(z), 1000)
    >>> for name in ("naive", "advanced", "zcdp", "rdp", "pld"):
    ...     z = calibrate_noise_multiplier(steps, epsilon=1.0, delta=1e-5, accountant=name)
    ...     print(f"{name}: {z:.0f}")
    naive: 3621
    advanced: 665
    zcdp: 155
    rdp: 128
    pld: 118
    """
    _check_make_event(make_event)
    positive("epsilon", epsilon)
    check_delta(delta)
    check_relation(relation)
    if not isinstance(accountant, str) or accountant not in _COSTS:
        raise ValueError(f"accountant={accountant!r} must be one of {sorted(_COSTS)}.")
    if delta == 0 and accountant != "pld":
        raise ValueError(
            f"accountant={accountant!r} needs a delta > 0. At delta=0 epsilons only add up; use "
            "accountant='pld'."
        )
    if guess is not None:
        positive("guess", guess)
    # A function cannot serve as a cache key, but the events that it returns can.
    signature = make_event(1.0), make_event(3.0)
    key = (*signature, float(epsilon), float(delta), relation, accountant)
    known = _SOLVED.get(key)
    if known is not None and make_event(known[0]) == known[1]:
        return known[0]
    if guess is None and accountant == "pld":
        guess = _estimate_noise(make_event, float(epsilon), delta, relation)
    noise = _solve_for_noise(
        lambda z: _COSTS[accountant](make_event(z), delta, relation), float(epsilon), guess or 1.0
    )
    if len(_SOLVED) >= 256:
        _SOLVED.pop(next(iter(_SOLVED)))
    _SOLVED[key] = noise, make_event(noise)
    return noise


def calibrate_to_attack(
    make_event: MakeEvent,
    *,
    advantage: float | None = None,
    tpr_at_fpr: tuple[float, float] | None = None,
    relation: str = "add_remove",
) -> float:
    """Return the least noise at which no membership attack does better than a target.

    Parameters
    ----------
    make_event : callable
        Takes a noise multiplier and returns the event.
    advantage : float, default=None
        The largest TPR - FPR allowed, in (0, 1).
    tpr_at_fpr : (float, float), default=None
        Instead of ``advantage``: TPR and FPR, with 0 < FPR < TPR < 1. No attack reaches this TPR at
        this FPR.
    relation : {"add_remove", "label", "replace_one", "zero_out"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        The noise multiplier.

    Raises
    ------
    ValueError
        If not exactly one target is given, or it is out of its range.

    Examples
    --------
    >>> from skprivacy.accounting import GaussianEvent, calibrate_to_attack
    >>> round(calibrate_to_attack(GaussianEvent, advantage=0.1), 2)
    3.98
    >>> round(calibrate_to_attack(GaussianEvent, tpr_at_fpr=(0.02, 0.01)), 1)
    3.7
    """
    _check_make_event(make_event)
    if (advantage is None) == (tpr_at_fpr is None):
        raise ValueError(
            f"advantage={advantage!r} and tpr_at_fpr={tpr_at_fpr!r}: pass one of the two targets."
        )
    if advantage is not None:
        positive("advantage", advantage)
        if advantage >= 1:
            raise ValueError(f"advantage={advantage!r} must be in (0, 1).")
        return _solve_for_noise(
            lambda z: delta_of(make_event(z), 0.0, relation), float(advantage), 1.0
        )
    rates = sequence("tpr_at_fpr", tpr_at_fpr)
    if len(rates) != 2 or not all(map(is_number, rates)) or not 0 < rates[1] < rates[0] < 1:
        raise ValueError(f"tpr_at_fpr={tpr_at_fpr!r} must be (tpr, fpr) with 0 < fpr < tpr < 1.")
    tpr, fpr = map(float, rates)

    def excess(z: float) -> float:
        guarantee = PrivacyGuarantee(make_event(z), relation=relation)
        return float(guarantee.tpr_bound(fpr)) - fpr

    return _solve_for_noise(excess, tpr - fpr, 1.0)


def analytic_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the least noise of a Gaussian (epsilon, delta)-DP release (Balle and Wang 2018)."""
    if not (is_number(epsilon) and 0 <= epsilon < math.inf):
        raise ValueError(f"epsilon={epsilon!r} must be a finite number >= 0.")
    if not (is_number(delta) and 0 < delta < 1):
        raise ValueError(
            f"delta={delta!r} must lie in (0, 1): Gaussian noise has no pure guarantee. "
            "Use Laplace for delta=0."
        )
    return _solve_noise_multiplier(float(epsilon), float(delta))


def _check_make_event(make_event: MakeEvent) -> None:
    try:
        made: Any = make_event(1.0)
    except TypeError as error:
        made = error
    if not isinstance(made, Event):
        raise TypeError(
            f"make_event={make_event!r} must take a noise multiplier and return an event, as "
            f"GaussianEvent does; for 1.0 it gave {made!r}."
        )


def _estimate_noise(make_event: MakeEvent, epsilon: float, delta: float, relation: str) -> float:
    """Return the noise at which an estimate meets the target, to start the search; else 1."""
    if delta == 0:
        return 1.0

    def quick(z: float) -> Event:
        leaves = flatten(make_event(z)).items()
        return ComposedEvent(tuple(RepeatedEvent(getattr(e, "estimated", e), n) for e, n in leaves))

    try:
        guess = _solve_for_noise(
            lambda z: pld(quick(z), relation).estimate(delta), epsilon, 1.0, 0.02
        )
        if not any(hasattr(e, "estimated") for e in flatten(make_event(guess))):
            return guess
        middle = epsilon * (1 - _TOLERANCE / 2)
        return _solve_for_noise(
            lambda z: epsilon_of(quick(z), delta, relation), middle, guess, _TOLERANCE / 10
        )
    except (NoLossDistributionError, ValueError):
        return 1.0


def _solve_for_noise(
    cost: Callable[[float], float], target: float, guess: float, close: float = _TOLERANCE
) -> float:
    """Return ``z`` with ``target * (1 - close) <= cost(z) <= target`` for a decreasing cost.

    Secant steps in logarithms, where the cost is nearly linear, inside a bracket. If the cost jumps
    over the target, the result is the side of the jump at which the cost is at most the target.
    """
    low, high = -math.inf, math.inf  # ln z at which the cost exceeds the target, and meets it
    aim = math.log(target * (1 - close / 2))
    limit = math.log(_MAX_NOISE)
    last: tuple[float, float] | None = None
    x, slope, reach = math.log(guess), -1.0, 0.5
    while True:
        value = cost(math.exp(x))
        if value <= target:
            high = x
        else:
            low = x
        if target * (1 - close) <= value <= target or high - low < 1e-9 or high < -limit:
            return math.exp(high)
        if low > limit:
            raise ValueError(
                f"No noise multiplier up to {_MAX_NOISE:g} reaches the target {target:g}: some "
                "part of the event costs more at any noise. Relax the target, or release less."
            )
        y = math.log(value) if 0 < value < math.inf else math.nan
        if last is not None and x != last[0] and (y - last[1]) / (x - last[0]) < 0:
            slope = (y - last[1]) / (x - last[0])
        step = (aim - y) / slope
        if math.isnan(step):  # the cost is 0 or infinite: no slope
            step = reach if value > target else -reach
        last = x, y
        x += min(max(step, -reach), reach)
        reach *= 2
        margin = 1e-3 * (high - low)
        if math.isfinite(margin) and not low + margin < x < high - margin:
            x = (low + high) / 2


@lru_cache(maxsize=256)
def _solve_noise_multiplier(epsilon: float, delta: float) -> float:
    # Balle and Wang 2018, Theorem 8: delta(z) = Phi(1/(2z) - eps z) - e^eps Phi(-1/(2z) - eps z)
    def delta_at(z: float) -> float:
        a, b = 0.5 / z, epsilon * z
        return float(ndtr(a - b) - math.exp(min(epsilon + float(log_ndtr(-a - b)), 0.0)))

    low = high = 1.0
    while delta_at(high) > delta:
        high *= 2.0
    while delta_at(low) <= delta:
        low /= 2.0
    while high > low * (1.0 + 1e-12):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high * _UPWARDS
