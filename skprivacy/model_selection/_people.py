"""People in searches and sweeps: on one side of each split, and what the guarantees are about."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold

from .._clones import group_names
from .._config import warn_caller
from .._groups import Groups
from ..exceptions import PrivacyWarning
from ._checks import checked_splitter

__all__ = ["check_apart", "splitter_of", "tell_unprotected"]


def splitter_of(cv: Any, y: Any = None, *, classifier: bool, grouped: bool) -> Any:
    """Return the splitter: for a number of folds, one that keeps groups together if there are any.

    Parameters
    ----------
    cv : int, splitter, iterable or None
    y : array-like of shape (n_samples,), default=None
    classifier : bool
    grouped : bool
        Whether records have groups.
    """
    if grouped and (cv is None or (isinstance(cv, Integral) and not isinstance(cv, bool))):
        return GroupKFold(5 if cv is None else int(cv))
    return checked_splitter(cv, y, classifier)


def check_apart(splits: list[tuple[Any, Any]], people: Groups | None, cv: Any) -> None:
    """Refuse splits that have somebody on both sides.

    Raises
    ------
    ValueError
    """
    if people is None:
        return
    for train, test in splits:
        both = np.intersect1d(people.codes[train], people.codes[test])
        if len(both):
            raise ValueError(
                f"cv={cv!r} has {len(both)} values of {people.unit} among the training and the "
                "test records of one split: a model that knows somebody's other records would "
                "look better, and more exposed, than it is. Pass a number of folds, or a splitter "
                "such as GroupKFold."
            )


def tell_unprotected(models: Mapping[str, Any], people: Groups) -> None:
    """Warn of models whose guarantees protect single records, though people have several."""
    for name, model in models.items():
        if group_names(model):
            continue
        which = f"The estimator {name!r}" if name else f"The estimator {type(model).__name__}"
        warn_caller(
            f"{which} takes no groups in fit, so its guarantees are for single records, not for "
            f"values of {people.unit}: groups keep these together in splits alone. Sweep an "
            "estimator whose fit takes groups, or convert the guarantee by a public bound: "
            f"guarantee.group(k, unit={people.unit!r}).",
            PrivacyWarning,
        )
