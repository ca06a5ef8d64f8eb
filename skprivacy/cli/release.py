"""Release of a trained model: its file, its certificate, and the charge to a budget."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from ..accounting import LedgerError, PrivacyBudget
from ..accounting.budget.statement import SHORTEST_DIGEST
from ..audit import claim_of
from .console import UserError, check_outputs, print_message, print_result

PASSWORD = "SKPRIVACY_KEY_PASSWORD"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for charges, saved models and certificates."""
    group = parser.add_argument_group("release")
    group.add_argument(
        "--save", metavar="FILE.safetensors", help="write the trained model, without pickle"
    )
    group.add_argument(
        "--budget",
        metavar="LEDGER",
        help="charge a privacy budget (see `skprivacy budget create`), which refuses releases "
        "beyond its cap",
    )
    group.add_argument("--scope", default="/", help="part of the budget (default: the whole)")
    group.add_argument(
        "--new-scope", action="store_true", help="allow a scope without a cap or a charge"
    )
    add_expect(group)
    group.add_argument(
        "--certificate",
        metavar="FILE.json",
        help="write a signed certificate of the saved model, for `skprivacy verify`; only that of "
        "`skprivacy audit` holds an audit",
    )
    group.add_argument(
        "--key",
        metavar="FILE.pem",
        help=f"private key of the certificate (see `skprivacy key`); the variable {PASSWORD} is "
        "its password, if it has one",
    )
    group.add_argument(
        "--issuer", default="", metavar="NAME", help="person or office responsible for it"
    )


def check(args: argparse.Namespace) -> None:
    """Raise UserError for outputs that cannot be written or charged, before any training."""
    check_outputs(args.save, args.certificate)
    if args.expect is not None and args.budget is None:
        raise UserError("--expect is the digest of a ledger. Pass --budget LEDGER as well.")
    if args.save and Path(args.save).suffix != ".safetensors":
        raise UserError(f"--save must end in .safetensors; got {args.save!r}.")
    if args.save:
        # Imported before any charge: a failing import would lose the paid model.
        import_module("skprivacy.persistence")
    if args.certificate is None:
        return
    if not _model_file(args) or not args.key:
        raise UserError(
            "--certificate signs a saved model with a key. Pass --save FILE.safetensors and "
            "--key FILE.pem."
        )
    from ..certificates.signing import private_key

    private_key(args.key, os.environ.get(PASSWORD))


def check_schema(args: argparse.Namespace, schema: Any) -> None:
    """Raise UserError for a certificate without a proved guarantee, before any training."""
    if args.certificate and schema.unconfirmed:
        raise UserError(
            "--certificate states a proved guarantee, but the schema was read off the data. "
            f"Confirm by `skprivacy schema confirm`: {', '.join(schema.unconfirmed)}."
        )


def open_budget(args: argparse.Namespace) -> PrivacyBudget | None:
    """Return the budget to charge, if any."""
    if args.budget is None:
        return None
    return open_ledger(args.budget, args.scope, args.new_scope, args.expect)


def ledger_digest(budget: PrivacyBudget | None) -> str:
    """Return the last digest of a ledger, which identifies it."""
    return "" if budget is None else budget.verify()


def save(args: argparse.Namespace, model: Any) -> None:
    """Write the model if ``--save`` is given.

    If that fails, as on a full disk, the paid model goes to a temporary folder, and UserError names
    it. A model that cannot be saved without pickle goes there as a joblib file.
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
        reason = str(error).rstrip(".")
        raise UserError(f"{reason}. The trained model is in {elsewhere}: move it.") from error
    print_message(f"wrote {args.save}")


def print_claim(model: Any) -> None:
    """Print the guarantee of a fitted model, and its steps without one."""
    claim = claim_of(model)
    print_result(f"guarantee: {claim.guarantee or claim.reason}")
    for name, why in claim.uncovered.items():
        print_result(f"  not covered: {name}: {why}")


def certify(
    args: argparse.Namespace, model: Any, schema: Any, budget: Any, report: Any = None
) -> None:
    """Write the certificate of the saved model if ``--certificate`` is given."""
    if args.certificate is None:
        return
    from ..certificates import issue_certificate

    issue_certificate(
        model, args.certificate, key=args.key, model_file=_model_file(args), budget=budget,
        report=report, schema=schema, issuer=args.issuer, password=os.environ.get(PASSWORD),
    )  # fmt: skip
    print_message(f"wrote {args.certificate}")
    if report is None:
        print_message(
            "It holds no audit. `skprivacy audit MODEL DATA --certificate` writes one that does."
        )


def _model_file(args: argparse.Namespace) -> str:
    """Return the file of the model: MODEL of `skprivacy audit`, or the one written; or nothing."""
    return getattr(args, "saved", None) or args.save or ""


def add_expect(parser: Any) -> None:
    """Add the option that refuses a ledger restored from an older copy."""
    parser.add_argument(
        "--expect",
        metavar="DIGEST",
        help="ledger digest printed by an earlier command; a ledger without this line is refused "
        "before anything is charged",
    )


@contextmanager
def shows_digest(budget: PrivacyBudget | None) -> Iterator[None]:
    """Show the ledger's digest after a charge, even if the release failed."""
    try:
        yield
    finally:
        if budget is not None:
            with suppress(LedgerError):  # the charge already warned that it cannot be read
                print_result(f"ledger digest: {budget.digest[:SHORTEST_DIGEST]}")


def open_ledger(
    ledger: str, scope: str, new_scope: bool | None = None, expect: str | None = None
) -> PrivacyBudget:
    """Open a ledger that holds the digest ``expect``; ``new_scope`` allows an unknown scope."""
    if _is_file_ledger(ledger) and not Path(ledger).exists():
        raise UserError(f"the ledger {ledger} does not exist; see `skprivacy budget create`.")
    with _explain_bad_file(ledger):
        budget = PrivacyBudget.open(ledger, scope)
    if expect is not None:
        budget.verify(expect)
    if not new_scope:
        _check_scope(budget, may_begin=new_scope is not None)
    return budget


def _is_file_ledger(ledger: str) -> bool:
    return not ledger.startswith(("postgresql://", "postgres://"))


@contextmanager
def _explain_bad_file(ledger: str) -> Iterator[None]:
    """Turn the error of a file that is not a ledger into a UserError."""
    try:
        yield
    except LedgerError as error:
        cause = str(error.__cause__)
        if "not a database" not in cause and "no such table" not in cause:
            raise
        raise UserError(
            f"{ledger} is not a privacy ledger, or it is damaged ({cause}). Check the path."
        ) from error


def _check_scope(budget: PrivacyBudget, may_begin: bool) -> None:
    """Raise UserError for a scope without cap or charge: a mistyped name would escape its cap."""
    known = {""}
    for record in budget._ledger.records():
        parts = record.scope.strip("/").split("/")
        known |= {"/".join(parts[: n + 1]) for n in range(len(parts))}
    scope = budget._scope.strip("/")
    if scope not in known:
        names = ", ".join(sorted(known - {""}))
        raise UserError(
            f"the budget has no scope {scope!r}; "
            + (f"the scopes are {names}." if names else "it has no scopes yet.")
            + (" Add --new-scope to charge a new one." if may_begin else "")
        )
