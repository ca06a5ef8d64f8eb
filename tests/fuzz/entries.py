"""Every public entry that takes data, found by its signature, with arguments that it accepts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
from hypothesis import find
from hypothesis import strategies as st
from sklearn.base import clone

from skprivacy import attacks, audit, datasets, display, ensemble, mechanisms, model_selection
from skprivacy.mechanisms import SecureRandom
from skprivacy.preprocessing import private_histogram
from skprivacy.synthesis import MarginalSynthesizer

from . import (
    test_attacks,
    test_audits,
    test_complete,
    test_estimators,
    test_mechanisms,
    test_metrics,
    test_parts,
    test_results,
    test_selection,
    test_tables,
)

__all__ = ["DATA", "NOT_CALLED", "Entry", "all_entries", "public_entries"]

N = 24
# Parameters that hold values of records or of people, or what was computed from single records.
DATA = {
    "X", "X_in", "X_new", "X_out", "X_public", "X_test", "X_train", "batches", "canaries",
    "generated", "gradient", "gradients", "group", "groups", "groups_in", "groups_out", "label",
    "labels", "member", "neighbours", "other", "parties", "proba_train", "proba_test", "probas",
    "protected", "real", "reference", "released", "sample_weight", "scores_in", "scores_out",
    "sent", "shadow_probas", "shadow_trained", "subgroups", "synthetic", "table", "test",
    "trained", "unprotected", "value", "votes", "x", "y", "y_in", "y_new", "y_out", "y_test",
    "y_train", "y_true",
}  # fmt: skip
# Public names with such a parameter that take no data of a caller, and why.
NOT_CALLED = {
    "skorch's own, which a training calls": {
        f"DPNeuralNet.{name}"
        for name in (
            "check_data", "fit_loop", "forward", "forward_iter", "get_dataset", "get_loss",
            "get_split_datasets", "infer", "on_train_begin", "on_train_end",
        )
    },
    "abstract": {
        "Aggregator.release", "Mechanism.release", *(
            f"MembershipAttack.{name}" for name in ("evaluate", "fit", "predict", "score_samples")
        ),
    },
    "a result, which the library makes": {
        "DisclosureCheck", "GroupExposure", "LabelCanaries", "OneRunAuditReport",
    "PrivacyVerificationReport",
        "Smoothed.count", "Smoothed.index",
    },
    "called by the library with what it has checked": {
        "FederatedPlan.contribution", "PropertyInference.train_shadow",
        "PublicRecords.encoder_like",
    },
    "passed on as predict_proba is": {"PrivacySweepCV.predict_log_proba"},
    "the name of a column, or columns": {"DPGANSynthesizer", "MarginalSynthesizer", "SCARFEncoder"},
    "an event, whose votes are public or sanitised": {
        "GNMaxEvent", "LNMaxEvent", "VoteThresholdEvent"
    },
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A public function or method: how to get it, and arguments that it takes."""

    name: str
    get: Callable[[], Callable[..., Any]]
    valid: dict[str, Any]

    @property
    def data(self) -> list[str]:
        return sorted(DATA & set(self.valid))

    def call_with(self, name: str, form: Callable[[Any], Any]) -> Callable[[], Any]:
        """Return the call with one of its arguments in another form."""
        given = {k: _one_of(v) for k, v in self.valid.items()}
        given[name] = form(given[name])
        return partial(self.get(), **given)


def _one_of(value: Any) -> Any:
    return (
        find(value, lambda found: np.size(found) > 0)
        if isinstance(value, st.SearchStrategy)
        else value
    )


def public_entries() -> set[tuple[str, str]]:
    """Return each public function and method that takes data, with each such parameter."""
    found = set()
    for package in test_complete.PACKAGES:
        module = import_module(f"skprivacy.{package}")
        for name in module.__all__:
            entry = getattr(module, name)
            found |= {(name, parameter) for parameter in _data_of(entry)}
            if inspect.isclass(entry):
                methods = [name for name in dir(entry) if not name.startswith(("_", "set_"))]
                found |= {
                    (f"{name}.{method}", parameter)
                    for method in methods
                    for parameter in _data_of(_member(entry, method))
                }
    return found


def _member(kind: Any, name: str) -> Any:
    """Return a method of a class, also one that only some models have."""
    found = inspect.getattr_static(kind, name)
    return getattr(found, "fn", getattr(found, "__func__", found))


def _data_of(function: Any) -> list[str]:
    if not callable(function):
        return []
    try:
        return [name for name in inspect.signature(function).parameters if name in DATA]
    except (TypeError, ValueError):
        return []


def _methods(kind: Any) -> list[str]:
    names = [name for name in dir(kind) if not name.startswith(("_", "set_"))]
    return [name for name in names if _data_of(_member(kind, name))]


def _with_optional(
    name: str, get: Callable[[], Callable[..., Any]], valid: dict[str, Any], optional: dict
) -> Iterator[Entry]:
    """Yield an entry, and one more for each of its optional arguments."""
    yield Entry(name, get, valid)
    for parameter, value in optional.items():
        yield Entry(name, get, {**valid, parameter: value})


def _estimators() -> Iterator[Entry]:
    cases: list[tuple[Callable[[], Any], Any, Any]] = [
        *((case.make, *case.data(N)) for case in test_estimators.PRIVATE.values()),
        *(
            (partial(clone, model), test_estimators.X, test_estimators.y)
            for model in test_estimators.PLAIN.values()
        ),
        *(_part(kind) for kind in test_parts.ESTIMATORS),
        (
            partial(MarginalSynthesizer, schema=test_tables.SCHEMA, method="independent"),
            test_tables.TABLE, test_tables.TABLE["ill"],
        ),
    ]  # fmt: skip
    for make, X, y in cases:
        yield from _of_estimator(make, X, y)


def _part(kind: Any) -> tuple[Callable[[], Any], Any, Any]:
    taken = inspect.signature(kind).parameters
    given = {k: v for k, v in test_parts.SMALL.items() if k in taken}
    X = test_parts.ESTIMATORS[kind]
    if kind.__name__ == "ScatteringTransformer":
        given["image_shape"], X = (12, 12), np.ones((len(X), 144))
    return partial(kind, **given), X, test_parts.y


def _of_estimator(make: Callable[[], Any], X: Any, y: Any) -> Iterator[Entry]:
    kind = _exported(type(make()))
    needed = {"X": X, "y": y, "X_public": X[::-1]}
    optional = {
        "groups": np.arange(len(X)) // 2, "parties": np.arange(len(X)) % 3,
        "sample_weight": np.ones(len(X)),
    }  # fmt: skip

    @cache
    def fitted() -> Any:
        model = make()
        return model.fit(**_taken(model.fit, needed))

    for method in _methods(kind):
        if f"{kind.__name__}.{method}" in NOT_CALLED["skorch's own, which a training calls"]:
            continue
        trains = method.startswith(("fit", "partial"))
        member = getattr(make() if trains else fitted(), method, None)
        if member is not None:
            get = partial(_method_of, make if trains else fitted, method)
            valid, more = (_taken(_member(kind, method), known) for known in (needed, optional))
            yield from _with_optional(f"{kind.__name__}.{method}", get, valid, more)


def _method_of(model: Callable[[], Any], name: str) -> Any:
    return getattr(model(), name)


def _taken(function: Any, values: dict[str, Any]) -> dict[str, Any]:
    return {k: values[k] for k in inspect.signature(function).parameters if k in values}


def _exported(kind: Any) -> Any:
    """Return the class of the library of which a class of the tests is a variant."""
    return next(base for base in kind.__mro__ if base.__module__.startswith("skprivacy"))


def _attacks() -> Iterator[Entry]:
    X, y, others = test_attacks.X, test_attacks.y, test_attacks.OTHERS
    values = {
        "X": X, "y": y, "X_in": X, "y_in": y, "X_out": others, "y_out": y,
        "member": np.arange(test_attacks.N) < test_attacks.N // 2,
    }  # fmt: skip
    for kind in test_attacks.MEMBERSHIP:
        known = {**test_attacks.SMALL, **test_attacks.FEWEST.get(kind, {})}
        known["target"] = test_attacks.OTHER_TARGETS.get(kind, test_attacks.TARGET)
        chosen = {k: known.get(k, v) for k, v in kind().get_params(deep=False).items()}
        methods = {name: _taken(getattr(kind, name), values) for name in _methods(kind)}
        if kind is attacks.StolenMemoriesAttack:  # it needs dozens of records to be fitted
            rows, labels = np.tile(X, (6, 1)), np.tile(y, 6)
            methods["fit"] = {"X": rows, "y": labels, "member": np.arange(len(rows)) % 2 == 0}
        yield from _of_attack(kind, chosen, methods)
    for kind, (chosen, methods) in test_attacks.METHODS.items():
        if kind is attacks.ShadowPool:
            methods = {**methods, "iter_proba": {"X": X}}
        yield from _of_attack(kind, chosen, methods)


def _of_attack(kind: Any, chosen: dict, methods: dict) -> Iterator[Entry]:
    @cache
    def fitted() -> Any:
        return kind(**chosen).fit(**methods["fit"])

    def get(method: str) -> Any:
        if method == "iter_proba":
            return lambda **given: list(fitted().iter_proba(**given))
        return getattr(kind(**chosen) if method == "fit" else fitted(), method)

    for method, valid in methods.items():
        name = f"{kind.__name__}.{method}"
        optional = _taken(_member(kind, method), {"groups": np.arange(N) // 2})
        yield from _with_optional(name, partial(get, method), valid, optional)


def _functions() -> Iterator[Entry]:
    tables: list[dict[Any, dict[str, Any]]] = [
        test_attacks.FUNCTIONS, test_audits.CALLS, test_metrics.CALLS, test_tables.RELEASES,
        test_tables.FUNCTIONS, test_selection.CALLS, test_parts.CALLS, _MORE,
    ]  # fmt: skip
    one, pair = np.arange(N) // 2, (np.arange(N) // 2, 100 + np.arange(N) // 2)
    for table in tables:
        for function, valid in table.items():
            of_pairs = function in (
                audit.audit, audit.audit_predictions, audit.check_disclosure, audit.audit_synthetic
            )  # fmt: skip
            optional = {"groups": pair if of_pairs else one}
            if "groups" not in _data_of(function) or "groups" in valid:
                optional = {}
            yield from _with_optional(
                _name_of(function), lambda function=function: function,
                {**valid, **_QUICK.get(function, {})}, optional,
            )  # fmt: skip


_QUICK = {audit.verify_privacy: {"n_runs": 4, "seconds": 0.01}}
_MORE = {
    display.MembershipRocDisplay.from_predictions: test_metrics.SCORES,
    datasets.make_grouped_table: {"X": test_tables.TABLE, "y": test_tables.TABLE["ill"]},
    private_histogram: {"x": test_tables.COLUMN, "categories": [0.0, 1.0], "epsilon": 1.0},
}


def _name_of(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    if owner is None:
        return function.__qualname__
    return f"{(owner if inspect.isclass(owner) else type(owner)).__name__}.{function.__name__}"


@cache
def _guessed() -> Any:
    valid = test_attacks.METHODS[attacks.LabelInferenceAttack]
    attack = attacks.LabelInferenceAttack(**valid[0]).fit(**valid[1]["fit"])
    return attack.evaluate(**valid[1]["evaluate"])


def _results() -> Iterator[Entry]:
    asked: dict[Callable[[], Any], dict[str, Any]] = {
        **test_results.ASKED,
        lambda: test_attacks.RESULT: test_attacks.OF_RESULTS,
        _guessed: {
            method: {"groups_in": np.arange(5) % 2, "groups_out": np.arange(5) % 2}
            for method in ("by_group", "joined")
        },
    }
    for who, methods in asked.items():
        owner = who() if inspect.isclass(who()) else type(who())
        for method, valid in methods.items():
            name = f"{owner.__name__}.{method}"
            yield Entry(name, partial(_method_of, who, method), valid)
    for name in ("scores_in", "scores_out"):
        valid = {"scores_in": np.arange(5.0), "scores_out": np.arange(5.0), name: np.arange(5.0)}
        yield Entry("LabelInferenceResult", lambda: attacks.LabelInferenceResult, valid)


def _mechanisms() -> Iterator[Entry]:
    random, of_parties = SecureRandom(), mechanisms.DistributedGaussian
    for kind, (parameters, values) in test_mechanisms.MECHANISMS.items():
        get = partial(
            lambda kind, parameters: kind(**{k: _one_of(v) for k, v in parameters.items()}).release,
            kind, parameters,
        )  # fmt: skip
        yield Entry(f"{kind.__name__}.release", get, {"value": values, "random": random})
    parameters = test_mechanisms.MECHANISMS[of_parties][0]
    valid = test_mechanisms.METHODS[of_parties]["total"]
    yield Entry("DistributedGaussian.total", lambda: of_parties(**parameters).total, valid)
    for kind in (
        ensemble.GNMax, ensemble.LNMax, ensemble.ConfidentGNMax, ensemble.InteractiveGNMax
    ):  # fmt: skip
        votes = {"votes": test_parts.VOTES, "moved": 1, "random": random}
        given = {k: _one_of(v) for k, v in test_parts.CALLS[kind].items()}
        yield Entry(f"{kind.__name__}.release", lambda k=kind, g=given: k(**g).release, votes)


def _sweeps() -> Iterator[Entry]:
    X, y = test_selection.X, test_selection.y
    kind = model_selection.PrivacySweepCV
    settings = {k: v for k, v in test_selection.SWEEP.items() if k not in ("cv", "n_jobs")}

    def made() -> Any:
        return kind(test_selection._private(), **{**settings, "cv": 2, "refit": 1.0})

    fitted = cache(lambda: made().fit(X, y))
    for method in sorted({*_methods(kind)} - {"predict_log_proba"}):
        get = partial(_method_of, made if method == "fit" else fitted, method)
        valid = _taken(_member(kind, method), {"X": X, "y": y})
        optional = _taken(_member(kind, method), {"subgroups": y, "groups": np.arange(N) // 2})
        yield from _with_optional(f"{kind.__name__}.{method}", get, valid, optional)


@cache
def all_entries() -> list[Entry]:
    """Return every public entry that takes data."""
    makers = (_estimators, _attacks, _functions, _results, _mechanisms, _sweeps)
    found = [entry for maker in makers for entry in maker()]
    return [entry for entry in found if entry.data]
