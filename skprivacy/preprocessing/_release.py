"""The release of a private statistic: its mechanism, its value and its guarantee."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .._validation import is_number
from ..accounting import PrivacyGuarantee
from ..mechanisms import Gaussian, Laplace, analytic_noise_multiplier

__all__ = ["RELATIONS", "Release", "additive", "check_target"]

RELATIONS = ("add_remove", "zero_out", "replace_one")


class Release(NamedTuple):
    """A private number or array of numbers, and its guarantee."""

    value: Any
    privacy: PrivacyGuarantee


def additive(epsilon: float, delta: float, l1: float, l2: float) -> Laplace | Gaussian:
    """Return the mechanism that spends (epsilon, delta) on sums of the given sensitivities.

    **Edge cases.** If epsilon is infinite, there is no noise and no guarantee.
    """
    if math.isinf(epsilon):
        return Laplace(0.0, l1) if delta == 0 else Gaussian(0.0, l2)
    if delta == 0:
        return Laplace.calibrated(float(epsilon), l1)
    return Gaussian(analytic_noise_multiplier(float(epsilon), float(delta)), l2)


def check_target(epsilon: float, delta: float, relation: str) -> None:
    if not (is_number(epsilon) and 1e-6 <= epsilon < math.inf):
        raise ValueError(f"epsilon={epsilon!r} must be a finite number >= 1e-6, for example 1.0.")
    if not (is_number(delta) and 0 <= delta < 1):
        raise ValueError(f"delta={delta!r} must be a number in [0, 1); 0 means Laplace noise.")
    if not isinstance(relation, str) or relation not in RELATIONS:
        raise ValueError(
            f"relation={relation!r} must be one of {RELATIONS}. Statistics are of whole records: "
            "'label' would take all other columns for public, and another label for half of the "
            "change that it is."
        )
