"""Transformers without a guarantee: whether they learn from records or mix them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from ..._sklearn import safe_indexing
from ..._validation import num_samples

# Classes of scikit-learn, by exact class. The first ones learn only the number of columns, unless
# they hold a user's function, such as an analyzer of texts. The others learn only from features.
_ROW_BY_ROW = (
    "AdditiveChi2Sampler", "Binarizer", "FeatureHasher", "HashingVectorizer", "Normalizer",
    "PolynomialFeatures",
)  # fmt: skip
_IGNORE_LABELS = (
    "FastICA", "IncrementalPCA", "KBinsDiscretizer", "MaxAbsScaler", "MinMaxScaler", "NMF",
    "Nystroem", "OneHotEncoder", "OrdinalEncoder", "PCA", "PowerTransformer", "QuantileTransformer",
    "RBFSampler", "RobustScaler", "SimpleImputer", "StandardScaler", "TruncatedSVD",
    "VarianceThreshold",
)  # fmt: skip


def is_covered(step: Any) -> bool:
    """Return whether a transformer is known to learn nothing and to mix no records."""
    if hasattr(step, "data_independent_"):
        return bool(step.data_independent_)
    if type(step) is FunctionTransformer:
        return step.func is None
    if not _is_of_sklearn(step, _ROW_BY_ROW):
        return False
    # A user's function may hold private records.
    return not any(callable(v) and not isinstance(v, type) for v in vars(step).values())


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
    give the same values as transforming each record by itself. Returns the gap, which is empty if
    no value depends on other records, and whether the values agree to the last bit: products round
    a row by its position among the other rows.
    """
    kind, n = type(step).__name__, num_samples(rows)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alone = [clone(step).fit_transform(safe_indexing(rows, [i])) for i in range(n)]
            jointly = [step.transform(rows), clone(step).fit_transform(rows)]
    except Exception as error:  # a user's function may raise anything
        return f"{kind} could not be tried on single records ({type(error).__name__})", False
    expected = [_values(one) for one in alone]
    joined = [_values(joint) for joint in jointly]
    if any(len(one) != 1 for one in expected) or not all(
        _same(joint, np.concatenate(expected)) for joint in joined
    ):
        return (
            f"{kind} computes a record's values from other records too, or at random (tried on "
            f"{n} records); transform each record by itself"
        ), False
    return "", all(_same(joint, np.concatenate(expected), exactly=True) for joint in joined)


def learns_from_features(step: Any) -> bool:
    """Return whether a transformer is known to ignore the labels."""
    return _is_of_sklearn(step, _IGNORE_LABELS)


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


def _is_of_sklearn(step: Any, names: tuple[str, ...]) -> bool:
    return type(step).__module__.startswith("sklearn.") and type(step).__name__ in names


def _values(output: Any) -> np.ndarray:
    return output.toarray() if sparse.issparse(output) else np.asarray(output)


def _same(joint: np.ndarray, alone: np.ndarray, exactly: bool = False) -> bool:
    if joint.shape != alone.shape:
        return False
    if np.issubdtype(joint.dtype, np.number) and np.issubdtype(alone.dtype, np.number):
        rtol, atol = (0.0, 0.0) if exactly else (1e-5, 1e-8)
        return bool(np.allclose(joint, alone, rtol=rtol, atol=atol, equal_nan=True))
    return all(a == b or (a != a and b != b) for a, b in zip(joint.flat, alone.flat, strict=True))
