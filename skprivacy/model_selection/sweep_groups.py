"""Cost of privacy and remaining exposure by subgroup, from the results of a sweep."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._sklearn import safe_indexing
from .._validation import check_unmasked, num_samples
from ..attacks import AttackResult
from ..attacks.attack_result import MIN_GROUP_SIZE
from ..audit.report.findings import group_partitions
from ..metrics.rates import auc_p_value, holm
from .sweep_curve import Splits
from .sweep_records import Records, Split


def resolve_subgroups(subgroups: Any, X: Any) -> tuple[str, NDArray[Any]]:
    """Return the name of the subgroups, and the subgroup of each record as text."""
    check_unmasked(subgroups, "subgroups")
    name, of_each = "subgroup", subgroups
    if isinstance(subgroups, (str, int, np.integer)) and not isinstance(subgroups, bool):
        try:
            name, of_each = str(subgroups), safe_indexing(X, subgroups, axis=1)
        except (KeyError, ValueError, IndexError, TypeError):
            raise ValueError(
                f"subgroups={subgroups!r} must be a column of X, or the group of each record; "
                "there is no such column."
            ) from None
    elif np.shape(subgroups) != (num_samples(X),):
        raise ValueError(
            f"subgroups has shape {np.shape(subgroups)}; expected a value for each of the "
            f"{num_samples(X)} records, or a column of X."
        )
    ((_, (groups, _)),) = group_partitions((of_each, of_each), X, None, X, None).items()
    return name, groups


def measure_groups(
    split: Split, score: Callable[[Records], float], result: AttackResult | None
) -> dict[str, dict[str, float]]:
    """Return the figures of each subgroup on one split.

    These are ``n``, its number of test records; ``score``; ``others``, the score on all other test
    records; ``auc`` of the attack; and ``p_value`` of the null hypothesis that the attack guesses.

    **Edge cases.** Groups of fewer than five test records are left out: so few show nothing, and
    the table itself would disclose their records.
    """
    found = {}
    own, new = split.own.subgroups, split.new.subgroups
    judged = result if result is not None and len(result.scores_in) == len(own) else None
    for group in np.unique(new):
        inside = new == group
        if inside.sum() < MIN_GROUP_SIZE:
            continue
        figures = dict.fromkeys(("others", "auc", "p_value"), math.nan)
        figures |= {"n": int(inside.sum()), "score": score(split.new.take(inside))}
        if (~inside).sum() >= MIN_GROUP_SIZE:
            figures["others"] = score(split.new.take(~inside))
        if judged is not None and (own == group).sum() >= MIN_GROUP_SIZE:
            pair = judged.scores_in[own == group], judged.scores_out[inside]
            figures["auc"] = AttackResult(*pair).auc
            figures["p_value"] = auc_p_value(*pair)
        found[str(group)] = figures
    return found


def tabulate_groups(
    rows: list[dict[str, Any]],
    reference: list[dict[str, Any]],
    what: tuple[str, str],
    splits: Splits,
    alpha: float,
    largest_loss: float = math.inf,
) -> pd.DataFrame:
    """Return a row for each private candidate and each subgroup.

    Each of ``rows`` has ``model``, ``epsilon`` and ``groups``, the figures of each group on each of
    two splits or more; ``reference`` has the groups of the baseline. ``what`` names the subgroups'
    column and the baseline. ``largest_loss`` is 1 for scores in [0, 1]: every loss is in [-1, 1],
    so an interval keeps its coverage when it is cut off there.

    **Guarantees.** With probability at least 1 - ``alpha``, no "pays" of the whole table is false
    (Holm), if the variance of paired splits is right. The same holds for "exposed" under any
    dependence of the splits, because twice the mean of p-values is a p-value (Rueschendorf 1982).
    """
    found = [
        _group_row(row, reference, group)
        for row in rows
        for group in sorted(set.intersection(*map(set, row["groups"])))  # seen on every split
    ]
    if not found:
        return pd.DataFrame(columns=[*_COLUMNS])
    table = pd.DataFrame(found).assign(by=what[0], compared_with=what[1])
    lost, excess = (np.stack(table.pop(name)) for name in ("lost", "excess"))
    table["loss"], error = lost.mean(axis=1), splits.error(_variances(lost, table["n_test"]))
    width = splits.quantile(1 - alpha / (2 * len(table))) * error
    ends = table["loss"] - width, table["loss"] + width
    # The true loss is in this range: cutting off the rest loses no coverage.
    low, high = (np.clip(end, -largest_loss, largest_loss) for end in ends)
    table["loss_low"], table["loss_high"] = low, high
    error = splits.error(_variances(excess, table["n_test"]))
    table["pays_p_value"] = splits.p_value(excess.mean(axis=1), error)
    for finding in ("pays", "exposed"):
        table[f"{finding}_p_value"] = holm(table[f"{finding}_p_value"])
        table[finding] = table[f"{finding}_p_value"] <= alpha
    return table[[*_COLUMNS]]


_COLUMNS = (
    "model", "epsilon", "by", "group", "n_test", "test_score", "test_score_std",
    "compared_with", "loss", "loss_low", "loss_high", "pays", "pays_p_value",
    "attack_auc", "attack_auc_std", "exposed", "exposed_p_value",
)  # fmt: skip


def _group_row(row: dict[str, Any], reference: list[dict[str, Any]], group: str) -> dict[str, Any]:
    figures, free = _figures_by_split(row["groups"], group), _figures_by_split(reference, group)
    lost = free["score"] - figures["score"]
    return {
        "model": row["model"],
        "epsilon": row["epsilon"],
        "group": group,
        "n_test": figures["n"].mean(),
        "test_score": figures["score"].mean(),
        "test_score_std": figures["score"].std(),
        "lost": lost,
        "excess": lost - (free["others"] - figures["others"]),
        "attack_auc": figures["auc"].mean(),
        "attack_auc_std": figures["auc"].std(),
        "exposed_p_value": np.minimum(1.0, 2 * figures["p_value"].mean()),
    }


def _variances(values: NDArray[np.float64], n_test: Any) -> NDArray[np.float64]:
    """Return the variance of each row over splits, at least the median scaled to its test records.

    Scores of few records are coarse: two splits often have equal losses by chance, and a variance
    of zero would turn that into certainty.
    """
    own, n = values.var(axis=1, ddof=1), np.asarray(n_test, dtype=float)
    known = own[np.isfinite(own)]
    usual = np.median(known * n[np.isfinite(own)]) / n if len(known) else np.nan
    return np.maximum(own, usual)


def _figures_by_split(groups: list[dict[str, Any]], group: str) -> dict[str, NDArray[np.float64]]:
    """Return each figure of a group as an array over splits."""
    names = ("n", "score", "others", "auc", "p_value")
    return {k: np.array([split[group][k] for split in groups], dtype=float) for k in names}
