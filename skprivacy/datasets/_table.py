"""A table with its public facts, in the form scikit-learn's loaders return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from ..preprocessing.schema import Schema

__all__ = ["as_bunch"]


def as_bunch(
    frame: pd.DataFrame,
    schema: Schema,
    *,
    description: str,
    as_frame: bool = False,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Split a frame into features and target, as ``sklearn.datasets`` would return it."""
    if schema.target is None or schema.classes is None:
        raise ValueError("schema must name the target and its classes.")
    data: Any = frame[list(schema)]
    target: Any = frame[schema.target]
    classes = np.array(schema.classes)
    if not as_frame:
        data = data.to_numpy()
        target = target.to_numpy(dtype=classes.dtype)
    if return_X_y:
        return data, target
    return Bunch(
        data=data,
        target=target,
        frame=frame if as_frame else None,
        feature_names=list(schema),
        target_names=[str(label) for label in classes],
        classes=classes,
        schema=schema,
        DESCR=description,
    )
