"""Tables of pandas, polars, pyarrow and DuckDB, read in this process."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd

from .._environment import one_blas_thread
from .._groups import check_groups
from .batch_columns import ColumnTypeError
from .sum_plan import GROUP_SIZE, Integers, SumPlan, SumTotal

_ROWS = 1 << 17  # of a batch: small enough for caches, large enough for numpy
_AHEAD = 2  # batches per thread that wait


class Table(ABC):
    """A table that an engine holds.

    ``encoded_features`` names the features that an encoder makes, if there is one; a model of them
    keeps no names.

    Parameters
    ----------
    frame : object
        The engine's table.
    """

    encoded_features: list[str] | None = None

    def __init__(self, frame: Any) -> None:
        self.frame = frame

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Names of the columns."""

    @abstractmethod
    def kinds(self) -> dict[str, str]:
        """Return the public type of each column: "number", "text", "other" or "unknown"."""

    @abstractmethod
    def empty_frame(self) -> pd.DataFrame:
        """Return a table of pandas with the columns and their types, and no row."""

    def check_parts(self, columns: Iterable[str]) -> None:  # noqa: B027  # most engines do it
        """Refuse parts that are read twice, or of unlike types; reads no row.

        Parameters
        ----------
        columns : iterable of str
            Names of the columns that will be read.
        """

    @abstractmethod
    def count_units(self, groups: str | None) -> int:
        """Return the number of rows, or of groups.

        Parameters
        ----------
        groups : str or None
            Name of the column by which rows are grouped.

        Returns
        -------
        int
            Number of rows if ``groups`` is None, else of different groups.
        """

    @abstractmethod
    def sum_parts(self, plan: SumPlan, groups: str | None) -> Iterator[tuple[str, Integers]]:
        """Yield the name and the integers of each part.

        Parameters
        ----------
        plan : SumPlan
            Turns a batch of rows into exact integers.
        groups : str or None
            Name of the column by which rows are grouped.

        Yields
        ------
        (str, ndarray of int)
            Name of the part, and its sums.
        """

    def _sum_rows(self, plan: SumPlan, groups: str | None) -> SumTotal:
        """Return the sum over all rows that have a group, if ``groups`` is given."""
        total = SumTotal(plan)
        for name, integers in self._read_parts(plan, groups):
            total.add(name, integers)
        return total

    def _read_parts(self, plan: SumPlan, groups: str | None) -> Iterator[tuple[str, Integers]]:
        """Yield the parts; an error of the engine loses its text, which may quote values."""
        failed = None
        try:
            yield from self.sum_parts(plan, groups)
        except (ColumnTypeError, ImportError):
            raise
        except Exception as error:
            failed = type(error).__name__
        if failed is not None:  # outside of except: the error has no context that quotes values
            raise RuntimeError(
                f"The scan of a {type(self.frame).__name__} failed ({failed}). The engine's "
                "message may quote values and is left out: query the same columns to see it."
            )


class LocalTable(Table):
    """A table whose engine yields batches in this process."""

    @abstractmethod
    def batches(self, columns: list[str]) -> Iterator[Any]:
        """Yield batches of some columns, as DataFrames or pyarrow tables."""

    def sum_parts(self, plan: SumPlan, groups: str | None) -> Iterator[tuple[str, Integers]]:
        """Yield the parts in order, computed by a few threads."""
        table = self if groups is None else self.join_sizes(groups)
        return _map_ahead(plan, table.batches(list(plan.columns)))

    @abstractmethod
    def join_sizes(self, groups: str) -> LocalTable:
        """Return the table of the rows that have a group, with the column ``GROUP_SIZE``."""


def _map_ahead(plan: SumPlan, batches: Iterator[Any]) -> Iterator[tuple[str, Integers]]:
    """Yield the integers of batches in order, computed by threads a few batches ahead.

    Linear algebra keeps to one thread in each of them: on two busy cores, its own threads made the
    products of 100 columns 20 times slower.
    """
    n_threads = min(os.cpu_count() or 1, 8)
    waiting: deque[Future[Integers]] = deque()
    done = 0
    with one_blas_thread(), ThreadPoolExecutor(n_threads) as threads:
        for batch in batches:
            waiting.append(threads.submit(plan.partial, batch))
            while len(waiting) > _AHEAD * n_threads:
                yield f"batch {done}", waiting.popleft().result()
                done += 1
        while waiting:
            yield f"batch {done}", waiting.popleft().result()
            done += 1


class PandasTable(LocalTable):
    """A pandas DataFrame."""

    @property
    def names(self) -> list[str]:
        return list(self.frame.columns)

    def kinds(self) -> dict[str, str]:
        return {name: pandas_kind(dtype) for name, dtype in self.frame.dtypes.items()}

    def empty_frame(self) -> pd.DataFrame:
        return self.frame[:0]

    def count_units(self, groups: str | None) -> int:
        return len(self.frame) if groups is None else int(self.frame[groups].nunique())

    def batches(self, columns: list[str]) -> Iterator[Any]:
        for start in range(0, len(self.frame), _ROWS):
            yield self.frame[columns].iloc[start : start + _ROWS]

    def join_sizes(self, groups: str) -> LocalTable:
        known = self.frame[self.frame[groups].notna()]
        try:
            units = check_groups(known[groups], known)  # refuses 1 beside "1": two groups
        except ValueError as error:  # it quotes no value
            raise ColumnTypeError(str(error)) from None
        return PandasTable(known.assign(**{GROUP_SIZE: units.sizes()[units.codes]}))


class PolarsTable(LocalTable):
    """A polars DataFrame or LazyFrame."""

    @property
    def names(self) -> list[str]:
        return list(self.frame.lazy().collect_schema().names())

    def kinds(self) -> dict[str, str]:
        schema = self.frame.lazy().collect_schema()
        return {name: name_kind(str(kind)) for name, kind in schema.items()}

    def empty_frame(self) -> pd.DataFrame:
        empty = self.frame.lazy().collect_schema().to_frame()
        return pd.DataFrame({name: empty[name].to_numpy() for name in empty.columns})

    def count_units(self, groups: str | None) -> int:
        import polars as pl

        frame = self.frame.lazy()
        rows = frame if groups is None else frame.select(groups).drop_nulls().unique()
        return int(rows.select(pl.len()).collect().item())

    def batches(self, columns: list[str]) -> Iterator[Any]:
        picked = self.frame.lazy().select(columns)
        yield from picked.collect_batches(chunk_size=_ROWS, maintain_order=False)

    def join_sizes(self, groups: str) -> LocalTable:
        import polars as pl

        rows = self.frame.lazy()
        sizes = rows.group_by(groups).agg(pl.len().alias(GROUP_SIZE))
        return PolarsTable(rows.join(sizes, on=groups, how="inner"))  # drops missing groups


class DuckDBTable(LocalTable):
    """A relation of DuckDB, such as ``duckdb.sql("FROM 'visits.parquet'")``."""

    @property
    def names(self) -> list[str]:
        return list(self.frame.columns)

    def kinds(self) -> dict[str, str]:
        types = zip(self.frame.columns, self.frame.types, strict=True)
        return {name: name_kind(str(kind)) for name, kind in types}

    def empty_frame(self) -> pd.DataFrame:
        return self.frame.limit(0).df()

    def count_units(self, groups: str | None) -> int:
        counted = "*" if groups is None else f"DISTINCT {_quote_name(groups)}"
        [(count,)] = self.frame.aggregate(f"count({counted})").fetchall()
        return int(count)

    def batches(self, columns: list[str]) -> Iterator[Any]:
        picked = self.frame.project(", ".join(map(_quote_name, columns)) or "1")
        to_batches = getattr(picked, "to_arrow_reader", None) or picked.fetch_record_batch
        yield from to_batches(_ROWS)

    def join_sizes(self, groups: str) -> LocalTable:
        column, size = _quote_name(groups), _quote_name(GROUP_SIZE)
        sizes = self.frame.aggregate(f"{column}, count(*) AS {size}", column)
        rows, sizes = self.frame.set_alias("rows"), sizes.set_alias("sizes")
        joined = rows.join(sizes, f"rows.{column} = sizes.{column}")  # drops missing groups
        return DuckDBTable(joined.project(f"rows.*, sizes.{size}"))


class ArrowTable(LocalTable):
    """A pyarrow Table, or an open data set of Parquet files."""

    def __init__(self, frame: Any, sizes: pd.Series | None = None, groups: str = "") -> None:
        super().__init__(frame)
        self._sizes, self._groups = sizes, groups

    @property
    def names(self) -> list[str]:
        return list(self.frame.schema.names)

    def kinds(self) -> dict[str, str]:
        return {field.name: name_kind(str(field.type)) for field in self.frame.schema}

    def empty_frame(self) -> pd.DataFrame:
        return self.frame.schema.empty_table().to_pandas()

    def check_parts(self, columns: Iterable[str]) -> None:
        if not hasattr(self.frame, "get_fragments"):
            return
        files = list(getattr(self.frame, "files", []))
        if len({os.path.realpath(name) for name in files}) < len(files):
            raise ValueError(
                "The data set names a file twice, so that its rows would count twice. Name each "
                "file once."
            )
        used = [name for name in columns if name != GROUP_SIZE]
        expected = {name: self.frame.schema.field(name).type for name in used}
        for fragment in self.frame.get_fragments():
            own = fragment.physical_schema
            for name, kind in expected.items():
                if name in own.names and own.field(name).type != kind:
                    raise ValueError(
                        f"The column {name!r} is of type {own.field(name).type} in one file and "
                        f"{kind} in the data set. Convert it to one type in all files."
                    )

    def count_units(self, groups: str | None) -> int:
        if groups is not None:
            return len(self._group_sizes(groups))
        rows = self.frame.num_rows if hasattr(self.frame, "num_rows") else self.frame.count_rows()
        return int(rows)

    def batches(self, columns: list[str]) -> Iterator[Any]:
        needed = [name for name in columns if name != GROUP_SIZE]
        if self._sizes is None:
            yield from self._read_batches(needed)
            return
        for batch in self._read_batches([*dict.fromkeys([*needed, self._groups])]):
            yield _append_sizes(batch, self._groups, self._sizes)

    def _read_batches(self, columns: list[str]) -> Iterator[Any]:
        if hasattr(self.frame, "get_fragments"):
            yield from self.frame.to_batches(
                columns=columns, batch_size=_ROWS, batch_readahead=4, fragment_readahead=1,
                fragment_scan_options=_scan_options(self.frame),
            )  # fmt: skip
        else:
            yield from self.frame.select(columns).to_batches(max_chunksize=_ROWS)

    def join_sizes(self, groups: str) -> LocalTable:
        return ArrowTable(self.frame, self._group_sizes(groups), groups)

    def _group_sizes(self, groups: str) -> pd.Series:
        """Return the number of rows of each group, from a scan of its column."""
        sizes = pd.Series(dtype=np.int64)
        for batch in self._read_batches([groups]):
            own = _known_values(batch, groups).value_counts(dropna=True)
            sizes = own if sizes.empty else sizes.add(own, fill_value=0)
        return sizes.astype(np.int64)


def _scan_options(frame: Any) -> Any:
    """Return options of pyarrow without its read-ahead, which would hold a whole file."""
    if getattr(getattr(frame, "format", None), "default_extname", "") != "parquet":
        return None
    import pyarrow.dataset as ds

    return ds.ParquetFragmentScanOptions(pre_buffer=False)


def _append_sizes(batch: Any, groups: str, sizes: pd.Series) -> Any:
    """Return the rows that have a group, with its size."""
    import pyarrow as pa

    known = batch.column(groups).is_valid().to_numpy(zero_copy_only=False)
    found = sizes.index.get_indexer(pd.Index(_known_values(batch, groups)))
    own = np.zeros(batch.num_rows, np.int64)
    own[known] = np.where(found < 0, 0, sizes.to_numpy()[found] if len(sizes) else 0)
    rows = [batch.column(name) for name in batch.schema.names]
    joined = pa.RecordBatch.from_arrays(
        [*rows, pa.array(own)], names=[*batch.schema.names, GROUP_SIZE]
    )
    return joined.filter(pa.array(own > 0))


def _known_values(batch: Any, name: str) -> pd.Series:
    """Return a column without missing values, beside which pandas would round integers."""
    column = batch.column(name).drop_null()
    return (column.dictionary_decode() if "dictionary" in str(column.type) else column).to_pandas()


def _quote_name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


_NUMBER_NAMES = (
    "int", "uint", "float", "double", "halffloat", "decimal", "bool", "tinyint", "smallint",
    "bigint", "hugeint", "utinyint", "usmallint", "ubigint", "uhugeint", "null", '"null"', "long",
    "short", "byte",
)  # fmt: skip
_TEXT_NAMES = ("string", "str", "large_string", "varchar", "utf8", "categorical", "enum")


def name_kind(name: str) -> str:
    """Return the kind of a type by the name that its engine prints."""
    name = name.lower()
    if name.startswith(("interval", "binary", "list", "struct", "map")):
        return "other"
    if name.startswith(_NUMBER_NAMES):
        return "number"
    if name.startswith("dictionary"):
        return name_kind(name.partition("values=")[2])
    return "text" if name.startswith(_TEXT_NAMES) else "other"


def pandas_kind(dtype: Any) -> str:
    if isinstance(dtype, pd.CategoricalDtype):
        return pandas_kind(dtype.categories.dtype)
    if isinstance(dtype, pd.ArrowDtype):
        return name_kind(str(dtype.pyarrow_dtype))
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
        return "number"
    if pd.api.types.is_object_dtype(dtype):
        return "unknown"
    return "text" if isinstance(dtype, pd.StringDtype) else name_kind(str(dtype))
