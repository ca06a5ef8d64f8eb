"""Tables of Dask and Spark: each worker sums its partitions and returns integers.

Sums travel as return values. Accumulators or other side effects would count a retried task twice.
Each part is named by its partition, so a partition that arrives twice counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from .sum_plan import GROUP_SIZE, Integers, SumPlan, add_limbs
from .tables import Table, name_kind, pandas_kind

__all__ = ["DaskTable", "SparkTable"]

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
        together = min(_PARTITIONS_AT_A_TIME, max(_INTEGERS_AT_A_TIME // plan.size, 1))
        for start in range(0, len(tasks), together):
            found = dask.compute(*tasks[start : start + together])
            for number, integers in enumerate(found, start):
                yield f"partition {number}", integers

    def _join_sizes(self, groups: str) -> Any:
        rows = self.frame.dropna(subset=[groups])
        sizes = rows.groupby(groups).size().to_frame(GROUP_SIZE).reset_index()
        return rows.merge(sizes, on=groups, how="inner")


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
