"""From a wanted epsilon and delta to a mechanism and its guarantee, for one-shot statistics."""

from __future__ import annotations

import math
import warnings
from numbers import Real

from ..accounting import Event, PrivacyGuarantee
from ..exceptions import PrivacyWarning
from ..mechanisms import Gaussian, Laplace, analytic_noise_multiplier

__all__ = ["RELATIONS", "additive", "check_target", "guarantee"]

RELATIONS = ("add_remove", "zero_out", "replace_one")


def additive(epsilon: float, delta: float, l1: float, l2: float) -> Laplace | Gaussian:
    if delta == 0:
        return Laplace.calibrated(float(epsilon), l1)
    return Gaussian(analytic_noise_multiplier(float(epsilon), float(delta)), l2)


def guarantee(
    event: Event,
    delta: float,
    relation: str,
    noise_seed: int | None,
    assumptions: tuple[str, ...] = (),
) -> PrivacyGuarantee:
    if relation != "add_remove":
        assumptions += ("the number of records is public",)
    if noise_seed is not None:
        warnings.warn(
            f"noise_seed={noise_seed!r} makes the noise predictable: there is no privacy. Use it "
            "in tests only.",
            PrivacyWarning,
            stacklevel=4,
        )
        assumptions += ("nobody knows or guesses noise_seed",)
    return PrivacyGuarantee(
        event,
        at_delta=float(delta),
        relation=relation,
        kind="proved" if noise_seed is None else "estimate",
        assumptions=assumptions,
    )


def check_target(epsilon: float, delta: float, relation: str) -> None:
    if not (isinstance(epsilon, Real) and 1e-6 <= epsilon < math.inf):
        raise ValueError(f"epsilon={epsilon!r} must be a finite number >= 1e-6.")
    if not (isinstance(delta, Real) and 0 <= delta < 1):
        raise ValueError(f"delta={delta!r} must be a number in [0, 1).")
    if relation not in RELATIONS:
        raise ValueError(f"relation={relation!r} must be one of {RELATIONS}.")
