"""Plan, accounting and trials of a private hyper-parameter search.

A fixed number of trials would have to be composed. With a random number that stays secret, the best
of all trials costs little more than one (Liu and Talwar 2019; Papernot and Steinke 2022). The
number follows a geometric distribution: :class:`NumberOfTrials`.

Start with :func:`search_event`, which argues the guarantee, and with
:meth:`PreparedSearch.calibrate_to`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from .._clones import seed_globally
from .._config import config_context
from ..accounting import Event, PrivacyGuarantee, epsilon_of, weakest_arithmetic
from ..accounting.events import PrivateSelectionEvent
from ..accounting.events.mixtures import MixtureEvent
from ..audit import claim_of
from ..mechanisms import Gaussian, Laplace, SecureRandom
from .search_trials import Candidates, HeldOut, RecordScore

_TOLERANCE = 0.005  # the cost may stay below the target by this share
_MAX_ITERATIONS = 15


@dataclass(frozen=True)
class SearchPlan:
    """Plan and privacy cost of a private search, from public facts; see ``PrivateSearchCV.plan``.

    Attributes
    ----------
    guarantee : PrivacyGuarantee
        Guarantee of the whole search.
    trial_epsilon, trial_delta : float
        Epsilon and delta of each trial, whatever its hyper-parameters.
    n_trials : float
        The mean number of trials.
    n_candidates : int
        Number of settings that trials are drawn from.
    test_size : float
        Share of the records that are held out to score the trials.
    score_std : float
        Standard deviation of the noise of a score, in units of the score. The order of
        candidates whose scores differ by less is random.

    Examples
    --------
    >>> from skprivacy.datasets import load_demo
    >>> from skprivacy.linear_model import OutputPerturbationClassifier
    >>> from skprivacy.model_selection import PrivateSearchCV
    >>> digits = load_demo()
    >>> model = OutputPerturbationClassifier(
    ...     bounds=(0, 16), classes=digits.classes, relation="zero_out"
    ... )
    >>> search = PrivateSearchCV(model, {"alpha": [0.01, 0.1, 1.0]}, epsilon=2.0, n_trials=4)
    >>> search.plan(digits.data, digits.target)
    The best of 4 trials in the mean costs (2.00, 1e-05)-DP, zero-out, exact noise.
    Each is fitted with epsilon=1.5... and delta=2.5e-06 on 80 % of the records;
    a single fit could spend epsilon=1.99 and delta=1e-05 on all of them.
    Scores carry noise of standard deviation 0.007...
    """

    guarantee: PrivacyGuarantee
    trial_epsilon: float
    trial_delta: float
    n_trials: float
    n_candidates: int
    test_size: float
    score_std: float

    def __repr__(self) -> str:
        whole = repr(self.guarantee).partition(", proved")[0]
        delta = self.guarantee.at_delta or 0.0
        return (
            f"The best of {self.n_trials:g} trials in the mean costs {whole}.\n"
            f"Each is fitted with epsilon={self.trial_epsilon:.3g} and "
            f"delta={self.trial_delta:.3g} on {100 * (1 - self.test_size):.0f} % of the records;\n"
            f"a single fit could spend epsilon={self.guarantee.epsilon():.3g} and "
            f"delta={delta:.3g} on all of them.\n"
            f"Scores carry noise of standard deviation {self.score_std:.2g}."
        )


def search_event(
    fits: list[Event], score: Event, trials: NumberOfTrials, test_size: float
) -> Event:
    """Return the event of a search from the fit of each setting and the noisy score of a trial.

    **Guarantees.** Condition on the held-out set. A neighbour differs in a record that is used
    either for the fits or for the scores. In the first case a trial costs as much as its fit: the
    held-out records are equal, and the score depends on them and on the fitted model. The settings
    are drawn uniformly and released, which is a ``MixtureEvent``. In the second case the fits are
    equal, and a trial costs as much as its noisy score. In both cases one mechanism runs several
    times and its best outcome is released: ``PrivateSelectionEvent``. A record is held out with
    probability ``test_size``, independently of the data, so the whole is a mixture of both cases.
    """
    counts = Counter(fits)
    fit = fits[0]
    if len(counts) > 1:
        fit = MixtureEvent(tuple(n / len(fits) for n in counts.values()), tuple(counts))
    return MixtureEvent((1 - test_size, test_size), (trials.best_of(fit), trials.best_of(score)))


def find_trial_epsilon(
    cost: Callable[[float], float], epsilon: float, guess: float | None = None
) -> float:
    """Return the epsilon of a trial at which the search costs ``epsilon``, or slightly less.

    ``cost`` maps the epsilon of a trial to the epsilon of the search, which is nearly proportional
    to it.
    """
    trial, best = guess or epsilon / 1.5, 0.0
    for _ in range(_MAX_ITERATIONS):
        whole = cost(trial)
        if whole <= epsilon:
            best = max(best, trial)
            if whole >= epsilon * (1 - _TOLERANCE):
                break
        trial *= min(max((1 - _TOLERANCE / 2) * epsilon / whole, 0.1), 10.0)
    if best:
        return best
    raise ValueError(
        f"epsilon={epsilon!r} is too small: no trial is cheap enough, whatever its epsilon. Use "
        "a smaller n_trials, or a larger delta."
    )


_SECRECY_ASSUMPTION = "the number of trials, and all trials but the best, stay secret"
# A trial may read classes off its training records, and all records of a class may be held out.
_FACTS_ASSUMPTION = "whatever is read off the records is the same whoever is held out"
_DELTA_MARGIN = 1e-3  # of the sum of the trials' deltas


@dataclass(frozen=True)
class Trial:
    """Outcome of a trial. **Private, unless it is the best of all.**"""

    model: Any
    params: dict[str, Any]
    noisy_sum: float


@dataclass(frozen=True)
class PreparedSearch:
    """A calibrated search, ready to run its trials."""

    candidates: Candidates
    plan: SearchPlan
    claims: list[PrivacyGuarantee]
    score: RecordScore
    mechanism: Laplace | Gaussian
    data: HeldOut
    fit_params: dict[str, Any]

    def best_of(self, numbers: Iterable[int], random: SecureRandom) -> Trial:
        """Run the trials of these candidates; only the best one leaves this method."""
        best: Trial | None = None
        for number in numbers:
            # A published script may seed the global generators, as by numpy.random.seed(0). The
            # released model's initial weights would then reveal the number of its trial, so each
            # trial gets a secret seed.
            # A progress bar for each trial would reveal their number.
            with seed_globally(int(random.integers(1 << 32, 1)[0])), config_context(progress=False):
                trial = self._tried(int(number), random)
            if best is None or trial.noisy_sum > best.noisy_sum:
                best = trial
        if best is None:
            raise ValueError("numbers is empty; a search has at least one trial.")
        return best

    def _tried(self, number: int, random: SecureRandom) -> Trial:
        seed = int(random.integers(1 << 31, 1)[0]) if random.seeded else None
        model = self.candidates.model(number, self.plan.trial_epsilon, self.plan.trial_delta, seed)
        with warnings.catch_warnings():  # their number would reveal the number of trials
            warnings.simplefilter("ignore")
            self.data.fit(model, self.fit_params)
            claimed = claim_of(model, self.data.X_fit).guarantee
            if not _is_same_claim(claimed, self.claims[number], random.seeded):
                raise ValueError(
                    "A trial has made another claim than its rehearsal, so the charge does not "
                    "cover the search and nothing is released. Search with an estimator that makes "
                    "a single release."
                )
            total = self.score.sum(model, self.data.X_out, self.data.y_out, self.data.groups_out)
        noisy = float(self.mechanism.release(np.float64(total), random))
        return Trial(model, self.candidates.settings[number], noisy)

    @classmethod
    def calibrate_to(
        cls,
        epsilon: float,
        delta: float,
        trials: NumberOfTrials,
        candidates: Candidates,
        score: RecordScore,
        data: HeldOut,
        fit_params: dict[str, Any],
    ) -> PreparedSearch:
        """Return a search calibrated to ``epsilon`` and ``delta``; nothing is charged."""
        trial_delta = delta / trials.mean * (1 - _DELTA_MARGIN)
        claimed: dict[float, list[PrivacyGuarantee]] = {}

        def mechanism_at(trial_epsilon: float) -> Laplace | Gaussian:
            """Return the mechanism for the sum of a score, which costs as much as a fit."""
            if trial_delta == 0:
                return Laplace.calibrated(trial_epsilon, sensitivity=1.0)
            return Gaussian.calibrated(trial_epsilon, trial_delta, sensitivity=1.0)

        def event_of(fits: list[Event], trial_epsilon: float) -> Event:
            return search_event(fits, mechanism_at(trial_epsilon).event, trials, data.share)

        def estimate_cost(trial_epsilon: float) -> float:
            """Estimate the cost without a rehearsal, as if a fit cost as much as a score."""
            fits = [mechanism_at(trial_epsilon).event]
            return epsilon_of(event_of(fits, trial_epsilon), delta)

        def cost(trial_epsilon: float) -> float:
            claims = candidates.claims(trial_epsilon, trial_delta, data, fit_params)
            claimed[trial_epsilon] = claims
            event = event_of([claim.event for claim in claims], trial_epsilon)
            return epsilon_of(event, delta, claims[0].relation)

        guess = find_trial_epsilon(estimate_cost, epsilon)
        trial_epsilon = find_trial_epsilon(cost, epsilon, guess)
        claims, mechanism = claimed[trial_epsilon], mechanism_at(trial_epsilon)
        assumed = dict.fromkeys(a for claim in claims for a in claim.assumptions)
        guarantee = PrivacyGuarantee(
            event_of([claim.event for claim in claims], trial_epsilon),
            delta,
            claims[0].relation,
            assumptions=(*assumed, *_search_assumptions(assumed, score)),
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


def _search_assumptions(assumed: Iterable[str], score: RecordScore) -> Iterator[str]:
    """Yield the assumptions that a search adds to its trials' own."""
    if any("read off" in assumption for assumption in assumed):
        yield _FACTS_ASSUMPTION
    if score.assumption:
        yield score.assumption
    yield _SECRECY_ASSUMPTION


def _is_same_claim(
    claimed: PrivacyGuarantee | None, expected: PrivacyGuarantee, seeded: bool
) -> bool:
    """Return whether a claim is the rehearsed one; a noise seed may add assumptions."""
    if claimed is None:
        return False
    if seeded:
        expected = replace(expected, kind=claimed.kind, assumptions=claimed.assumptions)
    return claimed == expected


MAX_TRIALS = 1e6  # in the mean: 53-bit numbers do not follow the law of far more


@dataclass(frozen=True)
class NumberOfTrials:
    """Geometric distribution of the number of trials K, with ``gamma`` = 1 / mean.

    **Guarantees.** K is drawn by inversion of a uniform number of 53 bits. So each probability has
    an error of about 1e-16, and less probable numbers are never drawn. The distribution of the best
    trial depends on the probabilities through f'(u), the sum of k P(K = k) u^(k - 1). As f'(u) is
    at least P(K = 1) for every u, its relative error is at most 1e-9 for ``gamma`` of 0.01 and
    above. The same holds for the privacy loss.
    """

    mean: float

    @property
    def gamma(self) -> float:
        """Probability that a trial is the last one."""
        return 1 / self.mean

    def best_of(self, event: Event) -> PrivateSelectionEvent:
        """Return the event of the best of K trials."""
        return PrivateSelectionEvent(event, eta=1.0, gamma=self.gamma)

    def draw(self, random: SecureRandom) -> int:
        """Draw K, at least 1."""
        left, probability = float(random.uniform(1)[0]), self.gamma
        for k in count(1):
            left -= probability
            if left <= 0 or probability < 1e-18:
                return k
            probability *= 1 - self.gamma
        raise AssertionError("unreachable")
