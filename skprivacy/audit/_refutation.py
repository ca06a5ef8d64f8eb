"""The claimed trade-off curve as a whole, against what an attack shows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..accounting import PrivacyGuarantee
from ..metrics._evidence import Evidence
from ._ceiling import auc_ceiling
from ._origin import UPSIDE_DOWN

__all__ = ["curve_of", "refutation"]

Float64Array = NDArray[np.float64]


def _bounds_anything(guarantee: PrivacyGuarantee | None) -> bool:
    """Return whether a guarantee bounds epsilon at all."""
    return guarantee is not None and math.isfinite(guarantee.epsilon())


def curve_of(guarantee: PrivacyGuarantee | None) -> Callable[[Float64Array], Float64Array] | None:
    """Return the highest true positive rates that a claim allows, quickly and slightly too low.

    It serves to choose what is tested. The curve is concave, so chords lie below it.
    """
    if guarantee is None or not _bounds_anything(guarantee):
        return None
    low = np.geomspace(1e-6, 0.5, 200)
    fpr = np.r_[0.0, low, (1 - low[:-1])[::-1], 1.0]
    tpr = guarantee.tpr_bound(fpr)
    return lambda rates: np.interp(rates, fpr, tpr)


def refutation(evidence: Evidence, guarantee: PrivacyGuarantee | None) -> str:
    """Return how the evidence contradicts the claimed curve; empty if it does not.

    **Guarantees.** All bounds of the evidence hold at once, so a true claim is refuted with at most
    the error probability of the evidence, however many points of the curve are looked at.
    """
    if guarantee is None or not _bounds_anything(guarantee):
        return ""
    for tpr, fpr, _ in evidence.points:
        if tpr > (allowed := float(guarantee.tpr_bound(fpr))):
            return (
                f"a true positive rate of at least {tpr:.3g} at a false positive rate of at most "
                f"{fpr:.3g}, where the claim allows {allowed:.3g}"
            )
    if evidence.area > (allowed := auc_ceiling(guarantee)):
        read = UPSIDE_DOWN if evidence.mirrored else ""
        return f"an AUC of at least {evidence.area:.3g}{read}, where the claim allows {allowed:.3g}"
    return ""
