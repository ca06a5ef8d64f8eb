"""Tables of Dask, Ray and Spark: each worker sums its partitions and returns integers.

Sums travel as return values. Accumulators or other side effects would count a retried task twice.
Each part is named by its partition, so a partition that arrives twice counts once. Ray names no
partitions, and delivers the return value of each task once, however often the task runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from .._environment import one_blas_thread
from .batch_columns import ColumnTypeError
from .sum_plan import GROUP_SIZE, Integers, SumPlan, add_limbs
from .tables import Table, name_kind, pandas_kind

_PARTITIONS_AT_A_TIME = 256  # whose integers the driver holds at once, if they are few
_INTEGERS_AT_A_TIME = 1 << 25


class DaskTable(Table):
    """A DataFrame of Dask."""

    @property
    def names(self) -> list[str]:
        return list(self.frame.columns)

    def kinds(self) -> dict[str, str]:
        return {name: pandas_kind(dtype) for name, dtype in self.frame.dtypes.items()}

    def empty_frame(self) -> pd.DataFrame:
        return self.frame._meta

    def count_units(self, groups: str | None) -> int:
        return int(len(self.frame) if groups is None else self.frame[groups].nunique().compute())

    def sum_parts(self, plan: SumPlan, groups: str | None) -> Iterator[tuple[str, Integers]]:
        import dask

        frame = self.frame if groups is None else self._join_sizes(groups)
        partitions = frame[list(plan.columns)].to_delayed()
        tasks = [dask.delayed(plan.partial)(partition) for partition in partitions]
        most = min(_PARTITIONS_AT_A_TIME, max(_INTEGERS_AT_A_TIME // plan.size, 1))
        for start in range(0, len(tasks), most):
            with one_blas_thread():  # of each thread, if Dask's are in this process
                found = dask.compute(*tasks[start : start + most])
            for number, integers in enumerate(found, start):
                yield f"partition {number}", integers

    def _join_sizes(self, groups: str) -> Any:
        rows = self.frame.dropna(subset=[groups])
        expected = self.kinds()[groups]
        rows = rows.map_partitions(_check_kind, groups, expected, meta=rows._meta)
        sizes = rows.groupby(groups).size().to_frame(GROUP_SIZE).reset_index()
        return rows.merge(sizes, on=groups, how="inner")


def _check_kind(rows: pd.DataFrame, column: str, expected: str) -> pd.DataFrame:
    """Refuse a partition of Dask of another type than its frame: 1 and "1" would be two groups."""
    if len(rows) and pandas_kind(rows[column].dtype) != expected:
        raise ColumnTypeError(
            f"The column {column!r} has values of unlike types in two partitions. Convert it to "
            "one type in all files."
        )
    return rows


class RayTable(Table):
    """A Dataset of Ray, read from files or materialized."""

    @property
    def _schema(self) -> Any:
        """Return the names and types of the columns, known without reading rows."""
        schema = self.frame.schema(fetch_if_missing=False)
        if schema is None:
            raise ValueError(
                "The Dataset's columns are unknown before its rows are computed. Call "
                "materialize() first, so that each read also gives the same rows."
            )
        return schema

    @property
    def names(self) -> list[str]:
        return list(self._schema.names)

    def kinds(self) -> dict[str, str]:
        types = zip(self._schema.names, self._schema.types, strict=True)
        return {name: "unknown" if kind is object else name_kind(str(kind)) for name, kind in types}

    def empty_frame(self) -> pd.DataFrame:
        kinds = self.kinds().items()
        return pd.DataFrame({n: pd.Series(dtype="str" if k == "text" else float) for n, k in kinds})

    def count_units(self, groups: str | None) -> int:
        return int(self.frame.count() if groups is None else self._group_sizes(groups).count())

    def sum_parts(self, plan: SumPlan, groups: str | None) -> Iterator[tuple[str, Integers]]:
        columns = list(plan.columns) or self.names[:1]
        frame = self.frame if groups is None else self._join_sizes(groups, columns)
        sums = frame.select_columns(columns).map_batches(
            _sum_block, fn_args=(plan,), batch_format="pyarrow", batch_size=None
        )
        for number, row in enumerate(sums.iter_rows()):
            yield f"block {number}", np.frombuffer(row["integers"], np.int64).reshape(2, -1)

    def _join_sizes(self, groups: str, columns: list[str]) -> Any:
        needed = [name for name in columns if name != GROUP_SIZE]
        rows = self._known_rows(groups, [*dict.fromkeys([*needed, groups])])
        sizes = self._group_sizes(groups)
        return rows.join(sizes, "inner", _count_ray_partitions(), on=(groups,))

    def _group_sizes(self, groups: str) -> Any:
        from ray.data.aggregate import Count

        rows = self._known_rows(groups, [groups])
        by_group = rows.groupby(groups, num_partitions=_count_ray_partitions())
        return by_group.aggregate(Count(alias_name=GROUP_SIZE))

    def _known_rows(self, groups: str, columns: list[str]) -> Any:
        """Return some columns of the rows that have a group."""
        return self.frame.select_columns(columns).map_batches(
            _drop_missing, fn_args=(groups,), batch_format="pyarrow", batch_size=None
        )


def _count_ray_partitions() -> int:
    """Return the number of partitions of a shuffle, which Ray's settings state."""
    from ray.data import DataContext

    return int(DataContext.get_current().default_hash_shuffle_parallelism)


def _sum_block(rows: Any, plan: SumPlan) -> Any:
    """Return the integers of one block of Ray; a block without rows may lack columns."""
    import pyarrow as pa

    integers = plan.partial(rows) if rows.num_rows else np.zeros((2, plan.size), np.int64)
    return pa.table({"integers": pa.array([integers.tobytes()], pa.large_binary())})


def _drop_missing(rows: Any, column: str) -> Any:
    import pyarrow.compute as pc

    if not rows.num_rows:
        return rows
    return rows.filter(pc.invert(pc.is_null(rows.column(column), nan_is_null=True)))


class SparkTable(Table):
    """A DataFrame of Spark."""

    @property
    def names(self) -> list[str]:
        return list(self.frame.columns)

    def kinds(self) -> dict[str, str]:
        return {field.name: name_kind(field.dataType.simpleString()) for field in self.frame.schema}

    def empty_frame(self) -> pd.DataFrame:
        return self.frame.limit(0).toPandas()

    def count_units(self, groups: str | None) -> int:
        rows = self.frame if groups is None else self.frame.select(groups).dropna().distinct()
        return int(rows.count())

    def sum_parts(self, plan: SumPlan, groups: str | None) -> Iterator[tuple[str, Integers]]:
        frame = self.frame if groups is None else self._join_sizes(groups)
        picked = frame.select(*(f"`{name.replace('`', '``')}`" for name in plan.columns))
        sums = picked.mapInArrow(_partition_sums(plan), "part string, integers binary")
        for row in sums.toLocalIterator():
            yield row["part"], np.frombuffer(row["integers"], np.int64).reshape(2, -1)

    def _join_sizes(self, groups: str) -> Any:
        sizes = self.frame.groupBy(groups).count().withColumnRenamed("count", GROUP_SIZE)
        return self.frame.join(sizes, on=groups, how="inner")  # drops missing groups


def _partition_sums(plan: SumPlan) -> Any:
    """Return the function that sums the batches of one partition of Spark."""

    def sum_batches(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        total = np.zeros((2, plan.size), np.int64)
        for batch in batches:
            total = add_limbs(total, plan.partial(batch))
        name = f"partition {TaskContext.get().partitionId()}"
        yield pa.RecordBatch.from_arrays(
            [pa.array([name]), pa.array([total.tobytes()])], names=["part", "integers"]
        )

    return sum_batches
