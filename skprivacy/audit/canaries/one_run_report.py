"""Guesses of the coins of one audit compared with a claim: the test, and its report.

Mahloujifar, Melis and Chaudhuri 2024. Start reading at :func:`guess_and_test`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._files import shorten_text
from ..._report_facts import Fact, FactReport, ReportFacts, Section, values
from ...accounting import PrivacyGuarantee
from ...metrics import bound_from_guesses
from ...metrics.coin_guesses import (
    BOUNDS,
    GuessBound,
    best_n_guesses,
    default_guess_sizes,
    guess_each,
    guess_top_scores,
    refutes_curve,
    refutes_with_separate_runs,
)
from ..inspection.claims import NO_CLAIM, Claim
from ..report.facts import own_claim_fact
from .coins import CanaryRun, inverse_curve, steps_between
from .gradient_canary_audit import SEEN, bound_on_noise
from .noise_test import NEVER, NOISE_FAULTS

_NOT_SAMPLED = "records were not sampled by independent coins, as the claim assumes they are"
_DELTA = 1e-5  # for models without a claim, and for bounds beside a pure claim
_TOO_FEW = "too few canaries: even with all guesses right, the claim would not be refuted"
COINS = {
    "add_remove": "a canary was in the training data, or was not",
    "replace_one": "a canary was in the training data, or a record of the data in its place",
    "zero_out": "a canary was in the training data, or a record that contributes nothing",
}
CANARIES = {
    "mislabelled": "records of the data with wrong labels",
    "crafted": "records as they were given",
    "gradient": "long gradients in one weight each, searched for in the noisy sums of all steps",
    "tables": "records spread over the schema, searched for in the noisy tables",
    "rows": "records spread over the schema, searched for in the synthetic records",
}


@dataclass(frozen=True, repr=False)
class OneRunAuditReport(FactReport):
    """Claimed privacy of a model compared with guesses of the canaries' coins.

    Returned by :func:`~skprivacy.audit.audit_one_run`. An audit of a synthesizer holds two.

    Attributes
    ----------
    model : str
        The model and its parameters.
    fitted : estimator
        The trained model, WITH canaries.
    claim : Claim
        The tested claim: the passed one, if there is one, and otherwise the claim of the model.
    canaries : {"mislabelled", "crafted", "gradient", "tables", "rows"}
        Kind of canary, and where the attack searched for it.
    coin : {"add_remove", "replace_one", "zero_out"}
        The neighbouring relation between the two outcomes of a coin. In one outcome the canary is
        in the training data. In the other it is absent, replaced by another record, or replaced by
        a record that contributes nothing.
    right, guesses, n_canaries : int
        Number of right guesses, of all guesses, and of coins.
    refuted : bool
        Whether the guesses refute the claimed trade-off curve, at error ``alpha``.
    guess_sizes : tuple of int
        Numbers of guesses that were tried, each with an equal share of ``alpha``. ``guesses`` is
        the one with the largest bound.
    sampled : bool
        False if the observed sampling of records differs from the independent coins that the claim
        assumes. Tested with gradient canaries only.
    noise_tests : dict of float
        p-value of each test of the noise: "one step" and "all steps" (too little noise), "shape",
        "reuse" (correlated steps) and "shift" (noise that weights share). Empty without gradient
        canaries.
    within_reach : bool
        Whether the audit could refute the claim, if all guesses were right.
    untested : str
        Why the coins cannot test the claim; empty if they can.
    bounds : tuple of GuessBound
        Lower bounds on epsilon under the relation ``coin``, each with its assumptions. Each bound
        by itself exceeds the true epsilon with probability ``alpha`` at most.
    alpha : float
        Error probability of the verdict.
    scores : ndarray of shape (n_canaries,)
        Score of each canary; higher means trained on.
    trained : ndarray of bool of shape (n_canaries,)
        The coins: whether each canary was trained on.
    """

    model: str
    fitted: Any
    claim: Claim
    canaries: str
    coin: str
    right: int
    guesses: int
    n_canaries: int
    refuted: bool
    guess_sizes: tuple[int, ...]
    sampled: bool
    noise_tests: dict[str, float]
    within_reach: bool
    untested: str
    bounds: tuple[GuessBound, ...]
    alpha: float
    scores: NDArray[np.float64] = field(compare=False)
    trained: NDArray[np.bool_] = field(compare=False)

    @property
    def verdict(self) -> str:
        """One of "violated", "consistent" and "no claim"; ``untested`` says why no claim.

        "consistent" does not prove a claim: a stronger attack may refute it.
        """
        if self.untested:
            return NO_CLAIM
        sound = self.sampled and not self.noise_faults
        return "violated" if self.refuted or not sound else "consistent"

    @property
    def noise_faults(self) -> tuple[str, ...]:
        """Names of the tests that the noise fails, at an error of one in a million together."""
        # Bonferroni: each of the tests gets an equal share of the error.
        share = NEVER / len(NOISE_FAULTS)
        return tuple(name for name, p in self.noise_tests.items() if p < share)

    @property
    def epsilon_lower_bound(self) -> float:
        """The bound that assumes nothing about the mechanism, under the relation ``coin``."""
        return self.bounds[0].epsilon

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions under which the verdict has its error probability."""
        made = ["coins are fair, and training saw no more of them than the records"]
        if self.canaries == "gradient":
            made.append(SEEN)
        if self.claim.guarantee is not None:
            made += self.claim.guarantee.assumptions
            if self._steps == 2:
                made.append(
                    f"the claim, for {self.claim.guarantee.relation}, was applied twice: the two "
                    "outcomes of a coin are two steps apart"
                )
        return tuple(made)

    @property
    def _steps(self) -> int:
        guarantee = self.claim.guarantee
        return 0 if guarantee is None else steps_between(guarantee.relation, self.coin)

    def facts(self) -> ReportFacts:
        claimed = str(self.claim.guarantee or self.claim.reason)
        right = f"{self.right:,} of {self.guesses:,} guesses right, {self.n_canaries:,} canaries"
        if len(self.guess_sizes) > 1:
            sizes = " and ".join(f"{size:,}" for size in self.guess_sizes)
            right += f"; the best of {sizes} guesses"
        too_few = not (self.within_reach or self.untested)
        facts = (
            Fact("claim", claimed, claimed, label="claim"),
            own_claim_fact(self.claim.own),
            Fact("canaries", self.canaries, CANARIES[self.canaries], label="canaries"),
            Fact("coin", self.coin, COINS[self.coin], label="coin"),
            Fact("right", self.right, right),
            *values(self, "guesses", "guess_sizes", "n_canaries", "model", "refuted", "untested"),
            *values(self, "alpha"),
            *(Fact(b.bound, asdict(b), repr(b)) for b in self.bounds),
            Fact("bounds_above_claim", *_explain_excess(self)),
            Fact("sampled", self.sampled, "" if self.sampled else _NOT_SAMPLED, label="sampling"),
            *_noise_facts(self),
            Fact("within_reach", self.within_reach, _TOO_FEW if too_few else ""),
            *(Fact(sentence=f"assumes that {text}") for text in self.assumptions),
        )
        title = f"One-run audit of {shorten_text(self.model)}"
        return ReportFacts(
            Fact("verdict", self.verdict, self.untested or self.verdict, label=title),
            (Section("", facts),),
        )


def guess_and_test(
    model: str, run: CanaryRun, claim: Claim, alpha: float, random: np.random.Generator, *,
    n_guesses: int | None = None, independent: bool = False,
) -> OneRunAuditReport:  # fmt: skip
    """Guess coins by scores, and test the claim by the number of right guesses."""
    untested = _explain_untested(claim, run.coin)
    guarantee = None if untested else claim.guarantee
    curve = None if guarantee is None else inverse_curve(guarantee, run.coin)
    n_canaries = guesses = len(run.trained)
    delta = _DELTA if guarantee is None else guarantee.at_delta or 0.0
    share = alpha
    sizes: tuple[int, ...] = (n_canaries,)
    if run.apart:
        right = int(np.sum(guess_each(run.scores) == run.trained))
    else:
        # Steinke, Nasr and Jagielski 2023, guesses: the coins of the most extreme scores; abstain
        # on the others.
        best = n_guesses or (None if curve is None else best_n_guesses(n_canaries, curve, alpha))
        sizes = (best,) if best else default_guess_sizes(n_canaries)
        chosen, guess = guess_top_scores(run.scores, max(sizes), random)
        right_so_far = np.cumsum(guess == run.trained[chosen])
        # Bonferroni: each number of guesses is tested with an equal share of the error.
        share = alpha / len(sizes)
        tried = [(int(right_so_far[size - 1]), size, n_canaries) for size in sizes]
        right, guesses, _ = max(
            tried, key=lambda counts: _first_bound(counts, delta, share).epsilon
        )

    # Mahloujifar, Melis and Chaudhuri 2024: test the number of right guesses against the curve.
    def refuted(count: int) -> bool:
        if curve is not None and run.apart:
            return refutes_with_separate_runs(count, n_canaries, curve, alpha)
        return curve is not None and refutes_curve(count, guesses, n_canaries, curve, share)

    bounds = _find_bounds((right, guesses, n_canaries), guarantee, run, delta, share, independent)

    return OneRunAuditReport(
        model=model,
        fitted=run.fitted,
        claim=claim,
        canaries=run.canaries,
        coin=run.coin,
        right=right,
        guesses=guesses,
        n_canaries=n_canaries,
        refuted=refuted(right),
        guess_sizes=sizes,
        sampled=run.sampled,
        noise_tests=run.noise_tests,
        within_reach=refuted(guesses),
        untested=untested,
        bounds=tuple(replace(bound, alpha=float(alpha)) for bound in bounds),
        alpha=float(alpha),
        scores=run.scores,
        trained=run.trained,
    )


def _explain_untested(claim: Claim, coin: str) -> str:
    """Return why the coins cannot test a claim, beginning with "no claim"; empty if they can."""
    guarantee = claim.guarantee
    if guarantee is None:
        return claim.reason
    if math.isinf(guarantee.epsilon()):
        return NO_CLAIM
    if guarantee.unit != "record":
        return f"no claim about single records: the unit is {guarantee.unit}"
    if not steps_between(guarantee.relation, coin):
        return f"no claim about these coins: it is for {guarantee.relation}, they are {coin}"
    return ""


def _first_bound(counts: tuple[int, int, int], delta: float, alpha: float) -> GuessBound:
    return bound_from_guesses(*counts, bound="approximate", delta=delta, alpha=alpha)


def _find_bounds(
    counts: tuple[int, int, int],
    guarantee: PrivacyGuarantee | None,
    run: CanaryRun,
    delta: float,
    alpha: float,
    independent: bool,
) -> tuple[GuessBound, ...]:
    first = _first_bound(counts, delta, alpha)
    if run.apart:
        # With one canary per fit, right guesses are independent, and the product bound is exact.
        exact = bound_from_guesses(*counts, bound="product", delta=delta or _DELTA, alpha=alpha)
        return first, replace(exact, assumptions=BOUNDS["gaussian"])
    is_product = independent or run.canaries == "gradient"
    kinds = ["gaussian", *(["product"] if is_product else [])]
    rest = [
        bound_from_guesses(*counts, bound=kind, delta=delta or _DELTA, alpha=alpha)
        for kind in kinds
    ]
    if guarantee is not None and run.event_at is not None:
        rest[0] = bound_on_noise(counts, guarantee, run, alpha)
    return (first, *rest)


def _explain_excess(report: OneRunAuditReport) -> tuple[list[str], str]:
    """Return the bounds above a claim that is not refuted, and why they do not contradict it."""
    guarantee = report.claim.guarantee
    if guarantee is None or report.verdict != "consistent":
        return [], ""
    claimed = guarantee.epsilon()
    above = [bound for bound in report.bounds if bound.epsilon > claimed]
    if not above:
        return [], ""
    if report._steps == 2:
        # Only here may a bound of a true claim be above its epsilon with any probability.
        why = (
            "the outcomes of a coin are two steps apart, where the claim allows more than its "
            "epsilon, and the verdict compares with that"
        )
    elif all(bound.assumptions for bound in above):
        # The verdict tests the whole curve. A bound that assumes a Gaussian curve, or canaries that
        # do not interfere, excludes mechanisms that obey the claim and explain the guesses.
        why = (
            "it holds only under its assumptions, and the verdict makes none of them. If they hold "
            "here, the claim is doubtful; more canaries may settle it"
        )
    else:
        # At delta 0 the first bound is the binomial one, which is slightly sharper than the test of
        # the curve (see coin_guesses).
        why = (
            "it comes from another test than the verdict, and is close to what the verdict just "
            "does not refute. More canaries may settle it"
        )
    shown = " and ".join(f"{bound.epsilon:.3g}" for bound in above)
    text = f"{shown} is above the claimed {claimed:.3g}, yet not refuted: {why}"
    return [bound.bound for bound in above], text


def _noise_facts(report: OneRunAuditReport) -> list[Fact]:
    """Return the result of the test of the noise, in words only if there are gradient canaries."""
    tests, faults = report.noise_tests, report.noise_faults
    if faults:
        found = "; ".join(f"{NOISE_FAULTS[name]} (p = {tests[name]:.2g})" for name in faults)
    elif tests:
        least = min(1.0, len(tests) * min(tests.values()))
        found = (
            "size, distribution and independence as claimed, at the weights of absent canaries "
            f"(p = {least:.2g}, {len(tests)} tests)"
        )
    else:
        found = ""
    return [Fact("noise_tests", tests, found, label="noise"), *values(report, "noise_faults")]
