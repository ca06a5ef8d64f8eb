"""The noise that hides how a data-dependent cost moves with the data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._checks import positive
from .._event import Event, Orders

__all__ = ["SmoothGaussianEvent"]


@dataclass(frozen=True)
class SmoothGaussianEvent(
    Event, tag="SmoothGaussian", stored=("noise_multiplier", "smoothness", "lift")
):
    """One number of smooth sensitivity S, plus ``lift`` S, plus Gaussian noise in units of S.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise, divided by the smooth sensitivity.
    smoothness : float
        S changes by a factor of at most e^smoothness from one data set to the next.
    lift : float, default=0.0
        How many S are added to the number, so that noise seldom takes it below the truth.

    Notes
    -----
    The two normal distributions may differ in spread by a factor r between e^-b and e^b, and in
    their means by 1 + lift (e^b - 1) times the smaller spread's S. Both terms of their divergence
    are largest at r = e^-b. The bound is infinite from the order 1 / (1 - e^-2b) on. It is a little
    below the one that was published, which has e^2b / z^2 where this one has half of that and more.

    References
    ----------
    Papernot et al. (2018), "Scalable private learning with PATE", appendix B, mechanism GNSS.
    """

    noise_multiplier: float
    smoothness: float
    lift: float = 0.0

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        positive("smoothness", self.smoothness)
        if self.lift != 0:
            positive("lift", self.lift)

    def renyi(self, orders: Orders, relation: str) -> Orders:
        a, b, z = orders, self.smoothness, self.noise_multiplier
        apart = 1 + self.lift * math.expm1(b)
        room = 1 + a * math.expm1(-2 * b)
        means = a * (apart * math.exp(-b) / z) ** 2 / (2 * room)
        spreads = (-a * b - np.log(room) / 2) / (a - 1)
        return np.where(room > 0, means + spreads, np.inf)
