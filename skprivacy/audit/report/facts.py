"""Facts and caveats of an audit report that do not depend on the attacks.

The caveats are limits of the claim and of the measurement, and signs that the samples are copies of
each other or were exchanged. Start reading at :func:`report_facts`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._clones import call_model
from ..._sklearn import num_samples
from ...accounting import LedgerError, PrivacyBudget
from ...attacks import AttackResult
from ...attacks.model_answers import labels_as_text, targets_as_array
from ...metrics import auc_interval, clopper_pearson
from ..inspection.claims import NO_CLAIM, Claim
from ..inspection.member_groups import MemberGroups

__all__ = [
    "Accuracy",
    "explain_copies",
    "explain_exchange",
    "group_facts",
    "ledger_caveats",
    "list_caveats",
    "report_facts",
]

# Average number of copies of a record in its own sample, above which intervals for independent
# records are too narrow (up to 1 their slack covers it); and the ratio of copies in the other
# sample to copies in its own, below which no random split is possible.
_COPIES, _RARER = 1.0, 0.1
Accuracy = tuple[float, int]


def report_facts(
    model: Any, claim: Claim, X_train: Any, y_train: Any, X_test: Any, y_test: Any
) -> dict[str, Any]:
    """Return the fields of a report about the model, its claim and its records."""
    return {
        "model": " ".join(repr(model).split()),
        "guarantee": claim.guarantee,
        "reason": claim.reason,
        "uncovered": claim.uncovered,
        "charged": claim.charged,
        "n_train": num_samples(X_train),
        "n_test": num_samples(X_test),
        "train_accuracy": _accuracy(model, X_train, y_train),
        "test_accuracy": _accuracy(model, X_test, y_test),
        "majority_share": _majority_share(model, y_test),
        "ledger_caveats": ledger_caveats([model]),
    }


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


def group_facts(people: MemberGroups | None) -> dict[str, Any]:
    """Return the fields of a report about groups, if groups were attacked; else none."""
    if people is None:
        return {}
    return {"n_train": people.inside.n, "n_test": people.outside.n, "attacked": people.unit}


def _mean_copies(
    alike: NDArray[np.uint64], counts: NDArray[np.int64], other: NDArray[np.uint64]
) -> float:
    """Return the average number of copies, in one sample, of a record of the other sample."""
    place = np.minimum(np.searchsorted(alike, other), len(alike) - 1)
    return float(np.where(alike[place] == other, counts[place], 0).mean())


def _accuracy(model: Any, X: Any, y: Any) -> float:
    """Return the share of records with all labels right; NaN for models without classes."""
    if not hasattr(model, "classes_"):
        return float("nan")
    right = np.asarray(call_model(model, "predict", X)) == targets_as_array(y, num_samples(X))
    return float(np.mean(right.reshape(len(right), -1).all(axis=1)))


def _majority_share(model: Any, y: Any) -> float:
    if not hasattr(model, "classes_"):
        return float("nan")
    labels = labels_as_text(targets_as_array(y, 0))
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))
