"""What a command hands out of a trained model: its file and its certificate; and who is charged."""

from __future__ import annotations

import argparse
import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from ..accounting import PrivacyBudget
from ..audit import claim_of
from ._console import UserError, check_outputs, say, show
from .budget import add_expect, open_ledger, shows_digest

__all__ = [
    "PASSWORD",
    "add_arguments",
    "certify",
    "check",
    "check_schema",
    "ledger_digest",
    "open_budget",
    "save",
    "shows_digest",
    "tell_claim",
]

PASSWORD = "SKPRIVACY_KEY_PASSWORD"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of what is charged and written."""
    group = parser.add_argument_group("release")
    group.add_argument(
        "--save", metavar="FILE.safetensors", help="write the trained model, without pickle"
    )
    group.add_argument(
        "--budget",
        metavar="LEDGER",
        help="charge a privacy budget (see `skprivacy budget create`), which refuses what exceeds "
        "its cap",
    )
    group.add_argument("--scope", default="/", help="part of the budget (default: the whole)")
    group.add_argument(
        "--new-scope", action="store_true", help="allow a scope without a cap or a charge"
    )
    add_expect(group)
    group.add_argument(
        "--certificate",
        metavar="FILE.json",
        help="write a signed certificate of the saved model, for `skprivacy verify`",
    )
    group.add_argument(
        "--key",
        metavar="FILE.pem",
        help=f"private key of the certificate (see `skprivacy key`); the variable {PASSWORD} is "
        "its password, if it has one",
    )
    group.add_argument("--issuer", default="", metavar="NAME", help="who answers for it")


def check(args: argparse.Namespace) -> None:
    """Raise UserError for what could not be written or charged, before any training."""
    check_outputs(args.save, args.certificate)
    if args.expect is not None and args.budget is None:
        raise UserError("--expect is the digest of a ledger. Pass --budget LEDGER as well.")
    if args.save and Path(args.save).suffix != ".safetensors":
        raise UserError(f"--save must end in .safetensors; got {args.save!r}.")
    if args.save:
        import_module("skprivacy.persistence")  # a failing import would lose the paid model
    if args.certificate is None:
        return
    if not args.save or not args.key:
        raise UserError(
            "--certificate is about a file and signed with a key. Pass --save FILE.safetensors and "
            "--key FILE.pem."
        )
    from ..certificates.signing import private_key

    private_key(args.key, os.environ.get(PASSWORD))


def check_schema(args: argparse.Namespace, schema: Any) -> None:
    """Raise UserError for a certificate of what no guarantee will cover, before any training."""
    if args.certificate and schema.unconfirmed:
        raise UserError(
            "--certificate states a proved guarantee, and the schema was read off the data. "
            f"Confirm by `skprivacy schema confirm`: {', '.join(schema.unconfirmed)}."
        )


def open_budget(args: argparse.Namespace) -> PrivacyBudget | None:
    """Return the budget that is to be charged, if any."""
    if args.budget is None:
        return None
    return open_ledger(args.budget, args.scope, args.new_scope, args.expect)


def ledger_digest(budget: PrivacyBudget | None) -> str:
    """Return the last digest of a ledger, by which it is recognised."""
    return "" if budget is None else budget.verify()


def save(args: argparse.Namespace, model: Any) -> None:
    """Write the model, if that was asked for.

    Raises
    ------
    UserError
        If the file cannot be written, such as on a full disk, or the model has no file without
        pickle. It has been paid for, and goes to the folder of temporary files instead.
    """
    if args.save is None:
        return
    from ..persistence import save_model

    try:
        save_model(model, args.save)
    except (OSError, ValueError) as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="skprivacy-model-"), Path(args.save).name)
        if isinstance(error, OSError):
            save_model(model, elsewhere)
        else:
            import joblib

            elsewhere = elsewhere.with_suffix(".joblib")
            joblib.dump(model, elsewhere)
        told = str(error).rstrip(".")
        raise UserError(f"{told}. The trained model is in {elsewhere}: move it.") from error
    say(f"wrote {args.save}")


def tell_claim(model: Any) -> None:
    """Print what is guaranteed of a fitted model, and which of its steps is not covered."""
    claim = claim_of(model)
    show(f"guarantee: {claim.guarantee or claim.reason}")
    for name, why in claim.uncovered.items():
        show(f"  not covered: {name}: {why}")


def certify(
    args: argparse.Namespace, model: Any, schema: Any, budget: Any, report: Any = None
) -> None:
    """Write the certificate of the model that was saved, if that was asked for.

    Raises
    ------
    ValueError
        If the model has no guarantee that a certificate could state.
    """
    if args.certificate is None:
        return
    from ..certificates import certificate

    certificate(
        model, args.certificate, key=args.key, model_file=args.save, budget=budget, report=report,
        schema=schema, issuer=args.issuer, password=os.environ.get(PASSWORD),
    )  # fmt: skip
    say(f"wrote {args.certificate}")
