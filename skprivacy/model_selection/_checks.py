"""Parameters of a sweep that are refused before anything is fitted."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Iterable, Mapping
from typing import Any

from sklearn.metrics import check_scoring

__all__ = ["checked_epsilons", "checked_scorers"]


def checked_epsilons(epsilons: Any, refit: Any) -> list[float]:
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
    if refit is not None and (isinstance(refit, bool) or refit not in values):
        raise ValueError(f"refit={refit!r} must be None or one of epsilons={values}.")
    return values


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
