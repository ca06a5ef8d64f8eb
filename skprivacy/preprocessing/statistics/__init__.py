"""Private statistics of tables, each released once: moments, counts, quantiles and summaries.

Files, in reading order:

- ``release``: one column or more, a statistic with its sensitivities, and its release
- ``moments``: private sum, mean and variance: scaled columns, exact sums, additive noise
- ``counts``: private count and histogram: exact counts of records in public cells
- ``quantiles``: private quantile and group size
- ``standard_scaler``: PrivateStandardScaler
- ``parquet_summary``: private_summary
- ``parquet_scan``: its exact sums, and the rows of each person, which DuckDB reads
"""
