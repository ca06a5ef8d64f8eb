"""``skprivacy audit``: test the claim of a saved or a newly trained model by attacks."""

from __future__ import annotations

import argparse
from typing import Any

from ...accounting.budget.signals import signals_held_after_commit
from .. import config_file, data, membership, private_pipeline, registry, release, reports, tables
from ..console import UserError, add_claim, print_message, print_result

EXAMPLES = """\
examples:
  skprivacy audit model.safetensors patients.csv --members members.csv --out audit.html
  skprivacy audit model.safetensors patients.csv --non-members others.csv --claim 1,1e-6
  skprivacy audit model.safetensors patients.csv --members members.csv --budget patients.ledger
      --certificate certificate.json --key hospital.pem
  skprivacy audit digits --epsilon 1 --out audit.html
  skprivacy audit adult --epsilon 0.5 --n-shadows 64 --n-jobs 2
  skprivacy audit patients.csv --target outcome --schema patients.json --subgroups ward
  skprivacy audit houses.parquet --schema houses.json --model AdaSSPRegressor
  skprivacy audit patients.csv --schema patients.json --attack loss,RMIA --set epochs=50

exit codes: 0 no claim was refuted, or there was none, 1 a claim was refuted (violated), 2 an error
in the arguments or the data, 3 the audit says nothing, with or without a claim, because members and
non-members differ without the model, look exchanged, or are copies.
A measured epsilon is a lower bound: it can refute a claim, never prove one. To audit a model of
another library, call skprivacy.audit.audit from Python, or use `skprivacy audit-predictions`.
"""

DEFAULT_ATTACK = "both"

DESCRIPTION = (
    "Attack a saved MODEL with records that it was trained on and others. Without "
    "MODEL, train a private network on a random half of the data and attack it with the other "
    "half."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    config_file.add_argument(parser)
    parser.add_argument(
        "saved",
        metavar="MODEL",
        nargs="?",
        help="the file of `skprivacy train --save` or save_model; nothing in it is executed",
    )
    data.add_arguments(parser)
    membership.add_arguments(parser)
    claim = parser.add_argument_group("claim")
    claim.add_argument("--epsilon", type=float, help="epsilon to train with (default: 1)")
    add_claim(claim, "the model's own claim")
    claim.add_argument(
        "--subgroups", metavar="COLUMN", help="compare the exposure of the values of this column"
    )
    private_pipeline.add_arguments(parser)
    registry.add_arguments(parser, DEFAULT_ATTACK)
    private_pipeline.add_run(parser)
    release.add_arguments(parser)
    output = parser.add_argument_group("output")
    reports.add_arguments(output)
    output.add_argument(
        "--exposed",
        metavar="FILE.csv",
        help="list the training records that stand out, by their row in DATA or by their value of "
        "--groups; no report does this, and the file is as private as the records",
    )


def run(args: argparse.Namespace) -> int:
    """Run the audit; return the exit code of its verdict."""
    from ...audit import audit
    from ...exceptions import BudgetExceededError

    reports.check(args, args.exposed)
    _check_options(args)
    epsilon = 1.0 if args.epsilon is None else args.epsilon
    release.check(args)
    private_pipeline.check(args, epsilon)
    attacks = registry.make_attacks(args)
    if not 0 < args.alpha < 1:
        raise UserError(f"--alpha must be between 0 and 1; got {args.alpha:g}.")
    budget = release.open_budget(args)
    trained, schema = _load_trained(args)
    records = data.load_records(args, schema)
    release.check_schema(args, records.schema)
    if trained is None:
        model = private_pipeline.make_model(records, args, epsilon, budget)
        own, new = records.split_random(0.5, args.seed)
    else:
        model = trained
        own, new = membership.split_by_members(args, records)
    X_train, y_train, whose, rows = own
    X_test, y_test, whose_not, _ = new
    given = private_pipeline.group_arguments(model, whose)
    tried = registry.check_attacks(attacks, model, by_default=args.attack == DEFAULT_ATTACK)
    _check_records(args, tried, own, new)
    if trained is None:
        print_message(f"{records.name}: training on {len(y_train):,} of {len(records.y):,} records")
        try:
            with release.shows_digest(budget), signals_held_after_commit():
                model.fit(X_train, y_train, **given)
                release.save(args, model)  # before the audit, which takes longer
        except BudgetExceededError as error:
            print_result(error)
            return 1
    report = audit(
        model,
        X_train,
        y_train,
        X_test,
        y_test,
        claim=args.claim,
        attacks=tried,
        n_shadows=args.n_shadows,
        alpha=args.alpha,
        subgroups=args.subgroups,
        groups=None if whose is None else (whose, whose_not),
        random_state=args.seed,
        n_jobs=args.n_jobs,
        verbose=not args.quiet,
    )
    print_result(report)
    digest = reports.print_digest(args.saved or args.save)
    known = reports.make_about(
        args, records.name, records.schema, budget, digest,
        **{"splits, shadow models, first weights": args.seed},
    )  # fmt: skip
    reports.write_audit(args, report, known)
    if args.exposed:
        reports.write_exposed(args.exposed, report, rows, whose)
        print_message(
            f"wrote {args.exposed}, which names people's records: keep it as private as {args.data}"
        )
    release.certify(args, model, records.schema, budget, report)
    return exit_code(report)


def exit_code(report: Any) -> int:
    """Return the exit code of an audit's verdict."""
    if report.verdict == "violated":
        return 1
    return 3 if report.doubt else 0


def _check_options(args: argparse.Namespace) -> None:
    """Raise UserError for options of training beside MODEL, or of MODEL without it."""
    of_training: tuple[str, ...] = ("epsilon", "delta", "model", "set", "save")
    if args.certificate is None:  # else the ledger goes into the certificate
        of_training += ("budget",)
    elif args.claim is not None:
        raise UserError("--certificate signs an audit of the model's own claim. Omit --claim.")
    useless = ("known_members", "non_members") if args.saved is None else of_training
    given = [name for name in useless if getattr(args, name) not in (None, [])]
    if not given:
        return
    options = " and ".join(f"--{name.removeprefix('known_').replace('_', '-')}" for name in given)
    if args.saved is None:
        raise UserError(
            f"{options} is for a saved model. Pass MODEL before DATA: skprivacy audit MODEL DATA."
        )
    raise UserError(
        f"{options} is for training, but {args.saved} is trained. Leave it out; --claim is the "
        "claim to test."
    )


def _load_trained(args: argparse.Namespace) -> tuple[Any, Any]:
    """Return the saved model and the schema in it; None and None if a model is to be trained."""
    if args.saved is None:
        return None, None
    from ...persistence import load_model

    tables.check_file(args.saved)
    trained = load_model(args.saved)
    schema = private_pipeline.schema_in(trained)
    if schema is not None and args.schema is not None:
        raise UserError(f"--schema: {args.saved} holds its own schema. Leave --schema out.")
    return trained, schema


def _check_records(args: argparse.Namespace, attacks: Any, own: Any, new: Any) -> None:
    """Raise UserError for records that the audit would refuse, before the model is charged."""
    from ...audit.inspection.member_groups import MemberGroups
    from ...audit.label_audit import FEWEST
    from ...audit.report.findings import group_partitions

    X_train, y_train = own.X, own.y
    if attacks is not None:
        if args.subgroups is not None and args.subgroups not in X_train:
            raise UserError(
                f"--subgroups {args.subgroups!r} is not a column of the model's input. The columns "
                f"are {', '.join(map(str, X_train))}."
            )
        partitions = group_partitions(args.subgroups, X_train, None, new.X, None)
        if own.groups is not None:
            member_groups = MemberGroups.from_pair((own.groups, new.groups), len(own.y), len(new.y))
            for by, pair in partitions.items():
                member_groups.group_values(by, pair)
        return
    if args.subgroups is not None:
        raise UserError(
            "--subgroups compares members, but a guarantee of labels hides no members. Leave it "
            "out."
        )
    if len(y_train) < FEWEST:
        raise UserError(
            f"an audit of labels needs at least {FEWEST} training records, but half of the table "
            f"has {len(y_train)}. Pass more rows."
        )
