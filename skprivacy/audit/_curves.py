"""Claimed trade-off curves as tests by coins need them: inverted, and for the coin's relation."""

from __future__ import annotations

import numpy as np

from ..accounting import PrivacyGuarantee
from ..accounting._proved import privacy_curve
from ..metrics._one_run import Inverse

__all__ = ["inverse_curve", "steps_between"]

# How many steps of a claim's relation lie between the two outcomes of a coin. Being in the data or
# not changes their number, of which guarantees for another relation say nothing. Under zero-out a
# record is first blanked, and then becomes the other.
_STEPS = {
    ("add_remove", "add_remove"): 1,
    ("replace_one", "replace_one"): 1,
    ("zero_out", "zero_out"): 1,
    ("add_remove", "replace_one"): 2,
    ("zero_out", "replace_one"): 2,
}


def steps_between(relation: str, coin: str) -> int:
    """Return how many steps of ``relation`` a coin makes; 0 if it says nothing about the coin."""
    return _STEPS.get((relation, coin), 0)


def inverse_curve(guarantee: PrivacyGuarantee, coin: str) -> Inverse:
    """Return the least false positive rate that a claim allows for a true positive rate.

    **Guarantees.** Each point of the privacy curve is a line that no attack crosses, in either
    direction, so the largest of their values is allowed at most. Lines left out make the result
    smaller, which refutes less.
    """
    epsilons, deltas = privacy_curve(guarantee.event, guarantee.relation)
    grow = np.exp(np.minimum(epsilons, 700.0))

    def inverse(rate: float) -> float:
        forward = (rate - deltas) / grow
        backward = 1.0 - deltas - grow * (1.0 - rate)
        return min(rate, max(0.0, float(forward.max()), float(backward.max())))

    if steps_between(guarantee.relation, coin) == 1:
        return inverse
    return lambda rate: inverse(inverse(rate))
