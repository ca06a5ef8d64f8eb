"""Private rounds of an additive regression, between a release of totals and a last step.

Start reading at :func:`fit_regression`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from ..mechanisms import SecureRandom
from ..sums import SumTotal
from ..synthesis.marginal_tables import noise_std, release_together
from .gradient_plan import RegressionPlan
from .last_step import LastStep
from .losses import SquaredLoss
from .rounds import FittedEffects, PairOffer, add_rounds, start_effects
from .row_plan import LastPlan, ReleasedScores, RowPlan, TotalPlan

_WHOLE = ((),)  # the only set of columns of a sum over all records


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
    """Release totals, start tables, the tables of all rounds, and the sums of the last step.

    The start tables hold residuals of the released mean. A fit without noise ends after the rounds.
    """
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
