"""Linear models that release second moments of records, and products with slopes of the target.

These are AdaSSP and the functional mechanism. :class:`GramPlan` computes the sums exactly, and
:class:`GramModel` fits to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._docs import fill_docs
from .._groups import Groups
from .._validation import check_delta_is_small
from ..accounting.event import check_delta
from ..base import PrivateFit
from ..mechanisms.bounds import UnitBall, quantize
from ..sums import SumEstimator, SumPlan
from ..sums.batch_columns import read_numbers
from ..sums.sources import SumSource
from ..sums.sum_plan import Integers
from ..sums.targets import Labels, TargetRange
from .base import PrivateLinearModel
from .polynomial_objective import PolynomialObjective

_PRODUCT_STEPS = 2.0**32  # products of two numbers on the grid of 2**-16 are multiples of 2**-32


@dataclass(frozen=True)
class GramPlan(SumPlan):
    """Sums of x x' and of x s', for records x in the unit ball and slopes s of their targets.

    **Guarantees.** A record with a missing feature, a missing target or an unknown label adds 0.
    """

    features: tuple[str, ...]
    target: str
    ball: UnitBall
    encoding: TargetRange | Labels
    objective: PolynomialObjective | None = None  # None: the target itself is the slope
    pure: bool = False  # norm of the slopes: L1 if True, else L2

    @property
    def record_columns(self) -> tuple[str, ...]:
        return (*self.features, self.target)

    @property
    def target_column(self) -> str:
        return self.target

    def column_kinds(self) -> dict[str, str]:
        return {**dict.fromkeys(self.features, "number"), self.target: self.encoding.kind}

    @property
    def n_slopes(self) -> int:
        """Number of slopes of a record."""
        return self._slopes(np.zeros(1)).shape[1]

    @property
    def n_sums(self) -> int:
        return self.ball.size * (self.ball.size + self.n_slopes)

    def facts(self) -> dict[str, Any]:
        ball = self.ball
        return {
            "columns": self.record_columns,
            "ball": [ball.lower, ball.upper, ball.radius, ball.intercept],
            "target": self.encoding.facts(),
            "slopes": None if self.objective is None else [*self.objective.facts(), self.pure],
        }

    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        return read_numbers(batch, self.features), self.encoding.read_target(batch, self.target)

    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        X, target = records[0], self.encoding.encode(records[1])
        shares = np.ones(len(X)) if sizes is None else Groups.exact_shares_of(sizes)
        missing = np.isnan(target)
        shares[missing] = 0.0
        rows, weights = self.ball.transform(X, shares)
        slopes = quantize(self._slopes(np.where(missing, 0.0, target)) * weights[:, None])
        # 2**14 records add multiples of 2**-32 below 2**14, which float64 holds in any order
        sums = np.concatenate([(rows.T @ rows).ravel(), (rows.T @ slopes).ravel()])
        return (sums * _PRODUCT_STEPS).astype(np.int64)

    def _slopes(self, target: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.objective is None:
            return target[:, None]
        return self.objective.bounded_slopes(target, self.pure)

    def matrices(self, sums: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
        """Return the second moments (size, size) and the products (size, n_slopes)."""
        p = self.ball.size
        moments, products = np.split(sums / _PRODUCT_STEPS, [p * p])
        return moments.reshape(p, p), products.reshape(p, -1)


@fill_docs
class GramModel(PrivateLinearModel, SumEstimator):
    """Private linear model that releases a :class:`GramPlan` once."""

    def fit(self, X: Any, y: ArrayLike | str, *, groups: ArrayLike | str | None = None) -> Any:
        """Fit to private records in memory, or to a table where it lies.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or table
            Private records. A table of pandas, polars, pyarrow, DuckDB, Dask, Ray or Spark stays in
            its engine, which computes sums. All of its columns but ``y`` and ``groups`` are
            features.
        y : array-like of shape (n_samples,) or str
            Targets, or the column of a table that holds them. A classifier takes labels, each one
            of ``classes``.
        groups : array-like of shape (n_samples,) or str, default=None
            Group of each record, such as a patient's number, or the column of a table that holds
            it. The guarantee then protects all records of a group together. The name of a Series
            or a column is the unit of the guarantee.

        Returns
        -------
        %(fit_returns)s

        Raises
        ------
        ValueError
            If a parameter, a shape or a label is not as described. Nothing is released then.
        TypeError
            If a column of a table has a type that does not fit.
        RuntimeError
            If an engine fails in its scan. The charge stays, and nothing is released.

        Notes
        -----
        **Edge cases.** A table's record with a missing target or an unknown label contributes
        nothing; in memory it is refused. A table's record without a group is left out.
        """
        with self._private_fit() as fit:
            self._validate_params()
            self._fit_source(fit, self._open_source(X, y, groups))
        return self

    def _check_source(self, source: SumSource) -> None:
        check_delta_is_small(self.delta)
        if self.relation != "add_remove" and self.delta > 0:
            check_delta(self.delta, source.n_units)

    def _make_plan(
        self,
        fit: PrivateFit,
        source: SumSource,
        encoding: TargetRange | Labels,
        objective: PolynomialObjective | None = None,
    ) -> GramPlan:
        """Return the plan of the sums, from public facts."""
        return GramPlan(
            features=self._feature_names(source),
            target=source.target,
            ball=self._unit_ball(fit, source.rows),
            encoding=encoding,
            objective=objective,
            pure=self.delta == 0,
            unit=source.unit,
        )
