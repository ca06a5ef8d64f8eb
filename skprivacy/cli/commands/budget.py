"""``skprivacy budget``: create, charge, plan and inspect a privacy budget."""

from __future__ import annotations

import argparse
import math
from typing import Any

from ..._extras import name_missing_extra
from ..._files import parse_json, write_figure
from ...accounting import (
    ApproxDPEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    PrivacyBudget,
    PrivacyGuarantee,
    RepeatedEvent,
    compare_accountants,
)
from ...accounting.budget.admission import MANY
from ...accounting.budget.filters import FILTERS
from ...accounting.budget.snapshot import rehearse_charges
from ...accounting.event import RELATIONS, check_delta
from ...accounting.events import LogisticEvent
from ...exceptions import BudgetExceededError
from ..console import UserError, check_outputs, print_result
from ..release import _explain_bad_file, _is_file_ledger, add_expect, open_ledger, shows_digest

_NOISE = {"gaussian": GaussianEvent, "laplace": LaplaceEvent, "logistic": LogisticEvent}
DESCRIPTION = (
    "Manage a privacy budget in a ledger file that every fit can charge (estimator parameter "
    "budget=PrivacyBudget.open('adult.ledger'))."
)
_STATUS = {
    "reserved": "running, or its process was killed; it stays charged, as data may have been read",
    "fail": "it ended in an error; it stays charged, as data may have been read",
}
EXAMPLES = """\
examples:
  skprivacy budget create adult.ledger --epsilon 3 --delta 1e-5
  skprivacy budget what-if adult.ledger --noise-multiplier 1.1 --sampling-rate 0.01 --steps 100
      (with 100 steps per epoch: how many more epochs does the budget allow?)
  skprivacy budget spend adult.ledger --noise-multiplier 1.1 --sampling-rate 0.01 --steps 500
  skprivacy budget spend adult.ledger --epsilon 0.1 --expect ca9d8bf5cb0bae54
      (refuses an older copy of the ledger: each charge prints the digest for the next one)
  skprivacy budget show adult.ledger --plot spend.png
  skprivacy budget scope adult.ledger survey --epsilon 1 --delta 1e-6
  skprivacy budget spend adult.ledger --scope survey --epsilon 0.1
  skprivacy budget compare --noise-multiplier 1.1 --sampling-rate 0.01 --steps 500 --delta 1e-5

exit codes: 0 success, 1 refused by the budget (what-if: no further release fits), 2 an error.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _add_create(actions)
    _add_scope(actions)
    _add_show(actions)
    spend = _add(actions, "spend", _spend, "charge a release, before or after it is made")
    spend.add_argument("--source", default="", help="purpose of the release; public text")
    spend.add_argument(
        "--relation",
        choices=RELATIONS,
        help="neighbouring relation of the release (default: the budget's, or add_remove if no "
        "charge has fixed it yet)",
    )
    spend.add_argument(
        "--unit",
        default="record",
        help="unit whose presence the release hides: a record, or all records with one value of "
        "this column (default: %(default)s)",
    )
    what_if = _add(actions, "what-if", _what_if, "show how many more releases like this one fit")
    for action in (spend, what_if):
        action.add_argument(
            "--new-scope", action="store_true", help="allow a scope without a cap or a charge"
        )
        _add_event(action)
    compare = actions.add_parser("compare", help="compare six accountants on one release")
    compare.add_argument(
        "--at-delta",
        "--delta",
        dest="at_delta",
        type=float,
        required=True,
        help="delta of the compared epsilons",
    )
    compare.add_argument("--relation", choices=RELATIONS, default="add_remove")
    compare.set_defaults(run=_compare)
    _add_event(compare, claim=False)


def _add(actions: Any, name: str, action: Any, text: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text.capitalize() + ".")
    parser.add_argument("ledger", help="the ledger file")
    parser.add_argument("--scope", default="/", help="a part of the budget, such as adult/sweep")
    add_expect(parser)
    parser.set_defaults(run=action)
    return parser


def _add_create(actions: Any) -> None:
    parser = actions.add_parser("create", help="create a ledger with a cap")
    parser.add_argument("ledger", help="the file to create")
    parser.add_argument(
        "--epsilon", type=float, required=True, help="the cap on the joint cost of all releases"
    )
    parser.add_argument(
        "--delta",
        type=float,
        default=0.0,
        help="delta of the cap, far below 1 over the number of records; networks and Gaussian "
        "noise need one above 0 (default: %(default)s)",
    )
    parser.add_argument(
        "--relation",
        choices=RELATIONS,
        help="neighbouring relation of all charges (default: that of the first charge)",
    )
    parser.add_argument(
        "--unit", help="unit whose presence all charges hide (default: that of the first charge)"
    )
    parser.add_argument(
        "--filter",
        choices=sorted(FILTERS),
        default="adaptive",
        help="adaptive: each release may depend on earlier answers, and costs never exceed basic; "
        "renyi: the same, for many small releases; pld: tighter, for releases that were all fixed "
        "beforehand; basic: epsilons and deltas add up (default: %(default)s)",
    )
    parser.add_argument(
        "--counter",
        metavar="PLACE",
        help="storage for the number of the last charge: a file, best on another disk, or "
        "postgresql://user@host/database#name; an older copy of the ledger is then refused",
    )
    parser.add_argument(
        "--records", type=int, help="public number of records: delta must be below 1/n"
    )
    parser.set_defaults(run=_create)


def _add_scope(actions: Any) -> None:
    parser = actions.add_parser(
        "scope",
        help="give a part of the budget its own cap",
        description="Give a part of the budget, such as that of one project, its own cap. The cap "
        "is set once. Every charge to the part is a charge to the whole too.",
    )
    parser.add_argument("ledger", help="the ledger file")
    parser.add_argument("scope", metavar="SCOPE", help="name of the part, such as adult")
    parser.add_argument(
        "--epsilon", type=float, required=True, help="the cap on the joint cost of its releases"
    )
    parser.add_argument(
        "--delta", type=float, default=0.0, help="delta of the cap (default: %(default)s)"
    )
    add_expect(parser)
    parser.set_defaults(run=_scope)


def _add_show(actions: Any) -> None:
    parser = _add(actions, "show", _show, "list the charges and check the ledger")
    parser.add_argument("--plot", help="also plot the spending over time to this file")


def _add_event(parser: argparse.ArgumentParser, claim: bool = True) -> None:
    group = parser.add_argument_group("the release")
    group.add_argument(
        "--noise",
        choices=sorted(_NOISE),
        default="gaussian",
        help="kind of noise (default: %(default)s)",
    )
    group.add_argument("--noise-multiplier", type=float, help="noise divided by sensitivity")
    group.add_argument("--sampling-rate", type=float, default=1.0, help="rate of Poisson sampling")
    group.add_argument(
        "--steps", type=int, default=1, help="number of such steps (default: %(default)s)"
    )
    group.add_argument("--event", help="any event as JSON, instead of the options above")
    if claim:
        group.add_argument("--epsilon", type=float, help="claimed epsilon, instead of the noise")
        group.add_argument("--delta", type=float, default=0.0, help="claimed delta")


def _event(args: argparse.Namespace) -> Event:
    claimed = getattr(args, "epsilon", None)
    ways = {"--noise-multiplier": args.noise_multiplier, "--event": args.event}
    if hasattr(args, "epsilon"):
        ways["--epsilon"] = claimed
    given = sum(value is not None for value in ways.values())
    if given > 1:
        raise UserError(f"only one of {', '.join(ways)} can describe the release. Give one.")
    if not given:
        raise UserError(f"the release is not described. Give one of {', '.join(ways)}.")
    if args.event is not None:
        try:
            description = parse_json(args.event)
        except ValueError as error:
            reason = str(error).removesuffix(".")
            raise UserError(f"--event must be JSON: {reason}.") from None
        event = Event.from_dict(description)
        if event.data_dependent:
            raise UserError("--event must not contain private votes. Leave them out.")
        return event
    if args.steps < 1:
        raise UserError(f"--steps={args.steps} releases nothing. Give a number of at least 1.")
    if claimed is not None:
        if claimed == args.delta == 0:
            raise UserError("--epsilon=0 releases nothing. Give a number above 0.")
        step: Event = ApproxDPEvent(claimed, args.delta)
    else:
        step = _NOISE[args.noise](args.noise_multiplier)
        if args.sampling_rate != 1:
            step = PoissonSampledEvent(args.sampling_rate, step)
    return RepeatedEvent(step, args.steps) if args.steps != 1 else step


def _open(args: argparse.Namespace) -> PrivacyBudget:
    return open_ledger(args.ledger, args.scope, getattr(args, "new_scope", None), args.expect)


def _create(args: argparse.Namespace) -> int:
    if _is_file_ledger(args.ledger):
        check_outputs(args.ledger)
    with _explain_bad_file(args.ledger):
        budget = PrivacyBudget(
            args.epsilon,
            args.delta,
            args.ledger,
            relation=args.relation,
            unit=args.unit,
            filter=args.filter,
            n_records=args.records,
            counter=args.counter,
        )
    with shows_digest(budget):
        _describe(budget)
    return 0


def _scope(args: argparse.Namespace) -> int:
    outer, _, name = args.scope.strip("/").rpartition("/")
    budget = open_ledger(args.ledger, outer or "/", expect=args.expect)
    with shows_digest(budget):
        print_result(budget.scope(name, args.epsilon, args.delta))
    return 0


def _describe(budget: PrivacyBudget) -> None:
    print_result(budget)
    for name, value in (("relation", budget.relation), ("unit", budget.unit)):
        print_result(f"{name}: {value or 'that of the first charge'}")


def _show(args: argparse.Namespace) -> int:
    check_outputs(args.plot)
    budget = _open(args)
    entries = budget.entries()
    if len(entries):
        shown = entries.assign(when=entries["when"].dt.strftime("%Y-%m-%d %H:%M:%S"))
        columns = ["charge", "when", "scope", "source", "status", "cost"]
        print_result(shown[columns].to_string(index=False, float_format=lambda x: f"{x:.4g}"))
        for status, meaning in _STATUS.items():
            if (entries["status"] == status).any():
                print_result(f"{status}: {meaning}")
    _describe(budget)
    for scope in sorted(budget._ledger.read_log().scopes()):
        if scope.startswith(budget._scope) and scope != budget._scope:
            print_result(PrivacyBudget.open(args.ledger, scope))
    print_result(f"checked; last digest {budget.verify()}")
    print_result(budget.rollback_notice)
    if args.plot:
        with name_missing_extra():
            from matplotlib.figure import Figure

        figure = Figure(layout="constrained")
        budget.plot(figure.subplots())
        write_figure(args.plot, figure)
    return 0


def _spend(args: argparse.Namespace) -> int:
    budget, event = _open(args), _event(args)
    try:
        print_result(budget.charge(event, args.source, args.relation, args.unit))
    except BudgetExceededError as error:
        print_result(error)
        return 1
    with shows_digest(budget):
        _describe(budget)
    return 0


def _what_if(args: argparse.Namespace) -> int:
    budget, event = _open(args), _event(args)
    left = budget.remaining(event)
    print_result(f"{left if left < MANY else f'at least {MANY}'} more such releases fit: {event}")
    if left:
        return 0
    relation, unit = budget.relation or "add_remove", budget.unit or "record"
    try:
        rehearse_charges(budget, [PrivacyGuarantee(event, relation=relation, unit=unit)])
    except BudgetExceededError as error:
        print_result(error)
    return 1


def _compare(args: argparse.Namespace) -> int:
    check_delta(args.at_delta)
    table = compare_accountants(_event(args), args.at_delta, args.relation)
    print_result(f"{'accountant':<12}{'epsilon':>12}  kind")
    for name, row in table.items():
        epsilon = float(row["epsilon"])
        shown = "-" if math.isinf(epsilon) else f"{epsilon:.4f}"
        print_result(
            f"{name:<12}{shown:>12}  {row['kind'] if math.isfinite(epsilon) else 'no bound'}"
        )
    return 0
