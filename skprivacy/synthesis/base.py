"""Common part of synthesizers: public facts of a table, its encoding, and sampled records.

:class:`TableFacts` collects what is public: columns with their ranges or categories, types, and
the label. :class:`Synthesizer` draws records with the columns and types that ``fit`` got."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._input_data import (
    check_consistent_length,
    check_numbers,
    check_readable,
    column_or_1d,
    type_of_target,
    validate_data,
)
from .._validation import check_random_state, flag, is_whole, sequence
from ..base import PrivateEstimatorMixin, PrivateFit
from ..preprocessing import BoundedColumn, CategoricalColumn, Schema
from ..preprocessing.transformer import check_columns, described_columns
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
from .constrained_records import Constraints
from .domain import Domain, Grid

# Paragraphs of docstrings that the package shares, see skprivacy/_docs.py.
SYNTHESIS_DOCS = {
    "table_schema": """\
schema : Schema, default=None
    Public ranges and categories of the columns. ``None`` reads them off the data, and the guarantee
    then names this as an assumption.""",
    "missing_columns": """\
columns_with_missing : sequence of str, default=()
    Columns in which values may be missing, from public knowledge. A record is left out if a value
    of another column is missing, or is not a number or category of the schema.""",
    "synthesizer_attributes": """\
domain_ : Domain
    The public cells of each column.
schema_ : Schema
    The schema used.
target_ : str or None
    The column that ``sample(return_X_y=True)`` returns separately: ``y``, or the label.""",
    "synthesizer_fit": """\
X : DataFrame or array-like of shape (n_samples, n_features)
    Private records, with the schema's columns.
y : array-like of shape (n_samples,), default=None
    Their target, one more column: the schema's ``target_column``, with its ``classes`` or
    ``target_bounds``.""",
    "synthetic_training": """\
synthesizer : estimator
    A :class:`MarginalSynthesizer` or :class:`DPGANSynthesizer`; it is cloned. Its parameters set
    the guarantee: ``synthesizer__epsilon``, ``synthesizer__budget`` and so on.
n_samples : int, default=None
    Number of synthetic records to draw. ``None`` means the synthesizer's estimate of the number of
    private records.
random_state : int, RandomState instance or None, default=None
    Seed of the drawn records. No private information depends on it.""",
    "synthetic_training_attributes": """\
synthesizer_ : estimator
    The fitted synthesizer, which draws further records at no further cost.""",
    "synthetic_training_raises": """\
ValueError
    If a parameter or a shape is not as described, or the estimator does not take records of this
    schema. Nothing has been released then.
BudgetExceededError
    If the synthesizer's ``budget`` cannot afford the fit. Nothing has been released.
SyntheticTrainingError
    If the estimator fails on the synthetic records, though it took the trial records. The synthetic
    records are charged, and the error's ``synthesizer`` can draw others.""",
}


class SchemaInput:
    """Checks of a table whose columns a public schema describes, if there is one."""

    schema: Schema | None
    _takes_table = True  # so make_private_pipeline must not encode it first

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # of BaseEstimator
        given = self.schema is not None
        tags.input_tags.allow_nan = given
        tags.input_tags.string = given
        tags.input_tags.categorical = given
        return tags

    def _input_checks(self) -> dict[str, Any]:
        """Return the checks of the table: without a schema, facts are read off finite numbers."""
        if self.schema is None:
            return {"tables": "keep", "dtype": np.float64, "ensure_all_finite": True}
        return {"tables": "keep", "dtype": None, "ensure_all_finite": False}


class Synthesizer(SchemaInput, PrivateEstimatorMixin, BaseEstimator):
    """Base class of synthesizers: subclasses fit a model to private records and sample from it."""

    label: str | None
    columns_with_missing: Any
    schema_: Schema
    label_: str | None
    target_: str | None
    n_records_: int
    domain_: Domain
    _order: list[str]

    @abstractmethod
    def _draw_codes(self, n: int, random: np.random.RandomState) -> NDArray[np.int64]:
        """Return codes of ``n`` records, one for each column of ``domain_``."""

    @abstractmethod
    def _draw_values(
        self, codes: NDArray[np.int64], random: np.random.RandomState
    ) -> dict[str, NDArray[Any]]:
        """Return values of records within their codes, as ``Domain.draw_values`` does."""

    def sample(
        self,
        n: int | None = None,
        *,
        return_X_y: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> Any:
        """Draw any number of synthetic records, at no further privacy cost.

        Parameters
        ----------
        n : int, default=None
            Number of records. ``None`` means ``n_records_``.
        return_X_y : bool, default=False
            Whether to return the target separately: the ``y`` that ``fit`` got, or else the label.
        random_state : int, RandomState instance or None, default=None
            Seed of the records. No private information depends on it.

        Returns
        -------
        DataFrame of shape (n, n_columns)
            Columns and types are those that ``fit`` got, with ``y`` last. With ``return_X_y``, the
            target is a second result, a Series.
        """
        check_is_fitted(self)
        n = self.n_records_ if n is None else n
        if not is_whole(n) or n < 1:
            raise ValueError(f"n={n!r} must be an integer of at least 1, or None.")
        flag("return_X_y", return_X_y)
        if return_X_y and self.target_ is None:
            raise ValueError(
                "return_X_y=True needs a target, and there is none. Fit with label=, or with y."
            )
        random = check_random_state(random_state)
        frame = Constraints(self.schema_.constraints, self.domain_).complete(
            self._draw_codes(int(n), random),
            lambda size: self._draw_codes(size, random),
            lambda codes: self._draw_values(codes, random),
        )[self._order]
        if return_X_y:
            return frame.drop(columns=self.target_), frame[self.target_]
        return frame

    def _store_public_facts(self, facts: TableFacts, domain: Domain) -> None:
        """Store the public facts of the table as attributes."""
        self.schema_, self.domain_ = facts.schema, domain
        self.label_, self.target_ = facts.label, facts.target
        self._order = facts.order

    def _read_public_facts(self, X: Any, y: Any) -> tuple[TableFacts, Domain]:
        """Return the public facts of a table, without the warnings, which a fit repeats."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            facts = TableFacts.from_table(
                PrivateFit(self),
                validate_data(self, X, **self._input_checks()),
                y,
                self.schema,
                self.label,
            )
            grids: Mapping[str, Any] = getattr(self, "grids", None) or {}
            return facts, facts.build_domain(grids, self.columns_with_missing)


@dataclass(frozen=True)
class TableFacts:
    """Columns of a table, including the target, and the public facts of each."""

    schema: Schema  # given or inferred; does not contain the target
    columns: dict[str, BoundedColumn | CategoricalColumn]  # including the target
    series: list[pd.Series]  # the private values of each column
    types: dict[str, Any]  # of the columns that have one
    order: list[str]  # names of the columns as given
    label: str | None  # the column by which all others are counted
    target: str | None  # the column given as y, or else the label

    @classmethod
    def from_table(
        cls, fit: PrivateFit, X: Any, y: Any, schema: Schema | None, label: str | None
    ) -> TableFacts:
        """Check a table against its schema, which is read off the data if there is none."""
        if y is not None:
            check_readable(y, "y")
            if not np.ndim(y):
                raise ValueError(f"y={y!r} must have a label for each record of X, or be None.")
            check_consistent_length(X, y)
            y = _as_column(y)
        schema, X = public_schema(fit, X, schema, y)
        columns = schema._check_kinds(fit.source, missing=True)
        series = [column for column, _ in described_columns(schema, X)]
        types: dict[str, Any] = {}
        order, target = list(columns), label
        if isinstance(X, pd.DataFrame):
            types, order = dict(X.dtypes), list(X.columns)
        elif X.dtype.kind in "iu":
            types = {
                name: X.dtype for name, fact in columns.items() if isinstance(fact, BoundedColumn)
            }
        if y is not None:
            target = name = _target_name(schema, y)
            columns[name] = _target_column(fit, schema, y)
            series.append(y if isinstance(y, pd.Series) else _array_to_series(y))
            order = [*order, name]
            if isinstance(y, pd.Series) or (
                isinstance(columns[name], BoundedColumn) and y.dtype.kind in "iu"
            ):
                types[name] = y.dtype
            if label is None and isinstance(columns[name], CategoricalColumn):
                label = name
        types = {
            name: _without_data_categories(dtype, columns[name]) for name, dtype in types.items()
        }
        if types:
            fit.assume("the types of the columns are public")
        if label is not None:
            _check_label(label, columns)
        if len(columns) == 1:
            label = target = None
        return cls(schema, columns, series, types, order, label, target)

    @property
    def label_index(self) -> tuple[int, ...]:
        """Index of the label in a tuple, or ()."""
        return () if self.label is None else (list(self.columns).index(self.label),)

    def build_domain(self, grids: Mapping[str, Any], missing: Any) -> Domain:
        """Return the public cells of each column."""
        for name, grid in grids.items():
            if not isinstance(self.columns.get(name), BoundedColumn) or not isinstance(grid, Grid):
                numeric = [n for n, fact in self.columns.items() if isinstance(fact, BoundedColumn)]
                raise ValueError(
                    f"grids: {name!r} is given {grid!r}. Expected a Grid for a numeric column, "
                    f"one of {numeric}."
                )
        named = (
            [missing]
            if isinstance(missing, str)
            else list(sequence("columns_with_missing", missing))
        )
        known = list(self.columns)  # a list: invalid names may not be hashable
        if unknown := [n for n in named if not isinstance(n, str) or n not in known]:
            raise ValueError(
                f"columns_with_missing={missing!r} names {unknown[0]!r}, which is not a column. "
                f"Expected some of {known}."
            )
        named += [name for name, fact in self.columns.items() if fact.missing]
        return Domain.from_facts(self.columns, grids, named, self.types)

    def pair_weights(self, given: Mapping[Any, Any] | None) -> dict[tuple[int, int], float]:
        """Return the weight, in [0, 1], of each pair of columns except the label."""
        names = list(self.columns)
        free = [c for c in range(len(names)) if c not in self.label_index]
        if given is None:
            return dict.fromkeys(combinations(free, 2), 1.0)
        weights: dict[tuple[int, int], float] = {}
        for pair, weight in given.items():
            if not isinstance(pair, tuple) or len(pair) != 2 or len({*pair} & {*names}) != 2:
                raise ValueError(
                    f"workload: {pair!r} is not a pair of two columns. Expected two of {names}."
                )
            if not isinstance(weight, int | float | np.number) or not 0 <= weight < np.inf:
                raise ValueError(
                    f"workload: {pair!r} has the weight {weight!r}. Expected a number >= 0."
                )
            places = sorted(names.index(name) for name in pair)
            if not {*places} & {*self.label_index}:  # each column is counted with the label anyway
                weights[places[0], places[1]] = float(weight)
        largest = max(weights.values(), default=0.0) or 1.0
        return {pair: weight / largest for pair, weight in weights.items()}


def public_schema(
    fit: PrivateFit, X: Any, schema: Schema | None, y: Any = None
) -> tuple[Schema, Any]:
    """Return the schema of a table and the table under its names; None is read off the data."""
    if schema is None:
        schema = Schema.infer(X, _target_with_classes(y))
        if isinstance(X, pd.DataFrame):  # its column names may be numbers
            X = X.set_axis(list(schema), axis=1)
    else:
        schema.warn_if_unconfirmed()
    fit.assume(*schema.assumptions)
    check_columns(schema, X)
    return schema, X


def _array_to_series(y: NDArray[Any]) -> pd.Series[Any]:
    """Return an array as a Series of the same type, if pandas has it."""
    return pd.Series(y, dtype=None if y.dtype.kind in "mM" else y.dtype)


def _as_column(y: Any) -> Any:
    """Return a target as a Series, or as a one-dimensional array."""
    if isinstance(y, pd.Series):
        return y
    if isinstance(y, pd.DataFrame) and y.shape[1] == 1:
        return y.iloc[:, 0]
    return column_or_1d(y)


def _without_data_categories(dtype: Any, fact: BoundedColumn | CategoricalColumn) -> Any:
    """Return the dtype without categories, which pandas takes from the data."""
    if not isinstance(dtype, pd.CategoricalDtype):
        return dtype
    if isinstance(fact, BoundedColumn):
        return None
    return pd.CategoricalDtype(list(fact.values), dtype.ordered)


def _target_with_classes(y: Any) -> Any:
    """Return a target that has classes, else None."""
    return y if y is not None and type_of_target(y) in ("binary", "multiclass") else None


def _target_name(schema: Schema, y: Any) -> str:
    name = schema.target_column or getattr(y, "name", None) or "target"
    if name in schema:
        raise ValueError(
            f"y is named {name!r}, like a column of X. Rename it, or name the schema's target."
        )
    return str(name)


def _target_column(fit: PrivateFit, schema: Schema, y: Any) -> BoundedColumn | CategoricalColumn:
    if schema.classes is not None:
        return CategoricalColumn(schema.classes)
    if schema.target_bounds is not None:
        return BoundedColumn(*schema.target_bounds)
    fit.read_off_data(
        "The schema says neither classes nor target_bounds: they are read off y, which reveals "
        "them. Pass Schema(..., classes=[...]) or Schema(..., target_bounds=(lower, upper)).",
        "the classes or bounds of the target are public (they were read off y)",
    )
    if _target_with_classes(y) is not None:
        return CategoricalColumn(tuple(np.unique(np.asarray(y))))
    check_numbers(y, "y")
    numbers = np.asarray(y, dtype=np.float64)
    return BoundedColumn(float(np.nanmin(numbers)), float(np.nanmax(numbers)))


def _check_label(label: str, columns: Mapping[str, BoundedColumn | CategoricalColumn]) -> None:
    if not isinstance(columns.get(label), CategoricalColumn):
        categorical = [
            name for name, fact in columns.items() if isinstance(fact, CategoricalColumn)
        ]
        raise ValueError(
            f"label={label!r} must be a column with categories, one of {categorical}. Every "
            "column is counted by its values."
        )


class SchemaSumEstimator(SchemaInput, SumEstimator):
    """Base of estimators of tables with a public schema, whose releases are of exact sums."""

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
