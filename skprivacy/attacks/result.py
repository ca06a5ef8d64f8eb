"""The result of an attack: its scores, and metrics with their uncertainty."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import metrics
from .._output import displayable
from .._validation import as_array, number, open_unit
from ..metrics import OperatingPoint
from ..metrics._area import auc_p_value
from ..metrics._multiplicity import benjamini_hochberg, holm
from ..metrics._samples import Interval, check_scores
from ._people import JOINS, join, parted

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FEWEST", "AttackResult"]

REPORTED_FPRS = (0.1, 0.01, 0.001)
FEWEST = 5  # in a smaller group nothing can be shown


@dataclass(frozen=True, eq=False)
class AttackResult:
    """Scores of members and non-members under one attack, and the metrics computed from them.

    Parameters
    ----------
    scores_in, scores_out : array-like of shape (n_in,) and (n_out,)
        Scores of members and of non-members; higher means member.
    attack : str, default="attack"
        Name of the attack, for tables and plots.
    alpha : float, default=0.05
        Error probability of every interval and bound.
    details : dict, default={}
        Further figures of the attack; ``to_dict`` includes them unchanged.

    Attributes
    ----------
    auc : float
        Area under the ROC curve; 0.5 is chance.
    auc_interval : (float, float)
        Its confidence interval.
    is_chance : bool
        Whether the scores are compatible with guessing.
    is_reversed : bool
        Whether members score below non-members, beyond chance.
    advantage : float
        Largest TPR minus FPR, an upward-biased estimate (see :func:`skprivacy.metrics.advantage`).

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
            raise TypeError(
                f"attack must be the name of the attack, not {type(self.attack).__name__}."
            )
        object.__setattr__(self, "scores_in", members)
        object.__setattr__(self, "scores_out", others)

    @cached_property
    def auc(self) -> float:
        return metrics.auc(self.scores_in, self.scores_out)

    @cached_property
    def auc_interval(self) -> Interval:
        return metrics.auc_interval(self.scores_in, self.scores_out, alpha=self.alpha)

    @cached_property
    def advantage(self) -> float:
        return metrics.advantage(self.scores_in, self.scores_out)

    @property
    def is_chance(self) -> bool:
        """Whether the scores are compatible with guessing: AUC 0.5 and epsilon 0 not refuted."""
        low, high = self.auc_interval
        return low <= 0.5 <= high and self.epsilon_lower_bound() == 0

    @property
    def is_reversed(self) -> bool:
        """Whether members score below non-members: the whole ``auc_interval`` lies below 0.5.

        Usually the two groups were exchanged, or they come from different populations.
        """
        return self.auc_interval[1] < 0.5

    def tpr_at_fpr(self, fpr: float) -> OperatingPoint:
        """Return the true positive rate at a false positive rate of at most ``fpr``.

        Parameters
        ----------
        fpr : float
            The highest false positive rate that is allowed.

        Returns
        -------
        OperatingPoint
            The rates there, with their intervals and the threshold.
        """
        return metrics.tpr_at_fpr(self.scores_in, self.scores_out, fpr, alpha=self.alpha)

    def epsilon_lower_bound(self, delta: float = 0.0, alpha: float | None = None) -> float:
        """Return a lower confidence bound on epsilon, at confidence ``1 - alpha``.

        It is the better of two bounds: one from the ROC curve at a threshold that is chosen on one
        half of the records and tested on the other, and one from the area under the curve. Members
        that score lower than non-members count too.

        Parameters
        ----------
        delta : float, default=0.0
            Of the guarantee that is tested, in [0, 1).
        alpha : float, default=None
            The error probability of the bound. ``None``: the result's.

        Returns
        -------
        float
            In nats, at least 0.
        """
        return metrics.epsilon_lower_bound(
            self.scores_in,
            self.scores_out,
            delta=delta,
            alpha=self.alpha if alpha is None else alpha,
        )

    def precision_recall(self, threshold: float) -> tuple[float, float]:
        """Return precision and recall of "member if the score is at least ``threshold``".

        Precision is given for equally many members and non-members, whatever the sample sizes;
        it is 0.5 by chance and NaN if no record is called a member.

        Parameters
        ----------
        threshold : float
            The lowest score that is called a member.

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

        ``risk`` is how unusual the record's score is for a non-member: the share of OTHER
        non-members (plus one) that score at least as high. A member with a risk of 0.01 stands
        out as much as one non-member in a hundred does. The smaller the figure, the more exposed
        the record.

        Among many members some stand out by chance. ``exposed`` marks those that do beyond it: of
        the marked ones, a share of at most ``alpha`` is expected to score like non-members, and if
        all members do, any is marked with probability at most ``alpha`` (Benjamini and Hochberg, on
        the risks of members). ``q_value`` is the smallest such ``alpha``; non-members have none.

        Returns
        -------
        DataFrame
            Members first, in the order in which they were scored.
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
            Indexed by group. ``alpha`` is shared among the groups (Bonferroni), so that all
            intervals of one column together miss with probability ``alpha``, and so do all bounds
            on epsilon. ``exposed`` marks the groups in which members score above non-members:
            any is marked falsely with probability at most ``alpha`` (Holm, on the AUC), and
            ``p_value`` is the smallest such ``alpha``; groups with fewer than 5 members or
            non-members are not tested. Figures of a group without members or
            without non-members are NaN, and so is a TPR at 1% FPR that cannot be measured with so
            few non-members.
        """
        import pandas as pd

        members, others = as_array("groups_in", groups_in), as_array("groups_out", groups_out)
        self._check_groups(members, others)
        try:
            names = np.unique(np.concatenate([members, others]))
        except (TypeError, ValueError):
            raise TypeError(
                "groups_in and groups_out hold names that have no order, such as None beside "
                "text. Give all groups names of one type."
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
                if min(len(scores_in), len(scores_out)) >= FEWEST:
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

    def joined(self, groups_in: Any, groups_out: Any, how: str = "sum") -> AttackResult:
        """Return the attack on people: one score from all records of each.

        Parameters
        ----------
        groups_in, groups_out : array-like of shape (n_in,) and (n_out,)
            Whose record each is, of members and of non-members. Nobody may be among both.
        how : {"sum", "max"}, default="sum"
            The sum of scores, less the median of all records' scores: where scores are
            log-likelihood ratios, as those of :class:`LiRA`, and a person's records tell
            independently of each other, no other way finds more. Or the score of the best record.

        Returns
        -------
        AttackResult
            Its intervals count people as independent, not records.

        Raises
        ------
        ValueError
            If a shape is wrong, ``how`` is unknown, or somebody is among both.

        Examples
        --------
        >>> from skprivacy.attacks import AttackResult
        >>> visits = AttackResult([3.0, 1.0, 2.0], [0.0, 1.0, 2.0], attack="made up")
        >>> people = visits.joined(["ann", "ann", "bob"], ["cid", "dot", "dot"])
        >>> people.scores_in.tolist(), people.scores_out.tolist()
        ([1.0, 0.5], [-1.5, 0.0])
        """
        if not isinstance(how, str) or how not in JOINS:
            raise ValueError(f"how={how!r} must be one of {JOINS}.")
        self._check_groups(as_array("groups_in", groups_in), as_array("groups_out", groups_out))
        centre = float(np.median(np.r_[self.scores_in, self.scores_out]))
        people = parted(groups_in, groups_out)
        inside, outside = (
            join(values, groups, how, centre)
            for values, groups in zip((self.scores_in, self.scores_out), people, strict=True)
        )
        what = "all records together" if how == "sum" else "the best record"
        name = f"{self.attack}, {what} of each {people[0].unit}"
        return AttackResult(inside, outside, name, self.alpha, {**self.details, "joined": how})

    def _check_groups(self, members: NDArray[Any], others: NDArray[Any]) -> None:
        if members.shape != self.scores_in.shape or others.shape != self.scores_out.shape:
            raise ValueError(
                f"groups_in and groups_out have shapes {members.shape} and {others.shape}; "
                f"expected one group per score, {self.scores_in.shape} and "
                f"{self.scores_out.shape}. Pass the groups in the order of the scores."
            )

    def to_frame(self) -> pd.DataFrame:
        """Return one row of figures, ready to be concatenated with other attacks' rows.

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
        """Return figures and scores as plain values that ``json.dumps`` accepts.

        Returns
        -------
        dict
            For :meth:`from_dict`.
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
            "operating_points": [_plain(self.tpr_at_fpr(fpr).to_dict()) for fpr in REPORTED_FPRS],
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
            What :meth:`to_dict` returned.

        Returns
        -------
        AttackResult
            With the same scores.
        """
        needed = ("scores_in", "scores_out", "attack", "alpha", "details")
        if not isinstance(state, Mapping) or not state.keys() >= set(needed):
            raise ValueError(f"state must be a dict with {', '.join(needed)}, as of to_dict.")
        if not isinstance(state["details"], Mapping):
            raise TypeError(f"details={state['details']!r} must be a dict.")
        return cls(*(state[name] for name in needed))

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON; refused figures and infinite thresholds are null.

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
