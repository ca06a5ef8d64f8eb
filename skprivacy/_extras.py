"""Optional libraries, and the extra that installs each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# The extra of pyproject.toml that installs each optional library.
EXTRAS = {
    "torch": "torch",
    "skorch": "torch",
    "matplotlib": "report",
    "jinja2": "report",
    "markupsafe": "report",
    "tqdm": "report",
    "pyarrow": "parquet",
    "openpyxl": "excel",
    "duckdb": "duckdb",
    "psycopg": "postgres",
}
_CPU_BUILD = (
    " For a CPU, install torch itself first, from https://download.pytorch.org/whl/cpu; the "
    "default build brings gigabytes for GPUs."
)


@contextmanager
def name_missing_extra() -> Iterator[None]:
    """Raise an ImportError that names the extra to install if an optional library is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in EXTRAS:
            raise
        raise ImportError(explain_missing(library), name=library) from error


def explain_missing(library: str) -> str:
    """Return the advice to install the extra of a missing library."""
    extra = EXTRAS[library]
    advice = f"{library} is not installed. Run pip install 'skprivacy[{extra}]'."
    return advice + _CPU_BUILD * (extra == "torch")
