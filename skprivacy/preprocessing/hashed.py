"""Public facts about a column whose categories nobody can list."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .._validation import is_whole
from ._column import Column
from ._values import category_key, each_value
from .columns import write_one_hot

__all__ = ["Hashed"]

MOST_BUCKETS = 1 << 16


@dataclass(frozen=True, repr=False)
class Hashed(Column):
    """A column of many categories, dealt to public buckets by a hash of each value.

    A list of postcodes or products that was read off private data would leak the rare ones. A hash
    needs no list. Values of one bucket look alike to the model.

    Parameters
    ----------
    buckets : int, default=64
        Number of one-hot columns, from 2 to 65,536. More buckets part more values, and more
        features need more noise.
    missing : bool, default=False
        As of :class:`Categories`; and so the next three.
    description : str, default=""
        What the column is, for those who read the schema.
    inferred : bool, default=False
        Whether the facts were read off data, confirmed since or not.
    confirmed : Confirmation, default=None
        Set by :meth:`Schema.confirm`.

    Notes
    -----
    The bucket is SHA-256 of the value's text, modulo ``buckets``. It is public: it hides nothing by
    itself, and is no protection of an identifier. Empty and missing values have no bucket.

    Examples
    --------
    >>> import pandas as pd
    >>> from skprivacy.preprocessing import Hashed, Schema, SchemaTransformer
    >>> schema = Schema({"postcode": Hashed(4)})
    >>> X = pd.DataFrame({"postcode": ["8001", 8001, None]})
    >>> SchemaTransformer(schema).fit_transform(X)
    array([[1., 0., 0., 0.],
           [1., 0., 0., 0.],
           [0., 0., 0., 0.]])
    """

    buckets: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_whole(self.buckets):
            raise TypeError(f"Hashed: buckets={self.buckets!r} must be an integer, for example 64.")
        if not 2 <= self.buckets <= MOST_BUCKETS:
            raise ValueError(
                f"Hashed: buckets={self.buckets!r} must be from 2 to {MOST_BUCKETS}, for example "
                "64."
            )
        object.__setattr__(self, "buckets", int(self.buckets))

    def write(self, out: np.ndarray, column: pd.Series, scaled: Callable) -> np.ndarray:
        return write_one_hot(out, each_value(column, self._bucket, np.intp))

    def _bucket(self, value: Any) -> int:
        try:
            text = category_key(value).encode("utf-8", "surrogatepass")
        except (TypeError, ValueError, OverflowError):
            return -1
        if not text:
            return -1
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") % self.buckets

    def _names(self, name: str) -> list[str]:
        return [f"{name}_hash{i}" for i in range(self.buckets)]
