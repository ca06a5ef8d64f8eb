"""Private fits on the engine that holds the table: exact sums of records, computed where they lie.

A frozen plan of public facts turns any batch of records into integers. Engines add the integers of
all batches, and one release reads them.

Files, in reading order:

- ``sum_plan``: SumPlan, which turns a batch into integers of two limbs
- ``batch_columns``: columns of pandas, polars and pyarrow batches as numbers or labels
- ``sum_total``: SumTotal, the sum of named parts
- ``tables``: Table, and the engines that run in this process
- ``cluster_tables``: Dask, Ray and Spark
- ``engines``: open_table, which recognises an engine's table
- ``targets``: targets of a batch, encoded by public facts
- ``sources``: records in memory, a table or a finished total, as a fit reads them
- ``sum_estimator``: fit, plan and fit_sums of estimators that need only sums, scan by scan
"""

from .engines import open_table
from .sum_estimator import SumEstimator
from .sum_plan import SumPlan
from .sum_total import SumTotal
from .tables import Table

__all__ = ["SumEstimator", "SumPlan", "SumTotal", "Table", "open_table"]
