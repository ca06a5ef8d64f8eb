"""``skprivacy train``: train a private model on a table, state its guarantee and save it."""

from __future__ import annotations

import argparse
from typing import Any

from ...accounting.budget.signals import signals_held_after_commit
from .. import config_file, data, membership, private_pipeline, release, scoring
from ..console import UserError, check_outputs, print_message, print_result

EXAMPLES = """\
examples:
  skprivacy train patients.csv --schema patients.json --epsilon 1 --save model.safetensors
  skprivacy train patients.csv --schema patients.json --budget patients.ledger --hold-out 0.2
  skprivacy train patients.csv --schema patients.json --hold-out 0.5 --members members.csv
  skprivacy train houses.parquet --schema houses.json --model AdaSSPRegressor --save m.safetensors
  skprivacy train houses.parquet --schema houses.json --model AdaSSPRegressor --engine duckdb
  skprivacy train patients.csv --schema patients.json --model PATEClassifier --public agreed.csv
  skprivacy train --config run.toml --epsilon 3

exit codes: 0 success, 1 refused by the budget, 2 an error.
"""

DESCRIPTION = "Train a private model on a table, print its guarantee, and save it."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    config_file.add_argument(parser)
    data.add_arguments(parser)
    claim = parser.add_argument_group("claim")
    claim.add_argument(
        "--epsilon", type=float, default=1.0, help="epsilon of the claim (default: %(default)s)"
    )
    private_pipeline.add_arguments(parser)
    data.add_argument(parser)
    run_group = private_pipeline.add_run(parser)
    data.add_engine(run_group)
    run_group.add_argument(
        "--hold-out",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of the records to keep out of training; prints the score on them, which is not "
        "private, beside that of always guessing alike (default: 0)",
    )
    run_group.add_argument(
        "--members",
        metavar="FILE.csv",
        help="write which rows of DATA were trained on and which were kept out, for `skprivacy "
        "audit`; the file is as private as the records",
    )
    scoring.add_argument(run_group)
    release.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Train the model; return the exit code."""
    from ...exceptions import BudgetExceededError

    private_pipeline.check(args, args.epsilon)
    release.check(args)
    if not 0 <= args.hold_out < 1:
        raise UserError(f"--hold-out must be at least 0 and below 1; got {args.hold_out:g}.")
    scoring.check(args)
    if args.scoring and not args.hold_out:
        raise UserError("--scoring scores the records that --hold-out kept out. Pass both.")
    check_outputs(args.members)
    if args.members and not args.hold_out:
        raise UserError("--members states which records --hold-out kept out. Pass both.")
    budget = release.open_budget(args)
    X: Any
    y: Any
    if args.engine:
        records, X, y = data.open_engine_records(args)
    else:
        records = data.load_records(args)
    release.check_schema(args, records.schema)
    model = private_pipeline.make_model(records, args, args.epsilon, budget)
    public = data.fit_arguments(args, model, records)
    own, new = records.select(slice(None)), records.select(slice(0))
    if args.hold_out:
        own, new = records.split_random(args.hold_out, args.seed)
    scorers = {}
    if args.hold_out:  # chosen by the held-out records alone
        scorers = scoring.choose_scorers(args, new.X, new.y, classifies=records.classifies)
    groups = own.groups
    if args.engine:
        data.check_engine_model(model, args.engine)
        groups = args.groups
        print_message(f"{records.name}: training by sums that {args.engine} reads")
    else:
        X, y = own.X, own.y
        print_message(f"{records.name}: training on {len(own.y):,} of {len(records.y):,} records")
    given = public | private_pipeline.group_arguments(model, groups)
    try:
        with release.shows_digest(budget), signals_held_after_commit():
            model.fit(X, y, **given)
            try:
                # Before anything is printed: the output may have no reader.
                release.save(args, model)
                if args.members:
                    membership.write_members(args.members, own.rows, len(records.y))
                    print_message(f"wrote {args.members}: keep it as private as {args.data}")
            finally:
                release.print_claim(model)
    except BudgetExceededError as error:
        print_result(error)
        return 1
    if len(new.y):
        scoring.print_scores(model, scorers, new.X, new.y)
    if args.save is None:
        print_message("The model was not saved. Pass --save model.safetensors to save it.")
    release.certify(args, model, records.schema, budget)
    return 0
