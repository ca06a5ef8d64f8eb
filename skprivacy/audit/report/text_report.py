"""Plain-text form of an audit report."""

from __future__ import annotations

import math
from typing import Any

from ..._html import format_guarantee

__all__ = ["render_text"]


def _charged(report: Any) -> list[str]:
    if not report.cost_of_search:
        return []
    return [f"  charged:  {format_guarantee(report.charged, 'unknown')}, all fits together"]


def _accuracy(report: Any) -> list[str]:
    if math.isnan(report.test_accuracy):
        return []
    return [
        f"  accuracy {100 * report.test_accuracy:.0f} % on new records "
        f"(most frequent class: {100 * report.majority_share:.0f} %)"
    ]


def render_text(report: Any) -> str:
    """Return the verdict, the claim, the measurements and all caveats as text."""
    shown = report.guarantee if report.claims else report.charged if report.cost_of_search else None
    assumed = () if shown is None else shown.assumptions
    first = [report.doubt] if report.doubt else [] if report.could_refute else report._too_few()
    lines = [
        f"Audit: {report.verdict}",
        *(f"  ! {caveat}" for caveat in first),
        f"  claimed:  {format_guarantee(report.guarantee)}",
        *([] if shown is None else [f"            {shown.noise_in_words}"]),
        *_charged(report),
        *(f"            if {assumption}" for assumption in assumed),
        f"  measured: epsilon of at least {report.epsilon_lower_bound:.3g} at delta "
        f"{report.claimed_delta:g} (confidence {1 - report.alpha:.0%}); "
        "a lower bound proves no privacy",
        *(f"            if {assumption}" for assumption in report.assumptions),
        *(f"  refuted by {text}" for text in report.refutations if report.claims),
        *_accuracy(report),
    ]
    for finding in report.findings:
        low, high = finding.result.auc_interval
        lines.append(
            f"  {finding.result.attack}: AUC {finding.result.auc:.3f} [{low:.3f}, {high:.3f}], "
            f"epsilon of at least {finding.epsilon_lower_bound:.3g}"
        )
    lines += [
        f"  most exposed: {worst.by} {worst.group}, AUC {worst.auc:.3f} "
        f"[{worst.auc_low:.3f}, {worst.auc_high:.3f}] ({worst.attack})"
        for worst in report.most_exposed[:1]
        if worst.exposed
    ]
    if report.disclosure is not None and report.disclosure.flagged:
        lines.append("  signs of disclosure, which do not prove a leak:")
        found = [check for check in report.disclosure.checks if check.flagged]
        lines += [f"    {check.name}: {check.says}" for check in found]
    lines += [f"  ! {caveat}" for caveat in report.caveats if caveat not in first]
    return "\n".join(lines)
