"""Private rounds of an additive regression, between a release of totals and a last step.

The last step finds one slope for all effects, and the mean target. Noise makes effects too large:
one more release estimates the share that records support. Where the slope does not rise above its
own noise, the mean is predicted. Start reading at :func:`fit_regression`.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..mechanisms import SecureRandom
from ..sums import SumTotal
from ..synthesis.marginal_tables import noise_std, release_together
from .gradient_plan import RegressionPlan
from .losses import SquaredLoss
from .rounds import FittedEffects, PairOffer, add_rounds, start_effects
from .row_plan import ReleasedScores, RowPlan

Floats = NDArray[np.float64]

_WHOLE = ((),)  # the only set of columns of a sum over all records
_SPAN = 2.0  # at which scores are clipped, in standard deviations
_GATE = 4.0  # squared ratio of a slope to its noise, up to which effects are left out


@dataclass(frozen=True)
class LastStep:
    """A Newton step for the slope of the effects and for the mean target.

    Let (g, w h) be a record's derivative row, of norm at most 1, and u in [-1, 1] its score less
    the constant, divided by a released number and clipped. The row (g, g u, w h u, w h u^2) /
    sqrt(2) has squared norm (g^2 (1 + u^2) + w^2 h^2 (u^2 + u^4)) / 2 <= g^2 + w^2 h^2 <= 1.
    """

    loss: SquaredLoss
    constant: Floats
    n_records: float
    spread: float  # standard deviation of a record's effects

    @property
    def most(self) -> float:
        """Difference from the constant at which scores are clipped."""
        return _SPAN * self.spread

    def facts(self) -> list[Any]:
        """Return all that determines the rows in types of JSON."""
        return [dict(vars(self.loss)), self.constant.tolist(), self.n_records, self.spread]

    def rows(self, scores: Floats, target: NDArray) -> Floats:
        """Return the row of each record, (n, 4)."""
        unit = np.clip((scores - self.constant)[:, 0] / (self.most or 1.0), -1.0, 1.0)
        g, h = self.loss.derivative_row(scores, target).T
        return np.column_stack([g, g * unit, h * unit, h * unit**2]) / math.sqrt(2.0)

    def solve(self, noisy: Floats, std: float) -> tuple[Floats, float, float]:
        """Return the constant, and the factor of all effects with its noise, from noisy sums."""
        weight = self.loss.hessian_weight
        sums = noisy * math.sqrt(2.0) * self.loss.scale / [1.0, 1.0, weight, weight]
        std *= math.sqrt(2.0) * self.loss.scale
        own, gradient, mean, square = sums / self.n_records  # the sum of h is the number of records
        std, std_of_square = std / self.n_records, std / weight / self.n_records
        mean = float(np.clip(mean, -1.0, 1.0))
        slope, slope_noise = self._shrink_slope(
            gradient - mean * own, square - mean**2, std, std_of_square
        )
        shift = mean * self.most - own * self.loss.step  # of the mean target from the constant
        noise = math.hypot(std * self.loss.step, std_of_square * self.most)
        change = self.loss.mean_weight(noise) * shift - slope * mean * self.most
        return self.constant + change, slope, slope_noise

    def _shrink_slope(
        self, gradient: float, curvature: float, std: float, std_of_curvature: float
    ) -> tuple[float, float]:
        """Return the slope and its noise, from derivatives in its direction."""
        if not self.most or curvature <= std_of_curvature:
            return 0.0, 0.0
        unit = self.loss.step / self.most / curvature
        slope = 1.0 - gradient * unit
        noise = math.hypot(std * unit, (1.0 - slope) * std_of_curvature / curvature)
        sampling = self.loss.dispersion * unit**2 * curvature / self.n_records
        other = noise**2 + sampling
        if slope <= math.sqrt(_GATE * other):
            return 0.0, 0.0
        # positive-part rule of James and Stein (1961), with a threshold of two standard deviations
        return min(slope - _GATE * other / slope, 1.0), noise


@dataclass(frozen=True)
class TotalPlan(RowPlan):
    """Sums of the rows :meth:`SquaredLoss.total_row` over all records: a set of no columns."""

    loss: SquaredLoss

    @property
    def row_length(self) -> int:
        return self.loss.total_row(np.zeros(1)).shape[1]

    def _rows(self, codes: NDArray[Any], target: Floats) -> Floats:
        return self.loss.total_row(target)


@dataclass(frozen=True)
class LastPlan(RowPlan):
    """Sums of the rows of the last step of a regression over all records."""

    released: ReleasedScores
    last: LastStep = field(kw_only=True)

    @property
    def row_length(self) -> int:
        return self.last.rows(np.zeros((1, 1)), np.zeros(1)).shape[1]

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "last": self.last.facts()}

    def _rows(self, codes: NDArray[Any], target: Floats) -> Floats:
        return self.last.rows(self.released.scores_of(codes), target)


def plan_totals(start_plan: RowPlan, loss: SquaredLoss) -> TotalPlan:
    """Return the plan of the first scan, by the public facts of the start tables."""
    return TotalPlan(
        start_plan.domain, start_plan.target, start_plan.encoding, loss, _WHOLE,
        unit=start_plan.unit,
    )  # fmt: skip


def fit_regression(
    total_plan: TotalPlan,
    start_plan: RowPlan,
    plan: RegressionPlan,
    offer: PairOffer,
    total: SumTotal,
    random: SecureRandom,
) -> Generator[RowPlan, SumTotal, FittedEffects]:
    """Release totals, start tables of residuals, all rounds and, with noise, the last step."""
    mechanism = plan.total_mechanism
    noisy = mechanism.release(total_plan.tables(total)[()], random)
    loss, constant, n_records = total_plan.loss.start(noisy, noise_std(mechanism))
    start_plan = replace(start_plan, loss=loss)
    exact = list(start_plan.tables((yield start_plan)).values())
    tables = release_together(exact, plan.fine_mechanism, random)
    fitted = start_effects(tables, start_plan.domain, plan, loss, constant, n_records)
    released = yield from add_rounds(fitted, start_plan, plan, offer, random)
    if not plan.noise:
        return fitted
    # The loss of the start has the clip of the target's variance. A smaller one would hide how far
    # the effects of a fit with much noise are off.
    last = LastStep(loss, constant, n_records, fitted.spread())
    return (yield from _take_last_step(fitted, last, start_plan, released, plan, random))


def _take_last_step(
    fitted: FittedEffects,
    last: LastStep,
    start_plan: RowPlan,
    released: ReleasedScores,
    plan: RegressionPlan,
    random: SecureRandom,
) -> Generator[RowPlan, SumTotal, FittedEffects]:
    """Release the sums of the last step, and return the model after it."""
    last_plan = LastPlan(
        start_plan.domain, start_plan.target, start_plan.encoding, last.loss, _WHOLE, released,
        last=last, unit=start_plan.unit,
    )  # fmt: skip
    sums = last_plan.tables((yield last_plan))[()]
    noisy = plan.last_mechanism.release(sums, random)
    constant, slope, noise = last.solve(noisy, noise_std(plan.last_mechanism))
    for effect in fitted.effects.values():
        effect.multiply(slope, noise)
    return replace(fitted, constant=constant)
