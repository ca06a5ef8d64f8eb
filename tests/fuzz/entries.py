"""Every public callable, found in the lists of public names, with arguments that it accepts.

An entry is a function, the making of an object, a fit, or a method. Its arguments follow from its
signature by ``arguments.py``; those of a private estimator, from its case among the contracts.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from typing import Any

import skprivacy
from skprivacy.accounting import Event, PrivacyBudget
from skprivacy.attacks import LabeledRecords, MembershipAttack
from skprivacy.attacks.attributes.label import LabelInferenceResult
from skprivacy.ensemble.aggregators import Aggregator
from skprivacy.ensemble.vote_analysis import VoteAnalysis
from skprivacy.fine_tuning import SampledSensitivity
from skprivacy.fine_tuning.head import Head
from skprivacy.fine_tuning.sensitivity import Sensitivity
from skprivacy.preprocessing.columns import Column
from skprivacy.preprocessing.constraints import Constraint
from skprivacy.synthesis.quality import SyntheticQuality

from ..contracts.cases import CASES, LABELS
from ..contracts.refusals import _state as state_of
from .arguments import CHEAP, MADE, MEMBER, NEEDED, OPTIONAL, OWN, UPDATES, N, y
from .values import types_of

__all__ = ["ENTRIES", "EXEMPT", "MISSING", "PACKAGES", "PRIVATE", "Begun", "Entry", "public"]

PACKAGES = [
    "accounting", "accounting.events", "additive_model", "attacks", "audit", "certificates", "cli",
    "datasets", "defenses", "display", "ensemble", "exceptions", "federated", "fine_tuning",
    "label_privacy", "linear_model", "mechanisms", "metrics", "model_selection", "neural_network",
    "persistence", "preprocessing", "sums", "synthesis",
]  # fmt: skip
# Public names that get no odd input here, and why. A class is not made; its methods are asked if
# ``MADE`` has an object.
EXEMPT: dict[str, set[str]] = {
    "a result, which the library makes": {
        "AuditReport", "InversionResult", "LabelCanaries", "LabelInferenceResult",
        "SyntheticQuality", "VoteAnalysis",
    },
    "abstract": {"Event", "Mechanism", "MembershipAttack", "Table"},
    "an exception or a warning": {
        "BudgetExceededError", "LedgerError", "PrivacyLeakWarning",
        "PrivacyWarning", "SyntheticTrainingError",
    },
    "a constant": {"__version__"},
    "as scikit-learn's displays, it keeps what it is given and matplotlib draws it": {
        "MembershipRocDisplay", "MembershipRocDisplay.plot", "PrivateAdditiveDisplay",
        "PrivateAdditiveDisplay.plot", "PrivacySweepCV.plot", "PrivacyBudget.plot",
    },
    "a test of its own in test_files.py": {
        "AttackResult.from_dict", "LabelInferenceResult.from_dict", "PrivacyGuarantee.from_dict",
        "PrivacyBudget.open", "Schema.from_dict", "config_context", "get_config",
        "issue_certificate", "load_model", "main", "open_parquet", "private_summary", "save_model",
        "set_config", "verify_certificate",
    },
    "a test of its own in tests/sums": {
        "SumTotal", "SumTotal.add", "SumTotal.load", "SumTotal.save",
        "AdaSSPRegressor.fit_sums", "FunctionalMechanismClassifier.fit_sums",
        "FunctionalMechanismRegressor.fit_sums", "PrivateStandardScaler.fit_sums",
        "ALMFineTuner.fit_sums", "MarginalSynthesizer.fit_sums",
        "PrivateAdditiveClassifier.fit_sums", "PrivateAdditiveRegressor.fit_sums",
    },
    "it writes where it is told to": {"PrivacyBudget.export", "create_key"},
    "called by the library with what it has checked": {
        "Schema.confirm", "FederatedPlan.contribution", "FederatedPlan.step",
        "Updates.weights_of",
    },
    "passed on as predict_proba is": {
        "PrivacySweepCV.predict_log_proba", "PrivateSearchCV.predict_log_proba",
    },
    "skorch's own, which a training calls": {
        f"DPNeuralNet.{name}"
        for name in (
            "check_data", "fit_loop", "forward", "forward_iter", "get_dataset", "get_loss",
            "get_split_datasets", "infer", "initialize_optimizer", "on_train_begin",
            "on_train_end", "run_single_epoch", "train_step", "train_step_single",
            "validation_step",
        )
    },
}  # fmt: skip
# Parameters that hold values of records or of people, or what was computed from single records.
DATA = {
    "X", "X_in", "X_out", "X_public", "X_test", "X_train", "batches", "canaries", "generated",
    "gradient", "gradients", "group", "groups", "groups_in", "groups_out", "label", "labels",
    "neighbours", "other", "parties", "proba_train", "proba_test", "probas", "real",
    "reference", "released", "sample_weight", "scores_in", "scores_out", "shadow_probas",
    "shadow_trained", "subgroups", "synthetic", "table", "test", "trained", "value",
    "votes", "x", "y", "y_in", "y_out", "y_test", "y_train",
}  # fmt: skip
EXEMPTED = {name for names in EXEMPT.values() for name in names}
# Classes whose methods the library calls, with what it has checked.
OF_THE_LIBRARY = (
    Event, Head, Column, Constraint, Sensitivity, SampledSensitivity
)  # fmt: skip
# One case of each class is enough: the others differ in parameters, which are odd here anyway.
PRIVATE = {name: case for name, case in {**CASES, **LABELS}.items() if "-" not in name}


@dataclass
class Begun:
    """A call, the objects that a refusal must leave unchanged, and the result."""

    call: Callable[[], Any]
    unchanged: Callable[[], Any] = lambda: None
    model: Any = None
    budget: Any = None


@dataclass(frozen=True)
class Entry:
    """A public callable: arguments that it takes, and how a call with such arguments begins."""

    name: str
    valid: dict[str, Any] = field(repr=False)
    begin: Callable[[dict[str, Any]], Begun] = field(repr=False)
    names: frozenset[str] = field(default=frozenset())  # that a refusal may speak of, besides
    types: dict[str, Any] = field(default_factory=dict, repr=False)  # odd values of each type

    def call_with(self, name: str, form: Callable[[Any], Any]) -> Callable[[], Any]:
        """Return the call with one of its arguments, which may be optional, in another form."""
        value = self.valid[name]
        value = OPTIONAL.get(name) if value is None else value
        return self.begin({**self.valid, name: form(value)}).call


# The labels of each argument with records, which a membership attack takes together with them.
LABELS_OF = {"X": "labels", "X_in": "y_in", "X_out": "y_out"}
ON_UPDATES = {"AttributeInference", "PropertyInference"}  # which attack updates, too
# Results that are in no list of public names, but whose methods users call.
RESULTS = [LabelInferenceResult, SyntheticQuality, VoteAnalysis]
MISSING: list[str] = []  # required parameters of which no value is known


def public() -> dict[str, Any]:
    """Return every public object by its name."""
    modules = [import_module(f"skprivacy.{package}") for package in PACKAGES]
    exported = {name: getattr(m, name) for m in (*modules, skprivacy) for name in m.__all__}
    return exported | {kind.__name__: kind for kind in RESULTS}


def arguments_of(name: str, function: Any, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return an argument for every parameter of a callable."""
    own, found = {**(known or {}), **OWN.get(name, {})}, {}
    for parameter in inspect.signature(function).parameters.values():
        key, default = parameter.name, parameter.default
        if key == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if default is parameter.empty and key not in {**own, **NEEDED}:
            MISSING.append(f"{name}({key}=)")
            continue
        usual = CHEAP.get(key, default) if default is not parameter.empty else NEEDED.get(key)
        found[key] = own.get(key, usual)
    return found


def with_labels(kind: Any, valid: dict[str, Any]) -> dict[str, Any]:
    """Add the labels of records, and known members, to the arguments of a membership attack."""
    if not issubclass(kind, MembershipAttack):
        return valid
    labels = {LABELS_OF[name]: y for name in valid if name in LABELS_OF}
    return {**valid, **labels, "y": MEMBER, **OWN.get(f"{kind.__name__}.fit", {})}


def join_labels(kind: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Join the records and labels that a membership attack gets."""
    if not issubclass(kind, MembershipAttack):
        return given
    records = {
        name: LabeledRecords(given[name], given[labels])
        for name, labels in LABELS_OF.items()
        if name in given
    }
    return {k: v for k, v in {**given, **records}.items() if k not in LABELS_OF.values()}


def member(kind: Any, name: str) -> Any:
    """Return a method of a class, also one that only some models have."""
    found = inspect.getattr_static(kind, name)
    return getattr(found, "fn", getattr(found, "__func__", found))


def methods_of(kind: Any) -> Iterator[tuple[str, bool]]:
    """Yield the methods of a class that the library wrote and that take arguments."""
    for name in dir(kind):
        static = inspect.getattr_static(kind, name)
        method = member(kind, name)
        if name.startswith(("_", "set_", "get_")) or not inspect.isfunction(method):
            continue
        inner = issubclass(kind, Aggregator) and name == "event"
        if inner or f"{kind.__name__}.{name}" in EXEMPTED:
            continue
        taken = inspect.signature(method).parameters
        ours = (method.__module__ or "").startswith("skprivacy")
        of_class = isinstance(static, (classmethod, staticmethod))
        if (ours and len(taken) > 1) or DATA & {*taken}:
            yield name, of_class


def _function(name: str, function: Any) -> Entry:
    valid = arguments_of(name, function)

    def begin(given: dict[str, Any]) -> Begun:
        if "budget" not in given:
            return Begun(partial(function, **given))
        budget = PrivacyBudget(1e6, 0.01)
        given = {**given, "budget": budget}
        return Begun(partial(function, **given), lambda: len(budget.entries()))

    return Entry(name, valid, begin, types=types_of(function))


def _fit(kind: Any, target: Any = None) -> Iterator[Entry]:
    """Yield the fit of an estimator without budget, and its methods."""
    name = kind.__name__
    params = arguments_of(name, kind)
    params = params if target is None else {**params, "target": target}
    data = with_labels(kind, arguments_of(f"{name}.fit", kind.fit))

    def begin(given: dict[str, Any]) -> Begun:
        model = kind(**{k: given[k] for k in params})
        records = {k: given[k] for k in data}
        return Begun(
            lambda: model.fit(**join_labels(kind, records)), lambda: sorted(vars(model)), model
        )

    @cache
    def fitted() -> Any:
        return begin({**params, **data}).call()

    types = types_of(kind, kind.fit)
    suffix = "" if target is None else "(updates)"
    names = frozenset(_deep(params))
    yield Entry(f"{name}.fit{suffix}", {**params, **data}, begin, names, types)
    if target is not None:  # the methods are those of the other target
        return
    yield from _methods(kind, fitted, data, frozenset(params), partial(kind, **params))


def _private(case: Any, kind: Any) -> Iterator[Entry]:
    """Yield the fit of a private estimator: nothing may be charged if it is refused."""
    name = kind.__name__
    model = case.make()
    params = model.get_params(deep=False)
    params = {} if name == "DPNeuralNet" else {k: v for k, v in params.items() if k != "budget"}
    X, y = case.data(N)
    data = {k: v for k, v in arguments_of(f"{name}.fit", model.fit).items() if k != "fit_params"}
    data = {**data, "X": X, "y": y}
    clash = {*params} & {*data}
    assert not clash, clash

    def begin(given: dict[str, Any]) -> Begun:
        budget = PrivacyBudget(100.0, 1e-2)
        model = case.make(budget=budget)
        # The estimators that are simple to set, set first: a refusal leaves what was set.
        model.set_params(**{k: given[k] for k in params if given[k] is not params[k]})
        call = partial(model.fit, **{k: given[k] for k in data if given[k] is not None})
        return Begun(call, lambda: (len(budget.entries()), state_of(model)), model, budget)

    @cache
    def fitted() -> Any:
        return case.make().fit(X, y)

    names = frozenset({*model.get_params(), "budget", "unit"})
    types = types_of(kind, kind.fit)
    yield Entry(f"{name}.fit", {**params, **data}, begin, names, types)
    yield from _methods(kind, fitted, {"X": X, "y": y}, names, case.make)


def _deep(params: dict[str, Any]) -> set[str]:
    """Return the names of parameters of nested parameters."""
    has = [value for value in params.values() if hasattr(value, "get_params")]
    return {name for value in has if not inspect.isclass(value) for name in value.get_params()}


def _methods(
    kind: Any,
    made: Callable[[], Any],
    data: dict[str, Any],
    names: frozenset[str] = frozenset(),
    fresh: Callable[[], Any] | None = None,  # for methods that fit
) -> Iterator[Entry]:
    for method, of_class in methods_of(kind):
        if method == "fit":
            continue
        name = f"{kind.__name__}.{method}"
        if of_class:
            if inspect.getattr_static(kind, method).__func__ is not getattr(
                inspect.getattr_static(kind.__mro__[1], method, None), "__func__", None
            ):
                yield _function(name, getattr(kind, method))
            continue
        known = {k: data[k] for k in ("X", "y") if k in data}
        if "X_public" in data and "X" not in data:
            known["X"] = data["X_public"]
        signed = member(kind, method)
        valid = arguments_of(name, signed, known)
        if issubclass(kind, MembershipAttack):
            valid |= {
                LABELS_OF[k]: data["labels"] if k == "X" else y for k in valid if k in LABELS_OF
            }

        def begin(given: dict[str, Any], method: str = method) -> Begun:
            fits = fresh is not None and method.startswith(("fit", "partial_fit"))
            asked = fresh() if fits else made()
            left = asked._ledger.records if isinstance(asked, PrivacyBudget) else lambda: None
            return Begun(lambda: whole(getattr(asked, method)(**join_labels(kind, given))), left)

        yield Entry(name, valid, begin, names, types_of(signed))


def whole(answer: Any) -> Any:
    """Return all that a generator gives."""
    return list(answer) if inspect.isgenerator(answer) else answer


def _entries() -> Iterator[Entry]:
    cases = {_exported(case): case for case in PRIVATE.values()}
    seen = set()
    for name, entry in sorted(public().items()):
        if id(entry) in seen or not callable(entry):
            continue
        seen.add(id(entry))
        if not inspect.isclass(entry):
            if name not in EXEMPTED:
                yield _function(name, entry)
        elif entry in cases:
            yield from _private(cases[entry], entry)
            if "X_public" in inspect.signature(entry.fit).parameters:
                plain = next(_fit(entry))  # what the case adds by itself may be odd, too
                yield replace(plain, name=f"{name}.fit(X_public)")
        elif hasattr(entry, "fit") and name not in EXEMPTED:
            yield from _fit(entry)
            if name in ON_UPDATES:
                yield from _fit(entry, UPDATES)
        else:
            if name not in EXEMPTED:
                yield _function(name, entry)
            if issubclass(entry, OF_THE_LIBRARY) or issubclass(entry, BaseException):
                continue
            if name in MADE:
                yield from _methods(entry, MADE[name], {})
            elif name in EXEMPTED:
                for method, of_class in methods_of(entry):
                    if of_class:
                        yield _function(f"{name}.{method}", getattr(entry, method))
            else:
                valid = arguments_of(name, entry)
                yield from _methods(entry, partial(entry, **valid), {})


def _exported(case: Any) -> Any:
    """Return the class of the library of which a class of the tests is a variant."""
    kinds = type(case.make()).__mro__
    return next(base for base in kinds if base.__module__.startswith("skprivacy"))


ENTRIES = list(_entries())
