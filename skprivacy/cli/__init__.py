"""The command line ``skprivacy``.

Files, in reading order:

- ``main``: parser, dispatch and exit codes
- ``commands/``: one file for each command
- ``console``: messages, errors and argument types
- ``config_file``: options from a TOML file
- ``registry``: models and attacks by name, without importing them
- ``data``: DATA and public records, read into features with a schema, or left in an engine
- ``tables``: CSV, Parquet, Arrow and Excel
- ``private_pipeline``: public preprocessing by the schema, and a private estimator
- ``membership``: the members of a saved model, written by train and read by audit
- ``scoring``: scores by name, and of the constant predictor
- ``release``: model file, certificate and charge to a budget
- ``reports``: page, JSON or table, by the suffix of the file
"""

from .main import main

__all__ = ["main"]
