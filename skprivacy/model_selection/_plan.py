"""What a private search would do and what it costs, known before a record has been learned from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ..accounting import Event, Mixture, PrivacyGuarantee
from ..mechanisms import Gaussian, Laplace
from ._trials import NumberOfTrials

__all__ = ["SearchPlan", "largest_trial_epsilon", "score_mechanism", "search_event"]

_CLOSE = 0.005  # how far below the target the cost may stay
_ROUNDS = 15


@dataclass(frozen=True)
class SearchPlan:
    """What a private search would do, and what it costs; returned by ``PrivateSearchCV.plan``.

    It depends on public facts alone.

    Attributes
    ----------
    guarantee : PrivacyGuarantee
        What the whole search would cost.
    trial_epsilon, trial_delta : float
        What a single trial is fitted with, whatever its hyper-parameters.
    n_trials : float
        The mean number of trials.
    n_candidates : int
        How many settings a trial's are drawn from.
    test_size : float
        Share of the records that no trial learns from, because the trials are scored on them.
    score_std : float
        Standard deviation of the noise of a score, in units of the score. Candidates that are
        closer are told apart by chance.

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
    The best of 4 trials in the mean costs (2.00, 1e-06)-DP, zero-out, exact noise.
    Each is fitted with epsilon=1.6... and delta=2.5e-07 on 80 % of the records;
    a single fit could spend epsilon=1.99 and delta=1e-06 on all of them.
    Scores carry noise of standard deviation 0.008...
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
    """Return the event of a search.

    Parameters
    ----------
    fits : list of Event
        A fit of each setting that a trial may have.
    score : Event
        The noisy score of a trial.
    trials : NumberOfTrials
        The law of their number.
    test_size : float
        The probability with which a record is held out.

    Returns
    -------
    Event

    Notes
    -----
    **Guarantees.** Given who is held out, a neighbour differs either in a record that is fitted on
    or in one that is scored on. In the first case a trial costs what its fit costs: the held-out
    records are the same, and its score is computed from them and from the fitted model. The
    settings are drawn uniformly and released, so that is a :class:`~skprivacy.accounting.Mixture`.
    In the second case the fits are the same, and a trial costs what its noisy score costs. In both,
    one mechanism is run several times and its best outcome is released:
    :class:`~skprivacy.accounting.PrivateSelection`. Who is held out is drawn once, independently of
    the data, so the whole is a mixture of both cases.
    """
    counts = Counter(fits)
    fit = fits[0]
    if len(counts) > 1:
        fit = Mixture(tuple(n / len(fits) for n in counts.values()), tuple(counts))
    return Mixture((1 - test_size, test_size), (trials.best_of(fit), trials.best_of(score)))


def score_mechanism(epsilon: float, delta: float) -> Laplace | Gaussian:
    """Return what protects the sum of a score over records, at the cost of a fit."""
    if delta == 0:
        return Laplace.calibrated(epsilon, sensitivity=1.0)
    return Gaussian.calibrated(epsilon, delta, sensitivity=1.0)


def largest_trial_epsilon(
    cost: Callable[[float], float], epsilon: float, guess: float | None = None
) -> float:
    """Return the epsilon of a trial at which the whole search costs ``epsilon``, or a little less.

    Parameters
    ----------
    cost : callable
        Takes the epsilon of a trial and returns that of the search. It increases, nearly in
        proportion.
    epsilon : float
        The target.
    guess : float, default=None
        Where to begin.

    Raises
    ------
    ValueError
        If no trial is cheap enough.
    """
    trial, best = guess or epsilon / 1.5, 0.0
    for _ in range(_ROUNDS):
        whole = cost(trial)
        if whole <= epsilon:
            best = max(best, trial)
            if whole >= epsilon * (1 - _CLOSE):
                break
        trial *= min(max((1 - _CLOSE / 2) * epsilon / whole, 0.1), 10.0)
    if best:
        return best
    raise ValueError(
        f"epsilon={epsilon!r} is too small: no trial is cheap enough, whatever its epsilon. Use "
        "a smaller n_trials, or a larger delta."
    )
