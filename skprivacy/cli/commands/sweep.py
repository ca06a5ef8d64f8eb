"""``skprivacy sweep``: utility and leakage at several privacy levels."""

from __future__ import annotations

import argparse
import json
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

from ..._files import write_figure, write_file
from ..._report_facts import Section
from ...accounting.budget.signals import signals_held_after_commit
from .. import config_file, data, private_pipeline, registry, release, reports, scoring
from ..console import UserError, number_list, print_message, print_result

DEFAULT_ATTACK = "loss"

EXAMPLES = """\
examples:
  skprivacy sweep demo --attack strongest --cv 3 --out report.html --plot curve.png
  skprivacy sweep adult --epsilons 0.1 1 10 inf --attack lira --n-shadows 64 --n-jobs 2
  skprivacy sweep patients.csv --target outcome --schema patients.json --out results.csv
  skprivacy sweep houses.parquet --schema houses.json --model AdaSSPRegressor
  skprivacy sweep patients.csv --schema patients.json --subgroups ward --resume patients-sweep
  skprivacy sweep patients.csv --schema patients.json --epsilons 0.3 1 --budget patients.ledger

exit codes: 0 success, 1 refused by the budget, 2 an error.

Reading the result: a smaller epsilon is more private. An attack AUC of 0.5 is guessing. The sweep
itself reads the private data: its scores are not private, and choosing by them costs privacy.
"""

DESCRIPTION = (
    "Cross-validate a private network at several epsilons, attack each model, "
    "print a table and draw the curve."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    config_file.add_argument(parser)
    data.add_arguments(parser)
    sweep = parser.add_argument_group("sweep")
    sweep.add_argument(
        "--epsilons",
        type=number_list,
        nargs="+",
        default=[[0.1, 0.3, 1.0, 3.0, 10.0, math.inf]],
        metavar="E",
        help="privacy levels, separated by spaces or commas; inf is a model without privacy "
        "(default: 0.1 0.3 1 3 10 inf)",
    )
    sweep.add_argument(
        "--cv", type=int, default=5, metavar="K", help="number of splits (default: 5)"
    )
    scoring.add_argument(sweep)
    sweep.add_argument(
        "--subgroups",
        metavar="COLUMN",
        help="compare the loss and the exposure of the values of this column",
    )
    sweep.add_argument(
        "--refit",
        type=float,
        metavar="E",
        help="train a final model for --save on all records, at one of the epsilons, which was "
        "chosen before any score was seen",
    )
    sweep.add_argument(
        "--resume",
        metavar="FOLDER",
        help="store the result of every fit in a folder, from which the same command resumes after "
        "an interruption; stored fits are neither repeated nor charged again",
    )
    private_pipeline.add_arguments(parser)
    registry.add_arguments(parser, DEFAULT_ATTACK)
    private_pipeline.add_run(parser)
    release.add_arguments(parser)
    output = parser.add_argument_group("output")
    reports.add_arguments(output)
    output.add_argument("--plot", metavar="FILE.png", help="write the curve (.png, .svg or .pdf)")


def run(args: argparse.Namespace) -> int:
    """Run the sweep; return the exit code."""
    from ...exceptions import BudgetExceededError

    # Imported before any charge: a failing import would lose paid results.
    import_module("skprivacy.model_selection.sweep_report")
    epsilons = [epsilon for part in args.epsilons for epsilon in part]
    _check(args, epsilons)
    attacks = registry.make_attacks(args)
    if len(attacks) > 1:
        raise UserError(f"--attack must be one attack for a sweep; got {args.attack!r}.")
    budget = release.open_budget(args)
    records = data.load_records(args)
    release.check_schema(args, records.schema)
    _check_records(args, records)
    for epsilon in epsilons:
        private_pipeline.group_arguments(
            private_pipeline.make_model(records, args, epsilon), records.groups
        )
    scorers = scoring.choose_scorers(args, records.X, records.y, classifies=records.classifies)
    sweep = _sweep(args, records, epsilons, attacks, budget, scorers)
    print_message(f"{records.name}: {len(records.y):,} records, {records.schema!r}")
    try:
        with (
            release.shows_digest(budget),
            signals_held_after_commit(),
        ):  # a signal waits until the results of a charge are stored
            sweep.fit(records.X, records.y, groups=records.groups, subgroups=args.subgroups)
            _save_results(args, sweep, records, budget)
    except BudgetExceededError as error:
        print_result(error)
        return 1
    if args.refit is not None:
        print_result(
            f"\nModel of --refit {args.refit:g}, if this epsilon was chosen before any score was "
            "seen:"
        )
        release.print_claim(sweep.estimator_)
        release.certify(args, sweep.estimator_, records.schema, budget)
    return 0


def _save_results(args: argparse.Namespace, sweep: Any, records: data.Records, budget: Any) -> None:
    """Save the final model, if there is one; print the results and write the reports."""
    from ...model_selection.sweep_report import caveats_of_sweep, sweep_facts, table

    try:
        if args.refit is not None:
            release.save(args, sweep.estimator_)
    finally:  # the results have been paid for, even if the model could not be saved
        results, caveats = table(sweep), caveats_of_sweep(sweep)
        if records.schema.unconfirmed:
            read_off = "Bounds and categories were read off the data; no guarantee covers that."
            caveats.insert(0, read_off)
        facts = sweep_facts(sweep, caveats)
        for section in facts.sections[:-1]:
            _print_section(section)
        if args.subgroups and not any(section.key == "by_group" for section in facts.sections):
            print_result(f"\nNo value of {args.subgroups} has five test records in every split.")
        n_models = int((~results["baseline"]).sum()) * args.cv
        print_result(f"\nReleasing these {n_models} models would cost {facts.head.sentence}.")
        _print_section(facts.sections[-1])
        print_result("The scores are not private.")
        _write(args, sweep, results, caveats, records, budget)


def _print_section(section: Section) -> None:
    """Print the table of a section, and its sentences outside the table."""
    if section.facts:
        print_result(f"\n{section.title}:")
    if section.rows:
        rows = [
            [cell if isinstance(cell, str) else f"{cell[0].strip()} ({cell[1]})" for cell in row]
            for row in section.rows
        ]
        titles = pd.MultiIndex.from_tuples([(c.title, c.note) for c in section.columns])
        print_result(pd.DataFrame(rows, columns=titles).to_string(index=False))
    for text in filter(None, (*(fact.sentence for fact in section.sentences), section.outro)):
        print_result(text)


def _check(args: argparse.Namespace, epsilons: list[float]) -> None:
    """Raise UserError for arguments that are wrong for any data."""
    reports.check(args, args.plot)
    release.check(args)
    if args.plot and Path(args.plot).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UserError(f"--plot must end in .png, .svg or .pdf; got {args.plot!r}.")
    private_pipeline.check(args, *epsilons)
    scoring.check(args)
    if args.cv < 2:
        raise UserError(f"--cv must be at least 2; got {args.cv}.")
    if args.refit is not None and args.refit not in epsilons:
        known = " ".join(f"{epsilon:g}" for epsilon in epsilons)
        raise UserError(f"--refit {args.refit:g} must be one of --epsilons {known}.")
    if (args.refit is None) != (args.save is None):
        raise UserError(
            "--refit EPSILON trains the only model that --save FILE.safetensors can save. Pass "
            "both or neither."
        )
    if args.budget is not None and math.inf in epsilons:
        raise UserError(
            "--epsilons holds inf, which no budget can pay for. Leave it out: the baselines show "
            "the score without privacy."
        )
    if args.resume is not None and Path(args.resume).is_file():
        raise UserError(f"--resume {args.resume} is a file. Name a folder for the results.")


def _check_records(args: argparse.Namespace, records: data.Records) -> None:
    """Raise UserError for arguments that do not fit the data."""
    if args.subgroups is not None and args.subgroups not in records.X:
        raise UserError(
            f"--subgroups {args.subgroups!r} is not a column of the model's input. The columns are "
            f"{', '.join(map(str, records.X))}."
        )
    if records.classifies:
        rarest = np.unique(records.y, return_counts=True)[1].min()
        if rarest < args.cv:
            raise UserError(
                f"the rarest class has {rarest} records, fewer than --cv {args.cv}. Use fewer "
                "splits."
            )


def _sweep(
    args: argparse.Namespace,
    records: data.Records,
    epsilons: list[float],
    attacks: list[Any],
    budget: Any,
    scorers: dict[str, Any],
) -> Any:
    from ...model_selection import PrivacySweepCV

    model = private_pipeline.make_model(records, args, 1.0, budget)
    tried = registry.check_attacks(attacks, model, by_default=args.attack == DEFAULT_ATTACK)
    return PrivacySweepCV(
        model,
        epsilons=epsilons,
        attack=tried and tried[0],
        cv=_folds(args, records),
        scoring=scorers if args.scoring or len(scorers) > 1 else None,
        n_jobs=args.n_jobs,
        verbose=not args.quiet,
        refit=args.refit,
        path=args.resume,
    )


def _folds(args: argparse.Namespace, records: data.Records) -> Any:
    """Return a splitter into random folds, of whole groups if there are groups."""
    splits = StratifiedKFold if records.classifies else KFold
    if records.groups is not None:
        splits = GroupKFold
        if records.groups.nunique() < args.cv:
            raise UserError(
                f"there are {records.groups.nunique()} values of {args.groups}, fewer than --cv "
                f"{args.cv}. Use fewer splits."
            )
    return splits(args.cv, shuffle=True, random_state=args.seed)


def _write(
    args: argparse.Namespace, sweep: Any, table: pd.DataFrame, caveats: list[str], records: Any,
    budget: Any,
) -> None:  # fmt: skip
    from ...model_selection.sweep_report import draw_figure, page, sweep_to_dict

    suffix = Path(args.out).suffix.lower() if args.out else ""
    known = reports.make_about(
        args, records.name, records.schema, budget, **{"splits, first weights": args.seed}
    )
    if suffix == ".csv":
        reports.write_table(args.out, table)
    if suffix == ".json":
        stated = sweep_to_dict(sweep, known, caveats)
        write_file(args.out, json.dumps(stated, indent=2, allow_nan=False) + "\n")
    if args.plot or suffix in reports.PAGES:
        figure = draw_figure(sweep)
        if args.plot:
            write_figure(args.plot, figure, dpi=160)
        if suffix in reports.PAGES:
            write_file(args.out, page(sweep, known, caveats, figure))
    for name in filter(None, (args.out, args.plot)):
        print_message(f"wrote {name}")
