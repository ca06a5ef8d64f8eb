"""Every public entry that takes data, found by its signature, with arguments that it accepts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from hypothesis import strategies as st
from sklearn.base import clone

from skprivacy import mechanisms, model_selection
from skprivacy.mechanisms import SecureRandom

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

__all__ = ["DATA", "Entry", "all_entries", "public_entries"]

N = 24
# Parameters that hold values of records, of people or of what was computed from single records.
DATA = {
    "X", "X_in", "X_new", "X_out", "X_public", "X_test", "X_train", "batches", "canaries",
    "generated", "gradient", "gradients", "group", "groups", "groups_in", "groups_out", "label",
    "labels", "member", "neighbours", "other", "parties", "proba_in", "proba_out", "probas",
    "protected", "real", "reference", "released", "sample_weight", "scores_in", "scores_out",
    "sent", "shadow_probas", "shadow_trained", "subgroups", "synthetic", "table", "test",
    "trained", "unprotected", "value", "votes", "x", "y", "y_in", "y_new", "y_out", "y_test",
    "y_train", "y_true",
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A public function or method: how to call it, and which of its arguments are data."""

    owner: Any  # the class or function that is exported
    method: str  # "" for a function
    make: Callable[[], Callable[..., Any]]
    valid: dict[str, Any]

    @property
    def name(self) -> str:
        return ".".join(filter(None, [self.owner.__qualname__, self.method]))

    @property
    def data(self) -> list[str]:
        return sorted(DATA & set(self.valid))


def _drawn(valid: dict[str, Any]) -> dict[str, Any]:
    """Return arguments in which a strategy is one of its values."""
    return {
        k: _first(v) if isinstance(v, st.SearchStrategy) else v
        for k, v in valid.items()
    }


def _first(strategy: Any) -> Any:
    from hypothesis import find

    return find(strategy, lambda value: value is not None)


def data_parameters(function: Callable[..., Any]) -> list[str]:
    """Return the parameters of a function that hold data, in their order."""
    try:
        return [name for name in inspect.signature(function).parameters if name in DATA]
    except (TypeError, ValueError):
        return []


def methods_of(kind: Any) -> list[str]:
    """Return the public methods of a class that take data."""
    names = [name for name in dir(kind) if not name.startswith(("_", "set_"))]
    found = [name for name in names if callable(inspect.getattr_static(kind, name, None)) or True]
    return [name for name in found if _takes_data(kind, name)]


def _takes_data(kind: Any, name: str) -> bool:
    try:
        member = getattr(kind, name)
    except AttributeError:  # of a method that only some models have
        member = inspect.getattr_static(kind, name)
        member = getattr(member, "fn", member)
    return callable(member) and bool(data_parameters(member))


def public_entries() -> dict[str, list[str]]:
    """Return each public function and method that takes data, with those parameters."""
    found: dict[str, list[str]] = {}
    for package in test_complete.PACKAGES:
        module = import_module(f"skprivacy.{package}")
        for name in module.__all__:
            entry = getattr(module, name)
            if inspect.isclass(entry):
                parameters = data_parameters(entry)
                if parameters:
                    found[name] = parameters
                for method in methods_of(entry):
                    member = inspect.getattr_static(entry, method)
                    member = getattr(member, "fn", getattr(member, "__func__", member))
                    found[f"{name}.{method}"] = data_parameters(member)
            elif callable(entry) and (parameters := data_parameters(entry)):
                found[name] = parameters
    return found


def _estimators() -> Iterator[Entry]:
    cases: list[tuple[Callable[[], Any], Any, Any]] = [
        *((case.make, *case.data(N)) for case in test_estimators.PRIVATE.values()),
        *(
            (lambda model=model: clone(model), test_estimators.X, test_estimators.y)
            for model in test_estimators.PLAIN.values()
        ),
        *((_part(kind), _rows_of(kind), test_parts.y) for kind in test_parts.ESTIMATORS),
    ]
    for make, X, y in cases:
        yield from _of_estimator(make, X, y)


def _rows_of(kind: Any) -> Any:
    rows = test_parts.ESTIMATORS[kind]
    return np.ones((len(rows), 144)) if kind.__name__ == "ScatteringTransformer" else rows


def _part(kind: Any) -> Callable[[], Any]:
    def make() -> Any:
        known = {k: v for k, v in test_parts.SMALL.items() if k in inspect.signature(kind).parameters}
        if kind.__name__ == "ScatteringTransformer":
            known["image_shape"] = (12, 12)
        return kind(**known)

    return make


def _of_estimator(make: Callable[[], Any], X: Any, y: Any) -> Iterator[Entry]:
    # Public classes have other names in the tests than those that are exported.
    owner = _exported(type(make()))
    besides = {"groups": np.arange(len(X)) // 2, "parties": np.arange(len(X)) % 3,
               "X_public": X[::-1] + 0.01, "member": np.arange(len(X)) % 2 == 0,
               "sample_weight": np.ones(len(X)), "labels": y, "values": X[:, 0]}  # fmt: skip

    @cache
    def fitted() -> Any:
        model = make()
        taken = inspect.signature(model.fit).parameters
        values = {"X": X, "y": y, "X_public": besides["X_public"]}
        return model.fit(**{k: v for k, v in values.items() if k in taken})

    for method in methods_of(owner):
        if method in OF_SKORCH and owner.__name__ == "DPNeuralNet":
            continue
        member = getattr(make() if method.startswith(("fit", "partial")) else fitted(), method, None)
        if member is None:
            continue
        valid = {}
        for name, parameter in inspect.signature(member).parameters.items():
            if name in ("X", "y"):
                valid[name] = X if name == "X" else y
            elif name in DATA and parameter.kind is not parameter.VAR_KEYWORD:
                valid[name] = besides[name]
        optional = {"sample_weight", "groups", "parties"}
        yield Entry(owner, method, _bound(make, fitted, method),
                    {k: v for k, v in valid.items() if k not in optional} | {})  # fmt: skip
        for name in sorted(optional & set(valid)):
            kept = {k: v for k, v in valid.items() if k not in optional - {name}}
            yield Entry(owner, method, _bound(make, fitted, method), kept)


def _exported(kind: Any) -> Any:
    """Return the class of the library of which a class of the tests is a variant."""
    return next(base for base in kind.__mro__ if base.__module__.startswith("skprivacy"))


def _bound(make: Any, fitted: Any, method: str) -> Callable[[], Callable[..., Any]]:
    return lambda: getattr(make() if method.startswith(("fit", "partial")) else fitted(), method)


# Of skorch's, which its users do not call with records of their own.
OF_SKORCH = {
    "evaluation_step", "forward", "forward_iter", "get_dataset", "get_iterator", "get_loss",
    "get_split_datasets", "infer", "on_train_begin", "on_train_end", "fit_loop", "run_single_epoch",
    "train_step", "train_step_single", "validation_step", "initialize", "check_data",
}  # fmt: skip


def _attacks() -> Iterator[Entry]:
    X, y, others = test_attacks.X, test_attacks.y, test_attacks.OTHERS
    values = {
        "X": X, "y": y, "X_in": X, "y_in": y, "X_out": others, "y_out": y,
        "member": np.arange(test_attacks.N) < test_attacks.N // 2,
        "groups": np.arange(test_attacks.N) // 2,
    }  # fmt: skip
    for kind in test_attacks.MEMBERSHIP:
        known = {**test_attacks.SMALL, **test_attacks.FEWEST.get(kind, {})}
        known["target"] = test_attacks.OTHER_TARGETS.get(kind, test_attacks.TARGET)
        chosen = {k: known.get(k, v) for k, v in kind().get_params(deep=False).items()}
        yield from _of_attack(kind, chosen, dict.fromkeys(methods_of(kind)), values)
    for kind, (chosen, methods) in test_attacks.METHODS.items():
        yield from _of_attack(kind, chosen, methods, values)


def _of_attack(kind: Any, chosen: dict, methods: dict, values: dict) -> Iterator[Entry]:
    def signature(method: str) -> dict[str, Any]:
        parameters = inspect.signature(getattr(kind, method)).parameters
        return {name: values[name] for name in parameters if name in values}

    def made() -> Any:
        return kind(**chosen)

    @cache
    def fitted() -> Any:
        return made().fit(**(methods.get("fit") or signature("fit")))

    for method, given in methods.items():
        valid = signature(method) if given is None else given
        yield Entry(
            kind, method,
            lambda method=method: getattr(made() if method == "fit" else fitted(), method), valid,
        )  # fmt: skip


def _functions() -> Iterator[Entry]:
    tables: list[dict[Any, dict[str, Any]]] = [
        test_attacks.FUNCTIONS, test_audits.CALLS, test_metrics.CALLS, test_tables.RELEASES,
        test_tables.FUNCTIONS, test_selection.CALLS, test_parts.CALLS,
    ]  # fmt: skip
    for table in tables:
        for function, valid in table.items():
            if inspect.ismethod(function):
                owner = function.__self__
                owner = owner if inspect.isclass(owner) else type(owner)
                method = function.__name__
            else:
                owner, method = function, ""
            if DATA & set(valid):
                yield Entry(owner, method, lambda function=function: function, valid)
            if function is test_tables.preprocessing.private_histogram:
                pass


def _results() -> Iterator[Entry]:
    for method, valid in test_attacks.OF_RESULTS.items():
        result = test_attacks.RESULT
        yield Entry(type(result), method, lambda method=method: getattr(result, method), valid)
    for asked, methods in test_results.ASKED.items():
        for method, valid in methods.items():
            if DATA & set(valid):
                owner = asked() if inspect.isclass(asked()) else type(asked())
                yield Entry(
                    owner, method,
                    lambda asked=asked, method=method: getattr(asked(), method), valid,
                )  # fmt: skip


def _mechanisms() -> Iterator[Entry]:
    for kind, (parameters, values) in test_mechanisms.MECHANISMS.items():
        yield Entry(
            kind, "release", lambda kind=kind, p=parameters: kind(**_drawn(p)).release,
            {"value": values, "random": SecureRandom()},
        )  # fmt: skip
    valid = test_mechanisms.METHODS[mechanisms.DistributedGaussian]["total"]
    kind = mechanisms.DistributedGaussian
    parameters = test_mechanisms.MECHANISMS[kind][0]
    yield Entry(kind, "total", lambda: kind(**_drawn(parameters)).total, valid)


def _sweeps() -> Iterator[Entry]:
    X, y = test_selection.X, test_selection.y
    kind = model_selection.PrivacySweepCV
    settings = {k: v for k, v in test_selection.SWEEP.items() if k not in ("cv", "n_jobs")}

    def made() -> Any:
        return kind(test_selection._private(), **{**settings, "cv": 2, "refit": 1.0})

    @cache
    def fitted() -> Any:
        return made().fit(X, y)

    values = {"X": X, "y": y, "groups": None, "subgroups": y}
    for method in methods_of(kind):
        names = data_parameters(inspect.getattr_static(kind, method))
        yield Entry(
            kind, method, lambda m=method: getattr(made() if m == "fit" else fitted(), m),
            {k: values[k] for k in names if k in values and values[k] is not None},
        )  # fmt: skip


@cache
def all_entries() -> list[Entry]:
    """Return every public entry that takes data."""
    makers = (_estimators, _attacks, _functions, _results, _mechanisms, _sweeps)
    found = [entry for maker in makers for entry in maker()]
    return [entry for entry in found if entry.data]
