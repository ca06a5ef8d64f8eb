"""Names of models and attacks for ``--model`` and ``--attack``, without importing them.

The attacks of a command depend on the models that they apply to: see :func:`make_attacks`.
"""

from __future__ import annotations

import argparse
import inspect
from importlib import import_module
from typing import Any

from sklearn.base import is_regressor

from .._extras import name_missing_extra
from ..audit.inspection.claims import NOT_MEMBERSHIP
from ..audit.inspection.guarantees import holds_private_labels
from .console import UserError

_SHORT = {"loss": "LossThreshold", "lira": "LiRA", "strongest": "StrongestAttack"}
_BOTH = "loss,strongest"
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
    "PrivateAdditiveClassifier": "additive_model",
    "PrivateAdditiveRegressor": "additive_model",
    "PrivateKNNClassifier": "ensemble",
    "RandomizedResponseClassifier": "label_privacy",
}
ATTACKS = (
    "IndirectInference", "LabelOnlyAttack", "LearnedRatio", "LiRA",
    "LossThreshold", "MLLeaksAttack", "QuantileAttack", "ReferenceThreshold", "RMIA",
    "ShadowThreshold", "ShokriAttack", "SignalThreshold", "StolenMemoriesAttack",
    "StrongestAttack", "SupervisedAttack", "VulnerableRecordsAttack", "WhiteBoxAttack",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser, attack: str) -> None:
    """Add the arguments for the attack."""
    group = parser.add_argument_group("attack")
    group.add_argument(
        "--attack",
        default=attack,
        metavar="NAME[,NAME]",
        help="loss: threshold on the loss, needs no training; lira: likelihood ratio with shadow "
        "models, much stronger; strongest: the attack that finds most members of the shadow "
        "models; both: loss and strongest; or the name of any attack in skprivacy.attacks, such as "
        "RMIA (default: %(default)s)",
    )
    group.add_argument(
        "--n-shadows",
        type=int,
        default=16,
        metavar="N",
        help="number of shadow models, even; not for loss (default: %(default)s)",
    )


def make_attacks(args: argparse.Namespace) -> list[Any]:
    """Return the attacks that ``--attack`` names."""
    made = []
    for name in args.attack.replace("both", _BOTH).split(","):
        kind = attack_class(_SHORT.get(name.strip(), name.strip()))
        known = inspect.signature(kind).parameters
        if "pool" in known and (args.n_shadows < 2 or args.n_shadows % 2):
            raise UserError(
                f"--n-shadows must be an even number of at least 2; got {args.n_shadows}."
            )
        given = {"pool": args.n_shadows, "random_state": args.seed}
        if kind.__name__ == "StrongestAttack":
            given["online"] = True
        made.append(kind(**{k: value for k, value in given.items() if k in known}))
    return made


def check_attacks(attacks: list[Any], model: Any, *, by_default: bool) -> list[Any] | None:
    """Return the attacks on a model, None for its default on labels; UserError if one is not."""
    if holds_private_labels(model):
        if by_default:
            return None
        raise UserError(f"--attack is on membership, and {NOT_MEMBERSHIP}. Leave --attack out.")
    if is_regressor(model) and (blind := [a for a in attacks if a._needs_classes]):
        raise UserError(
            f"--attack {type(blind[0]).__name__} compares classes, but the target holds numbers. "
            "Use loss, lira, RMIA or strongest, which compare errors."
        )
    return attacks


def model_class(name: str) -> Any:
    """Return the class that ``--model`` names, one of ours or a dotted path; or UserError."""
    own = {known.lower(): known for known in MODELS}.get(name.lower())
    if own is not None:
        with name_missing_extra():
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
