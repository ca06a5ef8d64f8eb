"""What a file holds of a model that teaches another: by noisy votes, or by noisy labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from .value_checks import (
    check_names,
    classes_told,
    common,
    make,
    restore_classes,
    restore_common,
    restore_guarantee,
)

__all__ = ["MODELS", "learner_of", "restored_taught", "told_taught", "with_learner"]

_VOTES = ("epsilon", "delta", "n_queries")
_NOISY = ("epsilon", "n_rounds", "n_folds")
# Module, attribute of the learner, and parameters that are numbers or words. Teachers, aggregators,
# schemas, budgets, seeds and released labels are not written.
MODELS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "ALIBIClassifier": ("skprivacy.label_privacy", "estimator_", _NOISY),
    "LP2STClassifier": ("skprivacy.label_privacy", "estimator_", (*_NOISY, "first")),
    "LabelPATEClassifier": ("skprivacy.label_privacy", "student_", (*_VOTES, "n_teachers")),
    "PATEClassifier": (
        "skprivacy.ensemble",
        "student_",
        (*_VOTES, "n_teachers", "partition", "relation", "marginal_share"),
    ),
    "PrivateKNNClassifier": (
        "skprivacy.ensemble",
        "student_",
        (*_VOTES, "n_neighbors", "sampling_rate", "relation"),
    ),
    "RandomizedResponseClassifier": ("skprivacy.label_privacy", "estimator_", _NOISY),
}


def learner_of(model: Any) -> Any:
    """Return the model that was taught."""
    return getattr(model, MODELS[type(model).__name__][1])


def told_taught(model: Any) -> dict[str, Any]:
    """Return the facts of a fitted model beside those of its learner."""
    return {
        **common(model),
        "params": {name: getattr(model, name) for name in MODELS[type(model).__name__][2]},
        "classes": classes_told(model.classes_),
        "classes_given": model.classes is not None,
        "privacy": model.privacy_.to_dict(),
    }


def restored_taught(kind: type, facts: dict[str, Any]) -> Any:
    """Return the model that the facts describe, without its learner."""
    told = ("n_features_in_", "feature_names", "params", "classes", "classes_given", "privacy")
    check_names(facts, told)
    model = make(kind, facts["params"], MODELS[kind.__name__][2])
    restore_common(model, facts)
    model.classes_ = restore_classes(facts["classes"])
    # What was read off the data must not pass for public in a new fit.
    model.classes = model.classes_ if facts["classes_given"] is True else None
    restore_guarantee(model, facts)
    return model


def with_learner(model: Any, learner: Any) -> Any:
    """Return a model with its learner, which may know no further classes and features."""
    found = np.asarray(learner.classes_)
    if found.max() >= len(model.classes_):
        raise ValueError(
            f"its learner has the classes {found.tolist()}, and the model {len(model.classes_)}"
        )
    width = getattr(learner, "n_features_in_", model.n_features_in_)
    if type(learner).__name__ != "DummyClassifier" and width != model.n_features_in_:
        raise ValueError(f"its learner takes {width} features, and it {model.n_features_in_}")
    setattr(model, MODELS[type(model).__name__][1], learner)
    return model
