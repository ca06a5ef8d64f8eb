"""Checks of a sweep before its first fit: parameters, splits, groups, routing and budgets."""

from __future__ import annotations

import inspect
import math
import numbers
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import check_scoring
from sklearn.model_selection import GroupKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import assert_all_finite
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from .._clones import describe_error, group_names
from .._config import warn_caller
from .._groups import Groups
from .._input_data import check_classification_targets, check_one_type, check_y, column_or_1d
from .._sklearn import takes_weights
from .._validation import is_number, num_samples, raise_alone
from ..accounting import PrivacyBudget, PrivacyGuarantee
from ..accounting.budget.snapshot import rehearse_charges
from ..audit import claim_of
from ..base import PrivateEstimatorMixin, rehearse_fit
from ..exceptions import BudgetExceededError, PrivacyWarning
from ..preprocessing import SchemaTransformer
from .sweep_records import Candidate, Records, last_step

Fit = tuple[Candidate, Any]  # and the rows of the records that it is trained on


def check_affordable(fits: Iterable[Fit]) -> None:
    """Refuse budgets that cannot pay for all models of a sweep; nothing is charged.

    **Guarantees.** Only estimators of this library that have a budget are rehearsed, bare
    or behind a ``SchemaTransformer``, in this process and up to their charge.

    **Edge cases.** Only the first release of a model is known beforehand, and other processes may
    charge the budget meanwhile. So a sweep may still be refused in the middle; the error then says
    which charges remain.
    """
    of_budgets: dict[tuple[str, str], tuple[PrivacyBudget, list[Fit]]] = {}
    for candidate, rows in fits:
        budget = _find_budget(candidate)
        if budget is not None:
            known = of_budgets.setdefault((budget.path, budget._scope), (budget, []))
            known[1].append((candidate, rows))
    for budget, own in of_budgets.values():
        try:
            rehearse_charges(budget, rehearse_models(own))
        except BudgetExceededError as error:
            raise BudgetExceededError(
                f"The budget cannot pay for all models of this sweep, {len(own)} of them. Nothing "
                "was trained or charged. Sweep fewer or smaller epsilons, or give it a larger cap. "
                f"{error}"
            ) from error


def check_first_fits(fits: Iterable[Fit]) -> None:
    """Refuse parameters that no fit accepts, such as a delta of 1/n, before anything is trained.

    The first fit of each model is rehearsed up to its charge. Warns of steps that read private
    records outside the guarantee, and of a delta of 1/n or more where n is private: the fit itself
    must not compare them.
    """
    able = [(candidate, rows) for candidate, rows in fits if _can_be_rehearsed(candidate)]
    for candidate, rows in {fit[0].name: fit for fit in reversed(able)}.values():
        model, own = clone(candidate.model), candidate.records.take(rows)
        stated = _rehearse(model, own)
        last_step(model).privacy_ = stated  # for claim_of, as if it were fitted
        for name, why in claim_of(model, own.X).uncovered.items():
            warn_caller(f"Step {name!r}: {why}. The guarantees are estimates.", PrivacyWarning)
        n = len(own.y) if own.groups is None else own.groups.nunique()
        if (stated.at_delta or 0.0) * n >= 1:
            warn_caller(
                f"delta={stated.at_delta:g} is not below 1/n: publishing a {stated.unit} chosen at "
                "random would keep this guarantee. Pass a far smaller delta.",
                PrivacyWarning,
            )


def rehearse_models(fits: Iterable[Fit]) -> Iterator[PrivacyGuarantee]:
    """Yield the guarantee of each model, rehearsed once per number of records and groups."""
    known: dict[tuple[int, int, int], PrivacyGuarantee] = {}
    for candidate, rows in fits:
        own = candidate.records.take(rows)
        n_groups = 0 if own.groups is None else own.groups.nunique()
        asked = id(candidate), len(own.y), n_groups
        if asked not in known:
            known[asked] = _rehearse(clone(candidate.model), own)
        yield known[asked]


def _rehearse(model: Any, own: Records) -> PrivacyGuarantee:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit itself warns
        return rehearse_fit(partial(model.fit, own.X, own.y, **own.fit_params))


def _find_budget(candidate: Candidate) -> PrivacyBudget | None:
    """Return the only budget of a model; None without one, or if its cost is not known."""
    model = candidate.model
    budgets = [v for v in model.get_params().values() if isinstance(v, PrivacyBudget)]
    if isinstance(model, Pipeline):
        if not all(isinstance(step, SchemaTransformer) for _, step in model.steps[:-1]):
            return None
        model = model.steps[-1][1]
    if not _can_be_rehearsed(candidate) or len(budgets) != 1:
        return None
    return budgets[0] if getattr(model, "budget", None) is budgets[0] else None


def _can_be_rehearsed(candidate: Candidate) -> bool:
    """Return whether a fit of a model, or of its last step, states its cost before its release."""
    last = last_step(candidate.model)
    if getattr(last, "_processes", None) is not None:  # its processes wait for each other
        return False
    finite = math.isfinite(next(iter(candidate.params.values())))
    return finite and isinstance(last, PrivateEstimatorMixin)


Split = tuple[NDArray[np.intp], NDArray[np.intp]]
_N_TRIAL_RECORDS = 200  # records on which scorers are tried


def validate_epsilons(epsilons: Any) -> list[float]:
    """Return the privacy levels as floats; refuse values that are not positive or occur twice."""
    if isinstance(epsilons, (str, numbers.Real)) or not isinstance(epsilons, Iterable):
        raise ValueError(
            f"epsilons={epsilons!r} must be a list of positive numbers. Pass one, such as [1, 10]."
        )
    given = list(epsilons)
    if not given:
        raise ValueError("epsilons is empty. Pass at least one positive number.")
    for epsilon in given:
        if not (is_number(epsilon) and epsilon > 0):
            raise ValueError(
                f"epsilons must be positive numbers; got {epsilon!r}. Remove or correct it."
            )
    values = [float(epsilon) for epsilon in given]
    if len(set(values)) < len(values):
        raise ValueError(f"epsilons={given!r} must not contain a value twice. Remove duplicates.")
    return values


def validate_models(estimator: Any) -> dict[str, Any]:
    """Return the private models by name; the name of a single one is empty."""
    if not isinstance(estimator, Mapping):
        return {"": estimator}
    if not estimator or not all(isinstance(name, str) and name for name in estimator):
        raise ValueError(f"estimator={estimator!r} must name at least one estimator by a string.")
    return dict(estimator)


def validate_targets(models: Iterable[Any], y: Any) -> Any:
    """Return the targets as an array: labels, or floats for regressors."""
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


def validate_refit(refit: Any, names: list[str], epsilons: list[float]) -> int | None:
    """Return the index of the candidate to refit on all records, or None."""
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


def validate_scorers(estimator: Any, scoring: Any) -> dict[str, Any]:
    """Return the scorers by name; a single one is called "score", and the first is the main one."""
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
        return {"score": _validate_scorer(estimator, scoring)}
    if not named or not all(isinstance(name, str) for name in named):
        raise ValueError(f"scoring={scoring!r} must name at least one scorer by a string.")
    return {name: _validate_scorer(estimator, given) for name, given in named.items()}


def _validate_scorer(estimator: Any, scoring: Any) -> Any:
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


def check_scorers(scorers: Mapping[str, Any], records: Records, *, of_numbers: bool) -> None:
    """Refuse a scorer that does not return a number for a dummy model.

    **Edge cases.** A scorer that fails on the dummy is accepted: it may need other methods.
    """
    n = num_samples(records.X)
    few = records.take(np.unique(np.linspace(0, n - 1, _N_TRIAL_RECORDS).astype(int)))
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


def validate_splitter(cv: Any, y: Any, classifier: bool) -> Any:
    """Return the splitter for ``cv``; ValueError if it cannot split."""
    try:
        splitter = check_cv(cv, y, classifier=classifier)
        if not callable(getattr(splitter, "get_n_splits", None)):  # str has a method split
            raise TypeError("it is not a splitter")
        return splitter
    except (TypeError, ValueError) as error:
        raise_alone(ValueError(f"cv={cv!r} cannot split the records: {describe_error(error)}"))


def validate_splits(splitter: Any, cv: Any, X: Any, y: Any, **params: Any) -> list[Split]:
    """Return the splits as row numbers; refuse splits whose two sides share a record.

    A model tested on its training records would look better than it is, and an attack on it worse.
    """
    try:
        found = [
            (_row_numbers(train, num_samples(X)), _row_numbers(test, num_samples(X)))
            for train, test in splitter.split(X, y, **params)
        ]
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise_alone(ValueError(f"cv={cv!r} cannot split the records: {describe_error(error)}"))
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


def _row_numbers(part: Any, n: int) -> NDArray[np.intp]:
    """Return the row numbers of one side of a split, which may be a mask."""
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


def epsilon_parameter(estimator: Any, name: str | None = None) -> str:
    """Return a model's privacy parameter: ``name`` once checked, or the only ``epsilon``."""
    if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
        raise TypeError(
            f"estimator={estimator!r} must be a scikit-learn estimator object. Pass an instance."
        )
    params = estimator.get_params(deep=True)
    kind = type(estimator).__name__
    if name is not None:
        if not isinstance(name, str) or name not in params:
            raise ValueError(
                f"param_name={name!r} must be a parameter of {kind}; it has {sorted(params)}."
            )
        return name
    found = [p for p in params if p.rpartition("__")[2] == "epsilon"]
    if not found:
        raise ValueError(
            f"estimator: {kind} has no parameter epsilon. Pass a private model. A sweep also takes "
            "one whose privacy parameter has another name: param_name."
        )
    if len(found) > 1:
        raise ValueError(
            f"estimator: {kind} has {len(found)} parameters called epsilon ({found}). A sweep "
            "takes the name of the one to vary: param_name."
        )
    return found[0]


def choose_splitter(cv: Any, y: Any = None, *, classifier: bool, grouped: bool) -> Any:
    """Return the splitter for ``cv``; a number of folds means GroupKFold if there are groups."""
    if grouped and (cv is None or (isinstance(cv, Integral) and not isinstance(cv, bool))):
        return GroupKFold(5 if cv is None else int(cv))
    return validate_splitter(cv, y, classifier)


def check_groups_apart(splits: list[tuple[Any, Any]], groups: Groups | None, cv: Any) -> None:
    """Refuse splits with a group on both sides."""
    if groups is None:
        return
    for train, test in splits:
        both = np.intersect1d(groups.codes[train], groups.codes[test])
        if len(both):
            raise ValueError(
                f"cv={cv!r} has {len(both)} values of {groups.unit} among the training and the "
                "test records of one split: a model that knows somebody's other records would "
                "look better, and more exposed, than it is. Pass a number of folds, or a splitter "
                "such as GroupKFold."
            )


def warn_of_unprotected_groups(models: Mapping[str, Any], groups: Groups) -> None:
    """Warn of models whose guarantees are for single records although groups were given."""
    for name, model in models.items():
        if group_names(model):
            continue
        which = f"The estimator {name!r}" if name else f"The estimator {type(model).__name__}"
        warn_caller(
            f"{which} takes no groups in fit, so its guarantees are for single records, not for "
            f"values of {groups.unit}: groups keep these together in splits alone. Sweep an "
            "estimator whose fit takes groups, or convert the guarantee by a public bound: "
            f"guarantee.group(k, unit={groups.unit!r}).",
            PrivacyWarning,
        )


@dataclass(frozen=True)
class RoutedArguments:
    """Routed arguments of each estimator and scorer, by name, and of the splitter."""

    fit: dict[str, dict[str, Any]]
    score: dict[str, dict[str, Any]]
    split: dict[str, Any]


class RoutedMixin:
    """Metadata routing of a sweep, as :class:`~sklearn.model_selection.GridSearchCV` has it."""

    estimator: Any
    scoring: Any
    cv: Any

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the metadata requests of the estimators, the scorers and the splitter.

        Returns
        -------
        MetadataRouter
            An estimator has the key "estimator", with its name if there are several; a scorer
            "scorer" and its name; the splitter "splitter".
        """
        router = MetadataRouter(owner=type(self).__name__)
        models = validate_models(self.estimator)
        first = next(iter(models.values()))
        fits = MethodMapping().add(caller="fit", callee="fit")
        scores = (
            MethodMapping().add(caller="score", callee="score").add(caller="fit", callee="score")
        )
        for name, model in models.items():
            router.add(method_mapping=fits, **{_routing_key("estimator", name): model})
        for name, scorer in validate_scorers(first, self.scoring).items():
            router.add(method_mapping=scores, **{_routing_key("scorer", name): scorer})
        splitter = choose_splitter(self.cv, classifier=is_classifier(first), grouped=True)
        splits = MethodMapping().add(caller="fit", callee="split")
        return router.add(method_mapping=splits, splitter=splitter)

    def _routed_to_fit(self, groups: Any, params: Mapping[str, Any]) -> RoutedArguments:
        models = validate_models(self.estimator)
        scorers = validate_scorers(next(iter(models.values())), self.scoring)
        if not get_config()["enable_metadata_routing"]:
            given = {k: v for k, v in params.items() if v is not None}
            weights = given.get("sample_weight")
            weighted = {} if weights is None else {"sample_weight": weights}
            grouped = {
                name: {} if groups is None else dict.fromkeys(group_names(model), groups)
                for name, model in models.items()
            }
            return RoutedArguments(
                {name: grouped[name] | given for name in models},
                {name: weighted if takes_weights(s) else {} for name, s in scorers.items()},
                {"groups": groups},
            )
        given = dict(params) | ({} if groups is None else {"groups": groups})
        found = process_routing(self, "fit", **given)
        return RoutedArguments(
            {name: dict(found[_routing_key("estimator", name)].fit) for name in models},
            {name: dict(found[_routing_key("scorer", name)].score) for name in scorers},
            dict(found.splitter.split),
        )

    def _routed_to_score(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if not get_config()["enable_metadata_routing"]:
            if params:
                raise ValueError(
                    f"score takes {sorted(params)} only with "
                    "sklearn.set_config(enable_metadata_routing=True)."
                )
            return {}
        return dict(process_routing(self, "score", **params)[_routing_key("scorer", name)].score)


def split_weights(params: Mapping[str, Any], model: Any) -> tuple[Any, list[str]]:
    """Return the sample weights among arguments of ``fit``, and the names of all but groups."""
    names = ["sample_weight"]
    if isinstance(model, Pipeline):
        names.append(f"{model.steps[-1][0]}__sample_weight")
    found = [params[name] for name in names if name in params]
    return (found[0] if found else None), sorted(set(params) - set(names) - set(group_names(model)))


def _routing_key(what: str, name: str) -> str:
    return f"{what} {name}".strip()
