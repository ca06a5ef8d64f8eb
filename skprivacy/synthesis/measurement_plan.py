"""What a fit releases, and with how much noise each part."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..accounting import Composed, Event, Repeated, calibrate_noise_multiplier, weakest_arithmetic
from ..mechanisms import Exponential, Gaussian

__all__ = ["METHODS", "MeasurementPlan", "noise_std"]

METHODS = ("adaptive", "independent", "tree")
# Of the budget, in units of zero-concentrated privacy: for fine tables, for choices, and for the
# marginals that were chosen.
_BUDGET_SHARES = 0.35, 0.05, 0.60
_ROUNDING_MARGIN = 1.0 + 2.0**-16  # of scores that are multiplied by weights


@dataclass(frozen=True)
class MeasurementPlan:
    """The mechanisms of a fit.

    Parameters
    ----------
    n_tables : int
        Fine tables, one for each column but the label.
    n_choices : int
        Marginals that are chosen, each by an exponential mechanism of its own.
    at_once : bool
        Whether the chosen marginals are released together, after the last choice.
    noise : float
        The noise multiplier that the whole would have as one Gaussian mechanism under
        zero-concentrated privacy.
    relation : {"add_remove", "replace_one", "zero_out"}

    Notes
    -----
    **Guarantees.** Let a unit, a record or a group of records, have weight at most 1 in each
    table, as a vector w of non-negative numbers of sum at most 1 (a record: a single 1).

    - Without the unit each table changes by such a w, whose L2 norm is at most 1. Tables of
      overlapping columns change together: J of them, as one vector, by at most sqrt(J), which a
      record attains. With another unit in its place a table changes by v - w, whose L2 norm is at
      most sqrt(2), since |v - w|^2 = |v|^2 + |w|^2 - 2 <v, w> <= 2; J tables by sqrt(2 J). Under
      zero_out the null record has weight 0: as without the unit.
    - A score is a weight of at most 1 times |table - expected|_1, less what is public. What is
      expected depends on earlier releases alone, so that the score changes by at most the L1 norm
      of the change of the table: 1 without the unit, 2 with another in its place. Scores do not
      change in one direction, so that the exponential mechanism keeps its factor of 2.

    Which cells there are is public (Domain), or was joined by noisy tables (bins); what comes
    after a release depends on it alone.
    """

    n_tables: int
    n_choices: int
    at_once: bool
    noise: float
    relation: str

    @classmethod
    def calibrate(
        cls,
        n_tables: int,
        n_choices: int,
        at_once: bool,
        epsilon: float,
        delta: float,
        relation: str,
    ) -> MeasurementPlan:
        """Return the plan of least noise that is (epsilon, delta)-differentially private."""

        def event(noise: float) -> Event:
            return cls(n_tables, n_choices, at_once, noise, relation).event

        noise = calibrate_noise_multiplier(event, epsilon, delta, relation)
        return cls(n_tables, n_choices, at_once, noise, relation)

    @property
    def _budget_shares(self) -> tuple[float, float, float]:
        return _BUDGET_SHARES if self.n_choices else (1.0, 0.0, 0.0)

    @property
    def _l1_change(self) -> float:
        """By how much a table changes in L1; the square of by how much in L2."""
        return 2.0 if self.relation == "replace_one" else 1.0

    @property
    def fine_mechanism(self) -> Gaussian:
        """Releases the fine tables as one vector."""
        multiplier = self.noise / math.sqrt(self._budget_shares[0])
        return Gaussian(multiplier, math.sqrt(self._l1_change * self.n_tables))

    @property
    def choice_mechanism(self) -> Exponential:
        """Chooses one marginal."""
        epsilon = 2 * math.sqrt(self._budget_shares[1] / self.n_choices) / self.noise
        return Exponential(epsilon, self._l1_change * _ROUNDING_MARGIN)

    @property
    def marginal_mechanism(self) -> Gaussian:
        """Releases the chosen marginals as one vector, or each by itself."""
        together = self.n_choices if self.at_once else 1
        multiplier = self.noise / math.sqrt(self._budget_shares[2] * together / self.n_choices)
        return Gaussian(multiplier, math.sqrt(self._l1_change * together))

    @property
    def single_marginal_mechanism(self) -> Gaussian:
        """Would release one chosen marginal by itself, at the same cost."""
        return replace(self, at_once=False).marginal_mechanism

    @property
    def arithmetic(self) -> str:
        """That of the noise of all that is released."""
        return weakest_arithmetic((Gaussian.arithmetic, Exponential.arithmetic))

    @property
    def event(self) -> Event:
        """All that is released."""
        if not self.n_choices:
            return self.fine_mechanism.event
        releases = 1 if self.at_once else self.n_choices
        return Composed(
            (
                self.fine_mechanism.event,
                Repeated(self.choice_mechanism.event, self.n_choices),
                Repeated(self.marginal_mechanism.event, releases),
            )
        )


def noise_std(mechanism: Gaussian) -> float:
    """Return the standard deviation of the noise of each cell."""
    return mechanism.noise_multiplier * mechanism.sensitivity
