"""Calibrated noise for one vector: the mechanism with the least noise for a guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .._validation import is_number
from ..accounting import calibrate_noise_multiplier
from ..accounting.calibration import analytic_noise_multiplier
from ..accounting.events import LogisticEvent
from ..mechanisms import Gaussian, KNorm, Laplace, Mechanism
from ..mechanisms.special_noise import Logistic


@dataclass(frozen=True)
class Sensitivity:
    """Sensitivity of a vector of ``size`` numbers, in L2 and perhaps in L1."""

    l2: float
    l1: float | None = None  # None means sqrt(size) * l2, which is always a bound

    def __post_init__(self) -> None:
        for name, value in (("l2", self.l2), ("l1", self.l1)):
            if value is None and name == "l1":
                continue
            if value is None or not (is_number(value) and 0 < value < math.inf):
                raise ValueError(f"{name}={value!r} must be a finite number above 0.")

    def in_l1(self, size: int) -> float:
        """Return the L1 sensitivity of a vector of ``size`` numbers."""
        always = math.sqrt(size) * self.l2
        return always if self.l1 is None else min(self.l1, always)


# Each function returns a calibrated mechanism, or None if it has no guarantee of this kind.
Make = Callable[[float, float, Sensitivity, int], Mechanism | None]


def _gaussian(epsilon: float, delta: float, moved: Sensitivity, size: int) -> Mechanism | None:
    if delta == 0:
        return None
    z = 0.0 if math.isinf(epsilon) else analytic_noise_multiplier(epsilon, delta)
    return Gaussian(z, moved.l2)


def _laplace(epsilon: float, delta: float, moved: Sensitivity, size: int) -> Mechanism:
    return Laplace(1.0 / epsilon, moved.in_l1(size))


def _k_norm(epsilon: float, delta: float, moved: Sensitivity, size: int) -> Mechanism:
    return KNorm(1.0 / epsilon, moved.l2)


def _logistic_pure(epsilon: float, delta: float, moved: Sensitivity, size: int) -> Mechanism:
    return Logistic(1.0 / epsilon, moved.in_l1(size))


def _logistic_moments(
    epsilon: float, delta: float, moved: Sensitivity, size: int
) -> Mechanism | None:
    if delta == 0:
        return None
    if math.isinf(epsilon):
        return Logistic(0.0, moved.l2, norm="l2")
    scale = calibrate_noise_multiplier(lambda s: LogisticEvent(s, norm=2), epsilon, delta)
    return Logistic(scale, moved.l2, norm="l2")


# Candidates for each name. "auto" leaves out logistic noise: for L1 its standard deviation is 1.28
# times as large as for Laplace noise at the same epsilon, and for L2 it is at least as large as
# Gaussian noise with the same trade-off curve.
MECHANISMS: dict[str, tuple[Make, ...]] = {
    "auto": (_gaussian, _k_norm, _laplace),
    "gaussian": (_gaussian,),
    "k_norm": (_k_norm,),
    "laplace": (_laplace,),
    "logistic": (_logistic_moments, _logistic_pure),
}


def least_noise_mechanism(
    name: str, epsilon: float, delta: float, moved: Sensitivity, size: int
) -> Mechanism:
    """Return the mechanism of this name with the least noise for ``epsilon`` and ``delta``."""
    found = [make(epsilon, delta, moved, size) for make in MECHANISMS[name]]
    able = [mechanism for mechanism in found if mechanism is not None]
    if not able:
        raise ValueError(
            f"mechanism={name!r} has no pure guarantee, and delta={delta!r}. Use a delta above 0, "
            "such as 1e-6, or mechanism='k_norm'."
        )
    return min(able, key=lambda mechanism: noise_std(mechanism, size))


def noise_std(mechanism: Mechanism, size: int) -> float:
    """Return the standard deviation of the noise of each of ``size`` numbers."""
    if isinstance(mechanism, KNorm):
        return mechanism.std_of(size)
    assert isinstance(mechanism, Gaussian | Laplace | Logistic)
    return mechanism.std
