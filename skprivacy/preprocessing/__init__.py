"""Preprocessing that costs no privacy, or states its privacy cost."""

from .checking import ColumnCheck, RowsPerPerson, SchemaCheck
from .columns import Bounded, Categories
from .counts import private_count, private_histogram
from .dates import Dates
from .drafting import SchemaDraft, draft_schema
from .group_size import private_group_size
from .hashed import Hashed
from .local import LocalPerturbation
from .pipeline import make_private_pipeline
from .scaler import PrivateStandardScaler
from .schema import Schema
from .smoothing import SmoothedClassifier
from .statistics import private_mean, private_quantile, private_sum, private_variance
from .summary import Summary, private_summary
from .transformer import SchemaTransformer

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
