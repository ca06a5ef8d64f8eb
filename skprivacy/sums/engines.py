"""Recognition of an engine's table by the module of its type; no engine is imported."""

from __future__ import annotations

from typing import Any

from .._validation import library_of
from .cluster_tables import DaskTable, RayTable, SparkTable
from .tables import ArrowTable, DuckDBTable, PandasTable, PolarsTable, Table

_IN_MEMORY = {("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table")}
_ENGINES: dict[tuple[str, str], type[Table]] = {
    ("pandas", "DataFrame"): PandasTable,
    ("polars", "DataFrame"): PolarsTable,
    ("polars", "LazyFrame"): PolarsTable,
    ("pyarrow", "Table"): ArrowTable,
    ("pyarrow", "FileSystemDataset"): ArrowTable,
    ("pyarrow", "UnionDataset"): ArrowTable,
    ("pyarrow", "InMemoryDataset"): ArrowTable,
    ("dask", "DataFrame"): DaskTable,
    ("ray", "Dataset"): RayTable,
    ("ray", "MaterializedDataset"): RayTable,
    ("pyspark", "DataFrame"): SparkTable,
    ("duckdb", "DuckDBPyRelation"): DuckDBTable,
    ("_duckdb", "DuckDBPyRelation"): DuckDBTable,
}


def _engine_of(frame: Any) -> tuple[str, str]:
    return library_of(frame), type(frame).__name__


def is_table(frame: Any, *columns: Any) -> bool:
    """Return whether a fit reads a table by the names of its columns.

    Tables in memory are read so if ``columns``, the target or the groups, name one.
    """
    engine = _engine_of(frame)
    if isinstance(frame, Table):
        return True
    if engine in _IN_MEMORY:
        return any(isinstance(column, str) for column in columns)
    return engine in _ENGINES


def open_table(frame: Any) -> Table:
    """Return the adapter of an engine's table.

    Parameters
    ----------
    frame : object
        A pandas, polars, Dask or Spark DataFrame, a polars LazyFrame, a pyarrow Table or data set,
        a DuckDB relation, or a Dataset of Ray. A :class:`Table` is returned as it is.

    Returns
    -------
    Table
        Its adapter.

    Raises
    ------
    TypeError
        If the engine is unknown.
    """
    if isinstance(frame, Table):
        return frame
    engine = _engine_of(frame)
    if engine in _ENGINES:
        return _ENGINES[engine](frame)
    raise TypeError(
        f"X is a {type(frame).__name__} of {library_of(frame)!r}, which is not a known engine. "
        "Compute plan.partial(batch) of each part, add the parts to a SumTotal, and pass it to "
        "fit_sums."
    )
