"""Public-domain preprocessing: what may be done to data without looking at it."""

from .schema import Bounded, Categories, Schema
from .transformer import SchemaTransformer

__all__ = ["Bounded", "Categories", "Schema", "SchemaTransformer"]
