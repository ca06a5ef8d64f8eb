"""Data sets with public schemas: published files, checked by checksum, and generated tables.

Files, in reading order:

- ``files``: locate, download and verify files; tables with a schema
- ``catalogue``: data sets by name
- ``adult``: fetch_adult, make_adult_like
- ``mnist``: fetch_mnist, load_demo
- ``membership_benchmarks``: Location-30, Purchase-100, Texas-100, published or generated
- ``grouped``: make_grouped_table
- ``parquet``: open_parquet
"""

from .adult import fetch_adult, make_adult_like
from .grouped import make_grouped_table
from .membership_benchmarks import fetch_membership_benchmark, make_membership_benchmark
from .mnist import fetch_mnist, load_demo
from .parquet import open_parquet

__all__ = [
    "fetch_adult",
    "fetch_membership_benchmark",
    "fetch_mnist",
    "load_demo",
    "make_adult_like",
    "make_grouped_table",
    "make_membership_benchmark",
    "open_parquet",
]
