"""``skprivacy audit``: train one private model and test its claim by attacks."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from sklearn.model_selection import train_test_split

from .._output import without_formulas
from . import _data, _model
from ._console import UserError, check_outputs, say, show

__all__ = ["add_parser", "run"]

EXAMPLES = """\
examples:
  skprivacy audit digits --epsilon 1 --out audit.html
  skprivacy audit adult --epsilon 0.5 --n-shadows 64 --n-jobs 2
  skprivacy audit patients.csv --target outcome --schema patients.json --subgroups ward

exit codes: 0 the claim was not refuted, 1 it was refuted (VIOLATED), 2 an error in the arguments or
the data, 3 members look like non-members, so that the audit says nothing (DOUBTFUL).
A measured epsilon is a lower bound: it can refute a claim, never prove one. To audit your own
model, call skprivacy.audit.audit from Python.
"""

EXIT_CODES = {"VIOLATED": 1, "DOUBTFUL": 3}


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "audit",
        help="train one private model and attack it to test its claim",
        description="Train a private network on a random half of the data and attack it with the "
        "other half as non-members.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _data.add_arguments(parser)
    claim = parser.add_argument_group("claim")
    claim.add_argument(
        "--epsilon", type=float, default=1.0, help="epsilon of the claim (default: %(default)s)"
    )
    claim.add_argument(
        "--alpha",
        type=float,
        default=0.05,
        help="error probability of the verdict (default: %(default)s)",
    )
    claim.add_argument(
        "--subgroups", metavar="COLUMN", help="show who is most exposed by the values of a column"
    )
    _model.add_arguments(parser, attacks=["loss", "lira", "strongest", "both"], attack="both")
    output = parser.add_argument_group("output")
    output.add_argument("--out", metavar="FILE.html", help="write a self-contained report")
    output.add_argument("--csv", metavar="FILE.csv", help="write the table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the audit; return the exit code of its verdict."""
    from ..audit import audit

    check_outputs(args.out, args.csv)
    attacks = _model.make_attacks(args)
    if not 0 < args.alpha < 1:
        raise UserError(f"--alpha must be between 0 and 1; got {args.alpha:g}.")
    records = _data.load(args)
    model = _model.make_model(records, args, args.epsilon)
    X_train, X_test, y_train, y_test = train_test_split(
        records.X, records.y, test_size=0.5, stratify=records.y, random_state=args.seed
    )
    say(f"{records.name}: training on {len(y_train):,} of {len(records.y):,} records")
    report = audit(
        model.fit(X_train, y_train),
        X_train,
        y_train,
        X_test,
        y_test,
        attacks=attacks,
        n_shadows=args.n_shadows,
        alpha=args.alpha,
        subgroups=args.subgroups,
        random_state=args.seed,
        n_jobs=args.n_jobs,
        verbose=not args.quiet,
    )
    report = _assuming(report, records.assumptions)
    show(report)
    if args.csv:
        without_formulas(report.to_frame()).to_csv(args.csv, index=False)
    if args.out:
        report.to_html(args.out)
    for name in filter(None, (args.out, args.csv)):
        say(f"wrote {name}")
    return EXIT_CODES.get(report.verdict, 0)


def _assuming(report: Any, assumptions: tuple[str, ...]) -> Any:
    """Return the report with the assumptions of the command added to its claim."""
    claimed = report.guarantee
    if claimed is None:
        return report
    return replace(
        report, guarantee=replace(claimed, assumptions=(*claimed.assumptions, *assumptions))
    )
