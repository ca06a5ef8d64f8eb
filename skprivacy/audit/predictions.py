"""Audit from tables of predicted probabilities alone, without the model or the records."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from .._docs import fill_docs
from .._groups import Groups
from .._validation import num_samples, sequence
from ..attacks import LossThreshold, MembershipAttack, ShadowPool, StrongestAttack, SupervisedAttack
from ..attacks.record_tables import as_records, check_alike, fingerprints
from ..attacks.shadow_answers import PredictionTable, RecordIndex, check_table, check_trained
from ..metrics.rates import check_alpha
from .comparability.blind_baseline import SampleUnits
from .inspection.claims import NO_CLAIM, Claim, claim_to_test
from .inspection.guarantees import CLAIM_DOCS
from .inspection.member_groups import MemberGroups, claim_for_groups
from .report.audit_report import AuditReport
from .report.findings import group_exposures, group_partitions, report_facts
from .runner import (
    Records,
    check_attacks,
    check_verbose,
    comparability_facts,
    run_attacks,
    wants_pool,
)

NO_SHADOWS = (
    "There are no predictions of shadow models to show what is usual for each record. The attacks "
    "that were run need none and are weaker. Pass shadow_probas and shadow_trained, or --shadows "
    "on the command line."
)
# Standard deviations that a random half does not exceed: once in 10^9 shadow models.
_BEYOND_CHANCE = 6.1


@fill_docs(CLAIM_DOCS)
def audit_predictions(
    proba_train: ArrayLike,
    y_train: ArrayLike,
    proba_test: ArrayLike,
    y_test: ArrayLike,
    *,
    shadow_probas: ArrayLike | None = None,
    shadow_trained: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    claim: Any = None,
    attacks: Iterable[MembershipAttack] | None = None,
    alpha: float = 0.05,
    verbose: int = 0,
    groups: Any = None,
    records: Any = None,
) -> AuditReport:
    """Audit a model, of any programming language, of which only predictions are available.

    Parameters
    ----------
    proba_train : array-like of shape (n_in, n_classes)
        The model's probabilities for records that it was trained on. The columns of a DataFrame
        name the classes.
    y_train : array-like of shape (n_in,)
        True classes of these records.
    proba_test, y_test : array-like of shape (n_out, n_classes) and (n_out,)
        The same for records of the same population that it was not trained on.
    shadow_probas : array-like of shape (n_shadows, n_in + n_out, n_classes), default=None
        Probabilities from models that were trained like the audited one: first for its members,
        then for the others. None runs only the attacks that need none, which are weaker.
    shadow_trained : array-like of bool of shape (n_shadows, n_in + n_out), default=None
        True where a shadow model was trained on a record. Train one model on a random half of all
        records, regardless of membership, and the next on the other half. Models trained on none of
        the records (all False) also work, for weaker attacks.
    classes : array-like of shape (n_classes,), default=None
        The class of each column. None takes the column names of a DataFrame, or the sorted labels
        if their number fits, or 0, 1, ...
    %(claim)s
        With ``groups``, a number or an event is a claim for groups. None means no claim.
    attacks : iterable of MembershipAttack, default=None
        Attacks without a target. None runs the loss threshold and a second attack. With shadow
        models it is :class:`~skprivacy.attacks.StrongestAttack`; without them it is
        :class:`~skprivacy.attacks.SupervisedAttack`, which is trained on one half of the records
        and evaluated on the other.
    alpha : float, default=0.05
        Largest probability that a true claim is reported as violated, over all attacks together.
    verbose : int, default=0
        Whether to show a progress bar.
    groups : (array-like, array-like), default=None
        Group of each row of ``proba_train`` and of ``proba_test``, if groups, such as people, have
        several records. Membership is then decided for whole groups, as in
        :func:`~skprivacy.audit.audit`. Each shadow model must be trained on all records of a group
        or on none.
    records : (array-like, array-like), default=None
        Features of the members and of the non-members, with one row for each row of
        ``proba_train`` and ``proba_test``. No attack reads them. They show whether the two samples
        differ by more than membership. None compares labels, and predictions of shadow models.

    Returns
    -------
    AuditReport
        The report. Its caveats state what was not measured, and why.

    Raises
    ------
    ValueError
        If tables are not probabilities of records and classes, labels are unknown,
        ``shadow_trained`` depends on membership, a shadow model was trained on some but not all
        records of a group, or ``records`` does not fit the tables.

    Notes
    -----
    **Guarantees.** As for :func:`~skprivacy.audit.audit`, a measured epsilon is a LOWER bound,
    which can refute a claim but never confirm one. A passed claim is reported as an estimate. A
    true claim is reported as violated with probability ``alpha`` at most. This assumes that records
    are independent given the model, and that the shadow models were trained regardless of
    membership.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skprivacy.audit import audit_predictions
    >>> X, y = make_classification(2000, flip_y=0.2, random_state=0)
    >>> tree = DecisionTreeClassifier(random_state=0).fit(X[:1000], y[:1000])
    >>> proba = tree.predict_proba(X)
    >>> report = audit_predictions(proba[:1000], y[:1000], proba[1000:], y[1000:], claim=0.1)
    >>> report.verdict, report.not_measured
    ('violated', ('StrongestAttack',))
    """
    check_alpha(alpha)
    check_verbose(verbose)
    names = _classes(classes, proba_train, (y_train, y_test))
    inside, outside = check_table("proba_train", proba_train), check_table("proba_test", proba_test)
    for name, table, label in (("train", inside, y_train), ("test", outside, y_test)):
        _check_group(name, table, label, names)
    n_in = len(inside)
    everything = np.concatenate([inside, outside])
    X = np.arange(float(len(everything)))  # stand-in for the records, whose features are unknown
    rows = X[:n_in], np.asarray(y_train), X[n_in:], np.asarray(y_test)
    features = _read_features(records, n_in, len(outside))
    member_groups = None if groups is None else MemberGroups.from_pair(groups, n_in, len(outside))
    unit = "record" if member_groups is None else member_groups.unit
    tested = claim_for_groups(member_groups, claim_to_test(Claim(None, NO_CLAIM), claim, unit))
    pool = _pool(X, n_in, shadow_probas, shadow_trained, names, member_groups)
    model = PredictionTable(RecordIndex(fingerprints(X)), everything, names)
    chosen = [
        clone(attack).set_params(target=model)
        for attack in (_default_attacks(pool) if attacks is None else check_attacks(attacks))
    ]
    served = [attack for attack in chosen if wants_pool(attack)]
    if served and pool is None:
        raise ValueError(
            f"attacks={attacks!r} holds {type(served[0]).__name__}, which needs shadow models. "
            "Pass shadow_probas and shadow_trained."
        )
    for attack in served:
        attack.set_params(pool=pool)
    findings = run_attacks(
        chosen, rows, tested, alpha, member_groups=member_groups, verbose=verbose
    )
    partitions = group_partitions(None, *rows) if member_groups is None else {}
    compared, known = _known_features(features, pool, rows)
    units = SampleUnits.from_records(known[0], rows[1], known[1], rows[3], member_groups)
    return AuditReport(
        **report_facts(model, tested, *rows, member_groups),
        findings=findings,
        alpha=float(alpha),
        n_shadows=0 if pool is None else pool.n_shadows,
        not_measured=("StrongestAttack",) if pool is None else (),
        why_not_measured=NO_SHADOWS,
        exposures=group_exposures([f.result for f in findings], partitions, float(alpha)),
        **comparability_facts(units, findings, tested.guarantee, float(alpha), compared),
    )


def _read_features(records: Any, n_in: int, n_out: int) -> tuple[Any, Any] | None:
    """Return the features of members and non-members; ValueError unless they fit the tables."""
    if records is None:
        return None
    if not (isinstance(records, (tuple, list)) and len(records) == 2):
        raise ValueError(
            f"records={type(records).__name__} must be a pair (features of members, features of "
            "non-members), or None."
        )
    pair = as_records(records[0], "records[0]"), as_records(records[1], "records[1]")
    sizes = num_samples(pair[0]), num_samples(pair[1])
    if sizes != (n_in, n_out):
        raise ValueError(
            f"records have {sizes[0]} and {sizes[1]} rows; expected one for each of the {n_in} "
            f"rows of proba_train and the {n_out} of proba_test."
        )
    check_alike(*pair, "records")
    return pair


def _known_features(
    features: tuple[Any, Any] | None, pool: ShadowPool | None, rows: Records
) -> tuple[str, tuple[Any, Any]]:
    """Return the kind of features by which the samples are compared, and the features."""
    if features is not None:
        return "records", features
    if pool is None:
        return "labels", (rows[1], rows[3])
    X, n_in = np.concatenate([rows[0], rows[2]]), len(rows[0])
    left_out, total = ~pool.membership(X)[0], np.zeros(1)
    for proba, mask in zip(pool.iter_proba(X), left_out, strict=True):
        total = total + np.where(mask[:, None], proba, 0.0)
    with np.errstate(invalid="ignore"):  # a record that all models were trained on has none
        mean = total / left_out.sum(axis=0)[:, None]
    return "shadow predictions", (mean[:n_in], mean[n_in:])


def _default_attacks(pool: ShadowPool | None) -> list[MembershipAttack]:
    if pool is None:
        return [LossThreshold(), SupervisedAttack()]
    trained = pool.masks_
    return [LossThreshold(), StrongestAttack(online=bool(trained.any(axis=0).all()))]


def _classes(classes: Any, proba: Any, labels: tuple[Any, Any]) -> NDArray[Any]:
    """Return the class of each column."""
    n_classes = np.shape(proba)[-1] if np.ndim(proba) else 0
    if classes is None and hasattr(proba, "columns"):
        classes = list(proba.columns)
    if classes is not None:
        named = np.asarray(sequence("classes", classes))
        if named.ndim != 1 or len(np.unique(named)) != len(named) or len(named) != n_classes:
            raise ValueError(
                f"classes={named.tolist()[:20]} must be one distinct name for each of the "
                f"{n_classes} columns of proba_train."
            )
        return named
    try:
        known = np.unique(np.concatenate([np.ravel(part) for part in labels]))
    except (TypeError, ValueError, RuntimeError):  # also raised for tensors and matrices
        raise TypeError("y_train and y_test must be labels of one type.") from None
    return known if len(known) == n_classes else np.arange(n_classes)


def _check_group(name: str, table: NDArray[np.float64], y: Any, classes: NDArray[Any]) -> None:
    if table.shape[1] != len(classes):
        raise ValueError(
            f"proba_{name} has {table.shape[1]} columns; expected one for each of the "
            f"{len(classes)} classes."
        )
    if np.shape(y) != (len(table),):
        raise ValueError(
            f"y_{name} has shape {np.shape(y)}; expected one label for each of the {len(table)} "
            f"rows of proba_{name}."
        )
    if len(table) < 2:
        raise ValueError(f"proba_{name} must have at least 2 rows; got {len(table)}.")
    unknown = ~np.isin(np.asarray(y), classes)
    if unknown.any():
        raise ValueError(
            f"y_{name} holds labels without a column in proba_{name}, in {int(unknown.sum())} "
            "records. Pass classes, in the order of the columns."
        )


def _pool(
    X: Any,
    n_in: int,
    probas: Any,
    trained: Any,
    classes: NDArray[Any],
    member_groups: MemberGroups | None,
) -> ShadowPool | None:
    if probas is None and trained is None:
        return None
    if probas is None or trained is None:
        raise ValueError("shadow_probas and shadow_trained must both be given, or neither.")
    tables = check_table("shadow_probas", probas, ndim=3)
    if tables.shape[1:] != (len(X), len(classes)):
        raise ValueError(
            f"shadow_probas has shape {tables.shape}; expected (n_shadows, {len(X)}, "
            f"{len(classes)}): first all members, then all non-members, with the columns of "
            "proba_train."
        )
    if len(tables) < 2:
        raise ValueError("shadow_probas has 1 model; at least 2 are needed. Train more.")
    inside = check_trained("shadow_trained", trained, tables.shape[:2])
    if member_groups is None:
        _check_drawn_blindly(inside, n_in)
    else:
        _check_drawn_blindly(
            _groups_trained_on(inside, member_groups.all_groups), member_groups.inside.n
        )
    return ShadowPool.from_predictions(X, tables, inside, classes)


def _groups_trained_on(trained: NDArray[np.bool_], groups: Groups) -> NDArray[np.bool_]:
    """Return which models were trained on each group; raise ValueError for parts of a group."""
    counted = np.stack([np.bincount(groups.codes, row, groups.n) for row in trained])
    some = (counted > 0) & (counted < groups.sizes())
    if some.any():
        raise ValueError(
            f"shadow_trained gives a shadow model only some records of a {groups.unit}, in "
            f"{int(some.sum())} cases. Draw halves of {groups.unit}, not of records, or leave "
            "groups out to audit single records."
        )
    return counted > 0


def _check_drawn_blindly(trained: NDArray[np.bool_], n_in: int) -> None:
    """Raise ValueError if the training records of shadow models depend on membership.

    With such shadow models, scores of members and non-members differ even if the target leaks
    nothing.
    """
    for number, row in enumerate(trained):
        shares = row[:n_in].mean(), row[n_in:].mean()
        share, n = row.mean(), len(row)
        spread = math.sqrt(share * (1 - share) * n / (n_in * (n - n_in)))
        if spread and abs(shares[0] - shares[1]) > _BEYOND_CHANCE * spread:
            raise ValueError(
                f"shadow_trained depends on membership: shadow model {number} was trained on "
                f"{100 * shares[0]:.0f} % of the members and {100 * shares[1]:.0f} % of the "
                "others, which no random half gives. Draw the records of each shadow model from "
                "members and non-members alike, or use models trained on neither."
            )
