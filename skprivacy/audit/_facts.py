"""Facts of a report that do not depend on the attacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._clones import asked
from .._sklearn import num_samples
from ..attacks._answers import labels_as_text, targets_as_array
from ._caveats import ledger_caveats
from ._people import MemberGroups
from .claims import Claim

__all__ = ["group_facts", "report_facts"]


def report_facts(
    model: Any, claim: Claim, X_train: Any, y_train: Any, X_test: Any, y_test: Any
) -> dict[str, Any]:
    """Return the fields of a report about the model, its claim and its records."""
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
        "majority_share": _majority_share(model, y_test),
        "ledger_caveats": ledger_caveats([model]),
    }


def group_facts(people: MemberGroups | None) -> dict[str, Any]:
    """Return the fields of a report about groups, if groups were attacked; else none."""
    if people is None:
        return {}
    return {"n_train": people.inside.n, "n_test": people.outside.n, "attacked": people.unit}


def _accuracy(model: Any, X: Any, y: Any) -> float:
    """Return the share of records with all labels right; NaN for models without classes."""
    if not hasattr(model, "classes_"):
        return float("nan")
    right = np.asarray(asked(model, "predict", X)) == targets_as_array(y, num_samples(X))
    return float(np.mean(right.reshape(len(right), -1).all(axis=1)))


def _majority_share(model: Any, y: Any) -> float:
    if not hasattr(model, "classes_"):
        return float("nan")
    labels = labels_as_text(targets_as_array(y, 0))
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))
