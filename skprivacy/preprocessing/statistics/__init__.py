"""Private statistics of tables, each released once: moments, counts, quantiles and summaries.

Files, in reading order:

- ``bounded_moments``: scaled columns, exact sums, additive noise
- ``cell_counts``: exact counts of records in public cells
- ``private_statistics``: private sum, mean, variance, quantile, count, histogram, group size
- ``standard_scaler``: PrivateStandardScaler
- ``parquet_summary``: private_summary
- ``summary_plan``: the exact sums of private_summary
- ``parquet_scan``: the files of private_summary, and the rows of each person, by DuckDB
"""
