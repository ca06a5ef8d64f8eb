"""A search that is ready to run."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._global_chance import seeded_globally
from ..accounting import Event, PrivacyGuarantee, epsilon_of, weakest_arithmetic
from ..audit import claim_of
from ..mechanisms import Gaussian, Laplace, SecureRandom
from ._candidates import Candidates
from ._held_out import HeldOut, RecordScore
from ._plan import SearchPlan, largest_trial_epsilon, score_mechanism, search_event
from ._trials import NumberOfTrials

__all__ = ["PreparedSearch", "Trial"]

_SECRET = "the number of trials, and all trials but the best, stay secret"
# Trials read facts off the records that they are fitted on: one of a class may be held out.
_SAME_FACTS = "whatever is read off the records is the same whoever is held out"
_ROUNDING = 1e-3  # of the sum of the trials' deltas


@dataclass(frozen=True)
class Trial:
    """What came of a trial. **Private, unless it is the best of all.**"""

    model: Any
    params: dict[str, Any]
    noisy_sum: float


@dataclass(frozen=True)
class PreparedSearch:
    """Everything that is settled before the first trial."""

    candidates: Candidates
    plan: SearchPlan
    claims: list[PrivacyGuarantee]
    score: RecordScore
    mechanism: Laplace | Gaussian
    data: HeldOut
    fit_params: dict[str, Any]

    def best_of(self, numbers: Iterable[int], random: SecureRandom) -> Trial:
        """Try the candidates of these numbers; only the best trial leaves this method."""
        best: Trial | None = None
        for number in numbers:
            # Whoever knows the seeds of the global generators, as of numpy.random.seed(0) in a
            # published script, must not learn from the weights that a network began with which of
            # the trials was the best: each has a secret seed of its own.
            with seeded_globally(int(random.integers(1 << 32, 1)[0])):
                trial = self._tried(int(number), random)
            if best is None or trial.noisy_sum > best.noisy_sum:
                best = trial
        if best is None:
            raise ValueError("numbers is empty; a search has at least one trial.")
        return best

    def _tried(self, number: int, random: SecureRandom) -> Trial:
        seed = int(random.integers(1 << 31, 1)[0]) if random.seeded else None
        model = self.candidates.model(number, self.plan.trial_epsilon, self.plan.trial_delta, seed)
        with warnings.catch_warnings():  # how many there are would tell the number of trials
            warnings.simplefilter("ignore")
            self.data.fit(model, self.fit_params)
            claimed = claim_of(model, self.data.X_fit).guarantee
            if not _same(claimed, self.claims[number], random.seeded):
                raise ValueError(
                    "A trial has made another claim than its rehearsal, so the search is not "
                    "covered by what was charged, and nothing of it is released. Search with an "
                    "estimator that makes a single release."
                )
            total = self.score.sum(model, self.data.X_out, self.data.y_out, self.data.people_out)
        noisy = float(self.mechanism.release(np.float64(total), random))
        return Trial(model, self.candidates.settings[number], noisy)

    @classmethod
    def within(
        cls,
        epsilon: float,
        delta: float,
        trials: NumberOfTrials,
        candidates: Candidates,
        score: RecordScore,
        data: HeldOut,
        fit_params: dict[str, Any],
    ) -> PreparedSearch:
        """Return a search that costs ``epsilon`` at ``delta``, with as good trials as that allows.

        Nothing is charged or released.
        """
        trial_delta = delta / trials.mean * (1 - _ROUNDING)
        claimed: dict[float, list[PrivacyGuarantee]] = {}

        def mechanism_at(trial_epsilon: float) -> Laplace | Gaussian:
            return score_mechanism(trial_epsilon, trial_delta)

        def event_of(fits: list[Event], trial_epsilon: float) -> Event:
            return search_event(fits, mechanism_at(trial_epsilon).event, trials, data.share)

        def roughly(trial_epsilon: float) -> float:
            """Return the cost if fits cost what scores do, which needs no rehearsal."""
            fits = [mechanism_at(trial_epsilon).event]
            return epsilon_of(event_of(fits, trial_epsilon), delta)

        def cost(trial_epsilon: float) -> float:
            claims = candidates.claims(trial_epsilon, trial_delta, data, fit_params)
            claimed[trial_epsilon] = claims
            event = event_of([claim.event for claim in claims], trial_epsilon)
            return epsilon_of(event, delta, claims[0].relation)

        guess = largest_trial_epsilon(roughly, epsilon)
        trial_epsilon = largest_trial_epsilon(cost, epsilon, guess)
        claims, mechanism = claimed[trial_epsilon], mechanism_at(trial_epsilon)
        assumed = dict.fromkeys(a for claim in claims for a in claim.assumptions)
        guarantee = PrivacyGuarantee(
            event_of([claim.event for claim in claims], trial_epsilon),
            delta,
            claims[0].relation,
            assumptions=(*assumed, *_further(assumed, score)),
            unit=claims[0].unit,
            arithmetic=weakest_arithmetic(
                [mechanism.arithmetic, *(claim.arithmetic for claim in claims)]
            ),
        )
        plan = SearchPlan(
            guarantee,
            trial_epsilon,
            trial_delta,
            trials.mean,
            len(claims),
            data.share,
            (score.high - score.low) * mechanism.std / data.expected,
        )
        return cls(candidates, plan, claims, score, mechanism, data, fit_params)


def _further(assumed: Iterable[str], score: RecordScore) -> Iterator[str]:
    """Yield what a search assumes beyond its trials."""
    if any("read off" in assumption for assumption in assumed):
        yield _SAME_FACTS
    if score.assumption:
        yield score.assumption
    yield _SECRET


def _same(claimed: PrivacyGuarantee | None, expected: PrivacyGuarantee, seeded: bool) -> bool:
    """Return whether a claim is the expected one; a seed of the noise adds to what it assumes."""
    if claimed is None:
        return False
    if seeded:
        expected = replace(expected, kind=claimed.kind, assumptions=claimed.assumptions)
    return claimed == expected
