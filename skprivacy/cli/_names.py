"""Names of models and attacks for ``--model`` and ``--attack``, without importing them."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from .._torch import torch_is_named
from ._console import UserError

__all__ = ["ATTACKS", "MODELS", "attack_class", "model_class"]

MODELS = {
    "AdaSSPRegressor": "linear_model",
    "ALIBIClassifier": "label_privacy",
    "DPSGDClassifier": "neural_network",
    "DPSGDRegressor": "neural_network",
    "FunctionalMechanismClassifier": "linear_model",
    "FunctionalMechanismRegressor": "linear_model",
    "LabelPATEClassifier": "label_privacy",
    "LP2STClassifier": "label_privacy",
    "ObjectivePerturbationClassifier": "linear_model",
    "OutputPerturbationClassifier": "linear_model",
    "PATEClassifier": "ensemble",
    "PrivateKNNClassifier": "ensemble",
    "RandomizedResponseClassifier": "label_privacy",
}
ATTACKS = (
    "GradientNormAttack", "IndirectInference", "LabelOnlyAttack", "LearnedRatio", "LiRA",
    "LossThreshold", "MLLeaksAttack", "QuantileAttack", "ReferenceThreshold", "RMIA",
    "ShadowThreshold", "ShokriAttack", "SignalThreshold", "StolenMemoriesAttack",
    "StrongestAttack", "SupervisedAttack", "VulnerableRecordsAttack", "WhiteBoxAttack",
)  # fmt: skip


def model_class(name: str) -> Any:
    """Return the class that ``--model`` names, one of ours or a dotted path; or UserError."""
    own = {known.lower(): known for known in MODELS}.get(name.lower())
    if own is not None:
        with torch_is_named():
            return getattr(import_module(f"skprivacy.{MODELS[own]}"), own)
    module, _, last = name.rpartition(".")
    if not module:
        raise UserError(
            f"--model {name!r} is not known. The names are {', '.join(MODELS)}, or the dotted path "
            "of any estimator, such as sklearn.ensemble.RandomForestClassifier."
        )
    try:
        found = getattr(import_module(module), last)
    except (ImportError, AttributeError) as error:
        raise UserError(f"--model {name}: {error}.") from error
    if not inspect.isclass(found) or not hasattr(found, "get_params"):
        raise UserError(
            f"--model {name} is not an estimator. Name a class that has fit and predict."
        )
    return found


def attack_class(name: str) -> Any:
    """Return the class that ``--attack`` names; UserError for an unknown name."""
    own = {known.lower(): known for known in ATTACKS}.get(name.lower())
    if own is None:
        raise UserError(
            f"--attack {name!r} is not known. The names are loss, lira, strongest, both, "
            f"{', '.join(ATTACKS)}."
        )
    return getattr(import_module("skprivacy.attacks"), own)
