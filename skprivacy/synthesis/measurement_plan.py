"""Mechanisms of a marginal synthesizer, their sensitivities, event and noise.

Each table gets discrete Gaussian noise, and each choice is an exponential mechanism, as in MST
(McKenna, Miklau and Sheldon 2021) and AIM (McKenna et al. 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from ..accounting import (
    ComposedEvent,
    Event,
    RepeatedEvent,
    calibrate_noise_multiplier,
    weakest_arithmetic,
)
from ..mechanisms import Exponential, Gaussian

Plan = TypeVar("Plan", bound="MeasurementPlan")
METHODS = ("adaptive", "independent", "tree")
_ROUNDING_MARGIN = 1.0 + 2.0**-16  # covers the rounding of score times weight


@dataclass(frozen=True)
class MeasurementPlan:
    """Mechanisms of a fit, as a function of one noise multiplier.

    A unit is a record or a group of records. Its weights in a table form a vector w of non-negative
    numbers of sum at most 1; for a record, w is a single 1.

    - Removing the unit changes each table by w, whose L2 norm is at most 1. Tables of overlapping
      columns change together: J of them, as one vector, change by at most sqrt(J), which a record
      attains. Replacing the unit changes a table by v - w, and |v - w|^2 = |v|^2 + |w|^2 - 2 <v, w>
      <= 2. The L2 norm is then at most sqrt(2), and sqrt(2 J) for J tables. Under zero_out the null
      record has weight 0, which is the same as removal.
    - A score is a weight of at most 1 times |table - expected|_1, minus a public number. The
      expected table depends on earlier releases only. The score thus changes by at most the L1 norm
      of the table's change: 1 for removal, 2 for replacement. Scores are not monotonic in the
      records, so the exponential mechanism keeps its factor of 2.

    The cells of a table are public (Domain) or computed from noisy tables (bins), and all later
    steps are post-processing.
    """

    n_tables: int  # fine tables: one for each column
    n_choices: int  # chosen marginals, each by its own exponential mechanism
    at_once: bool  # whether the marginals are released together, after the last choice
    relation: str
    # Noise multiplier of a single Gaussian mechanism that costs as much as the whole plan under
    # zero-concentrated privacy.
    noise: float = 1.0
    n_fixed: int = 0  # marginals that are measured without a choice

    # Shares of the budget, in units of zero-concentrated privacy: fine tables, choices, and the
    # other marginals.
    shares: ClassVar[tuple[float, float, float]] = 0.35, 0.05, 0.60

    def calibrated(self: Plan, epsilon: float, delta: float) -> Plan:
        """Return the plan of least noise that is (epsilon, delta)-differentially private."""

        def event(noise: float) -> Event:
            return replace(self, noise=noise).event

        noise = calibrate_noise_multiplier(event, epsilon, delta, self.relation)
        return replace(self, noise=noise)

    @property
    def _budget_shares(self) -> tuple[float, float, float]:
        fine, choices, marginals = self.shares
        if self.n_choices:
            return self.shares
        return (fine, 0.0, choices + marginals) if self.n_fixed else (1.0, 0.0, 0.0)

    @property
    def n_marginals(self) -> int:
        """Number of tables that are measured after the fine tables, at most."""
        return self.n_choices + self.n_fixed

    @property
    def _l1_change(self) -> float:
        """Return the L1 change of a table, which is also the square of its L2 change."""
        return 2.0 if self.relation == "replace_one" else 1.0

    @property
    def _score_change(self) -> float:
        """Return the largest change of a score."""
        return self._l1_change

    @property
    def _marginal_change(self) -> float:
        """Return the L2 change of one chosen marginal."""
        return math.sqrt(self._l1_change)

    @property
    def fine_mechanism(self) -> Gaussian:
        """Return the mechanism that releases the fine tables as one vector."""
        multiplier = self.noise / math.sqrt(self._budget_shares[0])
        return Gaussian(multiplier, math.sqrt(self._l1_change * self.n_tables))

    @property
    def choice_mechanism(self) -> Exponential:
        """Return the mechanism that chooses one marginal."""
        # A choice costs epsilon^2 / 8 in zero-concentrated privacy, a Gaussian 1 / (2 noise^2).
        epsilon = 2 * math.sqrt(self._budget_shares[1] / self.n_choices) / self.noise
        return Exponential(epsilon, self._score_change * _ROUNDING_MARGIN)

    @property
    def marginal_mechanism(self) -> Gaussian:
        """Return the mechanism of the marginals: as one vector, or one at a time."""
        n_joint = self.n_marginals if self.at_once else 1
        multiplier = self.noise / math.sqrt(self._budget_shares[2] * n_joint / self.n_marginals)
        return Gaussian(multiplier, self._marginal_change * math.sqrt(n_joint))

    @property
    def single_marginal_mechanism(self) -> Gaussian:
        """Return the mechanism that would release one chosen marginal alone, at the same cost."""
        return replace(self, at_once=False).marginal_mechanism

    @property
    def arithmetic(self) -> str:
        """Return the weakest arithmetic of the mechanisms' noise."""
        return weakest_arithmetic((Gaussian.arithmetic, Exponential.arithmetic))

    @property
    def event(self) -> Event:
        """Return the composition of all releases."""
        if not self.n_marginals:
            return self.fine_mechanism.event
        releases = 1 if self.at_once else self.n_marginals
        choices = (
            (RepeatedEvent(self.choice_mechanism.event, self.n_choices),) if self.n_choices else ()
        )
        marginals = RepeatedEvent(self.marginal_mechanism.event, releases)
        return ComposedEvent((self.fine_mechanism.event, *choices, marginals))


def noise_std(mechanism: Gaussian) -> float:
    """Return the standard deviation of the noise of each cell."""
    return mechanism.noise_multiplier * mechanism.sensitivity
