"""Labels as numbers that a loss understands: one of several classes, or any of several labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from .. import _config

__all__ = ["as_array", "encode_classes", "encode_labels"]


def as_array(y: Any) -> NDArray:
    """Return validated labels as one column, or as a dense matrix with a column for each label."""
    if sparse.issparse(y):
        y = y.toarray()
    return y if y.ndim == 2 and y.shape[1] > 1 else column_or_1d(y, warn=True)


def encode_classes(
    y: NDArray, given: ArrayLike | None, public: bool, assumptions: list[str], who: str
) -> tuple[NDArray, NDArray[np.int64]]:
    """Return the classes, and the labels as indices into them.

    ``public`` says that the classes were given in the constructor, not to ``partial_fit``.
    """
    if not public:  # else the labels are compared with those that are public
        check_classification_targets(y)
    if given is None:
        _config.leak(
            "classes=None: the labels are read off y, which tells whether a rare class "
            "occurs. Pass classes=[...], all labels that are publicly possible."
        )
        assumptions.append("the set of class labels is public (it was read off y)")
        classes = np.unique(y)
    else:
        classes = np.unique(np.asarray(given))
    if len(classes) < 2:
        raise ValueError(
            f"classes={classes.tolist()!r}: {who} needs at least two classes, "
            f"got {len(classes)} class. Pass classes=[...] with all possible labels."
        )
    if not np.isin(y, classes).all():
        raise ValueError(
            f"y holds labels that are not in classes={classes.tolist()!r}. Which ones is not told, "
            "because labels are private: compare numpy.unique(y) with classes. Add what is "
            "missing to classes, or drop those records."
        )
    return classes, np.searchsorted(classes, y)


def encode_labels(y: NDArray, given: ArrayLike | None) -> tuple[NDArray, NDArray[np.float32]]:
    """Return the names of the columns of ``y``, and its zeros and ones as numbers."""
    names = np.arange(y.shape[1]) if given is None else np.asarray(given)
    if len(names) != y.shape[1] or len(np.unique(names)) != len(names):
        raise ValueError(
            f"classes={names.tolist()!r} must name each of the {y.shape[1]} columns of y once: y "
            "has two dimensions, a column of zeros and ones for each label."
        )
    if y.dtype.kind not in "biuf" or not np.isin(y, (0, 1)).all():
        raise ValueError(
            f"y has {y.shape[1]} columns, so each must hold zeros and ones: whether the record "
            "has that label. For a single label pass a vector."
        )
    return names, y.astype(np.float32)
