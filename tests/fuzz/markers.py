"""Marker values in every wrong form, and the search for them in the output of a call.

A marker stands for a private value. No error, warning, note, log record or printed line may
contain one, whatever the form in which the records were passed.
"""

import contextlib
import datetime
import decimal
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import parallel_config
from scipy import sparse

from .containers import objects

__all__ = ["FORMS", "Heard", "hear"]

NUMBER = 73941.5
TEXT = "Zqvx"
DAY = datetime.date(2173, 9, 14)
# A number may be printed as 73941.5, 7.39415e+04 or 73,941; a date with any separators.
_MARKER = re.compile(r"7[.,]?39[.,]?4|zqvx|2173", re.IGNORECASE)


def _n(valid: Any) -> int:
    return len(valid) if np.ndim(valid) else 20


def _shape(valid: Any) -> tuple[int, ...]:
    return np.shape(valid) or (20,)


def _full(valid: Any, value: Any, dtype: Any = None) -> np.ndarray:
    return np.full(_shape(valid), value, dtype=dtype)


def _cell(valid: Any, value: Any) -> np.ndarray:
    """Return the valid values as objects, one of which is another."""
    array = np.array(np.asarray(valid), dtype=object).reshape(_shape(valid))
    place = np.empty((), dtype=object)
    place[()] = value
    array[(0,) * array.ndim] = place
    return array


def _frame(values: Any) -> pd.DataFrame:
    values = np.asarray(values)
    values = values.reshape(len(values), -1)
    return pd.DataFrame(values, columns=[f"x{i}" for i in range(values.shape[1])])


class _Shown:
    """An object whose text is its value."""

    def __repr__(self) -> str:
        return TEXT


def _decimal(valid: Any) -> np.ndarray:
    return _full(valid, decimal.Decimal(str(NUMBER)), object)


# Map from a valid argument to its replacement.
FORMS: dict[str, Callable[[Any], Any]] = {
    "0-D": lambda v: np.array(NUMBER),
    "1-D": lambda v: np.full(_n(v), NUMBER),
    "1-D integers": lambda v: np.full(_n(v), int(NUMBER)),
    "1-D text": lambda v: np.full(_n(v), TEXT),
    "2-D": lambda v: np.full((_n(v), 2), NUMBER),
    "one column": lambda v: np.full((_n(v), 1), NUMBER),
    "3-D": lambda v: np.full((_n(v), 2, 2), NUMBER),
    "same shape": lambda v: _full(v, NUMBER),
    "same shape, integers": lambda v: _full(v, int(NUMBER)),
    "one value": lambda v: _cell(v, NUMBER).astype(float) if _is_numeric(v) else _cell(v, NUMBER),
    "negative": lambda v: _full(v, -NUMBER),
    "complex": lambda v: _full(v, NUMBER * (1 + 1j)),
    "complex, 1-D": lambda v: np.full(_n(v), NUMBER * (1 + 1j)),
    "complex object": lambda v: _cell(v, NUMBER * (1 + 1j)),
    "complex frame": lambda v: _frame(_full(v, NUMBER * (1 + 1j))),
    "text": lambda v: _full(v, TEXT),
    "text object": lambda v: _cell(v, TEXT),
    "text frame": lambda v: _frame(_cell(v, TEXT)),
    "text column": lambda v: _frame(v).assign(x0=pd.array([TEXT] * _n(v), "string")),
    "categories": lambda v: _frame(v).assign(x0=pd.Categorical([TEXT] * _n(v))),
    "bytes": lambda v: _full(v, TEXT.encode()),
    "numeric text": lambda v: _full(v, str(NUMBER)),
    "dict": lambda v: {"a": NUMBER, "b": TEXT},
    "dict of columns": lambda v: {"x0": [NUMBER] * _n(v)},
    "list of dicts": lambda v: [{"a": NUMBER, "b": TEXT}] * _n(v),
    "object array of dicts": lambda v: objects(*[{"a": NUMBER}] * _n(v)),
    "list of sets": lambda v: [{NUMBER}] * _n(v),
    "list of tuples": lambda v: [(NUMBER, TEXT)] * _n(v),
    "ragged": lambda v: [[NUMBER], *[[NUMBER, NUMBER]] * (_n(v) - 1)],
    "deep": lambda v: [[[[NUMBER]]]] * _n(v),
    "flat list": lambda v: [NUMBER] * _n(v),
    "list of text": lambda v: [TEXT] * _n(v),
    "lists": lambda v: _full(v, NUMBER).tolist(),
    "datetime": lambda v: _full(v, np.datetime64(DAY)),
    "date objects": lambda v: _cell(v, DAY),
    "datetime frame": lambda v: _frame(_full(v, np.datetime64(DAY), "M8[ns]")),
    "spans of time": lambda v: _full(v, np.timedelta64(int(NUMBER), "D")),
    "objects": lambda v: _cell(v, _Shown()),
    "sequences": lambda v: _cell(v, [NUMBER]),
    "decimals": _decimal,
    "too long": lambda v: np.full((_n(v) + 1, *_shape(v)[1:]), NUMBER),
    "too short": lambda v: np.full((_n(v) - 1, *_shape(v)[1:]), NUMBER),
    "one record": lambda v: np.full((1, *_shape(v)[1:]), NUMBER),
    "too wide": lambda v: np.full((_n(v), *(k + 1 for k in _shape(v)[1:])), NUMBER),
    "NaN": lambda v: _cell(_full(v, NUMBER), np.nan).astype(float),
    "None": lambda v: _cell(_full(v, NUMBER), None),
    "pandas' NA": lambda v: _cell(_full(v, NUMBER), pd.NA),
    "NaT": lambda v: _cell(_full(v, NUMBER), pd.NaT),
    "infinity": lambda v: _cell(_full(v, NUMBER), np.inf).astype(float),
    "mixed": lambda v: _cell(_full(v, NUMBER), TEXT),
    "masked": lambda v: np.ma.array(_full(v, NUMBER), mask=_full(v, False)),
    "structured": lambda v: np.array([(NUMBER,)] * _n(v), dtype=[("x", "f8")]),
    "sparse": lambda v: sparse.csr_matrix(np.full((_n(v), 2), NUMBER)),
    "frame": lambda v: _frame(_full(v, NUMBER)),
    "series": lambda v: pd.Series([NUMBER] * _n(v)),
    "series of lists": lambda v: pd.Series([[NUMBER]] * _n(v)),
    "marked index": lambda v: pd.DataFrame(
        np.asarray(v).reshape(_n(v), -1), index=[TEXT] * _n(v)
    ),
    "tensor": lambda v: torch.tensor(_full(v, NUMBER)),
    "tensor with gradient": lambda v: torch.tensor(_full(v, NUMBER), requires_grad=True),
    "number": lambda v: NUMBER,
    "string": lambda v: TEXT,
    "iterator": lambda v: iter([NUMBER] * _n(v)),
    "object": lambda v: _Shown(),
}  # fmt: skip


def _is_numeric(valid: Any) -> bool:
    return np.asarray(valid).dtype.kind in "biuf"


class Heard:
    """Output of a call, part by part, and whether it was refused."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self.error: Exception | None = None

    def leaks(self) -> list[str]:
        """Return the parts in which a marker is."""
        return [f"{k}: {v:.300}" for k, v in self.parts.items() if _MARKER.search(v)]


class _Listening(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextlib.contextmanager
def _logged() -> Iterator[list[str]]:
    root, handler = logging.getLogger(), _Listening()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield handler.lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def hear(call: Callable[[], Any]) -> Heard:
    """Return all that a call says: errors with their causes, warnings, logs and printed lines."""
    heard, printed = Heard(), io.StringIO()
    with (
        warnings.catch_warnings(record=True) as warned,
        _logged() as lines,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        parallel_config("sequential"),
    ):
        warnings.simplefilter("always")
        try:
            call()
        except Exception as error:
            heard.error = error
    heard.parts = {
        **dict(_said_by(heard.error)),
        **{f"warning {i}": str(warning.message) for i, warning in enumerate(warned)},
        "log": "\n".join(lines),
        "printed": printed.getvalue(),
    }
    return heard


def _said_by(error: BaseException | None) -> Iterator[tuple[str, str]]:
    """Yield what an error and all errors behind it say."""
    left, seen = [("error", error)], set()
    while left:
        name, error = left.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        notes = getattr(error, "__notes__", ())
        yield name, f"{type(error).__name__}: {error} {error.args!r} {notes!r}"
        left += [(f"{name}.cause", error.__cause__), (f"{name}.context", error.__context__)]
        left += [(f"{name}.part", part) for part in getattr(error, "exceptions", ())]
