"""Parameters of a sweep that are refused before anything is fitted."""

from __future__ import annotations

import inspect
import numbers
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_regressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv

from .._clones import without_values
from .._data_validation import (
    assert_all_finite,
    check_classification_targets,
    check_y,
    column_or_1d,
)
from .._sklearn import num_samples
from .._validation import check_one_type, is_number, raise_alone
from ._split import Records

__all__ = [
    "checked_epsilons",
    "checked_models",
    "checked_refit",
    "checked_scorers",
    "checked_splits",
    "checked_splitter",
    "checked_targets",
    "rehearsed",
]

Split = tuple[NDArray[np.intp], NDArray[np.intp]]

_TRIED = 200  # records on which scorers are tried


def checked_epsilons(epsilons: Any) -> list[float]:
    """Return the privacy levels as they were given, all of them positive."""
    if isinstance(epsilons, (str, numbers.Real)) or not isinstance(epsilons, Iterable):
        raise ValueError(
            f"epsilons={epsilons!r} must be a list of positive numbers. Pass one, such as [1, 10]."
        )
    given = list(epsilons)
    if not given:
        raise ValueError("epsilons is empty. Pass at least one positive number.")
    for epsilon in given:
        if (
            isinstance(epsilon, bool)
            or not isinstance(epsilon, numbers.Real)
            or not float(epsilon) > 0
        ):
            raise ValueError(
                f"epsilons must be positive numbers; got {epsilon!r}. Remove or correct it."
            )
    values = [float(epsilon) for epsilon in given]
    if len(set(values)) < len(values):
        raise ValueError(f"epsilons={given!r} must not contain a value twice. Remove duplicates.")
    return values


def checked_models(estimator: Any) -> dict[str, Any]:
    """Return the private models by their names; a single one has none."""
    if not isinstance(estimator, Mapping):
        return {"": estimator}
    if not estimator or not all(isinstance(name, str) and name for name in estimator):
        raise ValueError(f"estimator={estimator!r} must name at least one estimator by a string.")
    return dict(estimator)


def checked_targets(models: Iterable[Any], y: Any) -> Any:
    """Return what is predicted as an array: classes, or numbers for regressors."""
    of_numbers = {is_regressor(model) for model in models}
    if len(of_numbers) > 1:
        raise ValueError(
            "estimator= holds classifiers and regressors. Sweep them separately, as no score is "
            "for both."
        )
    check_y(y)
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    if True in of_numbers:
        return column_or_1d(y, dtype=np.float64)
    check_one_type("y", y)
    check_classification_targets(y)
    if len(np.unique(y)) < 2:
        raise ValueError("y must have at least two classes; got one class. Check the labels.")
    return y


def checked_refit(refit: Any, names: list[str], epsilons: list[float]) -> int | None:
    """Return the number of the candidate to train on all records, if any."""
    if refit is None:
        return None
    several = names != [""]
    name, epsilon = ("", refit)
    if several and isinstance(refit, tuple) and len(refit) == 2:
        name, epsilon = refit
    known = isinstance(name, str) and name in names
    if not known or not is_number(epsilon) or epsilon not in epsilons:
        of = f"(name, epsilon), with a name of {names} and an epsilon" if several else "one"
        raise ValueError(f"refit={refit!r} must be None or {of} of epsilons={epsilons}.")
    return names.index(name) * len(epsilons) + epsilons.index(float(epsilon))


def checked_scorers(estimator: Any, scoring: Any) -> dict[str, Any]:
    """Return the scorers by their names, or refuse one before anything is fitted.

    A single one is called "score"; several have the names in ``scoring``, of which the first counts
    wherever one is needed.
    """
    if isinstance(scoring, Mapping):
        named = dict(scoring)
    elif isinstance(scoring, (list, tuple)):
        named = {name: name for name in scoring if isinstance(name, str)}
        if len(named) < len(scoring):
            raise ValueError(
                f"scoring={scoring!r} must be different names of scorers. Pass a dict for scorers "
                "that have no name."
            )
    else:
        return {"score": _checked_scorer(estimator, scoring)}
    if not named or not all(isinstance(name, str) for name in named):
        raise ValueError(f"scoring={scoring!r} must name at least one scorer by a string.")
    return {name: _checked_scorer(estimator, given) for name, given in named.items()}


def _checked_scorer(estimator: Any, scoring: Any) -> Any:
    if scoring is not None and not isinstance(scoring, str) and not callable(scoring):
        raise ValueError(
            f"scoring={scoring!r} must be the name of a scorer, a callable scorer(estimator, X, y) "
            "or None, or a list or dict of these. Pass one of sklearn.metrics.get_scorer_names()."
        )
    if callable(scoring):
        try:
            inspect.signature(scoring).bind(estimator, None, None)
        except (TypeError, ValueError):
            raise ValueError(
                f"scoring={scoring!r} must take an estimator, X and y. Pass a scorer, such as "
                "sklearn.metrics.make_scorer(metric)."
            ) from None
    return check_scoring(estimator, scoring)


def rehearsed(scorers: Mapping[str, Any], records: Records, *, of_numbers: bool) -> None:
    """Refuse a scorer that returns no number for a model that learns nothing.

    **Edge cases.** One that fails on such a model, as it asks for more, may work on others.
    """
    n = num_samples(records.X)
    few = records.part(np.unique(np.linspace(0, n - 1, _TRIED).astype(int)))
    dummy = (DummyRegressor() if of_numbers else DummyClassifier()).fit(few.X, few.y)
    for name, scorer in scorers.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = scorer(dummy, few.X, few.y, **few.score_params[name])
        except Exception:
            continue
        if np.ndim(found) or np.asarray(found).dtype.kind not in "biuf":
            raise ValueError(
                f"scoring={name!r} returned {found!r}; expected a number. For several scores pass "
                "a dict of scorers."
            )


def checked_splitter(cv: Any, y: Any, classifier: bool) -> Any:
    """Return what splits the records; ValueError for what cannot."""
    try:
        splitter = check_cv(cv, y, classifier=classifier)
        if not callable(getattr(splitter, "get_n_splits", None)):  # such as text, which splits too
            raise TypeError("it is no splitter")
        return splitter
    except (TypeError, ValueError) as error:
        raise_alone(ValueError(f"cv={cv!r} cannot split the records: {without_values(error)}"))


def checked_splits(splitter: Any, cv: Any, X: Any, y: Any, **params: Any) -> list[Split]:
    """Return the splits as numbers of records; ValueError for what divides them in no two parts.

    **Guarantees.** No record is on both sides of a split: a model that was trained on a record that
    it is tested on looks better, and an attack on it worse, than they are.
    """
    try:
        found = [
            (_numbers_of(train, num_samples(X)), _numbers_of(test, num_samples(X)))
            for train, test in splitter.split(X, y, **params)
        ]
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise_alone(ValueError(f"cv={cv!r} cannot split the records: {without_values(error)}"))
    if not found:
        raise ValueError(f"cv={cv!r} has no splits. Pass at least one, or a number of folds.")
    for train, test in found:
        both = np.intersect1d(train, test)
        if len(both):
            raise ValueError(
                f"cv={cv!r} trains and tests on the same {len(both)} records in one split. Leave "
                "them out on one side."
            )
    return found


def _numbers_of(part: Any, n: int) -> NDArray[np.intp]:
    """Return the numbers of the records in a part of a split, which may be a mask."""
    rows = np.asarray(part)
    if rows.ndim != 1 or not rows.size or rows.dtype.kind not in "biu":
        raise ValueError(f"a part of a split is {part!r}, not the numbers of its records")
    if rows.dtype.kind == "b":
        if len(rows) != n:
            raise ValueError(f"a mask of {len(rows)} values selects from {n} records")
        rows = np.flatnonzero(rows)
    if not (-n <= rows.min(initial=0) and rows.max(initial=0) < n):
        raise ValueError(f"there are {n} records; record {rows.min()} or {rows.max()} is none")
    return rows.astype(np.intp) % n
