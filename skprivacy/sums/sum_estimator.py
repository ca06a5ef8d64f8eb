"""Fits of estimators that need only sums over records, from any source of sums."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from .._docs import fill_docs
from .._groups import Groups
from .._input_data import read_records, validate_data
from .._validation import check_delta_is_small, sequence
from ..accounting.event import check_delta
from ..base import PrivateEstimatorMixin, PrivateFit
from ..mechanisms import SecureRandom
from .sources import (
    ArraySource,
    ColumnSource,
    ScanReleases,
    Scans,
    SumRelease,
    SumSource,
    TableSource,
    TotalSource,
    is_table,
    open_table,
)
from .sum_plan import GROUP_SIZE, SumPlan, SumTotal

# Paragraphs of docstrings that estimators of sums share, see skprivacy/_docs.py.
SUM_DOCS = {
    "table_groups": """\
groups : array-like of shape (n_samples,) or str, default=None
    Group of each record, such as a patient's number, or the column of a table that holds it. The
    guarantee then protects all records of a group together. The name of a Series or a column is the
    unit of the guarantee.""",
    "table_edge_cases": """\
**Edge cases.** A table's record with a missing target or an unknown label contributes nothing; in
memory it is refused. A table's record without a group is left out.""",
    "table_raises": """\
ValueError
    If a parameter, a shape or a label is not as described. Nothing has been released then.
BudgetExceededError
    If ``budget`` cannot afford the fit. Nothing has been released or charged.
TypeError
    If a column of a table has a type that does not fit.
RuntimeError
    If an engine fails in a scan. The charge stays, and nothing is released.""",
    "plan_groups": """\
groups : str, default=None
    Name of the unit of the guarantee, such as "patient_id". Batches then have the column
    ``skprivacy_group_size``: the number of rows of the row's group in the whole table.""",
    "plan_result": """\
SumPlan
    The plan. Sum its ``partial`` of all batches in a ``SumTotal``, for ``fit_sums``.""",
    "sums_total": """\
total : SumTotal
    The sum of all parts of the table, by the plan of the next scan.""",
    "sums_result": """\
object
    The fitted estimator or, if the fit needs another scan, the SumPlan of it.""",
}
_PUBLIC_FACTS = ("bounds", "target_bounds", "classes")


@fill_docs(SUM_DOCS)
class SumEstimator(PrivateEstimatorMixin):
    """Base of estimators that release exact sums; a subclass defines ``_make_release``."""

    relation: str
    delta: float
    noise_seed: int | None

    @abstractmethod
    def _make_release(self, fit: PrivateFit, source: SumSource) -> SumRelease | ScanReleases:
        """Return the releases of the fit, from public facts; ``read`` sets the attributes."""

    def _fit_table(self, X: Any, y: Any, groups: Any) -> Any:
        """Fit to records in memory, or to a table where it lies."""
        with self._private_fit() as fit:
            self._validate_params()
            self._fit_source(fit, self._open_source(X, y, groups))
        return self

    def _fit_source(self, fit: PrivateFit, source: SumSource) -> None:
        """Charge, sum, release and read."""
        self._drive(source, self._scan(fit, source))

    def _drive(self, source: SumSource, scans: Scans) -> None:
        """Run a fit by the sums of a source."""
        vars(self).pop("_running_fit", None)
        with closing(RunningFit(self, scans)) as running:
            is_waiting = True
            while is_waiting:
                total = source.sum(running.plan)
                running.check(total)
                is_waiting = running.send(total)

    def _scan(self, fit: PrivateFit, source: SumSource) -> Scans:
        """Charge all releases, yield the plan of each scan, and read the releases at the end."""
        check_delta_is_small(self.delta)
        if self.relation != "add_remove" and self.delta > 0:
            check_delta(self.delta, source.n_units)
        release = self._make_release(fit, source)
        source.check(release.plan)
        n_units = 0 if self.relation == "add_remove" else source.n_units
        with fit.charged(
            release.event, relation=self.relation, at_delta=self.delta,
            unit=source.unit, arithmetic=release.arithmetic,
        ):  # fmt: skip
            total = yield release.plan
            released = yield from release.scan(total, SecureRandom(self.noise_seed))
        release.read(released, n_units)

    def _scan_total(self, total: SumTotal, public: Any) -> Scans:
        """Start a fit from the total of its first plan."""
        with self._private_fit() as fit:
            self._validate_params()
            source = self._source_of_total(total)
            source.public = public
            fit.assume("each record is in one part of the total, summed by the plan")
            if source.unit != "record":
                fit.assume(f"{GROUP_SIZE} holds the size of each group")
            yield from self._scan(fit, source)

    def _read_arrays(self, X: Any, y: Any, groups: Any) -> tuple[NDArray, Any, Groups]:
        """Return records in memory, their targets if there are any, and their groups."""
        return read_records(self, X, y, groups, dtype=np.float64)

    def _open_source(self, X: Any, y: Any, groups: Any) -> SumSource:
        """Return the source of the sums of records in memory or of a table."""
        if not is_table(X, y, groups):
            return ArraySource(*self._read_arrays(X, y, groups))
        table = open_table(X)
        features = check_table_names(table.names, y, groups)
        encoded = table.encoded_features
        if encoded is not None and (extra := [n for n in features if n not in encoded]):
            raise ValueError(
                f"The table has columns that the schema does not describe: {extra}. Select the "
                "schema's columns, the target and the groups."
            )
        self._state_columns(features if encoded is None else len(features))
        return TableSource(table, len(features), y or "", groups)

    def _state_columns(self, features: Sequence[str] | int) -> None:
        """Check the names of the features, or their number; demand public facts."""
        for name in _PUBLIC_FACTS:
            if getattr(self, name, ()) is None:
                raise ValueError(
                    f"{name}=None: a fit by sums reads no public fact off the table. Pass {name} "
                    "from public knowledge."
                )
        empty: Any
        if isinstance(features, int):
            empty = np.empty((0, features))
        else:
            empty = pd.DataFrame(np.empty((0, len(features))), columns=list(features))
        validate_data(self, empty, dtype=np.float64, ensure_min_samples=0)

    def _feature_names(self, source: SumSource) -> tuple[str, ...]:
        """Return the names of the features, x0, x1 ... if there are none."""
        known = getattr(self, "feature_names_in_", None)
        if known is None:
            return tuple(f"x{i}" for i in range(source.rows.shape[1]))
        return tuple(map(str, known))

    def plan(
        self,
        columns: Sequence[str] | Mapping[str, Any],
        y: str | None = None,
        groups: str | None = None,
    ) -> SumPlan:
        """Return the plan of the sums that a fit releases, or of the first scan of several.

        Parameters
        ----------
        columns : sequence of str, or mapping of str to dtype
            Names of the features. Models of cells count a column of integers in whole cells: give
            them the types, such as ``dict(frame.dtypes)``. Without types, numbers have fractions.
        y : str, default=None
            Name of the target, for models that predict one.
        %(plan_groups)s

        Returns
        -------
        %(plan_result)s

        Raises
        ------
        TypeError
            If a name is not text.
        ValueError
            If a parameter is not as described, or a public fact such as ``bounds`` is missing.
        """
        return self._plan_first(columns, y, groups)

    def _plan_first(self, columns: Any, y: Any, groups: Any, public: Any = None) -> SumPlan:
        """Return the plan of the first scan, from public facts."""
        model: SumEstimator = clone(self)
        model._validate_params()
        source = model._source_of_columns(columns, y, groups)
        source.public = public
        with model._private_fit() as fit:
            return model._make_release(fit, source).plan

    def _source_of_columns(self, columns: Any, y: Any, groups: Any) -> ColumnSource:
        """Return the source of a plan that is made from the names of columns."""
        features = sequence("columns", columns)
        check_table_names([*features, *([] if y is None else [y])], y, None)
        check_group_name(groups)
        self._state_columns(features)
        return ColumnSource(len(features), y or "", groups or "record")

    def _source_of_total(self, total: SumTotal) -> TotalSource:
        """Return the source of a fit to the total of its first plan."""
        target = total.plan.target_column
        features = [name for name in total.plan.record_columns if name != target]
        self._state_columns(features)
        return TotalSource(total, len(features), target)

    def fit_sums(self, total: SumTotal) -> Any:
        """Fit to sums that were computed elsewhere by ``plan``, scan after scan.

        Parameters
        ----------
        %(sums_total)s

        Returns
        -------
        %(sums_result)s

        Raises
        ------
        TypeError
            If ``total`` is not a SumTotal.
        ValueError
            If the total is of another plan, of an earlier scan, or of other rows than the scan
            before. Nothing is released or charged then, and the fit still waits for its total.

        Notes
        -----
        **Guarantees.** As for ``fit``, if every row of the table is in exactly one part and, with
        groups, ``skprivacy_group_size`` is right. The first total is charged, for all scans. A
        fit that ends between two scans stays charged. A total that is fitted twice is charged
        twice.

        **Edge cases.** Until the last scan, the fit lives in this object: it cannot be pickled, and
        its parameters are as at the first total. ``fit`` gives it up.
        """
        return self._take_total(total)

    def _take_total(self, total: SumTotal, public: Any = None) -> Any:
        """Start a fit, or go on with it; return the next plan or the fitted estimator."""
        if not isinstance(total, SumTotal):
            raise TypeError(f"total must be a SumTotal; got a {type(total).__name__}.")
        running = vars(self).get("_running_fit")
        if running is None:
            model: SumEstimator = clone(self)
            running = RunningFit(model, model._scan_total(total, public))
        running.check(total)
        vars(self).pop("_running_fit", None)  # an error below ends the fit
        if running.send(total):
            self._running_fit = running
            return running.plan
        params = running.model.get_params(deep=False)
        vars(self).update({k: v for k, v in vars(running.model).items() if k not in params})
        return self


class RunningFit:
    """A charged fit of ``model`` that takes the totals of its scans, one after another."""

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
        total._check_sizes()
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


def check_group_name(groups: Any) -> None:
    """Raise TypeError unless ``groups`` can name the unit of a guarantee."""
    if groups is not None and not (isinstance(groups, str) and groups != "record"):
        raise TypeError("groups must name the unit of the guarantee, such as 'patient_id'.")


def check_table_names(names: Sequence[Any], y: Any, groups: Any) -> list[str]:
    """Return the names of the features; refuse names of another type, repeated or absent."""
    for parameter, name in (("y", y), ("groups", groups)):
        if name is not None and not isinstance(name, str):
            raise TypeError(
                f"{parameter} must be the name of a column of the table; got a "
                f"{type(name).__name__}."
            )
    if wrong := [type(name).__name__ for name in names if not isinstance(name, str)]:
        raise TypeError(f"The names of columns must be text; got a {wrong[0]}. Rename the columns.")
    if len(set(names)) < len(names):
        twice = sorted(name for name in set(names) if list(names).count(name) > 1)
        raise ValueError(f"The table has several columns named {twice[0]!r}. Rename them.")
    for parameter, name in (("y", y), ("groups", groups)):
        if name is not None and name not in names:
            raise ValueError(f"{parameter}={name!r} is not a column; the table has {list(names)}.")
    if groups == "record" or (y is not None and y == groups):
        raise ValueError(f"groups={groups!r} must be a column other than y and 'record'.")
    return [name for name in names if name not in (y, groups)]
