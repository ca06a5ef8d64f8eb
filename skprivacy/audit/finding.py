"""Result of one attack, compared with the claimed guarantee."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..attacks import AttackResult
from ..metrics._evidence import Evidence, gather_evidence
from ._origin import origin_in_words, origin_point
from ._refutation import claimed_curve, refutation

__all__ = ["AttackFinding", "claimed_delta", "evidence_against"]

FPRS = (0.01, 0.001)


@dataclass(frozen=True)
class AttackFinding:
    """Result of one attack, compared with the claimed guarantee.

    Attributes
    ----------
    result : AttackResult
        The scores, and all figures derived from them.
    epsilon_lower_bound : float
        The largest epsilon that this attack refutes at the delta of the claim, corrected for the
        number of attacks.
    refutation : str
        How the attack contradicts the claimed trade-off curve, in words; empty if it does not.
    points : tuple of dict
        For each reported false positive rate: ``fpr``, ``tpr``, ``low``, ``high``,
        ``realised_fpr``, ``refused`` and ``bound``, the highest ``tpr`` that the claim allows (None
        without a claim).
    shown_by : str
        The test that shows the epsilon, in words. It may lie far from the reported points.
    shown_at : tuple of (float, float) or None
        Bounds on the false and the true positive rate of this test; None if there is none.
    """

    result: AttackResult
    epsilon_lower_bound: float
    points: tuple[dict[str, Any], ...]
    refutation: str = ""
    shown_by: str = ""
    shown_at: tuple[float, float] | None = None

    @classmethod
    def of(
        cls, result: AttackResult, guarantee: Any, alpha: float, corrected: float
    ) -> AttackFinding:
        """Compare a result with a guarantee.

        Parameters
        ----------
        result : AttackResult
            The scores of members and non-members.
        guarantee : PrivacyGuarantee or None
            The claim; None if there is none.
        alpha : float
            Error probability of the reported intervals.
        corrected : float
            Error probability of the epsilon lower bound and of the refutation together.
        """
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
        refuted = refutation(found, guarantee)
        return cls(
            result,
            found.epsilon(delta),
            tuple(points),
            refuted,
            origin_in_words(found, delta),
            origin_point(found, delta),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, without the scores of records.

        Returns
        -------
        dict
            For JSON.
        """
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


def claimed_delta(guarantee: Any) -> float:
    """Return the delta of the claimed epsilon; 0 for pure differential privacy."""
    return 0.0 if guarantee is None else float(guarantee.at_delta or 0.0)


def evidence_against(scores_in: Any, scores_out: Any, guarantee: Any, alpha: float) -> Evidence:
    """Return the evidence of the scores, at the delta of the claim and against its whole curve."""
    curve = claimed_curve(guarantee)
    return gather_evidence(
        scores_in, scores_out, delta=claimed_delta(guarantee), alpha=alpha, curve=curve
    )
