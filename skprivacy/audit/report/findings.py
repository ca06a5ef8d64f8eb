"""Findings of an audit: evidence of attacks against the claim, exposed groups, copied records.

:class:`AttackFinding` compares an attack with the whole claimed trade-off curve.
:class:`GroupExposure` ranks classes and subgroups, corrected for multiple comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..._clones import call_model
from ..._input_data import type_of_target
from ..._sklearn import safe_indexing
from ..._validation import num_samples
from ...accounting import LedgerError, PrivacyBudget, PrivacyGuarantee
from ...accounting.guarantee import auc_ceiling
from ...attacks import AttackResult
from ...attacks.attack_result import MIN_GROUP_SIZE
from ...attacks.model_answers import labels_as_text, targets_as_array
from ...metrics import auc
from ...metrics.evidence import Evidence, gather_evidence
from ...metrics.rates import auc_interval, auc_p_value, holm
from ...persistence.state import released_digest
from ..inspection.claims import Claim
from ..inspection.member_groups import MemberGroups

MOST_SUBGROUPS = 100
Partition = tuple[NDArray[Any], NDArray[Any]]
Evaluated = tuple[NDArray[np.int64], NDArray[np.int64]]
UPSIDE_DOWN = ", with its scores reversed"
Float64Array = NDArray[np.float64]
Curve = Callable[[Float64Array], Float64Array]
FPRS = (0.01, 0.001)
# Average number of copies of a record in its own sample, above which intervals for independent
# records are too narrow (up to 1 their slack covers it); and the ratio of copies in the other
# sample to copies in its own, below which no random split is possible.
_COPIES, _RARER = 1.0, 0.1


@dataclass(frozen=True)
class AttackFinding:
    """Result of one attack, compared with the claimed guarantee."""

    result: AttackResult  # the scores, and all figures derived from them
    epsilon_lower_bound: float  # refuted at the claim's delta, corrected for the number of attacks
    # For each reported false positive rate: fpr, tpr, low, high, realised_fpr, refused and bound,
    # the highest tpr that the claim allows (None without a claim).
    points: tuple[dict[str, Any], ...]
    refutation: str = ""  # how the attack contradicts the claimed trade-off curve, in words
    shown_by: str = ""  # test that shows the epsilon, in words; it may lie far from the points
    shown_at: tuple[float, float] | None = None  # its false and true positive rate, bounded
    evaluated: Evaluated | None = None  # positions of the scored units; None if all were scored

    @classmethod
    def from_result(
        cls, result: AttackResult, guarantee: PrivacyGuarantee | None, alpha: float,
        corrected: float, evaluated: Evaluated | None = None,
    ) -> AttackFinding:  # fmt: skip
        """Compare a result with a claim; bound and refutation together err with ``corrected``."""
        result = replace(result, alpha=alpha)
        delta = claimed_delta(guarantee)
        points = []
        for fpr in FPRS:
            point = result.tpr_at_fpr(fpr)
            points.append(
                {
                    "fpr": fpr,
                    "tpr": point.tpr,
                    "low": point.interval[0],
                    "high": point.interval[1],
                    "realised_fpr": point.realised_fpr,
                    "refused": point.refused,
                    "bound": None if guarantee is None else float(guarantee.tpr_bound(fpr)),
                }
            )
        found = evidence_against(result.scores_in, result.scores_out, guarantee, corrected)
        return cls(
            result,
            found.epsilon(delta),
            tuple(points),
            refutation(found, guarantee),
            origin_in_words(found, delta),
            origin_point(found, delta),
            evaluated,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON, without the scores of records."""
        return {
            "attack": self.result.attack,
            "auc": self.result.auc,
            "auc_interval": list(self.result.auc_interval),
            "points": list(self.points),
            "epsilon_lower_bound": self.epsilon_lower_bound,
            "refutation": self.refutation,
            "shown_by": self.shown_by,
            "shown_at": None if self.shown_at is None else list(self.shown_at),
        }


@dataclass(frozen=True)
class GroupExposure:
    """How well one attack separates the members of one group from its non-members."""

    by: str
    group: str
    attack: str
    n_in: int
    n_out: int
    auc: float
    auc_low: float
    auc_high: float
    p_value: float
    exposed: bool


def group_partitions(
    subgroups: Any, X_train: Any, y_train: Any, X_test: Any, y_test: Any
) -> dict[str, Partition]:
    """Return the groups of members and of non-members, by the name of each grouping."""
    partitions = {}
    if y_train is not None and type_of_target(y_train) in ("binary", "multiclass"):
        partitions["class"] = (_as_text(y_train), _as_text(y_test))
    if subgroups is None:
        return partitions
    if isinstance(subgroups, (str, int, np.integer)) and not isinstance(subgroups, bool):
        name = str(subgroups)
        try:
            pair = tuple(safe_indexing(X, subgroups, axis=1) for X in (X_train, X_test))
        except (KeyError, ValueError, IndexError, TypeError):
            raise ValueError(
                f"subgroups={subgroups!r} must be a column of X_train and X_test, or a pair of "
                f"arrays (groups_train, groups_test); there is no such column."
            ) from None
    else:
        name, pair = "subgroup", _checked_pair(subgroups, X_train, X_test)
    inside, outside = map(_as_text, pair)
    if (n := len(np.unique(np.concatenate([inside, outside])))) > MOST_SUBGROUPS:
        raise ValueError(
            f"subgroups has {n:,} different values; expected at most {MOST_SUBGROUPS}. Merge "
            "values, such as ages into decades."
        )
    return partitions | {name: (inside, outside)}


def group_exposures(
    results: Sequence[AttackResult], partitions: dict[str, Partition], alpha: float
) -> tuple[GroupExposure, ...]:
    """Compare members with non-members, for every attack and every group.

    The probability that any group is wrongly called exposed is at most ``alpha`` over all attacks
    and groups (Holm), and so is the probability that any interval misses (Bonferroni). Groups are
    sorted by the lower ends of their intervals. Groups of fewer than five members or non-members
    are left out: they show nothing, and a table of them would itself disclose.
    """
    found = []
    for result in results:
        for by, (groups_in, groups_out) in partitions.items():
            if len(result.scores_in) != len(groups_in):  # evaluated on part of the records
                continue
            for group in np.intersect1d(groups_in, groups_out):
                scores_in = result.scores_in[groups_in == group]
                scores_out = result.scores_out[groups_out == group]
                if min(len(scores_in), len(scores_out)) < MIN_GROUP_SIZE:
                    continue
                found.append((by, str(group), result.attack, scores_in, scores_out))
    # Holm 1979: adjusted p-values over all groups and attacks.
    adjusted = holm([auc_p_value(scores_in, scores_out) for *_, scores_in, scores_out in found])
    exposures = []
    for (by, group, attack, scores_in, scores_out), p_value in zip(found, adjusted, strict=True):
        # Bonferroni: each interval gets an equal share of alpha.
        low, high = auc_interval(scores_in, scores_out, alpha=alpha / len(found))
        area, sizes = auc(scores_in, scores_out), (len(scores_in), len(scores_out))
        exposures.append(
            GroupExposure(
                by, group, attack, *sizes, area, low, high, float(p_value), bool(p_value <= alpha)
            )
        )
    return tuple(sorted(exposures, key=lambda e: (-e.auc_low, -e.auc)))


def exposed_records(results: Sequence[AttackResult], alpha: float) -> pd.DataFrame:
    """Return the rows of members that stand out beyond chance, and the attack that shows each.

    At most an expected share ``alpha`` of them are false discoveries, over all attacks: each attack
    gets an equal part of ``alpha`` (Benjamini and Hochberg).
    """
    found = []
    for result in results:
        # Benjamini and Hochberg 1995, with an equal share of alpha for each attack.
        table = replace(result, alpha=alpha / len(results)).records()
        table = table[table["exposed"]].rename_axis("row").reset_index()
        if len(table):
            found.append(table.assign(attack=result.attack))
    columns = ["row", "attack", "risk", "q_value"]
    if not found:
        return pd.DataFrame(columns=columns)
    ranked = pd.concat(found)[columns].sort_values(["q_value", "risk", "row"], kind="stable")
    return ranked.drop_duplicates("row").reset_index(drop=True)


def origin_point(evidence: Evidence, delta: float) -> tuple[float, float] | None:
    """Return the rates of the test that shows epsilon, for a plot; None if the AUC does."""
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
            f"it finds at least {_as_share(share)} of the members at no more than "
            f"{_as_share(wrong)} false alarms"
        )
    else:
        text = (
            f"it clears at least {_as_share(share)} of the other records of having been used, and "
            f"at most {_as_share(wrong)} of the members with them"
        )
    return f"{text}{UPSIDE_DOWN}" if reverse else text


def curve_of_chords(guarantee: Any, least: float, n: int) -> Curve:
    """Return chords of a concave claimed curve, slightly below it, to choose tests quickly."""
    low = np.geomspace(least, 0.5, n)
    fpr = np.r_[0.0, low, (1 - low[:-1])[::-1], 1.0]
    tpr = guarantee.tpr_bound(fpr)
    return lambda rates: np.interp(rates, fpr, tpr)


def refutation(evidence: Evidence, guarantee: PrivacyGuarantee | None) -> str:
    """Return how the evidence contradicts the claimed curve, in words; empty if it does not.

    All bounds of the evidence hold jointly. So a true claim is refuted with at most the error
    probability of the evidence, for any number of compared points of the curve.
    """
    if guarantee is None or not _bounds_anything(guarantee):
        return ""
    for tpr, fpr, _ in evidence.points:
        if tpr > (allowed := float(guarantee.tpr_bound(fpr))):
            return (
                f"a true positive rate of at least {tpr:.3g} at a false positive rate of at most "
                f"{fpr:.3g}, where the claim allows {allowed:.3g}"
            )
    if evidence.area > (allowed := auc_ceiling(guarantee)):
        read = UPSIDE_DOWN if evidence.mirrored else ""
        return f"an AUC of at least {evidence.area:.3g}{read}, where the claim allows {allowed:.3g}"
    return ""


def claimed_delta(guarantee: Any) -> float:
    """Return the delta of the claimed epsilon; 0 for pure differential privacy."""
    return 0.0 if guarantee is None else float(guarantee.at_delta or 0.0)


def evidence_against(scores_in: Any, scores_out: Any, guarantee: Any, alpha: float) -> Evidence:
    """Return the evidence of the scores, at the delta of the claim and against its whole curve."""
    curve = curve_of_chords(guarantee, 1e-6, 200) if _bounds_anything(guarantee) else None
    delta = claimed_delta(guarantee)
    return gather_evidence(scores_in, scores_out, delta=delta, alpha=alpha, curve=curve)


def report_facts(
    model: Any, claim: Claim, X_train: Any, y_train: Any, X_test: Any, y_test: Any,
    member_groups: MemberGroups | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the fields of a report about the model, its claim and its records or groups."""
    facts = {
        "model": " ".join(repr(model).split()),
        "guarantee": claim.guarantee,
        "reason": claim.reason,
        "uncovered": claim.uncovered,
        "charged": claim.charged,
        "own_claim": claim.own,
        "n_train": num_samples(X_train),
        "n_test": num_samples(X_test),
        "train_accuracy": _accuracy(model, X_train, y_train),
        "test_accuracy": _accuracy(model, X_test, y_test),
        "majority_share": _majority_share(model, y_test),
        "ledger_caveats": ledger_caveats([model]),
        "released_digest": "" if claim.guarantee is None else released_digest(model),
    }
    return facts | group_facts(member_groups)


def group_facts(member_groups: MemberGroups | None) -> dict[str, Any]:
    """Return the fields of a report about groups, if groups were attacked; else none."""
    if member_groups is None:
        return {}
    return {
        "n_train": member_groups.inside.n,
        "n_test": member_groups.outside.n,
        "attacked": member_groups.unit,
    }


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
    for side, own, other in (("members", members, others), ("non-members", others, members)):
        alike, counts = np.unique(own, return_counts=True)
        copies = float((counts * (counts - 1)).sum() / len(own))
        place = np.minimum(np.searchsorted(alike, other), len(alike) - 1)
        # Average number of copies in this sample of a record of the other sample.
        met = float(np.where(alike[place] == other, counts[place], 0).mean())
        if copies > _COPIES and met < _RARER * copies:
            return (
                f"Among the {side}, a record has {copies:.1f} copies on average, and a record of "
                f"the other sample has {met:.1f} copies there. No random split does this. Copies "
                "are not independent, and a claim about one record says less about several, so the "
                "audit says nothing about the claim. Repeat it with distinct records, or pass the "
                "groups that the records belong to."
            )
    return ""


def _checked_pair(subgroups: Any, X_train: Any, X_test: Any) -> tuple[Any, Any]:
    pair = tuple(subgroups) if isinstance(subgroups, (list, tuple)) else ()
    wanted = (num_samples(X_train), num_samples(X_test))
    if len(pair) != 2 or any(np.ndim(part) != 1 for part in pair):
        raise ValueError(
            f"subgroups={type(subgroups).__name__} must be a column of X_train and X_test, or a "
            "pair of arrays (groups_train, groups_test)."
        )
    if (given := tuple(map(len, pair))) != wanted:
        raise ValueError(
            f"subgroups has {given[0]:,} and {given[1]:,} values; expected one for each record, "
            f"{wanted[0]:,} in X_train and {wanted[1]:,} in X_test."
        )
    return pair


def _as_text(values: Any) -> NDArray[Any]:
    """Return the values as text; missing values form one group."""
    flat = values.toarray().ravel() if hasattr(values, "toarray") else np.asarray(values).ravel()
    return np.array([_text(value) for value in flat.tolist()], dtype=str)


def _text(value: Any) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return "missing"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _as_share(share: float) -> str:
    """Return a share in per cent with three digits."""
    return f"{100 * share:.3g} %"


def _bounds_anything(guarantee: PrivacyGuarantee | None) -> bool:
    """Return whether a guarantee has a finite epsilon."""
    return guarantee is not None and math.isfinite(guarantee.epsilon())


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
