"""Preprocessing that costs no privacy, or states its privacy cost.

Files, in reading order:

- ``cell_values``: single values as numbers or category keys
- ``confirmation``: facts read off data, which a person compares with a codebook
- ``columns``: Column, BoundedColumn, CategoricalColumn, HashedColumn
- ``dates``: DateColumn
- ``crosses``: one-hot features of pairs of columns
- ``inferred_facts``: facts read off data, and signs that a column identifies people
- ``schema``: Schema
- ``schema_format``: the JSON format of Schema and its constraints
- ``schema_check``: clipped, unknown and missing values of a table under a schema
- ``schema_draft``: draft_schema
- ``transformer``: SchemaTransformer, in memory or batch by batch in an engine
- ``pipeline``: make_private_pipeline, bins by rule
- ``local_perturbation``: LocalPerturbation
- ``constraints/``: rules between columns, which a schema may state
- ``statistics/``: private releases of numbers
"""

from .columns import BoundedColumn, CategoricalColumn, HashedColumn
from .constraints import EqualColumns, ImpossibleValues, MappedColumn, OrderedColumns, SummedColumns
from .dates import DateColumn
from .local_perturbation import LocalPerturbation
from .pipeline import make_private_pipeline
from .schema import Schema
from .statistics.counts import private_count, private_histogram
from .statistics.moments import private_mean, private_sum, private_variance
from .statistics.parquet_summary import private_summary
from .statistics.quantiles import private_group_size, private_quantile
from .statistics.standard_scaler import PrivateStandardScaler
from .transformer import SchemaTransformer

__all__ = [
    "BoundedColumn",
    "CategoricalColumn",
    "DateColumn",
    "EqualColumns",
    "HashedColumn",
    "ImpossibleValues",
    "LocalPerturbation",
    "MappedColumn",
    "OrderedColumns",
    "PrivateStandardScaler",
    "Schema",
    "SchemaTransformer",
    "SummedColumns",
    "make_private_pipeline",
    "private_count",
    "private_group_size",
    "private_histogram",
    "private_mean",
    "private_quantile",
    "private_sum",
    "private_summary",
    "private_variance",
]
