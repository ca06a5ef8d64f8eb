"""The statement of a budget: its charges as a table and as a plot."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from ._filters import together
from ._scopes import event_of, total
from .events import Event
from .guarantee import epsilon_of
from .ledger import Record

__all__ = ["draw", "running", "spent", "table"]


def spent(charges: Counter[Event], delta: float, relation: str) -> float:
    """Return epsilon of all charges, or infinity where it is not finite at ``delta``."""
    try:
        return epsilon_of(together(charges), delta, relation)
    except ValueError:  # delta = 0 where only delta > 0 is finite
        return math.inf


def table(records: list[Record], scope: str, terms: dict[str, Any]):
    """Return the charges in and below ``scope`` as a DataFrame."""
    import pandas as pd

    status = {r.ref: r.kind for r in records if r.ref is not None}
    rows = []
    for r in records:
        if r.kind != "reserve" or not r.scope.startswith(scope):
            continue
        event = event_of(r.body)
        rows.append(
            {
                "charge": r.seq,
                "when": pd.Timestamp(r.at, unit="s", tz="UTC"),
                "scope": r.scope,
                "who": r.who,
                "event": event,
                "status": status.get(r.seq, "reserved"),
                "cost": spent(Counter({event: 1}), terms["delta"], terms["relation"]),
            }
        )
    columns = ["charge", "when", "scope", "who", "event", "status", "cost"]
    return pd.DataFrame(rows, columns=columns)


def running(entries, scope: str, terms: dict[str, Any]) -> tuple[list[Any], list[float]]:
    """Return times and what had been spent by then, at no more than about a hundred of them."""
    charges = [(s, e, 1) for s, e in zip(entries["scope"], entries["event"], strict=True)]
    ends = sorted({*range(len(charges), 0, -max(1, len(charges) // 100))})
    values = [spent(total(charges[:end], scope), terms["delta"], terms["relation"]) for end in ends]
    return [entries["when"].iloc[end - 1] for end in ends], values


def draw(times, values, cap: tuple[float, float] | None, delta: float, ax=None):
    """Draw what was spent over time, and return the axes."""
    import matplotlib.pyplot as plt

    ax = plt.subplots()[1] if ax is None else ax
    ax.step(times, values, where="post", marker="o", label="spent")
    if cap is not None:
        ax.axhline(cap[0], linestyle="--", color="black", label="cap")
    ax.set(xlabel="time (UTC)", ylabel=f"epsilon at delta = {delta:g}", ylim=(0, None))
    ax.legend()
    return ax
