"""Private fits on the engine that holds the table: exact sums of records, computed where they lie.

A frozen plan of public facts turns any batch of records into integers. Engines add the integers of
all batches, and one release reads them.

Files, in reading order:

- ``sum_plan``: SumPlan, which turns a batch into integers of two limbs, plans with a target, and
  SumTotal, the sum of all batches
- ``batch_columns``: columns of pandas, polars and pyarrow batches as numbers or labels
- ``tables``: Table, and the engines that run in this process
- ``cluster_tables``: Dask, Ray and Spark
- ``sources``: records in memory, an engine's table or a finished total, as a fit reads them
- ``sum_estimator``: fit, plan and fit_sums of estimators that need only sums, scan by scan
"""

from .sum_plan import SumTotal
from .tables import Table

__all__ = ["SumTotal", "Table"]
