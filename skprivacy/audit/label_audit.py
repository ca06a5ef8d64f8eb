"""Audit of guarantees that protect labels only; it says nothing about membership."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from .._clones import train_clone
from .._groups import Groups
from .._validation import check_random_state, num_samples
from ..attacks import LabelInferenceAttack
from ..attacks.attributes.label import LabelCanaries, LabelInferenceResult
from .inspection.claims import NOT_MEMBERSHIP, Claim
from .inspection.member_groups import MemberGroups
from .report.audit_report import AuditReport
from .report.findings import AttackFinding, claimed_delta, report_facts

FEWEST = 100  # training records, a quarter of which are canaries


@dataclass(frozen=True, repr=False)
class LabelAuditReport(AuditReport):
    """Claimed privacy of labels compared with the labels that an attack inferred.

    Fair coins flip some labels, a clone of the model is trained on them, and an attack guesses the
    coins. "violated" refers to labels; membership gets no verdict. Numbers of records and
    accuracies are of the model as it was given, without canaries.
    """

    of_labels: ClassVar[bool] = True

    @property
    def n_canaries(self) -> int:
        """Number of coins that were guessed."""
        result = self.findings[0].result
        return len(result.scores_in) + len(result.scores_out)

    @property
    def epsilon_within_reach(self) -> float:
        """Value of ``epsilon_lower_bound`` if all guesses were right: the largest possible one."""
        half = np.ones((self.n_canaries + 1) // 2)
        return LabelInferenceResult(half, -half[: self.n_canaries // 2]).epsilon_lower_bound(
            self.claimed_delta, self.alpha
        )

    @property
    def could_refute(self) -> bool:
        """Whether right guesses of all canaries would have refuted the claim."""
        return not self.claims or self.epsilon_within_reach > self.claimed_epsilon

    def _sample_checks(self) -> Iterator[str]:
        """Yield nothing: coins leave no two samples that could have been exchanged."""
        return iter(())

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Empty: the coins are fair by construction, for any records."""
        return ()

    @property
    def caveats(self) -> list[str]:
        """Limitations of the claim or the measurement, in words."""
        return [f"Membership was not tested: {NOT_MEMBERSHIP}.", *super().caveats]

    def _suspicious(self) -> list[str]:
        return []

    def _too_few(self) -> list[str]:
        if self.verdict == "violated" or self.could_refute:
            return []
        return [
            f"With {self.n_canaries:,} canaries, even a perfect attack shows an epsilon of at most "
            f"{self.epsilon_within_reach:.2g}: no leak could have refuted the claim. Audit it with "
            "more records."
        ]


def label_attack(attacks: Any, random_state: Any) -> LabelInferenceAttack:
    """Return the attack on labels; raise ValueError for attacks on membership."""
    if attacks is None:
        return LabelInferenceAttack(random_state=random_state)
    given = [attacks] if isinstance(attacks, LabelInferenceAttack) else list(attacks)
    if len(given) != 1 or not isinstance(given[0], LabelInferenceAttack):
        raise ValueError(
            f"attacks={given!r}: {NOT_MEMBERSHIP}. Pass attacks=None or one LabelInferenceAttack; "
            "for a verdict on membership, fit an estimator that protects whole records."
        )
    return given[0]


def audit_labels(
    model: Any, claim: Claim, attack: LabelInferenceAttack,
    X_train: Any, y_train: Any, X_test: Any, y_test: Any, alpha: float,
    member_groups: MemberGroups | None = None,
) -> LabelAuditReport:  # fmt: skip
    """Guess the coins of canaries among the training records; return the report."""
    records = X_train, y_train, X_test, y_test
    result = guess_labels(
        model, attack, *records, None if member_groups is None else member_groups.inside
    )
    alpha, guarantee = float(alpha), claim.guarantee
    found = AttackFinding.from_result(result, guarantee, alpha, alpha)
    # Scores of one run are not independent: the bound is the exact one from guesses of coins.
    bound = found.result.epsilon_lower_bound(claimed_delta(guarantee), alpha)
    by = "its guesses of coins, counted in one run" if bound > 0 else ""
    found = replace(found, epsilon_lower_bound=bound, refutation="", shown_by=by, shown_at=None)
    return LabelAuditReport(
        **report_facts(model, claim, *records, member_groups),
        findings=(found,),
        alpha=alpha,
        n_shadows=1,
    )


def guess_labels(
    model: Any, attack: LabelInferenceAttack,
    X_train: Any, y_train: Any, X_test: Any, y_test: Any, groups: Groups | None = None,
) -> LabelInferenceResult:  # fmt: skip
    """Train a clone of a model on labels with canaries, and guess their coins.

    Coins are drawn afresh unless the attack has a seed, and so is the noise of the model. With
    ``groups`` of ``X_train``, each group has one coin, and the clone is fitted with the groups.
    """
    n = num_samples(X_train) if groups is None else groups.n
    if n < FEWEST:
        counted = "records" if groups is None else f"values of {groups.unit}"
        raise ValueError(
            f"X_train has {n} {counted}; canaries need at least {FEWEST}, for coins on both sides. "
            "Pass more records."
        )
    random = check_random_state(attack.random_state)
    # Steinke, Nasr and Jagielski 2023, one run: a fair coin flips the label of each canary.
    canaries = LabelCanaries.draw(
        y_train,
        min(attack.n_canaries, n // 4),
        classes=model.classes_,
        random_state=random,
        groups=None if groups is None else groups.codes,
    )
    seed, every = int(random.randint(np.iinfo(np.int32).max)), np.arange(num_samples(X_train))
    target = train_clone(model, X_train, canaries.labels, every, seed, None, groups)
    fitted = clone(attack).set_params(target=target).fit(X_test, y_test)
    return fitted.evaluate(X_train, canaries)
