"""Caveats of an audit report: what its samples, its claim or its steps leave in doubt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...attacks import AttackResult
from ...metrics.rates import auc_interval, clopper_pearson
from ..inspection.claims import NO_CLAIM

Accuracy = tuple[float, int]


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
    if report.guarantee is not None and report.claimed_delta * report.n_train >= 1:
        found.append(
            f"delta={report.claimed_delta:g} is not below 1 over the number of {report._members}: "
            f"publishing a {report._member} chosen at random would keep such a claim. Ask for a "
            "far smaller delta."
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
    if report.baseline is not None and report.baseline.caveat:
        found.append(report.baseline.caveat)
    found += [*report.ledger_caveats, *report._suspicious(), *report._too_few()]
    refused: dict[float, str] = {}  # one per rate, from the attack with the most records
    for point in (point for finding in report.findings for point in finding.points):
        if point["refused"]:
            refused.setdefault(point["fpr"], point["refused"])
    found += [f"{reason.removeprefix('n_out=')}." for reason in refused.values()]
    return found


def explain_exchange(
    results: Sequence[AttackResult], own: Accuracy, new: Accuracy, alpha: float
) -> str:
    """Return why members and non-members look exchanged, in words; empty if they do not.

    ``own`` and ``new`` are the accuracy on members and on non-members, NaN for models without
    classes, and their number. A model is at least as accurate on its training records as on new
    ones. If a sign points the other way, the samples were exchanged or come from different
    populations. ``alpha`` is the error probability over all signs (Bonferroni).
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
