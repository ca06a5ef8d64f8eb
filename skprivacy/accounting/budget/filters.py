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
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ..events import Event
from ..guarantee import epsilon_of
from .rules import (
    Cost,
    Counts,
    compose_counts,
    renyi_cost_at_orders,
    renyi_orders,
    repetitions_epsilon,
    sum_epsilons_and_deltas,
)

__all__ = ["FILTERS", "Account"]


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
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            fits = self._add_charges(event, middle).sum_added().is_within(self.cap)
            low, high = (middle, high) if fits else (low, middle)
        return low

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
    """Add up, then compose: 0.5 of the remaining delta for Renyi orders, 0.4 for a plan."""
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


FILTERS: dict[str, Callable[[Account], Iterator[Cost]]] = {
    "adaptive": _adaptive_costs,
    "renyi": _renyi_costs,
    "pld": _pld_costs,
    "basic": _basic_costs,
}
