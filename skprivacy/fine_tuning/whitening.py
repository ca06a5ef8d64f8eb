"""Half-whitening of features by the covariance of public records, and scaling to norm 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._data_validation import validate_data
from .._docs import fill_docs
from ..base import undone_if_refused
from ..mechanisms.bounds import exact_map, quantize, row_norms

__all__ = ["FEATURE_NORM", "HalfWhitening", "unit_rows", "with_constant"]

_CONSTANT = 0.35  # constant column, as in the linear models: small, since it adds to the norm
FEATURE_NORM = 1.0 / math.hypot(1.0, _CONSTANT)  # norm of the features in a row of the unit ball
_INWARDS = 1.0 - 2.0**-40  # outweighs the rounding of a norm
_LEAST_VARIANCE_SHARE = 1e-12  # of the largest variance; directions below it count as constant
_BITS = 26  # bits of a centred record of norm 1, which make its product with components exact


@fill_docs
class HalfWhitening(TransformerMixin, BaseEstimator):
    """Centre features, half-whiten them, and scale each record to norm 1.

    Whitening divides each principal direction by its standard deviation, half-whitening by the
    square root of it. Without whitening, a few directions dominate; with full whitening, directions
    that hardly vary get as much noise as those that separate classes.

    Fit it to **public** records only: it stores their exact mean and covariance.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Mean of the public records.
    components_ : ndarray of shape (n_features, n_features)
        Map from centred records to scaled principal directions; 0 for directions without variance.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    **Guarantees.** None for the records that it is fitted to. A transformed record is a function of
    the record alone, to the last bit: it is centred, scaled to norm 1 and rounded to multiples of
    2**-26, whose product with ``components_`` is exact.

    **Edge cases.** The mean itself becomes 0; all other records have norm 1. Directions in which
    public records do not vary are dropped.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.fine_tuning import HalfWhitening
    >>> public = np.random.default_rng(0).normal(size=(500, 3)) * [1.0, 10.0, 100.0]
    >>> rows = HalfWhitening().fit(public).transform(public)
    >>> bool(np.allclose(np.linalg.norm(rows, axis=1), 1.0))
    True
    """

    _computes_records_apart = True  # rounding depends on no other record

    @undone_if_refused
    def fit(self, X: ArrayLike, y: Any = None) -> HalfWhitening:
        """Learn the mean and the covariance of public records.

        Parameters
        ----------
        X : array-like of shape (n_public, n_features)
            Public records.
        y : None
            Ignored.

        Returns
        -------
        %(fit_returns)s
        """
        rows = np.asarray(validate_data(self, X, dtype=np.float64, ensure_min_samples=2))
        self.mean_ = rows.mean(axis=0)
        centred = rows - self.mean_
        variances, directions = np.linalg.eigh(centred.T @ centred / len(rows))
        varies = variances > _LEAST_VARIANCE_SHARE * max(float(variances[-1]), 1e-300)
        safe = np.where(varies, variances, 1.0)
        self.components_ = directions * np.where(varies, safe**-0.25, 0.0)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the scaled records.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records. They may be private, since each is scaled separately.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Records of norm 1.
        """
        check_is_fitted(self, "mean_")
        rows = np.asarray(validate_data(self, X, dtype=np.float64, reset=False))
        return unit_rows(self.scaled(rows))[0]

    def scaled(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map each record to the scaled principal directions, up to a factor of the record.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of records.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The mapped records; NaN for a record that is not finite.
        """
        with np.errstate(all="ignore"):  # records that are not finite
            rows, finite = unit_rows(features - self.mean_)
        found = exact_map(np.rint(np.ldexp(rows, _BITS)) * 2.0**-_BITS, self.components_, _BITS)
        found[~finite] = np.nan
        return found


def unit_rows(features: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scale each row to norm 1, and return which rows are finite; the others become 0."""
    features = np.ascontiguousarray(features)
    # Divide by the largest number first, so that no square overflows.
    largest = np.abs(features).max(axis=1, initial=0.0)
    finite = np.isfinite(largest)
    safe = np.where(finite & (largest > 0), largest, 1.0)
    rows = np.where(finite[:, None], features, 0.0) / safe[:, None]
    norms = row_norms(rows)
    rows /= np.where(norms > 0, norms, 1.0)[:, None]
    return rows, finite


def with_constant(
    features: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return rows of norm at most 1, exactly, on a grid of 2**-16, and which records count.

    Each row is the record scaled to norm 1 with a constant appended, scaled into the unit ball. The
    row of a record that does not count is 0.
    """
    unit, finite = unit_rows(features)
    rows = np.column_stack([unit, np.full(len(unit), _CONSTANT)])
    rows *= (_INWARDS * FEATURE_NORM) * finite[:, None]
    return quantize(rows), finite
