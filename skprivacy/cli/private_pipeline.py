"""Model of the commands: public preprocessing by the schema, and a private estimator."""

from __future__ import annotations

import argparse
import ast
import inspect
from dataclasses import replace
from typing import Any

from sklearn.base import is_regressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from .._clones import group_names
from ..base import PrivateEstimatorMixin
from ..preprocessing import BoundedColumn, Schema, SchemaTransformer, make_private_pipeline
from ..preprocessing.transformer import add_bins
from .console import UserError
from .data import Records
from .registry import MODELS, model_class

DELTA = 1e-6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the model."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        metavar="NAME",
        help=f"one of {', '.join(MODELS)}, or the dotted path of any estimator (default: "
        "DPSGDClassifier, or DPSGDRegressor for a target with bounds)",
    )
    group.add_argument(
        "--set",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the model, or a part of one, such as --set epochs=50 or "
        "--set optimizer__momentum=0.5; can be repeated",
    )
    group.add_argument(
        "--bins",
        type=number_of_bins,
        default="auto",
        metavar="N",
        help="number of bins of each bounded column to which the schema gives none, or none, or "
        "auto: 16 where the noise of a DPSGDClassifier leaves room for them (default: auto)",
    )
    group.add_argument(
        "--delta",
        type=float,
        help="probability that the limit epsilon fails; choose it far below 1 over the number of "
        f"records (default: {DELTA:g}, or 0 for models that need none)",
    )


def add_run(parser: argparse.ArgumentParser) -> Any:
    """Add the arguments for the run."""
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
    return run


def setting(text: str) -> tuple[str, Any]:
    """Parse ``epochs=50``; a value that is not a Python literal is text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, such as epochs=50; got {text!r}")
    try:
        return name.strip(), ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        return name.strip(), value.strip()


def number_of_bins(text: str) -> int | str | None:
    """Parse ``16``, ``none`` or ``auto``."""
    if text in ("auto", "none"):
        return None if text == "none" else text
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of bins, none or auto; got {text!r}")
    return int(text)


def check(args: argparse.Namespace, *epsilons: float) -> None:
    """Raise UserError for an argument out of range, before the data is read."""
    for epsilon in epsilons:
        if not epsilon > 0:
            raise UserError(f"epsilon must be positive; got {epsilon:g}.")
    if args.delta is not None and not 0 < args.delta < 1:
        raise UserError(f"--delta must be between 0 and 1; got {args.delta:g}.")
    if args.model is not None:
        model_class(args.model)


def make_model(
    records: Records, args: argparse.Namespace, epsilon: float, budget: Any = None
) -> Any:
    """Return the unfitted model behind a transformer by the schema; UserError if it cannot be."""
    kind = model_class(args.model or f"DPSGD{'Classifier' if records.classifies else 'Regressor'}")
    known = inspect.signature(kind).parameters
    given = dict(args.set)
    if budget is not None and "budget" not in known:
        raise UserError(
            f"--budget: {kind.__name__} is not private and cannot be charged. Choose another "
            "--model, or leave --budget out."
        )
    offered = {
        "epsilon": epsilon, "delta": _delta(args, records, known), "budget": budget,
        "random_state": args.seed, "n_jobs": args.n_jobs,
    }  # fmt: skip
    usual = {name: value for name, value in offered.items() if name in known and value is not None}
    parts = {name: given.pop(name) for name in [*given] if "__" in name}
    try:
        model = kind(**{**usual, **given})
        model.set_params(**parts)
    except (TypeError, AttributeError) as error:
        raise UserError(
            f"--set: {str(error).rstrip('.')}. "
            f"The parameters of {kind.__name__} are {', '.join(known)}."
        ) from None
    if is_regressor(model) == records.classifies:
        raise UserError(
            f"{kind.__name__} predicts {'numbers' if records.classifies else 'classes'}, but the "
            f"target of {records.name} holds {'classes' if records.classifies else 'numbers'}. "
            "Choose another --model, or correct the schema."
        )
    bins = None if args.bins == "auto" else args.bins
    if "schema" in known:
        return _set_schema_facts(model, replace(records, schema=add_bins(records.schema, bins)))
    if isinstance(model, PrivateEstimatorMixin):
        return make_private_pipeline(records.schema, model, bins=args.bins)
    return make_pipeline(SchemaTransformer(records.schema, bins=bins), model)


def schema_in(model: Any) -> Schema | None:
    """Return the schema inside a trained model, if it has one."""
    first = model[0] if hasattr(model, "steps") else model
    found: Schema | None = getattr(first, "schema_", getattr(first, "schema", None))
    return found


def _set_schema_facts(model: Any, records: Records) -> Any:
    """Set schema, classes and teacher of a model that takes a schema itself."""
    known = model.get_params()
    facts: dict[str, Any] = {"schema": records.schema}
    if "classes" in known:
        facts["classes"] = None if records.schema.unconfirmed else records.schema.classes
    texts = [name for name, fact in records.schema.items() if not isinstance(fact, BoundedColumn)]
    if "n_neighbors" in known and texts:
        raise UserError(
            f"{type(model).__name__} measures distances between numbers, but {', '.join(texts)} "
            "hold none. Leave them out of the schema, or choose another --model."
        )
    if "teacher" in known and model.teacher is None:
        facts["teacher"] = make_pipeline(
            SchemaTransformer(records.schema), LogisticRegression(max_iter=1000)
        )
    return model.set_params(**facts)


def _delta(args: argparse.Namespace, records: Records, known: Any) -> float | None:
    """Return the delta to claim; None for the default of the estimator."""
    by_default = known["delta"].default if "delta" in known else 0.0
    delta = args.delta if args.delta is not None else DELTA if by_default else None
    if delta is not None and delta * len(records.y) >= 1:
        raise UserError(
            f"--delta {delta:g} must be below 1 over the {len(records.y)} records: otherwise it "
            "would allow the publication of a whole record. Give a much smaller one."
        )
    return delta


def group_arguments(model: Any, groups: Any) -> dict[str, Any]:
    """Return the groups as arguments of the model's ``fit``; UserError if it takes none."""
    if groups is None:
        return {}
    names = group_names(model)
    if not names:
        raise UserError(
            "the model's fit takes no groups, so its guarantee would be for single records. Use "
            "another --model, or leave --groups out."
        )
    return dict.fromkeys(names, groups)
