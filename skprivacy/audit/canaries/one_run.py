"""Audit of one training run with canaries: fair coins insert them, an attack guesses the coins.

Steinke, Nasr and Jagielski 2023; Mahloujifar, Melis and Chaudhuri 2024. Start reading at
:func:`audit_one_run`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier

from ..._clones import call_model
from ..._docs import fill_docs
from ..._input_data import check_consistent_length
from ..._output import shorten_text
from ..._report_facts import Fact, FactReport, ReportFacts, Section, values
from ..._validation import flag, is_whole, num_samples
from ...accounting import PrivacyGuarantee
from ...attacks.model_answers import class_list, predict_aligned
from ...attacks.record_tables import as_records
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
from ...metrics.rates import check_alpha
from ..inspection.claims import NO_CLAIM, Claim, claim_of, claim_to_test
from ..inspection.guarantees import CLAIM_DOCS, holds_private_labels, read_claim
from ..report.facts import own_claim_fact
from .coins import (
    CanaryRun,
    coin_entropy,
    coin_for,
    draw_canaries,
    insert_canaries,
    inverse_curve,
    steps_between,
)
from .gradient_canary_audit import SEEN, bound_on_noise, check_gradient_canaries, run_with_gradients
from .noise_test import NEVER, NOISE_FAULTS

_FEWEST = 20
Score = Callable[[Any, Any, NDArray[Any]], NDArray[np.float64]]
_LEAST = 1e-12  # lower clip of probabilities
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


@fill_docs(CLAIM_DOCS)
def audit_one_run(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    claim: Any = None,
    n_canaries: int = 1000,
    canaries: tuple[Any, Any] | str | None = None,
    n_guesses: int | None = None,
    score: Score | None = None,
    independent_canaries: bool = False,
    alpha: float = 0.05,
    random_state: int | None = None,
) -> OneRunAuditReport:
    """Train an estimator once, with canaries, and guess which canaries it was trained on.

    A fair coin for each canary decides whether the canary replaces a record of ``X``. Otherwise
    this record is left out, under add-remove, or stays, under the other relations.

    With ``canaries="gradient"``, canaries are additional records of a network's training, each with
    a long gradient in one weight. The attacker sees every noisy sum. This shows nearly all leakage
    of the training.

    Parameters
    ----------
    estimator : classifier or pipeline
        Estimator whose clone is fitted ONCE, with its own seeds. The fit charges its budget.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,)
        Training records.
    %(claim)s
        Its relation decides whether canaries are left out or replaced; with ``"gradient"``, it must
        be the network's. None tests the claim of the trained model.
    n_canaries : int, default=1000
        From 20 to half the number of records (for gradients, to the number of weights). More
        canaries show more leakage, but make the model worse. At a true epsilon below 2, thousands
        of canaries show about half of it.
    canaries : tuple (X_canaries, y_canaries) or "gradient", default=None
        Crafted canaries, in the form of X and y. ``None`` takes records of X with wrong labels.
        ``"gradient"`` is for :class:`~skprivacy.neural_network.DPSGDClassifier` and
        :class:`~skprivacy.neural_network.DPSGDRegressor` outside of pipelines, with Poisson
        sampling.
    n_guesses : int, default=None
        Number of coins to guess. ``None`` takes the number that is most likely to refute a false
        claim. Without a claim, it tests about ``5 sqrt(n_canaries)`` and ``n_canaries / 2``
        guesses, each with half of ``alpha``, and takes the better one.
    score : callable, default=None
        ``score(model, X_canaries, y_canaries)`` returns one number per canary, higher if the model
        seems trained on it. It may inspect the model. ``None`` takes the log odds of the canary's
        label.
    independent_canaries : bool, default=False
        Whether to add the product bound, which holds only if canaries do not interfere. It is
        always added for gradient canaries, each of which has its own weight.
    alpha : float, default=0.05
        Error probability: a true claim is called violated with at most this probability.
    random_state : int or None, default=None
        Seed of canaries and coins. ``None`` draws them afresh. The party that trains the model must
        not know it.

    Returns
    -------
    OneRunAuditReport
        Its ``verdict`` ("violated", "consistent" or "no claim"), the tested ``claim`` and the
        ``coin``; the numbers of ``right`` guesses, ``guesses`` and ``n_canaries``; the ``bounds``
        on epsilon with their assumptions, and ``epsilon_lower_bound``, the largest one without
        any. ``fitted`` is the trained model. With gradient canaries, ``noise_faults`` names the
        tests of the noise that failed, and ``sampled`` says whether batches were drawn at random.

    Raises
    ------
    TypeError
        If the estimator is not a classifier and ``score`` or ``canaries`` is missing, or, for
        gradients, is not a network.
    ValueError
        If the estimator protects labels only (use :func:`audit`), a parameter is out of range, or
        the network's noise, clipping or augmentation does not allow gradient canaries. Raised
        before any training or charge.

    Notes
    -----
    **Guarantees.** A true claim is called violated with probability ``alpha`` at most. Canaries and
    records may interfere in any way, because only the coins are random. The number of guesses
    follows from the claimed curve, before the coins are used. Audits are not private: the report
    holds the scores. Do not use the model, because it was trained on canaries.

    With gradient canaries, the attacker sees every noisy sum, and knows all other records, their
    sampling, and the weight of each canary, but neither the coins nor the sampling of canaries. The
    claim covers this attacker, because it is computed for all sums together and for any gradients.
    If it is refuted, the training is not the claimed one, but the final weights may leak less. Two
    more properties are tested, each with an error probability of one in a million. Records are
    sampled by the claimed independent coins. The noise at the weights of absent canaries is
    independent and has the claimed size and distribution (nearly exact for logistic noise).

    **Edge cases.** Under ``zero_out`` and ``replace_one``, records are replaced. A replacement is
    two steps under ``zero_out``, so the claim is applied twice. An absent gradient canary is a
    record that contributes nothing, which is one step. The coins cannot test a claim for labels or
    for units other than records, or some relations that are known only after the fit. The verdict
    then says so, and nothing is refuted.

    References
    ----------
    T. Steinke, M. Nasr and M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS
    2023.
    S. Mahloujifar, L. Melis and K. Chaudhuri, "Auditing f-differential privacy in one run",
    arXiv:2410.22235, 2024.
    M. Nasr et al., "Tight auditing of differentially private machine learning", USENIX Security
    2023.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skprivacy.audit import audit_one_run
    >>> X, y = make_classification(2000, random_state=0)
    >>> report = audit_one_run(DecisionTreeClassifier(), X, y, n_canaries=400, random_state=0)
    >>> report.verdict, report.epsilon_lower_bound > 1
    ('no claim', True)
    """
    X, y = as_records(X), np.asarray(y)
    stated = read_claim(claim)
    flag("independent_canaries", independent_canaries)
    check_one_run(estimator, X, y, n_canaries, canaries, n_guesses, score, alpha)
    # A separate stream: if the model had the same seed, its sampling could follow the coins.
    random = np.random.default_rng(coin_entropy(random_state))
    if isinstance(canaries, str):
        if stated is not None and not steps_between(stated.relation, estimator.relation):
            raise ValueError(
                f"claim is for {stated.relation}, but gradient canaries test a claim for "
                f"{estimator.relation}, the network's relation. Pass a PrivacyGuarantee with it."
            )
        run = run_with_gradients(estimator, X, y, n_canaries, random)
    else:
        coin = coin_for(estimator)
        if stated is not None:
            coin = "add_remove" if stated.relation == "add_remove" else "replace_one"
        run = _run_with_records(
            estimator, X, y, n_canaries, canaries, score or _log_odds, coin, random
        )
    if stated is not None:
        run = replace(run, event_at=None)  # its noise says nothing about a claim of others
    tested = claim_to_test(claim_of(run.fitted, X), stated)
    return guess_and_test(
        " ".join(repr(estimator).split()), run, tested, alpha, random,
        n_guesses=n_guesses, independent=independent_canaries,
    )  # fmt: skip


@dataclass(frozen=True, repr=False)
class OneRunAuditReport(FactReport):
    """Claimed privacy of a model compared with guesses of the canaries' coins.

    Returned by :func:`audit_one_run`. An audit of a synthesizer holds one for all of its fits.

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


def check_one_run(
    estimator: Any, X: Any, y: NDArray[Any], n_canaries: Any, canaries: Any, n_guesses: Any,
    score: Any, alpha: Any,
) -> None:  # fmt: skip
    """Raise TypeError or ValueError for arguments that an audit of one run cannot use."""
    if not hasattr(estimator, "fit"):
        raise TypeError(f"estimator={estimator!r} must be an estimator with fit.")
    if holds_private_labels(estimator):
        raise ValueError(
            f"estimator={type(estimator).__name__} protects labels alone, so canary records show "
            "nothing. Use audit, which flips labels by coins."
        )
    check_consistent_length(X, y)
    if isinstance(canaries, str):
        _check_gradients(estimator, X, n_canaries, canaries, score)
    else:
        _check_records(estimator, X, y, n_canaries, canaries, score)
    if n_guesses is not None and not (is_whole(n_guesses) and 1 <= n_guesses <= n_canaries):
        raise ValueError(
            f"n_guesses={n_guesses!r} must be a whole number from 1 to n_canaries={n_canaries}, "
            "or None for the number that suits the claim."
        )
    check_alpha(alpha)


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


def _check_gradients(estimator: Any, X: Any, n_canaries: Any, canaries: str, score: Any) -> None:
    if canaries != "gradient":
        raise ValueError(
            f"canaries={canaries!r} must be 'gradient', a tuple (X_canaries, y_canaries), or None "
            "for records with wrong labels."
        )
    if score is not None:
        raise ValueError(
            f"score={score!r} scores records, but canaries='gradient' are scored by the noisy sums "
            "of all steps. Leave score out."
        )
    if not is_whole(n_canaries) or n_canaries < _FEWEST:
        raise ValueError(f"n_canaries={n_canaries!r} must be a whole number, at least {_FEWEST}.")
    check_gradient_canaries(estimator, X)


def _check_records(
    estimator: Any, X: Any, y: NDArray[Any], n_canaries: Any, canaries: Any, score: Any
) -> None:
    if not is_classifier(estimator) and (score is None or canaries is None):
        raise TypeError(
            f"estimator={type(estimator).__name__} must be a classifier, for canaries with wrong "
            "labels. Pass canaries=(X_canaries, y_canaries) and score, or a classifier."
        )
    if y.ndim != 1:
        raise ValueError(f"y must have one label for each record; got shape {y.shape}.")
    most = num_samples(X) // 2
    if not is_whole(n_canaries) or not _FEWEST <= n_canaries <= most:
        raise ValueError(
            f"n_canaries={n_canaries!r} must be a whole number from {_FEWEST} to half the number "
            f"of records, {most}. Pass fewer canaries or more records."
        )
    if canaries is not None and not (
        isinstance(canaries, tuple)
        and len(canaries) == 2
        and num_samples(canaries[0]) == num_samples(canaries[1]) == n_canaries
    ):
        raise ValueError(
            f"canaries must be (X_canaries, y_canaries) with n_canaries={n_canaries} records. Pass "
            "as many as n_canaries."
        )


def _run_with_records(
    estimator: Any, X: Any, y: NDArray[Any], n_canaries: int, given: tuple[Any, Any] | None,
    score: Score, coin: str, random: np.random.Generator,
) -> CanaryRun:  # fmt: skip
    rows, crafted, labels = draw_canaries(X, y, n_canaries, given, random)
    # Steinke, Nasr and Jagielski 2023, randomised inclusion: a fair coin for each canary.
    trained = random.random(n_canaries) < 0.5
    fitted = clone(estimator).fit(*insert_canaries(X, y, rows, crafted, labels, trained, coin))
    scores = np.asarray(score(fitted, crafted, labels), dtype=float)
    if scores.shape != labels.shape or not np.isfinite(scores).all():
        raise ValueError(
            f"score={score!r} returned shape {scores.shape}, or values that are not finite; "
            f"expected {n_canaries} finite numbers, one for each canary."
        )
    return CanaryRun(
        canaries="mislabelled" if given is None else "crafted",
        coin=coin,
        fitted=fitted,
        trained=trained,
        scores=scores,
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


def _log_odds(model: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the log odds of each label, or whether a model without probabilities predicts it."""
    if not hasattr(model, "predict_proba"):
        return np.asarray(call_model(model, "predict", X) == y, dtype=float)
    classes = class_list(model.classes_, y)
    own = predict_aligned(model, X, classes)[np.arange(len(y)), np.searchsorted(classes, y)]
    return np.log(np.maximum(own, _LEAST)) - np.log(np.maximum(1 - own, _LEAST))
