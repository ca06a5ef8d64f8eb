"""Scores of ``train`` and ``sweep``: ``--scoring``, and the score of the constant predictor."""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.metrics import get_scorer, get_scorer_names

from .._clones import describe_error
from .._sklearn import set_positive_class
from ..model_selection.sweep_records import make_constant, name_constant
from .console import UserError, print_message, print_result

_DEFAULTS = {True: "accuracy", False: "r2"}  # for classes and for numbers
_WORDS = {"r2": "R2"}
_RARE = 0.4  # share of the rarest class, relative to equal shares: a fifth of two classes


def add_argument(group: Any) -> None:
    """Add the option for the scores."""
    group.add_argument(
        "--scoring",
        metavar="NAME[,NAME]",
        help="scores by their names in scikit-learn, such as balanced_accuracy; scores of one "
        "class, such as f1, are for the rarer of two (default: accuracy, or r2 for numbers; with "
        "a rare class also balanced_accuracy and average_precision)",
    )


def check(args: argparse.Namespace) -> None:
    """Raise UserError for an unknown or repeated name, before the data is read."""
    names = _given_names(args)
    unknown = [name for name in names if name not in get_scorer_names()]
    if unknown:
        raise UserError(
            f"--scoring {unknown[0]!r} is not known. Pass a name of "
            "sklearn.metrics.get_scorer_names(), such as balanced_accuracy."
        )
    if len(set(names)) < len(names):
        raise UserError(f"--scoring {args.scoring} names a score twice.")


def choose_scorers(args: argparse.Namespace, X: Any, y: Any, *, classifies: bool) -> dict[str, Any]:
    """Return scorers, or their names, by name; each is tried on a constant predictor."""
    classes, counts = np.unique(y, return_counts=True)
    names = _given_names(args) or [_DEFAULTS[classifies]]
    if classifies and args.scoring is None and counts.min() < _RARE * len(y) / len(classes):
        names += ["balanced_accuracy"] + ["average_precision"] * (len(classes) == 2)
    scorers: dict[str, Any] = {name: name for name in names}
    if classifies and len(classes) == 2:
        rarer = classes[counts.argmin()]
        scorers = {name: set_positive_class(get_scorer(name), rarer) or name for name in names}
    constant = make_constant(not classifies).fit(X, y)
    for name, scorer in scorers.items():
        try:
            _score_constant(scorer, constant, X, y)
        except Exception as error:
            raise UserError(
                f"--scoring {name} does not suit the target: {describe_error(error)}. Choose "
                "another."
            ) from None
    return scorers


def print_scores(model: Any, scorers: dict[str, Any], X: Any, y: Any) -> None:
    """Print the scores of a model on held-out records, beside the best constant predictor's."""
    classifies = not is_regressor(model)
    constant = make_constant(not classifies).fit(X, y)
    what = name_constant(not classifies)
    for name, scorer in scorers.items():
        word = _WORDS.get(name, name)
        try:
            score = get_scorer(scorer)(model, X, y)
        except Exception as error:  # the model is trained and charged
            print_message(f"{word} failed on the held-out records: {describe_error(error)}.")
            continue
        floor = _score_constant(scorer, constant, X, y)
        print_result(
            f"{word} on {len(y):,} other records: {score:.3f} ({what}: {floor:.3f}), not private"
        )
        if score <= floor:
            print_result(f"The model is useless by {word}: it is not better than the {what}.")


def _given_names(args: argparse.Namespace) -> list[str]:
    return [] if args.scoring is None else [name.strip() for name in args.scoring.split(",")]


def _score_constant(scorer: Any, constant: Any, X: Any, y: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes that are never predicted
        return float(get_scorer(scorer)(constant, X, y))
