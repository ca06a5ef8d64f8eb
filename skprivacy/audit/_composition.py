"""Composition of several guarantees about the same records, or the reason for none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..accounting import Composed, PrivacyGuarantee, weakest_arithmetic

__all__ = ["compose_guarantees"]


def compose_guarantees(guarantees: Sequence[PrivacyGuarantee]) -> PrivacyGuarantee:
    """Return the joint guarantee of several releases about the same records.

    ``at_delta`` is the sum of the parts, so that events with a positive failure probability keep a
    finite epsilon. A single guarantee is returned unchanged. Raises ValueError if the relations or
    units differ, or if the deltas sum to 1 or more.
    """
    first = guarantees[0]
    if len(guarantees) == 1:
        return first
    _check_equal("relations", (g.relation.replace("_", "-") for g in guarantees))
    _check_equal("units", (g.unit for g in guarantees))
    # Basic composition: deltas add up; the events compose to a tighter joint epsilon.
    deltas = [g.at_delta for g in guarantees if g.at_delta is not None]
    if math.fsum(deltas) >= 1:
        raise ValueError("the deltas of the parts add up to 1 or more")
    return replace(
        first,
        event=Composed(tuple(g.event for g in guarantees)),
        at_delta=math.fsum(deltas) if deltas else None,
        kind="proved" if all(g.kind == "proved" for g in guarantees) else "estimate",
        assumptions=tuple(dict.fromkeys(a for g in guarantees for a in g.assumptions)),
        arithmetic=weakest_arithmetic(g.arithmetic for g in guarantees),
    )


def _check_equal(what: str, values: Iterable[str]) -> None:
    found = sorted(set(values))
    if len(found) > 1:
        raise ValueError(
            f"the parts hold for the {what} {' and '.join(found)}, which are never added up"
        )
