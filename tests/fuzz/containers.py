"""The same records and labels, kept in whatever numpy, pandas and other libraries keep them in."""

import datetime
import decimal
import fractions
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from scipy import sparse

__all__ = ["COLUMNS", "LABELS", "TABLES", "with_column"]


class _Subclass(np.ndarray):
    """An array of a class of its own."""


class _ArrayLike:
    """Nothing but what numpy reads, as other libraries have it."""

    def __init__(self, array: np.ndarray) -> None:
        self._array, self.shape = array, array.shape

    def __len__(self) -> int:
        return len(self._array)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self._array, dtype)


def objects(*values: Any) -> np.ndarray:
    """Return an array of just these objects, of whatever kind."""
    array = np.empty(len(values), object)
    for place, value in enumerate(values):
        array[place] = value
    return array


def _frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])


def _without_first(X: np.ndarray, dtype: str) -> pd.DataFrame:
    frame = _frame(X).astype(dtype)
    frame.iloc[0, 0] = pd.NA
    return frame


def _read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def _names(X: np.ndarray) -> list[Any]:
    return list(range(X.shape[1]))


TABLES: dict[str, Callable[[np.ndarray], Any]] = {
    "matrix": lambda X: X.view(np.matrix),  # whose own constructor warns
    "subclass": lambda X: X.view(_Subclass),
    "read-only": _read_only,
    "Fortran's order": np.asfortranarray,
    "backwards": lambda X: X[::-1, ::-1],
    "every second": lambda X: np.repeat(X, 2, axis=0)[::2],
    "bytes swapped": lambda X: X.astype(">f8"),
    "long double": lambda X: X.astype(np.longdouble),
    "structured": lambda X: np.array(
        [tuple(row) for row in X], dtype=[(f"x{i}", "f8") for i in _names(X)]
    ),
    "recarray": lambda X: np.rec.fromarrays(X.T),
    "text": lambda X: X.astype(str),
    "bytes": lambda X: X.astype("S"),
    "objects": lambda X: X.astype(object),
    "arrays": lambda X: objects(*X),
    "largest": lambda X: np.full(X.shape, 2**64 - 1, np.uint64),
    "nothing but NaN": lambda X: np.full(X.shape, np.nan),
    "nullable": lambda X: _frame(X).astype("Float64"),
    "nullable, one missing": lambda X: _without_first(X, "Float64"),
    "Arrow's numbers": lambda X: _frame(X).astype("double[pyarrow]"),
    "Arrow's, one missing": lambda X: _without_first(X, "double[pyarrow]"),
    "sparse columns": lambda X: _frame(X).astype(pd.SparseDtype(float, 0)),
    "sparse columns without NaN": lambda X: _frame(X).astype(pd.SparseDtype(float, np.nan)),
    "names of two parts": lambda X: pd.DataFrame(
        X, columns=pd.MultiIndex.from_tuples([(i // 2, i) for i in _names(X)])
    ),
    "names of all types": lambda X: pd.DataFrame(
        X, columns=["a", None, 2.5, *_names(X)][: X.shape[1]]
    ),
    "the same names": lambda X: pd.DataFrame(X, columns=["a"] * X.shape[1]),
    "control characters": lambda X: pd.DataFrame(X, columns=[f"\0\x1b[31m{i}" for i in _names(X)]),
    "the same index": lambda X: pd.DataFrame(X, index=[0] * len(X)),
    "index backwards": lambda X: pd.DataFrame(X, index=np.arange(len(X))[::-1]),
    "no columns": lambda X: _frame(X)[[]],
    "nothing at all": lambda X: pd.DataFrame(),
    "no rows": lambda X: _frame(X)[:0],
    "subclass of a frame": lambda X: type("Table", (pd.DataFrame,), {})(_frame(X)),
    "Series of lists": lambda X: pd.Series(X.tolist()),
    "Arrow's table": lambda X: pa.Table.from_pandas(_frame(X)),
    "Arrow's batch": lambda X: pa.RecordBatch.from_pandas(_frame(X)),
    "Arrow's, same names": lambda X: pa.Table.from_arrays(
        [pa.array(column) for column in X.T], names=["a"] * X.shape[1]
    ),
    "tensor": torch.tensor,
    "tensor with gradient": lambda X: torch.tensor(X, requires_grad=True),
    "tensor of bfloat16": lambda X: torch.tensor(X).to(torch.bfloat16),
    "COO": sparse.coo_matrix,
    "DIA": sparse.dia_matrix,
    "LIL": sparse.lil_matrix,
    "CSC array": sparse.csc_array,
    "dict": lambda X: dict(enumerate(X.T)),
    "list of arrays": list,
    "generator": lambda X: (row for row in X),
    "array-like": _ArrayLike,
    "memoryview": lambda X: memoryview(np.ascontiguousarray(X)),
    "one record more": lambda X: np.vstack([X, X[:1]]),
    "one feature more": lambda X: np.column_stack([X, X[:, 0]]),
    "one feature less": lambda X: X[:, 1:],
}
# A column by the number of its rows.
COLUMNS: dict[str, Callable[[int], Any]] = {
    "codes": lambda n: pd.Categorical(np.arange(n) % 3),
    "categories": lambda n: pd.Categorical(["a", "b"] * (n // 2)),
    "text": lambda n: pd.array(["a"] * n, "string"),
    "numbers as text": lambda n: pd.array(["0.5"] * n, "string"),
    "text, one missing": lambda n: pd.array([None, *["0.5"] * (n - 1)], "string"),
    "Arrow's text": lambda n: pd.array(["a"] * n, "string[pyarrow]"),
    "truths, some missing": lambda n: pd.array([True, None] * (n // 2), "boolean"),
    "integers, some missing": lambda n: pd.array([1, None] * (n // 2), "Int64"),
    "times": lambda n: pd.date_range("2020", periods=n, tz="UTC"),
    "spans of time": lambda n: pd.to_timedelta(np.arange(n), "D"),
    "months": lambda n: pd.period_range("2020", periods=n, freq="M"),
    "intervals": lambda n: pd.interval_range(0, n),
    "dates": lambda n: [datetime.date(2020, 1, 1)] * n,
    "decimals": lambda n: [decimal.Decimal("0.5")] * n,
    "NaN of decimals": lambda n: [decimal.Decimal("NaN")] * n,
    "Arrow's decimals": lambda n: pd.array(
        [decimal.Decimal("0.5")] * n, pd.ArrowDtype(pa.decimal128(5, 2))
    ),
    "Arrow's lists": lambda n: pd.array([[1]] * n, pd.ArrowDtype(pa.list_(pa.int64()))),
    "Arrow's dates": lambda n: pd.array(
        [datetime.date(2020, 1, 1)] * n, pd.ArrowDtype(pa.date32())
    ),
    "fractions": lambda n: [fractions.Fraction(1, 3)] * n,
    "huge": lambda n: [10**30] * n,
    "beyond floats": lambda n: [10**400] * n,
    "complex": lambda n: [1 + 2j] * n,
    "complex objects": lambda n: objects(*[1 + 2j] * n),
    "bytes": lambda n: [b"x"] * n,
    "missing": lambda n: [None] * n,
}  # fmt: skip


def _first(value: Any) -> Callable[[np.ndarray], Any]:
    return lambda y: objects(value, *y[1:])


LABELS: dict[str, Callable[[np.ndarray], Any]] = {
    "one column": lambda y: y.reshape(-1, 1),
    "a table": lambda y: pd.DataFrame({"y": y}),
    "two columns": lambda y: pd.DataFrame({"y": y, "z": y}),
    "index backwards": lambda y: pd.Series(y, index=np.arange(len(y))[::-1]),
    "an index": pd.Index,
    "an index of two parts": lambda y: pd.MultiIndex.from_arrays([y, y]),
    "categories": lambda y: pd.Categorical(y),
    "unused categories": lambda y: pd.Series(pd.Categorical(y, [*np.unique(y), 99])),
    "categories, one missing": lambda y: pd.Series(pd.Categorical(objects(None, *y[1:]))),
    "nullable": pd.array,
    "nullable, one missing": lambda y: pd.Series(objects(pd.NA, *y[1:])).convert_dtypes(),
    "Arrow's": lambda y: pd.Series(y).convert_dtypes(dtype_backend="pyarrow"),
    "Arrow's, one missing": lambda y: pa.array([None, *y[1:].tolist()]),
    "Arrow's chunks": lambda y: pa.chunked_array([y]),
    "text": lambda y: y.astype(str),
    "pandas' strings": lambda y: pd.Series(y).astype("string"),
    "bytes": lambda y: y.astype("S8"),
    "truths": lambda y: y > y.mean(),
    "long double": lambda y: y.astype(np.longdouble),
    "bytes swapped": lambda y: y.astype(y.dtype.newbyteorder(">")),
    "complex": lambda y: y + 0j,
    "dates": lambda y: np.arange(len(y)).astype("M8[D]"),
    "spans of time": lambda y: np.arange(len(y)).astype("m8[D]"),
    "months": lambda y: pd.period_range("2020", periods=len(y), freq="M"),
    "structured": lambda y: np.array([(v,) for v in y], dtype=[("y", "f8")]),
    "tuple": tuple,
    "range": lambda y: range(len(y)),
    "iterator": iter,
    "generator": lambda y: (label for label in y),
    "set": lambda y: set(y.tolist()),
    "dict": lambda y: dict(enumerate(y.tolist())),
    "sparse": lambda y: sparse.csr_matrix(y.reshape(-1, 1)),
    "matrix": lambda y: y.reshape(-1, 1).view(np.matrix),
    "tensor": torch.tensor,
    "tensor with gradient": lambda y: torch.tensor(y.astype(float), requires_grad=True),
    "read-only": _read_only,
    "every second": lambda y: np.repeat(y, 2)[::2],
    "one more": lambda y: np.append(y, y[0]),
    "one less": lambda y: y[1:],
    "a number": lambda y: y[0],
    "another": lambda y: np.append(y[1:], 99),
    "NaN": lambda y: np.append(y[1:], np.nan),
    "infinity": lambda y: np.append(y[1:], np.inf),
    "tuples": lambda y: objects(*[(v,) for v in y]),
    "decimals": lambda y: objects(*[decimal.Decimal(str(v)) for v in y]),
    "fractions": lambda y: objects(*[fractions.Fraction(str(v)) for v in y]),
    **{
        repr(value): _first(value)
        for value in (
            None, pd.NA, pd.NaT, "a", b"a", [1], {}, np.zeros(2), 1j, 10**30, 10**400,
            decimal.Decimal("NaN"), datetime.date(2020, 1, 1), object, len,
        )
    },
}  # fmt: skip


def with_column(X: np.ndarray, column: Any) -> pd.DataFrame:
    """Return a table whose first column is another one."""
    frame = _frame(X)
    frame.insert(0, "column", column)
    return frame.drop(columns="x0")
