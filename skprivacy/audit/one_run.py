"""One training run with canaries: fair coins put them in, and an attacker guesses the coins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from .._clones import asked
from .._validation import flag
from ..accounting import PrivacyGuarantee
from ..attacks._predictions import class_list, predict_aligned
from ..attacks._records import as_records
from ..metrics import GuessBound, bound_from_guesses
from ..metrics._guesses import BOUNDS
from ..metrics._one_run import (
    Inverse,
    guessed,
    guessed_in_turn,
    refutes,
    refutes_apart,
    telling_guesses,
    usual_guesses,
)
from ._canaries import CanaryRun, coin_entropy, coin_for, draw_canaries, mixed
from ._curves import inverse_curve, steps_between
from ._gradient_canaries import SEEN, bound_on_noise, run_with_gradients
from ._one_run_checks import check_one_run
from ._plain import brief
from .claims import Claim, claim_of

__all__ = ["COINS", "OneRunReport", "audit_one_run", "judged"]

Score = Callable[[Any, Any, NDArray[Any]], NDArray[np.float64]]

_LEAST = 1e-12  # probabilities below are as good as it
_NOT_SAMPLED = (
    "  sampling: records did not take part by coins of their own, which the claim is accounted "
    "for with"
)
_DELTA = 1e-5  # for models without a claim, and beside pure ones
_TOO_FEW = "  too few canaries: with all guesses right, no leak could have refuted the claim"
COINS = {
    "add_remove": "a canary was in the training data, or was not",
    "replace_one": "a canary was in the training data, or a record of the data in its place",
    "zero_out": "a canary was in the training data, or a record that contributes nothing",
}
CANARIES = {
    "mislabelled": "records of the data with wrong labels",
    "crafted": "records as they were given",
    "gradient": "long gradients in one weight each, looked for in the noisy sums of all steps",
    "tables": "records spread over the schema, looked for in the noisy tables",
    "rows": "records spread over the schema, looked for in synthetic records",
}


@dataclass(frozen=True, repr=False)
class OneRunReport:
    """The claimed privacy of a model compared with how well coins of canaries were guessed.

    Returned by :func:`audit_one_run`, and in a :class:`SynthesizerAudit` for all its runs together.

    Attributes
    ----------
    model : str
        The model and its parameters.
    fitted : estimator
        The model that was trained, WITH canaries.
    claim : Claim
        What it claims.
    canaries : {"mislabelled", "crafted", "gradient", "tables", "rows"}
        What the canaries were, and where they were looked for.
    coin : {"add_remove", "replace_one", "zero_out"}
        The neighbouring relation that one coin makes: whether a canary was in the training data or
        not at all, or was there instead of another record, or of one that contributes nothing.
    right, guesses, n_canaries : int
        How many guesses were right, of how many, and the number of coins.
    refuted : bool
        Whether the guesses refute the claimed trade-off curve, at error ``alpha``.
    sampled : bool
        False if records were seen to take part in another way than by the coins of their own that
        the claim is accounted for with. Looked at with gradient canaries alone.
    within_reach : bool
        Whether the claim would have been refuted had all guesses been right.
    untested : str
        Why the coins say nothing about the claim; empty if they do.
    bounds : tuple of GuessBound
        Lower bounds on epsilon under the relation ``coin``, each with its assumptions. Each
        exceeds the truth with probability ``alpha`` at most, by itself.
    alpha : float
        Error probability of the verdict.
    scores : ndarray of shape (n_canaries,)
        Higher means trained on.
    trained : ndarray of bool of shape (n_canaries,)
        The coins.
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
    sampled: bool
    within_reach: bool
    untested: str
    bounds: tuple[GuessBound, ...]
    alpha: float
    scores: NDArray[np.float64] = field(compare=False)
    trained: NDArray[np.bool_] = field(compare=False)

    @property
    def verdict(self) -> str:
        """ "VIOLATED", "consistent", or why there was no claim to test.

        "consistent" does not prove a claim: a stronger attack may refute it.
        """
        if self.untested:
            return self.untested
        return "VIOLATED" if self.refuted or not self.sampled else "consistent"

    @property
    def epsilon_lower_bound(self) -> float:
        """The bound that assumes nothing of the mechanism, under the relation ``coin``."""
        return self.bounds[0].epsilon

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must be true for the verdict's error probability."""
        made = ["coins are fair, and training saw no more of them than the records"]
        if self.canaries == "gradient":
            made.append(SEEN)
        if self.claim.guarantee is not None:
            made += self.claim.guarantee.assumptions
            if self._steps == 2:
                made.append(
                    f"the claim, for {self.claim.guarantee.relation}, was taken twice: what a coin "
                    "exchanges is two steps apart"
                )
        return tuple(made)

    @property
    def _steps(self) -> int:
        guarantee = self.claim.guarantee
        return 0 if guarantee is None else steps_between(guarantee.relation, self.coin)

    def __repr__(self) -> str:
        claimed = self.claim.guarantee or self.claim.reason
        lines = [
            f"One-run audit of {brief(self.model)}: {self.verdict}",
            f"  claim: {claimed}",
            f"  canaries: {CANARIES[self.canaries]}",
            f"  coin: {COINS[self.coin]}",
            f"  {self.right:,} of {self.guesses:,} guesses right, {self.n_canaries:,} canaries",
            *(f"  {bound!r}" for bound in self.bounds),
            *([_NOT_SAMPLED] if not self.sampled else []),
            *([_TOO_FEW] if not (self.within_reach or self.untested) else []),
            *(f"  assumes that {text}" for text in self.assumptions),
        ]
        return "\n".join(lines)


def audit_one_run(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    n_canaries: int = 1000,
    canaries: tuple[Any, Any] | str | None = None,
    n_guesses: int | None = None,
    score: Score | None = None,
    independent_canaries: bool = False,
    alpha: float = 0.05,
    random_state: int | None = None,
) -> OneRunReport:
    """Train an estimator once, with canaries among the records, and guess which it was trained on.

    A fair coin for each canary says whether it takes the place of a record of ``X``. Otherwise the
    record is left out, or stays where the estimator's guarantee takes the number of records for
    public, or is one for records that are replaced.

    With ``canaries="gradient"``, a network is audited by all that its training releases: canaries
    are records more, with a long gradient in one weight each, and are looked for in the noisy sum
    of every step. That shows about as much as there is to see.

    Parameters
    ----------
    estimator : classifier or pipeline
        A clone is fitted ONCE, with its own seeds, and charges its budget as any fit does.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,)
        Training records.
    n_canaries : int, default=1000
        From 20 to half the number of records, or to the number of weights for gradients. More show
        more, and make the model worse. Below epsilon 2 it takes thousands to see half of it.
    canaries : tuple (X_canaries, y_canaries) or "gradient", default=None
        Crafted canaries, in the form of X and y. ``None``: records of X with wrong labels.
        ``"gradient"``: for :class:`~skprivacy.neural_network.DPSGDClassifier` and
        :class:`~skprivacy.neural_network.DPSGDRegressor`, by themselves, with Poisson samples.
    n_guesses : int, default=None
        How many coins to guess. ``None``: what would refute the claimed curve most surely were it
        false; about ``5 sqrt(n_canaries)`` without a claim.
    score : callable, default=None
        ``score(model, X_canaries, y_canaries)`` returns a number for each canary, higher if the
        model seems trained on it; it may look inside. ``None``: the log odds of the canary's label.
    independent_canaries : bool, default=False
        Whether to add the product bound, which holds only if canaries do not interfere. With
        gradients, of which each has a weight of its own, it is always there.
    alpha : float, default=0.05
        Error probability: a true claim is called violated with at most this probability.
    random_state : int or None, default=None
        Seed of canaries and coins. ``None``: fresh. Whoever fits must not know it.

    Returns
    -------
    OneRunReport
        With the model that was trained.

    Raises
    ------
    TypeError
        If the estimator is not a classifier and there is no ``score`` and no ``canaries``; or is
        not a network, for gradients.
    ValueError
        If the estimator protects labels alone, which :func:`audit` is for, a parameter is out
        of range, or the network's noise, clipping or augmentation are not made for gradient
        canaries. Raised before anything is trained or charged.

    Notes
    -----
    **Guarantees.** A true claim is called violated with probability ``alpha`` at most, however
    canaries and records interfere: only the coins are random. The number of guesses is settled by
    the claimed curve, before the coins are looked at. Audits are not private: the report holds the
    scores. The model was trained on canaries and is not for use.

    Gradient canaries go through the network's own sampling, clipping, noise and release. Who looks
    for them sees every noisy sum, and knows the records that are no canaries, their sampling, and
    which weight is whose; neither the coins nor the sampling of canaries. The claim, which is
    accounted for all sums together and for whatever gradients, holds against this attacker: if it
    is refuted, what the training releases is not what its epsilon was computed for, even where the
    final weights alone tell less. How often records took part is compared with the coins that they
    are said to have, too, which raises the error probability of the verdict by one in a million.

    **Edge cases.** A guarantee for a public number of records, or for replaced records, is tested
    by replacing: under ``zero_out`` that is two steps, so the claim is taken twice. A gradient
    canary that is left out is a record that contributes nothing, which is one step. Claims whose
    relation is known only after the fit, for units other than records, or for labels, may turn out
    to be untestable by these coins; the verdict says so, and nothing is refuted.

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
    flag("independent_canaries", independent_canaries)
    check_one_run(estimator, X, y, n_canaries, canaries, n_guesses, score, alpha, random_state)
    # A stream of its own: with the seed of the model itself, its samples could follow the coins.
    random = np.random.default_rng(coin_entropy(random_state))
    if isinstance(canaries, str):
        run = run_with_gradients(estimator, X, y, n_canaries, random)
    else:
        run = _run_with_records(estimator, X, y, n_canaries, canaries, score or _log_odds, random)

    return judged(
        " ".join(repr(estimator).split()), run, claim_of(run.fitted, X), alpha, random,
        n_guesses=n_guesses, apart=independent_canaries,
    )  # fmt: skip


def judged(
    model: str, run: CanaryRun, claim: Claim, alpha: float, random: np.random.Generator, *,
    n_guesses: int | None = None, apart: bool = False,
) -> OneRunReport:  # fmt: skip
    """Guess coins by scores, and hold the right guesses against a claim."""
    untested = _untested(claim, run.coin)
    guarantee = None if untested else claim.guarantee
    curve = None if guarantee is None else inverse_curve(guarantee, run.coin)
    n_canaries = guesses = len(run.trained)
    if run.apart:
        right = int(np.sum(guessed_in_turn(run.scores) == run.trained))
    else:
        guesses = n_guesses or _guesses(n_canaries, curve, alpha)
        chosen, guess = guessed(run.scores, guesses, random)
        right = int(np.sum(guess == run.trained[chosen]))

    def refuted(count: int) -> bool:
        if curve is not None and run.apart:
            return refutes_apart(count, n_canaries, curve, alpha)
        return curve is not None and refutes(count, guesses, n_canaries, curve, alpha)

    return OneRunReport(
        model=model,
        fitted=run.fitted,
        claim=claim,
        canaries=run.canaries,
        coin=run.coin,
        right=right,
        guesses=guesses,
        n_canaries=n_canaries,
        refuted=refuted(right),
        sampled=run.sampled,
        within_reach=refuted(guesses),
        untested=untested,
        bounds=_bounds((right, guesses, n_canaries), guarantee, run, alpha, apart),
        alpha=float(alpha),
        scores=run.scores,
        trained=run.trained,
    )


def _run_with_records(
    estimator: Any, X: Any, y: NDArray[Any], n_canaries: int, given: tuple[Any, Any] | None,
    score: Score, random: np.random.Generator,
) -> CanaryRun:  # fmt: skip
    coin = coin_for(estimator)
    rows, crafted, labels = draw_canaries(X, y, n_canaries, given, random)
    trained = random.random(n_canaries) < 0.5
    fitted = clone(estimator).fit(*mixed(X, y, rows, crafted, labels, trained, coin))
    return CanaryRun(
        canaries="mislabelled" if given is None else "crafted",
        coin=coin,
        fitted=fitted,
        trained=trained,
        scores=_scored(score, fitted, crafted, labels),
    )


def _untested(claim: Claim, coin: str) -> str:
    """Return why the coins say nothing about a claim, beginning with "no claim"; else nothing."""
    guarantee = claim.guarantee
    if guarantee is None:
        return claim.reason
    if math.isinf(guarantee.epsilon()):
        return "no claim"
    if guarantee.unit != "record":
        return f"no claim about single records: the unit is {guarantee.unit}"
    if not steps_between(guarantee.relation, coin):
        return f"no claim about these coins: it is for {guarantee.relation}, they are {coin}"
    return ""


def _guesses(n_canaries: int, curve: Inverse | None, alpha: float) -> int:
    if curve is None:
        return usual_guesses(n_canaries)
    return telling_guesses(n_canaries, curve, alpha)


def _bounds(
    counts: tuple[int, int, int],
    guarantee: PrivacyGuarantee | None,
    run: CanaryRun,
    alpha: float,
    apart: bool,
) -> tuple[GuessBound, ...]:
    delta = _DELTA if guarantee is None else guarantee.at_delta or 0.0
    first = bound_from_guesses(*counts, bound="approximate", delta=delta, alpha=alpha)
    if run.apart:
        alone = bound_from_guesses(*counts, bound="product", delta=delta or _DELTA, alpha=alpha)
        return first, replace(alone, assumptions=BOUNDS["gaussian"])
    kinds = ["gaussian", *(["product"] if apart or run.canaries == "gradient" else [])]
    rest = [
        bound_from_guesses(*counts, bound=kind, delta=delta or _DELTA, alpha=alpha)
        for kind in kinds
    ]
    if guarantee is not None and run.event_at is not None:
        rest[0] = bound_on_noise(counts, guarantee, run, alpha)
    return (first, *rest)


def _log_odds(model: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
    """Return how much the model believes each label; all it says may be the label."""
    if not hasattr(model, "predict_proba"):
        return np.asarray(asked(model, "predict", X) == y, dtype=float)
    classes = class_list(model.classes_, y)
    own = predict_aligned(model, X, classes)[np.arange(len(y)), np.searchsorted(classes, y)]
    return np.log(np.maximum(own, _LEAST)) - np.log(np.maximum(1 - own, _LEAST))


def _scored(score: Score, model: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
    scores = np.asarray(score(model, X, y), dtype=float)
    if scores.shape != y.shape or not np.isfinite(scores).all():
        raise ValueError(
            f"score={score!r} returned shape {scores.shape}, or values that are not finite; "
            f"expected {len(y)} finite numbers, one for each canary."
        )
    return scores
