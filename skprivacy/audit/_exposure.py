"""Exposure of classes, subgroups and single records, corrected for multiple comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._data_validation import type_of_target
from .._sklearn import num_samples, safe_indexing
from ..attacks import AttackResult
from ..attacks.result import MIN_GROUP_SIZE
from ..metrics import auc, auc_interval
from ..metrics._area import auc_p_value
from ..metrics._multiplicity import holm

__all__ = ["GroupExposure", "exposed_records", "group_exposures", "group_partitions"]

MOST_SUBGROUPS = 100
Partition = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class GroupExposure:
    """How well one attack separates the members of one group from its non-members.

    Attributes
    ----------
    by : str
        The grouping: "class", or the name of the subgroups' column.
    group : str
        Value of the group.
    attack : str
        Name of the attack.
    n_in, n_out : int
        Number of members and non-members in the group.
    auc, auc_low, auc_high : float
        Area under the ROC curve, and its interval. All intervals of a report hold jointly.
    p_value : float
        Adjusted by Holm's method for all attacks and groups of a report.
    exposed : bool
        Whether the members score above the non-members of the group, beyond chance.
    """

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
    if (
        len(distinct := np.unique(np.concatenate([_as_text(part) for part in pair])))
        > MOST_SUBGROUPS
    ):
        raise ValueError(
            f"subgroups has {len(distinct):,} different values; expected at most {MOST_SUBGROUPS}. "
            "Merge values, such as ages into decades."
        )
    return partitions | {name: (_as_text(pair[0]), _as_text(pair[1]))}


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
    """Return the values as text, in which missing values form a group too."""
    flat = values.toarray().ravel() if hasattr(values, "toarray") else np.asarray(values).ravel()
    return np.array([_text(value) for value in flat.tolist()], dtype=str)


def _text(value: Any) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return "missing"
    return f"{value:g}" if isinstance(value, float) else str(value)
