"""Public encoders, and features of records by them, scaled to rows in the unit ball.

The features of a private record are a function of that record alone, to the last bit.
:class:`HalfWhitening` scales them by the covariance of public records. Encoders are fitted to
public records, and checked: they must have seen no private one. Start at :func:`encode_each`.
"""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from .._clones import name_failing_model
from .._docs import fill_docs
from .._input_data import check_array, check_numbers, check_readable, validate_data
from .._sklearn import safe_indexing
from .._validation import num_samples
from ..base import PrivateFit, rolls_back_on_error
from ..ensemble import PublicRecords
from ..mechanisms.base import exact_map, quantize, row_norms, row_slices

_LARGEST = 1e30  # largest absolute input: finite in single precision, which most encoders use
# Each number of the output is computed from one number of the record, so that rounding depends on
# no other record. Matched by exact type.
_NUMBER_BY_NUMBER = {
    Binarizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    SimpleImputer,
    StandardScaler,
}
_CONSTANT = 0.35  # constant column, as in the linear models: small, since it adds to the norm
FEATURE_NORM = 1.0 / math.hypot(1.0, _CONSTANT)  # norm of the features in a row of the unit ball
_INWARDS = 1.0 - 2.0**-40  # outweighs the rounding of a norm
_LEAST_VARIANCE_SHARE = 1e-12  # of the largest variance; directions below it count as constant
_BITS = 26  # bits of a centred record of norm 1, which make its product with components exact


def encode_each(encoder: Any, X: Any) -> NDArray[np.float64]:
    """Encode each record in a separate call; NaN for a record that is not finite.

    If the encoder keeps no state between calls, the features of a record are then a function of
    that record alone, to the last bit. In one call they would not be: matrix products round a row
    by its position and by the number of rows, and some kernels by its place in memory. Encoders
    that compute each number, or each record, separately get all records in one call.
    """
    X, finite = _replace_nonfinite(encoder, X)
    first, rest = _split_steps(encoder)
    if encoder is None:
        check_numbers(X)
    if first is not None:
        with name_failing_model(first, "asked about X"):
            X = first.transform(X)
    if rest is None:
        features = _as_feature_array(encoder, X, len(finite))
    else:
        with name_failing_model(rest, "asked about X"):
            features = _encode_one_by_one(rest, X, len(finite))
    features[~finite] = np.nan
    return features


def encode_together(encoder: Any, X: Any) -> NDArray[np.float64]:
    """Encode public records in one call; the rounding of each may depend on all."""
    X, finite = _replace_nonfinite(encoder, X)
    if encoder is None:
        check_numbers(X)
    with name_failing_model(encoder, "asked about X"):
        found = X if encoder is None else encoder.transform(X)
    features = _as_feature_array(encoder, found, len(finite))
    features[~finite] = np.nan
    return features


def head_rows(
    encoder: Any, whitening: HalfWhitening | None, X: Any, *, private: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return rows in the unit ball, and which records count; private ones are encoded singly."""
    if not isinstance(X, np.ndarray) or len(X) == 0:
        return _head_rows_of_slice(encoder, whitening, X, private)
    rows, counts = None, np.empty(len(X), np.bool_)
    for part in row_slices(len(X)):
        found, counts[part] = _head_rows_of_slice(encoder, whitening, X[part], private)
        rows = np.empty((len(X), found.shape[1])) if rows is None else rows
        rows[part] = found
    assert rows is not None
    return rows, counts


@fill_docs
class HalfWhitening(TransformerMixin, BaseEstimator):
    """Centre features, half-whiten them, and scale each record to norm 1.

    Whitening divides each principal direction by its standard deviation. Half-whitening divides it
    by the square root of the standard deviation. Without whitening, a few directions dominate. With
    full whitening, directions that hardly vary get as much noise as directions that separate
    classes.

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

    @rolls_back_on_error
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
        return unit_rows(self._scaled(rows))[0]

    def _scaled(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map each record to the scaled principal directions, up to a factor; NaN if not finite."""
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
    """Return rows of norm at most 1, exactly, on a grid of 2**-16, and which records count."""
    unit, finite = unit_rows(features)
    rows = np.column_stack([unit, np.full(len(unit), _CONSTANT)])
    rows *= (_INWARDS * FEATURE_NORM) * finite[:, None]
    return quantize(rows), finite


def _head_rows_of_slice(
    encoder: Any, whitening: HalfWhitening | None, X: Any, private: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    features = encode_each(encoder, X) if private else encode_together(encoder, X)
    return with_constant(features if whitening is None else whitening._scaled(features))


def _replace_nonfinite(encoder: Any, X: Any) -> tuple[Any, NDArray[np.bool_]]:
    """Return the encoder's input, with zeros for records that are not finite, and a mask."""
    # An error would reveal the record's presence.
    finite: NDArray[np.bool_] = np.ones(num_samples(X), np.bool_)
    if isinstance(X, np.ndarray):
        finite = np.asarray(np.isfinite(X).all(axis=1))
        X = np.clip(np.where(finite[:, None], X, 0.0), -_LARGEST, _LARGEST)
        names = getattr(encoder, "feature_names_in_", None)
        X = X if names is None else pd.DataFrame(X, columns=names)
    return X, finite


def _as_feature_array(encoder: Any, found: Any, n: int) -> NDArray[np.float64]:
    """Return the encoder's output as a new C-contiguous array."""
    found = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
    if found.ndim != 2 or len(found) != n:
        raise ValueError(
            f"encoder={encoder!r} returns shape {found.shape} for {n} records; expected one row of "
            "features for each."
        )
    return np.array(found, dtype=np.float64, order="C")


def _encode_one_by_one(encoder: Any, X: Any, n: int) -> NDArray[np.float64]:
    record = np.empty((1, X.shape[1]), X.dtype) if isinstance(X, np.ndarray) else None
    features = np.empty((0, 0))
    for i in range(n):
        if record is None:
            found = encoder.transform(safe_indexing(X, [i]))
        else:
            record[0] = X[i]
            found = encoder.transform(record)
        row = _as_feature_array(encoder, found, 1)
        if not i:
            features = np.empty((n, row.shape[1]))
        features[i] = row[0]
    return features


def _split_steps(encoder: Any) -> tuple[Any, Any]:
    """Split an encoder into leading steps that compute each record separately, and the others."""
    if type(encoder) is FrozenEstimator:
        return _split_steps(encoder.estimator)
    if type(encoder) is not Pipeline:
        return (encoder, None) if _computes_apart(encoder) else (None, encoder)
    apart = [_computes_apart(step) for _, step in encoder.steps]
    n = (*apart, False).index(False)
    return encoder[:n] if n else None, encoder[n:] if n < len(apart) else None


def _computes_apart(step: Any) -> bool:
    """Return whether a step is known to round each record independently of the others."""
    kind = type(step)
    if kind is FrozenEstimator:
        return _computes_apart(step.estimator)
    if kind is Pipeline:
        return all(_computes_apart(each) for _, each in step.steps)
    if kind is ColumnTransformer:
        return all(_computes_apart(each) for _, each, _ in step.transformers_)
    if kind is FunctionTransformer:
        return step.func is None
    own = vars(kind).get("_computes_records_apart", False)
    return step is None or isinstance(step, str) or kind in _NUMBER_BY_NUMBER or own


_N_TRIAL_RECORDS = 8


def check_public(X_public: Any, n_features: int) -> Any:
    """Validate public records, which must have the width of the private ones; None stays None."""
    public = X_public.X if isinstance(X_public, PublicRecords) else X_public
    if public is None:
        return None
    if isinstance(public, pd.DataFrame):
        check_readable(public, "X_public")
    else:
        public = check_array(public, order="C", input_name="X_public")
    if public.shape[1] != n_features:
        raise ValueError(
            f"X_public has {public.shape[1]} features and X has {n_features}. Pass public records "
            "of the same kind; a pipeline hands them on with transform_input=['X_public']."
        )
    return public


def fit_to_public(
    encoder: Any, public: Any, n_features: int, fit: PrivateFit, given: Any
) -> tuple[Any, HalfWhitening | None, int]:
    """Return an encoder and a whitening fitted to public records, and the number of features."""
    fitted = public_encoder(encoder, public, n_features, given)
    if public is not None:
        fit.assume("the public records depend on no private record")
    if may_have_seen_private_data(encoder, fitted, public):
        fit.assume("the encoder depends on no private record")
    width = check_encoder(fitted, trial_rows(public, n_features))
    if fitted is not None:
        fit.assume(
            "the encoder treats each record by itself (tried on records that are not private)"
        )
    if public is None:
        return fitted, None, width
    return fitted, HalfWhitening().fit(encode_together(fitted, public)), width


def public_encoder(encoder: Any, X_public: Any, n_features: int, given: Any) -> Any:
    """Return a fitted encoder that has seen public records alone; None stays None."""
    if encoder is None or isinstance(encoder, FrozenEstimator):
        return encoder
    if not get_tags(encoder).requires_fit:  # such as Normalizer
        return clone(encoder)
    if _learns_nothing(encoder):
        return encoder
    with suppress(NotFittedError):
        check_is_fitted(encoder)
        raise ValueError(
            f"encoder={encoder!r} is fitted, and clone() would lose what it has learned. Pass "
            "sklearn.frozen.FrozenEstimator(encoder), if it has not seen private records, or "
            "sklearn.base.clone(encoder) and X_public."
        )
    if isinstance(given, PublicRecords):
        return given._encoder_like(encoder, X_public)
    if X_public is not None:
        return clone(encoder).fit(X_public)
    fitted = _fit_to_zeros(encoder, n_features)
    if not _learns_nothing(fitted):
        raise ValueError(
            f"encoder={encoder!r} is not fitted, there is no X_public, and it is never fitted to "
            "the private X. Pass fit(X, y, X_public=...), or a fitted encoder as "
            "sklearn.frozen.FrozenEstimator(encoder)."
        )
    return fitted


def _fit_to_zeros(encoder: Any, n_features: int) -> Any:
    """Return a clone fitted to a record of zeros, or None if that fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return clone(encoder).fit(np.zeros((1, n_features)))
        except Exception:  # an encoder that learns may reject a single record in any way
            return None


def may_have_seen_private_data(given: Any, encoder: Any, X_public: Any) -> bool:
    """Return whether an encoder may have learned from records outside of this fit."""
    if encoder is None or _learns_nothing(encoder):
        return False
    fitted_here = X_public is not None and not isinstance(given, FrozenEstimator)
    return not (fitted_here and get_tags(given).requires_fit)


def _learns_nothing(encoder: Any) -> bool:
    return bool(getattr(encoder, "data_independent_", False))


def trial_rows(X_public: Any, n_features: int) -> Any:
    """Return a few public rows, or random numbers without any, to try an encoder on."""
    if X_public is None:
        return np.random.RandomState(0).uniform(size=(_N_TRIAL_RECORDS, n_features))
    return safe_indexing(X_public, np.arange(min(_N_TRIAL_RECORDS, num_samples(X_public))))


def check_encoder(encoder: Any, rows: Any) -> int:
    """Return the number of features of an encoder; refuse one that mixes records."""
    joined = encode_together(encoder, rows)
    alone = [encode_together(encoder, safe_indexing(rows, [i])) for i in range(len(joined))]
    size = np.abs(joined).max(initial=0.0)
    if not np.allclose(joined, np.concatenate(alone), rtol=1e-3, atol=1e-4 * size):
        raise ValueError(
            f"encoder={encoder!r} computes a record's features from other records too, or at "
            f"random (tried on {len(joined)} records that are not private). Encode each record "
            "separately; a torch module must be in eval mode."
        )
    return joined.shape[1]
