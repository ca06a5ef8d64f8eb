"""Public-domain preprocessing: what may be done to data without looking at it."""

from .columns import Bounded, Categories
from .schema import Schema
from .transformer import SchemaTransformer

__all__ = ["Bounded", "Categories", "Schema", "SchemaTransformer"]
