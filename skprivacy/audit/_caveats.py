"""Caveats of an audit report: limits of the claim and of the measurement."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..accounting import LedgerError, PrivacyBudget
from .claims import NO_CLAIM

__all__ = ["ledger_caveats", "list_caveats"]


def ledger_caveats(models: Iterable[Any]) -> tuple[str, ...]:
    """Return what the ledgers of the budgets of some models do not show, each sentence once."""
    found: dict[str, None] = {}
    for model in models:
        params = model.get_params() if hasattr(model, "get_params") else {}
        for budget in params.values():
            if isinstance(budget, PrivacyBudget):
                try:
                    if budget.witness is None:
                        found[budget.rollback_notice] = None
                except LedgerError:  # of a model that was loaded without its ledger
                    found["The ledger of the model's budget cannot be read."] = None
    return tuple(found)


def list_caveats(report: Any) -> list[str]:
    """Return the caveats as sentences; doubts about the samples come first."""
    found = [report.doubt] if report.doubt else []
    if report.guarantee is not None or report.charged is not None:
        found += [f"Step {name!r}: {reason}." for name, reason in report.uncovered.items()]
    if report.uncovered and report.claims:
        found.append(
            "Because of these steps, no guarantee covers the model as it would be released. "
            "The claim would hold only if they revealed nothing about the records."
        )
    if report.guarantee is not None and report.unit != report.attacked:
        found.append(
            f"The claim is for values of {report.unit}, but records were attacked one by one, as "
            "if each value had one record. Pass groups=(groups of members, groups of non-members)."
        )
    if report.reason.startswith(f"{NO_CLAIM} for "):
        found.append(
            f"For a claim about {report.attacked}, train with groups. For a model trained without "
            f"groups, privacy_.group(k, unit={report.attacked!r}) states the claim if no "
            f"{report.attacked} has more than k records."
        )
    if report.not_measured:
        found.append(
            f"Not measured: {' and '.join(report.not_measured)}. {report.why_not_measured}"
        )
    if report.guarantee is not None and report.guarantee.kind != "proved":
        found.append(f"The claim is of kind {report.guarantee.kind!r}: it is not proved.")
    if report.n_shared:
        found.append(
            f"{report.n_shared:,} of the {report.n_test:,} non-members have the features of a "
            f"member. If they are the same {report._members}, the attacks look weaker than they "
            "are."
        )
    found += [*report.ledger_caveats, *report._suspicious(), *report._too_few()]
    refused: dict[float, str] = {}  # one per rate, from the attack with the most records
    for point in (point for finding in report.findings for point in finding.points):
        if point["refused"]:
            refused.setdefault(point["fpr"], point["refused"])
    found += [f"{reason.removeprefix('n_out=')}." for reason in refused.values()]
    return found
