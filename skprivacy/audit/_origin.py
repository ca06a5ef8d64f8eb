"""The test that shows an attack's epsilon, in words and as a point of its ROC curve."""

from __future__ import annotations

from ..metrics._evidence import Evidence

__all__ = ["UPSIDE_DOWN", "origin_in_words", "origin_point"]

UPSIDE_DOWN = ", with its scores reversed"


def origin_point(evidence: Evidence, delta: float) -> tuple[float, float] | None:
    """Return the false and the true positive rate to mark in a plot; None if there are none.

    They bound the rates of the test that refutes the largest epsilon. The test uses one half of the
    records, so the point lies beside the curve of all records. There is no point if epsilon is 0,
    or comes from the area under the curve.
    """
    rates = evidence.strongest(delta)
    if rates is None:
        return None
    return (rates.tpr, rates.fpr) if rates.reverse else (rates.fpr, rates.tpr)


def origin_in_words(evidence: Evidence, delta: float) -> str:
    """Return the test that shows the attack's epsilon, in words; empty if epsilon is 0."""
    if not evidence.epsilon(delta) > 0:
        return ""
    rates = evidence.strongest(delta)
    if rates is None:
        text = f"the area under its whole curve is at least {evidence.area:.3g}"
        return f"{text}{UPSIDE_DOWN}" if evidence.mirrored else text
    tpr, fpr, reverse = rates
    by_high = tpr - delta > 0 and (tpr - delta) * (1 - tpr) >= (1 - fpr - delta) * fpr
    share, wrong = (tpr, fpr) if by_high else (1 - fpr, 1 - tpr)
    if by_high != reverse:
        text = (
            f"it finds at least {_percent(share)} of the members at no more than "
            f"{_percent(wrong)} false alarms"
        )
    else:
        text = (
            f"it clears at least {_percent(share)} of the other records of having been used, and "
            f"at most {_percent(wrong)} of the members with them"
        )
    return f"{text}{UPSIDE_DOWN}" if reverse else text


def _percent(share: float) -> str:
    """Return a share in per cent with three digits."""
    return f"{100 * share:.3g} %"
