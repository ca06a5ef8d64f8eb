"""Memory-mapped arrays of Parquet files that are larger than memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import Bunch

from .._extras import name_missing_extra
from .._files import as_path
from .._validation import as_paths, flag, sequence

_ROWS_PER_READ = 1 << 14  # per read
_BUFFER_BYTES = 1 << 16  # bytes read ahead per column
_NUMERIC_KINDS = "iufb"

Path = str | PathLike[str]


def open_parquet(
    path: Path | Sequence[Path],
    *,
    target_column: str | list[str] | None = None,
    columns: list[str] | None = None,
    transformer: Any = None,
    directory: Path | None = None,
    return_X_y: bool = False,
) -> Any:
    """Read Parquet files of any size into a memory-mapped array of single precision.

    The files are read once, some thousand rows at a time, into a temporary file. Private networks
    read the rows of each step from it. Parquet itself has no fast access to single rows, because
    each access decodes a whole page.

    Parameters
    ----------
    path : str, path-like or sequence of these
        The file, or files with the same columns to concatenate.
    target_column : str or list of str, default=None
        The column of the target, or the columns of several labels. The target stays in memory.
    columns : list of str, default=None
        The columns to use as features, in this order; all but the target by default.
    transformer : object, default=None
        Its ``transform`` turns each part of the table, a DataFrame, into numbers; for example, a
        fitted :class:`skprivacy.preprocessing.SchemaTransformer`. It must treat each row
        independently and must not have been fitted on these records.
    directory : str or path-like, default=None
        Folder for the temporary file. The default is the system's temporary folder, which may be
        held in memory.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` only.

    Returns
    -------
    Bunch
        ``data`` (memory-mapped array of shape (n_samples, n_features), single precision, read
        only), ``target`` (array or None), ``feature_names``.

    Raises
    ------
    ImportError
        If pyarrow is not installed.
    ValueError
        If a file is damaged or empty, or a column is missing or not numeric.

    Notes
    -----
    **Guarantees.** The temporary file holds private records, unencrypted. It has no name, so nobody
    else can open it. The system frees its disk space when ``data`` is no longer used or the process
    ends, also if it is killed. On Windows the file has a name until this moment.

    **Edge cases.** A missing number becomes NaN; a network ignores such a record. Numbers beyond
    single precision become infinite. While files are read, memory holds some pages of each column:
    about 3 MB per column, for any number of rows. Passing ``data`` to another process, as joblib
    does, copies it into memory. Let each process open the file itself.

    Examples
    --------
    >>> from skprivacy.datasets import open_parquet
    >>> from skprivacy.neural_network import DPSGDClassifier
    >>> file = "claims.parquet"
    >>> X, y = open_parquet(file, target_column="fraud", return_X_y=True)  # doctest: +SKIP
    >>> DPSGDClassifier(classes=[0, 1], delta=1e-8).fit(X, y)  # doctest: +SKIP
    """
    flag("return_X_y", return_X_y)
    files = [_open_file(file) for file in as_paths("path", path)]
    targets = _check_names("target_column", () if target_column is None else target_column)
    names = _feature_columns(files, targets, columns)
    labels: list[NDArray] = []
    feature_names = names
    rows = width = 0
    with tempfile.TemporaryFile(
        dir=None if directory is None else as_path("directory", directory)
    ) as cache:
        for frame in _read_frames(files, [*names, *targets]):
            if targets:
                labels.append(frame[targets].to_numpy())
            numbers, feature_names = _to_numbers(frame[names], transformer)
            width = _write_rows(cache, numbers, width)
            rows += len(numbers)
        if rows == 0 or width == 0:
            raise ValueError(
                f"path={path!r} has {rows} rows and {width} features; expected at least one of "
                "each. Check the file and the parameter columns."
            )
        cache.flush()
        # The mapping keeps the nameless file alive for as long as it is used.
        data = np.memmap(cache, np.float32, "r", shape=(rows, width))
    y = np.concatenate(labels) if labels else None
    if y is not None and isinstance(target_column, str):
        y = y[:, 0]
    if return_X_y:
        return data, y
    return Bunch(data=data, target=y, feature_names=feature_names)


def _check_names(parameter: str, names: Any) -> list[str]:
    found = [names] if isinstance(names, str) else list(sequence(parameter, names))
    if not all(isinstance(name, str) for name in found):
        raise TypeError(f"{parameter}={names!r} must be names of columns.")
    return found


def _open_file(path: str) -> Any:
    with name_missing_extra():
        from pyarrow import ArrowInvalid, parquet
    try:
        return parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    except FileNotFoundError as error:  # it lacks the file name
        raise FileNotFoundError(error.errno, os.strerror(error.errno or 0), path) from error
    except ArrowInvalid as error:
        raise ValueError(
            f"path={path!r} is damaged or not a Parquet file ({error}). Copy or export it again."
        ) from error


def _feature_columns(files: list[Any], targets: list[str], columns: list[str] | None) -> list[str]:
    if not files:
        raise ValueError("path=[] must name at least one file.")
    found = files[0].schema_arrow.names
    names = (
        [c for c in found if c not in targets]
        if columns is None
        else _check_names("columns", columns)
    )
    for file in files:
        missing = {*names, *targets} - set(file.schema_arrow.names)
        if missing:
            raise ValueError(
                f"The columns {sorted(missing)!r} are not in the file; expected some of "
                f"{file.schema_arrow.names!r}. Correct columns or target_column."
            )
    if both := set(names) & set(targets):
        raise ValueError(
            f"columns={columns!r} also holds the target {sorted(both)!r}. Remove it from columns."
        )
    return names


def _read_frames(files: list[Any], names: list[str]) -> Iterator[pd.DataFrame]:
    for file in files:
        for batch in file.iter_batches(batch_size=_ROWS_PER_READ, columns=names, use_threads=False):
            yield batch.to_pandas()


def _to_numbers(frame: pd.DataFrame, transformer: Any) -> tuple[NDArray[np.float32], list[str]]:
    """Return the rows in single precision, and the names of the columns."""
    names = list(frame.columns)
    numbers: Any = frame
    if transformer is not None:
        if not (hasattr(transformer, "fit") and hasattr(transformer, "transform")):
            raise TypeError(f"transformer={transformer!r} must be a fitted transformer, or None.")
        numbers = transformer.transform(frame)
        if hasattr(transformer, "get_feature_names_out"):
            names = list(transformer.get_feature_names_out())
    if isinstance(numbers, pd.DataFrame):
        not_numeric = [c for c, kind in numbers.dtypes.items() if kind.kind not in _NUMERIC_KINDS]
        if not_numeric:
            raise ValueError(
                f"The columns {not_numeric!r} are not numeric. Leave them out of columns, or pass "
                "transformer=..., for example a SchemaTransformer, to turn them into numbers."
            )
        numbers = numbers.to_numpy(dtype=np.float64)
    with np.errstate(over="ignore"):  # numbers beyond single precision become infinite
        return np.ascontiguousarray(numbers, dtype=np.float64).astype(np.float32), names


def _write_rows(cache: IO[bytes], numbers: NDArray[np.float32], width: int) -> int:
    if width and numbers.shape[1] != width:
        raise ValueError(
            f"transformer returned {numbers.shape[1]} columns for one part of the table and "
            f"{width} for another. Use a transformer that treats each row independently."
        )
    cache.write(numbers.data)
    return int(numbers.shape[1])
