"""Preprocessing that costs no privacy, or states its privacy cost."""

from ..defences.randomized_smoothing import SmoothedClassifier
from .columns import Bounded, Categories, Hashed
from .dates import Dates
from .local_perturbation import LocalPerturbation
from .parquet_summary import Summary, private_summary
from .schema import Schema
from .schema_check import ColumnCheck, RowsPerPerson, SchemaCheck
from .schema_draft import SchemaDraft, draft_schema
from .standard_scaler import PrivateStandardScaler
from .statistics import (
    private_count,
    private_group_size,
    private_histogram,
    private_mean,
    private_quantile,
    private_sum,
    private_variance,
)
from .transformer import SchemaTransformer, make_private_pipeline

__all__ = [
    "Bounded",
    "Categories",
    "ColumnCheck",
    "Dates",
    "Hashed",
    "LocalPerturbation",
    "PrivateStandardScaler",
    "RowsPerPerson",
    "Schema",
    "SchemaCheck",
    "SchemaDraft",
    "SchemaTransformer",
    "SmoothedClassifier",
    "Summary",
    "draft_schema",
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
