"""Attacks of the commands, by name, and the models that they apply to."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from sklearn.base import is_regressor

from ..audit._private import holds_private_labels
from ..audit.labels import NOT_MEMBERSHIP
from ._console import UserError
from ._names import attack_class

__all__ = ["add_arguments", "check_attacks", "make_attacks"]

_SHORT = {"loss": "LossThreshold", "lira": "LiRA", "strongest": "StrongestAttack"}
_BOTH = "loss,strongest"


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
        if "n_shadows" in known and (args.n_shadows < 2 or args.n_shadows % 2):
            raise UserError(
                f"--n-shadows must be an even number of at least 2; got {args.n_shadows}."
            )
        given = {"n_shadows": args.n_shadows, "random_state": args.seed}
        if kind.__name__ == "StrongestAttack":
            given["online"] = True
        made.append(kind(**{k: value for k, value in given.items() if k in known}))
    return made


def check_attacks(attacks: list[Any], model: Any, *, by_default: bool) -> list[Any] | None:
    """Return the attacks on a model; None for the default attack on labels.

    Raises UserError, before the model is charged, if an attack does not apply to it.
    """
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
