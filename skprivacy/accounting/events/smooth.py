"""Gaussian noise scaled to smooth sensitivity (Papernot et al. 2018, mechanism GNSS)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._checks import number, positive
from .._event import Event, Orders
from .._work import closed_form_work

__all__ = ["SmoothGaussianEvent"]


@dataclass(frozen=True)
class SmoothGaussianEvent(
    Event, tag="SmoothGaussian", stored=("noise_multiplier", "smoothness", "lift"), knows_label=True
):
    """GNSS: a number of smooth sensitivity S, plus ``lift`` S, plus Gaussian noise scaled to S.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise, divided by the smooth sensitivity.
    smoothness : float
        S changes by a factor of at most e^smoothness between neighbouring data sets.
    lift : float, default=0.0
        Multiple of S that is added to the number, so that it rarely falls below the true value.

    Notes
    -----
    Let b be the smoothness. The two normal distributions may differ in spread by a factor r between
    e^-b and e^b, and in their means by 1 + lift (e^b - 1) times the S of the smaller spread. Both
    terms of their divergence are largest at r = e^-b. The bound is infinite from order
    1 / (1 - e^-2b) on. It is slightly below the published bound, which has e^2b / z^2 in place of
    a term of at least about half that size.

    References
    ----------
    N. Papernot et al., "Scalable private learning with PATE", ICLR 2018, appendix B, mechanism
    GNSS (Theorem 23).
    """

    noise_multiplier: float
    smoothness: float
    lift: float = 0.0

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        positive("smoothness", self.smoothness)
        number("lift", self.lift, "a finite number >= 0")
        if self.lift != 0:
            positive("lift", self.lift)

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Papernot et al. 2018, Theorem 23, with the exact Renyi divergence of normal distributions
        a, b, z = orders, self.smoothness, self.noise_multiplier
        with np.errstate(over="ignore"):
            distance = 1 + self.lift * float(np.expm1(b))  # may be infinite, as is the bound then
        variance = 1 + a * math.expm1(-2 * b)
        means = a * (distance * math.exp(-b) / z) ** 2 / (2 * variance)
        spreads = (-a * b - np.log(variance) / 2) / (a - 1)
        return np.where(variance > 0, means + spreads, np.inf)
