"""Test of the whole claimed trade-off curve against an attack's evidence."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..accounting import PrivacyGuarantee
from ..metrics._evidence import Evidence
from ._ceiling import auc_ceiling
from ._origin import UPSIDE_DOWN

__all__ = ["claimed_curve", "refutation"]

Float64Array = NDArray[np.float64]


def _bounds_anything(guarantee: PrivacyGuarantee | None) -> bool:
    """Return whether a guarantee has a finite epsilon."""
    return guarantee is not None and math.isfinite(guarantee.epsilon())


def claimed_curve(
    guarantee: PrivacyGuarantee | None,
) -> Callable[[Float64Array], Float64Array] | None:
    """Return chords of the highest true positive rates that a claim allows.

    They serve to choose the tests quickly. The curve is concave, so chords lie slightly below it.
    """
    if guarantee is None or not _bounds_anything(guarantee):
        return None
    low = np.geomspace(1e-6, 0.5, 200)
    fpr = np.r_[0.0, low, (1 - low[:-1])[::-1], 1.0]
    tpr = guarantee.tpr_bound(fpr)
    return lambda rates: np.interp(rates, fpr, tpr)


def refutation(evidence: Evidence, guarantee: PrivacyGuarantee | None) -> str:
    """Return how the evidence contradicts the claimed curve, in words; empty if it does not.

    All bounds of the evidence hold jointly. So a true claim is refuted with at most the error
    probability of the evidence, for any number of compared points of the curve.
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
