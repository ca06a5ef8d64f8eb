"""Fits of estimators that count cells of a public schema: in memory, in an engine or from totals.

The types of columns are public: a column of integers has cells of whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from .._input_data import validate_data
from .._validation import sequence
from ..sums import SumTotal
from ..sums.sources import (
    ArraySource,
    ColumnSource,
    SumSource,
    TableSource,
    TotalSource,
    is_table,
    open_table,
)
from ..sums.sum_estimator import SumEstimator, check_group_name, check_table_names
from .base import SchemaInput


class SchemaSumEstimator(SchemaInput, SumEstimator):
    """Base of estimators of tables with a public schema, whose releases are of exact sums.

    The ``rows`` of a source are a DataFrame or an array; without records, a DataFrame of the types.
    """

    def _open_source(self, X: Any, y: Any, groups: Any) -> SumSource:
        if not is_table(X, y, groups):
            return ArraySource(*self._read_arrays(X, y, groups))
        table = open_table(X)
        names = check_table_names(table.names, y, groups)
        source = TableSource(table, len(names), y or "", groups)
        source.rows = self._check_types(table.empty_frame()[names])
        return source

    def _source_of_columns(self, columns: Any, y: Any, groups: Any) -> ColumnSource:
        named = isinstance(columns, Mapping)
        types = columns if named else dict.fromkeys(sequence("columns", columns), np.float64)
        check_table_names([*types, *([] if y is None else [y])], y, None)
        check_group_name(groups)
        source = ColumnSource(len(types), y or "", groups or "record")
        source.rows = self._check_types(_empty_frame(types))
        return source

    def _source_of_total(self, total: SumTotal) -> TotalSource:
        plan: Any = total.plan
        names = [name for name in plan.record_columns if name != plan.target_column]
        known = {c.name: c.dtype for c in plan.domain.columns} if hasattr(plan, "domain") else {}
        source = TotalSource(total, len(names), plan.target_column)
        source.rows = self._check_types(_empty_frame({name: known.get(name) for name in names}))
        return source

    def _check_types(self, empty: pd.DataFrame) -> Any:
        """Return a table without records, checked as the private one would be."""
        if self.schema is None:
            raise ValueError(
                "schema=None: a fit by sums reads no public fact off the table. Pass schema from "
                "public knowledge."
            )
        return validate_data(self, empty, ensure_min_samples=0, **self._input_checks())


def _empty_frame(types: Mapping[str, Any]) -> pd.DataFrame:
    """Return a table without records; None stands for numbers."""
    return pd.DataFrame({name: pd.Series(dtype=_as_type(name, t)) for name, t in types.items()})


def _as_type(name: str, given: Any) -> Any:
    try:
        return pd.api.types.pandas_dtype(np.float64 if given is None else given)
    except TypeError:
        raise TypeError(
            f"columns gives {name!r} the type {given!r}; expected a type of pandas, such as "
            "'int64'. Pass dict(frame.dtypes)."
        ) from None
