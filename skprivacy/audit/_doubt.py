"""Signs that the samples of an audit are copies of each other, or were exchanged."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..attacks import AttackResult
from ..metrics import auc_interval, clopper_pearson

__all__ = ["Accuracy", "explain_copies", "explain_exchange"]

# Average number of copies of a record in its own sample, above which intervals for independent
# records are too narrow (up to 1 their slack covers it); and the ratio of copies in the other
# sample to copies in its own, below which no random split is possible.
_COPIES, _RARER = 1.0, 0.1

Accuracy = tuple[float, int]


def explain_copies(members: NDArray[np.uint64], others: NDArray[np.uint64]) -> str:
    """Return why one sample holds copies that the other lacks, in words; empty if it does not.

    ``members`` and ``others`` are fingerprints. A random split leaves a record about as many copies
    in one sample as in the other, for any records. Members that were repeated, or groups of equal
    records, are not independent: one lucky guess counts several times.
    """
    for who, own, other in (("members", members, others), ("non-members", others, members)):
        alike, counts = np.unique(own, return_counts=True)
        copies = float((counts * (counts - 1)).sum() / len(own))
        met = _mean_copies(alike, counts, other)
        if copies > _COPIES and met < _RARER * copies:
            return (
                f"Among the {who}, a record has {copies:.1f} copies on average, and a record of "
                f"the other sample has {met:.1f} copies there. No random split does this. Copies "
                "are not independent, and a claim about one record says less about several, so the "
                "audit says nothing about the claim. Repeat it with distinct records, or pass the "
                "groups that the records belong to."
            )
    return ""


def _mean_copies(
    alike: NDArray[np.uint64], counts: NDArray[np.int64], other: NDArray[np.uint64]
) -> float:
    """Return the average number of copies, in one sample, of a record of the other sample."""
    place = np.minimum(np.searchsorted(alike, other), len(alike) - 1)
    return float(np.where(alike[place] == other, counts[place], 0).mean())


def explain_exchange(
    results: Sequence[AttackResult], own: Accuracy, new: Accuracy, alpha: float
) -> str:
    """Return why members and non-members look exchanged, in words; empty if they do not.

    ``own`` and ``new`` are the accuracy on members and on non-members, NaN for models without
    classes, and their number. A model is at least as accurate on its own records as on new ones. If
    a sign points the other way, the samples were exchanged or come from different populations.
    ``alpha`` is the error probability over all signs (Bonferroni).
    """
    share = alpha / (len(results) + 1)  # Bonferroni: one sign per attack, and one for accuracy
    signs = []
    for result in results:
        high = auc_interval(result.scores_in, result.scores_out, alpha=share)[1]
        if high < 0.5:
            signs.append(
                f"{result.attack} ranks members below non-members (AUC {result.auc:.3f}, at most "
                f"{high:.3f})"
            )
    if math.isnan(own[0]):
        own, new = (0.0, own[1]), (0.0, new[1])
    most_own = clopper_pearson(round(own[0] * own[1]), own[1], share)[1]
    least_new = clopper_pearson(round(new[0] * new[1]), new[1], share)[0]
    if least_new > most_own:
        signs.append(
            f"the model is right on {100 * new[0]:.0f} % of the new records and on only "
            f"{100 * own[0]:.0f} % of its own"
        )
    if not signs:
        return ""
    return (
        f"{', and '.join(signs)}. Were the members and the non-members exchanged? If not, they "
        "come from different populations. In both cases the audit says nothing about the model: "
        "repeat it with samples from one random split."
    )
