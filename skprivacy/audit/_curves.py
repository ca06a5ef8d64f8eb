"""Claimed trade-off curves, inverted and converted to the relation of an audit's coins."""

from __future__ import annotations

import numpy as np

from ..accounting import PrivacyGuarantee
from ..accounting._proved import privacy_curve
from ..metrics._one_run import Inverse

__all__ = ["inverse_curve", "steps_between"]

# Number of steps of a claim's relation between the two outcomes of a coin. Guarantees for a public
# number of records say nothing about adding one. Under zero-out, a replaced record is first
# blanked, and then becomes the other record.
_STEPS = {
    ("add_remove", "add_remove"): 1,
    ("replace_one", "replace_one"): 1,
    ("zero_out", "zero_out"): 1,
    ("add_remove", "replace_one"): 2,
    ("zero_out", "replace_one"): 2,
}


def steps_between(relation: str, coin: str) -> int:
    """Return the number of steps of ``relation`` that a coin makes; 0 if it cannot be tested."""
    return _STEPS.get((relation, coin), 0)


def inverse_curve(guarantee: PrivacyGuarantee, coin: str) -> Inverse:
    """Return the least false positive rate that a claim allows for a true positive rate.

    Each point (epsilon, delta) of the privacy curve gives two lines that no attack crosses, one for
    each direction of the relation. The result is the largest of their values. Leaving out lines
    makes it smaller, which refutes less.
    """
    epsilons, deltas = privacy_curve(guarantee.event, guarantee.relation)
    grow = np.exp(np.minimum(epsilons, 700.0))

    def inverse(rate: float) -> float:
        # Wasserman and Zhou 2010, Kairouz, Oh and Viswanath 2015: under (epsilon, delta)-DP,
        # TPR <= exp(epsilon) FPR + delta, and 1 - FPR <= exp(epsilon) (1 - TPR) + delta.
        forward = (rate - deltas) / grow
        backward = 1.0 - deltas - grow * (1.0 - rate)
        return min(rate, max(0.0, float(forward.max()), float(backward.max())))

    if steps_between(guarantee.relation, coin) == 1:
        return inverse
    # Dong, Roth and Su 2022, group privacy: for two steps, the curve is composed with itself.
    return lambda rate: inverse(inverse(rate))
