"""Claim that a user passes to an audit: epsilon, (epsilon, delta), an event or a guarantee.

:func:`read_claim` converts and checks it once, for all audits, verifications and commands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..._validation import is_number
from ...accounting import ApproxDPEvent, Event, PrivacyGuarantee
from .claims import Claim

PASSED = "the passed claim was obtained correctly, which nothing here shows"
_DELTA = 1e-5  # at which an event without a finite epsilon at delta 0 states its epsilon
_ACCEPTED = """\
claim : float, (float, float), Event or PrivacyGuarantee{}
    The claim to test: epsilon; epsilon and delta; an event, such as ``GaussianEvent(1 / mu)`` for
    the trade-off curve of mu-GDP; or a guarantee, for another relation or unit. A number or an
    event is read as a claim for added or removed units. Its whole trade-off curve is tested."""
CLAIM_DOCS = {"claim": _ACCEPTED.format(", default=None"), "required_claim": _ACCEPTED.format("")}


def read_claim(claim: Any, unit: str = "record") -> PrivacyGuarantee | None:
    """Return a passed claim as a guarantee, an estimate unless it was passed as a guarantee."""
    if claim is None:
        return None
    if isinstance(claim, PrivacyGuarantee):
        guarantee = claim
    elif isinstance(claim, Event):
        pure = _as_passed(PrivacyGuarantee(claim, unit=unit))
        guarantee = pure if _has_epsilon(pure) else replace(pure, at_delta=_DELTA)
    else:
        epsilon, delta = _read_numbers(claim)
        event = ApproxDPEvent(epsilon, delta)
        guarantee = _as_passed(PrivacyGuarantee(event, delta or None, unit=unit))
    if not _has_epsilon(guarantee):
        raise ValueError(
            f"claim={type(claim).__name__} has no finite epsilon at delta "
            f"{guarantee.at_delta or 0:g}, so nothing can refute it. Pass a finite claim, such as "
            "claim=(1.0, 1e-6)."
        )
    return guarantee


def claim_to_test(own: Claim, claim: Any, unit: str = "record") -> Claim:
    """Return the passed claim, beside the model's own; the model's own if none was passed."""
    guarantee = read_claim(claim, unit)
    return own if guarantee is None else Claim(_as_passed(guarantee), own=own)


def _as_passed(guarantee: PrivacyGuarantee) -> PrivacyGuarantee:
    """Return a guarantee as an estimate: an audit does not see how it was obtained."""
    assumptions = tuple(dict.fromkeys([*guarantee.assumptions, PASSED]))
    return replace(guarantee, kind="estimate", assumptions=assumptions)


def _has_epsilon(guarantee: PrivacyGuarantee) -> bool:
    """Return whether a guarantee has a finite epsilon at its delta."""
    try:
        return math.isfinite(guarantee.epsilon())
    except ValueError:  # of an event without a finite epsilon at delta 0
        return False


def _read_numbers(claim: Any) -> tuple[float, float]:
    """Return epsilon and delta of a number or of a pair."""
    is_pair = isinstance(claim, Sequence) and not isinstance(claim, str)
    given = [*claim] if is_pair else [claim, 0.0]
    if len(given) != 2 or not all(map(is_number, given)):
        raise TypeError(
            f"claim={claim!r} must be a number (epsilon), a pair (epsilon, delta), an Event, a "
            "PrivacyGuarantee, or None. Pass, for example, claim=(1.0, 1e-6)."
        )
    epsilon, delta = map(float, given)
    if not (0 <= epsilon < math.inf and 0 <= delta < 1):
        raise ValueError(
            f"claim={claim!r} must have a finite epsilon of at least 0, and a delta of at least 0 "
            "and below 1. Pass, for example, claim=(1.0, 1e-6)."
        )
    return epsilon, delta
