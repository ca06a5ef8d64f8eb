"""Data sets with public schemas: published files, checked by checksum, and generated tables.

Files, in reading order:

- ``files``: locate, download and verify files; tables with a schema
- ``catalogue``: data sets by name
- ``adult``: fetch_adult
- ``mnist``: fetch_mnist, load_demo
- ``membership_benchmarks``: Location-30, Purchase-100, Texas-100
- ``lookalikes``: make_adult_like and other generated tables
- ``grouped``: make_grouped_table
- ``parquet``: open_parquet
"""

from .adult import fetch_adult
from .grouped import make_grouped_table
from .lookalikes import make_adult_like, make_location_like, make_purchase_like, make_texas_like
from .membership_benchmarks import fetch_location30, fetch_purchase100, fetch_texas100
from .mnist import fetch_mnist, load_demo
from .parquet import open_parquet

__all__ = [
    "fetch_adult",
    "fetch_location30",
    "fetch_mnist",
    "fetch_purchase100",
    "fetch_texas100",
    "load_demo",
    "make_adult_like",
    "make_grouped_table",
    "make_location_like",
    "make_purchase_like",
    "make_texas_like",
    "open_parquet",
]
