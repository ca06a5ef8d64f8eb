"""Signs that the groups of an audit are not what it takes them for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..attacks import AttackResult
from ..metrics import auc_interval, clopper_pearson

__all__ = ["Accuracy", "why_doubtful"]

Accuracy = tuple[float, int]


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
