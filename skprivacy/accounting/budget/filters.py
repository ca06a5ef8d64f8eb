"""Privacy filters: stopping rules for fully adaptive events (Rogers et al. 2016).

**The default.** A budget of (E, D) *adds up* its first charges and *composes* the rest tightly.
Charges are admitted as long as their epsilons and deltas sum to at most E and D. The first charge
that this does not admit opens the tight part. From then on, the charges must pass a filter for the
remaining budget (E - e, D - d), where e and d are the sums before that charge.

*Validity.* Lemma: if a release is (e, d)-DP and, for each of its answers y, everything that follows
is (E', D')-DP, then the whole is (E' + e, D' + d)-DP. For any set S of outcomes,

    P(S) = sum_y P(y) P(S|y) <= sum_y P(y) [min(1, e^E' Q(S|y)) + D']
        <= e^e sum_y Q(y) e^E' Q(S|y) + d + D',

because sum_y P(y) g(y) <= e^e sum_y Q(y) g(y) + d for every g between 0 and 1. Apply this by
induction from the last charge backwards. After charges with the sums (e, d), the rest of the
releases is (E - e, D - d)-DP for any answers, whether it continues to add up or opens the tight
part. The choice between the two may depend on all answers, and so may every event. (Rogers, Roth,
Ullman and Vadhan 2016, arXiv:1605.08294, prove the case of adding up alone.)

*Never worse than basic composition*, by construction: all charges that ``basic`` admits are added
up.

*Such a filter can hardly admit more pure charges.* Suppose a filter admits all charges that sum to
at most (E, D) and, in addition, a run of pure charges that sum to E + s. An adversary performs this
run with randomised response, and continues as long as all answers point to the member. At the first
other answer, the adversary spends D on a release that fails with this probability. Let p be the
probability of reaching the charge that exceeds E, and A the gain from there. The adversary achieves
(1 - p) D + p A, so A <= D. But at least half the time the next answer makes the loss exceed E by s:
A >= (1 - e^-s) / 2, so s is at most about 2 D. So public facts must decide beforehand whether to
favour sums or many small releases; the filter ``renyi`` favours the latter.

Composition rules for fully adaptive charges: sums, Renyi orders, and a fixed plan.

The three rules hold even if each event, with its parameters, is chosen after seeing all earlier
answers: :func:`sum_epsilons_and_deltas`, :func:`renyi_cost_at_orders` and
:func:`repetitions_epsilon`. Each gives an epsilon at a delta that is reserved for the rule.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..accountants import epsilon_of
from ..event import Event, flatten
from ..events import ApproxDPEvent, ComposedEvent, RepeatedEvent
from ..renyi import DEFAULT_ORDERS, rdp

Counts = Counter[Event]
_ROUNDING = 1 + 1e-12

# Orders, relative to the order that admits most Gaussian releases, and their shares of delta. Rare
# large losses, as under sampling with little noise, need lower orders than Gaussian noise.
_ORDERS = ((1.0, 0.55), (0.75, 0.15), (0.55, 0.15), (0.4, 0.15))


@dataclass(frozen=True)
class Account:
    """The charges that count towards one cap, as its filter composes them."""

    cap: Cost
    filter: str
    relation: str
    counts: Counts = field(default_factory=Counter)  # composed tightly; with "basic", added up
    first: Event | None = None  # the first event in ``counts``
    added: Counts = field(default_factory=Counter)  # earlier charges, which are added up
    opened: Cost | None = None  # cap less ``added`` when the tight part opened ("adaptive" only)

    def with_added(self, added: Counts) -> Account:
        """Return the account with ``added`` as the charges to add up."""
        return replace(self, added=added)

    def with_counts(
        self, counts: Counts, first: Event | None = None, opened: Cost | None = None
    ) -> Account:
        """Return the account with ``counts`` as the charges to compose, ``first`` among them."""
        return replace(self, counts=counts, first=first, opened=opened)

    def with_charge(self, event: Event, count: int = 1) -> Account:
        """Return the account after ``count`` charges of ``event``."""
        if self.filter != "adaptive" or self.opened is not None:
            more = self.counts + Counter({event: count})
            return replace(self, counts=more, first=self.first or event)
        sums = self._add_charges(event, count)
        if sums.sum_added().is_within(self.cap):
            return sums
        last = self._add_charges(event, self._count_fitting(event, count))
        rest = Counter({event: count - (last.added[event] - self.added[event])})
        return replace(last, counts=rest, first=event, opened=last.remaining_cap())

    def _add_charges(self, event: Event, count: int) -> Account:
        return replace(self, added=self.added + Counter({event: count}))

    def _count_fitting(self, event: Event, most: int) -> int:
        """Return how many charges of ``event``, below ``most``, can be added up within the cap."""

        def exceeds(count: int) -> bool:
            return not self._add_charges(event, count).sum_added().is_within(self.cap)

        return bisect_left(range(most), True, lo=1, key=exceeds) - 1

    def sum_added(self) -> Cost:
        """Return the sums of the epsilons and deltas that are added up."""
        return sum_epsilons_and_deltas(self.added, self.relation)

    def remaining_cap(self) -> Cost:
        """Return the remaining cap for the tight part."""
        spent = self.sum_added()
        return Cost(self.cap.epsilon - spent.epsilon, self.cap.delta - spent.delta)

    def cost(self) -> Cost:
        """Return the cost of all charges by the filter, which decides on admission."""
        if not self.counts and not self.added:
            return Cost(0.0, 0.0)
        costs = []
        for cost in FILTERS[self.filter](self):
            if cost.is_within(self.cap):
                return cost
            costs.append(cost)
        return min(costs)

    def is_admitted(self) -> bool:
        """Return True if the filter admits all charges."""
        return self.cost().is_within(self.cap)


class Cost(NamedTuple):
    """An epsilon at a delta, as a cost or as a cap."""

    epsilon: float
    delta: float

    def is_within(self, cap: Cost) -> bool:
        """Return whether this cost is finite and does not exceed ``cap``."""
        fits = self.epsilon <= cap.epsilon * _ROUNDING and self.delta <= cap.delta * _ROUNDING
        return fits and math.isfinite(self.epsilon)


def compose_counts(counts: Counts) -> Event:
    """Compose all charges into one event."""
    return ComposedEvent(tuple(RepeatedEvent(e, n) for e, n in counts.items()))


def spent_epsilon(charges: Counts, delta: float, relation: str) -> float:
    """Return epsilon of all charges at ``delta``; infinity if none is finite."""
    try:
        return epsilon_of(compose_counts(charges), delta, relation)
    except ValueError:  # delta = 0 where only delta > 0 is finite
        return math.inf


def sum_epsilons_and_deltas(counts: Counts, relation: str) -> Cost:
    """Return the sums of epsilons and of deltas: basic composition."""
    each = [(n, _basic_cost(event, relation)) for event, n in counts.items()]
    return Cost(
        math.fsum(n * one.epsilon for n, one in each), math.fsum(n * one.delta for n, one in each)
    )


@lru_cache(maxsize=256)
def renyi_orders(cap: Cost) -> tuple[tuple[float, float], ...]:
    """Return Renyi orders and their shares of delta, which depend only on the cap."""
    orders = np.asarray(DEFAULT_ORDERS, dtype=float)
    allowance = cap.epsilon - _conversion_term(orders, math.log(cap.delta))
    best = orders[np.argmax(allowance / orders)]
    return tuple((float(best * scale), share) for scale, share in _ORDERS if best * scale > 1)


def renyi_cost_at_orders(
    counts: Counts, orders: tuple[tuple[float, float], ...], delta: float, relation: str
) -> Cost:
    """Return the smallest epsilon that any of the orders, fixed beforehand, proves at ``delta``.

    The second number is the probability of revealing everything, which ``delta`` does not cover.

    Let L be the loss, c the cost spent at order a, w the order's share and epsilon the value for
    this order. Then (1 - e^(epsilon - L))_+ is at most w delta M, where M = e^((a-1)(L - c)) is a
    supermartingale that starts at 1. Summed over the orders, the mean is at most delta, so the best
    order may depend on the answers (Feldman and Zrnic 2021, arXiv:2008.11193).
    """
    best = failure = math.inf
    for order, share in orders:
        each = [(n, _renyi_cost(event, order, relation)) for event, n in counts.items()]
        cost = math.fsum(n * c[0] for n, c in each)
        failure = math.fsum(n * c[1] for n, c in each)
        # Feldman and Zrnic 2021: epsilon of this order, at its share of delta
        best = min(best, cost + float(_conversion_term(order, math.log(delta * share))))
    return Cost(max(best, 0.0), failure)


def repetitions_epsilon(counts: Counts, first: Event, delta: float, relation: str) -> float:
    """Return epsilon of the fewest repetitions of ``first`` that contain all charges.

    The first charge fixes how many repetitions fit a cap, before any answer is seen. Suppose all of
    their losses are drawn beforehand. To release only some of them, in any order and depending on
    the answers, reveals no more. The result is infinite if a charge has a part that ``first``
    lacks.
    """
    parts = flatten(first)
    used: Counts = Counter()
    for event, n in counts.items():
        for part, m in flatten(event).items():
            used[part] += n * m
    if not parts or any(part not in parts for part in used):
        return math.inf
    unit = math.gcd(*parts.values())
    times = max((-(-n * unit // parts[part]) for part, n in used.items()), default=0)
    plan = ComposedEvent(
        tuple(RepeatedEvent(part, times * (n // unit)) for part, n in parts.items())
    )
    return epsilon_of(plan, delta, relation)


def _basic_costs(account: Account) -> Iterator[Cost]:
    # Rogers et al. 2016: sums are a valid filter for adaptively chosen events
    yield sum_epsilons_and_deltas(account.counts, account.relation)


def _pld_costs(account: Account) -> Iterator[Cost]:
    if account.cap.delta == 0:
        yield from _basic_costs(account)
    else:
        event, delta = compose_counts(account.counts), account.cap.delta
        yield Cost(epsilon_of(event, delta, account.relation), delta)


def _adaptive_costs(account: Account) -> Iterator[Cost]:
    """Add up charges, then compose, at Renyi orders (0.5 of delta) or as repetitions (0.4)."""
    yield from [account.sum_added()] if account.opened is None else _tight_costs(account, 0.5, 0.4)


def _renyi_costs(account: Account) -> Iterator[Cost]:
    """Compose at Renyi orders with 0.9 of delta (Feldman and Zrnic 2021)."""
    return _tight_costs(account, 0.9, 0.0)


def _tight_costs(account: Account, orders_share: float, plan_share: float) -> Iterator[Cost]:
    """Yield the cost that each rule proves for all charges; any one within the cap admits them.

    **Guarantees.** The rules' shares of delta, and a tenth for events that may reveal everything,
    add up to the remaining delta. Each rule bounds the failure of the guarantee by its share times
    a supermartingale, so the rule that admits may depend on the answers. Two rules need no share.
    Pure charges that add up to epsilon contribute nothing to delta. A single charge is fixed when
    the account is opened: if only its own cost admits it, no other charge is ever admitted.
    """
    spent, left, relation = account.sum_added(), account.remaining_cap(), account.relation
    pure = sum_epsilons_and_deltas(account.added + account.counts, relation)
    free = pure.delta == 0 or not account.counts or not pure.is_within(account.cap)
    yield pure if free else Cost(math.inf, pure.delta)
    opened = account.opened or account.cap
    if min(*left, *opened) <= 0:
        return

    def all_of(epsilon: float, delta: float = left.delta) -> Cost:
        return Cost(spent.epsilon + epsilon, spent.delta + delta)

    if sum(account.counts.values()) == 1:
        yield all_of(epsilon_of(compose_counts(account.counts), left.delta, relation))
    # Feldman and Zrnic 2021: a Renyi filter at each order, with a share of delta
    orders = renyi_orders(Cost(opened.epsilon, orders_share * opened.delta))
    at = renyi_cost_at_orders(account.counts, orders, orders_share * left.delta, relation)
    yield all_of(at.epsilon, 0.9 * left.delta + max(0.1 * left.delta, at.delta))
    if plan_share and account.first is not None:
        yield all_of(
            repetitions_epsilon(account.counts, account.first, plan_share * left.delta, relation)
        )


@lru_cache(maxsize=4096)
def _basic_cost(event: Event, relation: str) -> Cost:
    """Return the epsilon and delta of one charge; epsilon is infinite without such a pair."""
    epsilon = failure = 0.0
    for part, n in flatten(event).items():
        if isinstance(part, ApproxDPEvent):
            epsilon, failure = epsilon + n * part.epsilon, failure + n * part.delta
            continue
        try:
            epsilon += n * epsilon_of(part, 0.0, relation)
        except ValueError:
            return Cost(math.inf, failure)
    return Cost(epsilon, failure)


@lru_cache(maxsize=4096)
def _renyi_cost(event: Event, order: float, relation: str) -> tuple[float, float]:
    """Return the Renyi cost of one charge, and its probability of revealing everything."""
    cost = failure = 0.0
    for part, n in flatten(event).items():
        safe = part
        if isinstance(part, ApproxDPEvent):
            safe, failure = ApproxDPEvent(part.epsilon), failure + n * part.delta
        try:
            cost += n * float(rdp(safe, [order], relation)[0])
        except TypeError:  # no Renyi bound is known
            cost = math.inf
    return cost, failure


def _conversion_term(order: NDArray[np.float64] | float, log_delta: float) -> NDArray[np.float64]:
    """Return the term that converts a Renyi cost into an epsilon."""
    # Canonne, Kamath and Steinke 2020, Proposition 12
    order = np.asarray(order)
    epsilon: NDArray[np.float64] = np.log1p(-1 / order) - (np.log(order) + log_delta) / (order - 1)
    return epsilon


FILTERS: dict[str, Callable[[Account], Iterator[Cost]]] = {
    "adaptive": _adaptive_costs,
    "renyi": _renyi_costs,
    "pld": _pld_costs,
    "basic": _basic_costs,
}
