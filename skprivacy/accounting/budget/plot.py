"""Plot of a budget's spending over time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .rules import spent_epsilon
from .scopes import sum_charges

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["draw_spending", "spending_over_time", "to_utc"]

_SHORTEST = timedelta(seconds=10)


def spending_over_time(
    entries: pd.DataFrame, scope: str, delta: float, relation: str
) -> tuple[list[datetime], list[float]]:
    """Return up to about a hundred times, and the epsilon spent by each time."""
    charges = [(s, e, 1) for s, e in zip(entries["scope"], entries["event"], strict=True)]
    ends = sorted({*range(len(charges), 0, -max(1, len(charges) // 100))})
    values = [spent_epsilon(sum_charges(charges[:end], scope), delta, relation) for end in ends]
    return [entries["when"].iloc[end - 1] for end in ends], values


def draw_spending(
    times: list[datetime],
    values: list[float],
    cap: tuple[float, float] | None,
    delta: float,
    ax: Axes | None = None,
) -> Axes:
    """Draw the spent epsilon over time and return the axes."""
    import matplotlib.pyplot as plt

    dates: Any = import_module("matplotlib.dates")
    ax = plt.subplots()[1] if ax is None else ax
    line: Any = ax  # matplotlib accepts datetimes, its type hints do not
    line.step(times, values, where="post", marker="o", label="spent")
    if cap is not None:
        ax.axhline(cap[0], linestyle="--", color="black", label="cap")
    ax.set(xlabel="time (UTC)", ylabel=f"epsilon at delta = {delta:g}", ylim=(0, None))
    span = max(times[-1] - times[0], _SHORTEST)  # an empty span would be drawn as years
    line.set_xlim(times[0] - 0.05 * span, times[0] + 1.05 * span)
    ax.xaxis.set_major_locator(locator := dates.AutoDateLocator())
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    ax.legend()
    return ax


def to_utc(at: float) -> datetime:
    """Convert seconds since 1970 to a time in UTC."""
    return datetime.fromtimestamp(at, timezone.utc)
