"""What a file holds of a model that was trained on synthetic records: both, and the classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from .value_checks import check_names, classes_told, common, restore_classes, restore_common

__all__ = ["MODELS", "restored_trained", "told_trained"]

MODELS = dict.fromkeys(("SyntheticDataClassifier", "SyntheticDataRegressor"), "skprivacy.synthesis")


def told_trained(model: Any) -> dict[str, Any]:
    """Return the facts of a fitted model beside those of its estimator and its synthesizer."""
    facts = {**common(model), "params": {"n_samples": model.n_samples}}
    if hasattr(model, "classes_"):
        facts["classes"] = classes_told(model.classes_)
    return facts


def restored_trained(kind: type, facts: dict[str, Any], estimator: Any, synthesizer: Any) -> Any:
    """Return the model that the facts describe, with its fitted estimator and synthesizer."""
    classifies = kind.__name__.endswith("Classifier")
    told = ["n_features_in_", "feature_names", "params", *(["classes"] if classifies else [])]
    check_names(facts, told)
    check_names(facts["params"], ["n_samples"])
    if not (hasattr(synthesizer, "sample") and hasattr(estimator, "predict")):
        raise ValueError(f"it has no synthesizer, {synthesizer!r}, or no estimator, {estimator!r}")
    model = kind(clone(estimator), clone(synthesizer), **facts["params"])
    model._validate_params()
    d = restore_common(model, facts)
    one_class = type(estimator).__name__ == "DummyClassifier"  # which looks at no feature
    width = d if one_class else getattr(estimator, "n_features_in_", d)
    if not synthesizer.n_features_in_ == width == d:
        raise ValueError(f"its parts take other than {d} features")
    if classifies:
        model.classes_ = restore_classes(facts["classes"])
        found = np.asarray(estimator.classes_)
        if found.max() >= len(model.classes_):
            raise ValueError(f"its estimator has the classes {found.tolist()}")
    model.estimator_, model.synthesizer_ = estimator, synthesizer
    model._state_guarantee()
    return model
