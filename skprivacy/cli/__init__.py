"""The command line ``skprivacy``. Start at ``main``; each command has a module of its name.

Files, in reading order:

- ``main``: Parser, dispatch, exit codes
- ``console``: Messages, `UserError`, output checks
- ``config_file``: TOML options
- ``registry``: Models and attacks by name, without importing them
- ``data``: DATA and public records into records with a schema
- ``tables``: CSV, Parquet, Arrow, Excel
- ``release``: Budget, model file, certificate
- ``reports``: Page, JSON or table by suffix
- ``private_pipeline``: Model of the commands: public preprocessing by the schema, and a private
  estimator
- ``commands/``: The commands of the command line, one file each
"""

from .main import main

__all__ = ["main"]
