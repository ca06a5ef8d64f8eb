"""Epsilons and subgroups read off a sweep, with intervals over its splits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from .._sklearn import safe_indexing
from .._validation import check_unmasked, num_samples
from ..attacks import AttackResult
from ..attacks.attack_result import MIN_GROUP_SIZE
from ..audit.report.findings import group_partitions
from ..metrics.rates import auc_p_value, holm
from .sweep_records import Records, Split

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EpsilonInterval:
    """A privacy level that was read off a sweep; **no guarantee covers the choice**.

    Attributes
    ----------
    epsilon : float
        The level. Infinity if no swept level is sufficient.
    low, high : float
        The levels between which it lies. Infinity if the results do not bound it.
    meaning : str
        Description of the quantity.
    """

    epsilon: float
    low: float
    high: float
    meaning: str

    def __repr__(self) -> str:
        best = "none of those swept" if math.isinf(self.epsilon) else f"{self.epsilon:g}"
        ends = f"at least {self.low:g}"
        if math.isfinite(self.high):
            ends = f"from {self.low:g} to {self.high:g}"
        return f"{self.meaning}: {best}" + f" ({ends})" * math.isfinite(self.low)


@dataclass(frozen=True)
class Splits:
    """Corrected errors of means over cross-validation splits (Nadeau and Bengio 2003).

    Splits share training records, so the variance of their mean is (1 / n + test_per_train) times
    the variance of a split. It does not vanish with repeated splits: these steady the mean, but
    hold no new information about the population (Bouckaert and Frank 2004).
    """

    n: int
    test_per_train: float  # test records per training record

    def error(self, variance: Any) -> Any:
        """Return the standard error of a mean over splits."""
        return np.sqrt((1 / self.n + self.test_per_train) * variance)

    def quantile(self, probability: float) -> float:
        return float(stats.t.ppf(probability, self.n - 1))

    def interval(self, values: Floats, alpha: float) -> tuple[Floats, Floats, Floats]:
        """Return the mean of each row over splits and the ends of its interval."""
        mean = values.mean(axis=-1)
        width = self.quantile(1 - alpha / 2) * self.error(values.var(axis=-1, ddof=1))
        return mean, mean - width, mean + width

    def p_value(self, mean: Floats, error: Floats) -> Floats:
        """Return the p-values of means of at most 0; 1 where nothing varies, NaN stays."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = stats.t.sf(mean / error, self.n - 1)
        return np.where(error == 0, 1.0, found)


def is_useless(scores: Floats, constant: Floats | float) -> NDArray[np.bool_]:
    """Return whether the constant predictor has at least the mean score of each row.

    The scores are paired by split. A NaN shows nothing, so it is not useless.
    """
    useless: NDArray[np.bool_] = (scores - constant).mean(axis=-1) <= 0
    return useless


def smallest_epsilon(
    epsilons: Floats,
    scores: Floats,
    reference: Floats,
    loss: float,
    splits: Splits,
    alpha: float,
    name: str,
    constant: Floats | float = -math.inf,
) -> EpsilonInterval:
    """Return the smallest epsilon from which on at most ``loss`` of the score is lost.

    ``epsilons`` increases, ``scores`` has a row for each epsilon and a column for each split, and
    ``reference`` a score for each split, like ``constant``. No useless level counts. Losses are
    paired by split. Levels are tested in sequence. ``high`` is the last one, from the largest down,
    at which the loss is shown to be at most ``loss``, and the score to be above the constant. A
    level must pass both tests, so together they err no more often than one. ``low`` is the first
    one, from the smallest up, at which the loss is not shown to be larger. Only the first error of
    a sequence counts, so both ends together err with probability ``alpha``. This assumes that a
    larger epsilon never loses more, and that the variance of :class:`Splits`, which is a heuristic,
    is right.
    """
    lost, least, most = splits.interval(reference - scores, alpha)
    is_better = np.ones(len(epsilons), dtype=bool)
    if np.isfinite(constant).all():
        is_better = splits.interval(scores - constant, alpha)[1] > 0
    return EpsilonInterval(
        _first_lasting_level(epsilons, (lost <= loss) & ~is_useless(scores, constant)),
        float(np.r_[epsilons, math.inf][np.r_[least <= loss, True].argmax()]),
        _first_lasting_level(epsilons, (most <= loss) & is_better),
        f"smallest epsilon that loses at most {loss:g} against {name}",
    )


def knee(epsilons: Floats, scores: Floats, constant: Floats | float = -math.inf) -> EpsilonInterval:
    """Return where the mean score over ln epsilon lies farthest above its chord.

    This is the offline Kneedle of Satopaa et al. (2011), without smoothing, above the constant
    predictor. The ends are the smallest and the largest knee of a single split.
    """
    floors = np.broadcast_to(constant, scores.shape[1])
    of_splits = [
        _knee(epsilons, column, column <= floor)
        for column, floor in zip(scores.T, floors, strict=True)
    ]
    whole = _knee(epsilons, scores.mean(axis=1), is_useless(scores, constant))
    return EpsilonInterval(whole, min(of_splits), max(of_splits), "knee")


def _knee(epsilons: Floats, scores: Floats, useless: NDArray[np.bool_]) -> float:
    if useless.all():
        return math.inf
    x = np.log(epsilons)
    rise = np.interp(x, x[[0, -1]], scores[[0, -1]])
    return float(epsilons[int(np.where(useless, -math.inf, scores - rise).argmax())])


def _first_lasting_level(epsilons: Floats, good: NDArray[np.bool_]) -> float:
    """Return the first level from which on all are good, or infinity."""
    bad = np.flatnonzero(~good)
    first = int(bad[-1]) + 1 if len(bad) else 0
    return float(epsilons[first]) if first < len(epsilons) else math.inf


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
