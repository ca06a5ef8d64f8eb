"""Audit of any generator from the synthetic records that it made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact
from sklearn.base import clone

from .._docs import fill_docs
from .._groups import warn_of_identifiers
from .._sklearn import safe_indexing
from .._validation import check_random_state, num_samples, sequence
from ..attacks import (
    DensityRatio,
    GenerativeAttack,
    LikelihoodRatio,
    MarginalAttack,
    NearestGenerated,
    ShadowGenerators,
)
from ..attacks.generators.shadow_generators import refit_and_sample
from ..attacks.record_tables import as_records, fingerprints
from ..metrics.rates import check_alpha
from ..synthesis import MarginalSynthesizer
from .comparability.blind_baseline import SampleUnits
from .inspection.claims import NO_CLAIM, Claim
from .inspection.guarantees import CLAIM_DOCS, read_claim
from .inspection.member_groups import MemberGroups, claim_for_groups
from .report.audit_report import AuditReport
from .report.findings import AttackFinding, group_facts
from .runner import comparability_facts, shared_rows

_FEWEST = 20  # reference records needed for a rehearsal
_BY_CHANCE = 1e-6  # probability below which equal records are not a coincidence
_WITH_REFERENCE = "DensityRatio", "LikelihoodRatio", "GenerativeAttack", "MarginalAttack"
_NO_REFERENCE = (
    "There are no other records of the population (reference) to show how common records like "
    "these are. Pass some as reference."
)


@fill_docs(CLAIM_DOCS)
def audit_synthetic(
    synthetic: Any,
    X_train: Any,
    X_test: Any,
    *,
    reference: Any = None,
    generator: Any = None,
    claim: Any = None,
    attacks: Iterable[Any] | None = None,
    alpha: float = 0.05,
    random_state: int | None = 0,
    groups: Any = None,
) -> AuditReport:
    """Attack synthetic records, and compare the leakage with the claim of their generator.

    Parameters
    ----------
    synthetic : array-like or DataFrame of shape (n_synthetic, n_columns)
        Records that the generator made. Pass many: they cost no privacy.
    X_train : array-like or DataFrame of shape (n_in, n_columns)
        Records that it was trained on.
    X_test : array-like or DataFrame of shape (n_out, n_columns)
        Records of the same population that it was not trained on.
    reference : array-like or DataFrame of shape (n_reference, n_columns), default=None
        Other records of this population, known to the attacker and not in ``X_train``. None runs
        only the attack that needs none.
    generator : estimator with ``fit(X)`` and ``sample(n)``, default=None
        The generator with its settings; clones are fitted, without a budget. It lets the attacker
        rehearse: a clone is fitted to one half of ``reference``, and all attacks are tried on its
        output. The best attack gets half of ``alpha``.
    %(claim)s
        For an estimator, pass its ``privacy_``. With ``groups``, a number or an event is a claim
        for groups. None means no claim.
    attacks : iterable, default=None
        Attacks with ``fit(generated, reference)`` and ``evaluate(X_in, X_out)``. None runs
        :class:`~skprivacy.attacks.NearestGenerated`. With ``reference`` it adds
        :class:`~skprivacy.attacks.DensityRatio`,
        :class:`~skprivacy.attacks.LikelihoodRatio`,
        :class:`~skprivacy.attacks.GenerativeAttack` and
        :class:`~skprivacy.attacks.MarginalAttack`. With ``generator`` it also adds
        :class:`~skprivacy.attacks.ShadowGenerators`.
    alpha : float, default=0.05
        Largest probability that a true claim is reported as violated, over all attacks together.
    random_state : int or None, default=0
        Seed of the halves of ``reference`` and of the shadow generators.
    groups : (array-like, array-like), default=None
        Group of each record of ``X_train`` and ``X_test``, if groups, such as people, have several
        records. Membership is then decided for whole groups. Each attack joins the scores of a
        group's records, by their sum and by their maximum. The claim must be for groups, and no
        group may be in both.

    Returns
    -------
    AuditReport
        A report with one finding per attack, the best attack of the rehearsal first.

    Raises
    ------
    ValueError
        If there are too few records, columns differ, all non-members are also members, or
        ``reference`` holds members.

    Notes
    -----
    **Guarantees.** As for :func:`~skprivacy.audit.audit`, a measured epsilon is a LOWER bound,
    which can refute a claim but never confirm one. Records are assumed independent given the
    generator. Attacks on synthetic records find little in a good generator, and usually nothing in
    a generator with a proof. :func:`audit_synthesizer` tests this library's synthesizers more
    strictly. The rehearsal uses no record of ``X_train`` and ``X_test``.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.audit import audit_synthetic
    >>> rng = np.random.default_rng(0)
    >>> people = rng.normal(size=(2000, 3))
    >>> copies = people[rng.integers(0, 500, 5000)] + 0.05 * rng.normal(size=(5000, 3))
    >>> report = audit_synthetic(copies, people[:500], people[500:1000], reference=people[1000:])
    >>> report.epsilon_lower_bound > 2
    True
    """
    check_alpha(alpha)
    tables = []
    for name, given in (("synthetic", synthetic), ("X_train", X_train), ("X_test", X_test)):
        tables.append(as_records(given, name))
        if num_samples(tables[-1]) < 2:
            raise ValueError(f"{name} must hold at least 2 records; got {num_samples(given)}.")
    synthetic, X_train, X_test = tables
    prints = fingerprints(X_train), fingerprints(X_test)
    reference = None if reference is None else as_records(reference, "reference")
    _check_generator(generator, reference)
    _check_reference(reference, *prints)
    usual = attacks is None
    chosen = (
        _default_attacks(reference, generator, random_state)
        if attacks is None
        else list(sequence("attacks", attacks))
    )
    if not chosen:
        raise ValueError("attacks is empty; expected at least one attack, or None.")
    if not all(hasattr(attack, "fit") and hasattr(attack, "evaluate") for attack in chosen):
        raise TypeError(f"attacks={attacks!r} must be attacks on generators, or None.")
    member_groups = None if groups is None else MemberGroups.from_records(groups, X_train, X_test)
    if member_groups is None:
        warn_of_identifiers(getattr(X_train, "columns", ()), "What an audit shows")
    stated = read_claim(claim, "record" if member_groups is None else member_groups.unit)
    n_shared = shared_rows(prints, member_groups, ("X_train", "X_test"))
    tested = claim_for_groups(member_groups, Claim(stated, NO_CLAIM if stated is None else ""))
    shares = [alpha / len(chosen)] * len(chosen)
    if generator is not None and len(chosen) > 1:
        chosen = _rank_by_rehearsal(
            chosen, generator, reference, num_samples(synthetic), random_state
        )
        shares = [alpha / 2] + [alpha / 2 / (len(chosen) - 1)] * (len(chosen) - 1)
    findings = []
    for attack, share in zip(chosen, shares, strict=True):
        result = attack.fit(synthetic, reference).evaluate(X_train, X_test)
        results = [result] if member_groups is None else member_groups.join_results(result)
        findings += [
            AttackFinding.from_result(found, tested.guarantee, alpha, share / len(results))
            for found in results
        ]
    units = SampleUnits.from_records(X_train, None, X_test, None, member_groups)
    left_out = usual and reference is None
    counted = {"n_train": num_samples(X_train), "n_test": num_samples(X_test)}
    return AuditReport(
        model=f"a generator, by {num_samples(synthetic)} of its records",
        guarantee=tested.guarantee,
        findings=tuple(findings),
        reason=tested.reason,
        uncovered={},
        charged=stated,
        **(counted | group_facts(member_groups)),
        alpha=float(alpha),
        n_shared=n_shared,
        not_measured=_WITH_REFERENCE if left_out else (),
        why_not_measured=_NO_REFERENCE,
        **comparability_facts(units, findings, tested.guarantee, float(alpha)),
    )


def _default_attacks(reference: Any, generator: Any, random_state: int | None) -> list[Any]:
    if reference is None:
        return [NearestGenerated()]
    counted = generator if isinstance(generator, MarginalSynthesizer) else None
    found = [
        NearestGenerated(), DensityRatio(), LikelihoodRatio(), GenerativeAttack(),
        MarginalAttack(counted, random_state=random_state),
    ]  # fmt: skip
    if generator is not None:
        found.append(ShadowGenerators(generator, random_state=random_state))
    return found


def _rank_by_rehearsal(
    attacks: list[Any], generator: Any, reference: Any, n: int, random_state: int | None
) -> list[Any]:
    """Return the attacks ordered by their AUC on the attacker's own copy of the generator."""
    random = check_random_state(random_state)
    order = random.permutation(num_samples(reference))
    cuts = [len(order) // 2, 3 * len(order) // 4]
    members, others, known = (safe_indexing(reference, part) for part in np.split(order, cuts))
    made = refit_and_sample(generator, members, n, random)
    areas = [clone(a).fit(made, known).evaluate(members, others).auc for a in attacks]
    return [attacks[i] for i in np.argsort(-np.array(areas), kind="stable")]


def _check_generator(generator: Any, reference: Any) -> None:
    if generator is None:
        return
    if not (hasattr(generator, "fit") and hasattr(generator, "sample")):
        raise TypeError(f"generator={generator!r} must have fit and sample, or be None.")
    if reference is None or num_samples(reference) < _FEWEST:
        raise ValueError(
            f"generator={type(generator).__name__} needs at least {_FEWEST} records of reference "
            "to be fitted to. Pass them, or leave generator out."
        )


def _check_reference(
    reference: Any, prints_in: NDArray[np.uint64], prints_out: NDArray[np.uint64]
) -> None:
    """Raise ValueError if members are among the reference records, beyond chance."""
    if reference is None:
        return
    known = fingerprints(reference)
    inside, outside = np.isin(prints_in, known), np.isin(prints_out, known)
    table = [[inside.sum(), (~inside).sum()], [outside.sum(), (~outside).sum()]]
    if fisher_exact(table, alternative="greater").pvalue < _BY_CHANCE:
        raise ValueError(
            f"reference holds {inside.sum()} of the {len(inside)} records of X_train, but only "
            f"{outside.sum()} of the {len(outside)} of X_test. Remove the members from reference: "
            "attacks treat its records as non-members."
        )
