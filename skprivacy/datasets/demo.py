"""A data set that needs no network: scikit-learn's handwritten digits."""

from __future__ import annotations

from typing import Any

import pandas as pd
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from ..preprocessing import Bounded, Schema
from ._table import as_bunch

__all__ = ["load_demo"]


def load_demo(*, as_frame: bool = False, return_X_y: bool = False) -> Bunch | tuple[Any, Any]:
    """Load the embedded data set: 1,797 handwritten digits of 8 by 8 pixels, with a schema.

    The bounds are public: each pixel counts the dark points of a 4 by 4 block, so it is 0 to 16.

    Parameters
    ----------
    as_frame : bool, default=False
        Whether ``data`` is a DataFrame and ``target`` a Series, instead of arrays.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` only.

    Returns
    -------
    Bunch
        As returned by :func:`~skprivacy.datasets.fetch_adult`.

    Examples
    --------
    >>> digits = load_demo()
    >>> digits.data.shape, digits.schema
    ((1797, 64), Schema(64 bounded and 0 categorical columns, target 'digit'))
    """
    data, target = load_digits(return_X_y=True)
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    return as_bunch(
        pd.DataFrame(data, columns=names),
        pd.Series(target, name="digit"),
        Schema(dict.fromkeys(names, Bounded(0, 16)), target="digit", classes=range(10)),
        description="Handwritten digits, 8 by 8 pixels (scikit-learn's embedded copy).",
        as_frame=as_frame,
        return_X_y=return_X_y,
    )
