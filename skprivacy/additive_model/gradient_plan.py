"""Mechanisms of an additive model's fit, their sensitivities, event and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from ..accounting import Event, NonPrivateEvent
from ..mechanisms import Exponential
from ..synthesis.measurement_plan import MeasurementPlan

__all__ = ["GradientPlan"]

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

    def calibrated(self, epsilon: float, delta: float) -> GradientPlan:
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
