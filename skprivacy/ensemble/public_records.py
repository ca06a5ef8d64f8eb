"""Public records of PATE: wrapping, drawing from a schema, and choosing queries."""

from __future__ import annotations

from typing import Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics import pairwise_distances_argmin

from .._blas import one_thread
from .._sklearn import num_samples
from ..preprocessing import Bounded, Categories, Schema
from ..preprocessing.columns import Column

__all__ = [
    "PublicRecords",
    "check_not_private",
    "choose_queries",
    "draw_records",
    "with_public_categories",
]


class PublicRecords:
    """Public records as one object, which a cross-validation does not split.

    scikit-learn's cross-validation splits any array with as many rows as ``X`` into folds. Public
    records that happen to be as many as the private ones would be split; wrapped in this class they
    are not.

    Parameters
    ----------
    X : array-like or DataFrame of shape (n_public, n_features)
        Public records, or records of people who consented.

    Notes
    -----
    The object caches encoders: :class:`~skprivacy.fine_tuning.ALMFineTuner` fits each encoder once
    for equal parameters, however many folds and candidates a search has. A search in several
    processes fits it in each process. Pass a fitted encoder there, as
    ``sklearn.frozen.FrozenEstimator(encoder)``.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.ensemble import PublicRecords
    >>> PublicRecords(np.zeros((5, 2)))
    PublicRecords(5 records)
    """

    def __init__(self, X: Any) -> None:
        self.X = X
        self._encoders: dict[str, Any] = {}

    def encoder_like(self, encoder: Any, X: Any) -> Any:
        """Return a clone fitted to ``X``, from the cache if its parameters are equal.

        **Guarantees.** The encoder has seen no other records.

        **Edge cases.** Encoders with equal parameters are the same, even with a ``random_state`` of
        None.

        Parameters
        ----------
        encoder : estimator
            Unfitted encoder.
        X : array-like of shape (n_public, n_features)
            These public records, after validation.

        Returns
        -------
        estimator
            The fitted encoder.
        """
        fresh = clone(encoder)
        key = joblib.hash(fresh)
        if key not in self._encoders:
            self._encoders[key] = fresh.fit(X)
        return self._encoders[key]

    def __repr__(self) -> str:
        return f"PublicRecords({num_samples(self.X)} records)"


def draw_records(schema: Schema, n: int, random: np.random.RandomState) -> pd.DataFrame:
    """Return records drawn from the ranges and categories of a schema, each column by itself."""
    columns = {name: _draw_column(fact, n, random) for name, fact in schema.items()}
    return pd.DataFrame(columns)


def _draw_column(fact: Column, n: int, random: np.random.RandomState) -> NDArray[Any]:
    if isinstance(fact, Bounded):
        return random.uniform(fact.lower, fact.upper, n)
    assert isinstance(fact, Categories)
    return np.array(fact.values, dtype=object)[random.randint(len(fact.values), size=n)]


def with_public_categories(X: Any, public: Any) -> Any:
    """Give categorical columns of private records the categories of the public records.

    pandas lists the categories of all records, so one record with a unique category would
    renumber the categories of the others. Values outside the public categories become missing. A
    column without public categories becomes an object column.
    """
    if not isinstance(X, pd.DataFrame):
        return X
    listed = dict(public.dtypes) if isinstance(public, pd.DataFrame) else {}
    X = X.copy(deep=False)
    for name, dtype in X.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype):
            known = listed.get(name)
            X[name] = (
                X[name].cat.set_categories(known.categories, ordered=known.ordered)
                if isinstance(known, pd.CategoricalDtype)
                else X[name].astype(object)
            )
    return X


def check_not_private(public: Any, X: Any) -> None:
    """Refuse private records passed as public ones, by identity of the object: copies pass."""
    if (public.X if isinstance(public, PublicRecords) else public) is X:
        raise ValueError(
            "X_public must not be X: public records must come from people outside the guarantee. "
            "Pass other records."
        )


def choose_queries(X: Any, n: int, random: np.random.RandomState) -> NDArray[np.intp]:
    """Return ``n`` public records to query, in random order: those nearest to cluster centres.

    Clustering public records uses no private data, and covers them better than random choice.
    Records that are not all numbers are chosen at random.
    """
    n_public = num_samples(X)
    matrix = _as_finite_matrix(X)
    if matrix is None or n >= n_public:
        return random.permutation(n_public)[:n]
    with one_thread(matrix.size):
        clusters = MiniBatchKMeans(n, n_init=1, batch_size=4096, random_state=random).fit(matrix)
        nearest = np.unique(pairwise_distances_argmin(clusters.cluster_centers_, matrix))
    others = np.setdiff1d(random.permutation(n_public), nearest)
    chosen = np.concatenate([nearest, random.permutation(others)[: n - len(nearest)]])
    return random.permutation(chosen)


def _as_finite_matrix(X: Any) -> NDArray[np.float64] | None:
    try:
        matrix = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return matrix if np.isfinite(matrix).all() else None
