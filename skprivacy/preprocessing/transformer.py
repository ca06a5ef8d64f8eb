"""Encoding of raw columns as bounded features by a public schema, in memory or in an engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._docs import fill_docs
from .._groups import find_identifiers
from .._input_data import validate_data
from .._validation import sequence, whole
from ..base import roll_back_on_error
from ..sums import Table
from ..sums.batch_columns import count_rows, read_numbers, read_series
from ..sums.sources import is_table, open_table
from ..sums.sum_plan import Integers, SumPlan
from .columns import BoundedColumn, Column
from .schema import Schema

# Paragraphs of docstrings that the package shares, see skprivacy/_docs.py.
TRANSFORMER_DOCS = {
    "optional_schema": """\
schema : Schema, default=None
    Public facts about each column. ``None`` infers them from the numeric data passed to ``fit``,
    which leaks them: a PrivacyLeakWarning, or an error if strict.""",
    "output_dtype": """\
dtype : dtype, default=numpy.float64
    The type of the output, ``numpy.float64`` or ``numpy.float32``.""",
    "schema_attribute": """\
schema_ : Schema
    The schema used; ``schema_.inferred`` is True if facts were read off data.""",
    "table": """\
X : DataFrame or array-like of shape (n_samples, n_features)
    Data with the schema's columns.""",
    "table_without_target": """\
X : DataFrame or array-like of shape (n_samples, n_features)
    Data with the schema's columns.
y : None
    Ignored.""",
    "encoded_table": """\
ndarray of shape (n_samples, n_features_out)
    Features, in the container chosen by ``set_output``.""",
}


@fill_docs(TRANSFORMER_DOCS)
class SchemaTransformer(TransformerMixin, BaseEstimator):
    """Turn raw columns into bounded features by a public schema, independently of the data.

    Numbers are clipped to public bounds and scaled to [-1, 1]. A column with ``bins`` adds
    thermometer bits, 0 or 0.5, for the edges between bins. Categories are one-hot encoded by public
    categories or hash buckets, and dates become days since a public date. Crosses of columns come
    last. This replaces scalers and encoders fitted to private data, which no guarantee covers.

    Parameters
    ----------
    %(optional_schema)s
    bins : int, default=None
        Number of bins of each bounded column to which the schema gives none. ``None`` adds none.
    %(output_dtype)s

    Attributes
    ----------
    %(schema_attribute)s
    data_independent_ : bool
        Whether the transform depends only on the constructor's parameters.
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** If a schema is given, ``fit`` reads the number and names of the columns and no
    value. Each output row depends on the same input row only, so neighbouring data sets stay
    neighbours under every relation, and the transform costs no privacy.

    **Edge cases.** A missing or non-numeric number becomes 0, an infinite one an end of [-1, 1]. A
    missing or unknown category becomes zeros in all of its columns. With ``missing=True``, a
    further feature marks such values. A schema with unconfirmed facts warns in ``fit``, and turns
    every guarantee that relies on it into an estimate. DataFrame columns are matched by name, array
    columns by the order of the schema.

    Examples
    --------
    >>> import pandas as pd
    >>> from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
    >>> from skprivacy.preprocessing import SchemaTransformer
    >>> schema = Schema(
    ...     {"age": BoundedColumn(0, 100), "sex": CategoricalColumn(["Female", "Male"])}
    ... )
    >>> X = pd.DataFrame({"age": [25, 250], "sex": ["Male", "?"]})
    >>> SchemaTransformer(schema).fit_transform(X)
    array([[-0.5,  0. ,  1. ],
           [ 1. ,  0. ,  0. ]])
    """

    _computes_records_apart = True
    # The attributes that save_model writes, in the notation of persistence.attribute_states.
    _saved_state = {"schema_": "schema"}

    def __init__(
        self,
        schema: Schema | None = None,
        *,
        bins: int | None = None,
        dtype: Any = np.float64,
    ) -> None:
        self.schema = schema
        self.bins = bins
        self.dtype = dtype

    def fit(self, X: Any, y: Any = None) -> SchemaTransformer:
        """Check the columns of ``X`` against the schema, without reading any value.

        Parameters
        ----------
        %(table_without_target)s

        Returns
        -------
        SchemaTransformer
            The fitted transformer.

        Raises
        ------
        ValueError
            If a column is missing or unknown, or a parameter is wrong.

        Warns
        -----
        PrivacyLeakWarning
            If some fact of the schema was read off data; an error if strict.
        """
        return self._fit_columns(X)

    def _fit_columns(self, X: Any, least: int = 1) -> SchemaTransformer:
        """Fit to a table of at least some rows."""
        self._check_parameters()
        with roll_back_on_error(self):
            X = self._checked(X, reset=True, ensure_min_samples=least)
            if self.schema is None:
                self.schema_ = Schema.infer(X)
            else:
                self.schema_ = self.schema
                check_columns(self.schema, X)
                self.schema.warn_if_unconfirmed()
            self.schema_ = add_bins(self.schema_, self.bins)
            self.data_independent_ = not self.schema_.unconfirmed
        return self

    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Fit, and return the features.

        Parameters
        ----------
        X : DataFrame, array-like of shape (n_samples, n_features) or table
            Data with the schema's columns. A private model of :mod:`skprivacy.sums` encodes a table
            in an engine batch by batch. Such a table may have other columns.
        y : str, default=None
            Name of the target, for tables that are read by column names; otherwise ignored.
        **params : dict
            As of scikit-learn's ``fit_transform``.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out) or Table
            Features, in the container chosen by ``set_output``; of a table, what ``fit`` of a
            private model takes.

        Raises
        ------
        ValueError
            If a column is missing or unknown, or a parameter is wrong.
        """
        if self.schema is None or not is_table(X, y):
            return super().fit_transform(X, y, **params)
        table = open_table(X)
        empty = table.empty_frame()
        self._fit_columns(empty[[name for name in empty if name in self.schema]], least=0)
        return EncodedTable(table, self)

    def transform(self, X: Any) -> np.ndarray:
        """Return bounded features, one row for each row of ``X``.

        Parameters
        ----------
        %(table)s

        Returns
        -------
        %(encoded_table)s
        """
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        out = np.zeros((len(X), self.schema_.n_features_out), dtype=self.dtype)
        at, columns = 0, {}
        for (column, fact), name in zip(
            described_columns(self.schema_, X), self.schema_, strict=True
        ):
            width = fact.n_features_out
            fact._encode(out[:, at : at + width], column)
            at += width
            columns[name] = column
        for cross in self.schema_._crossed_columns():
            cross.write(out[:, at : at + cross.n_features_out], columns)
            at += cross.n_features_out
        return out

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the features: ``age``, ``age_bin1``, ``sex_Female``, ``a_1:b_2``.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Must equal ``feature_names_in_`` if ``fit`` saw names; renames the columns otherwise.

        Returns
        -------
        ndarray of shape (n_features_out,)
            Strings, in the order of the columns.
        """
        check_is_fitted(self)
        names = list(self.schema_)
        if input_features is not None:
            given = list(sequence("input_features", input_features))
            if any(np.ndim(name) for name in given):
                raise ValueError("input_features must be names, one for each column.")
            seen = getattr(self, "feature_names_in_", None)
            if seen is not None and list(seen) != given:
                raise ValueError("input_features is not equal to feature_names_in_")
            if len(given) != self.n_features_in_:
                raise ValueError(
                    "input_features should have length equal to number of features "
                    f"({self.n_features_in_}), got {len(given)}"
                )
            names = names if seen is not None else given
        renamed = dict(zip(self.schema_, names, strict=True))
        found = [
            out for name, fact in self.schema_.items() for out in fact._names_out(renamed[name])
        ]
        for cross in self.schema_._crossed_columns():
            found += cross._names_out(renamed)
        return np.array(found, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.schema is not None
        tags.input_tags.string = self.schema is not None
        tags.input_tags.categorical = self.schema is not None
        tags.transformer_tags.preserves_dtype = []
        tags.requires_fit = True
        return tags

    def _finish_loading(self) -> None:
        """Compare the schema of a transformer from a file with its columns."""
        if self.n_features_in_ != len(self.schema_):
            raise ValueError(
                f"the schema has {len(self.schema_)} columns, and the model another number"
            )
        if set(getattr(self, "feature_names_in_", self.schema_)) != set(self.schema_):
            raise ValueError("the schema has other columns than the model was fitted to")
        self.data_independent_ = not self.schema_.unconfirmed

    def _check_parameters(self) -> None:
        if self.schema is not None and not isinstance(self.schema, Schema):
            raise TypeError(
                f"schema={self.schema!r} must be a Schema or None. Create one with Schema({{...}})."
            )
        if self.bins is not None:
            whole("bins", self.bins)
        try:
            dtype = np.dtype(self.dtype)
        except TypeError:
            dtype = None
        if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype={self.dtype!r} must be numpy.float32 or numpy.float64.")

    def _checked(self, X: Any, reset: bool, **checks: Any) -> Any:
        if self.schema is None:
            return validate_data(self, X, reset=reset, dtype=np.float64, **checks)
        return validate_data(
            self, X, tables="keep", reset=reset, dtype=None, ensure_all_finite=False, **checks
        )


def add_bins(schema: Schema, bins: int | None) -> Schema:
    """Return the schema with bins for each bounded column that has a width and no bins."""
    if bins is None:
        return schema
    plain = [
        name
        for name, fact in schema.items()
        if isinstance(fact, BoundedColumn) and fact.bins == 1 and fact.lower < fact.upper
    ]
    return schema.with_bins(bins, plain)


def check_columns(schema: Schema, X: Any) -> None:
    """Raise ValueError unless ``X`` has the columns that the schema describes, and no others."""
    if not isinstance(X, pd.DataFrame):
        if X.shape[1] != len(schema):
            raise ValueError(
                f"X has {X.shape[1]} columns, but the schema describes {len(schema)}: "
                f"{list(schema)}. Pass these columns, in this order."
            )
        return
    names = list(X.columns)
    if missing := [name for name in schema if name not in names]:
        raise ValueError(
            f"X lacks the schema's columns {missing}; it has {names}. Add or rename columns."
        )
    if extra := [name for name in names if name not in schema]:
        whose = find_identifiers(extra)
        raise ValueError(
            f"X has columns that the schema does not describe: {extra}. Drop them, for example "
            "X[list(schema)]."
            + (
                f" {whose[0]!r} looks like an identifier: if anybody has several records, "
                "pass it as groups to the private model's fit."
                if whose
                else ""
            )
        )


def described_columns(schema: Schema, X: Any) -> Iterator[tuple[pd.Series, Column]]:
    """Yield each column that the schema describes, with its facts."""
    for i, (name, fact) in enumerate(schema.items()):
        if isinstance(X, pd.DataFrame):
            yield X[name], fact
        else:  # pandas' string type cannot hold all Python strings
            dtype = object if X.dtype.kind in "OUS" else None
            yield pd.Series(X[:, i], dtype=dtype, copy=False), fact


class EncodedTable(Table):
    """Features x0, x1 ... by a fitted SchemaTransformer, beside the other columns of a table."""

    def __init__(self, table: Table, encoder: Any) -> None:
        super().__init__(table.frame)
        self._table, self._encoder = table, encoder
        self.encoded_features: list[str] = [f"x{i}" for i in range(encoder.schema_.n_features_out)]

    @property
    def names(self) -> list[str]:
        return [
            *self.encoded_features,
            *(n for n in self._table.names if n not in self._encoder.schema_),
        ]

    def kinds(self) -> dict[str, str]:
        return {**self._table.kinds(), **dict.fromkeys(self.encoded_features, "number")}

    def empty_frame(self) -> pd.DataFrame:
        return pd.DataFrame(columns=self.encoded_features, dtype=np.float64)

    def check_parts(self, columns: Iterable[str]) -> None:
        others = [name for name in columns if name not in self.encoded_features]
        self._table.check_parts([*self._encoder.schema_, *others])

    def count_units(self, groups: str | None) -> int:
        return self._table.count_units(groups)

    def sum_parts(self, plan: SumPlan, groups: str | None) -> Iterator[tuple[str, Integers]]:
        kinds, schema = self._table.kinds(), self._encoder.schema_
        numbers = tuple(
            name
            for name, fact in schema.items()
            if isinstance(fact, BoundedColumn) and kinds[name] == "number"
        )
        encoded = EncodedPlan(plan, self._encoder, numbers, unit=plan.unit)
        return self._table.sum_parts(encoded, groups)


@dataclass(frozen=True)
class EncodedPlan(SumPlan):
    """A plan whose features are made of other columns by a schema."""

    plan: SumPlan
    encoder: Any
    numbers: tuple[str, ...]  # bounded columns whose type is a number, such as a decimal

    @property
    def _plain_columns(self) -> list[str]:
        """Columns that are not encoded, such as the target."""
        width = self.encoder.schema_.n_features_out
        return list(self.plan.record_columns)[width:]

    @property
    def record_columns(self) -> tuple[str, ...]:
        return (*self.encoder.schema_, *self._plain_columns)

    @property
    def n_sums(self) -> int:
        return self.plan.n_sums

    def column_kinds(self) -> dict[str, str]:
        return self.plan.column_kinds()

    def facts(self) -> dict[str, Any]:
        return {"plan": self.plan.digest, "encoder": self.encoder.schema_.to_dict()}

    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        raw = {name: self._read_column(batch, name) for name in self.encoder.feature_names_in_}
        rows = np.empty((0, self.encoder.schema_.n_features_out))
        if count_rows(batch):  # scikit-learn refuses a table without rows
            rows = np.asarray(self.encoder.transform(pd.DataFrame(raw)))
        frame = pd.DataFrame(rows, columns=list(self.plan.record_columns[: rows.shape[1]]))
        others = {
            name: read_series(batch, name).reset_index(drop=True) for name in self._plain_columns
        }
        return self.plan._read_batch(frame.assign(**others))

    def _read_column(self, batch: Any, name: str) -> Any:
        if name in self.numbers:
            return read_numbers(batch, (name,))[:, 0]
        return read_series(batch, name).reset_index(drop=True)

    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        return self.plan._sum_slice(sizes, *records)
