"""Checks of input that scikit-learn leaves to chance."""

from __future__ import annotations

from typing import Any

import pandas as pd

__all__ = ["check_column_names"]


def check_column_names(X: Any) -> None:
    """Refuse a frame with two columns of one name, whatever the scikit-learn version does."""
    columns = getattr(X, "columns", None)
    if columns is None:
        return
    names = pd.Index(columns)
    if not names.is_unique:
        twice = names[names.duplicated()].unique().tolist()
        raise ValueError(
            f"X has more than one column named {twice[0]!r} (in all: {twice!r}). Rename or drop "
            "the repeated columns."
        )
