"""Public facts about a column of dates, and its encoding as days and calendar parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from .._docs import fill_docs
from .cell_values import map_values
from .columns import COLUMN_DOCS, Column, scale_number, write_one_hot

PARTS: dict[str, tuple[int, Callable[[datetime], int]]] = {
    "month": (12, lambda moment: moment.month - 1),
    "weekday": (7, lambda moment: moment.weekday()),
    "hour": (24, lambda moment: moment.hour),
}
_SECONDS_PER_DAY = 86_400.0  # seconds


@fill_docs(COLUMN_DOCS)
@dataclass(frozen=True, repr=False)
class DateColumn(Column):
    """A column of dates that lie between two publicly known ones.

    A date is encoded as the scaled number of days since ``first``, and one-hot columns of calendar
    parts.

    Parameters
    ----------
    first, last : str
        The range, in ISO 8601: ``"2020-01-31"`` or ``"2020-01-31T12:00"``. Dates outside
        become the nearer end.
    parts : sequence of {"month", "weekday", "hour"}, default=()
        Calendar parts to encode too, for instance to learn a season.
    format : str, default=None
        Format of text dates for :meth:`datetime.datetime.strptime`, such as ``"%d.%m.%Y"``.
        ``None`` means ISO 8601. Columns of date objects need no format.
    %(column_options)s

    Notes
    -----
    Time zones are dropped: the local date and time count.

    Examples
    --------
    >>> import pandas as pd
    >>> from skprivacy.preprocessing import DateColumn, Schema, SchemaTransformer
    >>> schema = Schema({"admitted": DateColumn("2020-01-01", "2020-12-31", parts=["weekday"])})
    >>> X = pd.DataFrame({"admitted": ["2020-01-01", "2020-12-31", "unknown"]})
    >>> SchemaTransformer(schema).fit_transform(X)[:, :5]
    array([[-1.,  0.,  0.,  1.,  0.],
           [ 1.,  0.,  0.,  0.,  1.],
           [ 0.,  0.,  0.,  0.,  0.]])
    """

    kind: ClassVar[str] = "dates"

    first: str
    last: str
    parts: tuple[str, ...] = field(default=(), metadata={"written": "if set"})
    format: str | None = field(default=None, metadata={"written": "if set"})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("first", "last"):
            value = getattr(self, name)
            if isinstance(value, date) and value is not pd.NaT:  # or datetime, which is one
                object.__setattr__(self, name, value.isoformat())
            elif not isinstance(value, str) or _parse_iso(value) is None:
                raise ValueError(
                    f"DateColumn: {name}={value!r} must be a date as ISO 8601 writes it, such as "
                    "'2020-01-31'."
                )
        if not self._parse_end("first") < self._parse_end("last"):
            raise ValueError(
                f"DateColumn: first={self.first!r} must be before last={self.last!r}. Swap them, "
                "or widen the range."
            )
        try:
            parts: tuple[Any, ...] = tuple(self.parts)
        except TypeError:
            parts = (None,)
        known = all(isinstance(part, str) and part in PARTS for part in parts)
        if isinstance(self.parts, str) or not known:
            raise ValueError(
                f"DateColumn: parts={self.parts!r} must be a list of some of {[*PARTS]}."
            )
        if len(set(parts)) < len(parts):
            raise ValueError(f"DateColumn: parts={self.parts!r} must not name a part twice.")
        object.__setattr__(self, "parts", parts)
        if self.format is not None and (not isinstance(self.format, str) or "%" not in self.format):
            raise ValueError(
                f"DateColumn: format={self.format!r} must be one of strptime, such as '%d.%m.%Y'."
            )

    def _largest_norm(self) -> float:
        return float(np.sqrt(1 + len(self.parts)))

    def _write(self, out: np.ndarray, column: pd.Series) -> np.ndarray:
        days = self._days(column)
        known, at = ~np.isnan(days), 1
        _, span = self._ends()
        unit = np.clip(np.where(known, days, span / 2), 0.0, span) / span
        out[:, 0] = scale_number(np.where(known, np.clip(unit, 0.0, 1.0), 0.5))
        for part in self.parts:
            width, place = PARTS[part]
            codes = map_values(
                column, lambda value, place=place: self._part_index(value, place), np.intp
            )
            write_one_hot(out[:, at : at + width], codes)
            at += width
        return known

    def _days(self, column: pd.Series) -> np.ndarray:
        """Return the days since ``first``, with fractions; NaN for values that are not dates."""
        return map_values(
            column, lambda value: self._days_since_first(self._parse_value(value)), np.float64
        )

    def _ends(self) -> tuple[float, float]:
        """Return the least and the largest number of days that are not clipped."""
        return 0.0, self._days_since_first(self._parse_end("last"))

    def _days_since_first(self, moment: datetime | None) -> float:
        if moment is None:
            return np.nan
        return (moment - self._parse_end("first")).total_seconds() / _SECONDS_PER_DAY

    def _part_index(self, value: Any, place: Callable[[datetime], int]) -> int:
        moment = self._parse_value(value)
        return -1 if moment is None else place(moment)

    def _parse_value(self, value: Any) -> datetime | None:
        """Return the date and time of a value, without a time zone; None if it is not a date."""
        if isinstance(value, str):
            return _parse_iso(value) if self.format is None else _parse_format(value, self.format)
        if value is pd.NaT or not isinstance(value, date):
            return None
        if isinstance(value, pd.Timestamp):
            return value.to_pydatetime(warn=False).replace(tzinfo=None)
        if isinstance(value, datetime):
            return value.replace(tzinfo=None)
        return datetime.combine(value, time())

    def _parse_end(self, name: str) -> datetime:
        found = _parse_iso(getattr(self, name))
        assert found is not None
        return found

    def _names(self, name: str) -> list[str]:
        parts = [f"{name}_{part}{i}" for part in self.parts for i in range(PARTS[part][0])]
        return [name, *parts]


def _parse_iso(text: str) -> datetime | None:
    """Return the date and time of ISO 8601 text with dashes and colons, or None."""
    text = text.strip()
    if len(text) < 10 or text[4] != "-":  # "20200131" is a number, which Python 3.10 does not read
        return None
    try:
        return datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=None)
    except ValueError:
        return None


def _parse_format(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text.strip(), form).replace(tzinfo=None)
    except ValueError:
        return None
