"""Transformers that learn nothing from private records and transform each record separately."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import NMF, PCA, FastICA, IncrementalPCA, TruncatedSVD
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import AdditiveChi2Sampler, Nystroem, RBFSampler
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils import get_tags

from .._sklearn import num_samples, safe_indexing
from ._alarms import is_alarm

__all__ = [
    "explain_gap",
    "ignores_labels",
    "is_covered",
    "is_stateless",
    "needs_public_records",
    "try_record_by_record",
]

# They learn only the number of columns, unless they hold a user's function, such as an analyzer of
# texts. Matched by exact type.
_ROW_BY_ROW = {
    AdditiveChi2Sampler,
    Binarizer,
    FeatureHasher,
    HashingVectorizer,
    Normalizer,
    PolynomialFeatures,
}

# They learn from features alone and ignore y. Matched by exact type.
_IGNORE_LABELS = {
    FastICA,
    IncrementalPCA,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    NMF,
    Nystroem,
    OneHotEncoder,
    OrdinalEncoder,
    PCA,
    PowerTransformer,
    QuantileTransformer,
    RBFSampler,
    RobustScaler,
    SimpleImputer,
    StandardScaler,
    TruncatedSVD,
    VarianceThreshold,
}


def ignores_labels(step: Any) -> bool:
    """Return whether a transformer is known to learn from features alone."""
    return type(step) in _IGNORE_LABELS


def is_covered(step: Any) -> bool:
    """Return whether a transformer is known to learn nothing and to mix no records."""
    if hasattr(step, "data_independent_"):
        return bool(step.data_independent_)
    if type(step) is FunctionTransformer:
        return step.func is None
    return type(step) in _ROW_BY_ROW and not any(map(_is_function, vars(step).values()))


def _is_function(value: Any) -> bool:
    """Return whether a value is a user's function, which may hold private records."""
    return callable(value) and not isinstance(value, type)


def is_stateless(step: Any) -> bool:
    """Return whether a transformer's tags say that it needs no fit, and nothing else covers it."""
    if not hasattr(step, "transform") or not hasattr(step, "__sklearn_tags__"):
        return False
    return not hasattr(step, "data_independent_") and not get_tags(step).requires_fit


def needs_public_records(step: Any) -> bool:
    """Return whether a fitted transformer declares that it learned from public records only."""
    return bool(getattr(step, "needs_public_records_", False))


def try_record_by_record(step: Any, rows: Any) -> tuple[str, bool]:
    """Test whether a stateless transformer computes each record by itself.

    Transforming ``rows`` together, both as fitted on the private data and by a fresh clone, must
    give the same values as transforming each record alone. Returns the gap, which is empty if no
    value depends on other records, and whether the values agree to the last bit: products round a
    row by its position among the other rows.
    """
    kind, n = type(step).__name__, num_samples(rows)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alone = [clone(step).fit_transform(safe_indexing(rows, [i])) for i in range(n)]
            jointly = [step.transform(rows), clone(step).fit_transform(rows)]
    except Exception as error:  # a user's function may raise anything
        if is_alarm(error):
            raise
        return f"{kind} could not be tried on single records ({type(error).__name__})", False
    expected = [_values(one) for one in alone]
    together = [_values(joint) for joint in jointly]
    if any(len(one) != 1 for one in expected) or not all(
        _same(joint, np.concatenate(expected)) for joint in together
    ):
        return (
            f"{kind} computes a record's values from other records too, or at random (tried on "
            f"{n} records); transform each record by itself"
        ), False
    return "", all(_same(joint, np.concatenate(expected), exactly=True) for joint in together)


def explain_gap(step: Any) -> str:
    """Return why no guarantee covers a transformer that was fitted on private data."""
    kind = type(step).__name__
    if hasattr(step, "data_independent_"):
        return (
            f"{kind} has a schema whose bounds and categories were read off the data; confirm each "
            "by `skprivacy schema confirm`, or write a Schema from a codebook"
        )
    if needs_public_records(step):
        return (
            f"{kind} learned from the private data, outside any guarantee; fit it on public "
            "records beforehand, and put FrozenEstimator(encoder) in its place"
        )
    return (
        f"{kind} was fitted on the private data outside the guarantee; "
        "use SchemaTransformer with public bounds instead"
    )


def _values(output: Any) -> np.ndarray:
    return output.toarray() if sparse.issparse(output) else np.asarray(output)


def _same(joint: np.ndarray, alone: np.ndarray, exactly: bool = False) -> bool:
    if joint.shape != alone.shape:
        return False
    if np.issubdtype(joint.dtype, np.number) and np.issubdtype(alone.dtype, np.number):
        rtol, atol = (0.0, 0.0) if exactly else (1e-5, 1e-8)
        return bool(np.allclose(joint, alone, rtol=rtol, atol=atol, equal_nan=True))
    return all(a == b or (a != a and b != b) for a, b in zip(joint.flat, alone.flat, strict=True))
