"""Whether a budget can pay for all models of a sweep, found out before the first is trained."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sklearn.base import clone

from ..accounting import PrivacyGuarantee
from ..accounting.budget.rehearsal import rehearse_charges
from ..base import rehearsed
from ..exceptions import BudgetExceededError
from ..model_selection._parameters import epsilon_parameter
from ._data import Records

__all__ = ["check_affordable"]


def check_affordable(sweep: Any, records: Records, budget: Any) -> None:
    """Refuse a budget that cannot pay for all models of a sweep; nothing is charged.

    Raises
    ------
    BudgetExceededError

    Notes
    -----
    **Edge cases.** Of a model that makes several releases only the first is known beforehand, and
    of a sweep that goes on from earlier results how many models are left is not: these may still
    be refused in the middle, which says what stays charged.
    """
    if sweep.path is not None and Path(sweep.path).exists():
        return
    try:
        rehearse_charges(budget, _planned(sweep, records))
    except BudgetExceededError as error:
        raise BudgetExceededError(
            "The budget cannot pay for all models of this sweep. Nothing was trained or charged. "
            f"Sweep fewer or smaller --epsilons, or give it a larger cap. {error}"
        ) from error


def _planned(sweep: Any, records: Records) -> Iterator[PrivacyGuarantee]:
    """Yield what each model would guarantee, which depends on how many records it is given."""
    sizes: list[Any] = [train for train, _ in sweep.cv.split(records.X, records.y)]
    known: dict[tuple[float, int], PrivacyGuarantee] = {}
    fits = [(epsilon, rows) for epsilon in sweep.epsilons for rows in sizes]
    fits += [] if sweep.refit is None else [(sweep.refit, slice(None))]
    for epsilon, rows in fits:
        X, y = records.X.iloc[rows], records.y[rows]
        asked = epsilon, len(y)
        if asked not in known:
            known[asked] = _stated(sweep.estimator, epsilon, X, y)
        yield known[asked]


def _stated(model: Any, epsilon: float, X: Any, y: Any) -> PrivacyGuarantee:
    candidate = clone(model).set_params(**{epsilon_parameter(model): epsilon})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit itself warns
        return rehearsed(lambda: candidate.fit(X, y))
