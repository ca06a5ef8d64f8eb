"""What a report says of a model and its records, whatever the attacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._sklearn import num_samples
from .claims import Claim

__all__ = ["facts_of"]


def facts_of(
    model: Any, claim: Claim, X_train: Any, y_train: Any, X_test: Any, y_test: Any
) -> dict[str, Any]:
    """Return what a report says of a model and its claim, whatever the attacks."""
    share = np.unique(np.asarray(y_test), return_counts=True)[1]
    return {
        "model": " ".join(repr(model).split()),
        "guarantee": claim.guarantee,
        "reason": claim.reason,
        "uncovered": claim.uncovered,
        "charged": claim.charged,
        "n_train": num_samples(X_train),
        "n_test": num_samples(X_test),
        "train_accuracy": _accuracy(model, X_train, y_train),
        "test_accuracy": _accuracy(model, X_test, y_test),
        "majority_share": float(share.max() / len(y_test)),
    }


def _accuracy(model: Any, X: Any, y: Any) -> float:
    return float(np.mean(np.asarray(model.predict(X)) == np.asarray(y)))
