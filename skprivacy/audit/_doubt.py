"""Signs that the samples of an audit are not what it takes them for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..attacks import AttackResult
from ..metrics import auc_interval, clopper_pearson

__all__ = ["Accuracy", "why_copied", "why_doubtful"]

# How many copies of it a record has in its own sample, on average, from which intervals for
# independent records are too narrow; up to here their slack covers it. And how much rarer copies
# in the other sample must be for a random split to be out of the question.
_COPIES, _RARER = 1.0, 0.1

Accuracy = tuple[float, int]


def why_copied(members: NDArray[np.uint64], others: NDArray[np.uint64]) -> str:
    """Return why records are copies of one another, of which a sample has all; else nothing.

    Parameters
    ----------
    members, others : ndarray of shape (n_members,) and (n_others,)
        Fingerprints of the records.

    Notes
    -----
    A random split gives a record about as many copies in one sample as in the other, whatever the
    records are. Members that were repeated on their own, or people whose records are alike, are no
    independent records: one lucky guess counts several times.
    """
    for who, own, other in (("members", members, others), ("non-members", others, members)):
        alike, counts = np.unique(own, return_counts=True)
        copies = float((counts * (counts - 1)).sum() / len(own))
        met = _met(alike, counts, other)
        if copies > _COPIES and met < _RARER * copies:
            return (
                f"Among the {who}, a record has {copies:.1f} copies on average, and one of the "
                f"others has {met:.1f} there, as no random split leaves them. Copies are not "
                "independent, and a claim about one record says less about several: the audit says "
                "nothing about it. Repeat it with distinct records, or pass groups that tell whose "
                "they are."
            )
    return ""


def _met(alike: NDArray[np.uint64], counts: NDArray[np.int64], other: NDArray[np.uint64]) -> float:
    """Return how many copies in one sample a record of the other has on average."""
    place = np.minimum(np.searchsorted(alike, other), len(alike) - 1)
    return float(np.where(alike[place] == other, counts[place], 0).mean())


def why_doubtful(
    results: Sequence[AttackResult], own: Accuracy, new: Accuracy, alpha: float
) -> str:
    """Return why members and non-members look exchanged; empty if they do not.

    Parameters
    ----------
    results : sequence of AttackResult
    own, new : (float, int)
        Share of the members, and of the non-members, on which the model is right, and their
        number; NaN for models that are neither right nor wrong.
    alpha : float
        Error probability over all signs together (Bonferroni).

    Notes
    -----
    A model knows its own records better than new ones, or as well. If every sign points the other
    way, the groups were exchanged or come from different populations.
    """
    share = alpha / (len(results) + 1)
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
        "repeat it with groups from one random split."
    )
