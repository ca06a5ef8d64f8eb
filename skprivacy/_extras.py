"""Optional libraries: the extra that installs each, and progress bars that work without tqdm."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["name_missing_extra", "progress_bar"]

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
        raise ImportError(_explain_missing(library), name=library) from error


def _explain_missing(library: str) -> str:
    extra = EXTRAS[library]
    advice = f"{library} is not installed. Run pip install 'skprivacy[{extra}]'."
    return advice + _CPU_BUILD * (extra == "torch")


def progress_bar(items: Iterable[Any] | None = None, *, shown: object, **options: Any) -> Any:
    """Return tqdm's bar over ``items`` if ``shown``, and a silent one otherwise.

    Without tqdm the bar is silent and a warning names the extra: the work may have been charged.
    """
    if shown:
        try:
            from tqdm.auto import tqdm

            return tqdm(items, **options)
        except ModuleNotFoundError:
            warnings.warn(f"No progress is shown: {_explain_missing('tqdm')}", stacklevel=3)
    return _SilentBar(() if items is None else items)


class _SilentBar:
    """The part of tqdm's interface that the package uses, without output."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __enter__(self) -> _SilentBar:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self) -> None:
        """Count one step."""
