"""Train private models and prove how private they are, with the API of scikit-learn.

``import skprivacy`` does not import torch: the neural networks are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ._config import config_context, get_config, set_config
from ._version import __version__

# The subpackage of each public name. The names are resolved on first use.
_PUBLIC = {
    "ALIBIClassifier": "label_privacy",
    "ALMFineTuner": "fine_tuning",
    "AdaSSPRegressor": "linear_model",
    "DPNeuralNet": "neural_network",
    "DPSGDClassifier": "neural_network",
    "DPSGDRegressor": "neural_network",
    "FunctionalMechanismClassifier": "linear_model",
    "FunctionalMechanismRegressor": "linear_model",
    "LP2STClassifier": "label_privacy",
    "LabelPATEClassifier": "label_privacy",
    "LiRA": "attacks",
    "LocalPerturbation": "preprocessing",
    "LossThreshold": "attacks",
    "ObjectivePerturbationClassifier": "linear_model",
    "OutputPerturbationClassifier": "linear_model",
    "PATEClassifier": "ensemble",
    "PrivacyBudget": "accounting",
    "PrivacyGuarantee": "accounting",
    "PrivacySweepCV": "model_selection",
    "RMIA": "attacks",
    "RandomizedResponseClassifier": "label_privacy",
    "Schema": "preprocessing",
    "SchemaTransformer": "preprocessing",
    "ShadowPool": "attacks",
    "audit_one_run": "audit",
    "verify_privacy": "audit",
}

__all__ = ["__version__", "audit", "config_context", "get_config", "set_config", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f".{_PUBLIC[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})


# The function has the name of its subpackage, and the last binding wins.
from .audit import audit  # noqa: E402 (last, not first)
