"""Guarantees inside an estimator, composed if they are about the same records, and passed claims.

:func:`cost_of_search` adds up all fits of a hyperparameter search over private estimators.
:func:`read_claim` converts and checks a claim that a user passes to an audit, a verification or a
command. Start reading at :func:`compose_guarantees`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion

from ..._sklearn import is_search
from ..._validation import is_number
from ...accounting import (
    ApproxDPEvent,
    ComposedEvent,
    Event,
    PrivacyGuarantee,
    RepeatedEvent,
    weakest_arithmetic,
)
from ...accounting.guarantee import UNSPECIFIED
from ...preprocessing.pipeline import is_plain_pipeline

_REQUESTED = (
    "each fit of the search kept to the epsilon and delta that its parameters request, under no "
    "assumptions but those listed here, which are the best model's"
)
_CHOICE = "the choice of the candidate reveals nothing about the records (no guarantee covers it)"
# Parameters that change the guarantee's relation, unit, or trusted parties, but not its epsilon.
_STATED_BY = (
    "relation", "n_records", "noise_seed", "noise", "unit", "server", "n_untrusted",
)  # fmt: skip

PASSED = "the passed claim was obtained correctly, which nothing here shows"
_DELTA = 1e-5  # at which an event without a finite epsilon at delta 0 states its epsilon
_ACCEPTED = """\
claim : float, (float, float), Event or PrivacyGuarantee{}
    The claim to test: epsilon; epsilon and delta; an event, such as ``GaussianEvent(1 / mu)`` for
    the trade-off curve of mu-GDP; or a guarantee, for another relation or unit. A number or an
    event is read as a claim for added or removed units. Its whole trade-off curve is tested."""
CLAIM_DOCS = {"claim": _ACCEPTED.format(", default=None"), "required_claim": _ACCEPTED.format("")}


def compose_guarantees(guarantees: Sequence[PrivacyGuarantee]) -> PrivacyGuarantee:
    """Return the joint guarantee of several releases about the same records.

    Raises ValueError if the relations or units differ, or if the deltas sum to 1 or more.
    """
    first = guarantees[0]
    if len(guarantees) == 1:
        return first
    _check_equal("relations", (g.relation.replace("_", "-") for g in guarantees))
    _check_equal("units", (g.unit for g in guarantees))
    # Basic composition: deltas add up, so that events that may fail keep a finite epsilon; the
    # events compose to a tighter joint epsilon.
    deltas = [g.at_delta for g in guarantees if g.at_delta is not None]
    if math.fsum(deltas) >= 1:
        raise ValueError("the deltas of the parts add up to 1 or more")
    return replace(
        first,
        event=ComposedEvent(tuple(g.event for g in guarantees)),
        at_delta=math.fsum(deltas) if deltas else None,
        kind="proved" if all(g.kind == "proved" for g in guarantees) else "estimate",
        assumptions=tuple(dict.fromkeys(a for g in guarantees for a in g.assumptions)),
        arithmetic=weakest_arithmetic(g.arithmetic for g in guarantees),
    )


def cost_of_search(search: Any, refitted: PrivacyGuarantee | None) -> PrivacyGuarantee | None:
    """Return the joint cost of all fits of a search: each candidate on each fold, and the refit.

    It is an estimate, because the choice of the candidate also leaks. None if it is not known: only
    estimators of this library, bare or in plain wrappers, are known to keep to their parameters.
    """
    if isinstance(known := getattr(search, "charged_", None), PrivacyGuarantee):
        return known
    # A subclass of scikit-learn's searches may fit more often than it reports.
    counts_its_fits = is_search(search) and type(search).__module__.startswith("sklearn.")
    if refitted is None or not counts_its_fits:
        return None
    fitted = {name: leaf for name, leaf in _steps_in(search.best_estimator_) if holds_private(leaf)}
    if not all(_keeps_to_parameters(leaf) for leaf in fitted.values()):
        return None
    spent = [refitted]
    for params in search.cv_results_["params"]:
        params = {name: clone(value, safe=False) for name, value in params.items()}
        events = _list_requested_events(clone(search.estimator).set_params(**params), fitted)
        delta = search.n_splits_ * math.fsum(event.delta for event in events)
        if not events or delta >= 1:
            return None
        spent.append(
            replace(
                refitted,
                event=RepeatedEvent(ComposedEvent(tuple(events)), search.n_splits_),
                at_delta=delta or None,
                kind="estimate",
                assumptions=(*refitted.assumptions, _REQUESTED, _CHOICE),
                # Other parameters may select another mechanism.
                arithmetic=weakest_arithmetic((refitted.arithmetic, UNSPECIFIED)),
            )
        )
    try:
        return compose_guarantees(spent)
    except ValueError:  # the deltas add up to 1 or more
        return None


def guarantee_in(estimator: Any) -> PrivacyGuarantee | None:
    """Return the estimator's ``privacy_`` if it is a guarantee, else None."""
    found = getattr(estimator, "privacy_", None)
    return found if isinstance(found, PrivacyGuarantee) else None


def holds_private(value: Any) -> bool:
    """Return whether a value is or contains a private estimator, fitted or not."""
    return _contains(value, set(), _is_private)


def holds_private_labels(value: Any) -> bool:
    """Return whether a value is or contains an estimator of ours that protects labels only."""
    return _contains(value, set(), lambda estimator: getattr(estimator, "_protects_labels", False))


def looks_private(estimator: Any) -> bool:
    """Return whether an epsilon may be a privacy parameter, which SVR's is not."""
    return hasattr(estimator, "epsilon") and not type(estimator).__module__.startswith("sklearn.")


def read_claim(claim: Any, unit: str = "record") -> PrivacyGuarantee | None:
    """Return a passed claim as a guarantee, an estimate unless it was passed as a guarantee."""
    if claim is None:
        return None
    if isinstance(claim, PrivacyGuarantee):
        guarantee = claim
    elif isinstance(claim, Event):
        pure = as_passed(PrivacyGuarantee(claim, unit=unit))
        guarantee = pure if _has_epsilon(pure) else replace(pure, at_delta=_DELTA)
    else:
        epsilon, delta = _read_numbers(claim)
        event = ApproxDPEvent(epsilon, delta)
        guarantee = as_passed(PrivacyGuarantee(event, delta or None, unit=unit))
    if not _has_epsilon(guarantee):
        raise ValueError(
            f"claim={type(claim).__name__} has no finite epsilon at delta "
            f"{guarantee.at_delta or 0:g}, so nothing can refute it. Pass a finite claim, such as "
            "claim=(1.0, 1e-6)."
        )
    return guarantee


def as_passed(guarantee: PrivacyGuarantee) -> PrivacyGuarantee:
    """Return a guarantee as an estimate: an audit does not see how it was obtained."""
    assumptions = tuple(dict.fromkeys([*guarantee.assumptions, PASSED]))
    return replace(guarantee, kind="estimate", assumptions=assumptions)


def _check_equal(what: str, values: Iterable[str]) -> None:
    found = sorted(set(values))
    if len(found) > 1:
        raise ValueError(
            f"the parts hold for the {what} {' and '.join(found)}, which are never added up"
        )


def _is_private(estimator: Any) -> bool:
    ours = type(estimator).__module__.startswith("skprivacy.")
    keeps = "epsilon" in getattr(estimator, "__dict__", {})
    return (ours and keeps) or guarantee_in(estimator) is not None


def _contains(value: Any, seen: set[int], is_it: Callable[[Any], bool]) -> bool:
    if isinstance(value, (list, tuple, set)):
        return any(_contains(item, seen, is_it) for item in value)
    if isinstance(value, dict):
        return any(_contains(item, seen, is_it) for item in value.values())
    if isinstance(value, np.ndarray):
        return value.dtype == object and any(_contains(item, seen, is_it) for item in value.flat)
    if id(value) in seen or isinstance(value, type) or not _is_estimator(value):
        return False
    seen.add(id(value))
    return is_it(value) or _contains(getattr(value, "__dict__", {}), seen, is_it)


def _is_estimator(value: Any) -> bool:
    return any(hasattr(value, name) for name in ("fit", "predict", "predict_proba"))


def _list_requested_events(candidate: Any, fitted: dict[str, Any]) -> list[ApproxDPEvent]:
    """Return the events that a candidate's parameters request; empty if they are unknown."""
    requested = {name: leaf for name, leaf in _steps_in(candidate) if holds_private(leaf)}
    if {name: type(leaf) for name, leaf in requested.items()} != {
        name: type(leaf) for name, leaf in fitted.items()
    }:
        return []
    events = []
    for name, leaf in requested.items():
        if any(getattr(leaf, p, None) != getattr(fitted[name], p, None) for p in _STATED_BY):
            return []
        if (epsilon := _finite(leaf.epsilon)) is None:
            return []
        events.append(ApproxDPEvent(epsilon, float(getattr(leaf, "delta", 0.0))))
    return events


def _keeps_to_parameters(leaf: Any) -> bool:
    """Return whether a fitted estimator of this library guarantees the requested epsilon."""
    guarantee = guarantee_in(leaf)
    if guarantee is None or not type(leaf).__module__.startswith("skprivacy."):
        return False
    epsilon, delta = _finite(getattr(leaf, "epsilon", None)), getattr(leaf, "delta", 0.0)
    if epsilon is None or not isinstance(delta, numbers.Real):
        return False
    return guarantee.epsilon(float(delta)) <= epsilon * (1 + 1e-9)


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, numbers.Real) and math.isfinite(value) else None


def _steps_in(model: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the steps of a model, fitted or not, by their dotted names."""
    if is_plain_pipeline(model):
        parts = model.steps
    elif type(model) is ColumnTransformer:
        unfitted = [*model.transformers, ("remainder", model.remainder, None)]
        parts = [(part, step) for part, step, _ in getattr(model, "transformers_", unfitted)]
    elif type(model) is FeatureUnion:
        parts = model.transformer_list
    else:
        yield name, model
        return
    for part, step in parts:
        yield from _steps_in(step, f"{name}.{part}" if name else part)


def _has_epsilon(guarantee: PrivacyGuarantee) -> bool:
    """Return whether a guarantee has a finite epsilon at its delta."""
    try:
        return math.isfinite(guarantee.epsilon())
    except ValueError:  # of an event without a finite epsilon at delta 0
        return False


def _read_numbers(claim: Any) -> tuple[float, float]:
    """Return epsilon and delta of a number or of a pair."""
    is_pair = isinstance(claim, Sequence) and not isinstance(claim, str)
    given = [*claim] if is_pair else [claim, 0.0]
    if len(given) != 2 or not all(map(is_number, given)):
        raise TypeError(
            f"claim={claim!r} must be a number (epsilon), a pair (epsilon, delta), an Event, a "
            "PrivacyGuarantee, or None. Pass, for example, claim=(1.0, 1e-6)."
        )
    epsilon, delta = map(float, given)
    if not (0 <= epsilon < math.inf and 0 <= delta < 1):
        raise ValueError(
            f"claim={claim!r} must have a finite epsilon of at least 0, and a delta of at least 0 "
            "and below 1. Pass, for example, claim=(1.0, 1e-6)."
        )
    return epsilon, delta
