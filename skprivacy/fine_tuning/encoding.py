"""Fitting of encoders to public records, and checks that they have seen no private record."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from .._input_data import check_array, check_readable
from .._sklearn import safe_indexing
from .._validation import num_samples
from ..base import PrivateFit
from ..ensemble import PublicRecords
from .features import HalfWhitening, encode_together

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
    """Return an encoder and a whitening fitted to public records alone, and the number of features.

    ``given`` holds the public records as they were passed: PublicRecords cache encoders.
    """
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
