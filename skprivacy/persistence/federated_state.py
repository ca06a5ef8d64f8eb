"""What a file holds of a model of many parties: its weights and public facts, not who they are."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ..federated import DPFederatedClassifier
from .file_format import Arrays
from .value_checks import (
    check_names,
    classes_told,
    common,
    make,
    number,
    restore_classes,
    restore_common,
    restore_guarantee,
    whole,
)

__all__ = ["restored_federated", "told_federated"]

# Parameters that are numbers or words; the names of the parties, budget and noise_seed are not.
_PARAMS = (
    "epsilon", "delta", "unit", "server", "n_untrusted", "n_rounds", "batch_size", "max_norm",
    "learning_rate", "momentum", "local_steps", "local_learning_rate", "n_records",
)  # fmt: skip
_SETTINGS = ("n_rounds", "batch_size", "max_norm", "learning_rate")


def told_federated(model: DPFederatedClassifier) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the arrays of a fitted model."""
    facts = {
        **common(model),
        "params": {name: getattr(model, name) for name in _PARAMS},
        "classes": classes_told(model.classes_),
        "classes_given": model.classes is not None,
        "privacy": model.privacy_.to_dict(),
        "n_parties_": model.n_parties_,
        "n_rounds_": model.n_rounds_,
        "noise_multiplier_": model.noise_multiplier_,
        "settings_": model.settings_,
    }
    return facts, {"coef_": model.coef_, "intercept_": model.intercept_}


def restored_federated(kind: type, facts: dict[str, Any], arrays: Arrays) -> DPFederatedClassifier:
    """Return the model that facts and arrays describe."""
    told = (
        "n_features_in_", "feature_names", "params", "classes", "classes_given", "privacy",
        "n_parties_", "n_rounds_", "noise_multiplier_", "settings_",
    )  # fmt: skip
    check_names(facts, told)
    model: DPFederatedClassifier = make(kind, facts["params"], _PARAMS)
    d = restore_common(model, facts)
    model.classes_ = restore_classes(facts["classes"])
    if not isinstance(facts["classes_given"], bool):
        raise ValueError(f"classes_given is {facts['classes_given']!r}, neither true nor false")
    model.classes = model.classes_ if facts["classes_given"] else None
    restore_guarantee(model, facts)
    model.n_parties_, model.n_rounds_ = whole(facts, "n_parties_"), whole(facts, "n_rounds_")
    model.noise_multiplier_ = number(facts, "noise_multiplier_")
    settings = check_names(facts["settings_"], _SETTINGS)
    model.settings_ = {
        name: (whole if name in ("n_rounds", "batch_size") else number)(settings, name)
        for name in _SETTINGS
    }
    n_outputs = 1 if len(model.classes_) == 2 else len(model.classes_)
    model.coef_ = arrays.take("coef_", (n_outputs, d))
    model.intercept_ = arrays.take("intercept_", (n_outputs,))
    return model
