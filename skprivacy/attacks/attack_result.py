"""Result of a membership attack: scores of members and non-members, metrics and intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import metrics
from .._docs import fill_docs
from .._files import displayable
from .._validation import as_array, number, open_unit
from ..metrics.rates import (
    Interval,
    OperatingPoint,
    advantage,
    auc_interval,
    auc_p_value,
    benjamini_hochberg,
    check_scores,
    holm,
)
from .group_scores import JOINS, join_group_scores, separate_groups

if TYPE_CHECKING:
    import pandas as pd

REPORTED_FPRS = (0.1, 0.01, 0.001)
MIN_GROUP_SIZE = 5  # members and non-members of a group, below which it is not tested


RESULT_DOCS = {
    "result_parameters": """\
attack : str, default="attack"
    Name of the attack, for tables and plots.
alpha : float, default=0.05
    Error probability of every interval and bound.
details : dict, default={}
    Further figures of the attack, included unchanged in ``to_dict``.""",
    "bound_sections": """\
Parameters
----------
delta : float, default=0.0
    Delta of the tested guarantee, in [0, 1).
alpha : float, default=None
    Error probability of the bound. ``None`` uses the result's ``alpha``.

Returns
-------
float
    In nats, at least 0.""",
}


@fill_docs(RESULT_DOCS)
@dataclass(frozen=True, eq=False)
class AttackResult:
    """Scores of members and non-members under one attack, and the metrics computed from them.

    Parameters
    ----------
    scores_in, scores_out : array-like of shape (n_in,) and (n_out,)
        Scores of members and of non-members; higher means member.
    %(result_parameters)s

    Attributes
    ----------
    auc : float
        Area under the ROC curve; 0.5 is chance.
    auc_interval : (float, float)
        Its confidence interval.
    is_chance : bool
        Whether the scores are compatible with guessing.
    is_reversed : bool
        Whether members score below non-members beyond chance.
    advantage : float
        Largest TPR minus FPR, an upward-biased estimate.

    Notes
    -----
    Records are treated as independent given the trained model.

    Examples
    --------
    >>> from skprivacy.attacks import AttackResult
    >>> result = AttackResult(range(60, 160), range(100), attack="made up")
    >>> result
    made up: AUC 0.92 [0.85, 0.96], TPR 0.61 at 1% FPR [0.51, 0.71], epsilon at least 1.65
    at delta 0 (confidence 95%)
    >>> result.tpr_at_fpr(0.001).refused
    'n_out=100 non-members cannot measure a false positive rate of 0.001: at least 1000 are needed'
    """

    scores_in: NDArray[np.float64]
    scores_out: NDArray[np.float64]
    attack: str = "attack"
    alpha: float = 0.05
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        members, others = check_scores(self.scores_in, self.scores_out)
        open_unit("alpha", self.alpha)
        if not isinstance(self.attack, str):
            raise TypeError(f"attack must be a name (str), not {type(self.attack).__name__}.")
        object.__setattr__(self, "scores_in", members)
        object.__setattr__(self, "scores_out", others)

    @cached_property
    def auc(self) -> float:
        return metrics.auc(self.scores_in, self.scores_out)

    @cached_property
    def auc_interval(self) -> Interval:
        return auc_interval(self.scores_in, self.scores_out, alpha=self.alpha)

    @cached_property
    def advantage(self) -> float:
        return advantage(self.scores_in, self.scores_out)

    @property
    def is_chance(self) -> bool:
        """Whether the scores are compatible with guessing: AUC 0.5 and epsilon 0."""
        low, high = self.auc_interval
        return low <= 0.5 <= high and self.epsilon_lower_bound() == 0

    @property
    def is_reversed(self) -> bool:
        """Whether members score below non-members: the whole ``auc_interval`` lies below 0.5.

        Usually members and non-members were exchanged, or come from different populations.
        """
        return self.auc_interval[1] < 0.5

    def tpr_at_fpr(self, fpr: float) -> OperatingPoint:
        """Return the true positive rate at a false positive rate of at most ``fpr``.

        Parameters
        ----------
        fpr : float
            Highest false positive rate allowed.

        Returns
        -------
        OperatingPoint
            As :func:`skprivacy.metrics.tpr_at_fpr` returns it.
        """
        return metrics.tpr_at_fpr(self.scores_in, self.scores_out, fpr, alpha=self.alpha)

    def epsilon_lower_bound(self, delta: float = 0.0, alpha: float | None = None) -> float:
        """Return a lower confidence bound on epsilon, at confidence ``1 - alpha``.

        It is the better of two bounds: one from the ROC curve, at a threshold that is chosen on one
        half of the records and tested on the other, and one from the area under the curve. Both
        directions are tested, so members that score below non-members also count.

        %(bound_sections)s
        """
        return metrics.epsilon_lower_bound(
            self.scores_in,
            self.scores_out,
            delta=delta,
            alpha=self.alpha if alpha is None else alpha,
        )

    def precision_recall(self, threshold: float) -> tuple[float, float]:
        """Return precision and recall of "member if the score is at least ``threshold``".

        Precision is computed for equally many members and non-members, regardless of the sample
        sizes. It is 0.5 by chance and NaN if no record is called a member.

        Parameters
        ----------
        threshold : float
            Lowest score that is called a member.

        Returns
        -------
        tuple of float
            Precision and recall, in [0, 1].
        """
        number("threshold", threshold, "a number, as the scores are")
        tpr = float(np.mean(self.scores_in >= threshold))
        fpr = float(np.mean(self.scores_out >= threshold))
        return (tpr / (tpr + fpr) if tpr + fpr > 0 else float("nan")), tpr

    def records(self) -> pd.DataFrame:
        """Return one row per record: ``member``, ``score``, ``risk``, ``q_value``, ``exposed``.

        ``risk`` measures how unusual the record's score is for a non-member: the share of OTHER
        non-members (plus one) that score at least as high. A member with a risk of 0.01 stands out
        as much as one non-member in a hundred does. A smaller risk means a more exposed record.

        Among many members, some stand out by chance. ``exposed`` corrects for this by the
        Benjamini-Hochberg procedure on the risks of members: among the marked members, the expected
        share that scores like non-members is at most ``alpha``. If all members score like
        non-members, any is marked with probability at most ``alpha``. ``q_value`` is the smallest
        ``alpha`` at which the member is marked; it is NaN for non-members.

        Returns
        -------
        DataFrame
            Members first, in the order of the scores.
        """
        import pandas as pd

        ordered = np.sort(self.scores_out)
        n_out = len(ordered)
        higher_in = n_out - np.searchsorted(ordered, self.scores_in)
        higher_out = n_out - np.searchsorted(ordered, self.scores_out) - 1
        risk_in = (higher_in + 1) / (n_out + 1)
        q_value = np.r_[benjamini_hochberg(risk_in), np.full(n_out, np.nan)]
        return pd.DataFrame(
            {
                "member": np.r_[np.ones(len(self.scores_in), bool), np.zeros(n_out, bool)],
                "score": np.r_[self.scores_in, self.scores_out],
                "risk": np.r_[risk_in, (higher_out + 1) / n_out],
                "q_value": q_value,
                "exposed": q_value <= self.alpha,
            }
        )

    def by_group(self, groups_in: ArrayLike, groups_out: ArrayLike) -> pd.DataFrame:
        """Return one row per class or subgroup, comparing its members with its non-members.

        Parameters
        ----------
        groups_in, groups_out : array-like of shape (n_in,) and (n_out,)
            Group of each record, in the order of the scores.

        Returns
        -------
        DataFrame
            Indexed by group. ``alpha`` is divided among the groups (Bonferroni): all intervals of
            one column hold together with probability ``1 - alpha``, and so do all bounds on
            epsilon. ``exposed`` marks the groups whose members score above their non-members; the
            probability of any false mark is at most ``alpha`` (Holm, on the AUC). ``p_value`` is
            the smallest ``alpha`` at which the group is marked. Groups with fewer than 5 members or
            non-members are not tested. Figures are NaN for a group without members or without
            non-members; the TPR at 1% FPR is also NaN if it has too few non-members.
        """
        import pandas as pd

        members, others = as_array("groups_in", groups_in), as_array("groups_out", groups_out)
        self._check_groups(members, others)
        try:
            names = np.unique(np.concatenate([members, others]))
        except (TypeError, ValueError):
            raise TypeError(
                "groups_in and groups_out hold names of types that cannot be sorted together, such "
                "as None and text. Give all groups names of one type."
            ) from None
        rows = {}
        for name in names:
            scores_in = self.scores_in[members == name]
            scores_out = self.scores_out[others == name]
            row: dict[str, Any] = {"n_in": len(scores_in), "n_out": len(scores_out)}
            if len(scores_in) and len(scores_out):
                part = AttackResult(scores_in, scores_out, alpha=self.alpha / len(names))
                row |= {"auc": part.auc, "auc_low": part.auc_interval[0]}
                row |= {"auc_high": part.auc_interval[1], "epsilon": part.epsilon_lower_bound()}
                if min(len(scores_in), len(scores_out)) >= MIN_GROUP_SIZE:
                    row["p_value"] = auc_p_value(scores_in, scores_out)
                point = part.tpr_at_fpr(0.01)
                row |= {"tpr_at_0.01": point.tpr, "tpr_at_0.01_low": point.interval[0]}
                row |= {"tpr_at_0.01_high": point.interval[1]}
            rows[name] = row
        columns = ["n_in", "n_out", "auc", "auc_low", "auc_high", "p_value", "epsilon"]
        columns += ["tpr_at_0.01", "tpr_at_0.01_low", "tpr_at_0.01_high"]
        table = pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("group")
        table["p_value"] = holm(table["p_value"])
        table.insert(6, "exposed", table["p_value"] <= self.alpha)
        return table

    def join_groups(self, groups_in: Any, groups_out: Any, how: str = "sum") -> AttackResult:
        """Return the attack on groups: one score for all records of a group.

        Parameters
        ----------
        groups_in, groups_out : array-like of shape (n_in,) and (n_out,)
            Group of each record, of members and of non-members. No group may be in both.
        how : {"sum", "max"}, default="sum"
            "sum" adds the scores, each minus the median score of all records. It is the most
            powerful choice if scores are log-likelihood ratios, as in :class:`LiRA`, and the
            records of a group are independent. "max" takes the highest score.

        Returns
        -------
        AttackResult
            Its intervals treat groups, not records, as independent.

        Raises
        ------
        ValueError
            If a shape is wrong, ``how`` is unknown, or a group is in both.

        Examples
        --------
        >>> from skprivacy.attacks import AttackResult
        >>> visits = AttackResult([3.0, 1.0, 2.0], [0.0, 1.0, 2.0], attack="made up")
        >>> people = visits.join_groups(["ann", "ann", "bob"], ["cid", "dot", "dot"])
        >>> people.scores_in.tolist(), people.scores_out.tolist()
        ([1.0, 0.5], [-1.5, 0.0])
        """
        if not isinstance(how, str) or how not in JOINS:
            raise ValueError(f"how={how!r} must be one of {JOINS}.")
        self._check_groups(as_array("groups_in", groups_in), as_array("groups_out", groups_out))
        centre = float(np.median(np.r_[self.scores_in, self.scores_out]))
        of_members, of_others = separate_groups(groups_in, groups_out)
        inside = join_group_scores(self.scores_in, of_members, how, centre)
        outside = join_group_scores(self.scores_out, of_others, how, centre)
        what = "all records together" if how == "sum" else "the best record"
        name = f"{self.attack}, {what} of each {of_members.unit}"
        return AttackResult(inside, outside, name, self.alpha, {**self.details, "joined": how})

    def _check_groups(self, members: NDArray[Any], others: NDArray[Any]) -> None:
        if members.shape != self.scores_in.shape or others.shape != self.scores_out.shape:
            raise ValueError(
                f"groups_in and groups_out have shapes {members.shape} and {others.shape}; "
                f"expected one group per score, {self.scores_in.shape} and "
                f"{self.scores_out.shape}. Pass the groups in the order of the scores."
            )

    def to_frame(self) -> pd.DataFrame:
        """Return one row of figures, to concatenate with the rows of other attacks.

        Returns
        -------
        DataFrame
            One row, with the name of the attack in its first column.
        """
        import pandas as pd

        row: dict[str, Any] = {"attack": self.attack}
        row |= {"n_in": len(self.scores_in), "n_out": len(self.scores_out)}
        row |= {"auc": self.auc, "auc_low": self.auc_interval[0], "auc_high": self.auc_interval[1]}
        row |= {"advantage": self.advantage, "epsilon_lower_bound": self.epsilon_lower_bound()}
        for fpr in REPORTED_FPRS:
            point = self.tpr_at_fpr(fpr)
            name = f"tpr_at_{fpr:g}"
            row |= {name: point.tpr, f"{name}_low": point.interval[0]}
            row |= {f"{name}_high": point.interval[1], f"{name}_realised_fpr": point.realised_fpr}
        return pd.DataFrame([row])

    def to_dict(self) -> dict[str, Any]:
        """Return figures and scores as values that ``json.dumps`` accepts.

        Returns
        -------
        dict
            The input of :meth:`from_dict`.
        """
        return {
            "attack": self.attack,
            "alpha": self.alpha,
            "auc": self.auc,
            "auc_interval": list(self.auc_interval),
            "is_chance": self.is_chance,
            "is_reversed": self.is_reversed,
            "advantage": self.advantage,
            "epsilon_lower_bound": self.epsilon_lower_bound(),
            "operating_points": [_plain(asdict(self.tpr_at_fpr(fpr))) for fpr in REPORTED_FPRS],
            "details": _plain(self.details),
            "scores_in": self.scores_in.tolist(),
            "scores_out": self.scores_out.tolist(),
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> AttackResult:
        """Rebuild a result from :meth:`to_dict`; metrics are recomputed from the scores.

        Parameters
        ----------
        state : dict
            Output of :meth:`to_dict`.

        Returns
        -------
        AttackResult
            The same scores and details.
        """
        needed = ("scores_in", "scores_out", "attack", "alpha", "details")
        if not isinstance(state, Mapping) or not state.keys() >= set(needed):
            raise ValueError(f"state must be a dict with {', '.join(needed)}, as by to_dict.")
        if not isinstance(state["details"], Mapping):
            raise TypeError(f"details={state['details']!r} must be a dict.")
        return cls(*(state[name] for name in needed))

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON, with null for refused figures and infinite thresholds.

        Returns
        -------
        str
            A JSON object.
        """
        return json.dumps(self.to_dict(), allow_nan=False)

    def __repr__(self) -> str:
        low, high = self.auc_interval
        text = f"{displayable(self.attack)}: AUC {self.auc:.2f} [{low:.2f}, {high:.2f}]"
        if self.is_chance:
            return text + ", no better than chance"
        if self.is_reversed:
            text += " BELOW CHANCE (were members and non-members exchanged?)"
        point = self.tpr_at_fpr(0.01)
        if point.refused is None:
            low, high = point.interval
            text += f", TPR {point.tpr:.2f} at 1% FPR [{low:.2f}, {high:.2f}]"
        text += f", epsilon at least {self.epsilon_lower_bound():.3g} at delta 0"
        return f"{text} (confidence {100 * (1 - self.alpha):.4g}%)"


def _plain(value: Any) -> Any:
    """Return the value with None for NaN and infinity, which JSON cannot represent."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
