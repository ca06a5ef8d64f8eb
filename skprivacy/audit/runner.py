"""Audit of a fitted model: membership attacks compared with the privacy that it claims.

Start reading at :func:`audit`; :func:`run_attacks` also serves the other audits of known members.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from .._clones import call_model
from .._docs import fill_docs
from .._environment import progress_bar
from .._groups import warn_of_identifiers
from .._input_data import check_one_type, distinct_labels, resolve_groups
from .._sklearn import safe_indexing
from .._validation import num_samples, sequence
from ..accounting import PrivacyGuarantee
from ..attacks import AttackResult, LossThreshold, MembershipAttack, ShadowPool, StrongestAttack
from ..attacks.group_scores import connected_units
from ..attacks.membership.labeled_records import label_records
from ..attacks.model_answers import as_classifier, labels_as_text, targets_as_array
from ..attacks.record_tables import as_records, check_alike, concat, fingerprints
from ..attacks.shadow_pool import MODELS_DO_NOT_LEARN
from ..metrics.rates import check_alpha
from .comparability.blind_baseline import SampleUnits, compare_samples
from .comparability.matched_pairs import bound_pairs
from .inspection.claims import NO_CLAIM, Claim, claim_of, claim_to_test, protects_labels
from .inspection.disclosure import check_lengths, find_signs
from .inspection.guarantees import CLAIM_DOCS
from .inspection.member_groups import MemberGroups, claim_for_groups
from .label_audit import audit_labels, label_attack
from .report.audit_report import AuditReport
from .report.findings import (
    AttackFinding,
    Evaluated,
    explain_copies,
    group_exposures,
    group_partitions,
    report_facts,
)

Records = tuple[Any, Any, Any, Any]  # X_train, y_train, X_test, y_test
NOT_TRAINABLE = (
    "The model has no fit, so shadow models cannot be trained like it. Train them elsewhere, and "
    "pass their predictions to ShadowPool.from_predictions or audit_predictions."
)


@fill_docs(CLAIM_DOCS)
def audit(
    model: Any,
    X_train: Any,
    y_train: Any,
    X_test: Any,
    y_test: Any,
    *,
    claim: Any = None,
    attacks: Iterable[MembershipAttack] | None = None,
    n_shadows: int = 16,
    alpha: float = 0.05,
    subgroups: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    sample_weight: Any = None,
    groups: Any = None,
) -> AuditReport:
    """Attack a fitted model and compare the measured leakage with its claimed privacy.

    The model is not retrained. Shadow models, if an attack needs them, are trained once, on random
    halves of all given records, and shared by all attacks.

    Parameters
    ----------
    model : fitted model or pipeline
        The model as it would be released, with all its wrappers. It is a classifier with
        ``predict_proba`` or ``decision_function``, a regressor, a density or outlier model with
        ``score_samples``, a clustering with centres, or a torch module that returns logits of the
        classes 0, 1, ...
    X_train, y_train : array-like of shape (n_train, n_features) and (n_train,)
        The records that the model was trained on, or a random subset of them. ``y`` has one column
        per output if there are several. It is None for unsupervised models.
    X_test, y_test : array-like of shape (n_test, n_features) and (n_test,)
        Records of the same population that the model was not trained on. A false positive rate of
        0.1% needs at least 1,000 of them.
    %(claim)s
        With ``groups``, a number or an event is a claim for groups. None tests the model's own
        claim, over all private steps together (:func:`~skprivacy.audit.claim_of`).
    attacks : iterable of MembershipAttack, default=None
        Attacks without a target. An attack that learns from known members is trained on a random
        half of all records, with their membership, and evaluated on the other half. ``None`` runs
        the loss threshold and :class:`~skprivacy.attacks.StrongestAttack`, which picks the best of
        LiRA, RMIA and a learned combination on the shadow models. For a model that protects labels
        only: one :class:`~skprivacy.attacks.LabelInferenceAttack`, or ``None``.
    n_shadows : int, default=16
        Number of shadow models for the default attacks, and the minimum for other attacks.
    alpha : float, default=0.05
        Largest probability that a true claim is reported as violated, over all attacks together.
    subgroups : str, int or (array-like, array-like), default=None
        Groups whose exposure is compared, in addition to the classes: a column of ``X_train`` and
        ``X_test``, or two arrays with the group of each record. At most 100 different values. With
        ``groups``, all records of a group must have the same value.
    random_state : int, RandomState instance or None, default=None
        Seed of the random halves that shadow models are trained on.
    n_jobs : int, default=None
        Number of shadow models to train in parallel. None means the default of
        :class:`~skprivacy.attacks.ShadowPool`.
    verbose : int, default=0
        Whether to show a progress bar.
    sample_weight : array-like of shape (n_train + n_test,), default=None
        Weights for the ``fit`` of shadow models: first the weights of the training records, then
        the weights of the other records.
    groups : (array-like, array-like), default=None
        Group of each record of ``X_train`` and of ``X_test``, such as a patient's number.
        Membership is then decided for whole groups. Each attack joins the scores of a group's
        records, by their sum and by their maximum. Shadow models are trained on halves of the
        groups. The claim must be for groups, and no group may be in both samples.

    Returns
    -------
    AuditReport
        Its ``of_labels`` is True for a model that protects labels only.

    Raises
    ------
    NotFittedError
        If the model is not fitted.
    TypeError
        If the model does not score single records, or lacks the score that an attack needs, or an
        attack is not a membership attack.
    ValueError
        If records or parameters are inconsistent, the passed claim is infinite, all non-members
        are also members, or membership attacks are given for a guarantee of labels. Raised before
        any training.

    Notes
    -----
    **Guarantees.** None: an audit reads private data and is itself not private. A measured epsilon
    is a LOWER bound on the leakage of the model. It can refute a claim, never confirm one: a model
    that withstands all attacks has not been shown to be private.

    **Claims.** A passed claim is about ``model`` as a whole. It replaces the model's own claim in
    every test, also if it is weaker. The report states both, and the passed claim as an estimate.

    **Labels.** A guarantee of the relation "label" says nothing about membership, so membership
    gets no verdict. The audit trains the model once more, after fair coins have flipped some
    labels, and an attack guesses the coins. With ``groups``, one coin flips all labels of a group,
    and the evidence of its records is added up.

    **Edge cases.** The bounds assume that records, or groups, are independent given the model. If
    people have several records, pass ``groups``: otherwise the intervals are too narrow. Members
    and non-members of different origin (another year, another hospital) make attacks look stronger
    than they are; take both from one random split.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from sklearn.datasets import make_classification
    >>> from skprivacy.audit import audit
    >>> X, y = make_classification(2000, flip_y=0.2, random_state=0)
    >>> tree = DecisionTreeClassifier(random_state=0).fit(X[:1000], y[:1000])
    >>> report = audit(tree, X[:1000], y[:1000], X[1000:], y[1000:], n_shadows=4, random_state=0)
    >>> report.verdict
    'no claim'
    >>> report.epsilon_lower_bound > 0.1
    True
    """
    X_train, X_test = as_records(X_train, "X_train"), as_records(X_test, "X_test")
    model = as_classifier(model, X_train)
    trainable = hasattr(model, "fit")
    if trainable:
        check_is_fitted(model)
    records = X_train, y_train, X_test, y_test
    _check_records(model, *records)
    prints = fingerprints(X_train), fingerprints(X_test)
    check_alpha(alpha)
    check_verbose(verbose)
    labels = (y_train, y_test) if hasattr(model, "classes_") else (None, None)
    member_groups = None
    if groups is not None:
        member_groups = MemberGroups.from_records(groups, X_train, X_test)
        labels = (None, None)  # classes belong to records, but membership belongs to groups
    elif hasattr(X_train, "columns"):
        warn_of_identifiers(X_train.columns, "What an audit shows")
    partitions = group_partitions(subgroups, X_train, labels[0], X_test, labels[1])
    if member_groups is not None:
        partitions = {by: member_groups.group_values(by, pair) for by, pair in partitions.items()}
    own = claim_of(model, X_train) if trainable else Claim(None, NO_CLAIM)
    stated = claim_to_test(own, claim, "record" if member_groups is None else member_groups.unit)
    tested = stated if member_groups is None else claim_for_groups(member_groups, stated)
    if protects_labels(stated):
        if subgroups is not None:
            raise ValueError(
                "subgroups compare members, but a guarantee of labels hides no members. Leave "
                "subgroups out."
            )
        attack = label_attack(attacks, random_state)
        return audit_labels(model, tested, attack, *records, alpha, member_groups)
    chosen = [clone(attack).set_params(target=model) for attack in check_attacks(attacks)]
    X, y = concat_records(records)
    for attack in chosen:
        attack._check_target(X, None if y_train is None else y)
    shared = shared_rows(prints, member_groups)
    disclosure = None
    if trainable:
        units = resolve_groups(None if member_groups is None else groups[0], X_train)
        disclosure = find_signs(model, *records, claim=stated, groups=units, prints=prints[0])

    pool, why = None, MODELS_DO_NOT_LEARN
    served = [attack for attack in chosen if wants_pool(attack)]
    if served and not trainable:
        why, unmeasured = NOT_TRAINABLE, served
    else:
        if served:
            least = 0 if attacks is None else max(attack.pool for attack in served)
            ordered = _order_blindly(X, y, sample_weight, member_groups, np.concatenate(prints))
            pool = ShadowPool(
                model,
                n_shadows=max(n_shadows, least),
                random_state=random_state,
                n_jobs=n_jobs,
                verbose=verbose,
                keep_models=any(getattr(attack, "_needs_models", True) for attack in served),
            ).fit(*ordered[:3], groups=ordered[3])
        unmeasured = [] if pool is None or pool._answers.vary(X) else served
    if unmeasured and len(unmeasured) == len(chosen):
        raise ValueError(f"attacks={attacks!r} cannot measure anything: {why}")
    for attack in served:
        attack.set_params(pool=pool)
    del X, y  # each attack concatenates the records itself, and they may be large
    run = [attack for attack in chosen if attack not in unmeasured]
    findings = run_attacks(
        run, records, tested, alpha, member_groups=member_groups, verbose=verbose
    )
    return AuditReport(
        **report_facts(model, tested, *records, member_groups),
        findings=findings,
        alpha=float(alpha),
        n_shadows=0 if pool is None else pool.n_shadows,
        n_shared=shared,
        not_measured=tuple(type(attack).__name__ for attack in unmeasured),
        why_not_measured=why,
        exposures=group_exposures([f.result for f in findings], partitions, float(alpha)),
        disclosure=disclosure,
        copied=explain_copies(*prints) if member_groups is None else "",
        **comparability_facts(
            SampleUnits.from_records(*records, member_groups),
            findings,
            tested.guarantee,
            float(alpha),
        ),
    )


def run_attacks(
    attacks: Sequence[MembershipAttack],
    records: Records,
    claim: Claim,
    alpha: float,
    *,
    member_groups: MemberGroups | None = None,
    verbose: int = 0,
) -> tuple[AttackFinding, ...]:
    """Run attacks that have a target, and a pool if they need one; on groups, if there are any.

    Each result gets an equal share of the error probability (Bonferroni), because the verdict
    takes the strongest of them.
    """
    results: list[tuple[AttackResult, Evaluated | None]] = []
    for attack in progress_bar(attacks, shown=verbose, desc="attacks", unit="attack"):
        run = _attack_known_members if attack._needs_members else _attack_unknown_members
        found, evaluated = run(attack, records, member_groups)
        results += [(result, evaluated) for result in found]
    share = alpha / len(results)  # Bonferroni
    return tuple(
        AttackFinding.from_result(result, claim.guarantee, alpha, share, evaluated)
        for result, evaluated in results
    )


def comparability_facts(
    units: SampleUnits,
    findings: Sequence[AttackFinding],
    guarantee: PrivacyGuarantee | None,
    alpha: float,
    compared: str = "records",
) -> dict[str, Any]:
    """Return the fields of a report about the comparability of its samples.

    Pairs are matched by records only, and only if the samples differ.
    """
    baseline = compare_samples(units, compared)
    pairs = None
    if baseline.differs and compared == "records":
        pairs = bound_pairs(units, findings, guarantee, alpha)
    return {"baseline": baseline, "pairs": pairs}


def concat_records(records: Records) -> tuple[Any, NDArray[Any]]:
    """Return converted members and non-members as one sample, with their targets."""
    X_train, y_train, X_test, y_test = records
    targets = (
        targets_as_array(y_train, num_samples(X_train)),
        targets_as_array(y_test, num_samples(X_test)),
    )
    return concat(X_train, X_test), np.concatenate(targets)


def check_verbose(verbose: Any) -> None:
    """Raise TypeError unless ``verbose`` is an integer."""
    if not isinstance(verbose, Integral | np.bool_):
        raise TypeError(f"verbose={verbose!r} must be an integer; 0 is silent.")


def shared_rows(
    prints: tuple[NDArray[np.uint64], NDArray[np.uint64]],
    member_groups: MemberGroups | None,
    names: tuple[str, str] = ("X_train", "X_test"),
) -> int:
    """Return how many rows of X_test, or of its groups, are in X_train; ValueError if all are.

    A table of few categories, whose rows mostly repeat each other, necessarily shares rows.
    """
    train, test = prints
    found = np.isin(test, train)
    shared = int(found.sum())
    if shared == len(test) and 2 * len(np.unique(test)) > len(test):
        raise ValueError(
            f"{names[0]} and {names[1]} share {shared} of {len(test)} rows; non-members must be "
            f"records that the model was not trained on. Pass such records as {names[1]}."
        )
    return shared if member_groups is None else len(np.unique(member_groups.outside.codes[found]))


def check_attacks(attacks: Iterable[MembershipAttack] | None) -> list[Any]:
    """Return the attacks as a list; the default attacks for None."""
    if attacks is None:
        return [LossThreshold(), StrongestAttack(online=True)]
    if isinstance(attacks, str) or not isinstance(attacks, (Iterable, MembershipAttack)):
        raise TypeError(
            f"attacks={attacks!r} must be a list of membership attacks. Pass objects, such as "
            "[LiRA(pool=16)]."
        )
    chosen = [attacks] if isinstance(attacks, MembershipAttack) else [*sequence("attacks", attacks)]
    if not chosen:
        raise ValueError("attacks is empty. Pass attacks=None for the default attacks.")
    for attack in chosen:
        if not isinstance(attack, MembershipAttack):
            raise TypeError(
                f"attacks must be a list of membership attacks; got {attack!r}. Pass objects, such "
                "as [LiRA(pool=16)]."
            )
    return chosen


def wants_pool(attack: Any) -> bool:
    """Return whether an attack needs shadow models and was given no pool."""
    return hasattr(attack, "pool") and not isinstance(attack.pool, ShadowPool)


def _attack_unknown_members(
    attack: MembershipAttack, records: Records, member_groups: MemberGroups | None
) -> tuple[list[AttackResult], Evaluated | None]:
    X_train, y_train, X_test, y_test = records
    X, y = concat_records(records)
    attack.fit(label_records(X, None if y_train is None else y))
    del X, y  # evaluate concatenates the records again, and they may be large
    result = attack.evaluate(label_records(X_train, y_train), label_records(X_test, y_test))
    return [result] if member_groups is None else member_groups.join_results(result), None


def _attack_known_members(
    attack: MembershipAttack, records: Records, member_groups: MemberGroups | None
) -> tuple[list[AttackResult], Evaluated | None]:
    """Train an attack on one half of the members and non-members, and evaluate it on the other.

    Joining both directions would make attack models depend on the records of the other one, so
    intervals would be too narrow. Equal records, and records of one group, are kept in one half.
    """
    X, y = concat_records(records)
    n_in = num_samples(records[0])
    member = np.arange(len(y)) < n_in
    prints = fingerprints(X)
    known = prints % np.uint64(2) == 0
    if member_groups is not None:
        rows = np.unique(prints, return_inverse=True)[1]
        known = connected_units(rows, member_groups.all_groups) % 2 == 0
    parts = [
        np.flatnonzero(half & group) for half in (known, ~known) for group in (member, ~member)
    ]
    if min(map(len, parts)) < 2:
        raise ValueError(
            f"{type(attack).__name__} is trained on one half of the records and evaluated on the "
            f"other, but there are {int(member.sum())} members and {int((~member).sum())} "
            "non-members, too few distinct ones; expected dozens. Pass more records."
        )
    labeled, (inside, outside) = label_records(X, None if records[1] is None else y), parts[2:]
    attack.fit(safe_indexing(labeled, np.flatnonzero(known)), member[known])
    result = attack.evaluate(safe_indexing(labeled, inside), safe_indexing(labeled, outside))
    judged = inside, outside - n_in
    if member_groups is None:
        return [result], judged
    chosen, numbers = member_groups.select(*judged)
    return chosen.join_results(result), numbers


def _order_blindly(
    X: Any,
    y: Any,
    sample_weight: Any,
    member_groups: MemberGroups | None,
    prints: NDArray[np.uint64],
) -> tuple[Any, Any, Any, Any]:
    """Return records, weights and groups in an order that does not depend on membership.

    Shadow models, whose training may depend on the order, choose the strongest attack.
    """
    labels = np.unique(labels_as_text(y), return_inverse=True)[1]
    keys: tuple[Any, ...] = (labels, prints)
    weights = None
    if sample_weight is not None:
        weights = np.asarray(sample_weight, dtype=float)
        if weights.shape != (len(y),):
            raise ValueError(
                f"sample_weight has shape {weights.shape}; expected one weight for each of the "
                f"{len(y)} records, the members first."
            )
        keys = (weights, *keys)
    order = np.lexsort(keys)
    rows, codes = safe_indexing(X, order), None
    if member_groups is not None:
        codes = member_groups.all_groups.to_series(order)
        codes.index = getattr(rows, "index", codes.index)  # the reordered index of a DataFrame
    return rows, y[order], None if weights is None else weights[order], codes


def _check_records(model: Any, X_train: Any, y_train: Any, X_test: Any, y_test: Any) -> None:
    if (y_train is None) != (y_test is None):
        raise ValueError("y_train and y_test must both be None, or neither.")
    for part, X, y in (("train", X_train, y_train), ("test", X_test, y_test)):
        if num_samples(X) < 2:
            raise ValueError(
                f"X_{part} must have at least 2 records; got {num_samples(X)}. Pass more records."
            )
        if y is None:
            continue
        if not np.ndim(y) or (
            np.ndim(y) != 1 and np.shape(y)[1:] != _shape_of_answers(model, X_train)
        ):
            raise ValueError(
                f"y_{part} must have one label for each record, shaped like the predictions; got "
                f"shape {np.shape(y)}. Pass the arguments in the order audit(model, X_train, "
                "y_train, X_test, y_test)."
            )
        check_lengths(part, X, y)
        if np.ndim(y) != 1 or not hasattr(model, "classes_"):
            continue
        check_one_type(f"y_{part}", y)
        known = np.asarray(model.classes_).tolist()
        if unknown := set(distinct_labels(np.asarray(y)).tolist()) - set(known):
            raise ValueError(
                f"y_{part} has {len(unknown)} labels that are not classes of the model, which are "
                f"{known[:20]}. Remove these records, or pass labels as the model was fitted with."
            )
    check_alike(X_train, X_test, "X_train and X_test")


def _shape_of_answers(model: Any, X: Any) -> tuple[int, ...]:
    """Return the shape of the model's prediction for one record."""
    if not hasattr(model, "predict"):
        return ()
    return np.shape(call_model(model, "predict", safe_indexing(X, np.arange(1))))[1:]
