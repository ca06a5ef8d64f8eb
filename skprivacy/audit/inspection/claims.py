"""Privacy claim of a fitted model: the composition of its private steps, through all wrappers.

Transformers may stand beside private steps if they learn nothing from private records and transform
each record separately. Start reading at :func:`claim_of`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import VotingClassifier, VotingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.validation import check_is_fitted

from ..._sklearn import safe_indexing
from ..._validation import num_samples
from ...accounting import PrivacyGuarantee
from ...base import is_third_party_claim, list_frozen_assumptions
from ...defenses import SmoothedClassifier
from ...defenses.output_defense import OutputDefense
from ...preprocessing.pipeline import PrivatePipeline
from ...preprocessing.schema import Schema
from .guarantees import (
    as_passed,
    compose_guarantees,
    cost_of_search,
    guarantee_in,
    holds_private,
    looks_private,
    read_claim,
)
from .steps import (
    explain_gap,
    is_covered,
    is_stateless,
    learns_from_features,
    needs_public_records,
    try_record_by_record,
)

NO_CLAIM = "no claim"
CHOSEN = "no claim: chosen by unprotected scores"
_TRIED = 20  # number of records on which a stateless step is tested
NOT_MEMBERSHIP = (
    "a guarantee of relation='label' protects labels alone and says nothing about membership, so "
    "no membership attack can confirm or refute it"
)


@dataclass(frozen=True)
class Claim:
    """The privacy claim of a fitted model; returned by :func:`claim_of`.

    Attributes
    ----------
    guarantee : PrivacyGuarantee or None
        Joint guarantee of all private steps; of kind "estimate" if a step is not covered.
    reason : str
        Reason for a missing guarantee, beginning with "no claim". Empty if there is a guarantee.
    uncovered : dict
        Steps that read private data outside any guarantee, by name, with the reason. Dots separate
        the names of nested steps.
    charged : PrivacyGuarantee or None
        Joint cost of all fits. For a search: every candidate on every fold; otherwise equal to
        ``guarantee``. None if it is not known.
    own : Claim or None
        The model's own claim, if ``guarantee`` was passed to an audit instead; otherwise None.
    """

    guarantee: PrivacyGuarantee | None
    reason: str = ""
    uncovered: dict[str, str] = field(default_factory=dict)
    charged: PrivacyGuarantee | None = None
    own: Claim | None = None

    @property
    def proved(self) -> bool:
        """Whether there is a proved guarantee for the model as a whole."""
        return self.guarantee is not None and self.guarantee.kind == "proved"


def claim_of(model: Any, X: Any = None) -> Claim:
    """Return the claim of a fitted model, composed over all of its private steps.

    Parameters
    ----------
    model : fitted estimator
        A model, wrapped to any depth.
    X : array-like or DataFrame of shape (n_samples, n_features), default=None
        Records on which stateless steps of other libraries are tested: together and one by one.

    Returns
    -------
    Claim
        ``guarantee``, the joint guarantee of all private steps, is of kind "estimate" if a step is
        not covered. It is None without a claim; ``reason`` then says why. ``uncovered`` maps steps
        that read private data outside any guarantee to the reason. ``charged`` is the joint cost of
        all fits: of a search, every candidate on every fold. ``proved`` says whether there is a
        proved guarantee for the model as a whole.

    Raises
    ------
    NotFittedError
        If the model is not fitted.

    Notes
    -----
    **Guarantees.** The claimed epsilon is at least the composed epsilon of all private steps in
    these wrappers:

    - ``Pipeline``, ``ColumnTransformer``, ``FeatureUnion`` and ``FrozenEstimator``;
    - meta-estimators that train each part once on all records: ``VotingClassifier``,
      ``VotingRegressor``, ``OneVsRestClassifier``, ``MultiOutputClassifier``,
      ``MultiOutputRegressor`` and ``SmoothedClassifier``.

    Any other model with a private part makes no claim. A search chooses by unprotected scores,
    bagging repeats records, and stacking and calibration fit more than the private parts. A model
    whose parts differ in relation or unit makes no claim either.

    **Edge cases.** A transformer is covered in three cases:

    - its ``data_independent_`` is true; for a third-party class, such as a subclass of
      SchemaTransformer, this is listed as an assumption;
    - it has a ``privacy_``;
    - it is a scikit-learn transformer that treats each record by itself.

    Any other transformer that needs no fit is tested on up to 20 records. The guarantee then lists
    two assumptions: the transformer treats each record by itself, and it holds nothing learned from
    the data. A function may hold a mean of private records. Only a method of an estimator, such as
    ``scaler.transform``, is detected. The assumption names rounding if a record's result differs in
    any bit between a joint and a separate call, as in matrix products.

    An encoder in a ``FrozenEstimator`` that declares ``needs_public_records_`` adds the assumption
    that it learned from public records. A step that is not covered turns the guarantee into kind
    "estimate", which assumes that the step reveals nothing about the records. Under
    ``relation="label"``, where features are public, the guarantee also covers scikit-learn's
    unsupervised transformers.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from skprivacy.audit import claim_of
    >>> from skprivacy.linear_model import OutputPerturbationClassifier
    >>> from skprivacy.preprocessing import PrivateStandardScaler
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(
    ...     PrivateStandardScaler(epsilon=2.0, bounds=(0, 10)),
    ...     OutputPerturbationClassifier(epsilon=1.0, bounds=(-3, 3), classes=[0, 1, 2]),
    ... )
    >>> round(claim_of(model.fit(X, y)).guarantee.epsilon(), 6)
    3.0
    """
    if not hasattr(model, "fit"):
        raise TypeError(f"model={model!r} must be a fitted estimator.")
    check_is_fitted(model)
    rows = _try_compute(_sample_rows, X)
    parts = list(_iter_claim_parts(model, "", rows, last=True))
    made = [part.guarantee for part in parts if part.guarantee is not None]
    of_labels = bool(made) and all(guarantee.relation == "label" for guarantee in made)
    free = [part.name for part in parts if of_labels and part.ignores_labels]
    uncovered = {part.name: part.gap for part in parts if part.gap and part.name not in free}
    assumptions = [part.assumption for part in parts if part.assumption]
    assumptions += [f"step {name!r} learns from features alone" for name in free]
    assumptions += [
        f"step {part.name!r} reveals nothing about the records (no guarantee covers it)"
        for part in parts
        if part.name in uncovered and not part.assumption
    ]
    whole = joint_claim(
        [
            Claim(part.guarantee, part.refusal, charged=part.charged)
            for part in parts
            if part.guarantee or part.refusal
        ]
    )
    expects_claim = holds_private(model) or any(part.disguised for part in parts)
    return Claim(
        _with_assumptions(whole.guarantee, assumptions, bool(uncovered)),
        whole.reason if whole.guarantee is not None or expects_claim else NO_CLAIM,
        uncovered,
        _with_assumptions(whole.charged, assumptions, bool(uncovered)),
    )


def joint_claim(claims: Sequence[Claim]) -> Claim:
    """Return the joint claim of several models, or of several parts of one model."""
    refused = [claim.reason for claim in claims if claim.guarantee is None]
    reason = refused[0] if refused else "" if claims else NO_CLAIM
    guarantee, charged = None, None
    try:
        if not reason:
            guarantee = compose_guarantees([c.guarantee for c in claims if c.guarantee is not None])
        if claims and all(claim.charged is not None for claim in claims):
            charged = compose_guarantees([c.charged for c in claims if c.charged is not None])
    except ValueError as error:
        reason = reason or f"{NO_CLAIM}: {error}"
    uncovered = {step: why for claim in claims for step, why in claim.uncovered.items()}
    return Claim(guarantee, reason, uncovered, charged)


def claim_to_test(own: Claim, claim: Any, unit: str = "record") -> Claim:
    """Return the passed claim with the model's own beside it, or only the model's own."""
    guarantee = read_claim(claim, unit)
    return own if guarantee is None else Claim(as_passed(guarantee), own=own)


def protects_labels(claim: Claim) -> bool:
    """Return whether a claim, or its charges, protects labels only."""
    return any(g is not None and g.relation == "label" for g in (claim.guarantee, claim.charged))


@dataclass(frozen=True)
class _Part:
    """Contribution of one part of a model to the claim of the whole."""

    name: str
    guarantee: PrivacyGuarantee | None = None
    charged: PrivacyGuarantee | None = None
    assumption: str = ""
    gap: str = ""  # why no guarantee covers this step
    if_frozen: str = ""  # the assumption that fills the gap if the step was fitted beforehand
    refusal: str = ""  # why no model that contains this part has a guarantee
    ignores_labels: bool = False  # whether a step with a gap learns from features only
    disguised: bool = False  # whether users may mistake it for a privacy protection


Opener = Callable[[Any, str, Any, bool], Iterator[_Part]]


def _with_assumptions(
    guarantee: PrivacyGuarantee | None, assumptions: Iterable[str], gaps: bool
) -> PrivacyGuarantee | None:
    """Return the guarantee with further assumptions; gaps turn it into an estimate."""
    if guarantee is None:
        return None
    united = tuple(dict.fromkeys([*guarantee.assumptions, *assumptions]))
    return replace(guarantee, assumptions=united, kind="estimate" if gaps else guarantee.kind)


def _iter_claim_parts(model: Any, name: str, rows: Any, last: bool) -> Iterator[_Part]:
    """Yield the parts that determine the claim; ``last`` is False for preprocessing steps."""
    if type(model) is FrozenEstimator:
        # A step that was fitted together with a private part has seen the private records. Of any
        # other step, only the user knows on which data it was fitted.
        is_private = holds_private(model.estimator)
        for part in _iter_claim_parts(model.estimator, name, rows, last):
            is_filled = part.if_frozen and not is_private
            yield replace(part, gap="", assumption=part.if_frozen) if is_filled else part
        return
    if model is None or isinstance(model, str):  # "passthrough" and "drop"
        return
    opened = _OPENED.get(type(model))
    if hasattr(model, "cv_results_") and holds_private(model):
        best = getattr(model, "best_estimator_", None)
        refitted = None if best is None else claim_of(best).guarantee
        yield _Part(name, charged=cost_of_search(model, refitted), refusal=CHOSEN)
    elif (guarantee := guarantee_in(model)) is not None:
        yield _Part(name, guarantee, guarantee)
    elif opened is not None:
        yield from opened(model, name, rows, last)
    elif not is_covered(model):
        yield _leaf(model, name, rows, last)
    elif is_third_party_claim(model):
        step = f"step {name!r} ({type(model).__name__})" if name else type(model).__name__
        yield _Part(name, assumption=f"{step} is independent of the records, as it declares")


def _leaf(model: Any, name: str, rows: Any, last: bool) -> _Part:
    kind = type(model).__name__
    if isinstance(model, OutputDefense):
        why = f"{NO_CLAIM}: {kind} changes what the model shows, but proves nothing"
        return _Part(name, refusal=why, disguised=True)
    if holds_private(model):
        return _Part(
            name,
            refusal=f"{NO_CLAIM}: {kind} is not known to train each of its private parts exactly "
            "once on all records, and nothing else",
        )
    if is_stateless(model):
        if any(list_frozen_assumptions(model.get_params(deep=False), "add_remove")):
            return _Part(name or kind, gap=f"{kind} holds parts fitted outside the guarantee")
        n = 0 if rows is None else num_samples(rows)
        gap, exact = try_record_by_record(model, rows) if n > 1 else ("", True)
        if gap:
            return _Part(name or kind, gap=gap)
        tried = f"tried on {n} records" if n > 1 else "not tried"
        step = f"step {name!r}" if name else kind
        rounding = "" if exact else ", and its rounding, which depends on others, leaks nothing"
        alone = f"treats each record by itself ({tried}), and holds nothing learned from others"
        return _Part(name, assumption=f"{step} {alone}{rounding}")
    if last and looks_private(model):
        why = f"{NO_CLAIM}: {kind} has an epsilon but states no guarantee (privacy_)"
        return _Part(name, refusal=f"{why}; verify_privacy tests it", disguised=True)
    if last:
        return _Part(name, refusal=f"{NO_CLAIM}: {kind} makes none")
    public = f"step {name!r} ({kind}) was fitted on public records alone"
    schema = getattr(model, "schema_", None)
    return _Part(
        name,
        assumption="; ".join(schema.assumptions) if isinstance(schema, Schema) else "",
        gap=explain_gap(model),
        ignores_labels=learns_from_features(model),
        if_frozen=public if needs_public_records(model) else "",
    )


def _pipeline(model: Any, name: str, rows: Any, last: bool) -> Iterator[_Part]:
    *before, (final, predictor) = model.steps
    for step, part in before:
        yield from _iter_claim_parts(part, _join_names(name, step), rows, last=False)
        if not (part is None or isinstance(part, str)):
            rows = _try_compute(part.transform, rows)
    yield from _iter_claim_parts(predictor, _join_names(name, final), rows, last)


def _columns(model: Any, name: str, rows: Any, last: bool) -> Iterator[_Part]:
    name = name or "columntransformer"
    choices = [columns for _, _, columns in model.transformers if callable(columns)]
    if all(isinstance(choice, make_column_selector) for choice in choices):
        public = f"the types and names of the columns that {name!r} selects by are public"
        yield _Part(name, assumption=public if choices else "")
    else:
        yield _Part(name, gap="its columns are selected by a function of the private data")
    for part, step, columns in model.transformers_:
        own = _try_compute(partial(safe_indexing, indices=columns, axis=1), rows)
        yield from _iter_claim_parts(step, _join_names(name, part), own, last=False)


def _open_each(parts: Callable[[Any], Iterable[tuple[Any, Any]]], predicts: bool = True) -> Opener:
    """Return the opener of a wrapper that trains each named part once on all records."""

    def opened(model: Any, name: str, rows: Any, last: bool) -> Iterator[_Part]:
        yield _Part(name, assumption=_labels_public(model))
        for part, step in parts(model):
            yield from _iter_claim_parts(step, _join_names(name, part), rows, last=predicts)

    return opened


def _labels_public(model: Any) -> str:
    """Return the assumption of a wrapper that encodes the labels found in y."""
    if not isinstance(model, (OneVsRestClassifier, VotingClassifier)):
        return ""
    return f"the set of class labels is public ({type(model).__name__} reads it from y)"


def _join_names(name: str, part: Any) -> str:
    return f"{name}.{part}" if name else str(part)


def _sample_rows(X: Any) -> Any:
    """Return up to ``_TRIED`` records spread evenly over X."""
    n = num_samples(X)
    return safe_indexing(X, np.unique(np.linspace(0, n - 1, _TRIED).astype(int)))


def _try_compute(compute: Callable[[Any], Any], rows: Any) -> Any:
    """Return ``compute(rows)``; None if it fails or ``rows`` is None."""
    if rows is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compute(rows)
    except Exception:  # a step may fail on few records: later steps are "not tried"
        return None


_VOTING = _open_each(lambda model: model.named_estimators_.items())
_ONE_PER_TARGET = _open_each(lambda model: enumerate(model.estimators_))
# By exact type: a subclass may train differently.
_OPENED: dict[type, Opener] = {
    Pipeline: _pipeline,
    PrivatePipeline: _pipeline,
    ColumnTransformer: _columns,
    FeatureUnion: _open_each(lambda model: model.transformer_list, predicts=False),
    VotingClassifier: _VOTING,
    VotingRegressor: _VOTING,
    OneVsRestClassifier: _ONE_PER_TARGET,
    MultiOutputClassifier: _ONE_PER_TARGET,
    MultiOutputRegressor: _ONE_PER_TARGET,
    SmoothedClassifier: _open_each(lambda model: [("estimator", model.estimator_)]),
}
