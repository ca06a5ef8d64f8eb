"""Where on the curve of an attack its epsilon comes from, in words and as a point."""

from __future__ import annotations

from ..metrics._evidence import Evidence

__all__ = ["UPSIDE_DOWN", "origin_in_words", "origin_point"]

UPSIDE_DOWN = ", once its scores are read upside down"


def origin_point(evidence: Evidence, delta: float) -> tuple[float, float] | None:
    """Return a false positive and a true positive rate, to be marked in a plot of the ROC curve.

    **Guarantees.** They bound the rates of the test that refutes the largest epsilon. The test
    saw one half of the records, so the point lies beside the curve of all of them.

    **Edge cases.** None if epsilon is 0, or comes from the area under the curve.
    """
    rates = evidence.strongest(delta)
    if rates is None:
        return None
    return (rates.tpr, rates.fpr) if rates.reverse else (rates.fpr, rates.tpr)


def origin_in_words(evidence: Evidence, delta: float) -> str:
    """Return what the attack did to show its epsilon; empty if it showed none."""
    if not evidence.epsilon(delta) > 0:
        return ""
    rates = evidence.strongest(delta)
    if rates is None:
        told = f"the area under its whole curve is at least {evidence.area:.3g}"
        return f"{told}{UPSIDE_DOWN}" if evidence.mirrored else told
    tpr, fpr, reverse = rates
    by_high = tpr - delta > 0 and (tpr - delta) * (1 - tpr) >= (1 - fpr - delta) * fpr
    share, wrong = (tpr, fpr) if by_high else (1 - fpr, 1 - tpr)
    if by_high != reverse:
        told = (
            f"it finds at least {_percent(share)} of the members at no more than "
            f"{_percent(wrong)} false alarms"
        )
    else:
        told = (
            f"it clears at least {_percent(share)} of the other records of having been used, and "
            f"at most {_percent(wrong)} of the members with them"
        )
    return f"{told}{UPSIDE_DOWN}" if reverse else told


def _percent(share: float) -> str:
    """Return a share in per cent with three digits."""
    return f"{100 * share:.3g} %"
