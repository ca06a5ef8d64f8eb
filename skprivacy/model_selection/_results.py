"""Results of a sweep in the shape of those of GridSearchCV."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import rankdata

__all__ = ["as_grid_search"]


def as_grid_search(rows: list[dict[str, Any]], params: list[dict[str, Any]], n_splits: int) -> dict:
    """Arrange rows (candidate by candidate, split by split) as GridSearchCV does."""
    results: dict[str, Any] = {}
    for key in (key for key in rows[0] if key not in ("claim", "groups")):
        table = np.array([row[key] for row in rows], dtype=float).reshape(len(params), n_splits)
        if not key.endswith("_time"):
            results |= {f"split{i}_{key}": table[:, i] for i in range(n_splits)}
        results[f"mean_{key}"] = table.mean(axis=1)
        with np.errstate(invalid="ignore"):  # infinite epsilons have no spread
            results[f"std_{key}"] = table.std(axis=1)
        if key.startswith("test_"):
            ranked = rankdata(-np.nan_to_num(table.mean(axis=1), nan=-np.inf), method="min")
            results[f"rank_{key}"] = ranked.astype(np.int32)
        if key == "score_time":
            results |= {f"param_{name}": _column(name, params) for name in _names(params)}
            results["params"] = params
    return results


def _names(params: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for candidate in params for name in candidate))


def _column(name: str, params: list[dict[str, Any]]) -> np.ma.MaskedArray:
    """Return the values of a parameter, masked where a candidate has none of this name."""
    mask = [name not in candidate for candidate in params]
    values = [candidate.get(name) for candidate in params]
    return np.ma.MaskedArray(values, mask=mask, dtype=object if any(mask) else None)
