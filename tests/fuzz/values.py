"""Values that stand where numbers, names, columns or records are expected."""

import datetime
import decimal
import fractions
import inspect
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from scipy import sparse

from .containers import COLUMNS, LABELS, TABLES, with_column

__all__ = ["drawn_arguments", "odd_arrays", "odd_values", "records"]

_NUMBERS = [
    0, 1, -1, 2, 7, 10**30, -(10**30), 1 << 63, True, False,
    0.0, -0.0, 0.5, 1.5, -2.5, 1e-16, 1e16, 1e-300, 1e300, 5e-324,
    float("nan"), float("inf"), float("-inf"),
    np.float32(0.5), np.float64("nan"), np.int64(3), np.int8(-1), np.uint8(2), np.bool_(True),
    decimal.Decimal("0.5"), fractions.Fraction(1, 3), 1 + 2j,
]  # fmt: skip
_OTHERS: list[Any] = [
    None, "", "abc", "1", "nan", "a/b", "\x1b[31m", "\0", b"x",
    [], [1], [0.0, 1.0], (0, 1), (1, 0), ((0, 0), (1, 1)), [[1], [2, 3]], [None], ["a", "b"],
    {}, {"a": 1}, {1: "a"}, set(), range(3), object, len, Ellipsis, NotImplemented,
    np.array(1.0), np.array([1.0, np.nan]), np.array([]), np.zeros((2, 2)), np.array(["a", None]),
    np.datetime64("2020-01-01"), np.timedelta64(1, "D"), datetime.date(2020, 1, 1),
    pd.NaT, pd.NA, pd.Series([1, 2]), pd.DataFrame({"a": [1]}), np.ma.masked,
]  # fmt: skip


_TABLES = (np.ndarray, pd.DataFrame, pd.Series)


def odd_values() -> st.SearchStrategy[Any]:
    """Draw anything that somebody may pass by mistake."""
    return st.one_of(
        st.sampled_from(_NUMBERS),
        st.sampled_from(_OTHERS),
        st.floats(),
        st.integers(-3, 40),
        st.text(max_size=4),
    )


# Not drawn: what would be written to or fetched, as asked, and what somebody else's code raises.
_NO_TEXT = {"path", "directory", "data_home"}
_NO_FUNCTION = {"bound", "scoring", "metric", "weak", "strong", "augment"}
_FIXED = {"download_if_missing", "ax", "axes"}


def types_of(*documented: Any) -> dict[str, st.SearchStrategy[Any]]:
    """Return odd values for parameters by what classes and functions say of their types.

    A parameter that takes arrays gets odd arrays. One with an interval or with words gets, besides
    anything else, the ends of the interval and what is next to them, or almost a word.
    """
    found = {}
    for thing in documented:
        for names, text in re.findall(r"^(\w[\w, ]*) : (.+)$", inspect.getdoc(thing) or "", re.M):
            if re.search("array|DataFrame|Series", text):
                found.update(dict.fromkeys(names.split(", "), odd_arrays()))
        for name, kinds in getattr(thing, "_parameter_constraints", {}).items():
            if borders := [value for kind in kinds for value in _borders(kind)]:
                found[name] = st.one_of(st.sampled_from(borders), odd_values())
    return found


def _borders(kind: Any) -> Iterator[Any]:
    for end in (getattr(kind, "left", None), getattr(kind, "right", None)):
        if isinstance(end, int | float) and abs(end) < 100:  # what takes no time
            yield from (end, -end, float(end), np.nextafter(end, -9), np.nextafter(end, 999))
    for word in sorted(map(str, getattr(kind, "options", ()))):
        yield from (word.upper(), f"{word} ", word.encode())


@st.composite
def drawn_arguments(
    draw: st.DrawFn, valid: dict[str, Any], types: Mapping[str, st.SearchStrategy[Any]] = {}
) -> dict[str, Any]:
    """Draw the arguments of a call, of which up to two are odd, or X and y are together."""
    given = dict(valid)
    choices = sorted(set(valid) - _FIXED)
    if not choices:
        return given
    how_many = draw(st.integers(0, 2))  # of the first example none
    if not how_many:
        return given
    rows = isinstance(valid.get("X"), np.ndarray) and isinstance(valid.get("y"), np.ndarray)
    if rows and valid["X"].ndim == 2 and draw(st.booleans()):
        given["X"], given["y"] = draw(records(valid["X"], valid["y"]))
        choices = [name for name in choices if name not in ("X", "y")]
        names = draw(st.lists(st.sampled_from(choices), max_size=1)) if choices else []
    else:
        draws = st.lists(st.sampled_from(choices), min_size=1, max_size=how_many, unique=True)
        names = draw(draws)
    for name in names:
        of_type = odd_arrays() if isinstance(valid[name], _TABLES) else odd_values()
        value = draw(types.get(name, of_type))
        text = name in _NO_TEXT and isinstance(value, str | bytes)
        function = name in _NO_FUNCTION and callable(value)
        given[name] = valid[name] if text or function else value
    return given


def odd_arrays() -> st.SearchStrategy[Any]:
    """Draw arrays, and what may be taken for one, of any type and shape."""
    kept = st.sampled_from(sorted(TABLES)).map(lambda how: TABLES[how](np.zeros((20, 3))))
    return st.one_of(_arrays(), odd_values(), kept)


@st.composite
def _arrays(draw: st.DrawFn) -> Any:
    shape = draw(st.sampled_from([(), (0,), (1,), (3,), (20,), (2, 3), (20, 0), (2, 2, 2)]))
    kind = draw(
        st.sampled_from(["f8", "f4", "f2", "i8", "u8", "i1", "?", "c16", "O", "U3", "M8[D]"])
    )
    array = np.zeros(shape, kind)
    for _ in range(draw(st.integers(0, 2)) if array.size else 0):
        value = draw(st.sampled_from(_NUMBERS + _OTHERS[:10]))
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                array.flat[draw(st.integers(0, array.size - 1))] = value
        except (TypeError, ValueError, OverflowError):
            continue
    return np.ma.array(array, mask=draw(st.booleans())) if draw(st.integers(0, 9)) == 0 else array


@st.composite
def records(draw: st.DrawFn, X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """Draw X and y that are almost those given."""
    X, y = X.copy(), y.copy()
    how = draw(st.sampled_from(sorted(_SPOILT)))
    return _SPOILT[how](X, y, draw)


def _holding(X: np.ndarray, y: np.ndarray, draw: st.DrawFn) -> tuple[Any, Any]:
    X = X.astype(object)
    X[draw(st.integers(0, len(X) - 1)), 0] = draw(odd_values())
    return X, y


def _labelled(X: np.ndarray, y: np.ndarray, draw: st.DrawFn) -> tuple[Any, Any]:
    y = y.astype(object)
    try:
        y[draw(st.integers(0, len(y) - 1))] = draw(odd_values())
    except ValueError:  # a sequence that numpy would spread
        y[0] = None
    return X, y


def _with_number(X: np.ndarray, y: np.ndarray, draw: st.DrawFn) -> tuple[Any, Any]:
    X = X.astype(np.float64)
    X[:, draw(st.integers(0, X.shape[1] - 1))] = draw(
        st.sampled_from([np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-300, 5e-324])
    )
    return X, y


def _kept_otherwise(X: np.ndarray, y: np.ndarray, draw: st.DrawFn) -> tuple[Any, Any]:
    return TABLES[draw(st.sampled_from(sorted(TABLES)))](X), y


def _column_kept_otherwise(X: np.ndarray, y: np.ndarray, draw: st.DrawFn) -> tuple[Any, Any]:
    return with_column(X, COLUMNS[draw(st.sampled_from(sorted(COLUMNS)))](len(X))), y


def _labels_kept_otherwise(X: np.ndarray, y: np.ndarray, draw: st.DrawFn) -> tuple[Any, Any]:
    return X, LABELS[draw(st.sampled_from(sorted(LABELS)))](y)


def _table(X: np.ndarray, y: np.ndarray, draw: st.DrawFn) -> tuple[Any, Any]:
    names = draw(st.sampled_from([list("abcdef"), list("aabbcc"), range(6), [None] * 6]))
    index = draw(st.sampled_from([np.arange(len(y)), np.zeros(len(y), int)]))
    names = list(names)[: X.shape[1]] if X.shape[1] <= 6 else None
    return pd.DataFrame(X, columns=names), pd.Series(y, index=index)


_SPOILT = {
    "as they are": lambda X, y, draw: (X, y),
    "a cell": _holding,
    "a label": _labelled,
    "a column": _with_number,
    "a target": lambda X, y, draw: (X, draw(odd_arrays())),
    "features": lambda X, y, draw: (draw(odd_arrays()), y),
    "fewer": lambda X, y, draw: (X[: draw(st.integers(0, 3))], y[: draw(st.integers(0, 3))]),
    "flat": lambda X, y, draw: (X[:, 0], y),
    "one label": lambda X, y, draw: (X, np.zeros_like(y)),
    "columns of labels": lambda X, y, draw: (X, np.column_stack([y, y])),
    "sparse": lambda X, y, draw: (sparse.csr_matrix(X), y),
    "masked": lambda X, y, draw: (np.ma.array(X, mask=X.mean() < X), y),
    "masked labels": lambda X, y, draw: (X, np.ma.array(y, mask=np.arange(len(y)) % 2)),
    "a table": _table,
    "dates": lambda X, y, draw: (X, pd.date_range("2020", periods=len(X))),
    "lists": lambda X, y, draw: (X.tolist(), y.tolist()),
    "half floats": lambda X, y, draw: (X.astype(np.float16), y.astype(np.int8)),
    "complex": lambda X, y, draw: (X + 1j, y),
    "cube": lambda X, y, draw: (X[:, :, None], y),
    "kept otherwise": _kept_otherwise,
    "a column kept otherwise": _column_kept_otherwise,
    "labels kept otherwise": _labels_kept_otherwise,
}
