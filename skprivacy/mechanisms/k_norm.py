"""KNorm: the K-norm mechanism in L2, for pure differential privacy with L2 sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import events
from ..accounting._checks import positive, whole
from . import discrete
from .additive import _GridNoise, pure_noise_multiplier
from .entropy import SecureRandom

__all__ = ["KNorm"]


@dataclass(frozen=True)
class KNorm(_GridNoise):
    """Add noise of density proportional to exp(-norm / scale): the K-norm mechanism in L2.

    The noise has a uniform direction and a Gamma-distributed norm. For a long vector of known L2
    sensitivity it has half the variance of Laplace noise, whose L1 sensitivity can be sqrt(size)
    times as large.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the norm of the noise divided by ``sensitivity``: 1 / epsilon. 0: no noise, no
        privacy.
    sensitivity : float
        L2 sensitivity of the value.
    lower, upper : float, default=-inf, inf
        Public range of every entry. Values are clipped to it, which adds no sensitivity.

    Notes
    -----
    **Guarantees.** Pure ``1 / noise_multiplier`` differential privacy for values whose neighbours
    lie within ``sensitivity`` in L2: by the triangle inequality, the log density differs by at most
    distance / scale.

    The noise is on a grid as for :class:`Laplace`. If T has the law Gamma((size + 1) / 2, scale 2),
    Gaussian noise of variance T has density proportional to exp(-norm). So T is drawn first,
    independently of the value, and then an exact discrete Gaussian of that variance. Every multiple
    of the grid is a possible result for any value. T itself is a floating-point number. Its law is
    exact to one part in 2**50, except with probability 2**-53 for each of its parts, and with that
    probability epsilon may strictly be exceeded.

    **Edge cases.** As for :class:`Laplace`. For a single number it is Laplace noise.

    References
    ----------
    M. Hardt and K. Talwar, "On the geometry of differential privacy", STOC 2010.
    K. Chaudhuri, C. Monteleoni and A. Sarwate, "Differentially private empirical risk
    minimization", JMLR 12, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.mechanisms import KNorm, SecureRandom
    >>> mechanism = KNorm.calibrated(epsilon=1.0, sensitivity=2.0)
    >>> mechanism.release(np.zeros(3), SecureRandom()).shape
    (3,)
    >>> round(mechanism.std_of(3), 3)
    4.0
    """

    arithmetic = "floating_point"

    @classmethod
    def calibrated(cls, epsilon: float, sensitivity: float, **bounds: Any) -> KNorm:
        """Return the mechanism of pure ``epsilon`` differential privacy.

        Parameters
        ----------
        epsilon : float
            In nats, above 0.
        sensitivity : float
            L2 sensitivity of the value.
        **bounds : dict
            ``lower`` and ``upper``.
        """
        return cls(pure_noise_multiplier(epsilon), sensitivity, **bounds)

    def _event(self) -> events.Event:
        positive("noise_multiplier", self.noise_multiplier)
        return events.ApproxDP(1.0 / self.noise_multiplier)

    def std_of(self, size: int) -> float:
        """Return the standard deviation of the noise of each of ``size`` numbers.

        Parameters
        ----------
        size : int
            Length of the value.

        Returns
        -------
        float
            In the units of the value.
        """
        whole("size", size, least=0)
        return self.scale * math.sqrt(size + 1.0)

    def _rounding(self, size: int) -> float:
        return math.sqrt(size)

    def _noise(self, scale: int, size: int, random: SecureRandom) -> NDArray[np.int64]:
        if size == 0:
            return np.empty(0, np.int64)
        # Hardt and Talwar 2010: the norm of the noise has a Gamma law. Here it is a Gaussian whose
        # variance is Gamma((size + 1) / 2, scale 2): a sum of size + 1 squared normals, in pairs.
        pairs, one_left = divmod(size + 1, 2)
        variance = -2.0 * np.log(random.uniform(pairs)).sum()
        if one_left:
            radius, angle = random.uniform(2)
            variance += -2.0 * math.log(radius) * math.cos(math.pi * angle) ** 2
        sigma = max(1, math.ceil(scale * math.sqrt(variance)))
        return discrete.discrete_gaussian(sigma, size, random)
