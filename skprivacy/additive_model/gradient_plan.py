"""Mechanisms of an additive model's fit, their sensitivities, event and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from ..accounting import ComposedEvent, Event
from ..accounting.events import NonPrivateEvent
from ..mechanisms import Exponential, Gaussian
from ..synthesis.marginal_tables import MeasurementPlan, Plan

_NO_NOISE_EPSILON = 1e49  # of a choice without privacy: the best candidate


@dataclass(frozen=True)
class GradientPlan(MeasurementPlan):
    """Mechanisms of a fit: start tables, then a choice and a measurement in each round.

    A record adds one row of norm at most 1 to one cell of each table (``losses``). The rows that a
    group adds to the cells of its records are weighted by shares, whose sum is at most 1.

    - Start tables: as counts in the base class. Start rows have inner products >= 0, so a
      replacement changes a table by at most sqrt(2) in L2.
    - A measured table: adding or removing the unit changes it by at most 1 in L2. Rows of two
      records can be opposite, so a replacement changes it by up to 2.
    - A score is f(S) with S the sum over cells of the L2 norms of gradient sums, which the unit
      changes by at most 1, or by 2 under a replacement. With N a public number, f(S) = S^2 /
      sqrt(S^2 + N^2) / sqrt(32 / 27). The slope of S^2 / sqrt(S^2 + N^2) is (t^3 + 2 t) / (1 +
      t^2)^1.5 with t = S / N, and is greatest at t^2 = 2, where it is sqrt(32 / 27). So f(S)
      changes by no more than S does. Public numbers are added: the weight of a candidate, and the
      score that sampling alone would give, which is computed from earlier releases.

    Without noise, every choice takes the best candidate, and the event is not private.
    """

    shares: ClassVar[tuple[float, float, float]] = 0.15, 0.15, 0.70
    least_count: ClassVar[float] = 0.0  # of a bin, in the noise of a cell of a start table

    def calibrated(self: Plan, epsilon: float, delta: float) -> Plan:
        return (
            replace(self, noise=0.0) if math.isinf(epsilon) else super().calibrated(epsilon, delta)
        )

    @property
    def _score_change(self) -> float:
        return 2.0 if self.relation == "replace_one" else 1.0

    @property
    def _marginal_change(self) -> float:
        return self._score_change

    @property
    def choice_mechanism(self) -> Exponential:
        """Return the mechanism that chooses one table."""
        if self.noise:
            return super().choice_mechanism
        return Exponential(_NO_NOISE_EPSILON, self._score_change)

    @property
    def event(self) -> Event:
        """Return the composition of all releases."""
        return super().event if self.noise else NonPrivateEvent()


@dataclass(frozen=True)
class RegressionPlan(GradientPlan):
    """Mechanisms of a regression: the releases of the base class, one before and one after.

    - Totals, released first: one vector with the bounds of one start table. The inner products of
      its rows are >= 0 (``losses``), so a replacement changes it by at most sqrt(2) in L2.
    - The sums of the last step (``regression``): one vector, which changes as a measured table of
      one cell does.
    """

    shares: ClassVar[tuple[float, float, float]] = 0.12, 0.12, 0.51
    total_share: ClassVar[float] = 0.15
    last_share: ClassVar[float] = 0.10
    least_count: ClassVar[float] = 5.0

    @property
    def total_mechanism(self) -> Gaussian:
        """Return the mechanism that releases the totals."""
        return Gaussian(self.noise / math.sqrt(self.total_share), math.sqrt(self._l1_change))

    @property
    def last_mechanism(self) -> Gaussian:
        """Return the mechanism that releases the sums of the last step."""
        return Gaussian(self.noise / math.sqrt(self.last_share), self._marginal_change)

    @property
    def event(self) -> Event:
        """Return the composition of all releases."""
        if not self.noise:
            return NonPrivateEvent()
        return ComposedEvent((self.total_mechanism.event, super().event, self.last_mechanism.event))
