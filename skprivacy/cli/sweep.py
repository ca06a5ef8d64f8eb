"""``skprivacy sweep``: utility and leakage at several privacy levels."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold, StratifiedKFold

from . import _config_file, _data, _model, _report
from ._console import UserError, number_list, say, show

__all__ = ["add_parser", "run"]

EXAMPLES = """\
examples:
  skprivacy sweep demo --out report.html --plot curve.png
  skprivacy sweep adult --epsilons 0.1 1 10 inf --attack lira --n-shadows 64 --n-jobs 2
  skprivacy sweep patients.csv --target outcome --schema patients.json --csv results.csv

Reading the result: a smaller epsilon is more private. An attack AUC of 0.5 is guessing. The sweep
itself reads the private data: its scores are not private, and choosing by them costs privacy.
"""


def add_parser(subparsers: Any, text: str) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "sweep",
        help=text,
        description="Cross-validate a private network at several epsilons, attack each model, "
        "print a table and draw the curve.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _config_file.add_argument(parser)
    _data.add_arguments(parser)
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
    _model.add_arguments(parser)
    _model.add_attack(parser, "loss")
    _model.add_run(parser)
    output = parser.add_argument_group("output")
    _report.add_arguments(output)
    output.add_argument("--plot", metavar="FILE.png", help="write the curve (.png, .svg or .pdf)")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the sweep; return the exit code."""
    from ..model_selection import PrivacySweepCV
    from ..model_selection._page import cost_in_words, table

    _report.check(args, args.plot)
    epsilons = [epsilon for part in args.epsilons for epsilon in part]
    if args.plot and Path(args.plot).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UserError(f"--plot must end in .png, .svg or .pdf; got {args.plot!r}.")
    _model.check(args, *epsilons)
    attacks = _model.make_attacks(args)
    if len(attacks) > 1:
        raise UserError(f"--attack must be one attack for a sweep; got {args.attack!r}.")
    if args.cv < 2:
        raise UserError(f"--cv must be at least 2; got {args.cv}.")
    records = _data.load(args)
    if not records.classifies:
        raise UserError(
            f"the target of {records.name} holds numbers, and a sweep compares classifiers by "
            "their accuracy. Sweep a classification, or call PrivacySweepCV from Python."
        )
    rarest = np.unique(records.y, return_counts=True)[1].min()
    if rarest < args.cv:
        raise UserError(
            f"the rarest class has {rarest} records, fewer than --cv {args.cv}. Use fewer splits."
        )
    for epsilon in epsilons:
        _model.grouped(_model.make_model(records, args, epsilon), records.groups)
    say(f"{records.name}: {len(records.y):,} records, {records.schema!r}")
    sweep = PrivacySweepCV(
        _model.make_model(records, args, epsilon=1.0),
        epsilons=epsilons,
        attack=attacks[0],
        cv=_folds(args, records),
        n_jobs=args.n_jobs,
        verbose=not args.quiet,
    ).fit(records.X, records.y, groups=records.groups)
    results = table(sweep)
    show(_printable(results))
    cost = cost_in_words(sweep)
    show(f"\nReleasing these {len(epsilons) * args.cv} models would cost {cost}, assuming:")
    for assumption in sweep.charged_.assumptions:
        show(f"  - {assumption}")
    show("The scores are not private.")
    _write(args, sweep, results, records)
    return 0


def _folds(args: argparse.Namespace, records: _data.Records) -> Any:
    """Return a splitter into random folds, of people if they are known."""
    if records.groups is None:
        return StratifiedKFold(args.cv, shuffle=True, random_state=args.seed)
    if records.groups.nunique() < args.cv:
        raise UserError(
            f"there are {records.groups.nunique()} values of {args.groups}, fewer than --cv "
            f"{args.cv}. Use fewer splits."
        )
    return GroupKFold(args.cv, shuffle=True, random_state=args.seed)


def _printable(table: pd.DataFrame) -> str:
    def spread(key: str) -> pd.Series:
        return table[key].map("{:.3f}".format) + " ± " + table[f"{key}_std"].map("{:.3f}".format)

    epsilons = table["epsilon"].map("{:g}".format)
    shown = pd.DataFrame(
        {
            "epsilon": table["model"].where(table["baseline"], epsilons),
            "test accuracy": spread("test_score"),
            "train accuracy": spread("train_score"),
            "attack AUC": spread("attack_auc"),
            "ceiling": table["attack_auc_bound"].map("{:.3f}".format).replace("nan", "-"),
            "TPR at 1% FPR": table["attack_tpr_at_0.01"].map("{:.3f}".format).replace("nan", "-"),
            "seconds a fit": table["fit_time"].map("{:.1f}".format),
        }
    )
    return shown.to_string(index=False)


def _write(args: argparse.Namespace, sweep: Any, table: pd.DataFrame, records: Any) -> None:
    from ..model_selection._page import figure_of, page, told

    suffix = Path(args.out).suffix.lower() if args.out else ""
    known = _report.about(
        args, records.name, records.schema, **{"splits, first weights": args.seed}
    )
    caveats = _caveats(sweep, records)
    for name in filter(None, (args.csv, args.out if suffix == ".csv" else None)):
        _report.write_table(name, table)
    if suffix == ".json":
        _report.write_json(args.out, told(sweep, known, caveats))
    if args.plot or suffix in _report.PAGES:
        figure = figure_of(sweep)
        if args.plot:
            figure.savefig(args.plot, dpi=160)
        if suffix in _report.PAGES:
            shown = page(sweep, known, caveats, figure)
            Path(args.out).write_text(shown, encoding="utf-8")
    for name in filter(None, (args.out, args.plot, args.csv)):
        say(f"wrote {name}")


def _caveats(sweep: Any, records: Any) -> list[str]:
    caveats = list(sweep.charged_.assumptions)
    if records.schema.inferred:
        caveats.insert(0, "The schema was read from the private data; no guarantee covers that.")
    return caveats
