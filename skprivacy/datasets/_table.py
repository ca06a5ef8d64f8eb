"""A table with its public facts, in the form that scikit-learn's loaders return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from .._validation import flag
from ..preprocessing import Schema

__all__ = ["as_bunch"]


def as_bunch(
    data: pd.DataFrame,
    target: pd.Series,
    schema: Schema,
    *,
    description: str,
    as_frame: bool = False,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Return features and target in the form of ``sklearn.datasets``.

    ``data`` has the schema's columns, in its order; ``schema`` knows the classes.
    """
    flag("as_frame", as_frame)
    flag("return_X_y", return_X_y)
    classes = np.array(schema.classes)
    # Copies, because pandas returns read-only views, which torch and others refuse.
    X: Any = data if as_frame else data.to_numpy(copy=True)
    y: Any = target if as_frame else target.to_numpy(dtype=classes.dtype, copy=True)
    if return_X_y:
        return X, y
    return Bunch(
        data=X,
        target=y,
        frame=pd.concat([data, target], axis=1) if as_frame else None,
        feature_names=list(schema),
        target_names=[str(label) for label in classes],
        classes=classes,
        schema=schema,
        DESCR=description,
    )
