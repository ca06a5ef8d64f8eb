"""Whether budgets can pay for all models of a sweep, found out before the first is trained."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from ..accounting import PrivacyBudget, PrivacyGuarantee
from ..accounting.budget.rehearsal import rehearse_charges
from ..base import PrivateEstimatorMixin, rehearsed
from ..exceptions import BudgetExceededError
from ..preprocessing import SchemaTransformer
from ._run import Candidate

__all__ = ["check_affordable", "planned"]

Fit = tuple[Candidate, Any]  # and the rows of the records that it is trained on


def check_affordable(fits: Iterable[Fit]) -> None:
    """Refuse budgets that cannot pay for all models of a sweep; nothing is charged.

    Parameters
    ----------
    fits : iterable of (Candidate, array-like)
        The models that are going to be trained, each with the rows of its records.

    Raises
    ------
    BudgetExceededError

    Notes
    -----
    **Guarantees.** Nothing is fitted beyond the point where it would be charged: only an estimator
    of this library with a budget of its own is rehearsed, bare or behind a ``SchemaTransformer``,
    and in this process. What others may do in processes of theirs is not known here.

    **Edge cases.** Of a model that makes several releases only the first is known beforehand, and
    others may charge the budget meanwhile: a sweep may still be refused in the middle, which says
    what stays charged.
    """
    of_budgets: dict[tuple[str, str], tuple[PrivacyBudget, list[Fit]]] = {}
    for candidate, rows in fits:
        budget = _only_budget(candidate)
        if budget is not None:
            known = of_budgets.setdefault((budget.path, budget._scope), (budget, []))
            known[1].append((candidate, rows))
    for budget, own in of_budgets.values():
        try:
            rehearse_charges(budget, planned(own))
        except BudgetExceededError as error:
            raise BudgetExceededError(
                f"The budget cannot pay for all models of this sweep, {len(own)} of them. Nothing "
                "was trained or charged. Sweep fewer or smaller epsilons, or give it a larger cap. "
                f"{error}"
            ) from error


def planned(fits: Iterable[Fit]) -> Iterator[PrivacyGuarantee]:
    """Yield what each model would guarantee, which depends on how many records it is given."""
    known: dict[tuple[int, int, int], PrivacyGuarantee] = {}
    for candidate, rows in fits:
        own = candidate.records.part(rows)
        people = 0 if own.people is None else own.people.nunique()
        asked = id(candidate), len(own.y), people
        if asked not in known:
            model = clone(candidate.model)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the fit itself warns
                known[asked] = rehearsed(partial(model.fit, own.X, own.y, **own.fit_params))
        yield known[asked]


def _only_budget(candidate: Candidate) -> PrivacyBudget | None:
    """Return the budget of a model that can be rehearsed, if it has one and no other."""
    model = candidate.model
    budgets = [v for v in model.get_params().values() if isinstance(v, PrivacyBudget)]
    if isinstance(model, Pipeline):
        if not all(isinstance(step, SchemaTransformer) for _, step in model.steps[:-1]):
            return None
        model = model.steps[-1][1]
    if getattr(model, "distributed", None) is not None:  # its processes wait for each other
        return None
    finite = math.isfinite(next(iter(candidate.params.values())))
    if not (isinstance(model, PrivateEstimatorMixin) and finite and len(budgets) == 1):
        return None
    return budgets[0] if getattr(model, "budget", None) is budgets[0] else None
