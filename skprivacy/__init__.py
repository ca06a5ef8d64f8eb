"""Train private models and prove how private they are, with the API of scikit-learn.

``import skprivacy`` loads what is used, when it is used: the accounting needs no attacks, and only
neural networks need torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._config import config_context, get_config, set_config
from ._version import __version__

if TYPE_CHECKING:  # what type checkers and editors see of the names below
    from . import (  # noqa: F401 - subpackages, which are loaded when they are named
        accounting,
        additive_model,
        attacks,
        certificates,
        datasets,
        defenses,
        display,
        ensemble,
        federated,
        fine_tuning,
        label_privacy,
        linear_model,
        mechanisms,
        metrics,
        model_selection,
        neural_network,
        persistence,
        preprocessing,
        sums,
        synthesis,
    )
    from .accounting import PrivacyBudget, PrivacyGuarantee
    from .additive_model import PrivateAdditiveClassifier, PrivateAdditiveRegressor
    from .attacks import RMIA, LiRA, LossThreshold, ShadowPool
    from .audit import audit, audit_one_run, check_disclosure, verify_privacy
    from .certificates import issue_certificate, verify_certificate
    from .ensemble import PATEClassifier
    from .federated import DPFederatedClassifier
    from .fine_tuning import ALMFineTuner
    from .label_privacy import (
        ALIBIClassifier,
        LabelPATEClassifier,
        LP2STClassifier,
        RandomizedResponseClassifier,
    )
    from .linear_model import (
        AdaSSPRegressor,
        FunctionalMechanismClassifier,
        FunctionalMechanismRegressor,
        ObjectivePerturbationClassifier,
        OutputPerturbationClassifier,
    )
    from .model_selection import PrivacySweepCV, PrivateSearchCV, make_leakage_scorer
    from .neural_network import DPNeuralNet, DPSGDClassifier, DPSGDRegressor
    from .persistence import load_model, save_model
    from .preprocessing import LocalPerturbation, Schema, SchemaTransformer, make_private_pipeline
    from .synthesis import MarginalSynthesizer

__all__ = [
    "RMIA",
    "ALIBIClassifier",
    "ALMFineTuner",
    "AdaSSPRegressor",
    "DPFederatedClassifier",
    "DPNeuralNet",
    "DPSGDClassifier",
    "DPSGDRegressor",
    "FunctionalMechanismClassifier",
    "FunctionalMechanismRegressor",
    "LP2STClassifier",
    "LabelPATEClassifier",
    "LiRA",
    "LocalPerturbation",
    "LossThreshold",
    "MarginalSynthesizer",
    "ObjectivePerturbationClassifier",
    "OutputPerturbationClassifier",
    "PATEClassifier",
    "PrivacyBudget",
    "PrivacyGuarantee",
    "PrivacySweepCV",
    "PrivateAdditiveClassifier",
    "PrivateAdditiveRegressor",
    "PrivateSearchCV",
    "RandomizedResponseClassifier",
    "Schema",
    "SchemaTransformer",
    "ShadowPool",
    "__version__",
    "audit",
    "audit_one_run",
    "check_disclosure",
    "config_context",
    "get_config",
    "issue_certificate",
    "load_model",
    "make_leakage_scorer",
    "make_private_pipeline",
    "save_model",
    "set_config",
    "verify_certificate",
    "verify_privacy",
]

# The subpackages, which are loaded when they are named, and the public names of each.
_NAMES: dict[str, tuple[str, ...]] = {
    "accounting": ("PrivacyBudget", "PrivacyGuarantee"),
    "additive_model": ("PrivateAdditiveClassifier", "PrivateAdditiveRegressor"),
    "attacks": ("LiRA", "LossThreshold", "RMIA", "ShadowPool"),
    "audit": ("audit_one_run", "check_disclosure", "verify_privacy"),
    "certificates": ("issue_certificate", "verify_certificate"),
    "datasets": (),
    "defenses": (),
    "display": (),
    "ensemble": ("PATEClassifier",),
    "federated": ("DPFederatedClassifier",),
    "fine_tuning": ("ALMFineTuner",),
    "label_privacy": (
        "ALIBIClassifier",
        "LP2STClassifier",
        "LabelPATEClassifier",
        "RandomizedResponseClassifier",
    ),
    "linear_model": (
        "AdaSSPRegressor",
        "FunctionalMechanismClassifier",
        "FunctionalMechanismRegressor",
        "ObjectivePerturbationClassifier",
        "OutputPerturbationClassifier",
    ),
    "mechanisms": (),
    "metrics": (),
    "model_selection": ("PrivacySweepCV", "PrivateSearchCV", "make_leakage_scorer"),
    "neural_network": ("DPNeuralNet", "DPSGDClassifier", "DPSGDRegressor"),
    "persistence": ("load_model", "save_model"),
    "preprocessing": ("LocalPerturbation", "Schema", "SchemaTransformer", "make_private_pipeline"),
    "sums": (),
    "synthesis": ("MarginalSynthesizer",),
}
_SUBPACKAGES = set(_NAMES)  # audit is one of them, and can be called
_PUBLIC = {name: package for package, names in _NAMES.items() for name in names}


if not TYPE_CHECKING:  # to whom any misspelt name would exist

    def __getattr__(name: str) -> Any:
        if name in _SUBPACKAGES:
            return import_module(f".{name}", __name__)
        if name in _PUBLIC:
            from ._extras import name_missing_extra

            with name_missing_extra():
                found = getattr(import_module(f".{_PUBLIC[name]}", __name__), name)
            globals()[name] = found  # the next look-up finds it there
            return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBPACKAGES})
