"""``skprivacy budget``: keep a privacy budget, and plan with it, from a shell."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from ..accounting import (
    RELATIONS,
    ApproxDP,
    Event,
    Gaussian,
    Laplace,
    Logistic,
    PoissonSampled,
    PrivacyBudget,
    Repeated,
    check_delta,
    compare_accountants,
)
from ..accounting._filters import FILTERS
from ..exceptions import BudgetExceededError
from ._console import UserError, check_outputs

__all__ = ["add_parser", "run"]

_NOISE = {"gaussian": Gaussian, "laplace": Laplace, "logistic": Logistic}

_EPILOG = """\
examples:
  skprivacy budget create adult.ledger --epsilon 3 --delta 1e-5
  skprivacy budget what-if adult.ledger --noise-multiplier 1.1 --sampling-rate 0.01 --steps 100
      (with 100 steps to an epoch: how many epochs can I afford?)
  skprivacy budget spend adult.ledger --noise-multiplier 1.1 --sampling-rate 0.01 --steps 500
  skprivacy budget show adult.ledger --plot spend.png
  skprivacy budget compare --noise-multiplier 1.1 --sampling-rate 0.01 --steps 500 --delta 1e-5
"""


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "budget",
        help="keep a privacy budget and plan with it",
        description="Keep a privacy budget in a ledger file that every fit can charge "
        "(estimator parameter budget=PrivacyBudget.open('adult.ledger')).",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _add_create(actions)
    _add_show(actions)
    spend = _add(actions, "spend", _spend, "charge a release that was, or will be, made")
    spend.add_argument("--who", default="", help="what it is for; public text")
    _add_event(spend)
    _add_event(_add(actions, "what-if", _what_if, "tell how many more of a release still fit"))
    compare = actions.add_parser("compare", help="ask six accountants about one release")
    compare.add_argument("--at-delta", "--delta", dest="at_delta", type=float, required=True)
    compare.add_argument("--relation", choices=RELATIONS, default="add_remove")
    compare.set_defaults(run=run, action=_compare)
    _add_event(compare, claim=False)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; return 1 if a budget refused it."""
    return args.action(args)


def _add(actions: Any, name: str, action: Any, text: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text.capitalize() + ".")
    parser.add_argument("ledger", help="the ledger file")
    parser.add_argument("--scope", default="", help="a part of the budget, such as adult/sweep")
    parser.set_defaults(run=run, action=action)
    return parser


def _add_create(actions: Any) -> None:
    parser = actions.add_parser("create", help="make a ledger with a cap")
    parser.add_argument("ledger", help="the file to make")
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--delta", type=float, default=0.0)
    parser.add_argument("--relation", choices=RELATIONS, default="add_remove")
    parser.add_argument(
        "--filter",
        choices=sorted(FILTERS),
        default="renyi",
        help="renyi: whatever is asked next may depend on the answers; pld: tighter, for releases "
        "that were all settled beforehand; basic: epsilons add up (default: %(default)s)",
    )
    parser.add_argument(
        "--records", type=int, help="public number of records: delta must be below 1/n"
    )
    parser.set_defaults(run=run, action=_create)


def _add_show(actions: Any) -> None:
    parser = _add(actions, "show", _show, "list the charges and check the ledger")
    parser.add_argument("--csv", help="also write the charges to this file")
    parser.add_argument("--plot", help="also draw spend over time to this file")


def _add_event(parser: argparse.ArgumentParser, claim: bool = True) -> None:
    group = parser.add_argument_group("the release")
    group.add_argument("--noise", choices=sorted(_NOISE), default="gaussian")
    group.add_argument("--noise-multiplier", type=float, help="noise over sensitivity")
    group.add_argument("--sampling-rate", type=float, default=1.0, help="of Poisson sampling")
    group.add_argument("--steps", type=int, default=1)
    group.add_argument("--event", help="any event as JSON, instead of the options above")
    if claim:
        group.add_argument("--epsilon", type=float, help="or: what the release claims,")
        group.add_argument("--delta", type=float, default=0.0, help="with this delta")


def _event(args: argparse.Namespace) -> Event:
    claimed = getattr(args, "epsilon", None)
    given = [args.noise_multiplier is not None, args.event is not None, claimed is not None]
    if sum(given) != 1:
        raise UserError("describe the release by --noise-multiplier, or --epsilon, or --event.")
    if args.event is not None:
        try:
            return Event.from_dict(json.loads(args.event))
        except json.JSONDecodeError as error:
            raise UserError(f"--event is not JSON: {error}.") from None
    if claimed is not None:
        return Repeated(ApproxDP(claimed, args.delta), args.steps)
    step: Event = _NOISE[args.noise](args.noise_multiplier)
    if args.sampling_rate != 1:
        step = PoissonSampled(args.sampling_rate, step)
    return Repeated(step, args.steps) if args.steps != 1 else step


def _open(args: argparse.Namespace) -> PrivacyBudget:
    budget = PrivacyBudget.open(args.ledger)
    for name in filter(None, args.scope.split("/")):
        budget = budget.partition(name[1:]) if name.startswith("=") else budget.scope(name)
    return budget


def _create(args: argparse.Namespace) -> int:
    check_outputs(args.ledger)
    budget = PrivacyBudget(
        args.epsilon,
        args.delta,
        args.ledger,
        relation=args.relation,
        filter=args.filter,
        n_records=args.records,
    )
    print(budget)
    return 0


def _show(args: argparse.Namespace) -> int:
    check_outputs(args.csv, args.plot)
    budget = _open(args)
    entries = budget.entries()
    if len(entries):
        shown = entries.assign(when=entries["when"].dt.strftime("%Y-%m-%d %H:%M:%S"))
        columns = ["charge", "when", "scope", "who", "status", "cost"]
        print(shown[columns].to_string(index=False, float_format=lambda x: f"{x:.4g}"))
    print(budget)
    print(f"checked; last digest {budget.verify()}")
    if args.csv:
        entries.to_csv(args.csv, index=False)
    if args.plot:
        _draw(budget, args.plot)
    return 0


def _draw(budget: PrivacyBudget, path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    budget.plot(figure.subplots())
    figure.savefig(path)


def _spend(args: argparse.Namespace) -> int:
    budget, event = _open(args), _event(args)
    try:
        budget.commit(budget.reserve(event, args.who))
    except BudgetExceededError as error:
        print(error)
        return 1
    print(budget)
    return 0


def _what_if(args: argparse.Namespace) -> int:
    budget, event = _open(args), _event(args)
    left = budget.remaining(event)
    print(f"{left} more of {event}")
    return 0 if left else 1


def _compare(args: argparse.Namespace) -> int:
    check_delta(args.at_delta)
    table = compare_accountants(_event(args), args.at_delta, args.relation)
    print(f"{'accountant':<12}{'epsilon':>12}  kind")
    for name, row in table.items():
        epsilon = float(row["epsilon"])
        shown = "-" if math.isinf(epsilon) else f"{epsilon:.4f}"
        print(f"{name:<12}{shown:>12}  {row['kind'] if math.isfinite(epsilon) else 'no bound'}")
    return 0
