"""The most that any membership attack can reach under a guarantee."""

from __future__ import annotations

import numpy as np

from ..accounting import PrivacyGuarantee

__all__ = ["auc_ceiling"]


def auc_ceiling(guarantee: PrivacyGuarantee) -> float:
    """Return the most AUC that any membership attack can reach under a guarantee.

    The area under ``tpr_bound``, taken as an upper sum: the bound grows with the false positive
    rate, so that each strip's right end covers it.
    """
    edges = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 400)])
    return float(min(1.0, np.sum(np.diff(edges) * guarantee.tpr_bound(edges[1:]))))
