"""A fit between two scans: it waits for the total of its next plan."""

from __future__ import annotations

from typing import Any

from .sources import Scans
from .sum_plan import SumPlan
from .sum_total import SumTotal

__all__ = ["RunningFit"]


class RunningFit:
    """A charged fit that takes the totals of its scans, one after another.

    Parameters
    ----------
    model : object
        The estimator that ``scans`` fits.
    scans : generator
        Yields the plan of each scan and receives its total. It charges before it yields.
    """

    def __init__(self, model: Any, scans: Scans) -> None:
        self.model = model
        self._scans = scans
        self._n_units = -1  # unknown before the first total
        self.plan: SumPlan = next(scans)

    def check(self, total: SumTotal) -> None:
        """Refuse a total of another plan or of other rows; the fit goes on waiting."""
        if total.plan is not self.plan and total.plan.digest != self.plan.digest:
            raise ValueError(
                "total is not of the plan that fit_sums returned last. Compute it by that plan. "
                "sklearn.base.clone(model) starts afresh, at a further charge."
            )
        total.check_sizes()
        if self._n_units not in (-1, total.n_units):
            raise ValueError(
                "total has other rows than the scan before: a part is missing, or the rows "
                "changed between two scans. Read from files or persisted data."
            )

    def send(self, total: SumTotal) -> bool:
        """Use a total that was checked; return whether the fit waits for another one."""
        self._n_units = total.n_units
        try:
            self.plan = self._scans.send(total)
        except StopIteration:
            return False
        return True

    def close(self) -> None:
        """Give up the fit. The charge stays."""
        self._scans.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "A fit between two scans holds secret noise and cannot be pickled or copied. Finish it "
            "by fit_sums, or start afresh from sklearn.base.clone(model), at a further charge."
        )
