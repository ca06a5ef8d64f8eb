"""Mixture of releases by a public random choice, and private selection of the best of several runs.

Private selection from a random number of runs follows Papernot and Steinke 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..._validation import is_number, sequence
from ..event import Event, NoLossDistributionError, Orders, Pairs, check_event, numbers
from ..pld.distribution import PrivacyLossDistribution, pld
from ..pld.pairs import AtomPair, MixedPair, pair_from_curve, symmetric_pairs
from ..renyi import DEFAULT_ORDERS, rdp
from ..work_limit import CURVE_WORK
from .composition import PoissonSampledEvent, group_events, total_zcdp

_SUM_TOLERANCE = 1e-9  # largest deviation of the sum of probabilities from 1
_SMALLEST_DELTA = 1e-15  # on a privacy curve, above the probability of an infinite loss
_LARGEST_LOSS = 350.0  # the exponential of twice this loss is still finite
_BRANCH_POINTS, _RUN_POINTS = 1000, 250  # on the privacy curve of a branch, and of a run
_ZERO_LOSS_PAIR = AtomPair((0.0,), (1.0,), (1.0,))
_FAILURE_MARGIN = 1e-4  # relative margin above the probability of an infinite loss
_ZERO_SHAPE = 1e-100  # shapes below this give the same floats as shape 0
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MixtureEvent(Event, tag="Mixture", knows_label=True):
    """Mixture: one of several events, chosen at random; the choice is released with the answer.

    Parameters
    ----------
    p : tuple of float
        The probability of each event, above 0. **Probabilities and choice must not depend on the
        data**.
    events : tuple of Event
        The events, of which one happens.

    Notes
    -----
    **Guarantees.** For every epsilon, delta is the weighted mean of the events' deltas, whereas
    :class:`ComposedEvent` would count each event fully. The dominating pair chooses each event's
    pair with its probability, and composes like any other pair. If an event is itself a
    composition, a bound on its privacy curve takes the place of its pair. The Renyi cost of order a
    is ln(sum_i p_i exp((a - 1) R_i)) / (a - 1). zCDP has no such mean, so the most expensive event
    counts. The mixture holds under every relation under which its events hold.

    References
    ----------
    D. Kifer and B.-R. Lin, "An axiomatic view of statistical privacy and utility", Journal of
    Privacy and Confidentiality 4 (2012): convexity.

    Examples
    --------
    >>> from skprivacy.accounting import LaplaceEvent, epsilon_of
    >>> from skprivacy.accounting.events import MixtureEvent
    >>> seldom = MixtureEvent((0.99, 0.01), (LaplaceEvent(10.0), LaplaceEvent(1.0)))
    >>> round(epsilon_of(seldom, 0.0), 2), round(epsilon_of(seldom, 0.01), 2)
    (1.0, 0.09)
    """

    p: tuple[float, ...]
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", numbers("p", self.p))
        object.__setattr__(self, "events", sequence("events", self.events))
        for event in self.events:
            check_event("events", event)
        usable = all(type(w) in (int, float) and 0 < w <= 1 for w in self.p)
        if not usable or abs(math.fsum(self.p) - 1) > _SUM_TOLERANCE:
            raise ValueError(
                f"p={self.p!r} must be numbers above 0 that add up to 1. Leave out events that "
                "never happen."
            )
        if len(self.p) != len(self.events):
            raise ValueError(
                f"p has {len(self.p)} probabilities for {len(self.events)} events. Pass one "
                "probability for each event."
            )

    @property
    def weights(self) -> NDArray[np.float64]:
        """Probabilities, normalised to sum to 1."""
        return np.array(self.p) / math.fsum(self.p)

    def work(self) -> float:
        return sum(event.curve_work() for event in self.events)

    def curve_work(self) -> float:
        # The curves of the branches are there already; only their points are composed.
        return CURVE_WORK * len(self.events) + self.work()

    def renyi_work(self) -> float:
        return sum(event.renyi_work() for event in self.events)

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # ln(sum_i p_i exp((a - 1) R_i)) / (a - 1); expm1 keeps the digits of small costs
        each = np.array([rdp(e, orders, relation) for e in self.events])
        terms, weights = (orders - 1) * each, self.weights[:, None]
        near = np.log1p((weights * np.expm1(np.minimum(terms, 1))).sum(axis=0))
        far = logsumexp(terms, b=weights, axis=0)
        divergence: Orders = np.where(terms.max(axis=0) < 1, near, far) / (orders - 1)
        return divergence

    def sampled_renyi(self, rate: float, orders: Orders, relation: str) -> Orders:
        return self._sample_branches(rate).renyi(orders, relation)

    def dominating_pairs(self, relation: str) -> Pairs:
        each = [_branch_pairs(pld(e, relation), e) for e in self.events]
        weights = tuple(self.weights.tolist())
        # Kifer and Lin 2012, convexity: the choice is public and independent of the data
        remove, add = (MixedPair(weights, parts) for parts in zip(*each, strict=True))
        return remove, add

    def sampled_pairs(self, rate: float, relation: str) -> Pairs | None:
        return self._sample_branches(rate).dominating_pairs(relation)

    def _sample_branches(self, rate: float) -> MixtureEvent:
        """Return the mixture of the sampled events, since sampling and choice are independent."""
        return MixtureEvent(self.p, tuple(PoissonSampledEvent(rate, e) for e in self.events))

    def zcdp(self, relation: str) -> float:
        return max(total_zcdp(e, relation) for e in self.events)

    def grouped(self, size: int) -> MixtureEvent | None:
        each = group_events(self.events, size)
        return None if each is None else MixtureEvent(self.p, each)


@dataclass(frozen=True)
class PrivateSelectionEvent(Event, tag="PrivateSelection", knows_label=True):
    """Private selection: the best of K runs, for K from a truncated negative binomial distribution.

    Parameters
    ----------
    event : Event
        One run, including the score by which it is selected. All runs must have the same event.
    eta : float, default=1.0
        Shape, above -1: 1 is geometric, 0 logarithmic.
    gamma : float, default=0.1
        Rate, in (0, 1): a smaller one means more runs.

    Notes
    -----
    The bound holds only for a *random* number of runs. The runs of a fixed grid compose.

    The dominating pair bounds the privacy curve of the best run by the curve of one run, as in
    Koskela, Redberg and Wang. Let u(y) be the probability that one run is no better than y, and f
    the generating function of K. The density of the best run is f'(u(y)) times one run's. f'
    increases up to f'(1) = E K, and f'(u) is proportional to
    (gamma + (1 - gamma)(1 - u))^-(eta + 1). Suppose one run is (e, d)-private with
    (1 - gamma) d <= gamma (expm1 e). Then between neighbouring data sets gamma + (1 - gamma)(1 - u)
    grows by a factor of at most e^e, so for every epsilon

        delta(epsilon + (eta + 1) e) <= E K delta_1(epsilon).

    References
    ----------
    N. Papernot and T. Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022,
    arXiv:2110.03620, Theorem 2.
    A. Koskela, R. Redberg and Y.-X. Wang, "Privacy profiles for private selection", ICML 2024,
    arXiv:2402.06701.
    """

    event: Event
    eta: float = 1.0
    gamma: float = 0.1

    def __post_init__(self) -> None:
        check_event("event", self.event)
        if not (is_number(self.eta) and -1 < self.eta < math.inf):
            raise ValueError(f"eta={self.eta!r} must be a finite number > -1.")
        if not (is_number(self.gamma) and 0 < self.gamma < 1):
            raise ValueError(f"gamma={self.gamma!r} must be in (0, 1).")

    @property
    def expected_trials(self) -> float:
        """Mean number of runs."""
        if abs(self.eta) < _ZERO_SHAPE:  # the quotient below would lose its digits
            return (1 / self.gamma - 1) / -math.log(self.gamma)
        fall = -math.expm1(self.eta * math.log(self.gamma))
        return self.eta * (1 - self.gamma) / (self.gamma * fall)

    def work(self) -> float:
        return self.event.curve_work() + self.renyi_work()

    def curve_work(self) -> float:
        # The curve of one run is there already; only its points are composed.
        return CURVE_WORK + self.work()

    def renyi_work(self) -> float:
        # One run is asked for at two sets of Renyi orders.
        return 2 * self.event.renyi_work()

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Papernot and Steinke 2022, Theorem 2, at the best second order
        grid, costs = DEFAULT_ORDERS, rdp(self.event, DEFAULT_ORDERS, relation)
        choice = float(((1 - 1 / grid) * costs - math.log(self.gamma) / grid).min())
        trials = math.log(self.expected_trials) / (orders - 1)
        return rdp(self.event, orders, relation) + (1 + self.eta) * choice + trials

    def dominating_pairs(self, relation: str) -> Pairs:
        one = pld(self.event, relation)
        least = one.infinity * (1 + _FAILURE_MARGIN) + _SMALLEST_DELTA  # delta is at least this
        top = one.epsilon(least) if least < 1 else math.inf
        epsilons, deltas = _curve_points(one, top, _RUN_POINTS, self)
        # Koskela, Redberg and Wang 2024: delta(epsilon + (eta + 1) e) <= E K delta_1(epsilon)
        drift = (self.eta + 1) * _least_drift(epsilons, deltas, self.gamma)
        if not drift < _LARGEST_LOSS:
            raise NoLossDistributionError(
                f"{self!r} has too many trials for a distribution. Use a larger gamma."
            )
        several = np.minimum(self.expected_trials * deltas, 1.0)
        return symmetric_pairs(pair_from_curve(epsilons + drift, several))

    def grouped(self, size: int) -> PrivateSelectionEvent | None:
        # The bounds hold for one run on any two data sets, so also for groups.
        one = self.event.grouped(size)
        return None if one is None else PrivateSelectionEvent(one, self.eta, self.gamma)


def _branch_pairs(loss: PrivacyLossDistribution, event: Event) -> Pairs:
    """Return the pairs of a single event, or pairs for a bound on a composition's curve."""
    alone = loss.single_pairs()
    if alone is not None:
        return alone
    top = _largest_loss(loss)
    if top == 0 and loss.infinity == 0:
        return symmetric_pairs(_ZERO_LOSS_PAIR)
    return symmetric_pairs(pair_from_curve(*_curve_points(loss, top, _BRANCH_POINTS, event)))


def _curve_points(
    loss: PrivacyLossDistribution, top: float, n_points: int, event: Event
) -> tuple[Floats, Floats]:
    """Return epsilons up to ``top``, and an upper bound on delta at each."""
    if not top < _LARGEST_LOSS:
        raise NoLossDistributionError(
            f"{event!r} has privacy losses too large for a distribution. Use more noise."
        )
    epsilons = np.linspace(0, top, n_points)
    # The factor exceeds all later rounding errors.
    return epsilons, np.minimum(loss.deltas(epsilons) * (1 + 1e-9), 1.0)


def _largest_loss(loss: PrivacyLossDistribution) -> float:
    """Return the largest finite loss, or a loss exceeded with negligible probability."""
    if loss.infinity == 0 and math.isfinite(loss.max_loss):
        return loss.max_loss
    return loss.epsilon(loss.infinity * (1 + 1e-3) + _SMALLEST_DELTA)


def _least_drift(epsilons: Floats, deltas: Floats, gamma: float) -> float:
    """Return the least e with (1 - gamma) d <= gamma expm1(e) on the curve's chords, or inf."""
    excess = (1 - gamma) * deltas - gamma * np.expm1(epsilons)
    i = int((excess <= 0).argmax())
    if excess[i] > 0:
        return math.inf
    if i == 0:
        return float(epsilons[0])
    left, right = np.exp(epsilons[i - 1 : i + 1])
    share = excess[i - 1] / (excess[i - 1] - excess[i])
    return min(float(epsilons[i]), math.log(left + share * (right - left)) + 1e-12)
