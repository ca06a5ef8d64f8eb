"""Facts read off data, which leaks them: bounds, categories, and signs that a column identifies
people.

For drafts and checks by the data holder only. A private fit must not use them: they depend on every
record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._input_data import as_frame, check_column_names, check_one_type
from .._validation import as_array, raise_alone
from .cell_values import category_key, column_numbers
from .columns import BoundedColumn, CategoricalColumn, Column

NEARLY_UNIQUE = 0.9  # distinct values per row
_MIN_UNIQUE = 50  # distinct values; in fewer rows, even ages may all differ
_MAX_COUNT_OVER_MEAN = 10  # rows of a value over the mean: an identifier has no dominant value
_MIN_BLOCKS = 20  # values whose rows are adjacent
_MANY_VALUES = 200  # distinct values: more than an age or a blood pressure takes
_SMALL_NUMBER = 10_000  # whole numbers below may be a measurement, such as a day or a minute
_DIGITS = 7  # of a long code, if all numbers have as many
_DATE = r"(?:\d\d?|\d{4})([-./])\d\d?\1(?:\d\d?|\d{4})(?:\D|$)"  # how text with a date begins
_MAX_UNEVENNESS = 0.15  # Kolmogorov distance from a uniform distribution; for incomes it is larger


class IdentifierEvidence(NamedTuple):
    """Evidence that a column identifies people; ``is_strong`` if an ordinary column is unlikely."""

    words: str
    is_strong: bool
    n_values: int
    n_rows: int

    @property
    def has_several_rows(self) -> bool:
        """Whether values typically have several rows."""
        return self.n_values < NEARLY_UNIQUE * self.n_rows


def identifier_evidence(column: pd.Series) -> IdentifierEvidence | None:
    """Return evidence that values are identifiers; None for dates, fractions and bools."""
    try:
        if column.nunique() < _MIN_BLOCKS:
            return None
    except TypeError:  # values without a hash, such as lists
        return None
    values, is_number = _identifying_values(column)
    codes, names = pd.factorize(values)
    n_rows, n_values = len(codes), len(names)
    if n_values < _MIN_BLOCKS:
        return None
    if n_values >= NEARLY_UNIQUE * n_rows:
        if is_number and n_values < _MIN_UNIQUE:
            return None
        words = f"{n_values} different values in {n_rows} rows"
        strong = not is_number or _looks_assigned(names)
        return IdentifierEvidence(words, strong, n_values, n_rows)
    largest = np.bincount(codes).max()
    if largest > _MAX_COUNT_OVER_MEAN * n_rows / n_values:
        return None
    words = f"{n_values} different values with {n_rows / n_values:.1f} rows each on average"
    is_small = is_number and max(names) < _SMALL_NUMBER
    if np.count_nonzero(np.diff(codes)) + 1 == n_values:
        words += ", all in adjacent rows"
        return IdentifierEvidence(words, n_values > _MANY_VALUES and not is_small, n_values, n_rows)
    if n_values > _MANY_VALUES and (_looks_assigned(names) if is_number else _have_digits(names)):
        strong = is_number and not is_small  # texts may be postcodes
        return IdentifierEvidence(words, strong, n_values, n_rows)
    return None


def _identifying_values(column: pd.Series) -> tuple[pd.Series, bool]:
    """Return integers or texts, and whether they are numbers; an empty series for other values."""
    kinds, nothing = pd.api.types, pd.Series([], dtype=object)
    if kinds.is_bool_dtype(column) or kinds.is_datetime64_any_dtype(column):
        return nothing, False
    if kinds.is_numeric_dtype(column) and not kinds.is_complex_dtype(column):
        numbers = column_numbers(column)
        numbers = numbers[np.isfinite(numbers)]
        return (pd.Series(numbers) if (np.mod(numbers, 1) == 0).all() else nothing), True
    try:
        texts = column.dropna().astype(object).map(category_key)
    except (TypeError, ValueError):
        return nothing, False
    if texts.str.match(_DATE).all():
        return nothing, False
    parsed = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)
    has_fractions = np.isfinite(parsed).all() and (np.mod(parsed, 1) != 0).any()
    return (nothing if has_fractions else texts[texts != ""]), False


def _looks_assigned(names: pd.Index) -> bool:
    """Return True for numbers spread evenly over their range, or codes of equal length."""
    numbers: NDArray[np.float64] = np.sort(np.asarray(names, dtype=np.float64))
    low, high = numbers[0], numbers[-1]
    if low >= 10 ** (_DIGITS - 1) and np.floor(np.log10(low)) == np.floor(np.log10(high)):
        return True
    expected = np.linspace(0.0, 1.0, len(numbers))
    return bool(np.abs((numbers - low) / (high - low) - expected).max() < _MAX_UNEVENNESS)


def _have_digits(names: pd.Index) -> bool:
    return all(any(letter.isdigit() for letter in name) for name in names[:1000])


_MAX_CATEGORIES = 1000
_MAX_CLASSES = 30  # whole-number targets with more values are numeric


def inferred_facts(X: Any, y: Any) -> dict[str, Any]:
    """Return the arguments of a Schema for a table and its target."""
    check_column_names(X)
    X = as_frame(X)
    rows = X if isinstance(X, pd.DataFrame) else as_array("X", X)
    if rows.ndim != 2:
        raise ValueError(f"X has {rows.ndim} dimensions; expected 2, records by columns.")
    frame = pd.DataFrame(rows)
    columns = {
        _column_name(label): _inferred_column(_column_name(label), frame[label])
        for label in frame.columns
    }
    name = getattr(y, "name", None)
    return {
        "columns": columns,
        "target_column": name if isinstance(name, str) and name not in columns else None,
        **({} if y is None else target_facts(as_array("y", y))),
    }


def target_facts(y: np.ndarray) -> dict[str, Any]:
    """Return the classes of a target, or the bounds of a numeric target."""
    if y.ndim != 1:
        raise ValueError(f"Schema.infer: y has shape {y.shape}; expected a value for each record.")
    check_one_type("y", y)
    values = np.unique(y)
    if values.dtype.kind in "iuf" and len(values) > 1:
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ValueError(
                "Schema.infer: y holds missing or infinite values. Drop these records."
            )
        if len(values) > _MAX_CLASSES or (values != np.floor(values)).any():
            return {"target_bounds": (float(values[0]), float(values[-1]))}
    return {"classes": values}


def _column_name(label: Any) -> str:
    """Return the name of a column, with an x before labels that are not text."""
    return label if isinstance(label, str) else f"x{label}"


def _inferred_column(name: str, column: pd.Series) -> Column:
    """Return the bounds or the categories of a column."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        numbers_ = column.to_numpy(dtype=np.float64, na_value=np.nan)
        finite = numbers_[np.isfinite(numbers_)]
        if not len(finite):
            raise ValueError(
                f"Schema.infer: column {name!r} has no finite value. Drop it, or describe it in a "
                "Schema."
            )
        return BoundedColumn(finite.min(), finite.max(), inferred=True)
    values = pd.unique(column.dropna())
    if not len(values):
        raise ValueError(
            f"Schema.infer: column {name!r} has no value. Drop it, or describe it in a Schema."
        )
    if len(values) > _MAX_CATEGORIES:
        raise ValueError(
            f"Schema.infer: column {name!r} has {len(values)} distinct values, more than "
            f"{_MAX_CATEGORIES}. Drop it, or describe it in a Schema."
        )
    try:
        return CategoricalColumn(tuple(sorted(values, key=category_key)), inferred=True)
    except (TypeError, ValueError) as error:
        raise_alone(ValueError(f"Schema.infer: column {name!r}: {error}"))
