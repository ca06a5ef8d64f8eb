"""Bounds of an audit on matched pairs, where members and non-members differ.

Pairs of a member and a non-member with equal labels and nearly equal blind log odds of membership
(propensity scores: Rosenbaum and Rubin 1983; caliper: Austin 2011). Start reading at
:func:`bound_pairs`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logit

from ..._report_facts import format_percent
from ...accounting import PrivacyGuarantee
from ...metrics.evidence import Evidence
from ..report.findings import AttackFinding, claimed_delta, evidence_against
from .blind_baseline import BlindClassifiers, FloatArray, SampleUnits

Rows = NDArray[np.int64]
MIN_PAIRS = 100  # below which the samples have too little in common
CALIPER = 0.2  # largest distance of a pair, in standard deviations of the log odds (Austin 2011)
N_FOLDS, N_TREES = 5, 30
LEAST_PROBABILITY = 0.01  # of blind classifiers, so that log odds are finite
LARGEST_FACTOR = 1e6
GRID = 400  # steps of the integral of a claimed curve


@dataclass(frozen=True)
class MatchedPairs:
    """Evidence of an audit that uses only pairs of similar units."""

    n_pairs: int
    by_label: bool  # whether the units of a pair have equal labels; of numbers, equal tenths
    attack: str = ""  # that shows most on the pairs
    epsilon_lower_bound: float | None = None  # None if there are too few pairs
    # Ratio of frequencies of some unit in the two matched samples that the claim needs to allow the
    # evidence; 1 if it needs none. Without a claim, for a model that leaks nothing.
    factor: float = 1.0

    def describe(self, alpha: float, *, claims: bool) -> str:
        """Return the evidence in words; ``alpha`` is its error probability."""
        if self.epsilon_lower_bound is None:
            return (
                f"{self.n_pairs:,} pairs of a member and a similar non-member, of the {MIN_PAIRS} "
                "that are needed: the samples have too little in common"
            )
        alike = "equal labels and similar blind scores" if self.by_label else "similar blind scores"
        shown = (
            f"epsilon of at least {self.epsilon_lower_bound:.3g} (confidence "
            f"{format_percent(1 - alpha, 0)}) by {self.attack}, on {self.n_pairs:,} pairs of a "
            f"member and a non-member with {alike}"
        )
        model = "a model with the claimed privacy" if claims else "a model that leaks nothing"
        if self.factor <= 1:
            return f"{shown}; {model} may show this"
        return (
            f"{shown}; {model} shows this only if the pairs differ unseen, and some records are at "
            f"least {self.factor:.3g} times as frequent on one side of the pairs as on the other"
        )


def bound_pairs(
    units: SampleUnits,
    findings: Sequence[AttackFinding],
    guarantee: PrivacyGuarantee | None,
    alpha: float,
) -> MatchedPairs:
    """Return the evidence of attacks on matched pairs, with an equal share of ``alpha`` for each.

    **Guarantees.** Let every unit be at most G times as frequent among matched members as among
    matched non-members, and the reverse. Then a model with the claimed curve f has
    tpr <= E_in[f(fpr of a unit)] <= G E_out[f(fpr of a unit)] <= G f(fpr), because f is concave. So
    bounds beyond G f refute the claim. Nothing proves that G is near 1: columns that the audit was
    not given stay unseen.
    """
    log_odds = estimate_log_odds(units)
    by_label = units.labels is not None
    best = MatchedPairs(0, by_label)
    for finding in findings:
        inside, outside = finding.evaluated or (np.arange(units.n_in), np.arange(units.n_out))
        chosen = pair_units(units, log_odds, inside, outside)
        if len(chosen[0]) < MIN_PAIRS:
            best = max(best, MatchedPairs(len(chosen[0]), by_label), key=_measure_strength)
            continue
        scores = finding.result.scores_in[chosen[0]], finding.result.scores_out[chosen[1]]
        found = evidence_against(*scores, guarantee, alpha / len(findings))  # Bonferroni
        pairs = MatchedPairs(
            len(chosen[0]),
            by_label,
            finding.result.attack,
            found.epsilon(claimed_delta(guarantee)),
            needed_factor(found, guarantee),
        )
        best = max(best, pairs, key=_measure_strength)
    return best


def _measure_strength(pairs: MatchedPairs) -> tuple[float, float, int]:
    bound = -1.0 if pairs.epsilon_lower_bound is None else pairs.epsilon_lower_bound
    return bound, pairs.factor, pairs.n_pairs


def estimate_log_odds(units: SampleUnits) -> FloatArray:
    """Return the log odds of membership of each unit, by classifiers of the other folds."""
    folds = np.concatenate([ranks % N_FOLDS for ranks in units.ranks])
    proba = np.empty(len(folds))
    for fold in range(N_FOLDS):
        scored, classifiers = folds == fold, BlindClassifiers(units.seed)
        classifiers.learn(units, ~scored, N_TREES)
        proba[scored] = np.mean(classifiers.score(units, scored), axis=0)
    clipped = np.clip(proba, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    odds: FloatArray = logit(clipped)
    return odds


def pair_units(
    units: SampleUnits, log_odds: FloatArray, inside: Rows, outside: Rows
) -> tuple[Rows, Rows]:
    """Pair members with the nearest free non-members of equal labels, in a fixed random order.

    ``inside`` and ``outside`` are the units to be paired, counted in their own samples. Returns the
    positions in them of the paired units.
    """
    whole = np.concatenate([inside, units.n_in + outside])
    odds, n_in = log_odds[whole], len(inside)
    labels = np.zeros(len(whole), int) if units.labels is None else units.labels[whole]
    widest = CALIPER * float(odds.std())
    free: dict[int, list[tuple[float, int]]] = {}
    for j in np.argsort(odds[n_in:], kind="stable").tolist():
        free.setdefault(int(labels[n_in + j]), []).append((float(odds[n_in + j]), j))
    pairs = []
    for i in np.argsort(units.ranks[0][inside]).tolist():
        others = free.get(int(labels[i]), [])
        place = bisect_left(others, (float(odds[i]), -1))
        near = [k for k in (place - 1, place) if 0 <= k < len(others)]
        nearest = min(near, key=lambda k: abs(others[k][0] - odds[i]), default=None)
        if nearest is not None and abs(others[nearest][0] - odds[i]) <= widest:
            pairs.append((i, others.pop(nearest)[1]))
    found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def needed_factor(evidence: Evidence, guarantee: PrivacyGuarantee | None) -> float:
    """Return the least factor G, at least 1, for which G times the claimed curve allows evidence.

    Without a claim, the curve is the diagonal: a model that leaks nothing.
    """
    bounds = guarantee is not None and math.isfinite(guarantee.epsilon())
    allowed = guarantee.tpr_bound if guarantee is not None and bounds else np.asarray
    factors = [1.0]
    for tpr, fpr, _ in evidence.points:
        rates = np.array([[tpr, fpr], [1 - fpr, 1 - tpr]])
        factors += list(rates[:, 0] / allowed(rates[:, 1]))
    steps = allowed(np.arange(1, GRID + 1) / GRID)

    def compute_excess(factor: float) -> float:
        """Return by how much the area exceeds the area under min(1, factor x curve), rounded up."""
        return evidence.area - float(np.minimum(1.0, factor * steps).mean())

    if compute_excess(1.0) > 0:
        factors.append(float(brentq(compute_excess, 1.0, LARGEST_FACTOR)))
    return float(max(factors))
