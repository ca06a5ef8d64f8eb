"""Every private name of scikit-learn that the library uses, in one place."""

from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils.validation import _num_samples as num_samples

__all__ = ["num_samples", "safe_indexing"]
