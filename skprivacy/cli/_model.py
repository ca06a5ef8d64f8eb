"""The model trained by the commands: public preprocessing and a private network."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline

from ..attacks import LiRA, LossThreshold, MembershipAttack, StrongestAttack
from ..preprocessing import SchemaTransformer
from ._console import UserError
from ._data import Records

__all__ = ["add_arguments", "make_attacks", "make_model"]

ATTACKS = {
    "loss": "threshold on the loss, needs no training",
    "lira": "likelihood ratio with shadow models, much stronger",
    "strongest": "whichever finds most members of shadow models",
    "both": "loss and strongest",
}


def add_arguments(parser: argparse.ArgumentParser, attacks: list[str], attack: str) -> None:
    """Add the arguments for the model, the attack and the run."""
    group = parser.add_argument_group("model and attack")
    group.add_argument(
        "--delta",
        type=float,
        default=1e-6,
        help="probability that the limit epsilon fails; choose it far below 1 over the number of "
        "records (default: %(default)s)",
    )
    group.add_argument(
        "--attack",
        choices=attacks,
        default=attack,
        help=f"{'; '.join(f'{name}: {ATTACKS[name]}' for name in attacks)} (default: %(default)s)",
    )
    group.add_argument(
        "--n-shadows",
        type=int,
        default=16,
        metavar="N",
        help="number of shadow models, even; not for loss (default: %(default)s)",
    )
    run = parser.add_argument_group("run")
    run.add_argument(
        "--seed", type=int, default=0, help="seed of splits and initial weights (default: 0)"
    )
    run.add_argument(
        "--n-jobs",
        type=int,
        default=None,
        metavar="N",
        help="train N models in parallel; -1: all cores",
    )
    run.add_argument("--quiet", action="store_true", help="no progress bar")


def make_model(records: Records, args: argparse.Namespace, epsilon: float) -> Any:
    """Return the unfitted pipeline.

    Raises
    ------
    UserError
        If epsilon or delta is out of range.
    """
    from ..neural_network import DPSGDClassifier  # imports torch

    if not epsilon > 0:
        raise UserError(f"epsilon must be positive; got {epsilon:g}.")
    if not 0 < args.delta < 1:
        raise UserError(f"--delta must be between 0 and 1; got {args.delta:g}.")
    if args.delta * len(records.y) >= 1:
        raise UserError(
            f"--delta {args.delta:g} must be below 1 over the {len(records.y)} records: otherwise "
            "publishing somebody's record would be allowed. Give a much smaller one."
        )
    return make_pipeline(
        SchemaTransformer(records.schema, dtype=np.float32),
        DPSGDClassifier(
            epsilon=epsilon, delta=args.delta, classes=records.classes, random_state=args.seed
        ),
    )


def make_attacks(args: argparse.Namespace) -> list[MembershipAttack]:
    """Return the requested attacks."""
    shadowed = {"n_shadows": args.n_shadows, "random_state": args.seed}
    offered: dict[str, list[MembershipAttack]] = {
        "loss": [LossThreshold()],
        "lira": [LiRA(**shadowed)],
        "strongest": [StrongestAttack(online=True, **shadowed)],
        "both": [LossThreshold(), StrongestAttack(online=True, **shadowed)],
    }
    if args.attack != "loss" and (args.n_shadows < 2 or args.n_shadows % 2):
        raise UserError(f"--n-shadows must be an even number of at least 2; got {args.n_shadows}.")
    return offered[args.attack]
