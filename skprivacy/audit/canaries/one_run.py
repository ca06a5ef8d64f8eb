"""Audit of one training run with canaries: fair coins insert them, an attack guesses the coins.

Steinke, Nasr and Jagielski 2023; Mahloujifar, Melis and Chaudhuri 2024. Start reading at
:func:`audit_one_run`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier

from ..._clones import call_model
from ..._docs import fill_docs
from ..._input_data import check_consistent_length
from ..._validation import flag, is_whole, num_samples
from ...attacks.model_answers import class_list, predict_aligned
from ...attacks.record_tables import as_records
from ...metrics.rates import check_alpha
from ..inspection.claims import claim_of, claim_to_test
from ..inspection.guarantees import CLAIM_DOCS, holds_private_labels, read_claim
from .coins import CanaryRun, coin_entropy, coin_for, draw_canaries, insert_canaries, steps_between
from .gradient_canary_audit import check_gradient_canaries, run_with_gradients
from .one_run_report import OneRunAuditReport, guess_and_test

_FEWEST = 20
Score = Callable[[Any, Any, NDArray[Any]], NDArray[np.float64]]
_LEAST = 1e-12  # lower clip of probabilities


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
        Its ``verdict`` ("violated", "consistent" or "no claim"), the numbers of guesses, the
        ``bounds`` on epsilon with their assumptions, and ``fitted``, the trained model.

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


def _log_odds(model: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the log odds of each label, or whether a model without probabilities predicts it."""
    if not hasattr(model, "predict_proba"):
        return np.asarray(call_model(model, "predict", X) == y, dtype=float)
    classes = class_list(model.classes_, y)
    own = predict_aligned(model, X, classes)[np.arange(len(y)), np.searchsorted(classes, y)]
    return np.log(np.maximum(own, _LEAST)) - np.log(np.maximum(1 - own, _LEAST))
