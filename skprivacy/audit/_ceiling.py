"""The highest AUC of any membership attack under a guarantee."""

from __future__ import annotations

import numpy as np

from ..accounting import PrivacyGuarantee

__all__ = ["auc_ceiling"]


def auc_ceiling(guarantee: PrivacyGuarantee) -> float:
    """Return an upper bound on the AUC of any membership attack under a guarantee.

    It is the area under ``tpr_bound``, computed as an upper sum: the bound increases with the false
    positive rate, so its value at the right end of each strip covers the strip.
    """
    edges = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 400)])
    return float(min(1.0, np.sum(np.diff(edges) * guarantee.tpr_bound(edges[1:]))))
